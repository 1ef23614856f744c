//! Any layout, from its table alone: print it, walk its fields, find bits that no field covers.
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
//! Nothing here panics, whatever the bytes and however few.

use core::ops::ControlFlow;

mod text;
mod walk;

#[doc(hidden)]
pub use text::debug;
use walk::{Item, What};

use crate::cmd::{self, InputHeader, Opcode};
use crate::cqe::{Cqe, CqeOpcode, ErrorCqe, SignatureErrorCqe};
use crate::eqe::Eqe;
use crate::layout::{Element, Field, Info, Kind, Layout, Reading};

/// Bytes as a layout, to be displayed: one line a field, with offset and bits as the PRM prints them, nested layouts
/// indented, named values by name. Bits that are set though no field covers them, and bytes after the layout, follow.
#[derive(Debug, Clone, Copy)]
pub struct Dump<'a> {
    info: &'a Info,
    bytes: &'a [u8],
    zeros: bool,
    known: Option<(&'static str, &'static Info)>,
}

impl<'a> Dump<'a> {
    /// The fields of `bytes` that are not zero.
    pub fn new(info: &'a Info, bytes: &'a [u8]) -> Self {
        Dump { info, bytes, zeros: false, known: None }
    }

    /// `layout`, whatever it is.
    pub fn of<L: Layout>(layout: &'a L) -> Self {
        Dump::new(&L::INFO, Layout::as_bytes(layout))
    }

    /// The zero fields too.
    pub fn with_zeros(self) -> Self {
        Dump { zeros: true, ..self }
    }

    /// Reads `field`, an array of bytes in the layout, as `info`: which layout lies there is told by something else,
    /// such as an `op_mod`.
    pub fn knowing(self, field: &'static str, info: &'static Info) -> Self {
        Dump { known: Some((field, info)), ..self }
    }

    /// Which layout the bytes are read as.
    pub fn info(&self) -> &'a Info {
        self.info
    }

    /// The bytes after the layout that no list of it explains.
    pub fn tail(&self) -> &'a [u8] {
        if self.info.has_list() {
            return &[];
        }
        self.bytes.get(self.info.size..).unwrap_or_default()
    }

    /// Calls `visit` with every field that lies within the bytes, zero or not, as [`walk`] does.
    pub fn walk<E>(&self, visit: &mut dyn FnMut(Found<'_>) -> Result<(), E>) -> Result<(), E> {
        let walked = self.each(&mut |item| {
            let Item { field, index, offset, depth, what } = item;
            let visited = match what {
                What::Number(number) => visit(Found { field, index, offset, depth, number: Some(number) }),
                What::Layout(..) => visit(Found { field, index, offset, depth, number: None }),
                What::Bytes(bytes) | What::Union(_, bytes) => bytes.iter().enumerate().try_for_each(|(i, byte)| {
                    let (index, number) = (Some(i), Some(u64::from(*byte)));
                    visit(Found { field, index, offset: offset + i, depth, number })
                }),
            };
            match visited {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        });
        match walked {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }
}

/// The input of a firmware command, decoded by its opcode; `None` for a command without a layout here.
pub fn command_input(bytes: &[u8]) -> Option<Dump<'_>> {
    let command = cmd::find(InputHeader::read(bytes)?.opcode())?;
    Some(Dump::new(command.input, bytes))
}

/// The output of a firmware command, decoded by its input, of which the first sixteen bytes are enough; `None` for a
/// command without a layout here.
pub fn command_output_to<'a>(input: &[u8], bytes: &'a [u8]) -> Option<Dump<'a>> {
    let command = cmd::find(InputHeader::read(input)?.opcode())?;
    let dump = Dump::new(command.output, bytes);
    Some(match command.told.and_then(|(field, choice)| Some((field, choice(input, 0)?))) {
        Some((field, info)) => dump.knowing(field, info),
        None => dump,
    })
}

