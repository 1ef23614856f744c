//! How a layout is declared, stored and described.
//!
//! A layout is a run of big-endian dwords. Each field is declared as the PRM prints it: the absolute byte offset of its
//! dword and `[high:low]`. From one line come a getter on the layout, a setter of the same name on its [`Writer`], and
//! a row of [`Layout::FIELDS`].
//!
//! ```
//! mlx5_prm::layout! {
//!     /// A thing of two dwords.
//!     pub struct Thing: 0x8, "none" {
//!         0x00 [31:28] status: u8,
//!         0x00 [17]    armed: bool,
//!         0x04 [23:0]  number: u32,
//!     }
//! }
//! use mlx5_prm::layout::Layout;
//!
//! let mut thing = Thing::default();
//! thing.w().armed(true).number(0xabcdef);
//! assert_eq!(thing.number(), 0xabcdef);
//! assert_eq!(thing.as_bytes(), [0, 2, 0, 0, 0, 0xab, 0xcd, 0xef]);
//! assert_eq!(Thing::FIELDS[2].name, "number");
//! ```
//!
//! `u8 as Names` is a number to the accessors that a [`Dump`](crate::decode::Dump) prints by its name; `Names` is declared
//! by [`values!`](crate::values!), with every number's Rust name, PRM name and meaning. A field without
//! `[high:low]` is a part: another layout or an array of bytes, big-endian numbers or layouts, at a byte
//! offset. `= value` after the type is what [`Default`] sets. What no field covers is reserved.
//!
//! ```
//! use mlx5_prm::layout::{Be64, Layout};
//!
//! mlx5_prm::layout! {
//!     /// Inner.
//!     pub struct Inner: 0x4, "none" { 0x00 [31:0] number: u32 = 7, }
//!
//!     /// Outer.
//!     pub struct Outer: 0x24, "none" {
//!         0x00 [31:16] opcode: u16 = 0x100,
//!         0x04 inner: Inner,
//!         0x08 list: [Be64; 2],
//!         0x18 [63:0] address: u64,
//!     }
//! }
//! let mut outer = Outer::default();
//! outer.w().inner(&Inner::default()).list(&[Be64::new(1), Be64::new(2)]).address(1 << 40);
//! assert_eq!(outer.inner().number(), 7);
//! assert_eq!(outer.list()[1].get(), 2);
//! assert_eq!(outer.as_bytes()[..4], [1, 0, 0, 0]);
//! ```
//!
//! # Unions, lists, and what lies where
//! A `pub union` is declared alike; its fields, the arms, lie over each other. A C union without a name is a layout of
//! its own here, under the name of the structure and of the member it is (`match_definer.match_mask`).
//!
//! `.. name: [Element]` as the last line says that a list follows the fixed part, of as many elements as there are
//! bytes.
//! It adds a row, [`Info::tail`], and no accessor: the layout itself ends before it.
//!
//! `where function` after the type of a part or of a list says which layout lies there, by the bytes of the layout it
//! is declared in ([`Choice`]): the arm of a union, or what an array of bytes is.
//!
//! ```
//! use mlx5_prm::decode::Dump;
//! use mlx5_prm::layout::{Info, Layout};
//!
//! mlx5_prm::layout! {
//!     /// One arm.
//!     pub struct Port: 0x4, "none" { 0x00 [15:0] port: u16, }
//!
//!     /// The other.
//!     pub struct Table: 0x4, "none" { 0x00 [23:0] table_id: u32, }
//!
//!     /// A destination.
//!     pub union Destination: 0x4, "none" {
//!         0x00 port: Port,
//!         0x00 table: Table,
//!     }
//!
//!     /// Where to.
//!     pub struct Rule: 0x8, "none" {
//!         0x00 [0] to_table: bool,
//!         0x04 destination: Destination where arm,
//!         .. others: [Destination],
//!     }
//! }
//!
//! impl Rule {
//!     fn arm(bytes: &[u8], _index: usize) -> Option<&'static Info> {
//!         Some(if Rule::read(bytes)?.to_table() { &Table::INFO } else { &Port::INFO })
//!     }
//! }
//!
//! let mut table = Table::default();
//! table.w().table_id(7);
//! let mut destination = Destination::default();
//! destination.w().table(&table);
//! let mut rule = Rule::default();
//! rule.w().to_table(true).destination(&destination);
//! assert_eq!(rule.destination().table().table_id(), 7);
//! assert!(Dump::of(&rule).to_string().ends_with("table_id = 0x7\n"));
//! ```
//!
//! # What does not compile
//! Each refusal names the layout and the field. Fields stand in the order of their bits, so an overlap shows:
//!
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.b overlaps the field before it, or should stand before it".
//!     pub struct Wrong: 0x4, "none" { 0x00 [31:16] a: u16, 0x00 [17] b: bool, }
//! }
//! ```
//! ```
//! mlx5_prm::layout! {
//!     /// The same with `b` beside `a`.
//!     pub struct Right: 0x4, "none" { 0x00 [31:16] a: u16, 0x00 [15] b: bool, }
//! }
//! ```
//!
//! A field past the end, or not at a dword:
//!
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.a runs past the end".
//!     pub struct Wrong: 0x4, "none" { 0x04 [31:0] a: u32, }
//! }
//! ```
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.a is not at a dword".
//!     pub struct Wrong: 0x8, "none" { 0x02 [31:0] a: u32, }
//! }
//! ```
//! ```
//! mlx5_prm::layout! {
//!     /// The same where there is room.
//!     pub struct Right: 0x8, "none" { 0x04 [31:0] a: u32, }
//! }
//! ```
//!
//! A field wider than its type:
//!
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.a is wider than its type".
//!     pub struct Wrong: 0x4, "none" { 0x00 [8:0] a: u8, }
//! }
//! ```
//! ```
//! mlx5_prm::layout! {
//!     /// The same in a type that holds nine bits.
//!     pub struct Right: 0x4, "none" { 0x00 [8:0] a: u16, }
//! }
//! ```
//!
//! A field that crosses a dword, unless it is a whole quadword:
//!
//! ```compile_fail,E0080
//! mlx5_prm::layout! {
//!     /// "Wrong.a crosses a dword".
//!     pub struct Wrong: 0x8, "none" { 0x00 [39:0] a: u64, }
//! }
//! ```
//! ```
//! mlx5_prm::layout! {
//!     /// The same with all 64 bits.
//!     pub struct Right: 0x8, "none" { 0x00 [63:0] a: u64, }
//! }
//! ```
//!
//! # In another crate
//! The declaration works anywhere that knows `zerocopy`: as a dependency, or by `use mlx5_prm::zerocopy;`. One
//! [`layout!`](crate::layout!) block a module: it also defines `LAYOUTS`, the table of what it declared.

