//! Two endpoints, each with its own region.

use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::objects::{AccessFlags, MemoryRegion};
use mlx5_dv::queue::{Completion, ConnectionOptions, Endpoint, EndpointError, PostError, RemoteAddress, WrFlags};
use mlx5_prm::cqe::CqeSyndrome;

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

fn next(endpoint: &mut Endpoint) -> Result<(u64, Completion), EndpointError> {
    let start = Instant::now();
    loop {
        if let Some(done) = endpoint.poll()? {
            return Ok(done);
        }
        assert!(start.elapsed() < SOON, "no completion");
        std::thread::yield_now();
    }
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
        assert_eq!(next(&mut one).unwrap().0, lap * 8 + 7);
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
            let some: Vec<_> = one.poll_batch(3).map(|done| done.unwrap().0).collect();
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
    assert_eq!((3..=6).map(|_| next(&mut one).unwrap().0).collect::<Vec<_>>(), [3, 4, 5, 6]);
    let received: Vec<_> = (1..=2).map(|_| next(&mut other).unwrap()).map(|(id, done)| (id, done.byte_len)).collect();
    assert_eq!(received, [(1, 8), (2, 6)]);
    assert_eq!(bytes(other.region(), 1000, 8), b"from one");
    assert_eq!(bytes(other.region(), 2000, 6), b"inline");
    assert_eq!(bytes(other.region(), 4000, 7), b"written");
    assert_eq!(bytes(one.region(), 3000, 10), b"from other");
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
    batch.ring();
    assert_eq!(next(&mut one).unwrap().0, 2);
    let number = |region: &MemoryRegion, at| u64::from_ne_bytes(bytes(region, at, 8).try_into().unwrap());
    assert_eq!((number(&ours, 100), number(&ours, LEN - 8), number(&theirs, 8)), (0, 5, 77));
    drop((one, other, ours, theirs));
    card.end();
}

#[test]
fn a_failed_work_request_is_an_error_of_poll() {
    let card = Card::new();
    let (mut one, other) = pair(&card);
    let nowhere = RemoteAddress { rkey: other.region().rkey() ^ 0x100, ..other.region().remote() };
    let mut batch = one.sends().unwrap();
    batch.write(1, WrFlags::empty(), 0..8, nowhere).unwrap();
    batch.ring();
    let Err(EndpointError::Work(error)) = next(&mut one) else { panic!("the remote key is wrong") };
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess));
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
