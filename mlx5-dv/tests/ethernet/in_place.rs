//! Frames that are sent from where they are: from a pool, and from where a striding receive queue has them.

use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::objects::{AccessFlags, Compression, FrameSource, MemoryRegion, Pd, Strides};
use mlx5_dv::queue::PostError;
use mlx5_dv::queue::ethernet::{
    EthernetOptions, ForwardError, Forwarder, FrameFlags, Packet, Receives, StridingOptions, StridingQueue,
};
use mlx5_dv::{Device, Mac};
use mlx5_open::Sim;
use mlx5_sim::profile::Profile;

use crate::ends::{EthernetEnd, SOON, end_in_peace, of_small_strides, refusal};
use crate::sender::Sender;

/// A pool of `len` bytes, as a source of `sender`'s queue.
fn pool_of(sender: &Sender, len: usize) -> (Arc<MemoryRegion>, FrameSource) {
    let region = MemoryRegion::allocate(&sender.pd, len, AccessFlags::LOCAL_WRITE).unwrap();
    let source = sender.queue.sq().source(&region).unwrap();
    (region, source)
}

/// An end that hears what is sent to it.
fn hearer(sim: &Sim) -> EthernetEnd {
    EthernetEnd::listening(sim, 1, EthernetOptions::default())
}

fn frame(there: &EthernetEnd, number: usize, len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (14..len).map(|at| (at * 7 + number * 5) as u8).collect();
    there.frame(there.device.mac(), &payload)
}

/// Whatever their number, lengths and places, and wherever in the ring.
#[test]
fn frames_of_a_pool_arrive_in_order_and_whole_round_the_ring() {
    const PLACE: usize = 1536;
    let sim = Sim::builder().functions(2).build().unwrap();
    let (mut here, mut there) = (Sender::new(&sim, 64), hearer(&sim));
    let (pool, source) = pool_of(&here, 32 * PLACE);
    for round in 0..150usize {
        let sent: Vec<_> =
            (0..round % 31 + 1).map(|number| frame(&there, number, 14 + (number * 131 + round * 71) % 1501)).collect();
        there.post(sent.len());
        let mut batch = here.queue.batch();
        let mut pointers = batch.pointers(&source, round as u64, FrameFlags::SIGNALLED).unwrap();
        for (number, frame) in sent.iter().enumerate() {
            // From the last place on, and somewhere in it.
            let at = (31 - number) * PLACE + (round * 3 + number) % (PLACE - frame.len() + 1);
            pool.write(at, frame);
            pointers.push(at..at + frame.len()).unwrap();
        }
        pointers.end();
        batch.ring();
        for sent in &sent {
            assert_eq!(there.heard(), *sent, "round {round}");
        }
        here.completes(round as u64);
    }
    end_in_peace(&sim, (here, there, pool, source));
}

