//! The walk over bytes that printing, visiting and the search for uncovered bits share.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::dump::{Dump, Uncovered, covered};
use crate::layout::print::big_endian;
use crate::layout::{Element, Field, Info, Kind, Reading};

/// A field on a walk: its position and value.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The field's row.
    pub field: &'a Field,
    /// Index of the element, in an array.
    pub index: Option<usize>,
    /// Byte offset of the field's dword in the outermost layout.
    pub offset: usize,
    /// Nesting depth: 0 for the outermost layout's own fields.
    pub depth: usize,
    /// Its number; `None` at the start of a nested layout.
    pub number: Option<u64>,
}

impl Found<'_> {
    /// The PRM's name of the number, if the field has named values.
    pub fn value_name(&self) -> Option<&'static str> {
        match self.field.kind {
            Kind::Bits { reading: Reading::Named(name), .. } => name(self.number?),
            _ => None,
        }
    }
}

/// One step of a walk: a field, or an element of one.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) field: &'a Field,
    /// Index of the element, in an array or list.
    pub(super) index: Option<usize>,
    /// Byte offset in the outermost layout.
    pub(super) offset: usize,
    /// 0 for the outermost layout's own fields.
    pub(super) depth: usize,
    pub(super) what: What<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    /// A bit field, or a number in an array.
    Number(u64),
    /// Start of a layout; its fields follow.
    Layout(&'static Info, &'a [u8]),
    /// A union with an unknown arm.
    Union(&'static Info, &'a [u8]),
    /// A whole array of bytes.
    Bytes(&'a [u8]),
}

type Sink<'s, E> = &'s mut dyn FnMut(Item<'_>) -> ControlFlow<E>;

/// A layout on the walk: its bytes including its list, and its position.
#[derive(Clone, Copy)]
struct Here<'a> {
    info: &'a Info,
    bytes: &'a [u8],
    base: usize,
    depth: usize,
}

impl<'a> Dump<'a> {
    /// Calls `visit` for every field inside the bytes, zero or not, as [`walk`](super::walk) does.
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

    /// Calls `sink` for every item inside the bytes, in order.
    pub(super) fn each<E>(&self, sink: Sink<'_, E>) -> ControlFlow<E> {
        self.layout(Here { info: self.info, bytes: self.bytes, base: 0, depth: 0 }, sink)
    }

    fn layout<E>(&self, here: Here<'_>, sink: Sink<'_, E>) -> ControlFlow<E> {
        let Here { info, bytes, base, depth } = here;
        let own = &bytes[..info.size.min(bytes.len())];
        for field in info.fields {
            match field.kind {
                Kind::Bits { .. } => {
                    if let Some(number) = field.number(own) {
                        let offset = base + field.offset;
                        sink(Item { field, index: None, offset, depth, what: What::Number(number) })?;
                    }
                }
                Kind::Part { element, count } => {
                    let end = field.offset + element.size() * count;
                    self.part(here, field, end, sink)?;
                }
            }
        }
        match &info.tail {
            Some(tail) => self.part(here, tail, bytes.len(), sink),
            None => ControlFlow::Continue(()),
        }
    }

