//! Hubs on software cards, in virtual time: connections join, leave and are killed at random while others run; no
//! message and no buffer is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Error;
use mlx5_dv::memory::RemoteAddress;
use mlx5_dv::objects::{
    AccessFlags, Copying, CqOptions, DoorbellKind, InitAttributes, MemoryRegion, Pd, QpOptions, QueuePair, Srq,
    SrqOptions, Uar, UmrKeyOptions, WindowType,
};
use mlx5_dv::queue::{
    Binding, CompletionQueue, ConnectionId, Done, FastKey, FastWindow, Hub, HubDone, HubOptions, Left, RefusedReason,
    Side,
};
use mlx5_open::Sim;
use mlx5_open::virtual_time::World;
use mlx5_prm::cmd::Opcode;
use mlx5_sim::card::Card;
use mlx5_sim::fault::{Fault, Times};
use mlx5_sim::world::Conditions;

const SOON: Duration = Duration::from_secs(60);
const BYTES: usize = 256;

fn options() -> HubOptions {
    let mut options = HubOptions::default();
    (options.connections, options.receives, options.spares) = (24, 127, 64);
    options.message_bytes = BYTES;
    options.each.send_depth = 8;
    options
}

/// A hub, and what its side of each conversation expects. Contexts are the numbers of conversations.
struct End {
    hub: Hub<u32>,
    ids: HashMap<u32, ConnectionId>,
    /// Numbers of the next message to send and to come, by conversation.
    next: HashMap<u32, (u32, u32)>,
    received: u64,
    failed: u64,
}

impl End {
    fn new(pd: &Arc<Pd>) -> End {
        let mut few = options();
        few.connections = 1;
        let hub = Hub::new(pd, few).unwrap();
        End { hub, ids: HashMap::new(), next: HashMap::new(), received: 0, failed: 0 }
    }

    /// Joins; the hub grows for it, which now and then takes a larger completion queue.
    fn join(&mut self, conversation: u32) -> ConnectionId {
        self.hub.grow(self.ids.len() as u32 + 1).unwrap();
        let id = self.hub.join(conversation).unwrap();
        self.ids.insert(conversation, id);
        self.next.insert(conversation, (0, 0));
        id
    }

    /// Sends the next message of `conversation`, if there is room: from memory or inline; two of three are quiet.
    fn send(&mut self, conversation: u32) -> bool {
        let id = self.ids[&conversation];
        let number = self.next[&conversation].0;
        let message = message(conversation, number);
        let buffer = if message.len() <= 28 { None } else { Some(self.hub.buffer()) };
        let mut batch = self.hub.batch(id).unwrap();
        if !number.is_multiple_of(3) {
            batch.quiet();
        }
        let sent = match buffer {
            None => batch.send_inline(&message),
            Some(None) => return false,
            Some(Some(mut buffer)) => {
                buffer.set_len(message.len());
                buffer.write(0, &message);
                batch.send(buffer)
            }
        };
        drop(batch);
        match sent {
            Ok(_) => self.next.get_mut(&conversation).unwrap().0 += 1,
            Err(refused) => {
                assert!(matches!(refused.reason, RefusedReason::Post(_)), "{refused}");
                refused.buffer.into_iter().for_each(|buffer| self.hub.recycle(buffer).unwrap());
                return false;
            }
        }
        true
    }

    /// Polls once. Messages are those that the conversation says, in order.
    fn turn(&mut self) -> bool {
        let Some(some) = self.hub.poll().unwrap() else { return false };
        let (id, conversation, done) = (some.connection, *some.context, some.done);
        assert_eq!(self.ids.get(&conversation), Some(&id));
        self.handle(conversation, done);
        true
    }

