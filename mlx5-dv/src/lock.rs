//! Synchronisation primitives: the standard library's, or loom's in a model (`--cfg loom`). Mutexes here guard no state
//! that a panic leaves half changed, so poisoning is ignored.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
};
#[cfg(loom)]
pub(crate) use model::OnceLock;

/// Locks `mutex`, even if it is poisoned.
#[cfg(not(loom))]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// As above; a model has mutexes of both kinds.
#[cfg(loom)]
pub(crate) fn lock<M: model::Lock + ?Sized>(mutex: &M) -> M::Guard<'_> {
    mutex.locked()
}

#[cfg(loom)]
mod model {
    use std::sync::PoisonError;

    use loom::sync::atomic::{AtomicBool, Ordering};

    /// A mutex of the standard library or of loom.
    pub(crate) trait Lock {
        type Guard<'a>
        where
            Self: 'a;

        fn locked(&self) -> Self::Guard<'_>;
    }

    impl<T: ?Sized> Lock for std::sync::Mutex<T> {
        type Guard<'a>
            = std::sync::MutexGuard<'a, T>
        where
            T: 'a;

        fn locked(&self) -> Self::Guard<'_> {
            self.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T> Lock for loom::sync::Mutex<T> {
        type Guard<'a>
            = loom::sync::MutexGuard<'a, T>
        where
            T: 'a;

        fn locked(&self) -> Self::Guard<'_> {
            self.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<M: Lock> Lock for std::sync::Arc<M> {
        type Guard<'a>
            = M::Guard<'a>
        where
            M: 'a;

        fn locked(&self) -> Self::Guard<'_> {
            M::locked(self)
        }
    }

    /// The standard library's OnceLock, which loom lacks, with a loom atomic for the presence of the value.
    pub(crate) struct OnceLock<T> {
        set: AtomicBool,
        value: std::sync::OnceLock<T>,
    }

    impl<T> Default for OnceLock<T> {
        fn default() -> Self {
            OnceLock { set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
        }
    }

    impl<T> OnceLock<T> {
        pub(crate) fn get(&self) -> Option<&T> {
            if self.set.load(Ordering::Acquire) { self.value.get() } else { None }
        }

        pub(crate) fn set(&self, value: T) -> Result<(), T> {
            self.value.set(value)?;
            self.set.store(true, Ordering::Release);
            Ok(())
        }
    }
}
