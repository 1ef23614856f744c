//! Parts of registered memory that work requests use.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::memory_region::MemoryRegion;
use crate::error::{Error, Invalid};
use crate::memory::{DataSegment, RemoteAddress};

/// An exclusively owned part of a memory region. A [`Connection`](crate::queue::Connection) takes it with a work
/// request and returns it with the completion.
///
/// It keeps its region registered. Not `Clone`: while the card uses it, nothing else can. Offsets count from the
/// buffer's start; accesses outside it panic, as on a slice.
pub struct Buffer {
    region: Arc<MemoryRegion>,
    range: Range<usize>,
    /// Bytes that work requests use, from the start.
    len: usize,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes at {:#x})", self.len(), self.segment().addr)
    }
}

impl Buffer {
    pub(super) fn new(region: Arc<MemoryRegion>, range: Range<usize>) -> Self {
        let len = range.len();
        Buffer { region, range, len }
    }

    /// Bytes that a work request uses: all, unless [`set_len`](Self::set_len) changed it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether that is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the buffer in bytes.
    pub fn capacity(&self) -> usize {
        self.range.len()
    }

    /// Makes work requests use the first `len` bytes. Panics if `len` exceeds the capacity.
    #[track_caller]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes of a buffer of {} bytes", self.capacity());
        self.len = len;
    }

    /// The region that it is a part of.
    pub fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// The buffer as a scatter/gather element.
    pub fn segment(&self) -> DataSegment {
        self.region.segment(self.range.start..self.range.start + self.len)
    }

    /// Address of the first byte for the remote.
    pub fn remote(&self) -> RemoteAddress {
        self.region.remote_at(self.range.start)
    }

    #[track_caller]
    fn at(&self, offset: usize, len: usize) -> usize {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.capacity());
        assert!(inside, "{len} bytes at offset {offset} of a buffer of {} bytes", self.capacity());
        self.range.start + offset
    }

    /// Copies `bytes` to `offset`. Panics if they do not fit.
    #[track_caller]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.region.write(self.at(offset, bytes.len()), bytes);
    }

    /// Copies from `offset` to `bytes`. Panics if the buffer ends before.
    #[track_caller]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.region.read(self.at(offset, bytes.len()), bytes);
    }

    /// Fills `len` bytes at `offset`. Panics if the buffer ends before.
    #[track_caller]
    pub fn fill(&mut self, offset: usize, len: usize, byte: u8) {
        self.region.fill(self.at(offset, len), len, byte);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.region.take_back(&self.range);
    }
}

impl MemoryRegion {
    /// Takes the bytes `range` as an exclusive buffer for a [`Connection`](crate::queue::Connection).
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range, bytes outside the region, or bytes of another buffer.
    pub fn buffer(self: &Arc<Self>, range: Range<usize>) -> Result<Buffer, Error> {
        if range.is_empty() || range.end > self.len() {
            let (given, len) = (range.start as u64..range.end as u64, self.len() as u64);
            return Err(Invalid::OutOfBounds { what: "bytes", given, of: "a memory region", len }.into());
        }
        let mut lent = self.lent();
        let at = lent.partition_point(|other| other.start < range.start);
        let before = at.checked_sub(1).and_then(|before| lent.get(before)).filter(|before| before.end > range.start);
        let after = lent.get(at).filter(|next| next.start < range.end);
        if let Some(taken) = before.or(after) {
            let [given, taken] = [&range, taken].map(|range| range.start as u64..range.end as u64);
            return Err(Invalid::Overlap { what: "bytes", given, taken, by: "a buffer that is lent out" }.into());
        }
        lent.insert(at, range.clone());
        drop(lent);
        Ok(Buffer::new(Arc::clone(self), range))
    }

    /// Divides all of the region into buffers of `len` bytes each; a remainder stays unused.
    ///
    /// # Errors
    /// As for [`buffer`](Self::buffer).
    pub fn buffers(self: &Arc<Self>, len: usize) -> Result<Vec<Buffer>, Error> {
        let count = self.len().checked_div(len).unwrap_or(0);
        (0..count).map(|i| self.buffer(i * len..(i + 1) * len)).collect()
    }
}
