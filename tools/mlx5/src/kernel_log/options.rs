//! Options of decoding, and the summary of a log.

/// What to print, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Include zero fields.
    pub all: bool,
    /// Print JSON, one object per line and command.
    pub json: bool,
    /// Only commands that failed, or have no output.
    pub failed: bool,
    /// Only these opcodes; all if empty.
    pub opcodes: Vec<u16>,
}

/// Summary of a log, including commands that [`Options`] excluded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lines read.
    pub lines: u64,
    /// Commands found.
    pub commands: u64,
    /// Failed commands.
    pub failed: u64,
    /// Commands without output in the log.
    pub unanswered: u64,
    /// Inconsistencies: tokens, signatures, lengths, bits that no field covers.
    pub problems: u64,
    /// Hex lines that belong to no command.
    pub stray: u64,
}
