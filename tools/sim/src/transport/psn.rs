//! Packet sequence numbers: 24 bits, compared modulo 2^24. IBTA 9.2.

/// A packet sequence number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Psn(u32);

impl Psn {
    /// Bits of a PSN.
    pub const MASK: u32 = 0xff_ffff;

    /// The PSN of the low 24 bits of `number`.
    pub const fn new(number: u32) -> Self {
        Psn(number & Self::MASK)
    }

    /// As a number of 24 bits.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The PSN `count` after this one.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Psn::new(self.0.wrapping_add(count))
    }

    /// The PSN before this one.
    #[must_use]
    pub const fn previous(self) -> Self {
        Psn::new(self.0.wrapping_sub(1))
    }

    /// Signed distance from `other` to this PSN, modulo 2^24: negative if this one is before `other`, also at exactly
    /// half the PSN space.
    pub const fn after(self, other: Psn) -> i32 {
        // Shifted up to the sign bit and back down, so that the subtraction wraps at 24 bits.
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_goes_round_the_circle() {
        assert_eq!(Psn::new(0).after(Psn::new(0xff_ffff)), 1);
        assert_eq!(Psn::new(0xff_fffe).after(Psn::new(1)), -3);
        assert_eq!(Psn::new(5).after(Psn::new(5)), 0);
        assert_eq!(Psn::new(0x80_0000).after(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0xff_ffff).plus(2), Psn::new(1));
        assert_eq!(Psn::new(0).previous(), Psn::new(0xff_ffff));
    }
}
