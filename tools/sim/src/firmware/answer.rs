//! Checks of a command's input: length, reserved bits, room for the output. The result type of handlers. PRM "Command
//! Interface".
//!
//! Layouts grow from one edition of the PRM to the next, and cards serve old drivers: missing bytes at the end of an
//! input without a list are zero, and an output without a list is cut to the driver's length. Strict mode reports both,
//! unless an older edition of the command is known to have that length.

use mlx5_prm::cmd::{Command, Opcode};
use mlx5_prm::decode::uncovered;
use mlx5_prm::layout::Layout;

use super::syndromes::Syndrome;
use crate::function::Function;
use crate::strict::{Strict, rules};

/// Why a command has no output now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The command is refused.
    Refused(Syndrome),
    /// The driver was asked for pages, for a context of that many bytes; the command is retried once they are there.
    /// Nothing was changed.
    PagesNeeded(u64),
}

impl From<Syndrome> for Stop {
    fn from(syndrome: Syndrome) -> Self {
        Stop::Refused(syndrome)
    }
}

/// What a handler returns.
pub(super) type Answer<T> = Result<T, Stop>;

/// Bytes that every input, and every output, has at least.
const SHORTEST: usize = 0x10;
/// Inputs that older editions of a command have. `INIT_HCA` got its `sw_owner_id` after the first headers.
const OLDER_INPUTS: &[(Opcode, usize)] = &[(Opcode::InitHca, SHORTEST)];
/// Outputs that older editions of a command have. That of `QUERY_QP` ended with the context, before the pages; libmlx5
/// asks so.
const OLDER_OUTPUTS: &[(Opcode, usize)] = &[(Opcode::QueryQp, 0x110)];

/// A command's input and the room for its output.
pub(super) struct Request<'a> {
    /// The input, with `uid` cleared.
    pub input: &'a [u8],
    /// Bytes of room for the output.
    pub room: usize,
}

impl Request<'_> {
    /// The input of a command without a list, whatever its edition: with zeros for what it lacks.
    pub fn of_any_edition<C>(&self, strict: &Strict) -> Answer<C>
    where
        C: Command + Layout,
        C::Out: Layout,
    {
        if self.input.len() < C::SIZE.min(SHORTEST) {
            return Err(Syndrome::InputTooShort.into());
        }
        if self.input.len() < C::SIZE && !OLDER_INPUTS.contains(&(C::OPCODE, self.input.len())) {
            strict.report(rules::INPUT_SHORT, || {
                format!("{}: {:#x} bytes, its layout has {:#x}", C::OPCODE, self.input.len(), C::SIZE)
            });
        }
        let mut input = self.input.to_vec();
        input.resize(input.len().max(C::SIZE), 0);
        Request { input: &input, room: self.room.max(if self.room < SHORTEST { 0 } else { C::Out::SIZE }) }.fixed()
    }

    /// Strict mode's word about an output that the driver has too little room for. Capability pages grow with each
    /// generation of cards, and a driver cannot know of those after it.
    pub fn check_cut(&self, opcode: Opcode, output: &[u8], strict: &Strict) {
        let cut = output.get(self.room..).unwrap_or_default();
        if opcode != Opcode::QueryHcaCap && cut.iter().any(|byte| *byte != 0) {
            strict.report(rules::OUTPUT_CUT, || {
                format!("{opcode}: room for {:#x} bytes, the output has {:#x}", self.room, output.len())
            });
        }
    }

    /// The fixed part, if the input is long enough, no reserved bit is set, and the output fits.
    pub fn fixed<C>(&self) -> Answer<C>
    where
        C: Command + Layout,
        C::Out: Layout,
    {
        let command = C::read(self.input).ok_or(Syndrome::InputTooShort)?;
        if let Some(bits) = uncovered(&C::INFO, self.input) {
            tracing::debug!("{}: reserved bits {:#x} of dword {:#x} are set", C::OPCODE, bits.bits, bits.offset);
            return Err(Syndrome::ReservedSet.into());
        }
        if self.room < C::Out::SIZE && !OLDER_OUTPUTS.contains(&(C::OPCODE, self.room)) {
            return Err(Syndrome::OutputTooShort.into());
        }
        Ok(command)
    }

    /// What follows the fixed part.
    pub fn tail<C: Layout>(&self) -> &[u8] {
        self.input.get(C::SIZE..).unwrap_or_default()
    }
}

/// As [`own_function`], where a command says whether its function is one of the card's own processor.
pub(super) fn own_or_embedded(f: &Function, function_id: u16, embedded: bool) -> Result<(), Syndrome> {
    own_function(function_id, embedded != f.nic.profile.embedded_cpu)
}

/// Refuses a command for another function: this function may not manage others.
pub(super) fn own_function(function_id: u16, other: bool) -> Result<(), Syndrome> {
    if function_id != 0 || other { Err(Syndrome::OtherFunction) } else { Ok(()) }
}