    /// Walks the elements of `field`, which ends before byte `end` of its layout.
    fn part<E>(&self, here: Here<'_>, field: &Field, end: usize, sink: Sink<'_, E>) -> ControlFlow<E> {
        let Kind::Part { element, count } = field.kind else { return ControlFlow::Continue(()) };
        let Here { info, bytes, base, depth } = here;
        let (all, bytes) = (bytes, &bytes[..end.min(bytes.len())]);
        let (mut at, mut i) = (field.offset, 0);
        while at < bytes.len() {
            let seen = self.seen(field, element, (all, i), depth);
            let (what, next) = match seen {
                Seen::Layout(inner) => {
                    // A list after the last part belongs to that part.
                    let ends = end == info.size && info.tail.is_none();
                    let listed = inner.has_list() && (ends || count == 0);
                    let part = if listed { &all[at..] } else { upto(bytes, at, inner.size) };
                    let next = match element {
                        _ if listed => bytes.len(),
                        Element::Layout(declared) => at + declared.size,
                        _ if count == 0 => at + inner.size,
                        _ => bytes.len(),
                    };
                    (What::Layout(inner, part), next)
                }
                Seen::Union(union) => (What::Union(union, upto(bytes, at, union.size)), at + union.size),
                Seen::Number(size) if at + size <= bytes.len() => {
                    (What::Number(big_endian(&bytes[at..at + size])), at + size)
                }
                Seen::Number(_) | Seen::Bytes => (What::Bytes(&bytes[at..]), bytes.len()),
            };
            let alone = count == 1 || matches!(what, What::Bytes(_)) || (i == 0 && count > 0 && next >= end);
            let index = (!alone).then_some(i);
            sink(Item { field, index, offset: base + at, depth, what })?;
            if let What::Layout(info, bytes) = what {
                self.layout(Here { info, bytes, base: base + at, depth: depth + 1 }, sink)?;
            }
            (at, i) = (next, i + 1);
        }
        ControlFlow::Continue(())
    }

    /// How to read element `i` of `field`, in a layout with these bytes.
    fn seen(&self, field: &Field, element: Element, (bytes, i): (&[u8], usize), depth: usize) -> Seen {
        let told = match self.known {
            Some((name, info)) if depth == 0 && name == field.name => Some(info),
            _ => field.choice.and_then(|choice| choice(bytes, i)),
        };
        match (told.filter(|info| info.size > 0), element) {
            (Some(info), _) => Seen::Layout(info),
            (None, Element::Layout(info)) if info.is_union => Seen::Union(info),
            (None, Element::Layout(info)) => Seen::Layout(info),
            (None, Element::U8) => Seen::Bytes,
            (None, number) => Seen::Number(number.size()),
        }
    }

    /// All dwords with set bits that no field covers, in the layout, its parts and its list.
    pub fn uncovered(&self) -> impl Iterator<Item = Uncovered> + use<> {
        let end = if self.info.has_list() { self.bytes.len() } else { self.info.size.min(self.bytes.len()) };
        let mut left = Vec::from(&self.bytes[..end]);
        let _ = self.each::<()>(&mut |item| {
            forget(&mut left, &item);
            ControlFlow::Continue(())
        });
        let dword = |(i, dword): (usize, &[u8])| Uncovered { offset: i * 4, bits: big_endian(dword) as u32 };
        let found: Vec<_> = left.chunks_exact(4).enumerate().map(dword).filter(|found| found.bits != 0).collect();
        found.into_iter()
    }
}

/// How to read an element of a part.
enum Seen {
    Layout(&'static Info),
    Union(&'static Info),
    Number(usize),
    Bytes,
}

/// At most `size` bytes from `at`, which must be in range.
fn upto(bytes: &[u8], at: usize, size: usize) -> &[u8] {
    &bytes[at..bytes.len().min(at + size)]
}

/// Clears the bits that the item covers.
fn forget(left: &mut [u8], item: &Item<'_>) {
    let Item { field, offset, what, .. } = *item;
    let size = match (what, field.kind) {
        (What::Layout(..), _) => 0,
        (What::Number(_), Kind::Bits { .. }) => {
            let _ = left.get_mut(offset - field.offset..).and_then(|layout| field.set(layout, 0));
            0
        }
        (What::Union(union, bytes), _) => {
            for (i, dword) in left[offset..offset + bytes.len()].chunks_exact_mut(4).enumerate() {
                let kept = big_endian(dword) as u32 & !covered(union, i * 4);
                dword.copy_from_slice(&kept.to_be_bytes());
            }
            0
        }
        (What::Bytes(bytes), _) => bytes.len(),
        (What::Number(_), Kind::Part { element, .. }) => element.size(),
    };
    left[offset..offset + size].fill(0);
}
