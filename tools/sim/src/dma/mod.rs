//! The client's memory as the function sees it: IOVA ranges, each in a mapping of the client's file, or accessed by
//! reads and writes if it cannot be mapped. An access outside of all ranges is a fault, which strict mode reports.
//!
//! Addresses are IOVAs, never pointers. The client maps and unmaps on its own thread; the device thread accesses. After
//! [`Dma::unmap`] has returned, no access to that range is in progress, and every later one faults.
//!
//! A guest's IOMMU maps page by page, so one file may have 100 000 ranges: a file is mapped once, as a whole, and
//! ranges refer to that. If a client shortened a mapped file, accesses would raise `SIGBUS`, which ends this process
//! and with it the functions of all clients. So a memfd is sealed against that (`F_SEAL_SHRINK`) when it is mapped, as
//! QEMU seals its own. Other files, such as those of huge pages, and a memfd made without `MFD_ALLOW_SEALING` cannot be
//! sealed: of their clients it is asked that they shorten none.
//!
//! Accesses of queues and commands are counted by what they are for: [`Dma::counted`], [`Traffic`].

mod backing;
mod map;
mod space;
mod traffic;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thiserror::Error;

use crate::strict::Strict;
use backing::Backing;
pub use map::{Access, MapError, Source};
use space::Space;
use traffic::{COMBINED, Counters};
pub use traffic::{Crossed, Purpose, Traffic};

/// An access that the function may not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("DMA {} of {len} bytes at {iova:#x}: {reason}", if *.write { "write" } else { "read" })]
pub struct DmaFault {
    /// Start address.
    pub iova: u64,
    /// Length in bytes.
    pub len: usize,
    /// Whether it was a write.
    pub write: bool,
    /// The reason.
    pub reason: &'static str,
}

impl DmaFault {
    /// An access beyond an object's memory.
    pub fn past_end(at: u64, len: usize, write: bool) -> Self {
        DmaFault { iova: at, len, write, reason: "past the end of the object's pages" }
    }
}

/// The function's DMA address space. Cheap to clone; all clones are the same space. `Send` and `Sync`.
#[derive(Debug, Clone, Default)]
pub struct Dma(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    space: RwLock<Space>,
    /// PCI bus mastering.
    enabled: AtomicBool,
    strict: Strict,
    counters: Counters,
}

impl Default for Shared {
    fn default() -> Self {
        Shared {
            space: RwLock::default(),
            enabled: AtomicBool::new(true),
            strict: Strict::off(),
            counters: Counters::default(),
        }
    }
}

impl Dma {
    /// An empty address space that reports faults to `strict`. It is [enabled](Self::enable).
    pub fn new(strict: Strict) -> Self {
        Dma(Arc::new(Shared { strict, ..Shared::default() }))
    }

    /// Enables or disables DMA: PCI bus mastering. While disabled, all accesses fault.
    pub fn enable(&self, on: bool) {
        self.0.enabled.store(on, Ordering::Release);
    }

    /// Maps `len` bytes at `iova` to `source`. Ranges may not overlap. Makes system calls.
    pub fn map(&self, iova: u64, len: u64, access: Access, source: Source) -> Result<(), MapError> {
        self.space_mut().map(iova, len, access, source)
    }

    /// Unmaps everything in `len` bytes from `iova` on, also parts of ranges. Returns the number of bytes that were
    /// mapped. When it returns, no access to them is in progress.
    pub fn unmap(&self, iova: u64, len: u64) -> u64 {
        self.space_mut().unmap(iova, len)
    }

    /// Unmaps all ranges.
    pub fn clear(&self) {
        self.space_mut().clear();
    }

    /// Number of mapped ranges.
    pub fn ranges(&self) -> usize {
        self.space().len()
    }

    /// Whether anything is mapped at `iova`.
    pub fn is_mapped(&self, iova: u64) -> bool {
        self.space().find(iova).is_some()
    }

    /// Accesses that cross PCIe for `purpose`, and are counted.
    pub fn counted(&self, purpose: Purpose) -> Counted<'_> {
        Counted { dma: self, purpose: Some(purpose) }
    }

    /// What crossed PCIe since power-on.
    pub fn traffic(&self) -> Traffic {
        self.0.counters.traffic()
    }

    /// Counts a doorbell of `bytes` bytes. A copy that rings crosses in the blocks of a write-combining buffer.
    pub(crate) fn count_doorbell(&self, bytes: usize) {
        for block in (0..bytes).step_by(COMBINED) {
            self.0.counters.count(Purpose::Doorbell, true, 0, COMBINED.min(bytes - block));
        }
    }

    /// Sets how PCIe cuts accesses: Max_Payload_Size and Max_Read_Request_Size in bytes, powers of two.
    pub(crate) fn set_request_sizes(&self, most_written: u32, most_read: u32) {
        self.0.counters.set_sizes(most_written, most_read);
    }

    /// As [`Counted::read`], not counted.
    pub fn read(&self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        Counted::from(self).read(iova, bytes)
    }

    /// As [`Counted::write`], not counted.
    pub fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        Counted::from(self).write(iova, bytes)
    }

    /// As [`Counted::load_be32`], not counted.
    pub fn load_be32(&self, iova: u64) -> Result<u32, DmaFault> {
        Counted::from(self).load_be32(iova)
    }

    /// As [`Counted::publish`], not counted.
    pub fn publish(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        Counted::from(self).publish(iova, bytes)
    }

    /// As [`Counted::update_be64`], not counted.
    pub fn update_be64(&self, iova: u64, change: impl Fn(u64) -> u64) -> Result<u64, DmaFault> {
        Counted::from(self).update_be64(iova, change)
    }

    /// Reports a fault and returns it.
    #[cold]
    fn fault(&self, fault: DmaFault) -> DmaFault {
        self.0.strict.report(RULE, || fault.to_string());
        fault
    }

    fn space(&self) -> RwLockReadGuard<'_, Space> {
        self.0.space.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn space_mut(&self) -> RwLockWriteGuard<'_, Space> {
        self.0.space.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Accesses to the client's memory for one purpose. From a [`Dma`] itself: accesses that no card makes, such as checks
