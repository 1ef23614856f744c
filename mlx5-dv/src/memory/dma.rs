//! Memory that is mapped for the device.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use super::copy::SharedBytes;
use super::exclusive::ExclusiveBytes;
use super::host::MemoryHolder;
use super::{HostMemory, Iova};

/// What happens to the memory when its buffer ends: it is unmapped and given back, returned to a pool, or leaked since
/// the device may still write it. Set by whoever creates the buffer.
pub type Release = Box<dyn FnOnce(HostMemory, Iova) -> Option<HostMemory> + Send + Sync>;

/// Memory mapped for the device, at a device address.
///
/// Its bytes are the memory's data ([`HostMemory::data_len`] of them): for a user's vector only the vector, though the
/// device sees the whole pages around it. Offsets count from the first data byte. Any thread may copy in and out at any
/// time, also while the device writes: a read may then mix old and new bytes, but is never undefined behaviour.
/// Accesses outside the buffer panic, as on a slice.
pub struct DmaBuffer {
    memory: Option<HostMemory>,
    iova: Iova,
    release: Option<Release>,
}

impl fmt::Debug for DmaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaBuffer({} bytes at {})", self.len(), self.iova)
    }
}

impl MemoryHolder for DmaBuffer {
    fn held(&self) -> Option<&HostMemory> {
        self.memory()
    }
}

impl DmaBuffer {
    /// Wraps `memory`, mapped at `iova`; `release` receives it on drop.
    pub(crate) fn new(mut memory: HostMemory, iova: Iova, release: Release) -> Self {
        memory.set_iova(iova);
        DmaBuffer { memory: Some(memory), iova, release: Some(release) }
    }

