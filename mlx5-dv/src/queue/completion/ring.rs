//! The ring of a completion queue: ownership of entries, and copying them out.

use std::ptr::NonNull;

use mlx5_prm::cqe::{Cqe, CqeFormat, CqeOpcode};
use uar::{CqRecord, barrier};

use super::short::{Ahead, EIGHT, Eight, LEAST, Lengths, MOST, Place, Received, Run, Whole};
use crate::objects::Cq;

/// Bytes of a CQE that are decoded.
const CQE: usize = size_of::<Copied>();
/// Offset of the opcode and owner bit in these bytes.
const OP_OWN: usize = 63;
/// There: opcode "invalid", without the owner bit.
const INVALID: u8 = 0xf0;

/// The copied fields of a CQE, at their offsets: all that is decoded. Declared field by field, so each copy is one load
/// without shifts; the rest stays zero. Those of frames are only copied where frames are received.
#[derive(Debug, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct Copied {
    /// Of frames: the hash, the sum.
    offload: [u64; 3],
    remote_qpn: u32,
    /// Of frames: header types, verdicts, the VLAN tag.
    headers: u32,
    /// `user_index`, then the immediate data.
    user_index: u64,
    _app: u32,
    byte_count: u32,
    /// In an error CQE: the syndromes.
    timestamp: u64,
    qpn: u32,
    /// WQE counter, opcode, owner bit.
    last: u32,
}

/// The last byte of a receive's CQE, without the owner bit.
const RECEIVED: u8 = (CqeOpcode::ResponderSend.number() as u8) << 4;
/// That of the title of a compressed block of receives.
const TITLE: u8 = RECEIVED | (CqeFormat::Compressed.number() as u8) << 2;

/// Mini CQEs of an entry.
pub(super) const ARRAY: u32 = (CQE / size_of::<u64>()) as u32;
const _: () = assert!(ARRAY as usize == EIGHT);

/// What is left of an array of mini CQEs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Minis {
    next: NonNull<u64>,
    end: NonNull<u64>,
}

impl Minis {
    /// How many are left.
    #[inline(always)]
    pub(super) fn len(&self) -> u32 {
        ((self.end.addr().get() - self.next.addr().get()) / size_of::<u64>()) as u32
    }
}

impl Iterator for Minis {
    type Item = u64;

    /// The next one, as a number: its first dword is the upper half.
    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: `Entries::minis` made it of an entry, aligned, and it ends before `end`; the ring is mapped while the
        // `CqRing` lives, whose user alone keeps this, and whose entries are not given back before.
        let mini = unsafe { self.next.read_volatile() };
        // SAFETY: at most the end of the array.
        self.next = unsafe { self.next.add(1) };
        Some(u64::from_be(mini))
    }
}

/// The entries. Copies refer to the same ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entries {
    /// The valid 64 bytes of entry 0.
    base: NonNull<u8>,
    /// Number of entries minus one.
    mask: u32,
    /// Their number: the bit of a position that tells laps apart.
    lap: u32,
    /// Entry size in bytes, 64 or 128. Not its logarithm: a variable shift costs more.
    stride: u32,
}

impl Entries {
    /// Address of entry `position`, which counts all entries ever written.
    #[inline(always)]
    fn slot(self, position: u32) -> NonNull<u8> {
        let offset = (position & self.mask) as usize * self.stride as usize;
        // SAFETY: the masked index is below the number of entries, so the entry is inside the ring, which is mapped
        // while the `CqRing` lives that owns all copies of this.
        unsafe { self.base.add(offset) }
    }

    /// Whether the card has written entry `position`, the next one or up to a ring's length later: its owner bit has
    /// the value of this lap. A new ring is filled with the other value.
    #[inline(always)]
    fn is_written(self, position: u32) -> bool {
        // SAFETY: inside the entry. Volatile: the card may write it at any time.
        let op_own = unsafe { self.slot(position).add(OP_OWN).read_volatile() };
        op_own & 1 == self.parity(position)
    }