    fn handle(&mut self, conversation: u32, done: Done) {
        match &done.result {
            Ok(completion) if completion.work.side == Side::Receive => {
                let next = &mut self.next.get_mut(&conversation).unwrap().1;
                let mut bytes = vec![0; completion.byte_len as usize];
                done.buffer.as_ref().unwrap().read(0, &mut bytes);
                assert_eq!(bytes, message(conversation, *next), "message {next} of conversation {conversation}");
                *next += 1;
                self.received += 1;
            }
            Ok(_) => {}
            Err(_) => self.failed += 1,
        }
        done.buffer.into_iter().for_each(|buffer| self.hub.recycle(buffer).unwrap());
    }

    fn leave(&mut self, conversation: u32) {
        let id = self.ids.remove(&conversation).unwrap();
        let Left { context, done, buffers } = self.hub.leave(id).unwrap();
        assert_eq!(context, conversation);
        done.into_iter().for_each(|done| self.handle(conversation, done));
        assert!(buffers.is_empty(), "each has a completion, quiet ones, too");
        assert!(self.hub.leave(id).is_err(), "twice");
    }

    /// No connection is left, and no buffer is missing.
    fn is_whole(&self) {
        assert!(self.hub.is_empty() && self.ids.is_empty());
        assert_eq!(self.hub.buffers(), (127, 64));
    }
}

/// What message `number` of a conversation is.
fn message(conversation: u32, number: u32) -> Vec<u8> {
    let len = 1 + (conversation.wrapping_mul(37) ^ number.wrapping_mul(101)) as usize % BYTES;
    (0..len).map(|at| (at as u32 ^ conversation.wrapping_mul(7) ^ number.wrapping_mul(13)) as u8).collect()
}

/// A small generator of its own: the same numbers in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % most
    }

    /// One of `some`, in an order that does not depend on the run.
    fn one(&mut self, some: &HashMap<u32, ConnectionId>) -> Option<u32> {
        let mut all: Vec<u32> = some.keys().copied().collect();
        all.sort_unstable();
        (!all.is_empty()).then(|| all[self.below(all.len())])
    }
}

/// How long nothing must happen before all that was sent has come: longer than some retries.
const QUIET: Duration = Duration::from_secs(1);

/// Lets the world run until neither side has anything to poll.
fn settle(world: &World, near: &mut End, far: &mut End) {
    let mut last = world.clock().now();
    while world.clock().now() - last < QUIET {
        if near.turn() | far.turn() {
            last = world.clock().now();
        } else {
            world.clock().pause(QUIET);
        }
    }
}

/// One run: 1500 random steps. Returns how many messages came, and how many work requests failed.
fn run(seed: u64) -> (u64, u64) {
    let world = World::new(seed);
    let conditions = Conditions { loss: 20_000, ..Conditions::default() };
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], conditions).unwrap();
    let pds = [0, 1].map(|at| Pd::alloc(&world.open(&cards[at]).unwrap()).unwrap());
    let [mut near, mut far] = [0, 1].map(|at| End::new(&pds[at]));
    let mut dice = Dice(seed * 2 + 1);
    let mut conversations = 0;
    for _ in 0..1500 {
        match dice.below(40) {
            0 | 1 if near.ids.len() < 24 && far.ids.len() < 24 => {
                conversations += 1;
                let (a, b) = (near.join(conversations), far.join(conversations));
                far.hub.connect(b, &near.hub.local(a).unwrap()).unwrap();
                near.hub.connect(a, &far.hub.local(b).unwrap()).unwrap();
            }
            2 => {
                // Both ends are done with each other: all that was sent has come.
                let Some(conversation) = dice.one(&near.ids).filter(|one| far.ids.contains_key(one)) else { continue };
                settle(&world, &mut near, &mut far);
                if near.ids.contains_key(&conversation) {
                    let sent = (near.next[&conversation].0, far.next[&conversation].0);
                    let come = (far.next[&conversation].1, near.next[&conversation].1);
                    assert_eq!(sent, come, "conversation {conversation}");
                    near.leave(conversation);
                    far.leave(conversation);
                }
            }
            // One end goes in the middle of everything; the other learns by a failure, or never.
            3 => {
                if let Some(conversation) = dice.one(&near.ids) {
                    near.leave(conversation);
                    far.leave(conversation);
                }
            }
            4..=20 => {
                if let Some(conversation) = dice.one(&near.ids) {
                    near.send(conversation);
                }
            }
            21..=37 => {
                if let Some(conversation) = dice.one(&far.ids) {
                    far.send(conversation);
                }
            }
            _ => world.clock().pause(Duration::from_micros(dice.below(50) as u64)),
        }
        if dice.below(3) == 0 {
            near.turn();
            far.turn();
        }
    }
    settle(&world, &mut near, &mut far);
    for conversation in near.ids.keys().copied().collect::<Vec<_>>() {
        assert_eq!(near.next[&conversation].0, far.next[&conversation].1, "conversation {conversation}");
        assert_eq!(far.next[&conversation].0, near.next[&conversation].1, "conversation {conversation}");
        near.leave(conversation);
        far.leave(conversation);
    }
    near.is_whole();
    far.is_whole();
    (near.received + far.received, near.failed + far.failed)
}