#[test]
fn a_frame_of_a_pool_that_cannot_be_sent_leaves_those_before_it() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (mut here, mut there) = (Sender::new(&sim, 4), hearer(&sim));
    let longest = here.queue.sq().longest_frame();
    let len = (longest + 1).next_multiple_of(4096);
    let (pool, source) = pool_of(&here, len);
    let sent = frame(&there, 1, 60);
    pool.write(len - 60, &sent);
    let mut batch = here.queue.batch();
    let mut none = batch.pointers(&source, 0, FrameFlags::SIGNALLED).unwrap();
    none.push(0..60).unwrap();
    drop(none);
    batch.pointers(&source, 0, FrameFlags::SIGNALLED).unwrap().end();
    assert!(batch.is_empty(), "neither what was dropped nor what has no frame");

    there.post(16);
    let mut pointers = batch.pointers(&source, 7, FrameFlags::SIGNALLED).unwrap();
    let last = len - 60..len;
    pointers.push(last.clone()).unwrap();
    assert_eq!(pointers.push(len - 60..len + 1), Err(PostError::OutsideSource { start: len - 60, end: len + 1, len }));
    assert_eq!(pointers.push(len..len + 60), Err(PostError::OutsideSource { start: len, end: len + 60, len }));
    for wrong in [0..13, 0..longest + 1] {
        assert!(matches!(pointers.push(wrong), Err(PostError::FrameLength { .. })));
    }
    let backwards = [(60, 0), (usize::MAX - 60, 20)].map(|(start, end)| start..end);
    for wrong in backwards {
        assert!(matches!(pointers.push(wrong), Err(PostError::OutsideSource { .. })));
    }
    // Sixteen segments, two of them for what all frames share.
    (1..14).for_each(|_| pointers.push(last.clone()).unwrap());
    assert_eq!(pointers.push(last.clone()), Err(mlx5_dv::queue::Full.into()));
    assert_eq!(pointers.push(last), Err(mlx5_dv::queue::Full.into()), "and so it stays");
    pointers.end();
    batch.ring();
    assert_eq!(here.queue.free(), 0);
    let mut batch = here.queue.batch();
    let mut full = batch.pointers(&source, 0, FrameFlags::empty()).unwrap();
    assert_eq!(full.push(0..60), Err(mlx5_dv::queue::Full.into()), "nothing of what is in flight is written");
    drop(full);
    (0..14).for_each(|_| assert_eq!(there.heard(), sent));
    here.completes(7);
    end_in_peace(&sim, (here, there, pool, source));
}

#[test]
fn a_source_is_of_one_queue_and_its_memory_stays_as_long() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let device = sim.open(0).unwrap();
    let (mut here, other) = (Sender::of(&device, 64), Sender::of(&device, 64));
    let (pool, foreign) = pool_of(&other, 4096);
    assert_eq!(here.queue.batch().pointers(&foreign, 0, FrameFlags::empty()).unwrap_err(), PostError::OtherSource);
    let text = refusal(here.queue.sq().source(&pool));
    assert!(text.contains("protection domain"), "{text}");
    let text = here.queue.batch().pointers(&foreign, 0, FrameFlags::empty()).unwrap_err().to_string();
    assert!(text.contains("Sq::source"), "{text}");
    // Memory of a source outlives both the source and its region's other holders.
    let mkeys = || sim.handle(0).counts().mkeys;
    let before = mkeys();
    drop((pool_of(&here, 4096), pool_of(&here, 4096)));
    assert_eq!(mkeys(), before + 2);
    drop(here);
    assert_eq!(mkeys(), before);
    end_in_peace(&sim, (other, pool, foreign, device));

    let mut profile = Profile::connectx5();
    profile.ethernet.w().enhanced_multi_pkt_send_wqe(false);
    let sim = Sim::builder().functions(2).profile(profile).build().unwrap();
    let mut here = Sender::new(&sim, 64);
    let (_pool, source) = pool_of(&here, 4096);
    assert_eq!(here.queue.batch().pointers(&source, 0, FrameFlags::empty()).unwrap_err(), PostError::NoMultiPacket);
}

/// Swaps a frame's addresses.
fn back(frame: &mut [u8]) -> bool {
    let (to, from) = frame.split_at_mut(6);
    to.swap_with_slice(&mut from[..6]);
    true
}

/// Function 1 sends back to function 0 what it hears.
pub struct Reflector {
    receiver: StridingQueue,
    forwarder: Forwarder,
    turns: usize,
}

impl Reflector {
    /// With `buffers` of 8 strides, all posted: two frames of 256 bytes fill one.
    fn new(sim: &Sim, buffers: u32) -> Self {
        Reflector::with(sim, Strides::new(64, 8), buffers)
    }

    fn with(sim: &Sim, strides: Strides, buffers: u32) -> Self {
        let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
        let mut options = StridingOptions::default();
        (options.strides, options.posted, options.spare) = (strides, buffers, 0);
        let mut receiver = StridingQueue::new(&pd, options).unwrap();
        receiver.listen(&[]).unwrap();
        let forwarder = Forwarder::new(&receiver, 64).unwrap();
        Reflector { receiver, forwarder, turns: 0 }
    }

