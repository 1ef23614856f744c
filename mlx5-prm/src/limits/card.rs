//! What a card announces, and what of a command breaks it.

use alloc::string::String;
use core::fmt;

use crate::caps::CapPage;
use crate::cmd::Opcode;

/// What a card announces; `None` for what is not known, which is not checked. A function of page and name is a card of
/// which only what is in force is known.
pub trait Card {
    /// A capability in force, by its PRM name, nested layouts as `outer.inner`.
    fn current(&self, page: CapPage, name: &str) -> Option<u64>;

    /// The most the card can.
    fn max(&self, page: CapPage, name: &str) -> Option<u64> {
        let _ = (page, name);
        None
    }
}

impl<F: Fn(CapPage, &str) -> Option<u64>> Card for F {
    fn current(&self, page: CapPage, name: &str) -> Option<u64> {
        self(page, name)
    }
}

/// A field that breaks a limit of the card. Its display names both, with both numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The command.
    pub opcode: Opcode,
    /// The field of the input, nested layouts as `outer.inner`; `opcode` for the command itself.
    pub field: String,
    /// The capability, nested layouts as `outer.inner`; another field where the command contradicts itself.
    pub capability: String,
    /// Where that limit is to be read.
    pub source: &'static str,
    pub(super) words: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
