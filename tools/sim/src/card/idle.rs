//! How the device thread waits.

use std::time::{Duration, Instant};

/// Spins, then yields, then sleeps for increasing times. A message ends a sleep; a doorbell in mapped memory is only
/// seen at the end of the sleep.
///
/// If a processor is idle, yielding returns at once, while a sleep lets the processor halt, and waking it may take
/// longer than the sleep. But if other threads poll on every processor, a yield lasts until the next scheduler tick, 4
/// ms. So after one long yield, yielding is disabled for a while. The first sleeps are as short as possible, which
/// needs exact timers: [`exact_timers`].
#[derive(Debug)]
pub(super) struct Idle {
    since: Option<Instant>,
    sleep: Duration,
    /// Until when other threads are assumed to use every processor.
    crowded_until: Option<Instant>,
}

/// How long to spin after the last work.
const SPIN: Duration = Duration::from_micros(20);
/// How long after the last work to yield instead of sleeping.
const YIELD: Duration = Duration::from_micros(200);
/// A yield of this length waited for a polling thread.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// How long yielding is then disabled.
const CROWDED: Duration = Duration::from_millis(200);
const SHORTEST_SLEEP: Duration = Duration::from_micros(5);
/// Maximum sleep: about the longest time that a doorbell waits.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Makes the kernel end this thread's sleeps on time: by default it adds up to 50 us of timer slack.
pub(super) fn exact_timers() {
    if let Err(error) = nix::sys::prctl::set_timerslack(1) {
        tracing::debug!(%error, "the card's sleeps last longer than they should");
    }
}

impl Idle {
    pub(super) fn new() -> Self {
        Idle { since: None, sleep: SHORTEST_SLEEP, crowded_until: None }
    }

    /// Work was done.
    pub(super) fn busy(&mut self) {
        (self.since, self.sleep) = (None, SHORTEST_SLEEP);
    }

    /// No work was done at time `now`: waits, never past `deadline`.
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

    /// Yields, and measures how long that takes.
    fn offer(&mut self, now: Instant) {
        std::thread::yield_now();
        if now.elapsed() >= LONG_YIELD {
            self.crowded_until = Some(Instant::now() + CROWDED);
        }
    }
}