    /// Whether the card has written entry `position`, and its last byte is `expected`.
    #[inline(always)]
    fn ends_with(self, position: u32, expected: u8) -> bool {
        // SAFETY: inside the entry. Volatile: the card may write it at any time.
        let op_own = unsafe { self.slot(position).add(OP_OWN).read_volatile() };
        op_own == expected | self.parity(position)
    }

    /// The owner bit of the lap of `position`.
    #[inline(always)]
    fn parity(self, position: u32) -> u8 {
        u8::from(position & self.lap != 0)
    }

    /// Fills `places` by `take`, which is told what entries from `position` on say, one after the other: those that the
    /// card has written, of receives that succeeded. Ends where another one is, where `take` returns `None`, or with
    /// the ring. Returns how many places are filled.
    #[inline(always)]
    fn look<P>(self, position: u32, places: &mut [P], mut take: impl FnMut(Received) -> Option<P>) -> usize {
        let received = RECEIVED | self.parity(position);
        let to_end = (self.mask - (position & self.mask)) as usize + 1;
        let most = places.len().min(to_end);
        let (mut entry, mut index) = (self.slot(position), 0);
        // Cheaper than an iterator: the index is what is returned, and no pointer is kept beside it.
        while let Some(place) = places[..most].get_mut(index) {
            // SAFETY: inside the entry, one of the ring.
            if unsafe { entry.add(OP_OWN).read_volatile() } != received {
                return index;
            }
            // As in `read`.
            barrier::from_device();
            let fields = entry.cast::<Copied>().as_ptr();
            // SAFETY: inside the entry, aligned. Each field is read once.
            let (byte_count, counter) = unsafe {
                (
                    (&raw const (*fields).byte_count).read_volatile(),
                    (&raw const (*fields).last).cast::<u16>().read_volatile(),
                )
            };
            let told = Received { byte_count: u32::from_be(byte_count), counter: u16::from_be(counter) };
            let Some(found) = take(told) else { return index };
            *place = found;
            index += 1;
            // SAFETY: the next entry, or the ring's end.
            entry = unsafe { entry.add(self.stride as usize) };
        }
        most
    }

    /// Number of entries.
    pub(super) fn len(self) -> u32 {
        self.lap
    }

    /// Mini CQEs `from` to before `end` of an array, which is entry `position` of a block whose title is written.
    #[inline(always)]
    pub(super) fn minis(self, position: u32, from: u32, end: u32) -> Minis {
        barrier::from_device();
        let end = end.min(ARRAY);
        let first = self.slot(position).cast::<u64>();
        // SAFETY: of the entry's eight mini CQEs, or their end; `next` is not beyond `end`.
        unsafe { Minis { next: first.add(from.min(end) as usize), end: first.add(end as usize) } }
    }

    /// Fills `places` from the mini CQEs of entry `position`, an array of a block whose title is written, if they are
    /// those of the next frames.
    #[inline(always)]
    pub(super) fn look_at_array(self, position: u32, next: &mut Eight, places: &mut [Place; EIGHT]) -> bool {
        barrier::from_device();
        // SAFETY: of an entry of the ring, aligned to 64, which is not given back before its block is polled.
        unsafe { next.take_all(self.slot(position).cast(), places) }
    }

    /// Copies out entry `position`, which must be written; with `FRAMES` also the fields of frames.
    #[inline(always)]
    pub(super) fn read<const FRAMES: bool>(self, position: u32) -> Cqe {
        // The card stores the owner bit last; the other fields must be loaded after it.
        barrier::from_device();
        let entry = self.slot(position).cast::<Copied>().as_ptr();
        macro_rules! load {
            ($field:ident) => {
                // SAFETY: inside the entry, aligned. Each field is read once; nothing is read from the ring afterwards.
                unsafe { (&raw const (*entry).$field).read_volatile() }
            };
        }
        // Those that nothing depends on, so that more than one load would do no harm. There is none where nobody asks
        // for them.
        macro_rules! load_if_used {
            ($field:ident) => {
                // SAFETY: as above. It is loaded before the entry is given back, after a barrier for the compiler.
                unsafe { (&raw const (*entry).$field).read() }
            };
        }
        zerocopy::transmute!(Copied {
            offload: if FRAMES { load!(offload) } else { [0; 3] },
            remote_qpn: load_if_used!(remote_qpn),
            headers: if FRAMES { load!(headers) } else { 0 },
            user_index: load!(user_index),
            _app: 0,
            byte_count: load!(byte_count),
            timestamp: load_if_used!(timestamp),
            qpn: load!(qpn),
            last: load!(last),
        })
    }
}