#[test]
fn nothing_is_lost_while_connections_come_and_go() {
    for seed in 1..=6 {
        let (received, failed) = run(seed);
        assert!(received > 300 && failed > 0, "seed {seed}: {received} messages, {failed} failures");
    }
}

/// Two hubs of a connection each.
fn pair(world: &World) -> ([Hub<()>; 2], [ConnectionId; 2]) {
    let (_, hubs, ids) = pair_with_pds(world, options().each.send_depth);
    (hubs, ids)
}

/// The same, with their protection domains.
fn pair_with_pds(world: &World, send_depth: u32) -> ([Arc<Pd>; 2], [Hub<()>; 2], [ConnectionId; 2]) {
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
    let pds = cards.each_ref().map(|card| Pd::alloc(&world.open(card).unwrap()).unwrap());
    let mut options = options();
    options.each.send_depth = send_depth;
    let mut hubs = pds.each_ref().map(|pd| Hub::new(pd, options.clone()).unwrap());
    let ids = hubs.each_mut().map(|hub| hub.join(()).unwrap());
    let remotes = [0, 1].map(|at| hubs[at].local(ids[at]).unwrap());
    for (at, hub) in hubs.iter_mut().enumerate() {
        hub.connect(ids[at], &remotes[1 - at]).unwrap();
    }
    (pds, hubs, ids)
}

#[test]
fn sends_that_are_not_reported_leave_nothing_to_poll_but_their_errors() {
    let world = World::new(4);
    let ([mut near, mut far], [a, b]) = pair(&world);
    let mut received = 0;
    // Several times as many as the ring holds.
    for number in 0..100u32 {
        near.batch(a).unwrap().send_inline_unreported(&number.to_be_bytes()).unwrap();
        while received <= number {
            far.wait(SOON).unwrap();
            while let Some(HubDone { done, .. }) = far.poll().unwrap() {
                let mut bytes = [0; 4];
                done.buffer.as_ref().unwrap().read(0, &mut bytes);
                assert_eq!(bytes, received.to_be_bytes());
                received += 1;
                far.recycle(done.buffer.unwrap()).unwrap();
            }
        }
        assert!(near.poll().unwrap().is_none(), "message {number}");
    }
    far.leave(b).unwrap();
    near.batch(a).unwrap().send_inline_unreported(b"nobody has it").unwrap();
    near.wait(SOON).unwrap();
    let failed = near.poll().unwrap().expect("its error");
    assert!(failed.connection == a && failed.done.result.is_err() && failed.done.buffer.is_none());
    assert!(near.poll().unwrap().is_none());
}

/// The next completion of `hub`.
fn next(hub: &mut Hub<()>) -> Done {
    hub.wait(SOON).unwrap();
    hub.poll().unwrap().expect("a completion").done
}

