//! Dynamic connections on the software card: one initiator and many targets, many initiators and one target, streams,
//! refusals.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::objects::{
    AccessFlags, AddressPath, AnyDoorbell, CqOptions, DcTarget, DciStreams, Dct, DctOptions, MemoryRegion, Pd,
    QpOptions, QueuePair, ReservedQpns, Srq, SrqOptions, Uar, UmrKey, UmrKeyOptions,
};
use mlx5_dv::queue::{
    CompletionQueue, ConnectionOptions, DcInitiator, DcReceiver, Done, FastKey, KeyMemory, MaskedAdd, MaskedSwap,
    Operation, PostError, RefusedReason, Registration, RetireError, WrFlags,
};
use mlx5_dv::{Device, Error};
use mlx5_open::Sim;
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::ctx::DctState;
use mlx5_prm::eqe::{DctEvent, EventType};
use mlx5_prm::layout::Layout;
use mlx5_prm::values::QpState;
use mlx5_sim::fault::{Fault, FrameFate, Times};
use mlx5_sim::profile::Profile;

/// Limit for everything that must succeed.
const SOON: Duration = Duration::from_secs(20);
const KEY: u64 = 0x0102_0304_0506_0708;
const ROOM: usize = 8192;
/// Receives that a target has posted.
const RECEIVES: usize = 7;

fn all() -> AccessFlags {
    AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC
}

fn remote_access() -> AccessFlags {
    AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC
}

/// A target with posted receives.
struct Target {
    receiver: DcReceiver,
    region: Arc<MemoryRegion>,
}

impl Target {
    fn new(device: &Arc<Device>, user_index: u32) -> Target {
        Self::with(device, DctOptions::new(KEY).user_index(user_index).remote_access(remote_access()))
    }

    /// One that insists on handshakes.
    fn insistent(device: &Arc<Device>, user_index: u32) -> Target {
        let options = DctOptions::new(KEY).user_index(user_index).remote_access(remote_access());
        Self::with(device, options.full_handshake())
    }

    fn with(device: &Arc<Device>, options: DctOptions) -> Target {
        let pd = Pd::alloc(device).unwrap();
        let receives = SrqOptions::default().wqes(RECEIVES as u32);
        let receiver = DcReceiver::new(&pd, &options, receives, CqOptions::default()).unwrap();
        let region = MemoryRegion::allocate(&pd, (RECEIVES + 1) * ROOM, all()).unwrap();
        let mut target = Target { receiver, region };
        target.post_all();
        target
    }

    fn post_all(&mut self) {
        let buffer = |slot| self.region.buffer(slot * ROOM..(slot + 1) * ROOM).unwrap();
        self.receiver.receive_each(&mut (0..RECEIVES).map(buffer).collect()).unwrap();
    }

    /// How initiators reach it.
    fn address(&self, key: u64) -> DcTarget {
        let dct = self.receiver.dct();
        let path = AddressPath::link_local(dct.device().gids()[0].address.octets()).unwrap();
        DcTarget::new(dct.device(), &path, dct.dctn(), key).unwrap()
    }

    /// The next message, whose receive is posted again.
    fn message(&mut self, user_index: u32) -> (Vec<u8>, Operation) {
        let done = wait(|| self.receiver.poll());
        let (completion, buffer) = (done.result.unwrap(), done.buffer.unwrap());
        assert_eq!(completion.user_index, user_index);
        let mut bytes = vec![0; completion.byte_len as usize];
        buffer.read(0, &mut bytes);
        self.receiver.receive(buffer).unwrap();
        (bytes, completion.operation)
    }
}

fn wait(mut poll: impl FnMut() -> Result<Option<Done>, RetireError>) -> Done {
    let end = Instant::now() + SOON;
    loop {
        match poll().unwrap() {
            Some(done) => break done,
            None => assert!(Instant::now() < end, "no completion"),
        }
        std::thread::yield_now();
    }
}

fn initiator(device: &Arc<Device>) -> (DcInitiator, Arc<MemoryRegion>) {
    let pd = Pd::alloc(device).unwrap();
    let initiator = DcInitiator::new(&pd, &ConnectionOptions::default()).unwrap();
    (initiator, MemoryRegion::allocate(&pd, 4 * ROOM, all()).unwrap())
}

fn sent(initiator: &mut DcInitiator) {
    wait(|| initiator.poll()).result.unwrap();
}

fn number(region: &MemoryRegion, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    region.read(offset, &mut bytes);
    u64::from_ne_bytes(bytes)
}

