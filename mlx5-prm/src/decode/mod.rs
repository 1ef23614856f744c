//! Printing and walking any layout by its table, and detection of bits that no field covers.
//!
//! ```
//! use mlx5_prm::cmd::CreateCqIn;
//! use mlx5_prm::ctx::Cqc;
//! use mlx5_prm::decode;
//! use mlx5_prm::layout::Layout;
//!
//! let mut context = Cqc::default();
//! context.w().log_cq_size(7).uar_page(0x21);
//! let mut create = CreateCqIn::default();
//! create.w().cq_context(&context);
//!
//! let text = decode::command_input(create.as_bytes()).unwrap().to_string();
//! assert_eq!(text, "\
//! create_cq_in, 0x110 bytes
//!   0x0000 [31:16] opcode = CREATE_CQ (0x400)
//!   0x0010         cq_context
//!   0x001c [28:24]   log_cq_size = 0x7
//!   0x001c [23:0]    uar_page = 0x21
//! ");
//! ```
//!
//! Nothing here panics, whatever the bytes.

mod dump;
mod text;
mod walk;

pub use dump::{Dump, Uncovered, all_uncovered, uncovered};
pub use walk::Found;

use crate::cmd::{self, InputHeader, Opcode};
use crate::cqe::{Cqe, CqeOpcode, ErrorCqe, SignatureErrorCqe};
use crate::eqe::Eqe;
use crate::layout::{Info, Layout};

/// A firmware command's input, decoded by its opcode; `None` if this crate has no layout for it.
pub fn command_input(bytes: &[u8]) -> Option<Dump<'_>> {
    let command = cmd::find(InputHeader::read(bytes)?.opcode())?;
    Some(Dump::new(command.input, bytes))
}

/// A firmware command's output, decoded by its input, of which 16 bytes are enough; `None` if this crate has no layout
/// for it.
pub fn command_output_to<'a>(input: &[u8], bytes: &'a [u8]) -> Option<Dump<'a>> {
    let command = cmd::find(InputHeader::read(input)?.opcode())?;
    let dump = Dump::new(command.output, bytes);
    Some(match command.told.and_then(|(field, choice)| Some((field, choice(input, 0)?))) {
        Some((field, info)) => dump.knowing(field, info),
        None => dump,
    })
}

/// A firmware command's output, decoded by opcode and `op_mod` alone; `None` if this crate has no layout for it.
pub fn command_output(opcode: Opcode, op_mod: u16, bytes: &[u8]) -> Option<Dump<'_>> {
    let mut header = InputHeader::default();
    header.w().opcode(opcode).op_mod(op_mod);
    command_output_to(header.as_bytes(), bytes)
}

/// An event queue entry, with its data decoded by its type; `None` if there are too few bytes.
pub fn event(bytes: &[u8]) -> Option<Dump<'_>> {
    Eqe::read(bytes).map(|_| Dump::new(&Eqe::INFO, bytes))
}

/// A completion queue entry of 64 bytes, with or without error; `None` if there are too few bytes.
pub fn completion(bytes: &[u8]) -> Option<Dump<'_>> {
    Some(match Cqe::read(bytes)?.opcode() {
        CqeOpcode::RequesterError | CqeOpcode::ResponderError => Dump::new(&ErrorCqe::INFO, bytes),
        CqeOpcode::SignatureError => Dump::new(&SignatureErrorCqe::INFO, bytes),
        _ => Dump::new(&Cqe::INFO, bytes),
    })
}

/// Calls `visit` for every field of the layout that is inside `bytes`, outermost first; stops at an error of `visit`.
pub fn walk<E>(info: &Info, bytes: &[u8], visit: &mut dyn FnMut(Found<'_>) -> Result<(), E>) -> Result<(), E> {
    Dump::new(info, bytes).walk(visit)
}
