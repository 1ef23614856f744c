//! The ring of a completion queue: which entries are ours, and what is copied of them.

use std::ptr::NonNull;

use mlx5_prm::cqe::Cqe;
use uar::{CqRecord, barrier};

use crate::objects::Cq;

/// Bytes of the part of a CQE that says something.
const CQE: usize = size_of::<Copied>();
/// Where in it the opcode and the owner bit are.
const OP_OWN: usize = 63;

/// What is copied of a CQE, where it stands there: all that is decoded of it. By the fields, as each is then one load
/// and needs no shift; the rest is zero.
#[derive(zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
struct Copied {
    _offload: [u64; 3],
    remote_qpn: u32,
    _headers: u32,
    /// `user_index`, then the immediate.
    user_index: u64,
    _app: u32,
    byte_count: u32,
    /// Of an error its syndromes.
    timestamp: u64,
    qpn: u32,
    /// WQE counter, opcode, owner bit.
    last: u32,
}

/// Where the entries lie. Copies are the same ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entries {
    /// The 64 bytes that count of entry 0.
    base: NonNull<u8>,
    /// Their number less one.
    mask: u32,
    /// Bytes of an entry: 64 or 128. Not their log2, as a shift by a number in memory takes more.
    stride: u32,
}

impl Entries {
    /// Where entry `position` lies, of all entries there ever were.
    #[inline(always)]
    fn slot(self, position: u32) -> NonNull<u8> {
        let offset = (position & self.mask) as usize * self.stride as usize;
        // SAFETY: the masked index is below the number of entries, so the entry lies inside of the ring, which is
        // mapped while the `CqRing` lives that alone has copies of this.
        unsafe { self.base.add(offset) }
    }

    /// Whether entry `position`, the next or one of a ring's length from there, is ours: its owner bit is that of this
    /// lap. What a new ring is filled with has the other one.
    #[inline(always)]
    fn is_written(self, position: u32) -> bool {
        // SAFETY: inside of the entry. Volatile: the card writes it whenever it likes.
        let op_own = unsafe { self.slot(position).add(OP_OWN).read_volatile() };
        let parity = u8::from(position & (self.mask + 1) != 0);
        op_own & 1 == parity
    }

    /// Entry `position`, which is written, copied out.
    #[inline(always)]
    pub(super) fn read(self, position: u32) -> Cqe {
        // The owner bit was the card's last store: what follows must not have been loaded before it.
        barrier::from_device();
        let entry = self.slot(position).cast::<Copied>().as_ptr();
        macro_rules! load {
            ($field:ident) => {
                // SAFETY: inside of the entry, aligned. Each is read once; nothing is read from the ring after this.
                unsafe { (&raw const (*entry).$field).read_volatile() }
            };
        }
        zerocopy::transmute!(Copied {
            _offload: [0; 3],
            remote_qpn: load!(remote_qpn),
            _headers: 0,
            user_index: load!(user_index),
            _app: 0,
            byte_count: load!(byte_count),
            timestamp: load!(timestamp),
            qpn: load!(qpn),
            last: load!(last),
        })
    }
}

/// The ring as plain numbers: half a cache line.
#[derive(Debug)]
pub(super) struct CqRing {
    pub(super) entries: Entries,
    /// CQEs consumed, modulo 2^32; its bit above the mask is the parity that an owner bit must have.
    pub(super) consumed: u32,
    pub(super) record: CqRecord,
}

const _: () = assert!(size_of::<CqRing>() <= 64, "the hot fields have outgrown a cache line");

// SAFETY: the ring belongs to this value alone; its memory is kept mapped by the promise of `new`.
unsafe impl Send for CqRing {}

impl CqRing {
    /// The ring of `1 << log_size` entries of `1 << shift` bytes at `base`.
    ///
    /// # Safety
    /// The ring's bytes are mapped until this value is gone, `base` is aligned to 64, and this process does not write
    /// them. `shift` is 6 or 7.
    pub(super) unsafe fn new(base: NonNull<u8>, log_size: u32, shift: u32, record: CqRecord) -> Self {
        // SAFETY: an entry of 128 bytes has its last 64 inside of the ring.
        let base = unsafe { base.add((1 << shift) - CQE) };
        CqRing { entries: Entries { base, mask: (1 << log_size) - 1, stride: 1 << shift }, consumed: 0, record }
    }

    /// Whether the next entry is ours.
    #[inline(always)]
    pub(super) fn is_ready(&self) -> bool {
        self.entries.is_written(self.consumed)
    }

    /// The next entry, which is ready.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Cqe {
        let cqe = self.entries.read(self.consumed);
        self.consumed = self.consumed.wrapping_add(1);
        cqe
    }

    /// Gives what was taken back to the card.
    #[inline(always)]
    pub(super) fn give_back(&mut self) {
        // The entries have been read before the card may overwrite them.
        barrier::before_reuse();
        self.record.consume(self.consumed);
    }
}

/// Skips stale CQEs, from `position` on, of queue pairs that were reset or destroyed since.
// By value, so that a loop of polls may keep the ring's numbers in registers.
#[cold]
#[inline(never)]
pub(super) fn first_present(entries: Entries, mut position: u32, cq: &Cq) -> u32 {
    while entries.is_written(position) && cq.is_former(&entries.read(position), position) {
        position = position.wrapping_add(1);
    }
    position
}
