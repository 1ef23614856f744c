//! Send doorbells. PRM "Send Doorbell", "BlueFlame".

use core::fmt;

use crate::barrier;
use crate::mmio::{BLUE_FLAME_BUFFER, BLUE_FLAME_REGISTERS, BlueFlameBuffer, Register, UarPage, Wqebb};

/// Notifies the card of new WQEs in a send queue. One implementation per doorbell mode, chosen when the queue is
/// created.
///
/// The queue has already stored its WQEs and its doorbell record. The implementation orders those before the register
/// store ([`before_doorbell`](barrier::before_doorbell)), and the register store before whatever follows.
pub trait SendDoorbell: Send + fmt::Debug {
    /// Rings with the first eight bytes of the last posted WQE, as a number: dword 0 in the upper half.
    fn ring(&mut self, control: u64);

    /// Rings for exactly one WQE, given as whole blocks, which may be copied to the card so that it need not fetch
    /// them. Valid only if nothing else was posted since the last ring. `control` is the first eight bytes of the WQE,
    /// as for [`ring`](Self::ring). Without blocks the WQE wraps around the ring, and is not copied.
    #[inline(always)]
    fn ring_with(&mut self, control: u64, wqe: &[Wqebb]) {
        let _ = wqe;
        self.ring(control);
    }

    /// Rings, if blocks would not be copied; otherwise does nothing and returns false, and
    /// [`ring_with`](Self::ring_with) or [`ring`](Self::ring) follows. For modes chosen at run time: those that copy
    /// nothing then skip the search for the blocks.
    #[inline(always)]
    fn ring_without(&mut self, control: u64) -> bool {
        let _ = control;
        false
    }
}

impl<D: SendDoorbell + ?Sized> SendDoorbell for alloc::boxed::Box<D> {
    fn ring(&mut self, control: u64) {
        (**self).ring(control);
    }
    fn ring_with(&mut self, control: u64, wqe: &[Wqebb]) {
        (**self).ring_with(control, wqe);
    }
    fn ring_without(&mut self, control: u64) -> bool {
        (**self).ring_without(control)
    }
}

/// The plain doorbell: an 8-byte store to an uncached page. The card fetches the WQE by DMA.
///
/// For pages that are mapped uncached, as VFIO maps a BAR. Not for write-combining pages: they need fences that only
/// [`BlueFlame`] executes.
#[derive(Debug)]
pub struct Plain {
    register: Register,
}

impl Plain {
    /// Offset of BlueFlame register `register` in its page.
    pub const fn offset(register: usize) -> usize {
        0x800 + register % BLUE_FLAME_REGISTERS * 2 * BLUE_FLAME_BUFFER
    }

    /// Register `register` (0 or 1) of `page`, which must be mapped uncached.
    pub fn new(page: UarPage, register: usize) -> Self {
        Plain { register: page.blue_flame(register) }
    }
}

impl SendDoorbell for Plain {
    #[inline(always)]
    fn ring(&mut self, control: u64) {
        barrier::before_doorbell();
        let [buffer, _] = self.register.buffers();
        buffer[0].doorbell().store(control);
    }
}

/// BlueFlame: copies the whole WQE to the register, so that the card need not fetch it. For write-combining pages.
///
/// Alternates between the two buffers of the register, because the card may still read the one written last. For one
/// queue only; queues that share a register use a [`Shared`](crate::Shared) one. It also works on an uncached page, but
/// there every 8 bytes are a PCIe write of their own, and the card falls back to fetching the WQE.
#[derive(Debug)]
pub struct BlueFlame {
    register: Register,
    /// Whether the second buffer is next.
    second: bool,
}

impl BlueFlame {
    /// Register `register` (0 or 1) of `page`.
    pub fn new(page: UarPage, register: usize) -> Self {
        BlueFlame { register: page.blue_flame(register), second: false }
    }

    /// Calls `store` on the next buffer, between the fences that a ring needs.
    #[inline(always)]
    fn turn(&mut self, store: impl FnOnce(&BlueFlameBuffer)) {
        barrier::before_wc();
        store(&self.register.buffers()[usize::from(self.second)]);
        barrier::flush_wc();
        self.second = !self.second;
    }

    /// As [`ring_with`](SendDoorbell::ring_with), by a call: for doorbells that are mostly of another mode, whose code
    /// this one must not make longer.
    #[inline(always)]
    pub fn call_with(&mut self, control: u64, wqe: &[Wqebb]) {
        ring_out_of_line(BlueFlame { register: self.register, second: self.second }, control, wqe);
        self.second = !self.second;
    }
}

/// Rings once.
// By value: with a reference to the queue's doorbell, the compiler would reload the queue's fields.
#[inline(never)]
fn ring_out_of_line(mut doorbell: BlueFlame, control: u64, wqe: &[Wqebb]) {
    doorbell.ring_with(control, wqe);
}

