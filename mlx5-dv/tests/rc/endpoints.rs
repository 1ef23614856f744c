//! Two endpoints, each with its own region.

use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::objects::{AccessFlags, ExclusiveRegion, MemoryRegion};
use mlx5_dv::queue::{
    Completion, ConnectionOptions, Endpoint, EndpointDone, Full, MaskedAdd, MaskedSwap, Operation, PostError,
    RefusedReason, RemoteAddress, WrFlags,
};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_sim::fault::{Fault, Times};

use crate::ends::{Card, SOON, all_rights};

const LEN: usize = 8192;

fn pair(card: &Card) -> (Endpoint, Endpoint) {
    let mut options = ConnectionOptions::default();
    (options.send_depth, options.recv_depth) = (8, 8);
    let mut one = Endpoint::new(&card.region(LEN), options.clone()).unwrap();
    let mut other = Endpoint::new(&card.region(LEN), options).unwrap();
    other.connect(&one.local().unwrap()).unwrap();
    one.connect(&other.local().unwrap()).unwrap();
    (one, other)
}

fn next_done(endpoint: &mut Endpoint) -> EndpointDone {
    let start = Instant::now();
    loop {
        if let Some(done) = endpoint.poll().unwrap() {
            return done;
        }
        assert!(start.elapsed() < SOON, "no completion");
        std::thread::yield_now();
    }
}

/// The next completion, of bytes of the region.
fn next(endpoint: &mut Endpoint) -> (u64, Completion) {
    let done = next_done(endpoint);
    assert!(done.buffer.is_none() && done.received().is_none());
    (done.ticket, done.result.unwrap())
}

fn bytes(region: &MemoryRegion, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(at, &mut bytes);
    bytes
}

#[test]
fn one_signalled_write_of_a_batch_completes_all_before_it() {
    let card = Card::new();
    let (mut one, other) = pair(&card);
    one.region().write(0, b"abcdefgh");
    for lap in 0..4 {
        let mut batch = one.sends().unwrap();
        for i in 0..8 {
            let flags = if i == 7 { WrFlags::SIGNALLED } else { WrFlags::empty() };
            batch.write(lap * 8 + i as u64, flags, i..i + 1, other.region().remote_at(100 + i)).unwrap();
        }
        assert!(matches!(batch.write(99, WrFlags::SIGNALLED, 0..1, other.region().remote()), Err(PostError::Full(_))));
        batch.ring();
        assert_eq!(next(&mut one).0, lap * 8 + 7);
        assert!(one.poll().unwrap().is_none(), "unsignalled work does not complete");
    }
    assert_eq!(bytes(other.region(), 100, 8), b"abcdefgh");
    drop((one, other));
    card.end();
}

#[test]
fn completions_polled_in_batches_are_those_polled_one_by_one_and_their_room_is_free_again() {
    let card = Card::new();
    let (mut one, other) = pair(&card);
    let depth = 8;
    // Many laps of the completion queue: an entry that is not released would overrun it.
    for lap in 0..40 {
        let mut batch = one.sends().unwrap();
        for i in 0..depth {
            batch.write(lap * depth + i, WrFlags::SIGNALLED, 0..1, other.region().remote()).unwrap();
        }
        batch.ring();
        let (start, mut done) = (Instant::now(), Vec::new());
        while done.len() < depth as usize {
            let some: Vec<_> = one.poll_batch(3).map(|done| done.unwrap().ticket).collect();
            assert!(some.len() <= 3);
            done.extend(some);
            assert!(start.elapsed() < SOON, "no completion");
        }
        assert_eq!(done, (lap * depth..(lap + 1) * depth).collect::<Vec<_>>());
        assert!(one.poll().unwrap().is_none());
    }
    drop((one, other));
    card.end();
}