#[test]
fn one_initiator_sends_to_many_targets_in_turn() {
    /// Bytes of a message: more than one packet.
    const LEN: usize = 2700;
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| sim.open(function).unwrap());
    let mut targets: Vec<_> =
        [&here, &there, &there].iter().zip(7..).map(|(device, index)| Target::new(device, index)).collect();
    let (mut initiator, region) = initiator(&here);
    let message = |number: usize| (0..LEN).map(|i| (i * 7 + number) as u8).collect::<Vec<u8>>();
    // All are posted before the first is complete: so the card goes from target to target by itself.
    for number in 0..12 {
        region.write(number * LEN, &message(number));
        let buffer = region.buffer(number * LEN..(number + 1) * LEN).unwrap();
        initiator.send(&targets[number % 3].address(KEY), buffer).unwrap();
    }
    for number in 0..12 {
        sent(&mut initiator);
        let (bytes, operation) = targets[number % 3].message(7 + (number % 3) as u32);
        assert_eq!((bytes, operation), (message(number), Operation::Received));
    }
    drop((targets, initiator, region));
    assert_eq!(sim.violations(), []);
}

#[test]
fn every_operation_reaches_a_target() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| sim.open(function).unwrap());
    let mut target = Target::new(&there, 7);
    let (mut initiator, region) = initiator(&here);
    let to = target.address(KEY);
    let free = RECEIVES * ROOM;
    let remote = target.region.remote_at(free);
    region.write(0, &41u64.to_ne_bytes());
    initiator.write(&to, region.buffer(0..8).unwrap(), remote).unwrap();
    initiator.fetch_add(&to, region.buffer(8..16).unwrap(), remote, 1).unwrap();
    initiator.read(&to, region.buffer(16..24).unwrap(), remote).unwrap();
    initiator.send_inline(&to, b"last").unwrap();
    (0..4).for_each(|_| sent(&mut initiator));
    assert_eq!(target.message(7).0, b"last");
    assert_eq!((number(&region, 8), number(&region, 16), number(&target.region, free)), (41, 42, 42));
    drop((target, initiator, region));
    assert_eq!(sim.violations(), []);
}

#[test]
fn immediate_data_inline_writes_and_all_atomics_reach_a_target() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| sim.open(function).unwrap());
    let mut target = Target::new(&there, 7);
    let (mut initiator, region) = initiator(&here);
    let to = target.address(KEY);
    let free = RECEIVES * ROOM;
    let remote = target.region.remote_at(free);
    let buffer = |at: usize| region.buffer(at..at + 8).unwrap();
    region.write(0, &9u64.to_ne_bytes());
    initiator.write_inline(&to, &41u64.to_ne_bytes(), remote).unwrap();
    initiator.compare_swap(&to, buffer(8), remote, [41, 50]).unwrap();
    initiator.masked_fetch_add(&to, buffer(16), remote, MaskedAdd { add: 1u64, boundaries: 0 }).unwrap();
    let swap = MaskedSwap { compare: 51u64, compare_mask: u64::MAX, swap: 0xff, swap_mask: 0xf };
    initiator.masked_compare_swap(&to, buffer(24), remote, swap).unwrap();
    (0..4).for_each(|_| sent(&mut initiator));
    assert_eq!(([8, 16, 24].map(|at| number(&region, at)), number(&target.region, free)), ([41, 50, 51], 0x3f));
    initiator.write_imm(&to, buffer(0), remote, 3).unwrap();
    sent(&mut initiator);
    initiator.send_imm(&to, buffer(0), 4).unwrap();
    sent(&mut initiator);
    assert_eq!(target.message(7).1, Operation::WrittenImm(3));
    assert_eq!(target.message(7), (9u64.to_ne_bytes().to_vec(), Operation::ReceivedImm(4)));
    assert_eq!(number(&target.region, free), 9);
    drop((target, initiator, region));
    assert_eq!(sim.violations(), []);
}

#[test]
fn inline_data_of_several_parts_reaches_each_target() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| sim.open(function).unwrap());
    let mut targets = [Target::new(&here, 7), Target::new(&there, 8)];
    let pd = Pd::alloc(&here).unwrap();
    let mut options = ConnectionOptions::default();
    options.inline_bytes = 100;
    let mut initiator = DcInitiator::new(&pd, &options).unwrap();
    let (data, free): (Vec<u8>, _) = ((0..100).collect(), RECEIVES * ROOM);
    for (round, target) in (0..200).map(|round| (round, round % 2)) {
        let len = round * 37 % (data.len() + 1);
        let (first, second) = data[..len].split_at(len / 4);
        let target = &mut targets[target];
        let (to, remote) = (target.address(KEY), target.region.remote_at(free));
        target.region.write(free, &[0xee; 100]);
        let mut batch = initiator.batch();
        batch.write_inline_all(&to, &[first, second], remote).unwrap();
        batch.send_inline_all(&to, &[first, &[], second, b""]).unwrap();
        batch.ring();
        assert_eq!(target.message(7 + round as u32 % 2), (data[..len].to_vec(), Operation::Received));
        let mut written = [0; 100];
        target.region.read(free, &mut written);
        assert_eq!((&written[..len], &written[len..]), (&data[..len], &[0xee; 100][len..]));
        (0..2).for_each(|_| sent(&mut initiator));
        target.region.write(free, &[0xee; 100]);
        let mut batch = initiator.batch();
        batch.write_imm_inline_all(&to, &[first, second], remote, 8).unwrap();
        batch.send_imm_inline_all(&to, &[first, &[], second, b""], 9).unwrap();
        batch.ring();
        assert_eq!(target.message(7 + round as u32 % 2).1, Operation::WrittenImm(8));
        assert_eq!(target.message(7 + round as u32 % 2), (data[..len].to_vec(), Operation::ReceivedImm(9)));
        target.region.read(free, &mut written);
        assert_eq!((&written[..len], &written[len..]), (&data[..len], &[0xee; 100][len..]));
        (0..2).for_each(|_| sent(&mut initiator));
    }
    let to = targets[0].address(KEY);
    let long = [&data[..], &[1]];
    let too_long = RefusedReason::Post(PostError::InlineTooLong { given: 101, most: 100 });
    let mut batch = initiator.batch();
    assert_eq!(batch.send_inline_all(&to, &long).unwrap_err().reason, too_long);
    assert_eq!(batch.write_inline_all(&to, &long, targets[0].region.remote()).unwrap_err().reason, too_long);
    batch.ring();
    assert_eq!(initiator.in_flight(), 0);
    drop((targets, initiator));
    assert_eq!(sim.violations(), []);
}

