//! What queues keep of the work requests that are in flight.

use std::fmt;

use crate::objects::Buffer;

/// Buffers of work requests in flight.
pub(super) trait Buffers {
    /// Names a work request.
    type Ticket: fmt::Debug;

    /// Maximum number of buffers of work requests that complete with another.
    fn most_together(&self) -> usize;

    /// Whether the card may still use memory of theirs. `are_busy`: a work request is in flight in their queues.
    fn may_be_used(&mut self, are_busy: bool) -> bool;

    /// Returns all buffers, once the card no longer uses them: nothing is in flight afterwards.
    fn take_all(&mut self) -> Vec<Buffer>;

    /// Leaks all memory on purpose: the card may still write it.
    fn leak(&mut self);
}
