//! The ring of a completion queue: ownership of entries, and copying them out.

use std::ptr::NonNull;

use mlx5_prm::cqe::{Cqe, CqeFormat, CqeOpcode};
use uar::{CqRecord, barrier};

use super::short::{EIGHT, Eight, Place, Received};
use crate::objects::Cq;

/// Bytes of a CQE that are decoded.
const CQE: usize = size_of::<Copied>();
/// Offset of the opcode and owner bit in these bytes.
const OP_OWN: usize = 63;
/// There: opcode "invalid", without the owner bit.
const INVALID: u8 = 0xf0;

/// The copied fields of a CQE, at their offsets: all that is decoded. Declared field by field, so each copy is one load
/// without shifts; the rest stays zero. Those of frames are only copied where frames are received.
#[derive(zerocopy::IntoBytes, zerocopy::Immutable)]
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
