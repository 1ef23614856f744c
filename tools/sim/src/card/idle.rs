//! What the device thread does when there is nothing to do.

use std::time::{Duration, Instant};

/// Spins, then sleeps longer and longer. A message ends the sleep; a doorbell, which is a store, is seen when the sleep ends.
///
/// It never yields: where clients poll on every processor, a thread that yields waits for a tick of the scheduler, 4 ms, while
/// one that wakes up soon runs. So it sleeps as short as can be at first, for which its thread wants timers that are exact
/// ([`exact_timers`]).
#[derive(Debug)]
pub(super) struct Idle {
    since: Option<Instant>,
    sleep: Duration,
}

/// How long to spin after the last work.
const SPIN: Duration = Duration::from_micros(20);
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
        Idle { since: None, sleep: SHORTEST_SLEEP }
    }

    /// There was work to do.
    pub(super) fn busy(&mut self) {
        *self = Idle::new();
    }

    /// There was none, `now`: pauses, never past `deadline`.
    pub(super) fn pause(&mut self, now: Instant, deadline: Option<Instant>) {
        let idle = now.saturating_duration_since(*self.since.get_or_insert(now));
        if idle < SPIN {
            std::hint::spin_loop();
        } else {
            let left = deadline.map_or(LONGEST_SLEEP, |deadline| deadline.saturating_duration_since(now));
            std::thread::park_timeout(self.sleep.min(left));
            self.sleep = (self.sleep * 2).min(LONGEST_SLEEP);
        }
    }
}