#[test]
fn sends_reads_and_inline_data_arrive_where_the_ranges_say() {
    let card = Card::new();
    let (mut one, mut other) = pair(&card);
    one.region().write(10, b"from one");
    other.region().write(20, b"from other");
    let mut receives = other.receives().unwrap();
    receives.receive(1, 1000..1100).unwrap();
    receives.receive(2, 2000..2100).unwrap();
    receives.ring();
    let remote = other.region().remote_at(20);
    let mut batch = one.sends().unwrap();
    batch.send(3, WrFlags::SIGNALLED, 10..18).unwrap();
    batch.send_inline(4, WrFlags::SIGNALLED, b"inline").unwrap();
    batch.read(5, WrFlags::SIGNALLED, 3000..3010, remote).unwrap();
    batch.write_inline(6, WrFlags::SIGNALLED, b"written", other.region().remote_at(4000)).unwrap();
    batch.ring();
    assert_eq!((3..=6).map(|_| next(&mut one).0).collect::<Vec<_>>(), [3, 4, 5, 6]);
    let received: Vec<_> = (1..=2).map(|_| next(&mut other)).map(|(id, done)| (id, done.byte_len)).collect();
    assert_eq!(received, [(1, 8), (2, 6)]);
    assert_eq!(bytes(other.region(), 1000, 8), b"from one");
    assert_eq!(bytes(other.region(), 2000, 6), b"inline");
    assert_eq!(bytes(other.region(), 4000, 7), b"written");
    assert_eq!(bytes(one.region(), 3000, 10), b"from other");
    drop((one, other));
    card.end();
}

#[test]
fn immediate_data_and_several_ranges_go_with_each_form_of_data() {
    let card = Card::new();
    let mut options = ConnectionOptions::default();
    (options.send_depth, options.recv_depth, options.send_sges) = (16, 8, 3);
    let mut one = Endpoint::new(&card.region(LEN), options.clone()).unwrap();
    let mut other = Endpoint::new(&card.region(LEN), options).unwrap();
    other.connect(&one.local().unwrap()).unwrap();
    one.connect(&other.local().unwrap()).unwrap();
    one.region().write(0, b"0123456789");
    let mut receives = other.receives().unwrap();
    (0..7).for_each(|id| receives.receive(id, 1000 + 100 * id as usize..1100 + 100 * id as usize).unwrap());
    receives.ring();
    let at = |at| other.region().remote_at(at);
    let mut batch = one.sends().unwrap();
    batch.send_all(1, WrFlags::SIGNALLED, &[8..10, 0..1, 4..6]).unwrap();
    batch.send_imm(2, WrFlags::SIGNALLED, 3..6, 0x11).unwrap();
    batch.write_imm(3, WrFlags::SIGNALLED, 5..9, at(2000), 0x22).unwrap();
    batch.send_imm_inline(4, WrFlags::SIGNALLED, b"inline", 0x33).unwrap();
    batch.write_inline_all(10, WrFlags::empty(), &[b"par", b"ts"], at(2300)).unwrap();
    batch.write_imm_inline(5, WrFlags::SIGNALLED, b"written", at(2100), 0x44).unwrap();
    let refused = batch.send_all(9, WrFlags::SIGNALLED, &[0..1, 1..2, 2..3, 3..4]);
    assert_eq!(refused, Err(PostError::TooManySges { given: 4, most: 3 }));
    batch.write_all(6, WrFlags::SIGNALLED, &[2..4, 0..2], at(2200)).unwrap();
    batch.nop(7, WrFlags::SIGNALLED).unwrap();
    batch.read_all(8, WrFlags::SIGNALLED, &[3000..3003, 3100..3104], at(2100)).unwrap();
    batch.send_imm_inline_all(11, WrFlags::SIGNALLED, &[b"in ", b"parts"], 0x55).unwrap();
    batch.write_imm_inline_all(12, WrFlags::SIGNALLED, &[b"of ", b"parts"], at(2400), 0x66).unwrap();
    batch.ring();
    let done: Vec<_> = (0..10).map(|_| next(&mut one).0).collect();
    assert_eq!(done, [1, 2, 3, 4, 5, 6, 7, 8, 11, 12]);
    let received: Vec<_> = (0..7).map(|_| next(&mut other).1.operation).collect();
    let (plain, imm, written) = (Operation::Received, Operation::ReceivedImm, Operation::WrittenImm);
    assert_eq!(received, [plain, imm(0x11), written(0x22), imm(0x33), written(0x44), imm(0x55), written(0x66)]);
    let messages = [(1000, &b"89045"[..]), (1100, b"345"), (2000, b"5678"), (1300, b"inline"), (2100, b"written")];
    let of_parts = [(2200, &b"2301"[..]), (2300, b"parts"), (1500, b"in parts"), (2400, b"of parts")];
    for (at, message) in messages.into_iter().chain(of_parts) {
        assert_eq!(bytes(other.region(), at, message.len()), message, "at {at}");
    }
    assert_eq!((bytes(one.region(), 3000, 3), bytes(one.region(), 3100, 4)), (b"wri".to_vec(), b"tten".to_vec()));
    drop((one, other));
    card.end();
}

