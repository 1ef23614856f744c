//! Every operation moves the right bytes.

use mlx5_dv::memory::HostMemory;
use mlx5_dv::objects::{CqOptions, CqeSize, MemoryRegion};
use mlx5_dv::queue::{DataSegment, Full, Operation, WrFlags};
use mlx5_prm::wqe::WqeOpcode;

use crate::ends::{Card, Setup, all_rights, bytes, pair, pair_of, pattern};

#[test]
fn send_and_receive() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let (source, target) = (card.region(8192), card.region(8192));
    for (round, len) in [1usize, 63, 64, 1024, 1025, 5000, 8192].into_iter().enumerate() {
        let data = pattern(len, round as u8);
        source.write(0, &data);
        target.fill(0, 8192, 0xee);
        b.receive(7, &target);
        let mut batch = a.sq.batch();
        // SAFETY: both regions outlive the queue pairs.
        unsafe { batch.send(9, WrFlags::SIGNALLED, &[source.segment(0..len)]).unwrap() };
        batch.ring();
        let (wr_id, received) = b.good();
        assert_eq!((wr_id, received.byte_len as usize, received.operation), (7, len, Operation::Received));
        assert_eq!(bytes(&target, 0, len), data);
        assert!(
            bytes(&target, len, 8192 - len).iter().all(|&byte| byte == 0xee),
            "nothing behind the message is written"
        );
        let (wr_id, sent) = a.good();
        assert_eq!((wr_id, sent.operation), (9, Operation::Sent(WqeOpcode::Send)));
    }
    drop((a, b, source, target));
    card.end();
}

#[test]
fn write_and_read() {
    let card = Card::new();
    let (mut a, b) = pair(&card);
    let (ours, theirs) = (card.region(65536), card.region(65536));
    for (offset, len) in [(0usize, 8usize), (3, 61), (100, 1024), (4095, 10_000), (0, 65536)] {
        let data = pattern(len, offset as u8);
        ours.write(0, &data);
        let mut batch = a.sq.batch();
        // SAFETY: both regions outlive the queue pairs.
        unsafe { batch.write(1, WrFlags::SIGNALLED, theirs.remote_at(offset), &[ours.segment(0..len)]).unwrap() };
        batch.ring();
        assert_eq!(a.good().1.operation, Operation::Sent(WqeOpcode::RdmaWrite));
        assert_eq!(bytes(&theirs, offset, len), data);

        ours.fill(0, 65536, 0);
        let mut batch = a.sq.batch();
        // SAFETY: as above.
        unsafe { batch.read(2, WrFlags::SIGNALLED, theirs.remote_at(offset), &[ours.segment(0..len)]).unwrap() };
        batch.ring();
        let (wr_id, done) = a.good();
        assert_eq!((wr_id, done.operation), (2, Operation::Sent(WqeOpcode::RdmaRead)));
        assert_eq!(bytes(&ours, 0, len), data);
    }
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn immediates_arrive_as_they_were_given() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    ours.write(0, b"immediate");
    b.receive(1, &theirs);
    b.receive(2, &theirs);
    let mut batch = a.sq.batch();
    // SAFETY: both regions outlive the queue pairs.
    unsafe {
        batch.send_imm(1, WrFlags::SIGNALLED, 0x0102_0304, &[ours.segment(0..9)]).unwrap();
        batch.write_imm(2, WrFlags::SIGNALLED, theirs.remote_at(100), 0xfffe_fdfc, &[ours.segment(0..9)]).unwrap();
    }
    batch.ring();
    let (_, sent) = b.good();
    assert_eq!((sent.operation, sent.byte_len), (Operation::ReceivedImm(0x0102_0304), 9));
    let (wr_id, written) = b.good();
    assert_eq!((wr_id, written.imm(), written.byte_len), (2, Some(0xfffe_fdfc), 9));
    assert_eq!(written.operation, Operation::WrittenImm(0xfffe_fdfc));
    assert_eq!(bytes(&theirs, 100, 9), b"immediate");
    assert_eq!((a.good().0, a.good().0), (1, 2));
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn inline_data_of_every_length_round_the_ring() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let theirs = card.region(4096);
    for len in 0..=200usize {
        let data = pattern(len, len as u8);
        b.receive(1, &theirs);
        let mut batch = a.sq.batch();
        batch.write_inline(1, WrFlags::SIGNALLED, theirs.remote_at(1000), &data).unwrap();
        batch.send_inline(2, WrFlags::SIGNALLED, &data).unwrap();
        batch.ring();
        assert_eq!(b.good().1.byte_len as usize, len);
        assert_eq!((a.good().0, a.good().0), (1, 2));
        assert_eq!((bytes(&theirs, 0, len), bytes(&theirs, 1000, len)), (data.clone(), data), "{len} bytes");
    }
    drop((a, b, theirs));
    card.end();
}