#[test]
fn an_initiator_opens_memory_of_its_target_s_domain_until_a_message_or_itself_closes_it() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let mut target = Target::new(&device, 7);
    let (to, pd) = (target.address(KEY), Arc::clone(target.region.pd()));
    let (mut initiator, region) = initiator(&device);
    // One in the domain of the target.
    let uar = Uar::alloc(&device).unwrap();
    let mut changed = CompletionQueue::create(&uar, CqOptions::default().events()).unwrap();
    let options = QpOptions::default().wqes(16, 0).dc_initiator();
    let qp = QueuePair::create(&pd, &uar, changed.cq(), changed.cq(), options).unwrap();
    qp.activate_initiator(&Default::default()).unwrap();
    let mut queue = qp.dc_send_queue::<AnyDoorbell>().unwrap();
    let key = UmrKey::create(&pd, UmrKeyOptions::default()).unwrap();
    let parts = [target.region.segment(RECEIVES * ROOM..RECEIVES * ROOM + 8)];
    for variant in [1, 2] {
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let memory = KeyMemory::Parts(&parts);
        let mut batch = queue.batch();
        batch.nop(0, WrFlags::empty()).unwrap();
        let registration = Registration { variant, access, start: 0, memory };
        // SAFETY: the region goes after the queues, and is read after completions only.
        let remote = unsafe { batch.register(1, WrFlags::SIGNALLED, &key, &registration) }.unwrap();
        batch.ring();
        changed.wait(SOON).unwrap();
        queue.retire(&changed.poll().unwrap().unwrap().work).unwrap();
        initiator.write_inline(&to, &[variant; 8], remote).unwrap();
        sent(&mut initiator);
        assert_eq!(number(&target.region, RECEIVES * ROOM), u64::from_ne_bytes([variant; 8]));
        if variant == 1 {
            initiator.send_invalidate(&to, region.buffer(0..8).unwrap(), remote.rkey).unwrap();
            sent(&mut initiator);
            assert_eq!(target.message(7).1, Operation::ReceivedInvalidate(remote.rkey));
        } else {
            let mut batch = queue.batch();
            batch.local_invalidate(1, WrFlags::SIGNALLED, remote.rkey).unwrap();
            batch.ring();
            changed.wait(SOON).unwrap();
            queue.retire(&changed.poll().unwrap().unwrap().work).unwrap();
            initiator.write_inline(&to, &[0; 8], remote).unwrap();
            let error = wait(|| initiator.poll()).result.unwrap_err();
            assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess), "{error}");
        }
    }
    assert_eq!(
        sim.violations().iter().map(|violation| violation.rule).collect::<Vec<_>>(),
        ["key does not allow the access"]
    );
}

#[test]
fn a_batch_goes_to_many_targets_quietly_and_changes_keys() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let mut targets: Vec<_> = (7..10).map(|index| Target::new(&device, index)).collect();
    let addresses: Vec<_> = targets.iter().map(|target| target.address(KEY)).collect();
    // In the first target's protection domain, to open memory of that.
    let pd = Arc::clone(targets[0].region.pd());
    let mut initiator = DcInitiator::new(&pd, &ConnectionOptions::default()).unwrap();
    let mut key = FastKey::create(&pd, UmrKeyOptions::default().entries(1)).unwrap();
    let at = RECEIVES * ROOM;
    for round in 0..3u64 {
        key.push(targets[0].region.buffer(at..at + 8).unwrap()).unwrap();
        let mut batch = initiator.batch();
        batch.quiet();
        let mut tickets: Vec<_> =
            addresses.iter().map(|to| batch.send_inline(to, &round.to_ne_bytes()).unwrap()).collect();
        let (registered, remote) =
            batch.register(&mut key, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE).unwrap();
        tickets.push(registered);
        batch.signalled();
        // The last, so that the write is done when the key closes.
        tickets.push(batch.write_inline(&addresses[0], &(round + 1).to_ne_bytes(), remote).unwrap());
        batch.ring();
        for ticket in tickets {
            let done = wait(|| initiator.poll());
            assert_eq!((done.ticket, done.result.is_ok()), (ticket, true));
            assert_eq!(key.settle(&done), ticket == registered);
        }
        initiator.batch().invalidate(&mut key).unwrap();
        assert!(key.settle(&wait(|| initiator.poll())));
        assert!(key.is_free() && initiator.in_flight() == 0);
        key.parts().for_each(drop);
        assert_eq!(number(&targets[0].region, at), round + 1);
        for (target, index) in targets.iter_mut().zip(7..) {
            assert_eq!(target.message(index).0, round.to_ne_bytes());
        }
    }
    drop((key, initiator, targets));
    assert_eq!(sim.violations(), []);
}

