//! The one queue that may post to a ring.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use super::ring::RingMemory;
use crate::error::Error;

/// A queue that nobody has had since the last reset: its indices are the card's.
const FRESH: u8 = 0;
/// A queue that someone has.
const OUT: u8 = 1;
/// A queue that someone had: the card's indices are known to nobody.
const USED: u8 = 2;

/// Lets a queue out, once between two resets.
#[derive(Debug, Default)]
pub(super) struct Outlet(AtomicU8);

/// Where a ring and its doorbell record are, and that nobody else posts there: only [`Outlet::take`] makes one, once between
/// two resets. Mapped as long as the object lives whose ring it is.
pub(crate) struct RingPermit {
    ring: NonNull<u8>,
    record: NonNull<u8>,
}

/// An object that lets its send ring out to a queue.
pub trait LetsSendRing {
    /// The queue is gone.
    fn send_queue_came_home(&self);
}

/// An object that lets its receive ring out to a queue.
pub trait LetsReceiveRing {
    /// The queue is gone.
    fn receive_queue_came_home(&self);
}

impl RingPermit {
    /// The ring and the record.
    pub(crate) fn use_up(self) -> (NonNull<u8>, NonNull<u8>) {
        (self.ring, self.record)
    }
}

impl Outlet {
    /// The permit to post to the ring at `offset` in `memory`; `queue` is what goes out, for the message. Errors:
    /// [`Error::Invalid`] where someone has it, or had it.
    pub(super) fn take(&self, memory: &RingMemory, offset: usize, queue: &str) -> Result<RingPermit, Error> {
        let (ring, record) = (memory.at(offset)?, memory.record()?);
        match self.0.compare_exchange(FRESH, OUT, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(RingPermit { ring, record }),
            Err(_) => Err(Error::Invalid(format!("the {queue} has been given out already: reset it first"))),
        }
    }

    /// The queue is gone.
    pub(super) fn came_home(&self) {
        self.0.store(USED, Ordering::Release);
    }

    /// `Ok` where nobody has the `queue` of `object`.
    pub(super) fn is_home(&self, object: &str, queue: &str) -> Result<(), Error> {
        match self.0.load(Ordering::Acquire) {
            OUT => Err(Error::Invalid(format!("{object} cannot be reset while its {queue} is out: drop it first"))),
            _ => Ok(()),
        }
    }

    /// The indices are the card's again: after a reset.
    pub(super) fn refresh(&self) {
        self.0.store(FRESH, Ordering::Release);
    }
}