    /// Sends back what is there, by all calls in turn.
    fn turn(&mut self) -> usize {
        self.turns += 1;
        if self.turns.is_multiple_of(4) {
            return self.forwarder.forward(&mut self.receiver, 32, FrameFlags::empty(), back).unwrap();
        }
        let mut batch = self.forwarder.batch(FrameFlags::empty()).unwrap();
        let mut count = 0;
        match self.turns % 4 {
            1 => {
                for frame in self.receiver.burst(32).unwrap() {
                    back(frame);
                    batch.push(frame).unwrap();
                    count += 1;
                }
            }
            2 => count = batch.push_each(self.receiver.burst(32).unwrap(), back).unwrap(),
            _ => count = batch.forward(&mut self.receiver, 32, back).unwrap(),
        }
        batch.ring();
        count
    }

    pub fn device(&self) -> &Arc<Device> {
        self.receiver.device()
    }

    pub fn flow_metadata(&mut self, value: u32) {
        self.forwarder.flow_metadata(value);
    }

    /// Sends back so many frames.
    pub fn reflect(&mut self, mut count: usize) {
        let deadline = Instant::now() + SOON;
        while count > 0 {
            assert!(Instant::now() < deadline, "{count} frames did not come");
            count -= self.turn();
        }
    }

    /// Waits until the card has so many buffers again.
    fn until_posted(&mut self, count: usize) {
        let deadline = Instant::now() + SOON;
        while self.receiver.posted() < count {
            assert!(Instant::now() < deadline, "a buffer never came back");
            self.turn();
        }
    }
}

/// Two ends of which the first hears what the other sends back.
pub fn reflected(buffers: u32) -> (Sim, EthernetEnd, Reflector) {
    let sim = Sim::builder().functions(2).profile(of_small_strides()).build().unwrap();
    let here = EthernetEnd::listening(&sim, 0, EthernetOptions::default());
    let there = Reflector::new(&sim, buffers);
    (sim, here, there)
}

/// A frame to the reflector, and what comes back.
fn there_and_back(here: &EthernetEnd, there: &Reflector, number: usize, len: usize) -> [Vec<u8>; 2] {
    to_and_fro(here, there.receiver.device().mac(), number, len)
}

/// A frame to `mac`, and what comes back.
fn to_and_fro(here: &EthernetEnd, mac: Mac, number: usize, len: usize) -> [Vec<u8>; 2] {
    let payload: Vec<u8> = (14..len).map(|at| (at * 7 + number * 5) as u8).collect();
    let back = [&here.device.mac().0[..], &mac.0, &[0x88, 0xb5], &payload].concat();
    [here.frame(mac, &payload), back]
}

#[test]
fn what_is_received_goes_back_whole_from_where_it_is() {
    let (sim, mut here, mut there) = reflected(4);
    for round in 0..200usize {
        // Buffers end with a filler, a frame that fits, and the last one of a batch.
        let frames: Vec<_> = (0..round % 4 + 1)
            .map(|number| there_and_back(&here, &there, round + number, 60 + (round * 37 + number * 101) % 197))
            .collect();
        // Behind each other the frames of a round take less than two buffers.
        for [sent, back] in &frames {
            here.post(1);
            here.send(sent);
            there.reflect(1);
            assert_eq!(here.heard(), *back, "round {round}");
        }
    }
    end_in_peace(&sim, (here, there));
}

