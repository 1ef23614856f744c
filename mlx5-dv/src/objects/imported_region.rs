//! Memory regions of other processes.

use std::ops::Range;
use std::sync::Arc;

use super::kernel_object::{DeviceMemoryRegionHandle, RegionHandle, shared};
use super::pd::Pd;
use crate::access::{KernelRegion, ObjectHandle};
use crate::error::Error;
use crate::memory::{DataSegment, RemoteAddress};

/// A memory region of another process that shares the context: its keys, for work requests of this process's queue
/// pairs. The bytes are the other process's; here they are reached by work requests alone.
///
/// Dropping it leaves the region as it is. Its owner can deregister it at any time: work requests that name it fail
/// from then on, and never reach what the memory is used for next. (`ibv_import_mr`, `ibv_unimport_mr`.)
#[derive(Debug)]
pub struct ImportedRegion {
    region: KernelRegion,
    pd: Arc<Pd>,
}

impl ImportedRegion {
    /// Imports the region of `handle`, which its owner registered in `pd`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a handle that is no region of this context, or on a function that this process owns.
    pub fn import(pd: &Arc<Pd>, handle: RegionHandle) -> Result<Self, Error> {
        let region = query(pd, handle.0)?;
        Self::of(pd, region)
    }

    /// As [`import`](Self::import), a region of memory on the card. Its addresses count from 0.
    ///
    /// # Errors
    /// As for [`import`](Self::import).
    pub fn import_device_memory(pd: &Arc<Pd>, handle: DeviceMemoryRegionHandle) -> Result<Self, Error> {
        let region = query(pd, handle.0)?;
        // The kernel tells where in the BAR it is. The key counts from 0.
        Self::of(pd, KernelRegion { addr: 0, ..region })
    }

    fn of(pd: &Arc<Pd>, region: KernelRegion) -> Result<Self, Error> {
        if region.addr.checked_add(region.len).is_none() {
            let given = region.addr;
            return Err(Error::response("iova", given, Some(0..=u64::MAX - region.len), "a region of the kernel's"));
        }
        Ok(ImportedRegion { region, pd: Arc::clone(pd) })
    }

    /// First address of its keys.
    pub fn addr(&self) -> u64 {
        self.region.addr
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.region.len
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.region.len == 0
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.region.lkey
    }

    /// The key for the remote.
    pub fn rkey(&self) -> u32 {
        self.region.rkey
    }

    /// The protection domain that it was imported with.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Address and key of byte `offset`, for the remote.
    pub fn remote_at(&self, offset: u64) -> RemoteAddress {
        RemoteAddress { addr: self.addr().wrapping_add(offset), rkey: self.rkey() }
    }

    /// The bytes `range` as a scatter/gather element.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are outside the region, or 2 GiB and more.
    pub fn segment(&self, range: Range<u64>) -> Result<DataSegment, Error> {
        DataSegment::within(self.addr(), self.len(), self.lkey(), range, "an imported region")
    }
}

fn query(pd: &Pd, handle: u32) -> Result<KernelRegion, Error> {
    shared(pd.device(), "a memory region for several processes")?.query_mr(ObjectHandle(handle))
}