#[macro_use]
mod macros;
mod storage;
#[cfg(test)]
mod tests;
mod value;

use storage::{ends, mask};
#[doc(hidden)]
pub use storage::{get, part, set, set_part};
pub use value::{ArrayElement, Part, Value};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A big-endian 16-bit number, of alignment 1.
pub type Be16 = zerocopy::big_endian::U16;
/// A big-endian 32-bit number, of alignment 1.
pub type Be32 = zerocopy::big_endian::U32;
/// A big-endian 64-bit number, of alignment 1.
pub type Be64 = zerocopy::big_endian::U64;

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
    /// Describes a layout, and proves that its fields are whole, inside and apart: panics otherwise, which at compile
    /// time is an error that names layout and field.
    #[doc(hidden)]
    pub const fn proven(
        (is_union, name): (bool, &'static str),
        c_name: &'static str,
        size: usize,
        fields: &'static [Field],
        tail: Option<Field>,
    ) -> Info {
        if !size.is_multiple_of(4) {
            refuse(name, "", "is not made of whole dwords");
        }
        let (mut i, mut end) = (0, 0);
        while i < fields.len() {
            let field = &fields[i];
            if let Kind::Bits { hi, lo, .. } = field.kind
                && (lo > hi || (hi > 31 && (hi != 63 || lo != 0)))
            {
                refuse(name, field.name, "crosses a dword");
            }
            if !field.offset.is_multiple_of(field.alignment()) {
                refuse(name, field.name, "is not at a dword");
            }
            if is_union {
                end = 0;
                if field.offset != 0 {
                    refuse(name, field.name, "is an arm, and should start where its union starts");
                }
            }
            if field.start_bit() < end {
                refuse(name, field.name, "overlaps the field before it, or should stand before it");
            }
            end = field.start_bit() + field.bits();
            if end > size * 8 {
                refuse(name, field.name, "runs past the end");
            }
            i += 1;
        }
        Info { name, c_name, size, is_union, fields, tail }
    }

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

/// Fails the proof of a layout, with one sentence.
const fn refuse(layout: &str, field: &str, fault: &str) -> ! {
    let mut text = [0; 256];
    let words = if field.is_empty() { [layout, " ", fault, "", ""] } else { [layout, ".", field, " ", fault] };
    let (mut word, mut at) = (0, 0);
    while word < words.len() {
        let bytes = words[word].as_bytes();
        let mut i = 0;
        while i < bytes.len() && at < text.len() {
            text[at] = bytes[i];
            (i, at) = (i + 1, at + 1);
        }
        word += 1;
    }
    match core::str::from_utf8(text.split_at(at).0) {
        Ok(sentence) => panic!("{}", sentence),
        Err(_) => panic!("a layout is wrong"),
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
    /// The row of a bit field read as `V`.
    #[doc(hidden)]
    pub const fn of_bits<V: Value, const B: usize>(
        layout: &str,
        name: &'static str,
        offset: usize,
        bits: [u32; B],
    ) -> Field {
        let (name, (hi, lo)) = (strip_raw(name), ends(bits));
        if hi < 64 && lo <= hi && hi - lo >= V::BITS {
            refuse(layout, name, "is wider than its type");
        }
        Field { name, offset, kind: Kind::Bits { hi, lo, reading: V::READING }, choice: None }
    }

    /// The row of a part of type `P`.
    #[doc(hidden)]
    pub const fn of_part<P: Part>(name: &'static str, offset: usize) -> Field {
        Field { name: strip_raw(name), offset, kind: Kind::Part { element: P::ELEMENT, count: P::COUNT }, choice: None }
    }

    /// The row of a list of `E`.
    #[doc(hidden)]
    pub const fn of_tail<E: ArrayElement>(name: &'static str, offset: usize) -> Field {
        Field { name: strip_raw(name), offset, kind: Kind::Part { element: E::ELEMENT, count: 0 }, choice: None }
    }

    /// The row of a part whose layout `choice` tells.
    #[doc(hidden)]
    pub const fn chosen(self, choice: Choice) -> Field {
        Field { choice: Some(choice), ..self }
    }

    /// The row with its numbers read as `V`, which must hold them.
    #[doc(hidden)]
    pub const fn named<V: Value>(self, layout: &str) -> Field {
        if self.bits() > V::BITS as usize {
            refuse(layout, self.name, "is wider than its names");
        }
        match self.kind {
            Kind::Bits { hi, lo, .. } => Field { kind: Kind::Bits { hi, lo, reading: V::READING }, ..self },
            Kind::Part { .. } => self,
        }
    }

    /// What the offset must be a multiple of.
    const fn alignment(&self) -> usize {
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

/// A declared layout.
pub trait Layout: FromBytes + IntoBytes + Immutable + KnownLayout + Clone + 'static {
    /// Its setters, see [`Writer`].
    type Writer<'a>;
    /// Its description.
    const INFO: Info;
    /// Bytes.
    const SIZE: usize = Self::INFO.size;
    /// Every declared field.
    const FIELDS: &'static [Field] = Self::INFO.fields;

    /// The layout as it lies on the wire.
    fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }

    /// A copy of the layout that starts `bytes`; `None` if they are too few. Bytes after it are ignored.
    fn read(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|(layout, _)| layout)
    }
}

/// The setters of a layout, of the same names as the getters, chained: `eqc.w().uar_page(7).oi(true)`.
///
/// A value too wide for its field is a mistake of the caller and panics, naming the layout and the field: it is never
/// cut. What comes from a user or a device must be checked before it gets here.
pub type Writer<'a, L> = <L as Layout>::Writer<'a>;

const fn strip_raw(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}
