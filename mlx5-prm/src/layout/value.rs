//! What fields are made of: numbers, named values, arrays, layouts.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::table::{Element, Field, Info, Reading};

/// A big-endian 16-bit number, of alignment 1.
pub type Be16 = zerocopy::big_endian::U16;
/// A big-endian 32-bit number, of alignment 1.
pub type Be32 = zerocopy::big_endian::U32;
/// A big-endian 64-bit number, of alignment 1.
pub type Be64 = zerocopy::big_endian::U64;

/// A value that fills a bit field.
pub trait Value: Copy {
    /// Width of the widest field for it.
    const BITS: u32;
    /// How its number reads.
    const READING: Reading;
    /// Converts from the field's number, of at most [`BITS`](Self::BITS) bits.
    fn from_number(number: u64) -> Self;
    /// Converts to the field's number.
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
    /// Type of an element.
    const ELEMENT: Element;
    /// Number of elements.
    const COUNT: usize;
}

/// An element type of arrays.
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

impl<L: Layout> ArrayElement for L {
    const ELEMENT: Element = Element::Layout(&L::INFO);
}

impl<L: Layout> Part for L {
    const ELEMENT: Element = <L as ArrayElement>::ELEMENT;
    const COUNT: usize = 1;
}

impl<E: ArrayElement, const N: usize> Part for [E; N] {
    const ELEMENT: Element = E::ELEMENT;
    const COUNT: usize = N;
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

    /// The bytes of the layout.
    fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }

    /// Reads the layout from the start of `bytes`, ignoring the rest; `None` if there are too few.
    fn read(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|(layout, _)| layout)
    }
}

/// The setters of a layout, named like the getters, for chaining: `eqc.w().uar_page(7).oi(true)`.
///
/// A value too wide for its field is a bug of the caller: the setter panics and names layout and field. Check values
/// from users and devices before.
pub type Writer<'a, L> = <L as Layout>::Writer<'a>;