#[test]
fn atomics_find_and_change_a_number_of_the_remote_s() {
    let card = Card::new();
    let mut options = ConnectionOptions::default();
    options.remote_access |= AccessFlags::REMOTE_ATOMIC;
    let rights = all_rights() | AccessFlags::REMOTE_ATOMIC;
    let region = || MemoryRegion::allocate(&card.pd, LEN, rights).unwrap();
    let (ours, theirs) = (region(), region());
    let mut one = Endpoint::new(&ours, options.clone()).unwrap();
    let mut other = Endpoint::new(&theirs, options).unwrap();
    other.connect(&one.local().unwrap()).unwrap();
    one.connect(&other.local().unwrap()).unwrap();
    let mut batch = one.sends().unwrap();
    batch.fetch_add(1, WrFlags::empty(), 100, theirs.remote_at(8), 5).unwrap();
    batch.compare_swap(2, WrFlags::SIGNALLED, LEN - 8, theirs.remote_at(8), 5, 77).unwrap();
    let add = MaskedAdd { add: [1u64, 2], boundaries: [0, 0] };
    batch.masked_fetch_add(3, WrFlags::SIGNALLED, 200, theirs.remote_at(16), add).unwrap();
    let swap = MaskedSwap { compare: 1u32, compare_mask: u32::MAX, swap: 9, swap_mask: u32::MAX };
    batch.masked_compare_swap(4, WrFlags::SIGNALLED, 300, theirs.remote_at(16), swap).unwrap();
    batch.ring();
    assert_eq!([2, 3, 4], [(); 3].map(|()| next(&mut one).0));
    let number = |region: &MemoryRegion, at| u64::from_ne_bytes(bytes(region, at, 8).try_into().unwrap());
    assert_eq!((ours.found(100), ours.found(LEN - 8), number(&theirs, 8)), (0u64, 5u64, 77));
    assert_eq!((ours.found(200), ours.found(300)), ([0u64, 0], 1u32));
    assert_eq!([16, 24].map(|at| number(&theirs, at)), [9, 2]);
    drop((one, other, ours, theirs));
    card.end();
}

#[test]
fn a_failed_work_request_is_an_error_with_its_wr_id() {
    let card = Card::new();
    let (mut one, other) = pair(&card);
    let nowhere = RemoteAddress { rkey: other.region().rkey() ^ 0x100, ..other.region().remote() };
    let mut batch = one.sends().unwrap();
    batch.write(7, WrFlags::empty(), 0..8, nowhere).unwrap();
    batch.ring();
    let done = next_done(&mut one);
    let syndrome = done.result.expect_err("the remote key is wrong").syndrome();
    assert_eq!((done.ticket, syndrome), (7, Some(CqeSyndrome::RemoteAccess)));
    drop((one, other));
    card.end_after(&["key does not allow the access"]);
}

#[test]
fn a_region_lives_until_the_receives_that_name_it_are_forgotten() {
    let card = Card::new();
    let (one, mut other) = pair(&card);
    let region = Arc::downgrade(other.region());
    let mut receives = other.receives().unwrap();
    (0..8).for_each(|id| receives.receive(id, 0..LEN).unwrap());
    receives.ring();
    let queue_pair = Arc::clone(other.queue_pair());
    drop((one, other));
    assert!(region.upgrade().is_none());
    assert_eq!(queue_pair.query().unwrap().state, mlx5_prm::values::QpState::Rst);
    drop(queue_pair);
    card.end();
}

#[test]
#[should_panic(expected = "bytes 8190..8194 of a memory region of")]
fn a_range_beyond_the_region_panics() {
    let card = Card::new();
    let (mut one, other) = pair(&card);
    let remote = other.region().remote();
    let len = one.region().len();
    assert!(len >= LEN);
    let mut batch = one.sends().unwrap();
    let _ = batch.write(1, WrFlags::SIGNALLED, len - 2..len + 2, remote);
}