#[test]
fn several_elements_are_gathered_and_scattered_in_order() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let (ours, theirs) = (card.region(8192), card.region(8192));
    let data = pattern(3000, 5);
    ours.write(0, &data);
    let mut batch = b.rq.batch();
    let pieces = [theirs.segment(5000..5700), theirs.segment(0..0), theirs.segment(0..100), theirs.segment(1000..4000)];
    // SAFETY: both regions outlive the queue pairs.
    unsafe { batch.receive(1, &pieces).unwrap() };
    batch.ring();
    let mut batch = a.sq.batch();
    let pieces = [ours.segment(0..1), ours.segment(1..1000), ours.segment(1000..1000), ours.segment(1000..3000)];
    // SAFETY: as above.
    unsafe { batch.send(1, WrFlags::SIGNALLED, &pieces).unwrap() };
    batch.ring();
    assert_eq!(b.good().1.byte_len, 3000);
    a.good();
    let got = [bytes(&theirs, 5000, 700), bytes(&theirs, 0, 100), bytes(&theirs, 1000, 2200)].concat();
    assert_eq!(got, data);
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn a_batch_of_unsignalled_work_is_freed_by_its_signalled_last() {
    let card = Card::new();
    let (mut a, b) = pair(&card);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    let mut counter = 0u64;
    for _ in 0..100 {
        let mut batch = a.sq.batch();
        let mut posted = 0;
        let last = loop {
            counter += 1;
            let more = batch.write_inline(counter, WrFlags::empty(), theirs.remote_at(0), &counter.to_ne_bytes());
            posted += u64::from(more.is_ok());
            if posted == 7 {
                break batch.write_inline(999, WrFlags::SIGNALLED, theirs.remote_at(8), b"the last").is_ok();
            }
        };
        assert!(last);
        batch.ring();
        assert_eq!(a.good().0, 999);
        assert_eq!(a.sq.free(), a.sq.capacity());
        assert_eq!(bytes(&theirs, 0, 8), counter.to_ne_bytes(), "all before the last are done too");
    }
    assert!(a.cq.poll().is_none(), "unsignalled work completes in silence");
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn a_full_queue_says_so_and_a_dropped_batch_never_happened() {
    let card = Card::new();
    let (mut a, b) = pair(&card);
    let theirs = card.region(4096);
    let mut batch = a.sq.batch();
    let mut posted = 0;
    while batch.nop(posted, WrFlags::SIGNALLED).is_ok() {
        posted += 1;
    }
    assert_eq!(batch.nop(0, WrFlags::SIGNALLED), Err(Full.into()));
    // Not rung.
    assert_eq!(a.sq.free(), a.sq.capacity());
    let mut batch = a.sq.batch();
    batch.write_inline(42, WrFlags::SIGNALLED, theirs.remote_at(0), b"first").unwrap();
    batch.ring();
    assert_eq!(a.good().0, 42);
    assert_eq!(bytes(&theirs, 0, 5), b"first");
    assert!(a.cq.poll().is_none());
    drop((a, b, theirs));
    card.end();
}

#[test]
fn fenced_and_solicited_work_is_carried_out() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    theirs.write(0, b"read me");
    b.receive(1, &theirs);
    let mut batch = a.sq.batch();
    // SAFETY: both regions outlive the queue pairs.
    unsafe {
        batch.read(1, WrFlags::SIGNALLED, theirs.remote_at(0), &[ours.segment(0..7)]).unwrap();
        batch.write(2, WrFlags::SIGNALLED | WrFlags::FENCE, theirs.remote_at(100), &[ours.segment(0..7)]).unwrap();
        batch.send(3, WrFlags::SIGNALLED | WrFlags::SOLICITED, &[ours.segment(0..7)]).unwrap();
    }
    batch.ring();
    assert_eq!((a.good().0, a.good().0, a.good().0), (1, 2, 3));
    assert_eq!(bytes(&theirs, 100, 7), b"read me", "the fence waits for what was read");
    assert_eq!(b.good().1.byte_len, 7);
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn entries_of_128_bytes_work_alike_over_many_laps() {
    let card = Card::new();
    let setup = Setup { cq: CqOptions::default().entries(31).cqe_size(CqeSize::B128), ..Setup::default() };
    let (mut a, mut b) = pair_of(&card, &setup);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    for round in 0..200u64 {
        ours.write(0, &round.to_ne_bytes());
        b.receive(round, &theirs);
        let mut batch = a.sq.batch();
        // SAFETY: both regions outlive the queue pairs.
        unsafe { batch.send(round, WrFlags::SIGNALLED, &[ours.segment(0..8)]).unwrap() };
        batch.ring();
        assert_eq!((b.good().0, a.good().0), (round, round));
        assert_eq!(bytes(&theirs, 0, 8), round.to_ne_bytes());
    }
    drop((a, b, ours, theirs));
    card.end();
}

/// The length is not a multiple of any page size.
#[test]
fn the_user_s_memory_of_any_address_and_length_is_registered() {
    let card = Card::new();
    let (mut a, b) = pair(&card);
    let theirs = card.region(200_000);
    for len in [1usize, 17, 4096, 4097, 99_999] {
        let data = pattern(len, len as u8);
        let ours = MemoryRegion::register(&card.pd, HostMemory::from_vec(data.clone()).unwrap(), all_rights()).unwrap();
        assert_eq!(ours.len(), len);
        let mut batch = a.sq.batch();
        // SAFETY: both regions outlive the work requests.
        unsafe { batch.write(1, WrFlags::SIGNALLED, theirs.remote_at(3), &[ours.segment(0..len)]).unwrap() };
        batch.ring();
        a.good();
        assert_eq!(bytes(&theirs, 3, len), data);
        MemoryRegion::destroy(ours).unwrap();
    }
    drop((a, b, theirs));
    card.end();
}

#[test]
fn a_message_of_no_bytes_is_a_message() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let theirs = card.region(4096);
    b.receive(1, &theirs);
    let mut batch = a.sq.batch();
    // SAFETY: no memory is posted.
    unsafe { batch.send(1, WrFlags::SIGNALLED, &[DataSegment { addr: 0, len: 0, lkey: 0 }]).unwrap() };
    batch.ring();
    assert_eq!(b.good().1.byte_len, 0);
    a.good();
    drop((a, b, theirs));
    card.end();
}
