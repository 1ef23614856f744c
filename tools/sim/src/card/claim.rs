//! Who drives a function: one at a time.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock::lock;

/// Whether somebody drives the function.
#[derive(Debug, Default)]
pub(super) struct Driver {
    is_there: Mutex<bool>,
    gone: Condvar,
}

/// A driver's right to a function, until it is dropped: what a kernel has its drivers keep to, and a card does not. See
/// [`FunctionHandle::claim`](super::FunctionHandle::claim).
pub struct Claim(Arc<Driver>);

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Claim")
    }
}

impl Driver {
    /// Claims the function; `None` if another has it for all of `patience`.
    pub(super) fn claim(self: &Arc<Self>, patience: Duration) -> Option<Claim> {
        let taken = |is_there: &mut bool| *is_there;
        let waited = self.gone.wait_timeout_while(lock(&self.is_there), patience, taken);
        let (mut is_there, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!std::mem::replace(&mut *is_there, true)).then(|| Claim(Arc::clone(self)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        *lock(&self.0.is_there) = false;
        self.0.gone.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_and_the_next_gets_it_once_it_is_dropped() {
        let driver = Arc::new(Driver::default());
        let first = driver.claim(Duration::ZERO).unwrap();
        assert!(driver.claim(Duration::ZERO).is_none());
        assert!(driver.claim(Duration::from_millis(1)).is_none());
        let next = std::thread::spawn({
            let driver = Arc::clone(&driver);
            move || driver.claim(Duration::from_secs(600)).is_some()
        });
        drop(first);
        assert!(next.join().unwrap());
        assert!(driver.claim(Duration::ZERO).is_some());
    }
}
