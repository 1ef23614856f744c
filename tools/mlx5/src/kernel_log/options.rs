//! What to show of a log, and what it held.

/// What to show, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Fields that are zero too.
    pub all: bool,
    /// One JSON object a command and line.
    pub json: bool,
    /// Only commands that failed, or that nobody answered.
    pub failed: bool,
    /// Only commands with these numbers; all if there are none.
    pub opcodes: Vec<u16>,
}

/// What a log held, commands that [`Options`] left out included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lines read.
    pub lines: u64,
    /// Commands found.
    pub commands: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those whose output the log does not hold.
    pub unanswered: u64,
    /// Things wrong with what the commands carry: tokens, signatures, lengths, bits no field covers.
    pub problems: u64,
    /// Lines that look like bytes of a command, but of none that was announced.
    pub stray: u64,
}
