//! Bytes read as a layout, and set bits that no field covers.

use crate::layout::print::{big_endian, is_zero};
use crate::layout::{Element, Field, Info, Kind, Layout};

/// Displays bytes as a layout: one line per field, with offset and bits as the PRM prints them, nested layouts
/// indented, values by name. Set bits that no field covers, and bytes after the layout, follow.
#[derive(Debug, Clone, Copy)]
pub struct Dump<'a> {
    pub(super) info: &'a Info,
    pub(super) bytes: &'a [u8],
    pub(super) zeros: bool,
    pub(super) known: Option<(&'static str, &'static Info)>,
}

impl<'a> Dump<'a> {
    /// The fields of `bytes` that are not zero.
    pub fn new(info: &'a Info, bytes: &'a [u8]) -> Self {
        Dump { info, bytes, zeros: false, known: None }
    }

    /// The fields of `layout` that are not zero.
    pub fn of<L: Layout>(layout: &'a L) -> Self {
        Dump::new(&L::INFO, Layout::as_bytes(layout))
    }

    /// Includes zero fields.
    pub fn with_zeros(self) -> Self {
        Dump { zeros: true, ..self }
    }

    /// Reads `field`, an array of bytes, as `info`: for a layout chosen by something outside the bytes, such as an
    /// `op_mod`.
    pub fn knowing(self, field: &'static str, info: &'static Info) -> Self {
        Dump { known: Some((field, info)), ..self }
    }

    /// The layout.
    pub fn info(&self) -> &'a Info {
        self.info
    }

    /// Bytes after the layout, if it has no list.
    pub fn tail(&self) -> &'a [u8] {
        if self.info.has_list() {
            return &[];
        }
        self.bytes.get(self.info.size..).unwrap_or_default()
    }
}

/// Set bits of one dword that no field covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uncovered {
    /// Byte offset of the dword.
    pub offset: usize,
    /// The set bits, in place.
    pub bits: u32,
}

/// The first dword of `bytes` with a set bit that no field covers. Bytes after the layout are ignored: they are a list.
pub fn uncovered(info: &Info, bytes: &[u8]) -> Option<Uncovered> {
    all_uncovered(info, bytes).next()
}

/// All dwords as in [`uncovered`].
pub fn all_uncovered(info: &Info, bytes: &[u8]) -> impl Iterator<Item = Uncovered> {
    let own = &bytes[..info.size.min(bytes.len())];
    let dwords = own.chunks_exact(4).enumerate().filter(|(_, dword)| !is_zero(dword));
    dwords.filter_map(|(i, dword)| {
        let bits = big_endian(dword) as u32 & !covered(info, i * 4);
        (bits != 0).then_some(Uncovered { offset: i * 4, bits })
    })
}

/// The bits of the dword at `offset` that fields cover.
pub(super) fn covered(info: &Info, offset: usize) -> u32 {
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
