//! The null memory region.

use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::QuerySpecialContextsIn;

use crate::caps::CapPage;
use crate::device::Device;
use crate::error::Error;
use crate::memory::DataSegment;

/// Memory that is none, for local work requests: what is written there is discarded, reads find zeros. With it a
/// scatter list leaves out parts of a message, and a gather list fills gaps. PRM `dump_fill_mkey`.
///
/// The card has it for all protection domains. No remote can use it, and atomics on it fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullRegion {
    lkey: u32,
}

impl NullRegion {
    /// The null region of the card.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the card, or the kernel that has it, offers none (`dump_fill_mkey`);
    /// [`Error::Command`].
    pub fn of(device: &Arc<Device>) -> Result<Self, Error> {
        let general: CmdHcaCap = device.caps().current(CapPage::General).unwrap_or_default();
        let access = device.access();
        let lkey = match general.dump_fill_mkey() {
            false => None,
            // On DevX the kernel has told it; it does not pass on the query.
            true if !access.knows_addresses() => access.null_key(),
            true => Some(access.run(&QuerySpecialContextsIn::default(), "")?.dump_fill_mkey()),
        };
        let what = || "the null memory region".into();
        let lkey = lkey.ok_or_else(|| Error::Unsupported { what: what(), capability: "dump_fill_mkey" })?;
        Ok(NullRegion { lkey })
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// `len` bytes as a scatter/gather element.
    pub fn segment(&self, len: u32) -> DataSegment {
        DataSegment { addr: 0, len, lkey: self.lkey }
    }
}
