//! Printing of numbers and bytes, and `Debug` of all layouts.

use core::fmt;

use super::table::{Element, Info, Kind, Reading};

/// `Debug` of every layout: prints the non-zero fields on one line, as `Eqc { oi: 0x1, log_eq_size: 0x7, .. }`.
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

/// A number, printed as its field reads.
pub(crate) struct Number(pub(crate) u64, pub(crate) Reading);

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

/// Bytes in hex; trailing zeros are abbreviated.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

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

/// The bytes as text, if they are at least four printable characters followed by zeros.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
    let text = core::str::from_utf8(&bytes[..end]).ok()?;
    (text.len() >= 4 && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())).then_some(text)
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Up to eight bytes as one number.
pub(crate) fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