/// Frames of one stride, which are looked at once, between longer ones; some are rejected. They end buffers, and the
/// ring.
#[test]
fn frames_are_received_and_sent_back_by_one_call_in_their_order() {
    let sim = Sim::builder().functions(2).profile(of_small_strides()).build().unwrap();
    let mut here = EthernetEnd::listening(&sim, 0, EthernetOptions::default());
    let mut there = Reflector::with(&sim, Strides::new(64, 64).two_byte_shift(), 4);
    for round in 0..60usize {
        // With the shift 62 bytes fill a stride.
        let len = |number: usize| {
            if (number * 7 + round).is_multiple_of(11) { 150 + number } else { 59 + (number + round) % 5 }
        };
        let frames: Vec<_> =
            (0..round % 30 + 1).map(|number| there_and_back(&here, &there, round + number, len(number))).collect();
        let rejected = |number: usize| (number + round).is_multiple_of(5);
        here.post((0..frames.len()).filter(|number| !rejected(*number)).count());
        frames.iter().for_each(|[sent, _]| here.send(sent));
        let (mut seen, mut number) = (0, 0);
        let deadline = Instant::now() + SOON;
        while seen < frames.len() {
            assert!(Instant::now() < deadline, "{seen} of {} frames came", frames.len());
            let left = frames.len() - seen;
            let keep = |frame: &mut [u8]| {
                assert_eq!(*frame, frames[number][0], "round {round}, frame {number}");
                number += 1;
                back(frame) && !rejected(number - 1)
            };
            if round % 2 == 0 {
                seen += there.forwarder.forward(&mut there.receiver, left, FrameFlags::empty(), keep).unwrap();
            } else {
                let mut batch = there.forwarder.batch(FrameFlags::empty()).unwrap();
                seen += batch.forward(&mut there.receiver, left, keep).unwrap();
                batch.ring();
            }
        }
        assert_eq!((seen, number), (frames.len(), frames.len()));
        for (number, [_, back]) in frames.iter().enumerate() {
            if !rejected(number) {
                assert_eq!(here.heard(), *back, "round {round}, frame {number}");
            }
        }
    }
    end_in_peace(&sim, (here, there));
}

/// A batch looks for room before it looks for frames.
#[test]
fn a_full_work_request_is_sent_though_no_frame_follows() {
    let mut profile = of_small_strides();
    profile.general_max.w().max_wqe_sz_sq(256);
    profile.general_current.w().max_wqe_sz_sq(256);
    let sim = Sim::builder().functions(2).profile(profile).build().unwrap();
    let mut here = EthernetEnd::listening(&sim, 0, EthernetOptions::default());
    let mut there = Reflector::with(&sim, Strides::new(64, 128), 2);
    let most = there.forwarder.sq().most_packets();
    assert_eq!(most, 14);
    // One, and two. They end wherever the ring does.
    for round in 0..20usize {
        let full = most * (round % 2 + 1);
        let frames: Vec<_> = (0..full).map(|number| there_and_back(&here, &there, round + number, 60)).collect();
        here.post(full);
        frames.iter().for_each(|[frame, _]| here.send(frame));
        let (deadline, mut count) = (Instant::now() + SOON, 0);
        let Reflector { receiver, forwarder, .. } = &mut there;
        if round % 4 < 2 {
            while count < full {
                assert!(Instant::now() < deadline, "{count} of {full} frames came");
                count += forwarder.forward(receiver, full, FrameFlags::empty(), back).unwrap();
            }
            assert_eq!(forwarder.forward(receiver, full, FrameFlags::empty(), back).unwrap(), 0);
        } else {
            let mut batch = forwarder.batch(FrameFlags::empty()).unwrap();
            while count < full {
                assert!(Instant::now() < deadline, "{count} of {full} frames came");
                count += batch.forward(receiver, full, back).unwrap();
            }
            assert_eq!(batch.forward(receiver, full, back).unwrap(), 0);
            batch.ring();
        }
        for [_, back] in &frames {
            assert_eq!(here.heard(), *back, "round {round}");
        }
    }
    end_in_peace(&sim, (here, there));
}