#[test]
fn a_batch_opens_memory_by_a_key_and_a_window_and_tells_where() {
    let world = World::new(5);
    let (pds, [mut near, mut far], [a, b]) = pair_with_pds(&world, 16);
    let region = MemoryRegion::allocate(&pds[0], 4096, AccessFlags::LOCAL_WRITE).unwrap();
    region.write(0, &[7; 64]);
    region.write(2048, &[9; 64]);
    let mut key = FastKey::create(&pds[0], UmrKeyOptions::default().entries(1)).unwrap();
    let mut window = FastWindow::alloc(&pds[0], WindowType::Two).unwrap();
    for turn in 0..3 {
        key.push(region.buffer(0..64).unwrap()).unwrap();
        let mut batch = near.batch(a).unwrap();
        // What follows it reports it, though a batch is quiet.
        batch.quiet();
        let before = batch.nop().unwrap();
        let (registered, by_key) = batch.register(&mut key, AccessFlags::REMOTE_READ).unwrap();
        let binding = Binding::new(2048..2112, AccessFlags::REMOTE_READ);
        let (bound, by_window) = batch.bind(&mut window, &region, binding).unwrap();
        let told = batch.send_inline(&by_key.addr.to_be_bytes()).unwrap();
        batch.signalled();
        let last = batch.nop().unwrap();
        batch.ring();
        for ticket in [before, registered, bound, told, last] {
            let done = next(&mut near);
            assert_eq!((done.ticket, done.result.is_ok()), (ticket, true), "turn {turn}");
            assert_eq!(key.settle(&done), ticket == registered);
            assert_eq!(window.settle(&done), ticket == bound);
        }
        let message = next(&mut far);
        far.recycle(message.buffer.unwrap()).unwrap();
        for (remote, byte) in [(by_key, 7), (by_window, 9)] {
            let mut buffer = far.buffer().unwrap();
            buffer.set_len(64);
            far.read(b, buffer, remote).unwrap();
            let done = next(&mut far);
            done.result.unwrap();
            let buffer = done.buffer.unwrap();
            assert_eq!(buffer.as_slice(), [byte; 64]);
            far.recycle(buffer).unwrap();
        }
        let mut batch = near.batch(a).unwrap();
        batch.invalidate(&mut key).unwrap();
        batch.unbind(&mut window).unwrap();
        batch.ring();
        for _ in 0..2 {
            let done = next(&mut near);
            assert!(key.settle(&done) | window.settle(&done), "{done:?}");
        }
        assert!(key.is_free() && window.is_free());
        key.parts().for_each(drop);
    }
    // What is closed stays so: the read fails, and with it the connection.
    let closed = RemoteAddress { addr: region.segment(0..1).addr, rkey: key.rkey() };
    let buffer = far.buffer().unwrap();
    far.read(b, buffer, closed).unwrap();
    assert!(next(&mut far).result.is_err());
}

#[test]
fn a_key_that_is_registered_outlives_a_connection_that_leaves() {
    let world = World::new(6);
    let (pds, [mut near, _far], [a, _]) = pair_with_pds(&world, 16);
    let region = MemoryRegion::allocate(&pds[0], 64, AccessFlags::LOCAL_WRITE).unwrap();
    let memory = Arc::downgrade(&region);
    let mut key = FastKey::create(&pds[0], UmrKeyOptions::default().entries(1)).unwrap();
    key.push(region.buffer(0..64).unwrap()).unwrap();
    near.batch(a).unwrap().register(&mut key, AccessFlags::REMOTE_READ).unwrap();
    drop((key, region));
    assert!(memory.upgrade().is_some(), "the work request may be in flight");
    near.leave(a).unwrap();
    assert!(memory.upgrade().is_none(), "nobody reaches it any more");
}

