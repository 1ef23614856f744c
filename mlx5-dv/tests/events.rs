//! Asynchronous events as typed values, and the descriptor that tells of them.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mlx5_dv::objects::Pd;
use mlx5_dv::queue::{Hub, HubOptions};
use mlx5_dv::{Error, Event, EventQueue, Events};
use mlx5_open::Sim;
use mlx5_prm::eqe::EventQueueType;
use mlx5_sim::fault::{Fault, Times};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const SOON: Duration = Duration::from_secs(20);

/// Whether the descriptor is readable within `limit`.
fn is_readable(events: &Events, limit: Duration) -> bool {
    let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let fd = events.as_fd();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

#[test]
fn the_descriptor_is_readable_while_there_are_events() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let (events, late) = (device.events().unwrap(), device.events().unwrap());
    let mut hub: Hub<()> = Hub::new(&pd, HubOptions::default()).unwrap();
    let ids = [hub.join(()).unwrap(), hub.join(()).unwrap()];
    let [a, b] = ids.map(|id| hub.local(id).unwrap());
    hub.connect(ids[0], &b).unwrap();
    hub.connect(ids[1], &a).unwrap();
    assert!(!is_readable(&events, Duration::ZERO) && events.poll().unwrap().is_none());
    // Both queue pairs say, on their way to reset, that they take no more receives.
    for id in ids {
        hub.leave(id).unwrap();
    }
    for number in [a.qpn, b.qpn] {
        assert!(is_readable(&events, SOON));
        let last = EventQueue { kind: EventQueueType::Qp, number };
        assert_eq!(events.wait(SOON).unwrap(), Event::LastWqeReached(last));
    }
    assert_eq!(events.poll().unwrap(), None);
    assert!(!is_readable(&events, Duration::ZERO), "all were read");
    // Another listener has its own.
    let all: Vec<_> = std::iter::from_fn(|| late.poll().unwrap()).collect();
    assert_eq!(all.len(), 2);
    let error = events.wait(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn a_dead_card_keeps_the_descriptor_readable_and_ends_each_wait() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    let events = device.events().unwrap();
    sim.handle(0).faults().inject(Fault::SurpriseRemoval, Times::Always);
    let begin = Instant::now();
    assert!(is_readable(&events, SOON), "waits for nothing");
    for _ in 0..3 {
        assert!(events.poll().unwrap_err().is_dead());
        assert!(events.wait(SOON).unwrap_err().is_dead() && is_readable(&events, Duration::ZERO));
    }
    let late = device.events().unwrap();
    assert!(is_readable(&late, Duration::ZERO) && late.wait(SOON).unwrap_err().is_dead());
    assert!(begin.elapsed() < SOON);
}
