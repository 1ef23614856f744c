//! Completion queues that grow and shrink while work goes on, and whose events are held back.

use std::time::Duration;

use mlx5_dv::objects::{CqModeration, CqOptions, CqeSize, QpOptions, Uar};
use mlx5_dv::queue::{CompletionQueue, WrFlags};
use mlx5_dv::{Error, Invalid};
use mlx5_prm::ctx::CqPeriodMode;
use mlx5_sim::profile::Profile;

use crate::ends::{Card, End, Setup, connect_again, pair, pair_of};

/// Work requests that nobody has polled when the queue is resized.
const LEFT: u64 = 5;

fn nops(end: &mut End, ids: std::ops::Range<u64>) {
    let mut batch = end.sq.batch();
    ids.for_each(|id| batch.nop(id, WrFlags::SIGNALLED).unwrap());
    batch.ring();
}

/// Waits until all that `a` has posted has completed, polling none of it: `b` gets a message that was sent behind it.
fn all_have_completed(a: &mut End, b: &mut End, wr_id: u64, theirs: &mlx5_dv::objects::MemoryRegion) {
    b.receive(wr_id, theirs);
    let mut batch = a.sq.batch();
    batch.send_inline(wr_id, WrFlags::SIGNALLED, b"behind").unwrap();
    batch.ring();
    b.good();
}

#[test]
fn completions_survive_every_size() {
    for cqe_size in [CqeSize::B64, CqeSize::B128] {
        let card = Card::new();
        let cq = CqOptions::default().entries(15).cqe_size(cqe_size);
        let (mut a, mut b) = pair_of(&card, &Setup { cq, ..Setup::default() });
        let theirs = card.region(4096);
        let mut id = 0;
        for (round, entries) in [63, 15, 1023, 7, 31, 8, 100, 63, 15, 1023, 7].into_iter().enumerate() {
            nops(&mut a, id..id + LEFT);
            let mut left = LEFT;
            // In every second round they are all there; else the queue is resized while they come.
            if round % 2 == 1 {
                all_have_completed(&mut a, &mut b, id + LEFT, &theirs);
                left += 1;
            }
            a.cq.resize(entries).unwrap();
            assert!(a.cq.cq().capacity() >= entries && a.cq.cq().capacity() <= 2 * entries);
            (id..id + left).for_each(|id| assert_eq!(a.good().0, id, "resized to {entries}"));
            id += left;
            assert!(a.cq.poll().is_none());
            // Around the new ring, if it is small.
            for _ in 0..100 {
                nops(&mut a, id..id + 1);
                assert_eq!(a.good().0, id);
                id += 1;
            }
            assert!(a.cq.poll().is_none(), "resized to {entries}");
        }
        drop((a, b, theirs));
        card.end();
    }
}

#[test]
fn fewer_entries_than_completions_that_wait_are_refused() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let theirs = card.region(4096);
    nops(&mut a, 0..11);
    all_have_completed(&mut a, &mut b, 11, &theirs);
    let Err(Error::Invalid(invalid)) = a.cq.resize(7) else { panic!("refused") };
    let Invalid::OutOfRange { what, given, limit, mend, .. } = invalid else { panic!("{invalid}") };
    assert_eq!((what, given, *limit.start(), mend), ("entries", 7, 12, Some("poll first")));
    assert_eq!(a.cq.cq().capacity(), 63);
    let text = a.cq.resize(u32::MAX).unwrap_err().to_string();
    assert!(text.contains("entries") && text.contains("log_max_cq_sz"), "{text}");
    a.cq.resize(15).unwrap();
    (0..12).for_each(|id| assert_eq!(a.good().0, id));
    a.cq.resize(7).unwrap();
    a.cq.resize(7).unwrap();
    drop((a, b, theirs));
    card.end();
}

#[test]
fn what_a_queue_pair_left_behind_stays_behind_when_its_completions_move() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let theirs = card.region(4096);
    nops(&mut a, 0..3);
    all_have_completed(&mut a, &mut b, 3, &theirs);
    drop((a.sq, a.rq, b.sq, b.rq));
    a.qp.reset().unwrap();
    b.qp.reset().unwrap();
    a.cq.resize(255).unwrap();
    let (mut a, b) = connect_again(&card, (a.cq, a.qp), (b.cq, b.qp));
    assert!(a.cq.poll().is_none());
    nops(&mut a, 10..12);
    a.cq.resize(15).unwrap();
    assert_eq!((a.good().0, a.good().0), (10, 11));
    assert!(a.cq.poll().is_none());
    drop((a, b, theirs));
    card.end();
}

#[test]
fn a_card_that_cannot_resize_or_moderate_says_so() {
    let mut profile = Profile::connectx5();
    profile.general_current.w().cq_resize(false).cq_moderation(false);
    profile.general_max.w().cq_resize(false).cq_moderation(false);
    let card = Card::of(profile);
    let uar = Uar::alloc(&card.device).unwrap();
    let mut cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let held_back = CqModeration::new(4, Duration::from_micros(10));
    for (result, named) in [
        (cq.resize(7), "cq_resize"),
        (cq.cq().moderate(&held_back), "cq_moderation"),
        (CompletionQueue::create(&uar, CqOptions::default().moderation(held_back)).map(drop), "cq_moderation"),
    ] {
        assert!(matches!(result, Err(Error::Unsupported { capability, .. }) if capability == named), "{named}");
    }
    drop((cq, uar));
    card.end();
}

#[test]
fn events_are_held_back_as_asked_at_creation_and_later() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let at_first = CqModeration::new(32, Duration::from_nanos(15_001));
    let cq = CompletionQueue::create(&uar, CqOptions::default().moderation(at_first)).unwrap();
    let said = cq.cq().moderation().unwrap();
    assert_eq!(said, CqModeration::new(32, Duration::from_micros(16)), "rounded up");
    for period_mode in [CqPeriodMode::StartFromCqe, CqPeriodMode::StartFromEqe] {
        let later = CqModeration { period_mode, ..CqModeration::new(0xffff, Duration::from_micros(4095)) };
        cq.cq().moderate(&later).unwrap();
        assert_eq!(cq.cq().moderation().unwrap(), later);
    }
    let too_long = CqModeration::new(1, Duration::from_micros(4096));
    let text = cq.cq().moderate(&too_long).unwrap_err().to_string();
    assert!(text.contains("period in microseconds is 4096") && text.contains("at most 4095"), "{text}");
    let unknown = CqModeration { period_mode: CqPeriodMode::Unknown(3), ..at_first };
    assert!(cq.cq().moderate(&unknown).unwrap_err().to_string().contains("use StartFromEqe"));
    cq.cq().moderate(&CqModeration::default()).unwrap();
    assert_eq!(cq.cq().moderation().unwrap(), CqModeration::default());
    drop((cq, uar));
    card.end();
}

#[test]
fn a_sleeper_is_woken_though_events_are_held_back() {
    let card = Card::new();
    let moderation =
        CqModeration { period_mode: CqPeriodMode::StartFromCqe, ..CqModeration::new(3, Duration::from_micros(4095)) };
    let setup = Setup {
        cq: CqOptions::default().entries(63).events().moderation(moderation),
        qp: QpOptions::default().wqes(16, 16),
        ..Setup::default()
    };
    let (mut a, b) = pair_of(&card, &setup);
    for round in 0..20 {
        nops(&mut a, 3 * round..3 * round + round % 3 + 1);
        (3 * round..3 * round + round % 3 + 1).for_each(|id| {
            a.cq.wait(crate::ends::SOON).unwrap();
            assert_eq!(a.good().0, id);
        });
    }
    drop((a, b));
    card.end();
}
