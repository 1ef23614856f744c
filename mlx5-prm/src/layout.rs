//! How a layout is declared, stored and described.
//!
//! A layout is a run of big-endian dwords. Each field is declared as the PRM prints it: the absolute byte offset of its
//! dword and `[high:low]`. From one line come a getter, a setter on [`Writer`], and a row of [`Layout::FIELDS`].
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
//! # fn main() {
//! use mlx5_prm::layout::Layout;
//! let mut thing = Thing::default();
//! thing.w().armed(true).number(0xabcdef);
//! assert_eq!(thing.number(), 0xabcdef);
//! assert_eq!(thing.as_bytes(), [0, 2, 0, 0, 0, 0xab, 0xcd, 0xef]);
//! assert_eq!(Thing::FIELDS[2].name, "number");
//! # }
//! ```
//!
//! Two fields that overlap do not compile:
//!
//! ```compile_fail
//! mlx5_prm::layout! {
//!     /// Overlaps at bit 17.
//!     pub struct Wrong: 0x4, "none" { 0x00 [31:16] a: u16, 0x00 [17] b: bool, }
//! }
//! ```
//!
//! nor does a field past the end, or one wider than its type:
//!
//! ```compile_fail
//! mlx5_prm::layout! {
//!     /// Four bytes only.
//!     pub struct Wrong: 0x4, "none" { 0x04 [31:0] a: u32, }
//! }
//! ```
//! ```compile_fail
//! mlx5_prm::layout! {
//!     /// Nine bits in a u8.
//!     pub struct Wrong: 0x4, "none" { 0x00 [8:0] a: u8, }
//! }
//! ```
//!
//! nor one that crosses a dword, unless it is a whole quadword:
//!
//! ```compile_fail
//! mlx5_prm::layout! {
//!     /// Forty bits.
//!     pub struct Wrong: 0x8, "none" { 0x00 [39:0] a: u64, }
//! }
//! ```

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
    /// Every declared field, in declaration order.
    pub fields: &'static [Field],
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
}

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
        let Kind::Bits { hi, lo, .. } = self.kind else {
            return None;
        };
        let dword = |at: usize| {
            let four = bytes.get(at..at + 4)?;
            Some(u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
        };
        if hi > 31 {
            return Some(u64::from(dword(self.offset)?) << 32 | u64::from(dword(self.offset + 4)?));
        }
        Some(u64::from(dword(self.offset)? >> lo) & mask(hi - lo + 1))
    }
}

/// A value that fills a bit field.
pub trait Value: Copy {
    /// The widest field it can hold.
    const BITS: u32;
    /// How it reads.
    const READING: Reading;
    /// From the field's number, which is at most [`BITS`](Self::BITS) wide.
    fn from_number(number: u64) -> Self;
    /// To the field's number.
    fn number(self) -> u64;
}

macro_rules! unsigned_value {
    ($($ty:ty),*) => { $(
        impl Value for $ty {
            const BITS: u32 = <$ty>::BITS;
            const READING: Reading = Reading::Number;
            #[inline(always)]
            fn from_number(number: u64) -> Self { number as $ty }
            #[inline(always)]
            fn number(self) -> u64 { u64::from(self) }
        }
    )* };
}
unsigned_value!(u8, u16, u32, u64);

impl Value for bool {
    const BITS: u32 = 1;
    const READING: Reading = Reading::Flag;
    #[inline(always)]
    fn from_number(number: u64) -> Self {
        number != 0
    }
    #[inline(always)]
    fn number(self) -> u64 {
        u64::from(self)
    }
}

/// A field of whole bytes: a nested layout, or an array.
pub trait Part: FromBytes + IntoBytes + Immutable + KnownLayout {
    /// What one element is.
    const ELEMENT: Element;
    /// How many.
    const COUNT: usize;
}

/// What an array may be made of.
pub trait ArrayElement: FromBytes + IntoBytes + Immutable + KnownLayout {
    /// Its description.
    const ELEMENT: Element;
}

macro_rules! array_element {
    ($($ty:ty => $element:ident),*) => { $(
        impl ArrayElement for $ty { const ELEMENT: Element = Element::$element; }
    )* };
}
array_element!(u8 => U8, Be16 => Be16, Be32 => Be32, Be64 => Be64);