/// Frames that are looked at when they are taken: their CQEs, one after the other.
#[derive(Debug, Clone)]
pub struct Walk {
    entry: NonNull<Copied>,
    /// Bytes of an entry.
    size: usize,
    next: Whole,
    /// As [`Whole::behind`] the last one that may be taken, if all have one stride.
    end: u64,
    run: Run,
}

impl Ahead for Walk {
    const NONE: Walk = Walk { entry: NonNull::dangling(), size: 0, next: Whole::NONE, end: 0, run: Run::NONE };

    #[inline(always)]
    fn next(&mut self, _: &[Place; MOST]) -> Option<(usize, u32)> {
        if self.is_over() {
            return None;
        }
        // SAFETY: an entry of the ring, as `end` is not beyond its end; it is mapped while the `CqRing` lives, which
        // whoever keeps this has, too.
        let (last, byte_count) = unsafe { load_received(self.entry) };
        let place = match self.next.take(last, byte_count) {
            Some(place) => place,
            None => self.take_any(last, byte_count)?,
        };
        // SAFETY: the next entry, or the ring's end.
        self.entry = unsafe { self.entry.byte_add(self.size) };
        Some(place)
    }

    #[inline(always)]
    fn each(&mut self, _: &[Place; MOST], most: usize, lengths: Lengths, mut take: impl FnMut(usize, u32)) -> usize {
        let most = most.min(self.next.left(self.end));
        let Walk { mut entry, size, .. } = *self;
        let (mut next, mut left) = (self.next.only(lengths), most);
        while left != 0 {
            // SAFETY: as in `next`.
            let (last, byte_count) = unsafe { load_received(entry) };
            let Some((start, len)) = next.take(last, byte_count) else { break };
            take(start, len);
            // SAFETY: the next entry, or the ring's end.
            entry = unsafe { entry.byte_add(size) };
            left -= 1;
        }
        self.entry = entry;
        self.next.go_on(&next);
        most - left
    }

    #[inline(always)]
    fn is_over(&self) -> bool {
        self.next.is_at(self.end)
    }

    #[inline(always)]
    fn awaits_next(&self) -> bool {
        // SAFETY: as in `next`.
        !self.is_over() && !self.next.is_written(unsafe { load_received(self.entry) }.0)
    }

    #[inline(always)]
    fn first(&self, most: usize) -> Self {
        Walk { end: self.next.behind(most.min(self.next.left(self.end))), ..self.clone() }
    }

    #[inline(always)]
    fn go_on(&mut self, first: &Self, count: u32) {
        let strides = self.next.left_to(&first.next);
        self.entry = first.entry;
        self.next.go_on(&first.next);
        // Some have several strides: fewer follow than up to the end, which had to be found anew.
        if strides != count as usize {
            self.end = self.next.behind(0);
        }
    }

    #[inline(always)]
    fn used(&self, _: &[Place; MOST]) -> u32 {
        self.next.used()
    }
}

impl Walk {
    /// As [`Whole::take_any`]. Of the strides up to the end, those are fewer that more than one frame has.
    #[inline(always)]
    fn take_any(&mut self, last: u32, byte_count: u32) -> Option<(usize, u32)> {
        let left = self.next.left(self.end) - 1;
        let place = self.next.take_any(self.run, last, byte_count)?;
        let run = self.run.at(self.next.used(), 0);
        self.end = self.next.behind(left.min(run.most_short()));
        Some(place)
    }
}

