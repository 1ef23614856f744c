//! What fields are made of.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Be16, Be32, Be64, Element, Layout, Reading};

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
