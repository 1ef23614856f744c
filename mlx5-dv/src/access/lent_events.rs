//! The interface to an event queue that a thread of the user's own reads.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

use crate::error::Error;

/// An event queue that its holder alone reads. Dropping it gives it back.
pub trait LentEvents: Send + Debug {
    /// The number of the CQ that the next event is about; `None` if there is none.
    fn next_completion(&mut self) -> Result<Option<u32>, Error>;
    /// Requests an interrupt for the next event.
    fn arm(&mut self) -> Result<(), Error>;
    /// Events that it can hold.
    fn capacity(&self) -> usize;
    /// The eventfd of its interrupt, which a card that dies signals, too.
    fn interrupt(&self) -> Option<BorrowedFd<'_>>;
}
