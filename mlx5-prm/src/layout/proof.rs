//! Builds the rows of a layout's table, and checks them at compile time.

use super::table::{Choice, Field, Info, Kind, ends, strip_raw};
use super::value::{ArrayElement, Part, Value};

impl Info {
    /// Describes a layout, and checks that its fields do not overlap, exceed it or cross a dword. Panics otherwise; at
    /// compile time that is an error which names layout and field.
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
}

/// Fails the check of a layout with a message.
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

    /// The row with `choice` to choose its layout.
    #[doc(hidden)]
    pub const fn chosen(self, choice: Choice) -> Field {
        Field { choice: Some(choice), ..self }
    }

    /// The row with its number read as `V`, which must be wide enough.
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
}
