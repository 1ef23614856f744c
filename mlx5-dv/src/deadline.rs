//! Deadlines of waits.

use std::time::Duration;

use crate::clock::Clock;

/// The end of a wait.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    clock: Clock,
    end: Option<Duration>,
}

impl Deadline {
    /// `timeout` from now; no deadline if that overflows the clock.
    pub(crate) fn after(clock: &Clock, timeout: Duration) -> Self {
        Deadline { clock: clock.clone(), end: clock.now().checked_add(timeout) }
    }

    /// Time left; `None` if there is no deadline.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_sub(self.clock.now()))
    }

    /// Whether the deadline has passed.
    pub(crate) fn has_passed(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}