#[test]
fn an_initiator_in_error_sends_again_after_a_reset_that_returns_what_was_in_flight() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let mut target = Target::new(&device, 7);
    let to = target.address(KEY);
    let (mut initiator, region) = initiator(&device);
    for round in 0..3u8 {
        // A key of another protection domain: the first fails, and flushes the second, of which nobody polls.
        initiator.write(&to, region.buffer(0..8).unwrap(), region.remote()).unwrap();
        initiator.send(&to, region.buffer(8..16).unwrap()).unwrap();
        let error = wait(|| initiator.poll()).result.unwrap_err();
        assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess), "{error}");
        let buffers = initiator.reset().unwrap();
        assert_eq!((buffers.len(), buffers[0].segment().addr), (1, region.segment(8..9).addr));
        initiator.send_inline(&to, &[round]).unwrap();
        sent(&mut initiator);
        assert_eq!(target.message(7).0, [round]);
    }
    let rules: Vec<_> = sim.violations().iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, ["key does not allow the access"; 3]);
}

#[test]
fn a_target_hears_many_initiators() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| sim.open(function).unwrap());
    let mut target = Target::new(&here, 7);
    let to = target.address(KEY);
    let mut initiators: Vec<_> = (0..8).map(|i| initiator(if i % 2 == 0 { &here } else { &there })).collect();
    for round in 0..20u8 {
        for (i, (initiator, _)) in initiators.iter_mut().enumerate() {
            initiator.send_inline(&to, &[i as u8, round]).unwrap();
        }
        let mut heard: Vec<_> = initiators.iter().map(|_| target.message(7).0).collect();
        heard.sort_unstable();
        assert_eq!(heard, (0..8).map(|i| vec![i, round]).collect::<Vec<_>>());
        initiators.iter_mut().for_each(|(initiator, _)| sent(initiator));
    }
    drop((target, initiators));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_connection_goes_on_though_the_target_has_heard_a_thousand_others() {
    const OTHERS: usize = 1100;
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let mut target = Target::new(&device, 7);
    let to = target.address(KEY);
    let (mut first, _region) = initiator(&device);
    let mut exchange = |initiator: &mut DcInitiator, message: usize| {
        initiator.send_inline(&to, &message.to_ne_bytes()).unwrap();
        sent(initiator);
        assert_eq!(target.message(7).0, message.to_ne_bytes());
    };
    exchange(&mut first, 1);
    let pd = Pd::alloc(&device).unwrap();
    let mut options = ConnectionOptions::default();
    options.send_depth = 1;
    let mut others: Vec<_> = (0..OTHERS).map(|_| DcInitiator::new(&pd, &options).unwrap()).collect();
    others.iter_mut().enumerate().for_each(|(number, other)| exchange(other, number));
    exchange(&mut first, 2);
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_wrong_access_key_fails_the_message_and_is_counted() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let events = device.async_events().events;
    let mut target = Target::new(&device, 7);
    let (mut initiator, _region) = initiator(&device);
    target.receiver.dct().arm_key_violation().unwrap();
    initiator.send_inline(&target.address(KEY + 1), b"?").unwrap();
    let error = wait(|| initiator.poll()).result.unwrap_err();
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess), "{error}");
    let event = events.recv_timeout(SOON).unwrap();
    assert_eq!(event.event_type, EventType::DctKeyViolation);
    assert_eq!(DctEvent::read(&event.data).unwrap().dct_number(), target.receiver.dct().dctn());
    let status = target.receiver.dct().query().unwrap();
    assert_eq!((status.state, status.key_violations), (DctState::Active, 1));
    // The target goes on: another initiator is heard.
    let (mut other, _region) = self::initiator(&device);
    other.send_inline(&target.address(KEY), b"!").unwrap();
    assert_eq!(target.message(7).0, b"!");
    assert!(target.receiver.poll().unwrap().is_none());
}

