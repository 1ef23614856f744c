//! A doorbell for several queues.

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::fmt;
use core::hint;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::barrier;
use crate::doorbell::SendDoorbell;
use crate::mmio::Wqebb;

/// A doorbell that queues of several threads ring in turn, under a spin lock held for one ring.
///
/// For when there are more queues than BlueFlame registers. Two processors that write one BlueFlame buffer at once corrupt
/// each other's WQEs; the lock is what keeps that from happening. Clones ring the same register.
pub struct Shared<D>(Arc<Inner<D>>);

struct Inner<D> {
    locked: AtomicBool,
    doorbell: UnsafeCell<D>,
}

// SAFETY: `doorbell` is only touched between `lock` and the release of `locked`, by one thread at a time.
unsafe impl<D: Send> Sync for Inner<D> {}

impl<D> Shared<D> {
    /// Shares `doorbell`.
    pub fn new(doorbell: D) -> Self {
        Shared(Arc::new(Inner { locked: AtomicBool::new(false), doorbell: UnsafeCell::new(doorbell) }))
    }
}

impl<D> Clone for Shared<D> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<D> fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} queues)", Arc::strong_count(&self.0))
    }
}

/// Gives the lock up on drop, also when a ring panics.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // The ring must have left this processor before another's can be made, or the later could arrive first.
        barrier::flush_wc();
        self.0.store(false, Ordering::Release);
    }
}

impl<D: SendDoorbell> Inner<D> {
    fn locked(&self, ring: impl FnOnce(&mut D)) {
        while self.locked.swap(true, Ordering::Acquire) {
            while self.locked.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
        }
        let _held = Held(&self.locked);
        // SAFETY: `locked` went from false to true by our own swap: until `_held` is dropped no other thread gets here.
        ring(unsafe { &mut *self.doorbell.get() });
    }
}

impl<D: SendDoorbell> SendDoorbell for Shared<D> {
    fn ring(&mut self, control: u64) {
        self.0.locked(|doorbell| doorbell.ring(control));
    }

    fn ring_with(&mut self, control: u64, wqe: &[Wqebb]) {
        self.0.locked(|doorbell| doorbell.ring_with(control, wqe));
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    /// Notices when two rings overlap.
    #[derive(Debug, Default)]
    struct Witness {
        rings: u32,
        inside: bool,
    }

    impl SendDoorbell for Witness {
        fn ring(&mut self, _: u64) {
            assert!(!self.inside, "two rings at once");
            self.inside = true;
            for _ in 0..50 {
                hint::spin_loop();
            }
            self.inside = false;
            self.rings += 1;
        }
    }

    #[test]
    fn rings_of_several_threads_never_overlap_and_none_is_lost() {
        let shared = Shared::new(Witness::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut mine = shared.clone();
                scope.spawn(move || (0..1000).for_each(|i| mine.ring(i)));
            }
        });
        let mut rings = 0;
        shared.0.locked(|witness| rings = witness.rings);
        assert_eq!(rings, 4000);
    }
}
