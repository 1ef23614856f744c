//! Arming a completion queue, and sleeping until an event.

use std::time::{Duration, Instant};

use mlx5_dv::Error;
use mlx5_dv::objects::CqOptions;
use mlx5_dv::queue::WrFlags;

use crate::ends::{Card, SOON, Setup, pair, pair_of};

fn with_events() -> Setup {
    Setup { cq: CqOptions::default().entries(63).events(), ..Setup::default() }
}

#[test]
fn a_sleeper_is_woken_by_each_message() {
    let card = Card::new();
    let (mut a, mut b) = pair_of(&card, &with_events());
    let theirs = card.region(4096);
    for round in 0..50u64 {
        b.receive(round, &theirs);
        let sleeper = std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| b.cq.wait(SOON));
            std::thread::sleep(Duration::from_micros(round % 5 * 300));
            let mut batch = a.sq.batch();
            batch.send_inline(round, WrFlags::SIGNALLED, b"wake up").unwrap();
            batch.ring();
            sleeper.join().unwrap()
        });
        sleeper.unwrap();
        assert_eq!((b.good().0, a.good().0), (round, round));
    }
    drop((a, b, theirs));
    card.end();
}

#[test]
fn a_wait_for_nothing_ends_in_time() {
    let card = Card::new();
    let (mut a, b) = pair_of(&card, &with_events());
    let begin = Instant::now();
    let error = a.cq.wait(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!((Duration::from_millis(30)..Duration::from_secs(5)).contains(&begin.elapsed()));
    // Events still work.
    let mut batch = a.sq.batch();
    batch.nop(1, WrFlags::SIGNALLED).unwrap();
    batch.ring();
    a.cq.wait(SOON).unwrap();
    assert_eq!(a.good().0, 1);
    drop((a, b));
    card.end();
}

#[test]
fn armed_for_solicited_completions_only_those_wake() {
    let card = Card::new();
    let (mut a, mut b) = pair_of(&card, &with_events());
    let theirs = card.region(4096);
    (0..2).for_each(|wr_id| b.receive(wr_id, &theirs));
    b.cq.arm(true).unwrap();
    let send = |a: &mut crate::ends::End, flags| {
        let mut batch = a.sq.batch();
        batch.send_inline(1, flags, b"?").unwrap();
        batch.ring();
        a.good();
    };
    let readable = |b: &crate::ends::End, timeout: Duration| {
        let fd = b.cq.fd().unwrap();
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let timeout =
            rustix::event::Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        rustix::event::poll(&mut fds, Some(&timeout)).unwrap() == 1
    };
    send(&mut a, WrFlags::SIGNALLED);
    assert!(!readable(&b, Duration::from_millis(30)), "not solicited");
    send(&mut a, WrFlags::SIGNALLED | WrFlags::SOLICITED);
    assert!(readable(&b, SOON));
    assert_eq!(b.cq.take_events(), 1);
    assert_eq!((b.good().0, b.good().0), (0, 1));
    drop((a, b, theirs));
    card.end();
}

#[test]
fn a_queue_without_events_cannot_be_slept_on() {
    let card = Card::new();
    let (mut a, b) = pair(&card);
    assert!(a.cq.fd().is_none());
    assert!(a.cq.wait(SOON).unwrap_err().to_string().contains("needs CqOptions::events"));
    drop((a, b));
    card.end();
}

#[test]
fn a_card_that_vanishes_ends_the_sleep() {
    let card = Card::new();
    let (mut a, b) = pair_of(&card, &with_events());
    let handle = card.sim.handle(0);
    let begin = Instant::now();
    let error = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| a.cq.wait(SOON).unwrap_err());
        std::thread::sleep(Duration::from_millis(20));
        handle.faults().inject(mlx5_sim::fault::Fault::SurpriseRemoval, mlx5_sim::fault::Times::Always);
        sleeper.join().unwrap()
    });
    assert!(error.is_dead(), "{error}");
    assert!(begin.elapsed() < SOON / 2, "at once, not at the deadline");
    drop((a, b));
}