impl<E: ArrayElement, const N: usize> Part for [E; N] {
    const ELEMENT: Element = E::ELEMENT;
    const COUNT: usize = N;
}

/// A declared layout.
pub trait Layout: FromBytes + IntoBytes + Immutable + KnownLayout + Clone + 'static {
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

/// The setters of a layout: same names as the getters, chained.
///
/// A value too wide for its field is a mistake of the caller and panics, naming the layout and the field: it is never
/// cut. What comes from a user or a device must be checked before it gets here.
pub struct Writer<'a, L>(pub(crate) &'a mut L);

impl<'a, L> Writer<'a, L> {
    /// Setters for `layout`.
    #[inline(always)]
    pub fn new(layout: &'a mut L) -> Self {
        Writer(layout)
    }

    /// The layout under this writer.
    #[doc(hidden)]
    #[inline(always)]
    pub fn layout(&mut self) -> &mut L {
        self.0
    }
}

#[inline(always)]
const fn mask(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

#[doc(hidden)]
#[inline(always)]
pub fn get<const N: usize>(dwords: &[u32; N], offset: usize, hi: u32, lo: u32) -> u64 {
    let dword = |i: usize| u64::from(u32::from_be(dwords[i]));
    if hi > 31 {
        dword(offset / 4) << 32 | dword(offset / 4 + 1)
    } else {
        dword(offset / 4) >> lo & mask(hi - lo + 1)
    }
}

#[doc(hidden)]
#[inline(always)]
pub fn set<const N: usize>(
    dwords: &mut [u32; N],
    offset: usize,
    (hi, lo): (u32, u32),
    value: u64,
    name: &'static str,
) {
    let i = offset / 4;
    if hi > 31 {
        dwords[i] = ((value >> 32) as u32).to_be();
        dwords[i + 1] = (value as u32).to_be();
        return;
    }
    let mask = mask(hi - lo + 1);
    if value & !mask != 0 {
        too_wide(name, value, hi - lo + 1);
    }
    let rest = dwords[i] & !((mask << lo) as u32).to_be();
    dwords[i] = rest | ((value << lo) as u32).to_be();
}

#[cold]
#[inline(never)]
fn too_wide(name: &'static str, value: u64, bits: u32) -> ! {
    panic!("{name}: {value:#x} does not fit in {bits} bits")
}

#[doc(hidden)]
pub const fn strip_raw(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

#[doc(hidden)]
pub const fn is_inside(field: &Field, size: usize) -> bool {
    let aligned = match field.kind {
        Kind::Bits { .. } => field.offset.is_multiple_of(4),
        Kind::Part { .. } => true,
    };
    aligned && field.start_bit() + field.bits() <= size * 8
}

#[doc(hidden)]
pub const fn is_whole(field: &Field) -> bool {
    match field.kind {
        Kind::Bits { hi, lo, .. } => lo <= hi && (hi <= 31 || (hi == 63 && lo == 0)),
        Kind::Part { .. } => true,
    }
}

#[doc(hidden)]
pub const fn is_alone(field: &Field, fields: &[Field]) -> bool {
    let (start, end) = (field.start_bit(), field.start_bit() + field.bits());
    let mut found = 0;
    let mut i = 0;
    while i < fields.len() {
        let other = fields[i].start_bit();
        if other < end && start < other + fields[i].bits() {
            found += 1;
        }
        i += 1;
    }
    found == 1
}

/// Declares layouts. See the [module's](crate::layout) page.
#[macro_export]
macro_rules! layout {
    ($(
        $(#[$meta:meta])*
        pub struct $Name:ident : $size:literal, $c_name:literal {
            $( $(#[$field_meta:meta])* $offset:literal $([$hi:literal $(: $lo:literal)?])? $field:ident : $ty:ty $(= $default:expr)? ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, $crate::zerocopy::FromBytes, $crate::zerocopy::IntoBytes,
                 $crate::zerocopy::Immutable, $crate::zerocopy::KnownLayout)]
        #[zerocopy(crate = "zerocopy")]
        pub struct $Name { dwords: [u32; $size / 4] }

        impl $crate::layout::Layout for $Name {
            const INFO: $crate::layout::Info = $crate::layout::Info {
                name: stringify!($Name),
                c_name: $c_name,
                size: $size,
                fields: &[ $( $crate::layout_row!($offset [$($hi $(: $lo)?)?] $field $ty) ),* ],
            };
        }

        $(
            const _: () = {
                use $crate::layout::{Field, Info, Layout, is_alone, is_inside, is_whole};
                const INFO: Info = <$Name as Layout>::INFO;
                const ROW: Field = $crate::layout_row!($offset [$($hi $(: $lo)?)?] $field $ty);
                const _: () = assert!(INFO.size.is_multiple_of(4), concat!(stringify!($Name), " is not made of whole dwords"));
                const _: () = assert!(is_whole(&ROW), concat!(stringify!($Name), ".", stringify!($field), " crosses a dword"));
                const _: () = assert!(is_inside(&ROW, INFO.size), concat!(stringify!($Name), ".", stringify!($field), " is unaligned or runs past the end"));
                const _: () = assert!(is_alone(&ROW, INFO.fields), concat!(stringify!($Name), ".", stringify!($field), " overlaps another field"));
                $crate::layout_fits!([$($hi $(: $lo)?)?] $Name $field $ty);
            };
        )*

        impl $Name {
            /// All bits zero: no default applied.
            pub const ZERO: $Name = $Name { dwords: [0; $size / 4] };

            /// The setters.
            #[inline(always)]
            pub fn w(&mut self) -> $crate::layout::Writer<'_, $Name> {
                $crate::layout::Writer::new(self)
            }

            $( $crate::layout_getter! { $(#[$field_meta])* $offset [$($hi $(: $lo)?)?] $field $ty } )*
        }

        #[allow(clippy::needless_lifetimes)]
        impl<'a> $crate::layout::Writer<'a, $Name> {
            $( $crate::layout_setter! { $offset [$($hi $(: $lo)?)?] $Name $field $ty } )*
        }

        impl Default for $Name {
            /// Zero, but for the fields that are always the same, such as an opcode.
            #[inline]
            fn default() -> Self {
                #[allow(unused_mut)]
                let mut layout = Self::ZERO;
                $( $( let _ = layout.w().$field($default); )? )*
                layout
            }
        }

        impl $crate::layout::ArrayElement for $Name {
            const ELEMENT: $crate::layout::Element = $crate::layout::Element::Layout(&<$Name as $crate::layout::Layout>::INFO);
        }

        impl $crate::layout::Part for $Name {
            const ELEMENT: $crate::layout::Element = <$Name as $crate::layout::ArrayElement>::ELEMENT;
            const COUNT: usize = 1;
        }

        impl core::fmt::Debug for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::decode::debug(&<$Name as $crate::layout::Layout>::INFO, $crate::layout::Layout::as_bytes(self), f)
            }
        }

        impl PartialEq for $Name {
            fn eq(&self, other: &Self) -> bool { self.dwords == other.dwords }
        }

        impl Eq for $Name {}
    )* };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_row {
    ($offset:literal [] $field:ident $ty:ty) => {
        $crate::layout::Field {
            name: $crate::layout::strip_raw(stringify!($field)),
            offset: $offset,
            kind: $crate::layout::Kind::Part {
                element: <$ty as $crate::layout::Part>::ELEMENT,
                count: <$ty as $crate::layout::Part>::COUNT,
            },
        }
    };
    ($offset:literal [$bit:literal] $field:ident $ty:ty) => {
        $crate::layout_row!($offset [$bit:$bit] $field $ty)
    };
    ($offset:literal [$hi:literal : $lo:literal] $field:ident $ty:ty) => {
        $crate::layout::Field {
            name: $crate::layout::strip_raw(stringify!($field)),
            offset: $offset,
            kind: $crate::layout::Kind::Bits { hi: $hi, lo: $lo, reading: <$ty as $crate::layout::Value>::READING },
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_fits {
    ([] $Name:ident $field:ident $ty:ty) => {};
    ([$bit:literal] $Name:ident $field:ident $ty:ty) => {};
    ([$hi:literal : $lo:literal] $Name:ident $field:ident $ty:ty) => {
        const _: () = assert!(
            $hi - $lo < <$ty as $crate::layout::Value>::BITS,
            concat!(
                stringify!($Name),
                ".",
                stringify!($field),
                " is wider than ",
                stringify!($ty)
            )
        );
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_getter {
    ($(#[$meta:meta])* $offset:literal [] $field:ident $ty:ty) => {
        $(#[$meta])*
        #[doc = concat!("`", stringify!($field), "`, from byte ", stringify!($offset), ".")]
        #[inline]
        pub fn $field(&self) -> &$ty {
            const SIZE: usize = core::mem::size_of::<$ty>();
            let bytes = &$crate::zerocopy::IntoBytes::as_bytes(&self.dwords)[$offset..$offset + SIZE];
            match <$ty as $crate::zerocopy::FromBytes>::ref_from_bytes(bytes) {
                Ok(part) => part,
                Err(_) => unreachable!(concat!(stringify!($field), ": offset and size are checked at compile time")),
            }
        }
    };
    ($(#[$meta:meta])* $offset:literal [$bit:literal] $field:ident $ty:ty) => {
        $crate::layout_getter! { $(#[$meta])* $offset [$bit:$bit] $field $ty }
    };
    ($(#[$meta:meta])* $offset:literal [$hi:literal : $lo:literal] $field:ident $ty:ty) => {
        $(#[$meta])*
        #[doc = concat!("`", stringify!($field), "`, ", stringify!($offset), " [", stringify!($hi), ":", stringify!($lo), "].")]
        #[inline(always)]
        pub fn $field(&self) -> $ty {
            <$ty as $crate::layout::Value>::from_number($crate::layout::get(&self.dwords, $offset, $hi, $lo))
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_setter {
    ($offset:literal [] $Name:ident $field:ident $ty:ty) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        #[inline]
        pub fn $field(mut self, value: &$ty) -> Self {
            const SIZE: usize = core::mem::size_of::<$ty>();
            let bytes = $crate::zerocopy::IntoBytes::as_mut_bytes(&mut self.layout().dwords);
            bytes[$offset..$offset + SIZE]
                .copy_from_slice($crate::zerocopy::IntoBytes::as_bytes(value));
            self
        }
    };
    ($offset:literal [$bit:literal] $Name:ident $field:ident $ty:ty) => {
        $crate::layout_setter! { $offset [$bit:$bit] $Name $field $ty }
    };
    ($offset:literal [$hi:literal : $lo:literal] $Name:ident $field:ident $ty:ty) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        #[inline(always)]
        pub fn $field(mut self, value: $ty) -> Self {
            $crate::layout::set(
                &mut self.layout().dwords,
                $offset,
                ($hi, $lo),
                <$ty as $crate::layout::Value>::number(value),
                concat!(stringify!($Name), ".", stringify!($field)),
            );
            self
        }
    };
}

/// Declares a total enumeration of a field's values: every number converts, those without a name to `Unknown`.
#[macro_export]
macro_rules! values {
    ($(
        $(#[$meta:meta])*
        pub enum $Name:ident : $bits:literal {
            $( $(#[$variant_meta:meta])* $Variant:ident = $number:literal $($prm:literal)? ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Name {
            $( $(#[$variant_meta])* $Variant, )*
            /// A number without a name here.
            Unknown(u32),
        }

        impl $Name {
            /// Every named value.
            pub const ALL: &'static [$Name] = &[ $( $Name::$Variant ),* ];

            /// The number on the wire.
            #[inline]
            pub const fn number(self) -> u32 {
                match self { $( $Name::$Variant => $number, )* $Name::Unknown(number) => number }
            }

            /// The value a number stands for.
            #[inline]
            pub const fn from_number(number: u32) -> Self {
                match number { $( $number => $Name::$Variant, )* _ => $Name::Unknown(number) }
            }

            /// The PRM's name; `None` for an unknown number.
            pub const fn prm_name(self) -> Option<&'static str> {
                match self { $( $Name::$Variant => Some($crate::values!(@name $Variant $($prm)?)), )* $Name::Unknown(_) => None }
            }
        }

        impl $crate::layout::Value for $Name {
            const BITS: u32 = $bits;
            const READING: $crate::layout::Reading =
                $crate::layout::Reading::Named(|number| $Name::from_number(number as u32).prm_name());
            #[inline(always)]
            fn from_number(number: u64) -> Self { $Name::from_number(number as u32) }
            #[inline(always)]
            fn number(self) -> u64 { u64::from($Name::number(self)) }
        }

        impl core::fmt::Display for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.prm_name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "unknown({:#x})", self.number()),
                }
            }
        }
    )* };
    (@name $Variant:ident) => { stringify!($Variant) };
    (@name $Variant:ident $prm:literal) => { $prm };
}
