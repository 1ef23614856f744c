//! How much of a benchmark runs.

/// Extent of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Full.
    Full,
    /// Short: only checks that it works.
    Short,
}

impl Extent {
    /// Numbers of queue pairs, in order.
    pub fn queue_pairs(self) -> &'static [usize] {
        match self {
            Extent::Full => &[1, 16, 256, 4096, 16384],
            Extent::Short => &[1, 16],
        }
    }
}
