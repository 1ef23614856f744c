//! How what was met on a walk is written: for people, line by line, and on one line by `Debug`.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::ops::ControlFlow;

use super::walk::{Item, What};
use super::{Dump, Uncovered, big_endian, is_zero};
use crate::layout::{Element, Field, Info, Kind, Reading};

impl fmt::Display for Dump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (info, bytes) = (self.info, self.bytes);
        writeln!(f, "{}, {:#x} bytes", info.prm_name(), bytes.len())?;
        let written = self.each(&mut |item| match self.item(f, &item) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        });
        if let ControlFlow::Break(error) = written {
            return Err(error);
        }
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

impl Dump<'_> {
    /// The line of one item, or its lines; none for zeros unless they are asked for.
    fn item(&self, f: &mut fmt::Formatter<'_>, item: &Item<'_>) -> fmt::Result {
        let Item { field, index, offset, depth, what } = *item;
        match what {
            What::Number(number) if number == 0 && !self.zeros => Ok(()),
            What::Number(number) => {
                line(f, offset, field_bits(field), depth, field.name, index)?;
                let reading = match field.kind {
                    Kind::Bits { reading, .. } => reading,
                    Kind::Part { .. } => Reading::Number,
                };
                writeln!(f, " = {}", Number(number, reading))
            }
            What::Layout(_, part) if is_zero(part) && !self.zeros => Ok(()),
            What::Layout(..) => {
                line(f, offset, None, depth, field.name, index)?;
                writeln!(f)
            }
            What::Bytes(bytes) | What::Union(_, bytes) => {
                if let Some(text) = text(bytes) {
                    line(f, offset, None, depth, field.name, index)?;
                    return writeln!(f, " = {text:?}");
                }
                for (i, row) in bytes.chunks(16).enumerate().filter(|(_, row)| self.zeros || !is_zero(row)) {
                    let index = index.or((bytes.len() > 16).then_some(i * 16));
                    line(f, offset + i * 16, None, depth, field.name, index)?;
                    writeln!(f, " = {}", Hex(row))?;
                }
                Ok(())
            }
        }
    }
}

fn field_bits(field: &Field) -> Option<(u32, u32)> {
    match field.kind {
        Kind::Bits { hi, lo, .. } => Some((hi, lo)),
        Kind::Part { .. } => None,
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
            Element::Layout(info) if info.is_union => write!(f, "{}", Hex(bytes)),
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
