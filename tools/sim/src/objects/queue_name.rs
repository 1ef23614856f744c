//! How reports name a queue.

use std::fmt;

/// A queue as reports name it: what it is, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueName(pub(crate) &'static str, pub(crate) u32);

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x}", self.0, self.1)
    }
}
