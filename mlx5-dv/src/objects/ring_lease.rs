//! Leases of rings: one queue may post to a ring between two resets.

use std::ptr::NonNull;

use super::ring::RingMemory;
use crate::error::{Error, Invalid};
use crate::lock::{AtomicU8, Ordering};

/// Not leased since the last reset: indices of driver and card agree.
const FRESH: u8 = 0;
/// Leased.
const OUT: u8 = 1;
/// Was leased: the driver no longer knows the card's indices.
const USED: u8 = 2;

/// Hands out the only right to post to a ring; reset before taking another.
///
/// [`take`](Self::take), and [`check_released`](Self::check_released) with [`renew`](Self::renew), are called under the
/// lock of the object's state: between the two of a reset nobody takes the ring. [`release`](Self::release) is not: a
/// queue is dropped by any thread.
#[derive(Debug, Default)]
pub(super) struct RingLease(AtomicU8);

/// The exclusive right to post to a ring, with the addresses of ring and doorbell record. Only [`RingLease::take`]
/// creates it, once between two resets. The memory is mapped as long as the ring's object lives.
pub(crate) struct RingPermit {
    ring: NonNull<u8>,
    record: NonNull<u8>,
}

/// An object that leases its send ring to a queue.
pub trait SendRingOwner {
    /// The queue was dropped.
    fn release_send_ring(&self);
}

/// An object that leases its receive ring to a queue.
pub trait ReceiveRingOwner {
    /// The queue was dropped.
    fn release_receive_ring(&self);

    /// Whether completions of receives are of this queue that carry a flow tag in place of its number.
    fn takes_tags(&self) -> bool {
        false
    }
}

impl RingPermit {
    /// Addresses of ring and record.
    pub(crate) fn into_parts(self) -> (NonNull<u8>, NonNull<u8>) {
        (self.ring, self.record)
    }
}

impl RingLease {
    /// Leases the ring at `offset` in `memory`; `queue` names the lessee in errors. Errors: [`Error::Invalid`] if it is
    /// leased, or was.
    pub(super) fn take(
        &self,
        memory: &RingMemory,
        offset: usize,
        object: &str,
        queue: &'static str,
    ) -> Result<RingPermit, Error> {
        let (ring, record) = (memory.at(offset)?, memory.record()?);
        if !self.claim() {
            return Err(Invalid::QueueTaken { object: object.into(), queue }.into());
        }
        Ok(RingPermit { ring, record })
    }

    /// Takes the ring, if nobody has had it since the last reset.
    fn claim(&self) -> bool {
        self.0.compare_exchange(FRESH, OUT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The queue was dropped.
    pub(super) fn release(&self) {
        self.0.store(USED, Ordering::Release);
    }

    /// `Ok` if the `queue` of `object` is not leased.
    pub(super) fn check_released(&self, object: &str, queue: &'static str) -> Result<(), Invalid> {
        match self.0.load(Ordering::Acquire) {
            OUT => Err(Invalid::QueueInUse { object: object.into(), queue }),
            _ => Ok(()),
        }
    }

    /// After a reset: the indices agree again.
    pub(super) fn renew(&self) {
        self.0.store(FRESH, Ordering::Release);
    }
}

/// Limits of a send queue, from its options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendLimits {
    /// Scatter/gather elements per work request.
    pub sges: u16,
    /// Bytes of inline data per work request.
    pub inline_bytes: u16,
    /// Log of the longest message in bytes.
    pub log_max_msg: u8,
}

/// The exclusive right to post to a send ring, with its addresses. A queue pair creates it, once between two resets.
/// The memory is mapped as long as the queue pair lives; `log_size` is at most 15.
pub(crate) struct SendPermit(pub(super) SendRingParts);

/// See [`SendPermit`].
pub(crate) struct SendRingParts {
    pub(crate) ring: NonNull<u8>,
    pub(crate) record: NonNull<u8>,
    pub(crate) log_size: u32,
    pub(crate) limits: SendLimits,
}

impl SendPermit {
    pub(crate) fn into_parts(self) -> SendRingParts {
        self.0
    }
}

/// As [`SendPermit`], for the receive ring, from a queue pair.
pub(crate) struct ReceivePermit(pub(super) ReceiveRingParts);

/// See [`ReceivePermit`].
pub(crate) struct ReceiveRingParts {
    pub(crate) ring: NonNull<u8>,
    pub(crate) record: NonNull<u8>,
    pub(crate) log_size: u32,
    pub(crate) log_stride: u32,
    pub(crate) sges: u16,
}

impl ReceivePermit {
    pub(crate) fn into_parts(self) -> ReceiveRingParts {
        self.0
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::sync::atomic::AtomicU32;
    use loom::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::lock::{Mutex, lock};

    /// A ring with its lease, as an object has it. Posts to the ring are counted by a relaxed load and a store: one is
    /// lost where two threads are in the ring at once, or one does not see what the last one stored.
    #[derive(Default)]
    struct Leased {
        state: Mutex<()>,
        lease: RingLease,
        ring: AtomicU32,
    }

    impl Leased {
        /// Creates a queue, posts once and drops it, if the ring is available.
        fn post(&self) -> bool {
            let state = lock(&self.state);
            let claimed = self.lease.claim();
            drop(state);
            if claimed {
                self.ring.store(self.ring.load(Relaxed) + 1, Relaxed);
                self.lease.release();
            }
            claimed
        }

        /// Refused while the ring is out.
        fn reset(&self) -> Result<(), Invalid> {
            let _state = lock(&self.state);
            self.lease.check_released("QP 1", "SendQueue")?;
            self.lease.renew();
            Ok(())
        }
    }

    #[test]
    fn one_of_two_threads_has_the_ring_between_two_resets() {
        loom::model(|| {
            let ours = Arc::new(Leased::default());
            let theirs = Arc::clone(&ours);
            let other = loom::thread::spawn(move || theirs.post());
            let posted = u32::from(ours.post()) + u32::from(other.join().unwrap());
            assert_eq!(posted, 1);
        });
    }

    #[test]
    fn whoever_has_the_ring_after_a_reset_sees_what_was_posted_before() {
        loom::model(|| {
            let ours = Arc::new(Leased::default());
            let theirs = Arc::clone(&ours);
            let other = loom::thread::spawn(move || theirs.post());
            let again = ours.reset().is_ok() && ours.post();
            let posted = u32::from(again) + u32::from(other.join().unwrap());
            assert_eq!(ours.ring.load(Relaxed), posted);
        });
    }
}
