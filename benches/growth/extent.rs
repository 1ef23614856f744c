//! How much of a benchmark runs.

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    Full,
    /// Enough to see that it works.
    Short,
}

impl Extent {
    /// How many queue pairs there are, one after the other.
    pub fn queue_pairs(self) -> &'static [usize] {
        match self {
            Extent::Full => &[1, 16, 256, 4096, 16384],
            Extent::Short => &[1, 16],
        }
    }
}
