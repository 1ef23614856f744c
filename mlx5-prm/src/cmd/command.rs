//! What every command is: an input tied to its output, and what all inputs and all outputs begin with.

use alloc::vec::Vec;

use zerocopy::IntoBytes;

use super::{CmdStatus, Opcode};
use crate::layout::{Choice, Info, Kind, Layout, Reading};

layout! {
    /// What every command's input starts with. PRM "Command Reference".
    pub struct InputHeader: 0x10, "none" {
        0x00 [31:16] opcode: Opcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// What every command's output starts with. PRM "Command Reference".
    pub struct OutputHeader: 0x10, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

/// A firmware command's input, which knows its output.
pub trait Command {
    /// Its number.
    const OPCODE: Opcode;
    /// What firmware answers.
    type Out: Reply;

    /// The fixed part of the input.
    fn head(&self) -> &[u8];

    /// What follows the fixed part; empty for most commands.
    fn tail(&self) -> &[u8] {
        &[]
    }

    /// How many bytes of output to make room for.
    fn out_len(&self) -> usize {
        Self::Out::FIXED_LEN
    }
}

/// A firmware command's output.
pub trait Reply: Sized {
    /// Bytes of the fixed part.
    const FIXED_LEN: usize;

    /// From the bytes firmware wrote; `None` if they are too few.
    fn from_output(bytes: &[u8]) -> Option<Self>;
}

impl<L: Layout> Reply for L {
    const FIXED_LEN: usize = L::SIZE;

    fn from_output(bytes: &[u8]) -> Option<Self> {
        L::read(bytes)
    }
}

/// A command with a list after its fixed part.
#[derive(Debug, Clone)]
pub struct WithTail<C, T> {
    /// The fixed part.
    pub command: C,
    /// The list.
    pub tail: Vec<T>,
    /// Elements to make room for in the output's list.
    pub out_tail: usize,
}

impl<C: Command, T> WithTail<C, T> {
    /// `command` followed by `tail`.
    pub fn new(command: C, tail: Vec<T>) -> Self {
        WithTail { command, tail, out_tail: 0 }
    }
}

/// An output with bytes after its fixed part.
#[derive(Debug, Clone)]
pub struct ReplyWithTail<L> {
    /// The fixed part.
    pub reply: L,
    /// All bytes after it.
    pub tail: Vec<u8>,
}

impl<L: Layout> Reply for ReplyWithTail<L> {
    const FIXED_LEN: usize = L::SIZE;

    fn from_output(bytes: &[u8]) -> Option<Self> {
        Some(ReplyWithTail { reply: L::read(bytes)?, tail: bytes[L::SIZE..].to_vec() })
    }
}

impl<C, T> Command for WithTail<C, T>
where
    C: Command,
    C::Out: Layout,
    T: IntoBytes + zerocopy::Immutable,
{
    const OPCODE: Opcode = C::OPCODE;
    type Out = ReplyWithTail<C::Out>;

    fn head(&self) -> &[u8] {
        self.command.head()
    }

    fn tail(&self) -> &[u8] {
        self.tail.as_slice().as_bytes()
    }

    fn out_len(&self) -> usize {
        self.command.out_len() + self.out_tail * size_of::<T>()
    }
}

/// One command, for tools that explain it.
#[derive(Debug, Clone, Copy)]
pub struct CommandInfo {
    /// Its number.
    pub opcode: Opcode,
    /// Its input, without a tail.
    pub input: &'static Info,
    /// Its output, without a tail.
    pub output: &'static Info,
    /// A field of the output, or the list at its end, whose layout only the input tells; and how it tells.
    pub told: Option<(&'static str, Choice)>,
}

impl CommandInfo {
    /// The PRM's name of what an `op_mod` asks of this command, where it has one.
    pub fn op_mod_name(&self, op_mod: u16) -> Option<&'static str> {
        match self.input.field("op_mod")?.kind {
            Kind::Bits { reading: Reading::Named(name), .. } => name(op_mod.into()),
            _ => None,
        }
    }
}

/// Ties each command's opcode to its input and its output. `{ field: function }` names the [`Choice`] that tells from
/// the input which layout lies in a field of the output.
macro_rules! commands {
    ($( $opcode:ident: $In:ident => $Out:ident $({ $field:ident: $choice:path })? ),* $(,)?) => {
        $(
            impl $crate::cmd::Command for $In {
                const OPCODE: $crate::cmd::Opcode = $crate::cmd::Opcode::$opcode;
                type Out = $Out;

                fn head(&self) -> &[u8] {
                    $crate::layout::Layout::as_bytes(self)
                }
            }
        )*

        /// What this module declares.
        pub(crate) const COMMANDS: &[$crate::cmd::CommandInfo] = &[ $( $crate::cmd::CommandInfo {
            opcode: $crate::cmd::Opcode::$opcode,
            input: &<$In as $crate::layout::Layout>::INFO,
            output: &<$Out as $crate::layout::Layout>::INFO,
            told: $crate::cmd::command::told!($(stringify!($field), $choice)?),
        } ),* ];
    };
}
pub(super) use commands;

macro_rules! told {
    () => {
        None
    };
    ($field:expr, $choice:path) => {
        Some(($field, $choice))
    };
}
pub(super) use told;
