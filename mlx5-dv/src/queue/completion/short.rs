//! Received frames of a buffer, one behind the other. Most have one stride each: then what their completions say is
//! known but for the lengths.

#[cfg(not(target_arch = "x86_64"))]
use std::ptr::NonNull;

use crate::objects::{ETHERNET, Strides};

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

/// Strides of the largest buffer.
const MOST_STRIDES: u32 = 1 << 15;

/// The oldest buffer: its strides, and how many of them are used.
// Passed in two registers, as [`Run`] is not.
#[derive(Debug, Clone, Copy)]
pub struct Oldest<'a> {
    pub(in crate::queue) strides: &'a Strides,
    pub(in crate::queue) used: u32,
}

impl Oldest<'_> {
    /// Where its next packets are.
    #[inline(always)]
    pub(in crate::queue) fn run(self) -> Run {
        Run::new(*self.strides, self.used)
    }
}

/// Where the next packets of the oldest buffer are: for many that succeed, without its last one.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Strides used, and those of the buffer.
    used: u32,
    count: u32,
    /// Where the next packet starts in the buffer.
    start: u32,
    /// Bytes of a stride.
    stride: u32,
    shift: u32,
}

impl Run {
    /// Of no buffer.
    pub(super) const NONE: Run = Run { used: 0, count: 0, start: 0, stride: 0, shift: 0 };

    /// Of a buffer of which `used` strides are used.
    #[inline(always)]
    pub(super) fn new(strides: Strides, used: u32) -> Self {
        let (count, stride, shift) = (strides.count, strides.bytes, strides.shift() as u32);
        Run { used, count, start: used * stride + shift, stride, shift }
    }

    /// Most packets of one stride each before the last one of the buffer.
    #[inline(always)]
    pub(in crate::queue) fn most_short(&self) -> usize {
        self.count.saturating_sub(self.used + 1) as usize
    }

    /// As [`short`](Self::short), of all lengths but 0.
    #[inline(always)]
    pub(in crate::queue) fn short_of_any_length(&self) -> Short {
        let Run { used, start, stride, shift, .. } = *self;
        Short { used, start, stride, least: 1, lengths: stride.saturating_sub(shift) }
    }

    /// What completions say of packets of one stride each, from `least` to `longest` bytes. The caller takes at most
    /// [`most_short`](Self::most_short), and [passes](Self::pass_short) them.
    #[inline(always)]
    pub(in crate::queue) fn short(&self, least: u32, longest: u32) -> Short {
        let Run { used, start, stride, shift, .. } = *self;
        let lengths = (stride.saturating_sub(shift).min(longest) + 1).saturating_sub(least);
        Short { used, start, stride, least, lengths }
    }

    /// Goes on behind `count` packets of one stride each.
    #[inline(always)]
    pub(in crate::queue) fn pass_short(&mut self, count: u32) {
        self.used += count;
        self.start += count * self.stride;
    }

    /// Takes the packet of a completion of this queue that succeeded: where it is in the buffer. `None` for whatever
    /// the receive queue itself has to look at: one outside the strides, or not where it is expected, the last of the
    /// buffer, and no packet at all. Nothing changes then.
    #[inline(always)]
    pub(in crate::queue) fn take(&mut self, received: Received) -> Option<Place> {
        const FILLER: u32 = 1 << 15;
        let (strides, len) = (received.byte_count >> 16, received.byte_count & 0xffff);
        // A filler has the bit above the number of strides, so it ends beyond the buffer.
        const { assert!(FILLER >= MOST_STRIDES) };
        let (end, bytes) = (self.used + strides, strides * self.stride);
        // Not the last one of the buffer, and with its shift not empty, nor longer than its strides.
        let is_inside = end < self.count && len.wrapping_add(self.shift).wrapping_sub(1) < bytes;
        if received.counter != self.used as u16 || !is_inside {
            return None;
        }
        let start = self.start;
        (self.used, self.start) = (end, start + bytes);
        Some(Place { start, len })
    }

