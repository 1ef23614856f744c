//! Memory windows.

use std::fmt;
use std::sync::Arc;

use mlx5_prm::ctx::Mkc;

use super::object::{DestroyError, destroy_sole};
use super::pd::Pd;
use super::umr_key::{UmrKey, UmrKeyOptions};
use crate::error::{CommandError, Error};

/// Who may use a window, and how it is closed. IBTA 10.6.7.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowType {
    /// All queue pairs of the protection domain. It may be bound again while it is bound.
    One,
    /// The queue pair that bound it (type 2B). It is bound when it is free only; the remote may invalidate it.
    Two,
}

/// A memory window: a key that a work request opens for a part of a region, with rights of its own, and another one
/// closes. To mlx5 that is a key for one part of another key, changed by UMR: PRM "Memory Window".
///
/// It does not hold memory: see [`SendBatch::bind_window`](crate::queue::SendBatch::bind_window), and
/// [`FastWindow`](crate::queue::FastWindow), which does.
pub struct MemoryWindow {
    key: UmrKey,
    kind: WindowType,
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryWindow({:#x}, type {:?})", self.key.key(0), self.kind)
    }
}

impl MemoryWindow {
    /// Creates a window of `pd`, bound to nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the card has no windows (`imaicl`); [`Error::Command`].
    pub fn alloc(pd: &Arc<Pd>, kind: WindowType) -> Result<Self, Error> {
        let options = UmrKeyOptions::default().entries(1).remote_invalidate(kind == WindowType::Two);
        Ok(MemoryWindow { key: UmrKey::create(pd, options)?, kind })
    }

    /// The key with the low eight bits `variant`.
    pub fn key(&self, variant: u8) -> u32 {
        self.key.key(variant)
    }

    /// Its type.
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        self.key.pd()
    }

    /// Asks the card for the context of its key, under PRM names: whether it is bound, and to which addresses. PRM
    /// "QUERY_MKEY". Errors: [`Error::Command`].
    pub fn query(&self) -> Result<Mkc, Error> {
        self.key.query()
    }

    /// The key behind it.
    pub(crate) fn umr_key(&self) -> &UmrKey {
        &self.key
    }

    /// Destroys the window, bound or not. Afterwards it opens nothing. On an error it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, MemoryWindow::end)
    }

    /// The key behind it; this value then destroys nothing.
    pub(crate) fn take_key(&mut self) -> UmrKey {
        self.key.take()
    }

    /// As [`destroy`](Self::destroy), for the only owner.
    pub(crate) fn end(&mut self) -> Result<(), CommandError> {
        self.key.end()
    }
}
