//! Any layout, from its table alone: walk its fields, print it, find bits that no field covers.

use core::fmt;

use crate::layout::{Element, Field, Info, Kind, Reading};

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
            Kind::Bits {
                reading: Reading::Named(name),
                ..
            } => name(self.number?),
            _ => None,
        }
    }
}

/// Calls `visit` with every field of the layout that lies within `bytes`, outermost first. Never panics, whatever the
/// bytes and however few; returns early when `visit` fails.
pub fn walk<E>(
    info: &Info,
    bytes: &[u8],
    visit: &mut dyn FnMut(Found<'_>) -> Result<(), E>,
) -> Result<(), E> {
    walk_at(info, bytes, 0, 0, visit)
}

fn walk_at<E>(
    info: &Info,
    bytes: &[u8],
    base: usize,
    depth: usize,
    visit: &mut dyn FnMut(Found<'_>) -> Result<(), E>,
) -> Result<(), E> {
    for field in info.fields {
        match field.kind {
            Kind::Bits { .. } => {
                if let Some(number) = field.number(bytes) {
                    visit(Found {
                        field,
                        index: None,
                        offset: base + field.offset,
                        depth,
                        number: Some(number),
                    })?;
                }
            }
            Kind::Part { element, count } => {
                for i in 0..count {
                    let start = field.offset + i * element.size();
                    let Some(part) = bytes.get(start..(start + element.size()).min(bytes.len()))
                    else {
                        break;
                    };
                    let index = (count > 1).then_some(i);
                    let found = Found {
                        field,
                        index,
                        offset: base + start,
                        depth,
                        number: plain(element, part),
                    };
                    if let Element::Layout(inner) = element {
                        if part.is_empty() {
                            break;
                        }
                        visit(found)?;
                        walk_at(inner, part, base + start, depth + 1, visit)?;
                    } else if found.number.is_some() {
                        visit(found)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn plain(element: Element, bytes: &[u8]) -> Option<u64> {
    if matches!(element, Element::Layout(_)) || bytes.len() < element.size() {
        return None;
    }
    Some(
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
    )
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
    let end = info.size.min(bytes.len());
    (0..end.saturating_sub(3)).step_by(4).find_map(|offset| {
        let value = u32::from_be_bytes(bytes[offset..offset + 4].try_into().ok()?);
        let bits = if value == 0 {
            0
        } else {
            value & !covered(info, offset)
        };
        (bits != 0).then_some(Uncovered { offset, bits })
    })
}

/// Which bits of the dword at `offset` some field covers.
fn covered(info: &Info, offset: usize) -> u32 {
    let mut mask = 0;
    for field in info.fields {
        match field.kind {
            Kind::Part {
                element: Element::Layout(inner),
                count,
            } => {
                let size = inner.size * count;
                if (field.offset..field.offset + size).contains(&offset) && inner.size > 0 {
                    mask |= covered(inner, (offset - field.offset) % inner.size);
                }
            }
            _ => {
                for bit in 0..32 {
                    let at = offset * 8 + bit;
                    if at >= field.start_bit() && at < field.start_bit() + field.bits() {
                        mask |= 1 << (31 - bit);
                    }
                }
            }
        }
    }
    mask
}

/// Prints the fields that are not zero: `Eqc { oi: 1, log_eq_size: 0x7, .. }`.
pub(crate) fn debug(info: &Info, bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut line = f.debug_struct(info.name);
    for field in info.fields {
        match field.kind {
            Kind::Bits { reading, .. } => {
                let Some(number) = field.number(bytes).filter(|n| *n != 0) else {
                    continue;
                };
                match reading {
                    Reading::Named(name) if name(number).is_some() => {
                        line.field(
                            field.name,
                            &format_args!("{}", name(number).unwrap_or_default()),
                        );
                    }
                    _ => {
                        line.field(field.name, &format_args!("{number:#x}"));
                    }
                }
            }
            Kind::Part { element, count } => {
                let Some(part) = bytes.get(field.offset..field.offset + element.size() * count)
                else {
                    continue;
                };
                if part.iter().all(|byte| *byte == 0) {
                    continue;
                }
                match element {
                    Element::Layout(inner) if count == 1 => {
                        line.field(field.name, &Shown(inner, part));
                    }
                    _ => {
                        line.field(field.name, &part);
                    }
                }
            }
        }
    }
    line.finish_non_exhaustive()
}

struct Shown<'a>(&'a Info, &'a [u8]);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self.0, self.1, f)
    }
}
