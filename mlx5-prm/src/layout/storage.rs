//! Access to fields in big-endian dwords. It is in functions, because the macro is expanded for every field of every
//! layout.

use zerocopy::IntoBytes;

use super::table::{ends, mask, strip_raw};
use super::value::{Part, Value};

#[doc(hidden)]
#[inline(always)]
pub fn get<V: Value, const N: usize, const B: usize>(dwords: &[u32; N], offset: usize, bits: [u32; B]) -> V {
    let dword = |i: usize| u64::from(u32::from_be(dwords[i]));
    let (i, (hi, lo)) = (offset / 4, ends(bits));
    V::from_number(if hi > 31 { dword(i) << 32 | dword(i + 1) } else { dword(i) >> lo & mask(hi - lo + 1) })
}

#[doc(hidden)]
#[inline(always)]
pub fn set<V: Value, const N: usize, const B: usize>(
    dwords: &mut [u32; N],
    offset: usize,
    bits: [u32; B],
    value: V,
    name: (&'static str, &'static str),
) {
    let (i, (hi, lo), value) = (offset / 4, ends(bits), value.number());
    if hi > 31 {
        // As bytes, so that the compiler emits one store.
        dwords.as_mut_bytes()[offset..offset + 8].copy_from_slice(&value.to_be_bytes());
        return;
    }
    let mask = mask(hi - lo + 1);
    if value & !mask != 0 {
        too_wide(name.0, name.1, value, hi - lo + 1);
    }
    let rest = dwords[i] & !((mask << lo) as u32).to_be();
    dwords[i] = rest | ((value << lo) as u32).to_be();
}

#[doc(hidden)]
#[inline]
pub fn part<P: Part, const N: usize>(dwords: &[u32; N], offset: usize) -> &P {
    let bytes = &IntoBytes::as_bytes(dwords)[offset..offset + size_of::<P>()];
    match P::ref_from_bytes(bytes) {
        Ok(part) => part,
        Err(_) => unreachable!("offset and size are checked at compile time"),
    }
}

#[doc(hidden)]
#[inline]
pub fn set_part<P: Part, const N: usize>(dwords: &mut [u32; N], offset: usize, value: &P) {
    dwords.as_mut_bytes()[offset..offset + size_of::<P>()].copy_from_slice(IntoBytes::as_bytes(value));
}

// Names one by one, in registers: a pair would be stored, and the compiler stores it before the comparison.
#[cold]
#[inline(never)]
fn too_wide(layout: &'static str, field: &'static str, value: u64, bits: u32) -> ! {
    panic!("{layout}.{}: {value:#x} does not fit in {bits} bits", strip_raw(field))
}
