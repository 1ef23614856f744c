//! Doorbells of completion and event queues. PRM "CQ Doorbell", "EQ Doorbell".

use crate::barrier;
use crate::mmio::{Registers, UarPage};

/// An arm request: the dword of the CQ's doorbell record and doorbell.
///
/// ```text
/// [29:28] cmd_sn  number of events consumed, modulo 4: the card ignores a request that it has already served
/// [24]    cmd     0 the next completion, 1 the next solicited one or the next error
/// [23:0]  ci      consumer index: a completion after this index raises the event
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm(u32);

impl Arm {
    /// Any completion after the first `consumed`; `events` were consumed so far.
    pub fn next(consumed: u32, events: u32) -> Self {
        Arm((events & 3) << 28 | consumed & 0xff_ffff)
    }

    /// A solicited completion or an error after the first `consumed`; `events` were consumed so far.
    pub fn solicited(consumed: u32, events: u32) -> Self {
        Arm(Arm::next(consumed, events).0 | 1 << 24)
    }

    pub(crate) fn dword(self) -> u32 {
        self.0
    }

    /// The doorbell that arms CQ `cqn`, for a UAR page that cannot be mapped: write it to offset 0x20.
    pub fn doorbell(self, cqn: u32) -> u64 {
        u64::from(self.0) << 32 | u64::from(cqn & 0xff_ffff)
    }
}

/// Arms completion queues.
#[derive(Debug)]
pub struct CqDoorbell(UarPage);

impl CqDoorbell {
    /// Offset of the register in its page.
    pub const OFFSET: usize = 0x20;

    /// The register of `page`.
    pub fn new(page: UarPage) -> Self {
        CqDoorbell(page)
    }

    /// Notifies the card of the arm request in the doorbell record of CQ `cqn`.
    ///
    /// The page may be uncached or write-combining: arming is rare (once per sleep), so both fences are executed.
    #[inline]
    pub fn arm(&mut self, cqn: u32, arm: Arm) {
        barrier::before_wc();
        self.0.registers().cq.store(arm.doorbell(cqn));
        barrier::flush_wc();
    }
}

/// Doorbells of event queues. Their page need not be mapped: then the function's owner writes [values](Self::value)
/// like its other registers.
#[derive(Debug)]
pub struct EqDoorbell(UarPage);

impl EqDoorbell {
    /// The registers of `page`, which is uncached.
    pub fn new(page: UarPage) -> Self {
        EqDoorbell(page)
    }

    /// Tells the card that `counter` entries of EQ `eqn` were consumed in total.
    pub fn update(&mut self, eqn: u8, counter: u32) {
        self.0.registers().eq.store(EqDoorbell::value(eqn, counter));
    }

    /// As [`update`](Self::update), and requests an interrupt for the next entry.
    pub fn arm(&mut self, eqn: u8, counter: u32) {
        self.0.registers().eq_arm.store(EqDoorbell::value(eqn, counter));
    }

    /// Offset of the register that updates a consumer index and arms.
    pub const ARM_OFFSET: usize = 0x40;
    /// Offset of the register that updates a consumer index.
    pub const OFFSET: usize = 0x48;

    /// The dword for EQ `eqn` after `counter` entries consumed in total.
    pub fn value(eqn: u8, counter: u32) -> u32 {
        u32::from(eqn) << 24 | counter & 0xff_ffff
    }
}

const _: () = {
    assert!(core::mem::offset_of!(Registers, cq) == CqDoorbell::OFFSET);
    assert!(core::mem::offset_of!(Registers, eq_arm) == EqDoorbell::ARM_OFFSET);
    assert!(core::mem::offset_of!(Registers, eq) == EqDoorbell::OFFSET);
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::tests::Page;

    #[test]
    fn cq_doorbell_is_one_quadword_at_0x20() {
        let page = Page::new();
        CqDoorbell::new(page.uar()).arm(0x43, Arm::next(0x1_000005, 6));
        assert_eq!(page.quadword(CqDoorbell::OFFSET), 0x2000_0005_0000_0043);
        assert_eq!(page.written(), [0x20]);
    }

    #[test]
    fn eq_doorbells_carry_the_queue_and_24_bits_of_its_counter() {
        assert_eq!(EqDoorbell::value(3, 0x0100_0002), 0x0300_0002);
        let page = Page::new();
        EqDoorbell::new(page.uar()).update(3, 0x0100_0002);
        EqDoorbell::new(page.uar()).arm(4, 5);
        assert_eq!(page.quadword(EqDoorbell::ARM_OFFSET) >> 32, 0x0400_0005);
        assert_eq!(page.quadword(EqDoorbell::OFFSET) >> 32, 0x0300_0002);
    }
}
