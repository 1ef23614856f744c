//! Received frames of one stride each, one behind the other: what their completions say is known but for the lengths.

#[cfg(not(target_arch = "x86_64"))]
use std::ptr::NonNull;

/// What a CQE says of a received frame, for those who need no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    pub(in crate::queue) byte_count: u32,
    /// `wqe_counter`.
    pub(in crate::queue) counter: u16,
}

/// Where a received frame is in its buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Place {
    pub(in crate::queue) start: u32,
    pub(in crate::queue) len: u32,
}

/// In a completion's byte count: one stride.
const ONE_STRIDE: u32 = 1 << 16;

/// The next frames of a buffer, as far as they have one stride each.
#[derive(Debug, Clone, Copy)]
pub struct Short {
    /// The next one's stride, which is at most 2^15, and where it starts in the buffer.
    pub(in crate::queue) used: u32,
    pub(in crate::queue) start: u32,
    /// Bytes of a stride, at most 2^13.
    pub(in crate::queue) stride: u32,
    /// The least length, and how many lengths from that on are taken: none that is longer than a stride.
    pub(in crate::queue) least: u32,
    pub(in crate::queue) lengths: u32,
}

impl Short {
    /// Where the next frame is, if `received` is its completion. `None` for all others.
    #[inline(always)]
    pub(in crate::queue) fn take(&mut self, received: Received) -> Option<Place> {
        // One comparison, as the number of strides is in the upper half.
        let beyond = received.byte_count.wrapping_sub(ONE_STRIDE + self.least);
        if received.counter != self.used as u16 || beyond >= self.lengths {
            return None;
        }
        let (start, len) = (self.start, received.byte_count & 0xffff);
        (self.used, self.start) = (self.used + 1, start + self.stride);
        Some(Place { start, len })
    }
}

/// Mini CQEs of an array.
pub(super) const EIGHT: usize = 8;

/// As [`Short`], of mini CQEs with stride index: it stands before the byte count, so one comparison is enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct One {
    /// The bits of a mini CQE that are compared, as a number.
    compared: u64,
    /// What the next one says of a frame of the least length, and the number of lengths.
    next: u64,
    lengths: u64,
    start: u32,
    stride: u32,
}

impl One {
    /// Of the second dword, the bits in `counted` count.
    #[inline(always)]
    pub(super) fn new(short: Short, counted: u32) -> Self {
        let Short { used, start, stride, least, lengths } = short;
        // No length carries into the number of strides.
        debug_assert!(least + lengths <= ONE_STRIDE && used <= 1 << 15, "{short:?}");
        One {
            compared: 0xffff << 32 | u64::from(counted),
            next: u64::from(used) << 32 | u64::from(ONE_STRIDE + least),
            lengths: lengths.into(),
            start,
            stride,
        }
    }

    /// As [`Short::take`], of a mini CQE as a number.
    #[inline(always)]
    pub(super) fn take(&mut self, mini: u64) -> Option<Place> {
        let said = mini & self.compared;
        if said.wrapping_sub(self.next) >= self.lengths {
            return None;
        }
        let place = Place { start: self.start, len: said as u32 & 0xffff };
        self.pass(1);
        Some(place)
    }

    /// Goes on behind `count` frames.
    #[inline(always)]
    pub(super) fn pass(&mut self, count: u32) {
        self.next = self.next.wrapping_add(u64::from(count) << 32);
        self.start = self.start.wrapping_add(count.wrapping_mul(self.stride));
    }
}

/// As [`One`], of a whole array.
#[cfg(not(target_arch = "x86_64"))]
pub(super) type Eight = One;

#[cfg(not(target_arch = "x86_64"))]
impl One {
    /// As of `pairs::Eight`.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn take_all(&mut self, array: NonNull<[u64; EIGHT]>, places: &mut [Place; EIGHT]) -> bool {
        places.iter_mut().enumerate().all(|(at, place)| {
            // SAFETY: one of the eight, by this function's contract.
            let mini = unsafe { array.cast::<u64>().add(at).read_volatile() };
            self.take(u64::from_be(mini)).map(|found| *place = found).is_some()
        })
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use pairs::Eight;

/// Two mini CQEs at a time, by SSE2, which each of these processors has.
#[cfg(target_arch = "x86_64")]
mod pairs {
    use std::arch::x86_64::*;
    use std::ptr::NonNull;

    use super::{EIGHT, ONE_STRIDE, One, Place};

    /// As [`One`], of a whole array. A mini CQE has four numbers of 16 bits: one that is not compared, the stride
    /// index, the number of strides, the length.
    #[derive(Debug, Clone, Copy)]
    pub(in super::super) struct Eight {
        compared: __m128i,
        /// What the next two say of frames of the least length, and how much longer the longest are.
        next: __m128i,
        longer: __m128i,
        /// What is added to the stride index and number of strides for where the frames start, and what to this for the
        /// next two.
        place: __m128i,
        step: __m128i,
        /// Whether there are any lengths.
        some: bool,
    }

    /// The four numbers of a mini CQE in the order of memory.
    #[inline(always)]
    fn numbers(mini: u64) -> i64 {
        let of = |shift: u32| mini >> shift & 0xffff;
        (of(48) | of(32) << 16 | of(16) << 32 | of(0) << 48) as i64
    }

