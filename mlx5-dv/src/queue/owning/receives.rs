//! Buffers posted to a shared receive queue.

use std::sync::Arc;

use crate::objects::Srq;
use crate::queue::owning::in_flight::InFlight;

/// The buffers of posted receives; owned until the shared receive queue is destroyed.
#[derive(Debug)]
pub(super) struct Receives {
    pub(super) in_flight: InFlight,
    pub(super) srq: Arc<Srq>,
}

impl Drop for Receives {
    fn drop(&mut self) {
        let ended = Arc::get_mut(&mut self.srq).is_some_and(|srq| srq.end().is_ok());
        if !ended {
            tracing::error!("a shared receive queue was not destroyed; its buffers are leaked");
            self.in_flight.leak();
        }
    }
}
