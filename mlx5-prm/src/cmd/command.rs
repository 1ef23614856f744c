//! Traits of commands and replies, and the headers that all inputs and outputs start with.

use alloc::vec::Vec;

use zerocopy::IntoBytes;

use super::{CmdStatus, Opcode};
use crate::layout::{Choice, Info, Kind, Layout, Reading};

layout! {
    /// Start of every command's input. PRM "Command Reference".
    pub struct InputHeader: 0x10, "none" {
        0x00 [31:16] opcode: Opcode,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Start of every command's output. PRM "Command Reference".
    pub struct OutputHeader: 0x10, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

/// A firmware command's input.
pub trait Command {
    /// Opcode.
    const OPCODE: Opcode;
    /// The output.
    type Out: Reply;

    /// The fixed part of the input.
    fn head(&self) -> &[u8];

    /// The bytes after the fixed part; empty for most commands.
    fn tail(&self) -> &[u8] {
        &[]
    }

    /// Bytes of output to allocate.
    fn out_len(&self) -> usize {
        Self::Out::FIXED_LEN
    }
}

/// A firmware command's output.
pub trait Reply: Sized {
    /// Bytes of the fixed part.
    const FIXED_LEN: usize;

    /// Reads the output of firmware; `None` if there are too few bytes.
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
    /// Elements to allocate for the output's list.
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

/// Description of a command, for tools.
#[derive(Debug, Clone, Copy)]
pub struct CommandInfo {
    /// Opcode.
    pub opcode: Opcode,
    /// Input layout, without a list.
    pub input: &'static Info,
    /// Output layout, without a list.
    pub output: &'static Info,
    /// A field or list of the output whose layout the input chooses, and the function that chooses it.
    pub told: Option<(&'static str, Choice)>,
}

impl CommandInfo {
    /// The PRM's name of an `op_mod` of this command, if it has one.
    pub fn op_mod_name(&self, op_mod: u16) -> Option<&'static str> {
        match self.input.field("op_mod")?.kind {
            Kind::Bits { reading: Reading::Named(name), .. } => name(op_mod.into()),
            _ => None,
        }
    }
}

/// Connects opcodes, inputs and outputs. `{ field: function }` names the [`Choice`] that chooses the layout of an
/// output field by the input.
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

        /// The commands of this module.
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
