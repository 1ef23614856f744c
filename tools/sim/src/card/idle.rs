//! What the device thread does when there is nothing to do.

use std::time::{Duration, Instant};

/// Spins, then yields, then sleeps longer and longer. A message ends the sleep; a doorbell, which is a store, is seen
/// when the sleep ends.
///
/// On a machine with a processor to spare a yield is over at once, where a sleep lets the processor halt, and to wake
/// it up may take longer than the sleep. But where others poll on every processor, a thread that yields waits for a
/// tick of the scheduler, 4 ms, while one that wakes up soon runs. So a yield that took long is the last for a time.
/// The sleeps are as short as can be at first, for which this thread wants timers that are exact ([`exact_timers`]).
#[derive(Debug)]
pub(super) struct Idle {
    since: Option<Instant>,
    sleep: Duration,
    /// Until when others are taken to want every processor.
    crowded_until: Option<Instant>,
}

/// How long to spin after the last work.
const SPIN: Duration = Duration::from_micros(20);
/// How long after the last work to offer the processor to others instead of sleeping.
const YIELD: Duration = Duration::from_micros(200);
/// A yield that took so long waited for somebody who polls.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// For how long nothing is yielded then: a tick waited for now and then is a small part of it.
const CROWDED: Duration = Duration::from_millis(200);
const SHORTEST_SLEEP: Duration = Duration::from_micros(5);
/// A doorbell waits at most about that long.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Has the kernel end this thread's sleeps on time. By itself it lets each last 50 us longer, to end several at once.
pub(super) fn exact_timers() {
    if let Err(error) = nix::sys::prctl::set_timerslack(1) {
        tracing::debug!(%error, "the card's sleeps last longer than they should");
    }
}

impl Idle {
    pub(super) fn new() -> Self {
        Idle { since: None, sleep: SHORTEST_SLEEP, crowded_until: None }
    }

    /// There was work to do.
    pub(super) fn busy(&mut self) {
        (self.since, self.sleep) = (None, SHORTEST_SLEEP);
    }

    /// There was none, `now`: pauses, never past `deadline`.
    pub(super) fn pause(&mut self, now: Instant, deadline: Option<Instant>) {
        let idle = now.saturating_duration_since(*self.since.get_or_insert(now));
        if idle < SPIN {
            std::hint::spin_loop();
        } else if idle < YIELD && self.crowded_until.is_none_or(|end| end <= now) {
            self.offer(now);
        } else {
            let left = deadline.map_or(LONGEST_SLEEP, |deadline| deadline.saturating_duration_since(now));
            std::thread::park_timeout(self.sleep.min(left));
            self.sleep = (self.sleep * 2).min(LONGEST_SLEEP);
        }
    }

    /// Yields, and sees how long that takes.
    fn offer(&mut self, now: Instant) {
        std::thread::yield_now();
        if now.elapsed() >= LONG_YIELD {
            self.crowded_until = Some(Instant::now() + CROWDED);
        }
    }
}