#[test]
fn a_full_ring_is_no_error_where_there_is_no_frame() {
    let sim = Sim::builder().functions(2).profile(of_small_strides()).build().unwrap();
    let mut here = EthernetEnd::listening(&sim, 0, EthernetOptions::default());
    let mut there = Reflector::with(&sim, Strides::new(64, 128), 2);
    // Sixteen segments, two of them for what all frames share.
    there.forwarder = Forwarder::new(&there.receiver, 4).unwrap();
    let frames: Vec<_> = (0..15).map(|number| there_and_back(&here, &there, number, 60)).collect();
    here.post(15);
    frames[..14].iter().for_each(|[frame, _]| here.send(frame));
    let (deadline, mut count) = (Instant::now() + SOON, 0);
    let mut batch = there.forwarder.batch(FrameFlags::empty()).unwrap();
    while count < 14 {
        assert!(Instant::now() < deadline, "{count} frames came");
        count += batch.forward(&mut there.receiver, 64, back).unwrap();
    }
    for most in [1, 64] {
        assert_eq!(batch.forward(&mut there.receiver, most, back).unwrap(), 0);
    }
    here.send(&frames[14][0]);
    let refused = loop {
        assert!(Instant::now() < deadline, "the last frame did not come");
        match batch.forward(&mut there.receiver, 64, back) {
            Ok(none) => assert_eq!(none, 0),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, ForwardError::Post(PostError::Full(_))), "{refused:?}");
    batch.ring();
    for [_, back] in &frames[..14] {
        assert_eq!(here.heard(), *back);
    }
    // The last one was not lost: it goes once what was sent before has completed.
    loop {
        assert!(Instant::now() < deadline, "the ring stays full");
        let mut batch = there.forwarder.batch(FrameFlags::empty()).unwrap();
        let sent = batch.forward(&mut there.receiver, 64, back);
        batch.ring();
        match sent {
            Ok(count) => break assert_eq!(count, 1),
            Err(refused) => assert!(matches!(refused, ForwardError::Post(PostError::Full(_))), "{refused:?}"),
        }
    }
    assert_eq!(here.heard(), frames[14][1]);
    end_in_peace(&sim, (here, there));
}

/// Whichever frame is the first without room: the last one of its buffer, and such as are polled one by one.
#[test]
fn a_full_ring_loses_no_frame() {
    fn go_round<C: Receives>(sim: &Sim, mut receiver: StridingQueue<C>, what: &str) {
        let mut here = EthernetEnd::listening(sim, 0, EthernetOptions::default());
        receiver.listen(&[]).unwrap();
        // Sixteen segments, two of them for what all frames share.
        let mut forwarder = Forwarder::new(&receiver, 4).unwrap();
        for (round, count) in (0..8).flat_map(|before| [before, 20]).enumerate() {
            let frames: Vec<_> =
                (0..count).map(|number| to_and_fro(&here, receiver.device().mac(), round + number, 60)).collect();
            here.post(count);
            frames.iter().for_each(|[frame, _]| here.send(frame));
            let (deadline, mut sent) = (Instant::now() + SOON, 0);
            while sent < count {
                assert!(Instant::now() < deadline, "{what}, round {round}: {sent} of {count} frames came");
                if round % 3 == 0 {
                    let keep = |frame: &mut [u8]| {
                        sent += 1;
                        back(frame)
                    };
                    match forwarder.forward(&mut receiver, 8, FrameFlags::empty(), keep) {
                        Ok(_) | Err(ForwardError::Post(PostError::Full(_))) => continue,
                        Err(other) => panic!("{what}, round {round}: {other}"),
                    }
                }
                let mut batch = forwarder.batch(FrameFlags::empty()).unwrap();
                let mut refused = 0;
                while refused < 3 && Instant::now() < deadline {
                    let mut keep = |frame: &mut [u8]| {
                        sent += 1;
                        back(frame)
                    };
                    let result = match refused {
                        2 => receiver.burst(8).map(|burst| batch.push_each(burst, keep)).unwrap().map_err(Into::into),
                        _ => batch.forward(&mut receiver, 8, &mut keep),
                    };
                    match result {
                        Ok(0) => break,
                        Ok(_) => {}
                        Err(ForwardError::Post(PostError::Full(_))) => refused += 1,
                        Err(other) => panic!("{what}, round {round}: {other}"),
                    }
                }
                batch.ring();
            }
            for [_, back] in &frames {
                assert_eq!(here.heard(), *back, "{what}, round {round}");
            }
        }
    }
    for form in [None, Some(Compression::Checksum), Some(Compression::ChecksumStride)] {
        let sim = Sim::builder().functions(2).profile(of_small_strides()).build().unwrap();
        let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
        let mut options = StridingOptions::default();
        // Enough for all frames of two rounds, as buffers come back only when the queue is used.
        (options.strides, options.posted, options.spare) = (Strides::new(64, 8), 16, 0);
        match form {
            Some(form) => go_round(&sim, StridingQueue::compressed(&pd, options, form).unwrap(), &format!("{form:?}")),
            None => go_round(&sim, StridingQueue::new(&pd, options).unwrap(), "plain"),
        }
        assert_eq!(sim.violations(), []);
    }
}