/// The last dword and the byte count of a receive's CQE, as in memory. They are its own only if the owner bit is right.
///
/// # Safety
/// An entry of a ring that is mapped.
#[inline(always)]
unsafe fn load_received(entry: NonNull<Copied>) -> (u32, u32) {
    let fields = entry.as_ptr();
    // SAFETY: inside the entry, aligned. Volatile: the card may write it at any time. Each field is read once.
    unsafe {
        let last = (&raw const (*fields).last).read_volatile();
        // As in `Entries::read`.
        barrier::from_device();
        (last, (&raw const (*fields).byte_count).read_volatile())
    }
}

/// The ring's fields: half a cache line.
#[derive(Debug)]
pub(super) struct CqRing {
    pub(super) entries: Entries,
    /// CQEs consumed, modulo 2^32. The bit above the mask is the expected owner bit.
    pub(super) consumed: u32,
    pub(super) record: CqRecord,
}

const _: () = assert!(size_of::<CqRing>() <= 64, "the hot fields have outgrown a cache line");

// SAFETY: only this value uses the ring; `new`'s contract keeps its memory mapped.
unsafe impl Send for CqRing {}

impl CqRing {
    /// A ring of `1 << log_size` entries of `1 << shift` bytes at `base`.
    ///
    /// # Safety
    /// The ring's bytes stay mapped while this value lives, `base` is aligned to 64, and only this value writes them in
    /// this process. `shift` is 6 or 7.
    pub(super) unsafe fn new(base: NonNull<u8>, log_size: u32, shift: u32, record: CqRecord) -> Self {
        // SAFETY: the last 64 bytes of a 128-byte entry are inside the ring.
        let base = unsafe { base.add((1 << shift) - CQE) };
        let entries = Entries { base, mask: (1 << log_size) - 1, lap: 1 << log_size, stride: 1 << shift };
        CqRing { entries, consumed: 0, record }
    }

    /// Whether the card has written the next entry.
    #[inline(always)]
    pub(super) fn is_ready(&self) -> bool {
        self.entries.is_written(self.consumed)
    }

    /// Takes the next entry, which must be ready; with `FRAMES` as [`Entries::read`].
    #[inline(always)]
    pub(super) fn take<const FRAMES: bool>(&mut self) -> Cqe {
        let cqe = self.entries.read::<FRAMES>(self.consumed);
        self.consumed = self.consumed.wrapping_add(1);
        cqe
    }

    /// As [`Entries::look`], after `index` entries from the next one on.
    #[inline(always)]
    pub(super) fn look<P>(&self, index: u32, places: &mut [P], take: impl FnMut(Received) -> Option<P>) -> usize {
        self.entries.look(self.consumed.wrapping_add(index), places, take)
    }

    /// The next frames of `run`, at most `most`.
    #[inline(always)]
    pub(super) fn walk(&self, most: usize, run: Run) -> Walk {
        let Entries { mask, stride, .. } = self.entries;
        let next = Whole::new(run.short(LEAST, u32::MAX), RECEIVED | self.entries.parity(self.consumed));
        let to_end = (mask - (self.consumed & mask)) as usize + 1;
        let end = next.behind(most.min(to_end).min(run.most_short()));
        Walk { entry: self.entries.slot(self.consumed).cast(), size: stride as usize, next, end, run }
    }

    /// Whether the next entry is written, and the title of a block of receives.
    #[inline(always)]
    pub(super) fn begins_block(&self) -> bool {
        self.entries.ends_with(self.consumed, TITLE)
    }

    /// Makes `count` entries from `start` on those of this lap, and invalid: a compressed block leaves some unwritten,
    /// and others with mini CQEs in the place of the owner bit.
    pub(super) fn invalidate(&mut self, start: u32, count: u32) {
        let (mut position, mut left) = (start, count);
        while left != 0 {
            let some = left.min(self.entries.len() - (position & self.entries.mask));
            let op_own = INVALID | self.entries.parity(position);
            match self.entries.stride {
                64 => self.end_entries::<64>(position, some, op_own),
                _ => self.end_entries::<128>(position, some, op_own),
            }
            (position, left) = (position.wrapping_add(some), left - some);
        }
    }

