//! Regions of all addresses.

use std::fmt;
use std::sync::Arc;

use super::mkey::Mkey;
use super::object::{DestroyError, destroy_sole};
use super::pd::Pd;
use crate::error::Error;

/// All memory of this process, on demand, under one key: implicit on-demand paging. (`ibv_reg_mr` of `SIZE_MAX` bytes
/// at NULL with `IBV_ACCESS_ON_DEMAND`.)
///
/// Memory becomes a region of it without a command to the card
/// ([`MemoryRegion::register_in`](super::MemoryRegion::register_in)): it costs the same for one buffer and for a
/// million. Its key is for this process's own work requests. A key for all memory is nothing to give to a remote:
/// register what a remote is to reach with
/// [`MemoryRegion::register_on_demand`](super::MemoryRegion::register_on_demand).
pub struct ImplicitRegion {
    mkey: Mkey,
    pd: Arc<Pd>,
}

impl fmt::Debug for ImplicitRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImplicitRegion(key {:#x})", self.mkey.key())
    }
}

impl ImplicitRegion {
    /// Registers all addresses.
    ///
    /// # Errors
    /// [`Error::Invalid`] on a function that this process owns, where nobody answers page faults;
    /// [`Error::Unsupported`] names the missing capability: `pg`, `mem_page_fault`, `fixed_buffer_size`, `null_mkey` or
    /// `umr_extended_translation_offset`.
    pub fn register(pd: &Arc<Pd>) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(ImplicitRegion { mkey: Mkey::of_all_addresses(pd)?, pd: Arc::clone(pd) }))
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.mkey.key()
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Deregisters it. On an error, or while there are regions of it, it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |region| region.mkey.destroy())
    }
}

impl Drop for ImplicitRegion {
    fn drop(&mut self) {
        if let Err(error) = self.mkey.destroy() {
            tracing::error!(%error, "a region of all addresses was not deregistered");
        }
    }
}