/// Copies the blocks of a WQE, as many as a buffer has at most.
// Written out: a loop would cost as much as the stores.
#[inline(always)]
fn copy([first, second, third, fourth]: &BlueFlameBuffer, wqe: &[Wqebb]) {
    let [block, rest @ ..] = wqe else { return };
    first.store(block);
    let [block, rest @ ..] = rest else { return };
    second.store(block);
    let [block, rest @ ..] = rest else { return };
    third.store(block);
    let [block, ..] = rest else { return };
    fourth.store(block);
}

impl SendDoorbell for BlueFlame {
    #[inline(always)]
    fn ring(&mut self, control: u64) {
        self.turn(|buffer| buffer[0].doorbell().store(control));
    }

    #[inline(always)]
    fn ring_with(&mut self, control: u64, wqe: &[Wqebb]) {
        if wqe.is_empty() || size_of_val(wqe) > BLUE_FLAME_BUFFER {
            return self.ring(control);
        }
        self.turn(|buffer| copy(buffer, wqe));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::cell::UnsafeCell;
    use core::ptr::NonNull;

    #[repr(C, align(4096))]
    struct Memory(UnsafeCell<[u64; 512]>);

    /// Plain memory in place of a UAR page.
    pub(crate) struct Page(Box<Memory>);

    impl Page {
        pub(crate) fn new() -> Self {
            Page(Box::new(Memory(UnsafeCell::new([0; 512]))))
        }

        pub(crate) fn uar(&self) -> UarPage {
            // SAFETY: 4096 bytes, aligned; tests drop their doorbells before the page.
            unsafe { UarPage::new(NonNull::new(self.0.0.get().cast()).unwrap()) }
        }

        /// The big-endian quadword at `offset`.
        pub(crate) fn quadword(&self, offset: usize) -> u64 {
            // SAFETY: inside the page; nothing stores to it during the read.
            u64::from_be(unsafe { self.0.0.get().cast::<u64>().add(offset / 8).read_volatile() })
        }

        /// Offsets of the quadwords that are not zero.
        pub(crate) fn written(&self) -> Vec<usize> {
            (0..4096).step_by(8).filter(|&at| self.quadword(at) != 0).collect()
        }
    }

    const CONTROL: u64 = 0x0000_050a_0000_4303;

    fn wqe(blocks: usize) -> Vec<Wqebb> {
        let mut wqe: Vec<Wqebb> = (0..blocks as u64).map(|i| [(i + 1).to_be(); 8]).collect();
        wqe[0][0] = CONTROL.to_be();
        wqe
    }

    #[test]
    fn plain_stores_the_control_segment_s_first_half_at_its_register() {
        let page = Page::new();
        Plain::new(page.uar(), 0).ring_with(CONTROL, &wqe(2));
        assert_eq!((page.quadword(0x800), page.written()), (CONTROL, [0x800].to_vec()));
        Plain::new(page.uar(), 1).ring(CONTROL);
        assert_eq!(page.quadword(Plain::offset(1)), CONTROL);
        assert_eq!(page.written(), [0x800, 0xa00]);
    }

    #[test]
    fn blue_flame_carries_the_whole_wqe_and_alternates() {
        let page = Page::new();
        let mut doorbell = BlueFlame::new(page.uar(), 0);
        doorbell.ring_with(CONTROL, &wqe(1));
        assert_eq!(page.quadword(0x800), CONTROL);
        assert_eq!(page.written(), (0x800..0x840).step_by(8).collect::<Vec<_>>());
        doorbell.ring_with(CONTROL, &wqe(4));
        assert_eq!(page.quadword(0x900), CONTROL);
        assert_eq!(page.quadword(0x9f8), 4);
        doorbell.ring(7);
        assert_eq!((page.quadword(0x800), page.quadword(0x808)), (7, 1), "buffer 0 again, eight bytes only");
    }

    #[test]
    fn blue_flame_only_rings_for_a_wqe_larger_than_its_buffer() {
        let page = Page::new();
        BlueFlame::new(page.uar(), 1).ring_with(CONTROL, &wqe(5));
        assert_eq!((page.quadword(0xa00), page.written()), (CONTROL, [0xa00].to_vec()));
    }

    #[test]
    fn a_wqe_that_is_not_in_one_piece_is_rung_for_all_the_same() {
        let page = Page::new();
        let mut doorbell = BlueFlame::new(page.uar(), 0);
        doorbell.ring_with(CONTROL, &[]);
        assert_eq!((page.quadword(0x800), page.written()), (CONTROL, [0x800].to_vec()));
        doorbell.ring_with(CONTROL, &[]);
        assert_eq!(page.quadword(0x900), CONTROL);
    }
}