#[test]
fn what_a_target_does_not_allow_fails_at_the_initiator_alone() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let mut target = Target::new(&device, 7);
    let (mut stranger, foreign) = initiator(&device);
    let (mut initiator, region) = initiator(&device);
    let to = target.address(KEY);
    // A key of another protection domain than the target's.
    stranger.read(&to, foreign.buffer(0..8).unwrap(), region.remote()).unwrap();
    let error = wait(|| stranger.poll()).result.unwrap_err();
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess), "{error}");
    initiator.send_inline(&to, b"still here").unwrap();
    assert_eq!(target.message(7).0, b"still here");
    let rules: Vec<_> = sim.violations().iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, ["key does not allow the access"]);
}

#[test]
fn a_target_that_is_gone_is_not_reached() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let target = Target::new(&device, 7);
    let to = target.address(KEY);
    let pd = Pd::alloc(&device).unwrap();
    let mut options = ConnectionOptions::default();
    (options.rts.timeout, options.rts.retry_count) = (8, 1);
    let mut initiator = DcInitiator::new(&pd, &options).unwrap();
    initiator.send_inline(&to, b"in time").unwrap();
    sent(&mut initiator);
    drop(target);
    initiator.send_inline(&to, b"too late").unwrap();
    let error = wait(|| initiator.poll()).result.unwrap_err();
    assert_eq!(error.syndrome(), Some(CqeSyndrome::TransportRetryExceeded), "{error}");
    drop(initiator);
    assert_eq!((sim.handle(0).counts().qps, sim.violations()), (0, vec![]));
}

/// An initiator that opens its connections by handshakes, and asks again after a second at the earliest.
fn polite(device: &Arc<Device>) -> (DcInitiator, Arc<MemoryRegion>) {
    let pd = Pd::alloc(device).unwrap();
    let mut options = ConnectionOptions::default();
    options.rts.timeout = 18;
    let initiator = DcInitiator::with_qp_options(&pd, &options, QpOptions::default().full_handshake()).unwrap();
    (initiator, MemoryRegion::allocate(&pd, 4 * ROOM, all()).unwrap())
}

/// Packets that a function has sent.
fn packets(sim: &Sim, function: usize) -> u64 {
    sim.handle(function).with(|f| f.nic.port.counters.rdma.sent.unicast.packets).unwrap()
}

#[test]
fn a_handshake_comes_before_what_is_sent_to_each_target() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| sim.open(function).unwrap());
    let mut targets = [7, 8].map(|index| Target::new(&there, index));
    let (mut initiator, _region) = polite(&here);
    for (message, target) in [0, 0, 1, 1, 1, 0].into_iter().enumerate() {
        initiator.send_inline(&targets[target].address(KEY), &[message as u8]).unwrap();
    }
    (0..6).for_each(|_| sent(&mut initiator));
    let heard = |target: &mut Target, index, count| (0..count).map(|_| target.message(index).0[0]).collect::<Vec<_>>();
    assert_eq!((heard(&mut targets[0], 7, 3), heard(&mut targets[1], 8, 3)), (vec![0, 1, 5], vec![2, 3, 4]));
    assert_eq!(packets(&sim, 0), 6 + 3, "a packet for each message and for each connection");
    drop((targets, initiator));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_target_that_insists_on_handshakes_is_reached_by_initiators_that_make_none() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| sim.open(function).unwrap());
    let mut target = Target::insistent(&there, 7);
    let (mut initiator, region) = initiator(&here);
    let to = target.address(KEY);
    let remote = target.region.remote_at(RECEIVES * ROOM);
    let message = (0..5000).map(|i| (i % 251) as u8).collect::<Vec<u8>>();
    region.write(ROOM, &message);
    region.write(0, &41u64.to_ne_bytes());
    // All are posted before the target asks for the handshake: each must be executed once.
    initiator.send(&to, region.buffer(ROOM..ROOM + 5000).unwrap()).unwrap();
    initiator.write(&to, region.buffer(0..8).unwrap(), remote).unwrap();
    initiator.fetch_add(&to, region.buffer(8..16).unwrap(), remote, 1).unwrap();
    initiator.read(&to, region.buffer(16..24).unwrap(), remote).unwrap();
    initiator.send_inline(&to, b"last").unwrap();
    (0..5).for_each(|_| sent(&mut initiator));
    assert_eq!((target.message(7).0, target.message(7).0), (message, b"last".to_vec()));
    assert_eq!((number(&region, 8), number(&region, 16)), (41, 42));
    assert!(target.receiver.poll().unwrap().is_none());
    drop((target, initiator, region));
    assert_eq!(sim.violations(), []);
}