    /// Stores the last byte of `count` entries of `STRIDE` bytes from `position` on, which do not wrap.
    #[inline(always)]
    fn end_entries<const STRIDE: usize>(&mut self, position: u32, count: u32, op_own: u8) {
        // Eight at a time, without a loop, as there is one for each frame.
        const MANY: u32 = 8;
        let first = self.entries.slot(position).as_ptr();
        let end = |at: u32| {
            // SAFETY: inside an entry. The card has written the block that it is a part of, and writes the entry again
            // only after `give_back`.
            unsafe { first.add(at as usize * STRIDE + OP_OWN).write_volatile(op_own) };
        };
        let whole = count / MANY * MANY;
        for at in (0..whole).step_by(MANY as usize) {
            (0..MANY).for_each(|more| end(at + more));
        }
        (whole..count).for_each(end);
    }

    /// Takes and releases the next entry.
    #[inline(always)]
    pub(super) fn pass(&mut self) {
        let consumed = self.consumed.wrapping_add(1);
        self.consumed = consumed;
        // As in `give_back`. The barrier is one for the compiler, too, which would load the index again behind it.
        barrier::before_reuse();
        self.record.consume(consumed);
    }

    /// Releases the entries that were taken, by the consumer index.
    #[inline(always)]
    pub(super) fn give_back(&mut self) {
        // The entries must have been read before the card may overwrite them.
        barrier::before_reuse();
        self.record.consume(self.consumed);
    }
}