#[test]
fn a_buffer_is_not_posted_while_frames_of_it_are_in_flight() {
    let (sim, mut here, mut there) = reflected(2);
    let [sent, back] = there_and_back(&here, &there, 0, 256);
    let mut pass = |there: &mut Reflector| {
        here.post(1);
        here.send(&sent);
        there.reflect(1);
        assert_eq!(here.heard(), back);
    };
    pass(&mut there);
    pass(&mut there);
    // Both frames went by one buffer. The second one has no completion of its own, so it may be in flight.
    assert!(there.receiver.burst(1).unwrap().next().is_none());
    assert_eq!(there.receiver.posted(), 1);
    // A frame of the other buffer asks for one.
    pass(&mut there);
    there.until_posted(2);
    // So it goes on for ever, with two buffers.
    (0..50).for_each(|_| pass(&mut there));
    end_in_peace(&sim, (here, there));
}

#[test]
fn a_batch_that_is_not_rung_sends_nothing_and_holds_nothing_for_long() {
    let (sim, mut here, mut there) = reflected(4);
    for round in 0..20 {
        let [sent, back] = there_and_back(&here, &there, round, 256);
        here.post(1);
        here.send(&sent);
        let deadline = Instant::now() + SOON;
        loop {
            let mut batch = there.forwarder.batch(FrameFlags::empty()).unwrap();
            if let Some(frame) = there.receiver.burst(1).unwrap().next() {
                batch.push(frame).unwrap();
                drop(batch);
                break;
            }
            assert!(Instant::now() < deadline, "frame {round} never came");
        }
        here.send(&sent);
        there.reflect(1);
        assert_eq!(here.heard(), back, "round {round}");
    }
    end_in_peace(&sim, (here, there));
}

#[test]
fn packets_are_sent_on_by_another_thread() {
    let (sim, mut here, there) = reflected(8);
    let Reflector { mut receiver, mut forwarder, .. } = there;
    let (to, from) = std::sync::mpsc::channel::<Packet>();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            for packet in from {
                let mut batch = forwarder.batch(FrameFlags::empty()).unwrap();
                batch.push(&packet).unwrap();
                batch.ring();
                // From here on only the frame in flight holds its buffer.
                drop(packet);
            }
            forwarder
        });
        for number in 0..200 {
            let payload: Vec<u8> = (0..number).map(|at| at as u8).collect();
            // To all: it comes back as it was sent.
            let sent = here.frame(Mac([0xff; 6]), &payload);
            here.post(1);
            here.send(&sent);
            to.send(receiver.wait(SOON).unwrap()).unwrap();
            assert_eq!(here.heard(), sent, "frame {number}");
        }
        drop(to);
        drop(sender.join().unwrap());
    });
    end_in_peace(&sim, (here, receiver));
}