#[test]
fn connections_open_by_handshakes_though_frames_are_lost_doubled_and_late() {
    const MESSAGES: usize = 150;
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| sim.open(function).unwrap());
    for function in 0..2 {
        let faults = sim.handle(function).faults();
        faults.inject(Fault::Frame { fate: FrameFate::Lost, per_million: 100_000 }, Times::Always);
        faults.inject(Fault::Frame { fate: FrameFate::Duplicated, per_million: 50_000 }, Times::Always);
        faults.inject(Fault::Frame { fate: FrameFate::Reordered, per_million: 50_000 }, Times::Always);
    }
    let mut targets = [Target::new(&there, 7), Target::insistent(&there, 8)];
    let pd = Pd::alloc(&here).unwrap();
    let mut options = ConnectionOptions::default();
    options.rts.timeout = 10;
    for qp_options in [QpOptions::default(), QpOptions::default().full_handshake()] {
        let mut initiator = DcInitiator::with_qp_options(&pd, &options, qp_options).unwrap();
        let region = MemoryRegion::allocate(&pd, ROOM, all()).unwrap();
        for round in 0..MESSAGES {
            let (target, index) = (round % 2, 7 + (round % 2) as u32);
            let to = targets[target].address(KEY);
            initiator.send_inline(&to, &round.to_ne_bytes()).unwrap();
            initiator
                .fetch_add(&to, region.buffer(0..8).unwrap(), targets[target].region.remote_at(RECEIVES * ROOM), 1)
                .unwrap();
            assert_eq!(targets[target].message(index).0, round.to_ne_bytes());
            (0..2).for_each(|_| sent(&mut initiator));
        }
    }
    for target in &mut targets {
        assert_eq!(number(&target.region, RECEIVES * ROOM), MESSAGES as u64, "each once, of both initiators");
        assert!(target.receiver.poll().unwrap().is_none());
    }
    drop(targets);
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_handshake_with_a_wrong_access_key_fails_the_message() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let target = Target::insistent(&device, 7);
    for make in [initiator, polite] {
        let (mut initiator, _region) = make(&device);
        initiator.send_inline(&target.address(KEY + 1), b"?").unwrap();
        let error = wait(|| initiator.poll()).result.unwrap_err();
        assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess), "{error}");
    }
    assert_eq!(target.receiver.dct().query().unwrap().key_violations, 2);
}

/// A card whose initiators have streams.
fn with_streams() -> Sim {
    Sim::builder().profile(Profile::connectx7()).build().unwrap()
}

/// On such a card a target, and an initiator that is in error with two of its streams, and executes four at once.
fn streaming() -> (Sim, Arc<Device>, Target, DcInitiator) {
    let sim = with_streams();
    let device = sim.open(0).unwrap();
    let target = Target::new(&device, 7);
    let pd = Pd::alloc(&device).unwrap();
    let streams = DciStreams { log_channels: 2, log_errored: 1 };
    let initiator = DcInitiator::with_streams(&pd, &ConnectionOptions::default(), streams).unwrap();
    (sim, device, target, initiator)
}

/// How the next work request ends.
fn ends(initiator: &mut DcInitiator) -> Option<CqeSyndrome> {
    wait(|| initiator.poll()).result.err().and_then(|error| error.syndrome())
}

#[test]
fn a_stream_in_error_stops_no_other_until_it_is_reset() {
    let (sim, _device, mut target, mut initiator) = streaming();
    let (good, bad) = (target.address(KEY), target.address(KEY + 1));
    let (access, flushed) = (Some(CqeSyndrome::RemoteAccess), Some(CqeSyndrome::WorkRequestFlushed));
    // 1 and 5 share a channel.
    for (to, stream) in [(&good, 1), (&bad, 1), (&good, 5), (&good, 1), (&good, 2)] {
        initiator.send_inline(&to.stream(stream), &stream.to_be_bytes()).unwrap();
    }
    assert_eq!([(); 5].map(|()| ends(&mut initiator)), [None, access, None, flushed, None]);
    let mut heard: Vec<_> = (0..3).map(|_| target.message(7).0[1]).collect();
    heard.sort_unstable();
    assert_eq!(heard, [1, 2, 5]);
    initiator.send_inline(&good.stream(1), b"flushed").unwrap();
    assert_eq!(ends(&mut initiator), flushed);
    initiator.reset_stream(1).unwrap();
    initiator.reset_stream(9).unwrap();
    initiator.send_inline(&good.stream(1), b"again").unwrap();
    assert_eq!((ends(&mut initiator), target.message(7).0), (None, b"again".to_vec()));
    drop((target, initiator));
    assert_eq!((sim.handle(0).counts().qps, sim.violations()), (0, vec![]));
}

#[test]
fn a_stream_that_waits_holds_up_no_other() {
    let (sim, device, mut target, mut initiator) = streaming();
    let pd = Pd::alloc(&device).unwrap();
    let region = MemoryRegion::allocate(initiator.queue_pair().pd(), ROOM, all()).unwrap();
    let options = DctOptions::new(KEY).remote_access(remote_access());
    let mut late = DcReceiver::new(&pd, &options, SrqOptions::default(), CqOptions::default()).unwrap();
    let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();
    let nobody = DcTarget::new(&device, &path, late.dct().dctn(), KEY).unwrap();
    let to = target.address(KEY);
    initiator.send_inline(&nobody.stream(1), b"late").unwrap();
    initiator.send_inline(&to.stream(2), b"first").unwrap();
    region.write(0, b"written");
    initiator.write(&to.stream(3), region.buffer(0..7).unwrap(), target.region.remote_at(RECEIVES * ROOM)).unwrap();
    assert_eq!(target.message(7).0, b"first");
    let end = Instant::now() + SOON;
    let mut bytes = [0; 7];
    while bytes != *b"written" {
        assert!(Instant::now() < end, "the write waits");
        std::thread::yield_now();
        target.region.read(RECEIVES * ROOM, &mut bytes);
    }
    // Completions come in the order of the send queue.
    assert!(initiator.poll().unwrap().is_none());
    let region = MemoryRegion::allocate(&pd, ROOM, all()).unwrap();
    late.receive(region.buffer(0..ROOM).unwrap()).unwrap();
    let got = wait(|| late.poll());
    assert_eq!(got.result.unwrap().byte_len, 4);
    (0..3).for_each(|_| sent(&mut initiator));
    drop((target, late, initiator));
    assert_eq!(sim.violations(), []);
}

