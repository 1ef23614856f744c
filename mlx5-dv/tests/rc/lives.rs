//! Stale completions of a queue pair that was reset or destroyed are not attributed to a later one.

use std::time::{Duration, Instant};

use mlx5_dv::objects::{CqOptions, QpOptions, QueuePair, Uar};
use mlx5_dv::queue::{CompletionQueue, WrFlags};

use crate::ends::{Card, End, SOON, Setup, bytes, connect_again, pair, pair_of};

/// Waits until a completion is present, without polling it.
fn unpolled(cq: &CompletionQueue) {
    let deadline = Instant::now() + SOON;
    while !cq.is_ready() {
        assert!(Instant::now() < deadline, "no completion");
        std::thread::yield_now();
    }
}

/// Sends one message from `a` to `b`; neither side polls its completion.
fn leave_one_behind(a: &mut End, b: &mut End, region: &mlx5_dv::objects::MemoryRegion) {
    b.receive(7, region);
    let mut batch = a.sq.batch();
    batch.send_inline(1, WrFlags::SIGNALLED, b"of old").unwrap();
    batch.ring();
    unpolled(&a.cq);
    unpolled(&b.cq);
}

/// Resets both ends and connects them again.
fn again(card: &Card, a: End, b: End) -> (End, End) {
    drop((a.sq, a.rq, b.sq, b.rq));
    a.qp.reset().unwrap();
    b.qp.reset().unwrap();
    connect_again(card, (a.cq, a.qp), (b.cq, b.qp))
}

#[test]
fn completions_of_before_a_reset_retire_nothing_of_after_it() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let theirs = card.region(4096);
    for life in 0..3 {
        leave_one_behind(&mut a, &mut b, &theirs);
        (a, b) = again(&card, a, b);
        // Same queue pair, same index as the completion that is still in the ring.
        b.receive(8 + life, &theirs);
        assert!(b.cq.poll().is_none(), "the message has not been sent");
        let mut batch = a.sq.batch();
        batch.send_inline(2 + life, WrFlags::SIGNALLED, b"of now").unwrap();
        batch.ring();
        assert_eq!((a.good().0, b.good().0), (2 + life, 8 + life));
        assert_eq!(bytes(&theirs, 0, 6), b"of now");
        assert!(a.cq.poll().is_none() && b.cq.poll().is_none());
    }
    drop((a, b, theirs));
    card.end();
}

#[test]
fn what_was_flushed_before_a_reset_is_passed_over_too() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let theirs = card.region(4096);
    (0..5).for_each(|wr_id| b.receive(wr_id, &theirs));
    b.qp.to_error().unwrap();
    assert_eq!(b.bad().0, 0, "one is polled, four are not");
    (a, b) = again(&card, a, b);
    b.receive(9, &theirs);
    assert!(b.cq.poll().is_none());
    let mut batch = a.sq.batch();
    batch.send_inline(2, WrFlags::SIGNALLED, b"of now").unwrap();
    batch.ring();
    assert_eq!((a.good().0, b.good().0), (2, 9));
    drop((a, b, theirs));
    card.end();
}

#[test]
fn a_sleeper_is_not_woken_for_what_is_passed_over() {
    let card = Card::new();
    let setup = Setup { cq: CqOptions::default().entries(63).events(), ..Setup::default() };
    let (mut a, mut b) = pair_of(&card, &setup);
    let theirs = card.region(4096);
    leave_one_behind(&mut a, &mut b, &theirs);
    (a, b) = again(&card, a, b);
    let error = b.cq.wait(Duration::from_millis(20)).unwrap_err().to_string();
    assert!(error.contains("longer than 20 ms"), "{error}");
    b.receive(8, &theirs);
    let mut batch = a.sq.batch();
    batch.send_inline(2, WrFlags::SIGNALLED, b"of now").unwrap();
    batch.ring();
    b.cq.wait(Duration::MAX).unwrap();
    assert_eq!((a.good().0, b.good().0), (2, 8));
    drop((a, b, theirs));
    card.end();
}

/// Completions of other queue pairs on the same completion queue are kept.
#[test]
fn only_the_completions_of_a_destroyed_queue_pair_go_with_it() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let mut cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let make = || {
        let qp = QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), QpOptions::default()).unwrap();
        qp.init(&Default::default()).unwrap();
        let rq = qp.receive_queue().unwrap();
        (qp, rq)
    };
    let region = card.region(64);
    let mut ends: Vec<_> = (0..3).map(|_| make()).collect();
    for (qp, rq) in &mut ends {
        let mut batch = rq.batch();
        // SAFETY: the region outlives the queue pairs.
        unsafe { batch.receive(1, &[region.segment(0..8)]).unwrap() };
        batch.ring();
        qp.to_error().unwrap();
    }
    // All three are flushed by now, or those of the two remaining ones will be.
    std::thread::sleep(Duration::from_millis(20));
    drop(ends.remove(1));
    let mut expected: Vec<_> = ends.iter().map(|(qp, _)| qp.qpn()).collect();
    let deadline = Instant::now() + SOON;
    while !expected.is_empty() {
        assert!(Instant::now() < deadline, "no completion of {expected:x?}");
        let Some(result) = cq.poll() else { continue };
        let qpn = result.unwrap_err().work.qpn;
        assert!(expected.contains(&qpn), "{qpn:#x} is gone, or has been here");
        expected.retain(|&other| other != qpn);
    }
    assert!(cq.poll().is_none());
    drop((ends, region, cq));
    Uar::destroy(uar).unwrap();
    card.end();
}
