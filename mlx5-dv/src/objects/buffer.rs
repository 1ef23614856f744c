//! Parts of registered memory that work requests use.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use super::memory_region::MemoryRegion;
use super::mkey::AccessFlags;
use super::pd::Pd;
use crate::error::{Error, Invalid};
use crate::memory::{DataSegment, DmaBuffer, Iova, RemoteAddress};

/// An exclusively owned part of a memory region. A [`Connection`](crate::queue::Connection) takes it with a work
/// request and returns it with the completion.
///
/// It keeps its region registered. Not `Clone`: while the card uses it, nothing else can. Offsets count from the
/// buffer's start; accesses outside it panic, as on a slice.
///
/// Others may reach the bytes of a buffer of a [`MemoryRegion`] at any time: holders of the region, and remotes that
/// have its key. It is read and written by copies. A buffer of an [`ExclusiveRegion`](super::ExclusiveRegion) is memory
/// that nobody else reaches: it is a slice, too.
pub struct Buffer {
    /// Taken out by `drop` alone.
    region: ManuallyDrop<Arc<MemoryRegion>>,
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
        Buffer { region: ManuallyDrop::new(region), range, len }
    }

    /// Bytes that a work request uses: all, unless [`set_len`](Self::set_len) changed it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether that is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of the buffer in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.range.len()
    }

    /// Makes work requests use the first `len` bytes. Panics if `len` exceeds the capacity.
    #[inline]
    #[track_caller]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes of a buffer of {} bytes", self.capacity());
        self.len = len;
    }

    /// The region that it is a part of; `None` for a buffer of an [`ExclusiveRegion`](super::ExclusiveRegion), which is
    /// not shown to anybody.
    pub fn region(&self) -> Option<&Arc<MemoryRegion>> {
        (!self.is_exclusive()).then_some(&*self.region)
    }

    /// Whether it is a part of `region`.
    pub(super) fn is_part_of(&self, region: &Arc<MemoryRegion>) -> bool {
        Arc::ptr_eq(&self.region, region)
    }

    /// The access rights of its region.
    #[inline]
    pub fn access(&self) -> AccessFlags {
        self.region.access()
    }

    /// The protection domain of its region.
    pub fn pd(&self) -> &Arc<Pd> {
        self.region.pd()
    }

    /// The buffer as a scatter/gather element.
    #[inline]
    pub fn segment(&self) -> DataSegment {
        // Its bytes are inside of the region since it was made.
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        DataSegment { addr: self.region.addr() + self.range.start as u64, len, lkey: self.region.lkey() }
    }

    /// Address of the first byte for the remote.
    #[inline]
    pub fn remote(&self) -> RemoteAddress {
        self.region.remote_at(self.range.start)
    }

    /// Where the card finds the first byte, as [`MemoryRegion::iova`].
    pub(crate) fn iova(&self) -> Option<Iova> {
        self.region.iova(self.range.start)
    }

    /// Cuts the buffer in two at byte `at`: it keeps what is before, and returns what is behind. Each has all of its
    /// bytes as [`len`](Self::len). Panics unless both have some.
    #[track_caller]
    pub fn split_off(&mut self, at: usize) -> Buffer {
        let capacity = self.capacity();
        assert!(0 < at && at < capacity, "a cut at {at} of a buffer of {capacity} bytes");
        let (middle, end) = (self.range.start + at, self.range.end);
        self.region.cut(&self.range, middle);
        self.range.end = middle;
        self.len = at;
        Buffer::new(Arc::clone(&self.region), middle..end)
    }

    /// Undoes [`split_off`](Self::split_off): appends `next`, which lies directly behind it in the same region. Errors:
    /// `next`, if it does not.
    pub fn append(&mut self, next: Buffer) -> Result<(), Buffer> {
        if !next.is_part_of(&self.region) || next.range.start != self.range.end {
            return Err(next);
        }
        let end = next.range.end;
        self.region.join(&self.range, end);
        self.range.end = end;
        self.len = self.range.len();
        next.forget();
        Ok(())
    }

    /// Whether it is of an [`ExclusiveRegion`](super::ExclusiveRegion), and so a slice.
    pub fn is_exclusive(&self) -> bool {
        self.region.is_exclusive()
    }

    /// Drops it; its bytes are another buffer's now.
    fn forget(mut self) {
        self.range.start = self.range.end;
    }

    #[inline]
    #[track_caller]
    fn at(&self, offset: usize, len: usize) -> usize {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.capacity());
        assert!(inside, "{len} bytes at offset {offset} of a buffer of {} bytes", self.capacity());
        self.range.start + offset
    }

    /// The memory, and where the `len` bytes at `offset` are in it, if nobody else reaches them.
    #[inline]
    #[track_caller]
    fn held(&self, offset: usize, len: usize) -> Option<(&DmaBuffer, Range<usize>)> {
        let start = self.at(offset, len);
        Some((self.region.memory().filter(|_| self.is_exclusive())?, start..start + len))
    }

    /// The `len` bytes at `offset`, if nobody else reaches them.
    #[inline]
    #[track_caller]
    fn exclusive(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let (memory, range) = self.held(offset, len)?;
        // SAFETY: of an `ExclusiveRegion`, whose documentation says why only the holder of this buffer reaches its
        // bytes; `MemoryRegion::buffer` keeps buffers disjoint. The holder is here, so the buffer is with no queue, and
        // the card has no work request that writes it. Who writes them borrows the buffer for writing.
        Some(unsafe { memory.slice(range) })
    }

    #[inline]
    #[track_caller]
    fn exclusive_mut(&mut self, offset: usize, len: usize) -> Option<&mut [u8]> {
        let (memory, range) = self.held(offset, len)?;
        // SAFETY: as for `exclusive`, and the buffer is borrowed for writing. `ExclusiveRegion` has writable memory
        // only: its key has LOCAL_WRITE.
        Some(unsafe { memory.slice_mut(range) })
    }

    /// Its [`len`](Self::len) bytes, without a copy: a received message, for example. Panics unless it is of an
    /// [`ExclusiveRegion`](super::ExclusiveRegion).
    #[inline]
    #[track_caller]
    pub fn as_slice(&self) -> &[u8] {
        self.exclusive(0, self.len).unwrap_or_else(|| not_exclusive())
    }

    /// Its [`len`](Self::len) bytes, to be filled in place before they are sent. Panics unless it is of an
    /// [`ExclusiveRegion`](super::ExclusiveRegion).
    #[inline]
    #[track_caller]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len;
        self.exclusive_mut(0, len).unwrap_or_else(|| not_exclusive())
    }

    /// Copies `bytes` to `offset`. Panics if they do not fit.
    #[inline]
    #[track_caller]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        match self.exclusive_mut(offset, bytes.len()) {
            Some(memory) => memory.copy_from_slice(bytes),
            None => self.region.write(self.at(offset, bytes.len()), bytes),
        }
    }

    /// Copies from `offset` to `bytes`. Panics if the buffer ends before.
    #[track_caller]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        match self.exclusive(offset, bytes.len()) {
            Some(memory) => bytes.copy_from_slice(memory),
            None => self.region.read(self.at(offset, bytes.len()), bytes),
        }
    }

    /// Fills `len` bytes at `offset`. Panics if the buffer ends before.
    #[track_caller]
    pub fn fill(&mut self, offset: usize, len: usize, byte: u8) {
        match self.exclusive_mut(offset, len) {
            Some(memory) => memory.fill(byte),
            None => self.region.fill(self.at(offset, len), len, byte),
        }
    }
}

#[cold]
#[track_caller]
fn not_exclusive() -> ! {
    panic!("others reach this buffer's bytes: only a buffer of an ExclusiveRegion is a slice")
}

impl Drop for Buffer {
    // By values: if a call got its address, the buffer would have to be in memory, and with it what a poll returns it
    // in, all of which would then be stored and copied.
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: once, and nothing uses the buffer afterwards.
        let region = unsafe { ManuallyDrop::take(&mut self.region) };
        end(region, self.range.start, self.range.end);
    }
}

/// Ends the buffer of the bytes from `start` to before `end`.
#[cold]
#[inline(never)]
fn end(region: Arc<MemoryRegion>, start: usize, end: usize) {
    if start != end {
        region.take_back(&(start..end));
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