#[test]
fn with_enough_streams_in_error_the_initiator_is_in_error() {
    let (_sim, _device, mut target, mut initiator) = streaming();
    let (good, bad) = (target.address(KEY), target.address(KEY + 1));
    let (access, flushed) = (Some(CqeSyndrome::RemoteAccess), Some(CqeSyndrome::WorkRequestFlushed));
    initiator.send_inline(&bad.stream(1), b"?").unwrap();
    assert_eq!(ends(&mut initiator), access);
    initiator.send_inline(&good.stream(2), b"!").unwrap();
    assert_eq!((ends(&mut initiator), target.message(7).0), (None, b"!".to_vec()));
    initiator.send_inline(&bad.stream(2), b"?").unwrap();
    assert_eq!(ends(&mut initiator), access);
    initiator.send_inline(&good.stream(3), b"too late").unwrap();
    assert_eq!(ends(&mut initiator), flushed);
    let error = initiator.reset_stream(1).unwrap_err();
    assert!(matches!(error, Error::Command(_)), "{error}");
    let qp = initiator.queue_pair();
    assert_eq!(qp.query().unwrap().state, QpState::Err);
}

#[test]
fn each_stream_makes_its_own_handshakes() {
    let sim = with_streams();
    let device = sim.open(0).unwrap();
    let mut targets = [Target::insistent(&device, 7), Target::new(&device, 8)];
    let pd = Pd::alloc(&device).unwrap();
    let streams = DciStreams { log_channels: 2, log_errored: 1 };
    for qp_options in [QpOptions::default(), QpOptions::default().full_handshake()] {
        let qp_options = qp_options.dci_streams(streams);
        let mut initiator = DcInitiator::with_qp_options(&pd, &ConnectionOptions::default(), qp_options).unwrap();
        let bad = targets[0].address(KEY + 1);
        initiator.send_inline(&bad.stream(1), b"?").unwrap();
        // 1 and 5 share a channel.
        for stream in [5, 2, 3, 5, 2, 4] {
            let to = targets[usize::from(stream % 2)].address(KEY);
            initiator.send_inline(&to.stream(stream), &[stream as u8]).unwrap();
        }
        assert_eq!(ends(&mut initiator), Some(CqeSyndrome::RemoteAccess));
        (0..6).for_each(|_| sent(&mut initiator));
        let heard = [0, 1].map(|target| {
            let mut heard: Vec<_> = (0..3).map(|_| targets[target].message(7 + target as u32).0[0]).collect();
            heard.sort_unstable();
            heard
        });
        assert_eq!(heard, [[2, 2, 4], [3, 5, 5]]);
    }
    drop(targets);
    assert_eq!(sim.violations(), []);
}