/// of strict mode, which are not counted.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    dma: &'a Dma,
    purpose: Option<Purpose>,
}

impl<'a> From<&'a Dma> for Counted<'a> {
    fn from(dma: &'a Dma) -> Self {
        Counted { dma, purpose: None }
    }
}

impl Counted<'_> {
    /// Reads from the client's memory. An aligned quadword is read at once.
    pub fn read(&self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        let mut done = 0;
        self.pieces(iova, bytes.len(), Access::READ, |backing, at, len| {
            let ok = backing.read(at, &mut bytes[done..done + len]);
            done += len;
            ok
        })
    }

    /// Writes to the client's memory. An aligned quadword is written at once; lower addresses first.
    pub fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let mut done = 0;
        self.pieces(iova, bytes.len(), Access::WRITE, |backing, at, len| {
            let ok = backing.write(at, &bytes[done..done + len]);
            done += len;
            ok
        })
    }

    /// Loads one big-endian dword with acquire ordering.
    pub fn load_be32(&self, iova: u64) -> Result<u32, DmaFault> {
        let mut value = 0;
        self.whole(iova, 4, Access::READ, |backing, at| {
            value = backing.load_be32(at)?;
            Some(())
        })?;
        Ok(value)
    }

    /// Writes `bytes`, a CQE or EQE, so that the last byte, with the ownership bit, is stored last, with release
    /// ordering.
    pub fn publish(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        // `write` stores lower addresses first and ends with a releasing store.
        self.write(iova, bytes)
    }

    /// Atomically replaces the big-endian quadword at `iova`, a multiple of 8, by `change` of it. Returns the old one.
    pub fn update_be64(&self, iova: u64, change: impl Fn(u64) -> u64) -> Result<u64, DmaFault> {
        let mut old = 0;
        self.whole(iova, 8, Access::READ | Access::WRITE, |backing, at| {
            old = backing.update_be64(at, &change)?;
            Some(())
        })?;
        Ok(old)
    }

    /// Calls `each` for every range in `len` bytes from `iova` on, with offset and length in its backing.
    fn pieces(
        &self,
        iova: u64,
        len: usize,
        access: Access,
        mut each: impl FnMut(&Backing, u64, usize) -> Option<()>,
    ) -> Result<(), DmaFault> {
        let fault = |reason| self.dma.fault(DmaFault { iova, len, write: access.contains(Access::WRITE), reason });
        if !self.dma.0.enabled.load(Ordering::Acquire) {
            return Err(fault(BUS_MASTER_OFF));
        }
        let space = self.dma.space();
        let mut done = 0;
        while done < len {
            let at = iova.checked_add(done as u64).ok_or_else(|| fault(NOT_MAPPED))?;
            let range = space.find(at).ok_or_else(|| fault(NOT_MAPPED))?;
            if !range.access.contains(access) {
                return Err(fault(NOT_ALLOWED));
            }
            let inside = at - range.start;
            let now = (len - done).min(usize::try_from(range.len - inside).unwrap_or(usize::MAX));
            each(&range.backing, inside, now).ok_or_else(|| fault(NO_MEMORY))?;
            done += now;
        }
        if let Some(purpose) = self.purpose {
            self.dma.0.counters.count(purpose, access.contains(Access::WRITE), iova, len);
        }
        Ok(())
    }

    /// Like [`pieces`](Self::pieces), for an access that must be within one range.
    fn whole(
        &self,
        iova: u64,
        len: usize,
        access: Access,
        mut each: impl FnMut(&Backing, u64) -> Option<()>,
    ) -> Result<(), DmaFault> {
        self.pieces(iova, len, access, |backing, at, now| (now == len).then(|| each(backing, at))?)
    }
}

/// The strict rule of all faults here; the detail says why.
pub const RULE: &str = "DMA fault";

const NOT_MAPPED: &str = "not mapped";
const NOT_ALLOWED: &str = "the mapping does not allow it";
const NO_MEMORY: &str = "mapped, but its memory cannot be reached";
const BUS_MASTER_OFF: &str = "bus mastering is off";

#[cfg(test)]
mod tests;
