//! Register cells, and the layout of a UAR page. PRM "User Access Region".

use core::fmt;
use core::ptr::NonNull;

use volatile_register::WO;

/// One WQE building block, 64 bytes in wire order.
pub type Wqebb = [u64; 8];

/// A write-only big-endian dword.
#[repr(transparent)]
pub struct Be32Cell(WO<u32>);

impl Be32Cell {
    /// Stores `value` as one volatile dword store.
    #[inline(always)]
    pub fn store(&self, value: u32) {
        // SAFETY: a store to a device register affects nothing in Rust's memory; by the contract of `UarPage::new` the
        // cell is in a UAR page or plain memory.
        unsafe { self.0.write(value.to_be()) }
    }
}

/// A write-only big-endian quadword, stored in one access.
#[repr(transparent)]
pub struct Be64Cell(WO<u64>);

impl Be64Cell {
    /// Stores `value` as one volatile quadword store.
    #[inline(always)]
    pub fn store(&self, value: u64) {
        // SAFETY: as for `Be32Cell::store`.
        unsafe { self.0.write(value.to_be()) }
    }
}

/// 64 bytes of a BlueFlame buffer: receives a block of a WQE, or a doorbell in its first eight bytes.
#[repr(transparent)]
pub struct BlockCell([Be64Cell; 8]);

impl BlockCell {
    /// The first eight bytes.
    #[inline(always)]
    pub fn doorbell(&self) -> &Be64Cell {
        &self.0[0]
    }

    /// Stores a block: 64 bytes in ascending order, with the widest stores available.
    ///
    /// The order is part of the contract: a write-combining buffer that is evicted half full must contain the start of
    /// the WQE, and on an uncached page each store is a PCIe write of its own.
    #[inline(always)]
    pub fn store(&self, block: &Wqebb) {
        let place: *const BlockCell = self;
        // SAFETY: as for `Be32Cell::store`; the cells have the size of a block, are aligned to 64 by the contract of
        // `UarPage::new`, and may be stored to through a shared reference.
        unsafe { store_ascending(place.cast::<Wqebb>().cast_mut(), block) }
    }
}

/// Four volatile 16-byte stores, which the compiler neither reorders nor splits. It would split a 64-byte store in an
/// order of its own.
///
/// # Safety
/// `to` is aligned to 16 bytes, and the 64 bytes there may be stored to.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn store_ascending(to: *mut Wqebb, block: &Wqebb) {
    use core::arch::x86_64::__m128i;
    let (to, from) = (to.cast::<__m128i>(), block.as_ptr().cast::<__m128i>());
    for i in 0..size_of::<Wqebb>() / size_of::<__m128i>() {
        // SAFETY: inside the 64 bytes of each; a block need not be aligned to more than 8.
        unsafe { to.add(i).write_volatile(from.add(i).read_unaligned()) }
    }
}

/// One 64-byte store instruction, which the CPU keeps together on a write-combining page.
///
/// # Safety
/// The 64 bytes at `to` may be stored to.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
unsafe fn store_ascending(to: *mut Wqebb, block: &Wqebb) {
    // SAFETY: loads the block and stores it at `to`, through declared registers; no stack, no flags.
    unsafe {
        core::arch::asm!(
            "ld1 {{v0.2d, v1.2d, v2.2d, v3.2d}}, [{from}]",
            "st1 {{v0.2d, v1.2d, v2.2d, v3.2d}}, [{to}]",
            from = in(reg) block.as_ptr(),
            to = in(reg) to,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            options(nostack, preserves_flags)
        );
    }
}

/// Eight volatile quadword stores in order, for Miri, which does not support vector instructions.
///
/// # Safety
/// As for the other versions.
#[cfg(miri)]
unsafe fn store_ascending(to: *mut Wqebb, block: &Wqebb) {
    for (i, quadword) in block.iter().enumerate() {
        // SAFETY: inside the 64 bytes.
        unsafe { to.cast::<u64>().add(i).write_volatile(*quadword) }
    }
}

/// Size of a BlueFlame register in bytes: two buffers.
pub const BLUE_FLAME_REGISTER: usize = 512;
/// Size of a BlueFlame buffer in bytes: the most that one ring can copy.
pub const BLUE_FLAME_BUFFER: usize = BLUE_FLAME_REGISTER / 2;
/// BlueFlame registers per page that drivers use.
pub const BLUE_FLAME_REGISTERS: usize = 2;
/// Size of a UAR page in bytes.
pub const UAR_PAGE: usize = 4096;

