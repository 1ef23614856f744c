//! When waits end.

use std::time::Duration;

use crate::clock::Clock;

/// When a wait ends.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    clock: Clock,
    end: Option<Duration>,
}

impl Deadline {
    /// `timeout` from now, or never where the clock does not go that far.
    pub(crate) fn after(clock: &Clock, timeout: Duration) -> Self {
        Deadline { clock: clock.clone(), end: clock.now().checked_add(timeout) }
    }

    /// How long it is until then; `None` for ever.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.end.map(|end| end.saturating_sub(self.clock.now()))
    }

    /// Whether it is past.
    pub(crate) fn has_passed(&self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}
