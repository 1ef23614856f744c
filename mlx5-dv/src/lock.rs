//! Mutexes here guard no state that a panic leaves half changed, so one that was poisoned is taken all the same.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, whoever panicked with it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