#[test]
fn messages_are_slices_of_buffers_beside_the_region() {
    let card = Card::new();
    let (mut one, mut other) = pair(&card);
    let memory = ExclusiveRegion::allocate(&card.pd, 4 * 4096).unwrap();
    let [mut out, into, fetched, inside] = [0, 1, 2, 3].map(|at| memory.buffer(at * 4096..(at + 1) * 4096).unwrap());
    let places = [&into, &fetched, &inside].map(|buffer| buffer.segment().addr);
    let mut receives = other.receives().unwrap();
    receives.receive_buffer(1, into).unwrap();
    // Bytes of the region and buffers take turns.
    receives.receive(2, 0..4096).unwrap();
    receives.receive_buffer(3, inside).unwrap();
    receives.ring();
    other.region().write(5000, b"remote");
    out.set_len(5);
    out.as_mut_slice().copy_from_slice(b"first");
    let mut batch = one.sends().unwrap();
    batch.send_buffer(10, WrFlags::empty(), out).unwrap();
    batch.send_inline(11, WrFlags::empty(), b"second").unwrap();
    batch.send_inline(12, WrFlags::empty(), b"third").unwrap();
    let mut six = fetched;
    six.set_len(6);
    batch.read_buffer(13, WrFlags::empty(), six, other.region().remote_at(5000)).unwrap();
    batch.ring();

    let sent = next_done(&mut one);
    assert_eq!((sent.ticket, sent.received()), (10, None), "nothing was received");
    let mut out = sent.buffer.expect("a buffer has a completion, also without SIGNALLED");
    let read = next_done(&mut one);
    let fetched = read.buffer.unwrap();
    assert_eq!((read.ticket, fetched.as_slice(), fetched.segment().addr), (13, &b"remote"[..], places[1]));
    let first = next_done(&mut other);
    assert_eq!((first.ticket, first.received()), (1, Some(&b"first"[..])));
    assert_eq!(first.received().unwrap().as_ptr() as u64, places[0], "where the card wrote it");
    let (wr_id, second) = next(&mut other);
    assert_eq!((wr_id, second.byte_len, bytes(other.region(), 0, 6)), (2, 6, b"second".to_vec()));
    let third = next_done(&mut other);
    assert_eq!((third.ticket, third.received()), (3, Some(&b"third"[..])));

    out.as_mut_slice().copy_from_slice(b"again");
    let mut batch = one.sends().unwrap();
    batch.write_buffer(14, WrFlags::SIGNALLED, out, other.region().remote_at(6000)).unwrap();
    batch.ring();
    assert!(next_done(&mut one).buffer.is_some());
    assert_eq!(bytes(other.region(), 6000, 5), b"again");
    drop((one, other, first, third, fetched, memory));
    card.end();
}

#[test]
fn buffers_come_back_from_every_lap_of_the_rings_and_the_full_ones_refuse_them() {
    let card = Card::new();
    let (mut one, mut other) = pair(&card);
    let memory = ExclusiveRegion::allocate(&card.pd, 17 * 64).unwrap();
    let mut buffers: Vec<_> = (0..17).map(|at| memory.buffer(at * 64..(at + 1) * 64).unwrap()).collect();
    for lap in 0..20_u64 {
        let mut receives = other.receives().unwrap();
        for i in 0..8 {
            receives.receive_buffer(lap * 8 + i, buffers.pop().unwrap()).unwrap();
        }
        let refused = receives.receive_buffer(99, buffers.pop().unwrap()).unwrap_err();
        assert!(matches!(refused.reason, RefusedReason::Post(PostError::Full(_))), "{refused}");
        buffers.extend(refused.buffer);
        receives.ring();
        let mut sends = one.sends().unwrap();
        for i in 0..8_u64 {
            let mut buffer = buffers.pop().unwrap();
            buffer.as_mut_slice().fill((lap * 8 + i) as u8);
            sends.send_buffer(lap * 8 + i, WrFlags::empty(), buffer).unwrap();
        }
        let refused = sends.send_buffer(99, WrFlags::empty(), buffers.pop().unwrap()).unwrap_err();
        assert!(matches!(refused.reason, RefusedReason::Post(PostError::Full(_))), "{refused}");
        buffers.extend(refused.buffer);
        sends.ring();
        for i in 0..8_u64 {
            let (sent, received) = (next_done(&mut one), next_done(&mut other));
            assert_eq!((sent.ticket, received.ticket), (lap * 8 + i, lap * 8 + i));
            assert_eq!(received.received().unwrap(), [(lap * 8 + i) as u8; 64]);
            buffers.extend(sent.buffer.into_iter().chain(received.buffer));
        }
        assert_eq!(buffers.len(), 17, "lap {lap}");
    }
    drop((one, other, buffers, memory));
    card.end();
}

