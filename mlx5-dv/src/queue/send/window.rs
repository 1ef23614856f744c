//! Work requests that bind memory windows, and unbind them: UMRs of their keys.

use mlx5_prm::wqe::{UmrCheck, WqeOpcode};
use uar::SendDoorbell;

use super::SendBatch;
use super::service::KeyChanging;
use super::umr::{Change, Registration, Scope};
use super::wqe::{Request, WrFlags};
use crate::memory::RemoteAddress;
use crate::objects::{MemoryWindow, WindowType};
use crate::queue::error::PostError;

impl<D: SendDoorbell, S: KeyChanging> SendBatch<'_, D, S> {
    /// BIND_MW: opens memory by `window`, with rights of its own. Returns the address of its first byte for the remote.
    ///
    /// `binding` has one part: bytes of a region, by its local key. Its `start` is the address of the first byte for
    /// remotes: that of the part, as in verbs, or 0 for a zero-based window. The part's key must allow local writing if
    /// `access` allows a remote any.
    ///
    /// A window of type 1 may be bound already: its old key and memory are refused from then on. One of type 2 must be
    /// free; it is this queue pair's alone. Otherwise the work request fails, and the queue pair moves to ERR. Order
    /// and fences are as for [`register`](Self::register). Errors: [`PostError`].
    ///
    /// # Safety
    /// As for [`register`](Self::register): until the window is unbound, bound to something else by a work request that
    /// is complete, or destroyed.
    pub unsafe fn bind_window(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        window: &MemoryWindow,
        binding: &Registration<'_>,
    ) -> Result<RemoteAddress, PostError> {
        let scope = match window.kind() {
            WindowType::One => Scope { only: None, check: UmrCheck::None },
            WindowType::Two => Scope::new(Some(self.ring.qpn)),
        };
        self.change_key(wr_id, flags, window.umr_key(), binding, scope)
    }

    /// Unbinds `window`, whose key has the low eight bits `variant`: by a LOCAL_INV for type 2, which fails unless it
    /// is bound on this queue pair; for type 1, which verbs bind to length 0, by the same. Otherwise as
    /// [`local_invalidate`](Self::local_invalidate). Errors: [`PostError`].
    pub fn unbind_window(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        window: &MemoryWindow,
        variant: u8,
    ) -> Result<(), PostError> {
        let change = match window.kind() {
            WindowType::One => Change::free(variant),
            WindowType::Two => Change::free_own(variant),
        };
        self.post_free(Request { opcode: WqeOpcode::Umr, wr_id, flags, imm: window.key(variant) }, change)
    }
}