/// Skips stale CQEs, from `position` on, of queue pairs that were reset or destroyed since.
// By value, so that a polling loop can keep the ring's fields in registers.
#[cold]
#[inline(never)]
pub(super) fn first_present(entries: Entries, mut position: u32, cq: &Cq) -> u32 {
    while entries.is_written(position) && cq.is_former(&entries.read::<false>(position), position) {
        position = position.wrapping_add(1);
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Strides;
    use crate::queue::fake::Memory;
    use proptest::prelude::*;

    /// Frames that are looked at when they are taken need none.
    const NO_PLACES: [Place; MOST] = [Place { start: 0, len: 0 }; MOST];
    /// Entries of the ring.
    const LOG_SIZE: u32 = 4;
    const SIZE: u32 = 1 << LOG_SIZE;

    /// A ring of entries of `1 << shift` bytes that begins at `consumed`. In it are completions of `frames`, each of so
    /// many strides and bytes, behind `used` strides.
    fn ring(memory: &Memory, shift: u32, consumed: u32, mut used: u32, frames: &[(u32, u32)]) -> CqRing {
        // SAFETY: both lie in `memory`, which lives longer.
        let mut ring =
            unsafe { CqRing::new(memory.at(0), LOG_SIZE, shift, CqRecord::new(memory.at((SIZE << shift) as usize))) };
        ring.consumed = consumed;
        for at in 0..SIZE {
            let position = consumed.wrapping_add(at);
            let lap = position & SIZE != 0;
            let mut cqe = Cqe::ZERO;
            match frames.get(at as usize) {
                Some((strides, len)) => {
                    cqe.w().opcode(CqeOpcode::ResponderSend).wqe_counter(used as u16).byte_cnt(strides << 16 | len);
                    cqe.w().signature(at as u8).owner(lap);
                    used += strides;
                }
                None => {
                    cqe.w().owner(!lap);
                }
            }
            memory.write(offset(shift, position), zerocopy::IntoBytes::as_bytes(&cqe));
        }
        ring
    }

    /// Offset of the valid bytes of entry `position`.
    fn offset(shift: u32, position: u32) -> usize {
        ((position % SIZE) << shift) as usize + (1 << shift) - CQE
    }

    proptest! {
        /// Whatever the card says: frames are found one by one, as they are taken, as all at once; and those of one
        /// stride, each by one comparison, as by several.
        #[test]
        fn frames_are_found_as_they_are_taken(
            (shift, consumed, two_byte_shift) in (6u32..8, any::<u32>(), any::<bool>()),
            (log_count, used) in (3u32..7, any::<prop::sample::Index>()),
            kinds in prop::collection::vec((prop_oneof![8 => Just(1u32), 2 => 0u32..4], any::<u16>()), 0..17),
            (most, some, longest) in (0usize..20, 1usize..8, prop_oneof![15u32..80, Just(9000)]),
            wrong in prop::option::of((0..SIZE, prop_oneof![0x2cusize..0x30, 0x3cusize..0x40], 1u8..)),
        ) {
            let strides = Strides { two_byte_shift, ..Strides::new(64, 1 << log_count) };
            let used = used.index(1 << log_count) as u32;
            let frame = |(strides, len): &(u32, u16)| (*strides, u32::from(*len) % (strides * 64 + 3));
            let frames: Vec<_> = kinds.iter().map(frame).collect();
            let memory = Memory::new((SIZE << shift) as usize + 64);
            let mut ring = ring(&memory, shift, consumed, used, &frames);
            if let Some((at, byte, bits)) = wrong {
                let at = offset(shift, consumed.wrapping_add(at)) + byte;
                memory.write(at, &[memory.read(at, 1)[0] ^ bits]);
            }
            let run = Run::new(strides, used);

            let (mut all, mut places) = (run, vec![Place::default(); most]);
            let count = ring.look(0, &mut places, |received| all.take(received));
            let mut walk = ring.walk(most, run);
            let walked: Vec<_> = std::iter::from_fn(|| walk.next(&NO_PLACES)).collect();
            let each = |place: &Place| (place.start as usize, place.len);
            let of = |places: &[Place]| places.iter().map(each).collect::<Vec<_>>();
            prop_assert_eq!(&walked, &of(&places[..count]));
            prop_assert_eq!(walk.used(&NO_PLACES), all.used());

            // By turns, some at a time, as from one burst to the next.
            let (mut ahead, mut turns) = (ring.walk(most, run), Vec::new());
            let lengths = Lengths::up_to(longest);
            loop {
                let (mut walk, before) = (ahead.first(some), turns.len());
                let short = walk.each(&NO_PLACES, 3, lengths, |start, len| turns.push((start, len)));
                prop_assert!(turns[before..].iter().all(|(_, len)| (LEAST..=longest).contains(len)));
                prop_assert!(short <= some.min(3));
                turns.extend(walk.next(&NO_PLACES));
                let count = (turns.len() - before) as u32;
                prop_assert!(count as usize <= some);
                ahead.go_on(&walk, count);
                prop_assert_eq!(ahead.used(&NO_PLACES), walk.used(&NO_PLACES));
                if ahead.is_over() {
                    ring.consumed = consumed.wrapping_add(turns.len() as u32);
                    // Not into the next lap, where the frames above are again.
                    let left = most.min((SIZE - consumed % SIZE) as usize).saturating_sub(turns.len());
                    ahead = ring.walk(left, Run::new(strides, ahead.used(&NO_PLACES)));
                }
                if count == 0 {
                    break;
                }
            }
            // The next one, if all before it are those of this ring's end, buffer and `most`.
            let (next, is_written) = (consumed.wrapping_add(turns.len() as u32), turns.len() < frames.len());
            if wrong.is_none() && ahead.awaits_next() {
                prop_assert!(!is_written || next.wrapping_sub(consumed) >= SIZE);
            }
            let walk = ahead;
            ring.consumed = consumed;
            prop_assert_eq!((&turns, walk.used(&NO_PLACES)), (&walked, all.used()));

            let (mut short, mut found) = (run.short(LEAST, longest), Vec::new());
            let short_ones = most.min(run.most_short());
            let count = ring.look(0, &mut places[..short_ones], |received| short.take(received));
            let each = ring.walk(most, run).each(&NO_PLACES, most, lengths, |start, len| found.push((start, len)));
            prop_assert_eq!((each, found), (count, of(&places[..count])));
        }
    }
}
