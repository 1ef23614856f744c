//! Doorbells shared by several queues.

use alloc::sync::Arc;
use core::fmt;

use crate::barrier;
use crate::doorbell::{BlueFlame, SendDoorbell};
use crate::mmio::Wqebb;
use crate::sync::{AtomicBool, Ordering, UnsafeCell, spin_loop};

/// A doorbell for queues of several threads, under a spin lock that is held for one ring.
///
/// For more queues than BlueFlame registers. Two CPUs that write the same BlueFlame buffer at once corrupt each other's
/// WQEs; the lock prevents that. Clones use the same register.
pub struct Shared<D>(Arc<Inner<D>>);

struct Inner<D> {
    locked: AtomicBool,
    doorbell: UnsafeCell<D>,
}

// SAFETY: `doorbell` is accessed only between `lock` and the release of `locked`, by one thread at a time.
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

/// Releases the lock on drop, also when a ring panics.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // The ring must have left this CPU before another CPU can ring, or the later one could arrive first.
        barrier::flush_wc();
        self.0.store(false, Ordering::Release);
    }
}

impl<D: SendDoorbell> Inner<D> {
    #[inline(always)]
    fn locked(&self, mut ring: impl FnMut(&mut D)) {
        while !self.try_locked(&mut ring) {
            while self.locked.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
    }

    /// Calls `ring` if the lock is free; returns whether it did.
    #[inline(always)]
    fn try_locked(&self, ring: &mut impl FnMut(&mut D)) -> bool {
        if self.locked.swap(true, Ordering::Acquire) {
            return false;
        }
        let _held = Held(&self.locked);
        // SAFETY: our swap changed `locked` from false to true: until `_held` is dropped no other thread gets here.
        self.doorbell.with_mut(|doorbell| ring(unsafe { &mut *doorbell }));
        true
    }
}

impl Shared<BlueFlame> {
    /// As [`ring_with`](SendDoorbell::ring_with), by a call: see [`BlueFlame::call_with`].
    #[inline(always)]
    pub fn call_with(&mut self, control: u64, wqe: &[Wqebb]) {
        ring_out_of_line(&self.0, control, wqe);
    }
}

/// Rings once.
#[inline(never)]
fn ring_out_of_line(inner: &Inner<BlueFlame>, control: u64, wqe: &[Wqebb]) {
    inner.locked(|doorbell| doorbell.ring_with(control, wqe));
}

impl<D: SendDoorbell> SendDoorbell for Shared<D> {
    fn ring(&mut self, control: u64) {
        self.0.locked(|doorbell| doorbell.ring(control));
    }

    fn ring_with(&mut self, control: u64, wqe: &[Wqebb]) {
        self.0.locked(|doorbell| doorbell.ring_with(control, wqe));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use super::*;
    use core::hint;

    /// Panics when two rings overlap.
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

/// Checked by loom for all interleavings of two threads: `.ci/races`.
#[cfg(all(test, loom))]
mod models {
    use super::*;

    #[derive(Debug)]
    struct Counter(u32);

    impl SendDoorbell for Counter {
        fn ring(&mut self, _: u64) {
            self.0 += 1;
        }
    }

    /// loom fails if two threads are in the cell at once, or one does not see what the other did there before. Each
    /// tries once: a spinning thread of a model may spin forever.
    #[test]
    fn one_thread_rings_at_a_time_and_sees_the_others_rings() {
        loom::model(|| {
            let shared = Shared::new(Counter(0));
            let theirs = shared.clone();
            let ring = |shared: &Shared<Counter>| u32::from(shared.0.try_locked(&mut |counter| counter.ring(1)));
            let other = loom::thread::spawn(move || ring(&theirs));
            let ours = ring(&shared) + ring(&shared);
            let rings = ours + other.join().unwrap();
            assert!(rings >= 1);
            // SAFETY: the other thread has ended.
            shared.0.doorbell.with_mut(|counter| assert_eq!(unsafe { &*counter }.0, rings));
        });
    }

    /// A ring that panics releases the lock, so that the next thread gets it.
    #[test]
    fn a_ring_that_panics_keeps_nobody_out() {
        extern crate std;
        #[derive(Debug)]
        struct Panics(bool);
        impl SendDoorbell for Panics {
            fn ring(&mut self, _: u64) {
                assert!(core::mem::replace(&mut self.0, true), "the first ring");
            }
        }
        loom::model(|| {
            let shared = Shared::new(Panics(false));
            let mut ours = shared.clone();
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ours.ring(1)));
            assert!(panicked.is_err());
            let mut theirs = shared.clone();
            loom::thread::spawn(move || theirs.ring(2)).join().unwrap();
        });
    }
}