#[test]
fn buffers_of_a_batch_that_is_not_rung_are_dropped_and_flushed_ones_come_back() {
    let card = Card::new();
    let (one, mut other) = pair(&card);
    let memory = ExclusiveRegion::allocate(&card.pd, 4096).unwrap();
    let buffer = || memory.buffer(0..64);
    let mut receives = other.receives().unwrap();
    receives.receive_buffer(1, buffer().unwrap()).unwrap();
    buffer().expect_err("the batch has it");
    drop(receives);
    // Its place in the ring is the next one's, which has no buffer.
    let mut receives = other.receives().unwrap();
    receives.receive(2, 0..64).unwrap();
    receives.receive_buffer(3, buffer().unwrap()).unwrap();
    receives.ring();
    other.queue_pair().to_error().unwrap();
    let flushed = [next_done(&mut other), next_done(&mut other)];
    assert_eq!(flushed.each_ref().map(|done| (done.ticket, done.buffer.is_some())), [(2, false), (3, true)]);
    assert!(flushed.iter().all(|done| done.result.is_err() && done.received().is_none()));
    buffer().expect_err("it has come back, and lives");
    drop(flushed);
    buffer().unwrap();
    drop((one, other, memory));
    card.end();
}

/// A batch that is forgotten never goes to the card: the WQEs after it have nothing of its buffers.
#[test]
fn buffers_of_a_forgotten_batch_do_not_come_back_with_others() {
    let card = Card::new();
    let (mut one, mut other) = pair(&card);
    let slices = ExclusiveRegion::allocate(one.region().pd(), LEN).unwrap();
    let mut buffers = slices.buffers(1024).unwrap();
    let mut batch = other.receives().unwrap();
    batch.receive_buffer(1, buffers.pop().unwrap()).unwrap();
    batch.receive_buffer(2, buffers.pop().unwrap()).unwrap();
    std::mem::forget(batch);
    let mut batch = other.receives().unwrap();
    batch.receive(3, 0..64).unwrap();
    batch.receive_buffer(4, buffers.pop().unwrap()).unwrap();
    batch.ring();
    let mut batch = one.sends().unwrap();
    batch.send_inline(5, WrFlags::SIGNALLED, b"hello").unwrap();
    batch.send_inline(6, WrFlags::SIGNALLED, b"again").unwrap();
    batch.ring();
    assert_eq!(next(&mut other).0, 3);
    let done = next_done(&mut other);
    assert_eq!((done.ticket, done.received()), (4, Some(&b"again"[..])));
    drop((one, other, done, buffers, slices));
    card.end();
}

#[test]
fn an_endpoint_with_buffers_in_flight_is_reset_before_they_are_freed() {
    let card = Card::new();
    let (one, mut other) = pair(&card);
    let memory = ExclusiveRegion::allocate(&card.pd, 4096).unwrap();
    let mut receives = other.receives().unwrap();
    receives.receive_buffer(1, memory.buffer(0..4096).unwrap()).unwrap();
    receives.ring();
    assert_reset_before_freed(card, (one, other), memory);
}

/// The second of `ends` has the first byte of `memory`. Dropped, it is reset before that is freed.
fn assert_reset_before_freed(card: Card, ends: (Endpoint, Endpoint), memory: ExclusiveRegion) {
    let queue_pair = Arc::clone(ends.1.queue_pair());
    memory.buffer(0..1).expect_err("the endpoint has it");
    drop(ends);
    assert_eq!(queue_pair.query().unwrap().state, mlx5_prm::values::QpState::Rst);
    memory.buffer(0..1).expect("it is free");
    drop((queue_pair, memory));
    card.end();
}