    /// Strides that are used.
    #[inline(always)]
    pub(in crate::queue) fn used(&self) -> u32 {
        self.used
    }

    /// As it is where `used` strides are used, and the next packet starts at `start`.
    #[inline(always)]
    pub(in crate::queue) fn at(self, used: u32, start: u32) -> Run {
        Run { used, start, ..self }
    }

    /// Where the next packet starts.
    #[inline(always)]
    pub(in crate::queue) fn start(&self) -> u32 {
        self.start
    }
}

/// The least length of frames that are taken by one comparison. No shorter one can be sent on.
pub(in crate::queue) const LEAST: u32 = ETHERNET as u32;

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

/// Most frames of a burst, a power of two.
pub(in crate::queue) const MOST: usize = 64;

/// Lengths of frames: those from `ETHERNET` on that can be sent on.
#[derive(Debug, Clone, Copy)]
pub struct Lengths(u64);

impl Lengths {
    /// All.
    pub(in crate::queue) const ANY: Lengths = Lengths(u64::MAX);

    /// Those up to `longest`.
    pub(in crate::queue) fn up_to(longest: u32) -> Self {
        Lengths((u64::from(longest) + 1).saturating_sub(LEAST.into()))
    }

    #[inline(always)]
    fn has(self, len: u32) -> bool {
        len >= LEAST && u64::from(len - LEAST) < self.0
    }
}

/// Frames that are there, of which some were taken already.
pub trait Ahead: Clone {
    /// None, of no buffer.
    const NONE: Self;
    /// Takes the next frame of these `places`: first byte in its buffer, and length.
    fn next(&mut self, places: &[Place; MOST]) -> Option<(usize, u32)>;
    /// Takes the next frames of these `places`, at most `most`, as far as their lengths are among `lengths`. Passes
    /// each to `take`, and returns how many there were. It may end before others, which cost more to find.
    fn each(&mut self, places: &[Place; MOST], most: usize, lengths: Lengths, take: impl FnMut(usize, u32)) -> usize;
    /// Whether no more will be taken, whatever comes.
    fn is_over(&self) -> bool;
    /// Whether the next one has not come, and will be one of these.
    fn awaits_next(&self) -> bool;
    /// Of these the first `most`.
    fn first(&self, most: usize) -> Self;
    /// Goes on behind the `count` frames that `first`, of [`first`](Self::first), has taken. It may be over then,
    /// though others follow.
    fn go_on(&mut self, first: &Self, count: u32);
    /// Strides that are used with those that were taken.
    fn used(&self, places: &[Place; MOST]) -> u32;
}

/// Frames that were looked for before any was taken: places.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    /// How many were taken, and how many there are.
    taken: u32,
    count: u32,
    /// Strides that are used with all, and log of a stride's bytes.
    used: u32,
    log_stride: u32,
}

impl Listed {
    /// `count` frames of a buffer, with which `used` of its strides are used.
    #[inline(always)]
    pub(super) fn new(count: usize, used: u32, strides: &Strides) -> Self {
        Listed { taken: 0, count: count as u32, used, log_stride: strides.bytes.trailing_zeros() }
    }

    /// The place of the first frame that is not taken.
    #[inline(always)]
    fn first_left(&self, places: &[Place; MOST]) -> Option<Place> {
        (self.taken != self.count).then(|| places[self.taken as usize % MOST])
    }
}

impl Ahead for Listed {
    const NONE: Listed = Listed { taken: 0, count: 0, used: 0, log_stride: 0 };

    #[inline(always)]
    fn next(&mut self, places: &[Place; MOST]) -> Option<(usize, u32)> {
        let Place { start, len } = self.first_left(places)?;
        self.taken += 1;
        Some((start as usize, len))
    }