    impl From<One> for Eight {
        #[inline(always)]
        fn from(one: One) -> Self {
            let One { compared, next, lengths, start, stride } = one;
            // What is left of the next one's numbers without the first one, and without its length.
            let place = start.wrapping_sub((next >> 32) as u32 + ONE_STRIDE);
            // Of the second one; the stride index is one more, too.
            let (second, step) = (place.wrapping_add(stride).wrapping_sub(1), stride.wrapping_mul(2).wrapping_sub(2));
            // SAFETY: x86-64 has SSE2.
            unsafe {
                Eight {
                    compared: _mm_set1_epi64x(numbers(compared)),
                    next: _mm_set_epi64x(numbers(next.wrapping_add(1 << 32)), numbers(next)),
                    longer: _mm_set1_epi64x(numbers(lengths.wrapping_sub(1) & 0xffff)),
                    place: _mm_set_epi64x(second.into(), place.into()),
                    step: _mm_set1_epi64x(step.into()),
                    some: lengths != 0,
                }
            }
        }
    }

    impl Eight {
        /// Fills all `places` from `array`, if each mini CQE is the next frame's: then it goes on behind them.
        /// Otherwise what is in `places` may have changed, and nothing more is taken.
        ///
        /// # Safety
        /// `array` can be read, and is aligned to 16. Others may write it.
        #[inline(always)]
        pub(in super::super) unsafe fn take_all(
            &mut self,
            array: NonNull<[u64; EIGHT]>,
            places: &mut [Place; EIGHT],
        ) -> bool {
            // SAFETY: x86-64 has SSE2. Array and places have as many bytes as four vectors, of which the array is
            // aligned, by this function's contract. Each is read once.
            unsafe {
                let (array, places) = (array.cast::<__m128i>(), places.as_mut_ptr().cast::<__m128i>());
                let mut wrong = _mm_setzero_si128();
                for at in 0..EIGHT / 2 {
                    let two = array.add(at).read_volatile();
                    let numbers = _mm_or_si128(_mm_slli_epi16(two, 8), _mm_srli_epi16(two, 8));
                    let said = _mm_and_si128(numbers, self.compared);
                    // Without sign: less than expected is much more, too.
                    let more = _mm_subs_epu16(_mm_sub_epi16(said, self.next), self.longer);
                    wrong = _mm_or_si128(wrong, more);
                    let place = _mm_add_epi32(_mm_srli_epi64(said, 16), self.place);
                    _mm_storeu_si128(places.add(at), place);
                    self.next = _mm_add_epi16(self.next, _mm_set1_epi64x(2 << 16));
                    self.place = _mm_add_epi32(self.place, self.step);
                }
                self.some && _mm_movemask_epi8(_mm_cmpeq_epi16(wrong, _mm_setzero_si128())) == 0xffff
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Mini CQEs aligned as in a ring.
    #[repr(align(64))]
    struct Array([u64; EIGHT]);

    proptest! {
        /// By whole arrays the same is found as one by one, whatever the card says, also behind one that was right.
        #[test]
        fn an_array_is_looked_at_as_its_mini_cqes_are(
            used in 0u32..0x7ff0,
            (stride, shift) in (6u32..14, prop_oneof![Just(0u32), Just(2)]),
            (least, most) in (0u32..70, 0u32..8200),
            counted in prop_oneof![Just(!0u32), Just(0xff_ffff)],
            lens in prop::collection::vec(prop_oneof![0u32..70, 0u32..8200, any::<u16>().prop_map(u32::from)], 16),
            firsts in prop::collection::vec(any::<u16>(), 16),
            wrong in prop::option::of((0usize..16, any::<u64>())),
            bit in prop::option::of((0usize..16, 0u32..64)),
        ) {
            let stride = 1 << stride;
            let lengths = ((stride - shift).min(most) + 1).saturating_sub(least);
            let short = Short { used, start: used.wrapping_mul(stride) + shift, stride, least, lengths };
            // Right ones, most of which have lengths that are taken; then one is another, and a bit of one is.
            let mut minis: [u64; 16] = std::array::from_fn(|at| {
                let len = if lengths == 0 || lens[at] & 0x8000 != 0 { lens[at] } else { least + lens[at] % lengths };
                let said = u64::from(used + at as u32) << 32 | u64::from(ONE_STRIDE | len);
                u64::from(firsts[at]) << 48 | said | u64::from(!counted) & u64::from(firsts[at]) << 16
            });
            wrong.inspect(|(at, mini)| minis[*at] = *mini);
            bit.inspect(|(at, bit)| minis[*at] ^= 1 << bit);

            let mut one = One::new(short, counted);
            let mut eight = Eight::from(one);
            for array in minis.as_chunks::<EIGHT>().0 {
                let expected: Vec<_> = array.iter().map_while(|mini| one.take(*mini)).collect();
                let (memory, mut places) = (Array(array.map(u64::to_be)), [Place::default(); EIGHT]);
                // SAFETY: of memory that lives.
                let all = unsafe { eight.take_all(std::ptr::NonNull::from(&memory.0), &mut places) };
                prop_assert_eq!(all, expected.len() == EIGHT);
                if !all {
                    break;
                }
                prop_assert_eq!(&places[..], &expected);
            }
        }
    }
}
