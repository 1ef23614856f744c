//! The tables that describe layouts, fields and enumerations.

/// Description of a layout, for tools and tests.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Rust name.
    pub name: &'static str,
    /// Name of the C structure that the layout is checked against, or `"none"`.
    pub c_name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Whether it is a union: all fields start at its start.
    pub is_union: bool,
    /// Every declared field, in the order of their bits.
    pub fields: &'static [Field],
    /// The list after the fixed part, described as a part of 0 elements; see also [`Info::list`].
    pub tail: Option<Field>,
}

impl Info {
    /// PRM name, such as `create_cq_in` or `qpc`; the Rust name if the PRM has none.
    pub fn prm_name(&self) -> &'static str {
        match self.c_name {
            "none" => self.name,
            // An anonymous union, named after its structure.
            c_name if c_name.ends_with('.') => self.name,
            c_name => {
                let name = c_name.strip_prefix("mlx5_").unwrap_or(c_name);
                // One register has parts called `_bits2` and so on: keep the number.
                name.strip_prefix("ifc_").map_or(name, |name| name.strip_suffix("_bits").unwrap_or(name))
            }
        }
    }

    /// The field called `name`.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The list after the layout: its own, or that of the layout in its last field.
    pub fn list(&self) -> Option<&Field> {
        self.tail.as_ref().or_else(|| self.last()?.list())
    }

    /// Whether a list follows the layout.
    pub fn has_list(&self) -> bool {
        self.list().is_some()
    }

    /// The layout in its last field.
    fn last(&self) -> Option<&'static Info> {
        let last = self.fields.last().filter(|_| !self.is_union)?;
        match last.kind {
            Kind::Part { element: Element::Layout(inner), count: 1 } if last.offset + inner.size == self.size => {
                Some(inner)
            }
            _ => None,
        }
    }
}

/// One row of a layout's table.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// PRM name.
    pub name: &'static str,
    /// Byte offset of the field's first dword (of its first byte, for a part).
    pub offset: usize,
    /// Bits or part, and how it reads.
    pub kind: Kind,
    /// For a part: the function that chooses its layout.
    pub choice: Option<Choice>,
}

/// Chooses the layout of a part, by the bytes of the enclosing layout including its list, and by the index of the
/// element; `None` if it is unknown. For an array of bytes it is the layout that fills the array, repeated in a list;
/// for a union, the arm.
pub type Choice = fn(bytes: &[u8], index: usize) -> Option<&'static Info>;

/// The two kinds of field.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `[hi:lo]` of one dword, or `[63:0]` of two.
    Bits {
        /// Highest bit.
        hi: u32,
        /// Lowest bit.
        lo: u32,
        /// How the number reads.
        reading: Reading,
    },
    /// `count` consecutive elements; 1 for a nested layout.
    Part {
        /// Type of an element.
        element: Element,
        /// Number of elements.
        count: usize,
    },
}

/// How the number in a bit field reads.
#[derive(Debug, Clone, Copy)]
pub enum Reading {
    /// A plain number.
    Number,
    /// A flag of one bit.
    Flag,
    /// A named value; `None` for a number without a name.
    Named(fn(u64) -> Option<&'static str>),
}

/// Type of the elements of a part.
#[derive(Debug, Clone, Copy)]
pub enum Element {
    /// Bytes.
    U8,
    /// Big-endian numbers of two bytes.
    Be16,
    /// Big-endian numbers of four bytes.
    Be32,
    /// Big-endian numbers of eight bytes.
    Be64,
    /// Another layout.
    Layout(&'static Info),
}

impl Element {
    /// Bytes of one element.
    pub const fn size(&self) -> usize {
        match self {
            Element::U8 => 1,
            Element::Be16 => 2,
            Element::Be32 => 4,
            Element::Be64 => 8,
            Element::Layout(info) => info.size,
        }
    }
}

impl Field {
    /// Required alignment of the offset.
    pub(super) const fn alignment(&self) -> usize {
        match self.kind {
            Kind::Bits { .. } | Kind::Part { element: Element::Layout(_), .. } => 4,
            Kind::Part { .. } => 1,
        }
    }

    /// First bit of the field, counted from the start of the layout, most significant bit first.
    pub const fn start_bit(&self) -> usize {
        match self.kind {
            Kind::Bits { hi, .. } if hi > 31 => self.offset * 8,
            Kind::Bits { hi, .. } => self.offset * 8 + 31 - hi as usize,
            Kind::Part { .. } => self.offset * 8,
        }
    }

    /// Width of the field in bits.
    pub const fn bits(&self) -> usize {
        match self.kind {
            Kind::Bits { hi, lo, .. } => (hi - lo + 1) as usize,
            Kind::Part { element, count } => element.size() * 8 * count,
        }
    }

    /// The number in the bit field, of a layout that starts at `bytes`; `None` for a part, or if there are too few
    /// bytes.
    pub fn number(&self, bytes: &[u8]) -> Option<u64> {
        let Kind::Bits { hi, lo, .. } = self.kind else { return None };
        let dword = |at: usize| bytes.get(at..)?.first_chunk().map(|four| u64::from(u32::from_be_bytes(*four)));
        if hi > 31 {
            return Some(dword(self.offset)? << 32 | dword(self.offset + 4)?);
        }
        Some(dword(self.offset)? >> lo & mask(hi - lo + 1))
    }

    /// Stores `number` in the bit field, of a layout that starts at `bytes`, and changes no other bit. `None`, and
    /// nothing stored, for a part, if there are too few bytes, or if the number does not fit.
    #[must_use]
    pub fn set(&self, bytes: &mut [u8], number: u64) -> Option<()> {
        let Kind::Bits { hi, lo, .. } = self.kind else { return None };
        let bytes = bytes.get_mut(self.offset..)?;
        if hi > 31 {
            *bytes.first_chunk_mut()? = number.to_be_bytes();
            return Some(());
        }
        let (four, mask) = (bytes.first_chunk_mut()?, mask(hi - lo + 1));
        if number > mask {
            return None;
        }
        let rest = u32::from_be_bytes(*four) & !((mask << lo) as u32);
        *four = (rest | (number << lo) as u32).to_be_bytes();
        Some(())
    }
}

/// Description of an enumeration of values, for tools and tests.
#[derive(Debug, Clone, Copy)]
pub struct Values {
    /// Rust name.
    pub name: &'static str,
    /// Bits of the widest field that holds it.
    pub bits: u32,
    /// Every named value: PRM name and number.
    pub named: &'static [(&'static str, u32)],
}

/// A mask of the `bits` lowest bits.
#[inline(always)]
pub(super) const fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Highest and lowest bit of `[high, low]` or `[bit]`.
#[inline(always)]
pub(super) const fn ends<const B: usize>(bits: [u32; B]) -> (u32, u32) {
    (bits[0], bits[B - 1])
}

/// A field's name without the mark of a raw identifier.
pub(super) const fn strip_raw(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}
