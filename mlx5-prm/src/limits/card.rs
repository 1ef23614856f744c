//! Capabilities of a card, and violations of them.

use alloc::string::String;
use core::fmt;

use crate::caps::CapPage;
use crate::cmd::Opcode;

/// The capabilities of a card. `None` means unknown, and is not checked. A function of page and name is a card of which
/// only current values are known.
pub trait Card {
    /// Current value of a capability, by its PRM name; nested names are `outer.inner`.
    fn current(&self, page: CapPage, name: &str) -> Option<u64>;

    /// Maximum value of a capability.
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

/// A field that exceeds a capability. Its `Display` names both, with their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The command.
    pub opcode: Opcode,
    /// The field of the input; nested names are `outer.inner`; `opcode` for the command itself.
    pub field: String,
    /// The capability; nested names are `outer.inner`. Another field, if the command contradicts itself.
    pub capability: String,
    /// Source of the limit.
    pub source: &'static str,
    pub(super) words: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
