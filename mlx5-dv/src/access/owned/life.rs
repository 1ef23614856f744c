//! Whether the card lives. Everything that waits for it asks here, and is woken from here when it dies.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::error::Death;

/// Something that has waiters to wake when the card dies.
pub trait Wake: Send + Sync {
    /// Wakes every waiter; each will ask [`Life::death`].
    fn wake(&self);
}

/// The card's life, shared by all that talk to it. A death is final: the first one known stays.
#[derive(Default)]
pub struct Life {
    death: OnceLock<Death>,
    waiters: Mutex<Vec<Weak<dyn Wake>>>,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life").field("death", &self.death.get()).finish_non_exhaustive()
    }
}

impl Life {
    /// A card that lives.
    pub fn new() -> Arc<Self> {
        Arc::new(Life::default())
    }

    /// Why the card is dead; `None` while it lives.
    pub fn death(&self) -> Option<Death> {
        self.death.get().cloned()
    }

    /// Error if the card is dead.
    pub fn check(&self) -> Result<(), Death> {
        self.death().map_or(Ok(()), Err)
    }

    /// Wakes `waiter` when the card dies.
    pub fn watch(&self, waiter: Weak<dyn Wake>) {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.retain(|waiter| waiter.strong_count() > 0);
        waiters.push(waiter);
    }

    /// The card died of `death`. Wakes every waiter, once.
    pub fn end(&self, death: Death) {
        if self.death.set(death.clone()).is_err() {
            return;
        }
        tracing::error!(%death, "card is dead");
        self.wake_all();
    }

    fn wake_all(&self) {
        // Not called under the lock: a waiter may well ask for a new watch.
        let waiters = std::mem::take(&mut *self.waiters.lock().unwrap_or_else(PoisonError::into_inner));
        for waiter in waiters.iter().filter_map(Weak::upgrade) {
            waiter.wake();
        }
    }

    /// The device was closed on purpose. Wakes every waiter.
    pub fn close(&self) {
        if self.death.set(Death::Closed).is_ok() {
            self.wake_all();
        }
    }

    /// A register or memory access failed with `error`: the way to the card is broken.
    pub fn broken(&self, error: &io::Error) -> Death {
        self.end(Death::ServerGone { reason: error.to_string() });
        self.death.get().cloned().unwrap_or(Death::Closed)
    }
}