#[test]
fn after_an_error_a_forwarder_goes_on_once_it_is_reset() {
    let (sim, mut here, mut there) = reflected(2);
    let [sent, back] = there_and_back(&here, &there, 3, 256);
    for _ in 0..3 {
        here.post(1);
        here.send(&sent);
        there.reflect(1);
        assert_eq!(here.heard(), back);
        // The frame that follows is flushed.
        there.forwarder.sq().to_error().unwrap();
        here.send(&sent);
        there.reflect(1);
        let deadline = Instant::now() + SOON;
        let error = loop {
            match there.forwarder.batch(FrameFlags::empty()) {
                Ok(_) => assert!(Instant::now() < deadline, "no error"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ForwardError::Work(_)), "{error}");
        assert!(error.to_string().contains("WR_FLUSH_ERR"), "{error}");
        there.forwarder.reset().unwrap();
        // Nothing is held any more.
        assert!(there.receiver.burst(1).unwrap().next().is_none());
        assert_eq!(there.receiver.posted(), 2);
    }
    end_in_peace(&sim, (here, there));
}

/// Such a batch has entered a buffer, and taken a frame of it.
#[test]
fn frames_go_on_behind_batches_that_were_abandoned() {
    let (sim, mut here, mut there) = reflected(4);
    for round in 0..40 {
        let [sent, back_again] = there_and_back(&here, &there, round, 60);
        here.post(1);
        here.send(&sent);
        let deadline = Instant::now() + SOON;
        loop {
            let mut batch = there.forwarder.batch(FrameFlags::empty()).unwrap();
            let taken = batch.forward(&mut there.receiver, 1, |_| true).unwrap();
            drop(batch);
            if taken == 1 {
                break;
            }
            assert!(Instant::now() < deadline, "frame {round} never came");
        }
        here.send(&sent);
        while there.forwarder.forward(&mut there.receiver, 8, FrameFlags::empty(), back).unwrap() == 0 {
            assert!(Instant::now() < deadline, "frame {round} never came again");
        }
        assert_eq!(here.heard(), back_again, "round {round}");
    }
    end_in_peace(&sim, (here, there));
}

/// Nothing is taken that cannot be sent, and the frames before a failure are sent.
#[test]
fn a_forwarder_refuses_offloads_before_it_takes_a_frame() {
    let mut profile = of_small_strides();
    profile.ethernet.w().csum_cap(false);
    let sim = Sim::builder().functions(2).profile(profile).build().unwrap();
    let mut here = EthernetEnd::listening(&sim, 0, EthernetOptions::default());
    let mut there = Reflector::with(&sim, Strides::new(64, 8), 4);
    for round in 0..20 {
        let [sent, back_again] = there_and_back(&here, &there, round, 60);
        here.post(1);
        here.send(&sent);
        let refused = there.forwarder.forward(&mut there.receiver, 8, FrameFlags::L4_CHECKSUM, back).unwrap_err();
        assert!(matches!(refused, ForwardError::Post(PostError::NoChecksums)), "{refused:?}");
        there.reflect(1);
        assert_eq!(here.heard(), back_again, "round {round}");
    }
    end_in_peace(&sim, (here, there));
}

#[test]
fn only_what_the_receiver_has_received_is_forwarded() {
    let (sim, here, mut there) = reflected(2);
    let foreign = vec![0; 60];
    let mut batch = there.forwarder.batch(FrameFlags::empty()).unwrap();
    assert_eq!(batch.push(&foreign), Err(PostError::NotReceivedHere));
    batch.ring();
    assert_eq!(there.forwarder.free(), 64);
    let pd = Pd::alloc(there.receiver.device()).unwrap();
    let mut options = StridingOptions::default();
    (options.posted, options.spare) = (1, 0);
    let one = StridingQueue::new(&pd, options).unwrap();
    assert!(refusal(Forwarder::new(&one, 64)).contains("buffers"));
    assert!(refusal(Forwarder::new(&there.receiver, 1 << 20)).contains("log_max"));
    end_in_peace(&sim, (here, there, one, pd));

    let mut profile = Profile::connectx5();
    profile.ethernet.w().enhanced_multi_pkt_send_wqe(false);
    let sim = Sim::builder().functions(2).profile(profile).build().unwrap();
    let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
    let receiver = StridingQueue::new(&pd, StridingOptions::default()).unwrap();
    assert!(refusal(Forwarder::new(&receiver, 64)).contains("enhanced_multi_pkt_send_wqe"));
}