/// The output of the firmware command with this opcode and `op_mod`, where no more of the input is at hand; `None` for
/// a command without a layout here.
pub fn command_output(opcode: Opcode, op_mod: u16, bytes: &[u8]) -> Option<Dump<'_>> {
    let mut header = InputHeader::default();
    header.w().opcode(opcode).op_mod(op_mod);
    command_output_to(header.as_bytes(), bytes)
}

/// An event queue's entry, with its data as its type says; `None` if the bytes are too few.
pub fn event(bytes: &[u8]) -> Option<Dump<'_>> {
    Eqe::read(bytes).map(|_| Dump::new(&Eqe::INFO, bytes))
}

/// A completion queue's entry of 64 bytes, with or without error; `None` if the bytes are too few.
pub fn completion(bytes: &[u8]) -> Option<Dump<'_>> {
    Some(match Cqe::read(bytes)?.opcode() {
        CqeOpcode::RequesterError | CqeOpcode::ResponderError => Dump::new(&ErrorCqe::INFO, bytes),
        CqeOpcode::SignatureError => Dump::new(&SignatureErrorCqe::INFO, bytes),
        _ => Dump::new(&Cqe::INFO, bytes),
    })
}

/// A field met on a walk: where it lies, and what it holds.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The field's row.
    pub field: &'a Field,
    /// Which element of an array, if it is one.
    pub index: Option<usize>,
    /// Byte offset of the field's dword in the outermost layout.
    pub offset: usize,
    /// Nesting depth: 0 for the outermost layout's own fields.
    pub depth: usize,
    /// The number it holds; `None` where a nested layout begins.
    pub number: Option<u64>,
}

impl Found<'_> {
    /// The PRM's name of the number, where its field has named values.
    pub fn value_name(&self) -> Option<&'static str> {
        match self.field.kind {
            Kind::Bits { reading: Reading::Named(name), .. } => name(self.number?),
            _ => None,
        }
    }
}

/// Calls `visit` with every field of the layout that lies within `bytes`, outermost first; returns early when `visit`
/// fails. For programs; [`Dump`] is for people.
pub fn walk<E>(info: &Info, bytes: &[u8], visit: &mut dyn FnMut(Found<'_>) -> Result<(), E>) -> Result<(), E> {
    Dump::new(info, bytes).walk(visit)
}

/// The bits of one dword that are set although no field covers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uncovered {
    /// Byte offset of the dword.
    pub offset: usize,
    /// The set bits, in their places.
    pub bits: u32,
}

/// The first dword of `bytes` that holds a set bit no field of the layout covers. Bytes past the layout's end are not
/// looked at: they are a tail.
pub fn uncovered(info: &Info, bytes: &[u8]) -> Option<Uncovered> {
    all_uncovered(info, bytes).next()
}

/// Every dword as in [`uncovered`].
pub fn all_uncovered(info: &Info, bytes: &[u8]) -> impl Iterator<Item = Uncovered> {
    let own = &bytes[..info.size.min(bytes.len())];
    let dwords = own.chunks_exact(4).enumerate().filter(|(_, dword)| !is_zero(dword));
    dwords.filter_map(|(i, dword)| {
        let bits = big_endian(dword) as u32 & !covered(info, i * 4);
        (bits != 0).then_some(Uncovered { offset: i * 4, bits })
    })
}

/// Which bits of the dword at `offset` some field covers.
fn covered(info: &Info, offset: usize) -> u32 {
    let dword = offset * 8;
    let of_field = |field: &Field| {
        let start = field.start_bit().max(dword);
        let end = (field.start_bit() + field.bits()).min(dword + 32);
        match field.kind {
            _ if start >= end => 0,
            Kind::Part { element: Element::Layout(inner), .. } => covered(inner, (offset - field.offset) % inner.size),
            _ => (u64::from(u32::MAX) >> (start - dword) & !(u64::from(u32::MAX) >> (end - dword))) as u32,
        }
    };
    info.fields.iter().map(of_field).fold(0, |all, bits| all | bits)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
