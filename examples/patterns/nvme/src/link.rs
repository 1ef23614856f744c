//! What both ends have of a connection: how it is told that the other side has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by a queue and by who runs the connection manager, perhaps on another thread.
#[derive(Debug, Default)]
pub(crate) struct Link {
    ended: AtomicBool,
    closed: AtomicBool,
}

impl Link {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The other side has disconnected.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the other side has disconnected.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// This side has no use for the connection any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