#[test]
fn connections_share_a_register_to_copy_work_requests_to() {
    for (copying, kind) in [
        (Copying::Always, DoorbellKind::BlueFlame),
        (Copying::WhereItPays, DoorbellKind::Plain),
        (Copying::Never, DoorbellKind::Plain),
    ] {
        let world = World::new(7);
        let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
        let pds = cards.each_ref().map(|card| Pd::alloc(&world.open(card).unwrap()).unwrap());
        let mut options = options();
        (options.each.copying, options.each.inline_bytes) = (copying, 200);
        let [mut near, mut far] = pds.each_ref().map(|pd| Hub::new(pd, options.clone()).unwrap());
        let ids: Vec<_> = (0..3).map(|number| (near.join(number).unwrap(), far.join(number).unwrap())).collect();
        for &(a, b) in &ids {
            assert_eq!(near.doorbell_kind(a), None, "before it is connected");
            far.connect(b, &near.local(a).unwrap()).unwrap();
            near.connect(a, &far.local(b).unwrap()).unwrap();
            assert_eq!(near.doorbell_kind(a), Some(kind), "{copying:?}");
        }
        // In turns, so that one copies while the card reads what another has. The card compares each copy with its work
        // request, and would report a difference.
        for len in 1..=200 {
            let message = |number: usize| vec![(len * 3 + number) as u8; len];
            for (number, &(a, _)) in ids.iter().enumerate() {
                near.send_inline(a, &message(number)).unwrap();
            }
            for _ in &ids {
                far.wait(SOON).unwrap();
                let HubDone { context, done, .. } = far.poll().unwrap().expect("a message");
                assert_eq!(done.received().unwrap(), message(*context as usize));
                far.recycle(done.buffer.unwrap()).unwrap();
                near.wait(SOON).unwrap();
                near.poll().unwrap().expect("a completion").done.result.unwrap();
            }
        }
        near.leave(ids[0].0).unwrap();
        assert_eq!(near.doorbell_kind(ids[0].0), None);
    }
}

#[test]
fn an_error_of_one_leaves_the_others_alone() {
    let world = World::new(1);
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
    let pds = [0, 1].map(|at| Pd::alloc(&world.open(&cards[at]).unwrap()).unwrap());
    let [mut near, mut far] = [0, 1].map(|at| End::new(&pds[at]));
    for conversation in 0..3 {
        let (a, b) = (near.join(conversation), far.join(conversation));
        far.hub.connect(b, &near.hub.local(a).unwrap()).unwrap();
        near.hub.connect(a, &far.hub.local(b).unwrap()).unwrap();
    }
    // The far end of 1 is gone: the near one fails after its retries.
    far.leave(1);
    (0..3).for_each(|conversation| assert!(near.send(conversation)));
    while near.failed == 0 || far.received < 2 {
        near.hub.wait(SOON).unwrap();
        while near.turn() | far.turn() {}
    }
    for conversation in [0, 2] {
        assert!(near.send(conversation) && far.send(conversation));
    }
    settle(&world, &mut near, &mut far);
    assert_eq!((near.received, far.received, near.failed), (2, 4, 1));
    // In its place another, by the same context.
    let old = near.ids[&1];
    let (new, left) = near.hub.reset(old).unwrap();
    assert!(left.buffers.is_empty() && new != old && near.hub.context(old).is_none());
    assert_eq!(near.hub.context(new), Some(&mut 1));
    near.ids.insert(1, new);
    near.next.insert(1, (0, 0));
    let b = far.join(1);
    far.hub.connect(b, &near.hub.local(new).unwrap()).unwrap();
    near.hub.connect(new, &far.hub.local(b).unwrap()).unwrap();
    assert!(near.send(1));
    settle(&world, &mut near, &mut far);
    assert_eq!(far.received, 5);
    for conversation in 0..3 {
        near.leave(conversation);
        far.leave(conversation);
    }
    near.is_whole();
    far.is_whole();
}