    #[inline(always)]
    fn each(
        &mut self,
        places: &[Place; MOST],
        most: usize,
        lengths: Lengths,
        mut take: impl FnMut(usize, u32),
    ) -> usize {
        let places = places.get(self.taken as usize..self.count as usize).unwrap_or_default();
        let fit = places.iter().take(most).take_while(|place| lengths.has(place.len));
        let count = fit.map(|place| take(place.start as usize, place.len)).count();
        self.taken += count as u32;
        count
    }

    #[inline(always)]
    fn is_over(&self) -> bool {
        self.taken == self.count
    }

    #[inline(always)]
    fn awaits_next(&self) -> bool {
        false
    }

    #[inline(always)]
    fn first(&self, most: usize) -> Self {
        let left = (self.count - self.taken) as usize;
        let count = self.taken + left.min(most) as u32;
        Listed { count, ..*self }
    }

    #[inline(always)]
    fn go_on(&mut self, first: &Self, _: u32) {
        self.taken = first.taken;
    }

    #[inline(always)]
    fn used(&self, places: &[Place; MOST]) -> u32 {
        self.first_left(places).map_or(self.used, |next| next.start >> self.log_stride)
    }
}

/// As [`Short`], of whole CQEs: WQE counter, last byte and byte count are one number, so one comparison is enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole {
    /// What the next CQE says of a frame of the least length, as a negative number, which is added.
    minus: u64,
    /// The number of lengths.
    lengths: u64,
    /// Where the next frame starts in the buffer, and bytes of a stride.
    start: usize,
    stride: usize,
}

impl Whole {
    /// Of no buffer.
    pub(super) const NONE: Whole = Whole { minus: 0, lengths: 0, start: 0, stride: 0 };
    /// All but the signature, which is between counter and last byte.
    const COMPARED: u64 = 0xffff_00ff_ffff_ffff;
    /// Where the counter is.
    const COUNTER: u32 = 48;

    /// Of CQEs that end with `op_own`.
    #[inline(always)]
    pub(super) fn new(short: Short, op_own: u8) -> Self {
        let Short { used, start, stride, least, lengths } = short;
        // No length carries into the number of strides.
        debug_assert!(least + lengths <= ONE_STRIDE && used <= 1 << 15, "{short:?}");
        let counted = u64::from(op_own) << 32 | u64::from(ONE_STRIDE + least);
        let next = u64::from(used) << Self::COUNTER | counted;
        Whole { minus: next.wrapping_neg(), lengths: lengths.into(), start: start as usize, stride: stride as usize }
    }

    /// What is compared of a CQE.
    #[inline(always)]
    fn said(last: u32, byte_count: u32) -> u64 {
        // One swap for both, where one is needed.
        let [low, high] = if cfg!(target_endian = "little") { [last, byte_count] } else { [byte_count, last] };
        u64::from_be(u64::from(high) << 32 | u64::from(low)) & Self::COMPARED
    }

    /// Where the frame is of a CQE with these last dword and byte count, as in memory: first byte and length. `None`
    /// for all others.
    #[inline(always)]
    pub(super) fn take(&mut self, last: u32, byte_count: u32) -> Option<(usize, u32)> {
        let said = Self::said(last, byte_count);
        if said.wrapping_add(self.minus) >= self.lengths {
            return None;
        }
        let place = (self.start, said as u32 & 0xffff);
        self.minus = self.behind(1);
        self.start += self.stride;
        Some(place)
    }

    /// As [`take`](Self::take), of a frame of any number of strides, of which `run` knows the buffer. It is the next
    /// one's, and the CQE's last byte is right.
    #[inline(always)]
    pub(super) fn take_any(&mut self, run: Run, last: u32, byte_count: u32) -> Option<(usize, u32)> {
        let said = Self::said(last, byte_count);
        // Counter and last byte.
        if (said ^ self.next()) >> 32 != 0 {
            return None;
        }
        let mut run = run.at(self.used(), self.start as u32);
        let received = Received { byte_count: said as u32, counter: (said >> Self::COUNTER) as u16 };
        let Place { start, len } = run.take(received)?;
        self.minus = self.behind((run.used() - self.used()) as usize);
        self.start = run.start() as usize;
        Some((start as usize, len))
    }