/// One of the two buffers of a BlueFlame register.
pub(crate) type BlueFlameBuffer = [BlockCell; BLUE_FLAME_BUFFER / size_of::<BlockCell>()];

/// The registers of a UAR page that drivers use.
///
/// ```text
/// 0x020  CQ doorbell            8 bytes
/// 0x040  EQ doorbell, arming    4 bytes
/// 0x048  EQ doorbell            4 bytes
/// 0x800  BlueFlame register 0: buffers at 0x800 and 0x900; a plain doorbell stores to the first 8 bytes
/// 0xa00  BlueFlame register 1: buffers at 0xa00 and 0xb00
/// ```
#[repr(C)]
pub struct Registers {
    _0: [u32; 8],
    /// Arms a completion queue.
    pub(crate) cq: Be64Cell,
    _28: [u32; 6],
    /// Updates an event queue's consumer index, and arms it.
    pub(crate) eq_arm: Be32Cell,
    _44: u32,
    /// Updates an event queue's consumer index.
    pub(crate) eq: Be32Cell,
    _4c: [u32; 0x1ed],
    /// Send doorbells.
    pub(crate) blue_flame: [[BlueFlameBuffer; 2]; BLUE_FLAME_REGISTERS],
    _c00: [u32; 0x100],
}

const _: () = {
    assert!(size_of::<Registers>() == UAR_PAGE);
    assert!(core::mem::offset_of!(Registers, blue_flame) == 0x800);
};

/// A UAR page mapped into this process.
///
/// Copies refer to the same page. Doorbells made from it do not borrow it: by the contract of [`new`](Self::new) the
/// caller drops all of them before unmapping the page.
#[derive(Clone, Copy)]
pub struct UarPage(NonNull<Registers>);

// SAFETY: the page is device registers (or plain memory in tests), stored to by volatile accesses, which any thread may
// execute; by the contract of `new` it stays mapped.
unsafe impl Send for UarPage {}
// SAFETY: as above; no method loads, and stores of different threads cannot tear each other.
unsafe impl Sync for UarPage {}

impl fmt::Debug for UarPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UarPage({:p})", self.0)
    }
}

/// One BlueFlame register of a [`UarPage`]: its two buffers.
///
/// Like the page, it does not borrow: the contract of `UarPage::new` covers it.
#[derive(Clone, Copy)]
pub(crate) struct Register {
    buffers: NonNull<[BlueFlameBuffer; 2]>,
    number: usize,
}

// SAFETY: as for `UarPage`, of which it is a part.
unsafe impl Send for Register {}
// SAFETY: as above.
unsafe impl Sync for Register {}

impl fmt::Debug for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

impl Register {
    #[inline(always)]
    pub(crate) fn buffers(&self) -> &[BlueFlameBuffer; 2] {
        // SAFETY: as for `UarPage::registers`.
        unsafe { self.buffers.as_ref() }
    }
}

impl UarPage {
    /// The page at `address`.
    ///
    /// # Safety
    /// `address` is aligned to 64 bytes (a BAR page always is). The [`UAR_PAGE`] bytes there are mapped and writable,
    /// and stay so until the last copy of this page and of every doorbell made from it is dropped. They are a UAR's
    /// registers, or memory that this process accesses only by volatile or atomic accesses.
    pub unsafe fn new(address: NonNull<u8>) -> Self {
        UarPage(address.cast())
    }

    /// BlueFlame register `register`, modulo the number of registers.
    pub(crate) fn blue_flame(&self, register: usize) -> Register {
        let number = register % BLUE_FLAME_REGISTERS;
        Register { buffers: NonNull::from(&self.registers().blue_flame[number]), number }
    }

    #[inline(always)]
    pub(crate) fn registers(&self) -> &Registers {
        // SAFETY: mapped and aligned by the contract of `new`. A shared reference to interior-mutable cells (volatile
        // cells are `UnsafeCell`s) asserts nothing about their content; the plain dwords between them are never read.
        unsafe { self.0.as_ref() }
    }
}
