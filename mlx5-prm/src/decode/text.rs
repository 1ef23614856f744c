//! `Display` of dumps, line by line.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::ops::ControlFlow;

use super::dump::{Dump, Uncovered};
use super::walk::{Item, What};
use crate::layout::print::{Hex, Number, is_zero, text};
use crate::layout::{Field, Kind, Reading};

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
    /// Writes the lines of one item; none for zeros, unless requested.
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

/// Starts a line: the field's position and name.
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
