//! When waits end.

use std::time::{Duration, Instant};

/// When a wait ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// `timeout` from now, or never where the clock does not go that far.
    pub(crate) fn after(timeout: Duration) -> Self {
        Deadline(Instant::now().checked_add(timeout))
    }

    /// How long it is until then; `None` for ever.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Whether it is past.
    pub(crate) fn has_passed(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}