#[test]
fn streams_that_a_card_has_not_are_refused_by_name() {
    let create = |device: &Arc<Device>, options: QpOptions| {
        let (pd, uar) = (Pd::alloc(device).unwrap(), Uar::alloc(device).unwrap());
        let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
        QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), options)
    };
    let streams =
        |log_channels, log_errored| QpOptions::default().dci_streams(DciStreams { log_channels, log_errored });
    let sim = Sim::builder().build().unwrap();
    let error = create(&sim.open(0).unwrap(), streams(1, 1).dc_initiator()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { capability: "log_max_dci_stream_channels", .. }), "{error}");
    let sim = with_streams();
    let device = sim.open(0).unwrap();
    for (options, word) in [
        (streams(7, 1).dc_initiator(), "log_max_dci_stream_channels"),
        (streams(1, 7).dc_initiator(), "log_max_dci_errored_streams"),
        (streams(1, 1), "dc_initiator"),
        (QpOptions::default().full_handshake(), "full_handshake"),
    ] {
        let error = create(&device, options).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let qp = create(&device, QpOptions::default().dc_initiator()).unwrap();
    let error = qp.reset_stream(1).unwrap_err().to_string();
    assert!(error.contains("dci_streams"), "{error}");
    let qp = create(&device, streams(1, 1).dc_initiator()).unwrap();
    let error = qp.reset_stream(1).unwrap_err().to_string();
    assert!(error.contains("RST"), "{error}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let (pd, uar) = (Pd::alloc(&device).unwrap(), Uar::alloc(&device).unwrap());
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let srq = Srq::create(&pd, SrqOptions::default()).unwrap();
    let says = |error: Error, words: &[&str]| {
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let refused = |options: DctOptions| Dct::create(&pd, &srq, cq.cq(), &options).unwrap_err();
    let mut wide = DctOptions::new(KEY);
    wide.flow_label = 1 << 20;
    says(refused(wide), &["flow_label", "20 bits"]);
    says(refused(DctOptions::new(KEY).gid_index(255)), &["gid_index", "roce_address_table_size"]);
    let qp = QueuePair::create(&pd, &uar, cq.cq(), cq.cq(), QpOptions::default().dc_initiator()).unwrap();
    says(qp.dc_send_queue::<AnyDoorbell>().unwrap_err(), &["RST", "activate_initiator"]);
    says(qp.init(&Default::default()).unwrap_err(), &["DCI", "activate"]);
    says(qp.send_queue::<AnyDoorbell>().unwrap_err(), &["DCI"]);
    qp.activate_initiator(&Default::default()).unwrap();
    says(qp.activate_initiator(&Default::default()).unwrap_err(), &["RTS", "reset"]);
    let mut sends = qp.dc_send_queue::<AnyDoorbell>().unwrap();
    let target = Dct::create(&pd, &srq, cq.cq(), &DctOptions::new(KEY)).unwrap();
    let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();
    let to = DcTarget::new(&device, &path, target.dctn(), KEY).unwrap();
    let mut batch = sends.batch();
    let long = batch.send_inline(1, WrFlags::SIGNALLED, &to, &[0; 29]).unwrap_err();
    assert!(long.to_string().contains("inline_bytes"), "{long}");
    drop(batch);
    Dct::destroy(target).unwrap();
    assert!(DcTarget::new(&device, &path, 1 << 24, KEY).is_err());
    let mut profile = Profile::connectx5();
    profile.general_max.w().dct(false);
    let sim = Sim::builder().profile(profile).build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    let error = DcInitiator::new(&pd, &ConnectionOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { capability: "dct", .. }), "{error}");
}

#[test]
fn reserved_numbers_are_no_queue_pair_s_until_they_are_given_back() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let (ours, theirs) = (ReservedQpns::alloc(&device).unwrap(), ReservedQpns::alloc(&device).unwrap());
    assert_eq!((ours.numbers().len(), theirs.numbers().len()), (64, 64));
    assert!(ours.numbers().all(|number| number < 1 << 24 && !theirs.numbers().contains(&number)));
    let initiator = DcInitiator::new(&Pd::alloc(&device).unwrap(), &ConnectionOptions::default()).unwrap();
    let qpn = initiator.queue_pair().qpn();
    assert!(!ours.numbers().contains(&qpn) && !theirs.numbers().contains(&qpn));

    let first = ours.numbers();
    ReservedQpns::destroy(ours).unwrap();
    assert_eq!(ReservedQpns::alloc(&device).unwrap().numbers(), first);
}

#[test]
fn reserved_numbers_that_a_card_has_not_are_refused_by_name() {
    let mut profile = Profile::connectx5();
    profile.general_2.w().log_max_num_reserved_qpn(6);
    let sim = Sim::builder().profile(profile.clone()).build().unwrap();
    let device = sim.open(0).unwrap();
    let all = ReservedQpns::alloc(&device).unwrap();
    let error = ReservedQpns::alloc(&device).unwrap_err().to_string();
    assert!(error.contains("more objects than log_max_num_reserved_qpn"), "{error}");
    drop(all);
    ReservedQpns::alloc(&device).unwrap();

    profile.general_max.w().general_obj_types(0);
    profile.general_current.w().general_obj_types(0);
    let sim = Sim::builder().profile(profile).build().unwrap();
    let error = ReservedQpns::alloc(&sim.open(0).unwrap()).unwrap_err();
    assert!(error.to_string().contains("general_obj_types"), "{error}");
}

/// A receiver takes each completion for one of its own queue, and gives back the buffer that it names.
#[test]
fn the_completion_queue_of_a_receiver_is_of_no_other_queue() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let targets = [Target::new(&device, 1), Target::new(&device, 2)];
    let [first, second] = targets.each_ref().map(|target| target.receiver.dct());
    let pd = Pd::alloc(&device).unwrap();
    let taken =
        format!("CQ {:#x} is taken by the queue that owns it: create another completion queue", first.cq().cqn());
    let refused = Dct::create(&pd, second.srq(), first.cq(), &DctOptions::new(KEY)).unwrap_err();
    assert_eq!(refused.to_string(), taken);
    let uar = Uar::alloc(&device).unwrap();
    let own = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    for cqs in [[first.cq(), own.cq()], [own.cq(), first.cq()]] {
        let refused = QueuePair::create(&pd, &uar, cqs[0], cqs[1], QpOptions::default().wqes(4, 4)).unwrap_err();
        assert_eq!(refused.to_string(), taken);
    }
}
