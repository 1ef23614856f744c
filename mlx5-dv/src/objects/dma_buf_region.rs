//! Memory of other devices.

use std::fmt;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::mkey::{AccessFlags, Mkey, SMALLEST};
use super::object::{DestroyError, destroy_sole};
use super::pd::Pd;
use super::umem::Umem;
use crate::error::{CommandError, Error, Invalid};
use crate::memory::{DataSegment, RemoteAddress};

/// Registered memory of a dma-buf: memory that another device or driver has, such as a GPU's, or that the kernel shares
/// by a descriptor. Work requests and remotes access it by key; this process does not reach it here.
///
/// Only over `devx:`: the kernel alone finds out where a dma-buf lies. It is pinned there while it is registered, so
/// neither the card nor the kernel needs on-demand paging; an exporter that cannot pin is refused. The descriptor may
/// be closed meanwhile. (`ibv_reg_dmabuf_mr`.)
pub struct DmaBufRegion {
    /// First field: destroyed before the umem.
    mkey: Mkey,
    umem: Umem,
    addr: u64,
    len: u64,
    access: AccessFlags,
    pd: Arc<Pd>,
}

impl fmt::Debug for DmaBufRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaBufRegion({} bytes at {:#x}, key {:#x})", self.len, self.addr, self.mkey.key())
    }
}

impl DmaBufRegion {
    /// Registers the bytes `range` of the dma-buf `file`. `addr` is the address of the first one for work requests and
    /// remotes; it has the same offset in a page of 4 KiB as `range`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range, another offset in a page, an invalid combination of access flags, a
    /// region larger than `log_max_mrw_sz`, or on a function that this process owns; [`Error::Memory`] where the kernel
    /// refuses: for a file that is no dma-buf, or a range beyond its end; [`Error::Command`].
    pub fn register<F: AsFd>(
        pd: &Arc<Pd>,
        file: F,
        range: Range<u64>,
        addr: u64,
        access: AccessFlags,
    ) -> Result<Arc<Self>, Error> {
        let len = range.end.saturating_sub(range.start);
        if len == 0 {
            return Err(Invalid::Empty { what: "a region of a dma-buf", lacks: "bytes" }.into());
        }
        let inside = |address: u64| address % SMALLEST as u64;
        let (given, needed) = (inside(addr), inside(range.start));
        if given != needed {
            let of = "the first byte of a region of a dma-buf";
            return Err(Invalid::out_of_range("offset in a page", given, needed..=needed, of).into());
        }
        if addr.checked_add(len - 1).is_none() {
            let limit = 0..=u64::MAX - (len - 1);
            let of = "the first byte of a region of a dma-buf";
            return Err(Invalid::out_of_range("address", addr, limit, of).into());
        }
        Mkey::check(pd, len, access)?;
        // The kernel maps whole pages of this machine's; the key begins inside of the first.
        let page = rustix::param::page_size() as u64;
        let first = range.start - range.start % page;
        let end = range.end.checked_next_multiple_of(page).unwrap_or(range.end);
        let umem = Umem::of_dma_buf(pd.device(), file.as_fd(), first..end, access.contains(AccessFlags::LOCAL_WRITE))?;
        let mkey = Mkey::of_umem(pd, (umem.id(), range.start - first), len, addr, access)?;
        Ok(Arc::new(DmaBufRegion { mkey, umem, addr, len, access, pd: Arc::clone(pd) }))
    }

    /// First address, for work requests and remotes.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the length is zero: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The access rights.
    pub fn access(&self) -> AccessFlags {
        self.access
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.mkey.key()
    }

    /// The key for the remote.
    pub fn rkey(&self) -> u32 {
        self.mkey.key()
    }

    /// Address and key of byte `offset`, for the remote.
    pub fn remote_at(&self, offset: u64) -> RemoteAddress {
        RemoteAddress { addr: self.addr.wrapping_add(offset), rkey: self.rkey() }
    }

    /// The bytes `range` as a scatter/gather element.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are outside the region, or 2 GiB and more.
    pub fn segment(&self, range: Range<u64>) -> Result<DataSegment, Error> {
        DataSegment::within(self.addr, self.len, self.lkey(), range, "a region of a dma-buf")
    }

    /// Deregisters the memory, which is the exporter's again. On an error the region stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, DmaBufRegion::deregister)
    }

    fn deregister(&mut self) -> Result<(), CommandError> {
        self.mkey.destroy()?;
        self.umem.destroy()
    }
}