/// What firmware refuses costs neither the context nor a buffer of the hub.
/// Others' queue pairs may end in thousands, while the hub is not called.
#[test]
fn a_connection_whose_last_event_was_lost_leaves_at_once() {
    const ENDS: u32 = 1100;
    let world = World::new(1);
    let card = world.simulated().card(Card::builder().strict(true)).unwrap();
    let device = world.open(&card).unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let mut hub: Hub<()> = Hub::new(&pd, options()).unwrap();
    let ids = [(); 3].map(|()| hub.join(()).unwrap());
    for id in ids {
        let own = hub.local(id).unwrap();
        hub.connect(id, &own).unwrap();
    }
    let uar = Uar::alloc(&device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let srq = Srq::create(&pd, SrqOptions::default().wqes(1)).unwrap();
    let qp = QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), QpOptions::default().srq(&srq)).unwrap();
    let end_others = || {
        for _ in 0..ENDS {
            qp.init(&InitAttributes::default()).unwrap();
            qp.to_error().unwrap();
            qp.reset().unwrap();
        }
    };
    let leave = |hub: &mut Hub<()>, id| {
        world.clock().pause(Duration::from_millis(10));
        let begin = world.clock().now();
        hub.leave(id).unwrap();
        world.clock().now() - begin
    };
    end_others();
    // Its event is lost, as the hub has not taken those before it.
    hub.to_error(ids[0]).unwrap();
    let took = leave(&mut hub, ids[0]);
    assert!(took < Duration::from_millis(100), "it waited for the event: {took:?}");
    let lost = hub.lost_events();
    assert!(lost > 0 && lost <= u64::from(ENDS), "{lost}");
    // This one was well when others' events were lost: its own comes, and is waited for.
    assert!(leave(&mut hub, ids[1]) < Duration::from_millis(100));
    hub.to_error(ids[2]).unwrap();
    assert!(leave(&mut hub, ids[2]) < Duration::from_millis(100));
    assert_eq!((hub.lost_events(), hub.buffers().0), (lost, options().receives as usize));
    drop((hub, qp, srq, cq, uar, pd, device));
    assert_eq!(card.function(0).strict().take(), []);
}

#[test]
fn a_reset_for_which_there_is_no_queue_pair_leaves_the_connection_as_it_is() {
    let world = World::new(1);
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
    let pds = cards.each_ref().map(|card| Pd::alloc(&world.open(card).unwrap()).unwrap());
    let [mut near, mut far] = pds.each_ref().map(End::new);
    let (a, b) = (near.join(0), far.join(0));
    far.hub.connect(b, &near.hub.local(a).unwrap()).unwrap();
    near.hub.connect(a, &far.hub.local(b).unwrap()).unwrap();
    let refuse = |opcode: Opcode| {
        let fault = Fault::CommandStatus { opcode: Some(opcode.number() as u16), status: 1, syndrome: 0x1234 };
        cards[0].function(0).faults().inject(fault, Times::Count(1));
    };
    refuse(Opcode::CreateQp);
    assert!(near.hub.reset(a).unwrap_err().to_string().contains("CREATE_QP"));
    assert!(near.send(0) && far.send(0));
    settle(&world, &mut near, &mut far);
    assert_eq!((near.received, far.received), (1, 1));
    refuse(Opcode::DestroyQp);
    assert!(near.hub.leave(a).unwrap_err().to_string().contains("DESTROY_QP"));
    assert!(near.hub.context(a).is_none(), "it has left");
    near.ids.remove(&0);
    far.leave(0);
    near.is_whole();
    far.is_whole();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new(1);
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
    let pd = Pd::alloc(&world.open(&cards[0]).unwrap()).unwrap();
    let mut hub = Hub::new(&pd, options()).unwrap();
    let id = hub.join("one").unwrap();
    assert!(matches!(hub.send_inline(id, b"?").unwrap_err().reason, RefusedReason::NotConnected));
    let foreign = MemoryRegion::allocate(&pd, BYTES, AccessFlags::LOCAL_WRITE).unwrap();
    let refused = hub.recycle(foreign.buffer(0..BYTES).unwrap()).unwrap_err();
    assert!(matches!(refused.reason, RefusedReason::ForeignBuffer) && refused.buffer.is_some());
    for _ in 1..24 {
        hub.join("more").unwrap();
    }
    let text = hub.join("one too many").unwrap_err().to_string();
    assert!(text.contains("all 24") && text.contains("Hub::grow"), "{text}");
    hub.grow(24).unwrap();
    assert!(hub.join("still one too many").is_err());
    hub.grow(25).unwrap();
    hub.join("one more").unwrap();
    assert!(hub.grow(1 << 20).unwrap_err().to_string().contains("16384"));
    hub.leave(id).unwrap();
    assert!(matches!(hub.send_inline(id, b"?").unwrap_err().reason, RefusedReason::HasLeft));
    assert!(hub.local(id).unwrap_err().to_string().contains("has left"));
    assert!(matches!(hub.wait(Duration::from_millis(1)), Err(Error::Timeout { .. })));
    let mut too_many = options();
    too_many.connections = 1 << 20;
    assert!(Hub::<()>::new(&pd, too_many).unwrap_err().to_string().contains("16384"));
    // Dropped with connections, receives and a message under way.
    let (a, b) = (hub.join("a").unwrap(), hub.connections().next().unwrap());
    hub.connect(a, &hub.local(b).unwrap()).unwrap();
    hub.send_inline(a, b"nobody waits").unwrap();
    drop((hub, refused));
    MemoryRegion::destroy(foreign).unwrap();
    Pd::destroy(pd).unwrap();
    let counts = cards[0].function(0).counts();
    assert_eq!((counts.qps, counts.cqs, counts.mkeys, counts.uars), (0, 0, 0, 0), "{counts:?}");
}

