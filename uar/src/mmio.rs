//! Register cells, and the map of a UAR page. PRM "User Access Region".

use core::fmt;
use core::ptr::NonNull;

use volatile_register::WO;

/// One WQE building block, 64 bytes in wire order.
pub type Wqebb = [u64; 8];

/// A big-endian dword that is only ever stored to.
#[repr(transparent)]
pub struct Be32Cell(WO<u32>);

impl Be32Cell {
    /// Stores `value` by one volatile dword store.
    #[inline(always)]
    pub fn store(&self, value: u32) {
        // SAFETY: a store to a device register has effects outside of Rust's memory, none inside: whoever made the page
        // this cell lies in vouched that it holds a UAR's registers or plain memory (`UarPage::new`).
        unsafe { self.0.write(value.to_be()) }
    }
}

/// A big-endian quadword that is only ever stored to, in one access.
#[repr(transparent)]
pub struct Be64Cell(WO<u64>);

impl Be64Cell {
    /// Stores `value` by one volatile quadword store.
    #[inline(always)]
    pub fn store(&self, value: u64) {
        // SAFETY: as for `Be32Cell::store`.
        unsafe { self.0.write(value.to_be()) }
    }
}

/// 64 bytes of a BlueFlame buffer: takes a block of a WQE, or in its first eight bytes a doorbell.
#[repr(transparent)]
pub struct BlockCell([Be64Cell; 8]);

impl BlockCell {
    /// The first eight bytes.
    #[inline(always)]
    pub fn doorbell(&self) -> &Be64Cell {
        &self.0[0]
    }

    /// Stores a block: its 64 bytes in ascending order, in the widest stores there are.
    ///
    /// The order is part of the contract: a write-combining buffer that is evicted half full must hold the WQE's
    /// beginning, and an uncached page turns each store into a PCIe write of its own.
    #[inline(always)]
    pub fn store(&self, block: &Wqebb) {
        let place: *const BlockCell = self;
        // SAFETY: as for `Be32Cell::store`; the cells are as large as a block, aligned to 64 by the promise of
        // `UarPage::new`, and may be stored to through a shared reference.
        unsafe { store_ascending(place.cast::<Wqebb>().cast_mut(), block) }
    }
}

/// Four volatile stores of 16 bytes, which the compiler neither reorders nor splits. Not one of 64 bytes: that it would
/// split in an order of its own.
///
/// # Safety
/// `to` is aligned to 16 bytes, and 64 bytes from there may be stored to.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn store_ascending(to: *mut Wqebb, block: &Wqebb) {
    use core::arch::x86_64::__m128i;
    let (to, from) = (to.cast::<__m128i>(), block.as_ptr().cast::<__m128i>());
    for i in 0..size_of::<Wqebb>() / size_of::<__m128i>() {
        // SAFETY: inside of the 64 bytes of each; a block need not be aligned to more than 8.
        unsafe { to.add(i).write_volatile(from.add(i).read_unaligned()) }
    }
}

/// One store instruction of 64 bytes, which a processor keeps together on a write-combining page.
///
/// # Safety
/// 64 bytes from `to` may be stored to.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
unsafe fn store_ascending(to: *mut Wqebb, block: &Wqebb) {
    // SAFETY: loads the block and stores it at `to`, through registers that are declared; no stack, no flags.
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

/// Eight volatile quadwords in order: for an interpreter, which knows no vector instructions.
///
/// # Safety
/// As for the others.
#[cfg(miri)]
unsafe fn store_ascending(to: *mut Wqebb, block: &Wqebb) {
    for (i, quadword) in block.iter().enumerate() {
        // SAFETY: inside of the 64 bytes.
        unsafe { to.cast::<u64>().add(i).write_volatile(*quadword) }
    }
}

/// Bytes of a BlueFlame register: two buffers.
pub const BLUE_FLAME_REGISTER: usize = 512;
/// Bytes of one buffer of a BlueFlame register, the most that one ring can carry.
pub const BLUE_FLAME_BUFFER: usize = BLUE_FLAME_REGISTER / 2;
/// BlueFlame registers of a page that drivers use.
pub const BLUE_FLAME_REGISTERS: usize = 2;
/// Bytes of a UAR page.
pub const UAR_PAGE: usize = 4096;

/// One of the two buffers of a BlueFlame register.
pub(crate) type BlueFlameBuffer = [BlockCell; BLUE_FLAME_BUFFER / size_of::<BlockCell>()];

/// The registers of a UAR page that software uses.
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
    /// Takes an event queue's consumer index, and arms it.
    pub(crate) eq_arm: Be32Cell,
    _44: u32,
    /// Takes an event queue's consumer index.
    pub(crate) eq: Be32Cell,
    _4c: [u32; 0x1ed],
    /// Rings send queues.
    pub(crate) blue_flame: [[BlueFlameBuffer; 2]; BLUE_FLAME_REGISTERS],
    _c00: [u32; 0x100],
}

const _: () = {
    assert!(size_of::<Registers>() == UAR_PAGE);
    assert!(core::mem::offset_of!(Registers, blue_flame) == 0x800);
};

/// A UAR page in this process' address space.
///
/// Copies are the same page. The doorbells made from it borrow nothing: whoever unmaps the page first drops all of
/// them, which [`new`](Self::new) makes its caller promise.
#[derive(Clone, Copy)]
pub struct UarPage(NonNull<Registers>);

// SAFETY: the page is device registers (or plain memory in tests), stored to by volatile accesses that any thread may
// make; the promise of `new` keeps it mapped.
unsafe impl Send for UarPage {}
// SAFETY: as above; no method loads, and a store of one thread cannot tear another's.
unsafe impl Sync for UarPage {}

impl fmt::Debug for UarPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UarPage({:p})", self.0)
    }
}

/// One BlueFlame register of a [`UarPage`]: its two buffers.
///
/// Borrows nothing, as the page does not: `UarPage::new`'s promise covers it.
#[derive(Clone, Copy)]
pub(crate) struct Register {
    buffers: NonNull<[BlueFlameBuffer; 2]>,
    number: usize,
}

// SAFETY: as for `UarPage`, whose part it is.
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
    /// The page that starts at `address`.
    ///
    /// # Safety
    /// `address` is aligned to 64 bytes (a page of the BAR always is), and the [`UAR_PAGE`] bytes from it are mapped,
    /// writable, and stay so until the last copy of this page and of every doorbell made from it is gone. They are a
    /// UAR's registers, or memory that nothing in this process reads or writes other than by volatile or atomic
    /// accesses.
    pub unsafe fn new(address: NonNull<u8>) -> Self {
        UarPage(address.cast())
    }

    /// BlueFlame register `register`, modulo their number.
    pub(crate) fn blue_flame(&self, register: usize) -> Register {
        let number = register % BLUE_FLAME_REGISTERS;
        Register { buffers: NonNull::from(&self.registers().blue_flame[number]), number }
    }

    #[inline(always)]
    pub(crate) fn registers(&self) -> &Registers {
        // SAFETY: mapped and aligned by the promise of `new`. A shared reference to interior-mutable cells (volatile
        // cells are `UnsafeCell`s) asserts nothing about their content; the plain dwords between them are never read.
        unsafe { self.0.as_ref() }
    }
}
