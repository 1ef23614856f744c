//! The tables of layouts: what they say of a layout, of its fields and of an enumeration.

/// What a layout is, for tools that explain, compare or test it.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Rust name.
    pub name: &'static str,
    /// Name of the C structure that judges this layout, or `"none"`.
    pub c_name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Whether the fields are the arms of a union: all at its start, over each other.
    pub is_union: bool,
    /// Every declared field, in the order of their bits.
    pub fields: &'static [Field],
    /// The list that follows the fixed part, as a part of no elements; see also [`Info::list`].
    pub tail: Option<Field>,
}

impl Info {
    /// The structure's name as the PRM prints it: `create_cq_in`, `qpc`; the Rust name where it has none.
    pub fn prm_name(&self) -> &'static str {
        match self.c_name {
            "none" => self.name,
            // A union without a name, by the structure it lies in.
            c_name if c_name.ends_with('.') => self.name,
            c_name => {
                let name = c_name.strip_prefix("mlx5_").unwrap_or(c_name);
                // One register has `_bits2` and the like: parts that keep their number.
                name.strip_prefix("ifc_").map_or(name, |name| name.strip_suffix("_bits").unwrap_or(name))
            }
        }
    }

    /// The field called `name`.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The list that follows the layout: its own, or that of the layout it ends with.
    pub fn list(&self) -> Option<&Field> {
        self.tail.as_ref().or_else(|| self.last()?.list())
    }

    /// Whether a list follows the layout.
    pub fn has_list(&self) -> bool {
        self.list().is_some()
    }

    /// The layout it ends with.
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
    /// Where in there, and what it is.
    pub kind: Kind,
    /// For a part: what tells which layout lies there.
    pub choice: Option<Choice>,
}

/// Which layout lies in a part, by the bytes from the start of the layout that declares it, list and all, and by the
/// index of the element; `None` if that cannot be told. It fills a part of bytes, repeated where that is a list; in a
/// part made of a union it is an arm.
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
    /// `count` elements that follow each other; 1 for a nested layout.
    Part {
        /// What one element is.
        element: Element,
        /// How many.
        count: usize,
    },
}

/// How a number of bits reads.
#[derive(Debug, Clone, Copy)]
pub enum Reading {
    /// A plain number.
    Number,
    /// One bit, yes or no.
    Flag,
    /// A named value; `None` for a number without a name.
    Named(fn(u64) -> Option<&'static str>),
}

/// What a part is made of.
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
    /// What the offset must be a multiple of.
    pub(super) const fn alignment(&self) -> usize {
        match self.kind {
            Kind::Bits { .. } | Kind::Part { element: Element::Layout(_), .. } => 4,
            Kind::Part { .. } => 1,
        }
    }

    /// First bit of the field, counted from the layout's first, most significant bit first.
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

    /// The number a bit field holds in `bytes`, which start where the layout starts; `None` for a part, or when the
    /// bytes end before the field.
    pub fn number(&self, bytes: &[u8]) -> Option<u64> {
        let Kind::Bits { hi, lo, .. } = self.kind else { return None };
        let dword = |at: usize| bytes.get(at..)?.first_chunk().map(|four| u64::from(u32::from_be_bytes(*four)));
        if hi > 31 {
            return Some(dword(self.offset)? << 32 | dword(self.offset + 4)?);
        }
        Some(dword(self.offset)? >> lo & mask(hi - lo + 1))
    }

    /// Stores `number` in the field's bits of `bytes`, which start where the layout starts, and touches no other bit.
    /// `None`, and nothing stored, for a part, when the bytes end before the field, or when the number does not fit.
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

/// What an enumeration of a field's values is, for tools that compare it.
#[derive(Debug, Clone, Copy)]
pub struct Values {
    /// Rust name.
    pub name: &'static str,
    /// Bits of the widest field that holds it.
    pub bits: u32,
    /// Every named value: PRM name and number.
    pub named: &'static [(&'static str, u32)],
}

/// As many low bits.
#[inline(always)]
pub(super) const fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The highest and the lowest bit, of `[high, low]` or of `[bit]`.
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