    /// Of one whose least length is [`LEAST`]: for these lengths only.
    #[inline(always)]
    pub(super) fn only(self, lengths: Lengths) -> Self {
        Whole { lengths: self.lengths.min(lengths.0), ..self }
    }

    /// Goes on behind the frames that `other` has taken, which was the same but for lengths.
    #[inline(always)]
    pub(super) fn go_on(&mut self, other: &Self) {
        (self.minus, self.start) = (other.minus, other.start);
    }

    /// Number of strides before `other`.
    #[inline(always)]
    pub(super) fn left_to(&self, other: &Self) -> usize {
        self.left(other.minus)
    }

    /// Whether a CQE with this last dword, as in memory, is of the next one's lap.
    #[inline(always)]
    pub(super) fn is_written(&self, last: u32) -> bool {
        (Self::said(last, 0) ^ self.next()) >> 32 & 1 == 0
    }

    /// What the next CQE says of a frame of the least length.
    #[inline(always)]
    fn next(&self) -> u64 {
        self.minus.wrapping_neg()
    }

    /// Strides that are used.
    #[inline(always)]
    pub(super) fn used(&self) -> u32 {
        (self.next() >> Self::COUNTER) as u32
    }

    /// As it is behind `count` frames of one stride each.
    #[inline(always)]
    pub(super) fn behind(&self, count: usize) -> u64 {
        self.minus.wrapping_sub((count as u64) << Self::COUNTER)
    }

    /// Whether it is at `end`, as of [`behind`](Self::behind).
    #[inline(always)]
    pub(super) fn is_at(&self, end: u64) -> bool {
        self.minus == end
    }

    /// Number of frames before `end`, as of [`behind`](Self::behind).
    #[inline(always)]
    pub(super) fn left(&self, end: u64) -> usize {
        (self.minus.wrapping_sub(end) >> Self::COUNTER) as usize
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

    /// Byte counts near those that matter, and any others.
    fn byte_count() -> impl Strategy<Value = u32> {
        let near = (0u32..4, prop_oneof![0u32..70, 0xffc0u32..=0xffff]);
        prop_oneof![near.prop_map(|(strides, len)| strides << 16 | len), any::<u32>()]
    }

    fn state(run: &Run, place: Option<Place>) -> (u32, u32, Option<(u32, u32)>) {
        (run.used, run.start, place.map(|place| (place.start, place.len)))
    }

    proptest! {
        // Whatever a card says of a packet: what is taken by one comparison would be taken by all of them, too.
        #[test]
        fn a_short_packet_is_taken_as_any_other(
            byte_count in byte_count(),
            counter in prop_oneof![Just(5u16), any::<u16>()],
            shift in prop_oneof![Just(0u32), Just(2)],
            least in 1u32..20,
            longest in prop_oneof![15u32..80, Just(9000), Just(u32::MAX - 1)],
        ) {
            let run = Run { used: 5, count: 512, start: 5 * 64 + shift, stride: 64, shift };
            let received = Received { byte_count, counter };
            let (mut short, mut any) = (run, run);
            let (found, expected) = (run.short(least, longest).take(received), any.take(received));
            short.pass_short(found.is_some().into());
            let is_short = byte_count >> 16 == 1 && (least..=longest).contains(&(byte_count & 0xffff));
            if is_short {
                prop_assert_eq!(state(&short, found), state(&any, expected));
            } else {
                prop_assert_eq!(state(&short, found), state(&run, None));
            }
        }
    }

    #[test]
    fn short_packets_end_before_the_last_stride() {
        let run = |used| Run { used, count: 8, start: 0, stride: 64, shift: 0 };
        assert_eq!([0, 5, 6, 7, 8].map(|used| run(used).most_short()), [7, 2, 1, 0, 0]);
    }
}