    /// Device address of the first page; the data begins [`HostMemory::data_offset`] bytes later.
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Length of the data in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, HostMemory::data_len)
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The underlying memory; always present until drop.
    pub fn memory(&self) -> Option<&HostMemory> {
        self.memory.as_ref()
    }

    /// Pointer to the first byte, valid until the buffer is dropped. The content may change at any time.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ref().map_or(std::ptr::null_mut(), HostMemory::data)
    }

    /// Unmaps the memory and gives it back. `None` for memory of a pool, and where the device may still write it: that
    /// is leaked, and logged.
    pub fn into_memory(mut self) -> Option<HostMemory> {
        self.end()
    }

    fn end(&mut self) -> Option<HostMemory> {
        let (memory, release) = (self.memory.take()?, self.release.take()?);
        release(memory, self.iova).map(HostMemory::unmapped)
    }

    /// Leaks the memory on purpose, because the device may still write it.
    pub fn leak(mut self) {
        self.release = None;
        std::mem::forget(self.memory.take());
    }

    /// The data, as bytes with concurrent access.
    fn bytes(&self) -> SharedBytes {
        // SAFETY: one allocation, which this buffer owns. The rest of this process accesses it only in the ways that
        // `copy.rs` lists: `HostMemory`'s constructors and the rings' contracts ensure that.
        unsafe { SharedBytes::new(self.as_ptr(), self.len()) }
    }

    /// As [`bytes`](Self::bytes), for writing. Panics where others may read the memory.
    #[track_caller]
    fn writable(&self) -> SharedBytes {
        assert!(
            self.memory.as_ref().is_none_or(HostMemory::is_writable),
            "this memory has other readers: see MemoryOwner"
        );
        self.bytes()
    }

    /// The bytes `range`, without a copy. Panics outside.
    ///
    /// # Safety
    /// During the borrow nobody writes them: no thread, and not the card.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: mapped as long as the buffer lives; the rest by this function's contract.
        unsafe { ExclusiveBytes::new(self.as_ptr(), self.len()).slice(range) }
    }

    /// The bytes `range`, to be written in place. Panics outside.
    ///
    /// # Safety
    /// The memory is [writable](HostMemory::is_writable). During the borrow nobody else accesses these bytes: no
    /// thread, and not the card.
    #[track_caller]
    #[expect(clippy::mut_from_ref, reason = "what is borrowed is a range that its caller holds, not the buffer")]
    pub(crate) unsafe fn slice_mut(&self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: mapped as long as the buffer lives; the rest by this function's contract.
        unsafe { ExclusiveBytes::new(self.as_ptr(), self.len()).slice_mut(range) }
    }

    /// Copies `bytes` to `offset`. Panics if they do not fit, or the memory is not
    /// [writable](HostMemory::is_writable).
    #[inline]
    #[track_caller]
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.writable().copy_in(offset, bytes);
    }

    /// Copies from `offset` to `bytes`. Panics if the buffer ends before.
    ///
    /// A quadword at a multiple of 8 is read in one access: the result of an atomic is never torn.
    #[track_caller]
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        self.bytes().copy_out(offset, bytes);
    }

    /// Zeroes `len` bytes at `offset`. Panics if the buffer ends before.
    #[track_caller]
    pub fn zero(&self, offset: usize, len: usize) {
        self.fill(offset, len, 0);
    }

    /// Fills `len` bytes at `offset`. Panics if the buffer ends before.
    #[track_caller]
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        self.writable().fill(offset, len, byte);
    }

    /// Loads a big-endian dword that does not cross a multiple of 8. What the device wrote before it is visible
    /// afterwards (acquire).
    #[track_caller]
    pub fn load_be32(&self, offset: usize) -> u32 {
        let mut dword = [0; 4];
        self.copy_out(offset, &mut dword);
        fence(Ordering::Acquire);
        uar::barrier::from_device();
        u32::from_be_bytes(dword)
    }

    /// Stores a big-endian dword that does not cross a multiple of 8. What was written before is visible to the device
    /// first (release).
    #[track_caller]
    pub fn store_be32(&self, offset: usize, value: u32) {
        uar::barrier::to_device();
        fence(Ordering::Release);
        self.copy_in(offset, &value.to_be_bytes());
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        drop(self.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn buffer(len: usize) -> DmaBuffer {
        DmaBuffer::new(HostMemory::allocate(len).unwrap(), Iova(0x4000_0000), Box::new(|_, _| None))
    }

    proptest! {
        #[test]
        fn what_is_copied_in_comes_out(offset in 0usize..64, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let buffer = buffer(4096);
            buffer.fill(0, 4096, 0xa5);
            buffer.copy_in(offset, &bytes);
            let mut all = vec![0; 4096];
            buffer.copy_out(0, &mut all);
            prop_assert_eq!(&all[offset..offset + bytes.len()], &bytes[..]);
            prop_assert!(all[..offset].iter().chain(&all[offset + bytes.len()..]).all(|&byte| byte == 0xa5));
            let mut some = vec![0; bytes.len()];
            buffer.copy_out(offset, &mut some);
            prop_assert_eq!(some, bytes);
        }
    }

    #[test]
    fn dwords_are_big_endian() {
        let buffer = buffer(4096);
        buffer.store_be32(8, 0x0102_0304);
        let mut bytes = [0; 4];
        buffer.copy_out(8, &mut bytes);
        assert_eq!((bytes, buffer.load_be32(8)), ([1, 2, 3, 4], 0x0102_0304));
    }

    #[test]
    #[should_panic = "4 bytes at offset 4094 of a DMA buffer of 4096 bytes"]
    fn outside_is_refused() {
        buffer(4096).copy_in(4094, &[0; 4]);
    }

    /// A buffer of `len` bytes of a user's vector.
    fn of_a_vector(len: usize) -> DmaBuffer {
        DmaBuffer::new(HostMemory::from_vec(vec![0xa5; len]).unwrap(), Iova(0), Box::new(|_, _| None))
    }

    #[test]
    fn a_user_s_vector_is_reached_and_nothing_beside_it() {
        let buffer = of_a_vector(7);
        assert_eq!(buffer.len(), 7);
        buffer.fill(0, 7, 0x11);
        let mut bytes = [0; 7];
        buffer.copy_out(0, &mut bytes);
        assert_eq!(bytes, [0x11; 7]);
    }

    #[test]
    #[should_panic = "8 bytes at offset 0 of a DMA buffer of 7 bytes"]
    fn a_vector_s_neighbours_in_its_page_are_out_of_reach() {
        of_a_vector(7).fill(0, 8, 0);
    }

    #[test]
    #[should_panic = "this memory has other readers"]
    fn what_others_read_is_not_written() {
        let shared: Arc<[u8]> = Arc::from(vec![1; 100]);
        let memory = HostMemory::of(Arc::clone(&shared)).unwrap();
        DmaBuffer::new(memory, Iova(0), Box::new(|_, _| None)).fill(0, 1, 0);
    }

    #[test]
    fn memory_comes_back_as_it_was_given() {
        let bytes = vec![7; 100];
        let at = bytes.as_ptr();
        let buffer = DmaBuffer::new(HostMemory::of(bytes).unwrap(), Iova(1 << 20), Box::new(|memory, _| Some(memory)));
        let memory = buffer.into_memory().unwrap();
        assert!(memory.iova().is_none() && memory.is_writable());
        let memory = memory.into_owner::<Box<[u8]>>().unwrap_err();
        let bytes: Vec<u8> = memory.into_owner().unwrap();
        assert_eq!((bytes.as_ptr(), bytes.len()), (at, 100));
    }

    #[test]
    fn drop_releases_once_and_leak_never() {
        let released = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&released);
        let buffer = DmaBuffer::new(
            HostMemory::allocate(1).unwrap(),
            Iova(0x1000),
            Box::new(move |memory, iova| {
                assert_eq!((memory.iova(), iova), (Some(Iova(0x1000)), Iova(0x1000)));
                assert!(!flag.swap(true, Ordering::Relaxed));
                Some(memory)
            }),
        );
        drop(buffer);
        assert!(released.load(Ordering::Relaxed));
        DmaBuffer::new(HostMemory::allocate(1).unwrap(), Iova(0), Box::new(|_, _| panic!("released"))).leak();
    }
}