#[test]
fn a_reset_of_an_endpoint_returns_its_buffers_and_it_connects_again() {
    let card = Card::new();
    let (mut one, mut other) = pair(&card);
    let memory = ExclusiveRegion::allocate(&card.pd, 4 * 64).unwrap();
    let mut receives = other.receives().unwrap();
    for at in 0..3 {
        receives.receive_buffer(1, memory.buffer(at * 64..(at + 1) * 64).unwrap()).unwrap();
    }
    receives.receive(2, 0..64).unwrap();
    receives.ring();
    let mut sends = one.sends().unwrap();
    sends.send_inline(3, WrFlags::SIGNALLED, b"never polled").unwrap();
    sends.ring();
    assert_eq!(next_done(&mut other).received().unwrap(), b"never polled");
    let back = other.reset().unwrap();
    assert_eq!(back.len(), 2);
    assert!(other.poll().unwrap().is_none() && other.sends().is_none());
    assert_eq!(one.reset().unwrap().len(), 0);
    assert!(one.poll().unwrap().is_none());

    let mut receives = other.receives().unwrap();
    for (wr_id, buffer) in (4..).zip(back) {
        receives.receive_buffer(wr_id, buffer).unwrap();
    }
    receives.ring();
    other.connect(&one.local().unwrap()).unwrap();
    one.connect(&other.local().unwrap()).unwrap();
    let mut buffer = memory.buffer(3 * 64..4 * 64).unwrap();
    buffer.set_len(5);
    buffer.as_mut_slice().copy_from_slice(b"again");
    let mut sends = one.sends().unwrap();
    sends.send_buffer(7, WrFlags::SIGNALLED, buffer).unwrap();
    sends.ring();
    let sent = next_done(&mut one);
    assert_eq!((sent.ticket, sent.buffer.unwrap().as_slice()), (7, &b"again"[..]));
    let done = next_done(&mut other);
    assert_eq!((done.ticket, done.received().unwrap()), (4, &b"again"[..]));
    drop((one, other, done, memory));
    card.end();
}

#[test]
fn an_endpoint_whose_reset_failed_keeps_its_buffers_until_one_succeeds() {
    let card = Card::new();
    let (one, mut other) = pair(&card);
    let memory = ExclusiveRegion::allocate(&card.pd, 64).unwrap();
    let mut receives = other.receives().unwrap();
    receives.receive_buffer(1, memory.buffer(0..64).unwrap()).unwrap();
    receives.ring();
    let opcode = Some(Opcode::Qp2rst.number() as u16);
    let refuse = || {
        let fault = Fault::CommandStatus { opcode, status: 1, syndrome: 0x1234 };
        card.sim.handle(0).faults().inject(fault, Times::Count(1));
    };
    refuse();
    let error = other.reset().unwrap_err().to_string();
    assert!(error.contains("0x1234"), "{error}");
    assert!(other.receives().is_none() && other.sends().is_none());
    memory.buffer(0..64).expect_err("the card may write it");
    refuse();
    other.reset().unwrap_err();
    assert_reset_before_freed(card, (one, other), memory);
}

/// A ring is rounded up, and holds more short work requests than `send_depth` of the longest.
#[test]
fn as_many_writes_as_the_ring_takes_have_room_for_their_completions() {
    let card = Card::new();
    let mut options = ConnectionOptions::default();
    (options.send_depth, options.recv_depth, options.inline_bytes) = (100, 100, 200);
    let mut one = Endpoint::new(&card.region(LEN), options.clone()).unwrap();
    let mut other = Endpoint::new(&card.region(LEN), options).unwrap();
    other.connect(&one.local().unwrap()).unwrap();
    one.connect(&other.local().unwrap()).unwrap();
    one.region().write(8, b"the last");
    let target = RemoteAddress { addr: other.region().addr(), rkey: other.region().rkey() };
    let mut batch = one.sends().unwrap();
    for i in 0..511 {
        batch.write(i, WrFlags::SIGNALLED, 0..8, target).unwrap();
    }
    batch.write(511, WrFlags::SIGNALLED, 8..16, target).unwrap();
    assert_eq!(batch.write(512, WrFlags::SIGNALLED, 0..8, target), Err(PostError::Full(Full)));
    batch.ring();
    // The card is done with them before the first is polled.
    let start = Instant::now();
    while bytes(other.region(), 0, 8) != b"the last" {
        assert!(start.elapsed() < SOON, "not all complete");
        std::thread::yield_now();
    }
    (0..512).for_each(|i| assert_eq!(next(&mut one).0, i));
}
