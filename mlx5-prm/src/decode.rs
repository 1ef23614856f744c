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

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::ops::ControlFlow;

use crate::caps::CapPage;
use crate::cmd::{self, InputHeader, Opcode};
use crate::cqe::{Cqe, CqeOpcode, ErrorCqe};
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

    /// What follows the layout: a list, for the commands that carry one.
    pub fn tail(&self) -> &'a [u8] {
        self.bytes.get(self.info.size..).unwrap_or_default()
    }

    /// Every dword of the layout that holds set bits no field covers, those of a part read by
    /// [`knowing`](Self::knowing) included.
    pub fn uncovered(&self) -> impl Iterator<Item = Uncovered> + use<'a> {
        let own = &self.bytes[..self.info.size.min(self.bytes.len())];
        let known = self.known.and_then(|(name, inner)| Some((self.info.field(name)?.offset, inner)));
        let inside = known.into_iter().flat_map(move |(base, inner)| {
            let part = own.get(base..).unwrap_or_default();
            all_uncovered(inner, part).map(move |found| Uncovered { offset: base + found.offset, ..found })
        });
        all_uncovered(self.info, own).chain(inside)
    }

    /// Calls `visit` with every field that lies within the bytes, zero or not, as [`walk`] does.
    pub fn walk<E>(&self, visit: &mut dyn FnMut(Found<'_>) -> Result<(), E>) -> Result<(), E> {
        let visit = &mut |found: Found<'_>| match visit(found) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        };
        match self.walk_at(self.info, self.bytes, 0, 0, visit) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    fn walk_at<E>(
        &self,
        info: &Info,
        bytes: &[u8],
        base: usize,
        depth: usize,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<E>,
    ) -> ControlFlow<E> {
        for field in info.fields {
            let (element, count) = match field.kind {
                Kind::Bits { .. } => {
                    if let number @ Some(_) = field.number(bytes) {
                        visit(Found { field, index: None, offset: base + field.offset, depth, number })?;
                    }
                    continue;
                }
                Kind::Part { element, count } => self.element(field, element, count, depth),
            };
            for i in 0..count {
                let start = field.offset + i * element.size();
                let Some(part) = bytes.get(start..).filter(|part| !part.is_empty()) else { break };
                let part = &part[..element.size().min(part.len())];
                let found = Found { field, index: (count > 1).then_some(i), offset: base + start, depth, number: None };
                if let Element::Layout(inner) = element {
                    visit(found)?;
                    self.walk_at(inner, part, base + start, depth + 1, visit)?;
                } else if part.len() == element.size() {
                    visit(Found { number: Some(big_endian(part)), ..found })?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn element(&self, field: &Field, element: Element, count: usize, depth: usize) -> (Element, usize) {
        match self.known {
            Some((name, info)) if depth == 0 && name == field.name => (Element::Layout(info), 1),
            _ => (element, count),
        }
    }

    fn fields(&self, f: &mut fmt::Formatter<'_>, info: &Info, bytes: &[u8], base: usize, depth: usize) -> fmt::Result {
        for field in info.fields {
            match field.kind {
                Kind::Bits { hi, lo, reading } => {
                    let Some(number) = field.number(bytes).filter(|n| self.zeros || *n != 0) else { continue };
                    line(f, base + field.offset, Some((hi, lo)), depth, field.name, None)?;
                    writeln!(f, " = {}", Number(number, reading))?;
                }
                Kind::Part { element, count } => {
                    let (element, count) = self.element(field, element, count, depth);
                    if let Element::U8 = element {
                        self.bytes(f, field, bytes.get(field.offset..).unwrap_or_default(), count, base, depth)?;
                        continue;
                    }
                    for i in 0..count {
                        let offset = field.offset + i * element.size();
                        let Some(part) = bytes.get(offset..).filter(|part| !part.is_empty()) else { break };
                        let part = &part[..element.size().min(part.len())];
                        if !self.zeros && is_zero(part) {
                            continue;
                        }
                        let index = (count > 1).then_some(i);
                        if let Element::Layout(inner) = element {
                            line(f, base + offset, None, depth, field.name, index)?;
                            writeln!(f)?;
                            self.fields(f, inner, part, base + offset, depth + 1)?;
                        } else if part.len() == element.size() {
                            line(f, base + offset, None, depth, field.name, index)?;
                            writeln!(f, " = {:#x}", big_endian(part))?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// An array of bytes: text in quotes, else rows of sixteen.
    fn bytes(
        &self,
        f: &mut fmt::Formatter<'_>,
        field: &Field,
        bytes: &[u8],
        count: usize,
        base: usize,
        depth: usize,
    ) -> fmt::Result {
        let bytes = &bytes[..count.min(bytes.len())];
        if let Some(text) = text(bytes) {
            line(f, base + field.offset, None, depth, field.name, None)?;
            return writeln!(f, " = {text:?}");
        }
        for (i, row) in bytes.chunks(16).enumerate().filter(|(_, row)| self.zeros || !is_zero(row)) {
            let index = (bytes.len() > 16).then_some(i * 16);
            line(f, base + field.offset + i * 16, None, depth, field.name, index)?;
            writeln!(f, " = {}", Hex(row))?;
        }
        Ok(())
    }
}

impl fmt::Display for Dump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (info, bytes) = (self.info, self.bytes);
        let own = &bytes[..info.size.min(bytes.len())];
        writeln!(f, "{}, {:#x} bytes", info.prm_name(), bytes.len())?;
        self.fields(f, info, own, 0, 0)?;
        for Uncovered { offset, bits } in self.uncovered() {
            writeln!(f, "  {offset:#06x}         {bits:#010x} set, and no field there")?;
        }
        if bytes.len() < info.size {
            writeln!(f, "  ends early: {} has {:#x} bytes", info.prm_name(), info.size)?;
        }
        for (i, row) in self.tail().chunks(16).enumerate().filter(|(_, row)| self.zeros || !is_zero(row)) {
            line(f, info.size + i * 16, None, 0, "tail", Some(i * 16))?;
            writeln!(f, " = {}", Hex(row))?;
        }
        Ok(())
    }
}

/// The input of a firmware command, decoded by its opcode; `None` for a command without a layout here.
pub fn command_input(bytes: &[u8]) -> Option<Dump<'_>> {
    let header = InputHeader::read(bytes)?;
    let (input, _) = cmd::layout_of_command(header.opcode(), header.op_mod())?;
    Some(knowing_page(Dump::new(input, bytes), header.opcode(), header.op_mod()))
}

/// The output of the firmware command with this opcode and `op_mod`; `None` for a command without a layout here.
pub fn command_output(opcode: Opcode, op_mod: u16, bytes: &[u8]) -> Option<Dump<'_>> {
    let (_, output) = cmd::layout_of_command(opcode, op_mod)?;
    Some(knowing_page(Dump::new(output, bytes), opcode, op_mod))
}

/// An event queue's entry, with its data as its type says; `None` if the bytes are too few.
pub fn event(bytes: &[u8]) -> Option<Dump<'_>> {
    let dump = Dump::new(&Eqe::INFO, bytes);
    Some(match Eqe::read(bytes)?.event_type().layout() {
        Some(data) => dump.knowing("event_data", data),
        None => dump,
    })
}

/// A completion queue's entry of 64 bytes, with or without error; `None` if the bytes are too few.
pub fn completion(bytes: &[u8]) -> Option<Dump<'_>> {
    Some(match Cqe::read(bytes)?.opcode() {
        CqeOpcode::RequesterError | CqeOpcode::ResponderError => Dump::new(&ErrorCqe::INFO, bytes),
        _ => Dump::new(&Cqe::INFO, bytes),
    })
}

/// Which capability page lies in a `QUERY_HCA_CAP` or `SET_HCA_CAP` is in its `op_mod`.
fn knowing_page(dump: Dump<'_>, opcode: Opcode, op_mod: u16) -> Dump<'_> {
    match (opcode, CapPage::from_op_mod(op_mod).layout()) {
        (Opcode::QueryHcaCap | Opcode::SetHcaCap, Some(page)) => dump.knowing("capability", page),
        _ => dump,
    }
}

/// Starts a line: where the field lies, and its name.
fn line(
    f: &mut fmt::Formatter<'_>,
    offset: usize,
    bits: Option<(u32, u32)>,
    depth: usize,
    name: &str,
    index: Option<usize>,
) -> fmt::Result {
    let bits = match bits {
        None => String::new(),
        Some((hi, lo)) if hi == lo => format!("[{hi}]"),
        Some((hi, lo)) => format!("[{hi}:{lo}]"),
    };
    write!(f, "  {offset:#06x} {bits:7} {:indent$}{name}", "", indent = depth * 2)?;
    match index {
        Some(index) => write!(f, "[{index}]"),
        None => Ok(()),
    }
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

/// The bytes as text, if they are a string of at least four printable characters, and then zeros.
fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
    let text = core::str::from_utf8(&bytes[..end]).ok()?;
    (text.len() >= 4 && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())).then_some(text)
}

/// Prints the fields that are not zero on one line: `Eqc { oi: 0x1, log_eq_size: 0x7, .. }`. What `Debug` of every
/// layout does.
#[doc(hidden)]
pub fn debug(info: &Info, bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut line = f.debug_struct(info.name);
    for field in info.fields {
        match field.kind {
            Kind::Bits { reading, .. } => {
                if let Some(number) = field.number(bytes).filter(|n| *n != 0) {
                    line.field(field.name, &Number(number, reading));
                }
            }
            Kind::Part { element, count } => {
                let part = bytes.get(field.offset..field.offset + element.size() * count);
                if let Some(part) = part.filter(|part| !is_zero(part)) {
                    line.field(field.name, &Elements(element, part));
                }
            }
        }
    }
    line.finish_non_exhaustive()
}

/// A number as its field reads.
struct Number(u64, Reading);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Number(number, reading) = *self;
        match reading {
            Reading::Flag => write!(f, "{number}"),
            Reading::Named(name) => match name(number) {
                Some(name) => write!(f, "{name} ({number:#x})"),
                None => write!(f, "{number:#x} (unknown)"),
            },
            Reading::Number => write!(f, "{number:#x}"),
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Reading::Named(name) if name(self.0).is_some() => f.write_str(name(self.0).unwrap_or_default()),
            _ => write!(f, "{:#x}", self.0),
        }
    }
}

/// The elements of a part on one line.
struct Elements<'a>(Element, &'a [u8]);

impl fmt::Debug for Elements<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Elements(element, bytes) = *self;
        match element {
            Element::Layout(info) if bytes.len() == info.size => debug(info, bytes, f),
            Element::Layout(info) => {
                f.debug_list().entries(bytes.chunks_exact(info.size).map(|one| Elements(element, one))).finish()
            }
            Element::U8 => match text(bytes) {
                Some(text) => write!(f, "{text:?}"),
                None => write!(f, "{}", Hex(bytes)),
            },
            _ => {
                let numbers = bytes.chunks_exact(element.size()).map(big_endian);
                f.debug_list().entries(numbers.map(|number| Number(number, Reading::Number))).finish()
            }
        }
    }
}

/// Bytes in hex; of the zeros at their end only that there are some.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for (i, byte) in self.0[..end].iter().enumerate() {
            write!(f, "{}{byte:02x}", if i > 0 { " " } else { "" })?;
        }
        match self.0.len() - end {
            0 => Ok(()),
            1 => f.write_str(if end > 0 { " 00" } else { "00" }),
            _ => f.write_str(if end > 0 { " 00.." } else { "00.." }),
        }
    }
}
