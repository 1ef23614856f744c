//! A command's input, checked: length, reserved bits, room for the output. What a handler answers.

use mlx5_prm::cmd::Command;
use mlx5_prm::decode::uncovered;
use mlx5_prm::layout::Layout;

use super::syndromes::Syndrome;

/// Why a command does not get its output now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It never will.
    Refused(Syndrome),
    /// The driver was asked for pages, and the command is to be tried again. Nothing was changed.
    PagesNeeded,
}

impl From<Syndrome> for Stop {
    fn from(syndrome: Syndrome) -> Self {
        Stop::Refused(syndrome)
    }
}

/// What a handler returns.
pub(super) type Answer<T> = Result<T, Stop>;

/// A command's input and the room for its output.
pub(super) struct Request<'a> {
    /// The input; `uid` is cleared.
    pub input: &'a [u8],
    /// Bytes of room for the output.
    pub room: usize,
}

impl Request<'_> {
    /// The fixed part, when the input is long enough, no reserved bit is set and there is room for the output.
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
        if self.room < C::Out::SIZE {
            return Err(Syndrome::OutputTooShort.into());
        }
        Ok(command)
    }

    /// What follows the fixed part.
    pub fn tail<C: Layout>(&self) -> &[u8] {
        self.input.get(C::SIZE..).unwrap_or_default()
    }
}

/// Refuses a command for another function: this one has no rights over others.
pub(super) fn own_function(function_id: u16, other: bool) -> Result<(), Syndrome> {
    if function_id != 0 || other { Err(Syndrome::OtherFunction) } else { Ok(()) }
}
