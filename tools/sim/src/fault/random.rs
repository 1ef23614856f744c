//! A small generator of reproducible pseudo-random numbers (xorshift64*), sufficient for fault injection.

#[derive(Debug)]
pub(crate) struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Random::new(1)
    }
}

impl Random {
    /// Any seed is valid; the same seed gives the same sequence.
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number from 0 to `limit` - 1; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * u64::from(limit)) >> 32) as u32
    }
}