/// A beacon: the last send of a queue pair that was taken to ERR tells that all before it are done.
#[test]
fn a_send_behind_an_error_is_flushed_after_all_before_it() {
    let world = World::new(3);
    let ([mut near, mut far], [a, b]) = pair(&world);
    // The far end's queue pair is gone: nothing is answered.
    far.leave(b).unwrap();
    let sent: Vec<_> = (0..3).map(|_| near.send_inline(a, b"nobody has it").unwrap()).collect();
    near.to_error(a).unwrap();
    let beacon = near.send_inline(a, &[]).unwrap();
    let mut done = vec![];
    while done.last() != Some(&beacon) {
        near.wait(SOON).unwrap();
        while let Some(next) = near.poll().unwrap() {
            assert!(next.done.result.is_err());
            done.push(next.done.ticket);
        }
        world.clock().pause(Duration::from_micros(50));
    }
    assert_eq!(done, [sent, vec![beacon]].concat());
    assert!(near.leave(a).unwrap().done.is_empty());
    assert!(near.to_error(a).is_err(), "it has left");
}

#[test]
fn connections_that_no_card_has_are_refused_before_there_is_one() {
    let world = World::new(4);
    let card = world.simulated().card(Card::builder()).unwrap();
    let pd = Pd::alloc(&world.open(&card).unwrap()).unwrap();
    let mut options = options();
    options.connections = 0;
    (options.each.send_depth, options.each.send_sges) = (u32::MAX, u16::MAX);
    let error = Hub::<()>::new(&pd, options).map(drop).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}

#[test]
fn a_completion_with_an_opcode_that_nobody_knows_is_an_error_of_the_hub() {
    let sim = Sim::builder().build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    let (mut a, mut b) = (Hub::<u32>::new(&pd, options()).unwrap(), Hub::<u32>::new(&pd, options()).unwrap());
    let (here, there) = (a.join(1).unwrap(), b.join(2).unwrap());
    a.connect(here, &b.local(there).unwrap()).unwrap();
    b.connect(there, &a.local(here).unwrap()).unwrap();
    let buffers = b.buffers();
    sim.handle(0).faults().inject(Fault::CqeOpcode { qpn: None, opcode: 7 }, Times::Count(2));
    a.send_inline(here, b"lost").unwrap();
    for hub in [&mut a, &mut b] {
        hub.wait(SOON).unwrap();
        let error = hub.poll().map(|done| done.is_some()).unwrap_err();
        assert!(error.to_string().contains("invalid opcode"), "{error}");
        assert!(hub.poll().unwrap().is_none());
    }
    assert_eq!(b.buffers(), buffers);
}
