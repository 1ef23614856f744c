//! Changing memory keys by work requests: user memory region updates (UMR). PRM "UMR Control Segment".
//!
//! ```text
//! segment 0       control: UMR, the key
//! segments 1..4   UMR control: what is changed, octwords of the list
//! segments 4..8   the key's new context
//! then            the list, padded to 64 bytes; or a data segment that says where it lies
//! ```
//! These are the work requests by which libmlx5 and Linux register memory fast, invalidate keys and bind windows.

use mlx5_prm::ctx::Mkc;
use mlx5_prm::wqe::{
    DataSeg, MkeyMaskBit, RepeatBlockSeg, RepeatEntry, SEGMENT, UmrCheck, UmrCtrlSeg, WQEBB, WqeOpcode, mkey_mask,
};
use uar::SendDoorbell;

use super::SendBatch;
use super::ring::{Room, SendRing};
use super::service::{Connected, longest_wqe};
use super::wqe::{Elements, Head, Inline, Payload, Request, WrFlags};
use crate::caps::Caps;
use crate::memory::{DataSegment, Iova, MAX_ELEMENT, RemoteAddress};
use crate::objects::{AccessFlags, KeyLayout, UmrKey};
use crate::queue::error::PostError;

/// Segments of a WQE before its list.
const HEAD: usize = 1 + (size_of::<UmrCtrlSeg>() + size_of::<Mkc>()) / SEGMENT;
/// Octwords of a list are a multiple of this number.
const BLOCK: usize = WQEBB / SEGMENT;
/// `op` of a repeat block.
const REPEAT: u32 = 0x400;
/// A key that any queue pair of its PD may use.
const ANY_QP: u32 = 0xff_ffff;
/// Rights of a page: read, and written if the key allows that.
const PAGE_PRESENT: u64 = 0b11;

/// Octwords of the longest list that a WQE holds.
pub(crate) fn inline_octwords(caps: &Caps) -> usize {
    list_room(usize::from(longest_wqe(caps)))
}

/// Octwords of the longest list in a WQE of `segments`.
fn list_room(segments: usize) -> usize {
    segments.saturating_sub(HEAD) / BLOCK * BLOCK
}

/// What a registration changes of a key.
const REGISTERED: &[MkeyMaskBit] = &[
    MkeyMaskBit::Len,
    MkeyMaskBit::StartAddr,
    MkeyMaskBit::Key,
    MkeyMaskBit::LocalWrite,
    MkeyMaskBit::RemoteRead,
    MkeyMaskBit::RemoteWrite,
    MkeyMaskBit::Free,
];

/// What a key is to be from now on: see [`SendBatch::register`].
#[derive(Debug, Clone, Copy)]
pub struct Registration<'a> {
    /// The key's new low eight bits. Another one at each registration makes sure that a remote's old key is refused.
    pub variant: u8,
    /// What may be done by it. Local reading is always allowed.
    pub access: AccessFlags,
    /// The address of its first byte as work requests and remotes count: any, 0 among them.
    pub start: u64,
    /// The memory.
    pub memory: KeyMemory<'a>,
}

/// The memory of a [`Registration`].
#[derive(Debug, Clone, Copy)]
pub enum KeyMemory<'a> {
    /// Parts of other keys, one after the other: of any lengths, at any addresses.
    Parts(&'a [DataSegment]),
    /// The same, by a list that lies in registered memory, for more parts than a WQE holds.
    ListedParts {
        /// The list: 16 bytes for each part, big-endian: length (32 bits), key (32 bits), address (64 bits). Its
        /// address is a multiple of 64, and what follows up to the next multiple of 64 bytes is its own, zeroed.
        list: DataSegment,
        /// Bytes of all parts together.
        len: u64,
    },
    /// Parts of other keys that take turns.
    Interleaved {
        /// How many turns.
        turns: u32,
        /// Who takes turns.
        parts: &'a [Interleaved],
    },
    /// Pages, by the addresses that the card knows them by. The first byte lies as far behind the first page's start as
    /// [`Registration::start`] behind a multiple of the page size.
    Pages {
        /// The pages, each at a multiple of its size.
        pages: &'a [Iova],
        /// Bytes from the first one on.
        len: u64,
    },
}

/// Memory that takes turns with others: so many bytes of it, then those of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interleaved {
    /// Address of its first turn, as its key counts.
    pub addr: u64,
    /// Its key.
    pub lkey: u32,
    /// Bytes of a turn.
    pub bytes: u16,
    /// Bytes from one turn to the next.
    pub stride: u16,
}

/// The segments between control and list.
struct Change {
    control: UmrCtrlSeg,
    context: Mkc,
}

impl Head for &Change {
    #[inline(always)]
    fn segments(&self) -> usize {
        HEAD - 1
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>) {
        let control: [[u64; 2]; 3] = zerocopy::transmute!(self.control);
        let context: [[u64; 2]; 4] = zerocopy::transmute!(self.context);
        for (i, segment) in control.into_iter().chain(context).enumerate() {
            room.store(1 + i, segment);
        }
    }
}

/// A list in the WQE, padded with zeros.
trait List {
    /// Octwords without padding.
    fn octwords(&self) -> usize;
    /// Octword number `i`.
    fn octword(&self, i: usize) -> [u64; 2];
}

impl<L: List> Payload for &L {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, _: &SendRing) -> Result<usize, PostError> {
        Ok(self.octwords().next_multiple_of(BLOCK))
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let octwords = self.octwords();
        (0..octwords).for_each(|i| room.store(at + i, self.octword(i)));
        (octwords..octwords.next_multiple_of(BLOCK)).for_each(|i| room.store(at + i, [0; 2]));
    }
}

struct Parts<'a>(&'a [DataSegment]);

impl List for Parts<'_> {
    #[inline(always)]
    fn octwords(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn octword(&self, i: usize) -> [u64; 2] {
        // A KLM entry has the data segment's form.
        Elements::segment(&self.0[i])
    }
}

struct Turns<'a> {
    turns: u32,
    parts: &'a [Interleaved],
}

impl List for Turns<'_> {
    #[inline(always)]
    fn octwords(&self) -> usize {
        1 + self.parts.len()
    }

    #[inline(always)]
    fn octword(&self, i: usize) -> [u64; 2] {
        let Some(part) = i.checked_sub(1).map(|i| &self.parts[i]) else {
            let mut block = RepeatBlockSeg::ZERO;
            let cycle = self.parts.iter().map(|part| u32::from(part.bytes)).sum();
            block.w().bcount_per_cycle(cycle).op(REPEAT).repeat_count(self.turns).num_entries(self.parts.len() as u16);
            return zerocopy::transmute!(block);
        };
        let mut entry = RepeatEntry::ZERO;
        entry.w().stride(part.stride).bcount(part.bytes).key(part.lkey).va(part.addr);
        zerocopy::transmute!(entry)
    }
}

struct Pages<'a>(&'a [Iova]);

impl List for Pages<'_> {
    #[inline(always)]
    fn octwords(&self) -> usize {
        self.0.len().div_ceil(2)
    }

    #[inline(always)]
    fn octword(&self, i: usize) -> [u64; 2] {
        [2 * i, 2 * i + 1].map(|i| self.0.get(i).map_or(0, |page| (page.0 | PAGE_PRESENT).to_be()))
    }
}

/// Where a list lies that is not in the WQE.
struct Pointer(DataSegment);

impl Payload for Pointer {
    #[inline(always)]
    fn bytes(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn segments(&self, _: &SendRing) -> Result<usize, PostError> {
        Ok(1)
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = DataSeg::ZERO;
        segment.w().byte_count(self.0.len).lkey(self.0.lkey).addr(self.0.addr);
        room.store(at, zerocopy::transmute!(segment));
    }
}

/// How many octwords a list has, and how many bytes the key covers.
struct Extent {
    octwords: usize,
    len: u64,
    is_inline: bool,
}

impl KeyMemory<'_> {
    fn extent(&self, key: &UmrKey) -> Result<Extent, PostError> {
        let extent = |octwords, len| Extent { octwords, len, is_inline: true };
        let (layout, extent) = match *self {
            KeyMemory::Parts(parts) => {
                check_each(parts.iter().map(|part| part.len))?;
                (true, extent(parts.len(), parts.iter().map(|part| u64::from(part.len)).sum()))
            }
            KeyMemory::ListedParts { list, len } => {
                if !list.addr.is_multiple_of(WQEBB as u64) || !list.len.is_multiple_of(SEGMENT as u32) {
                    return Err(PostError::ListMisaligned { addr: list.addr, len: list.len });
                }
                (true, Extent { is_inline: false, ..extent(list.len as usize / SEGMENT, len) })
            }
            KeyMemory::Interleaved { turns, parts } => {
                check_each(parts.iter().map(|part| part.bytes.into()))?;
                let cycle: u64 = parts.iter().map(|part| u64::from(part.bytes)).sum();
                (true, extent(1 + parts.len(), cycle * u64::from(turns)))
            }
            KeyMemory::Pages { pages, len } => (false, extent(pages.len().div_ceil(2), len)),
        };
        let is_of_parts = key.options().layout == KeyLayout::Parts;
        if layout != is_of_parts {
            return Err(PostError::KeyLayout { key: key.key(0) });
        }
        if extent.len == 0 || extent.octwords == 0 {
            return Err(PostError::EmptyPart);
        }
        if extent.octwords > key.room() as usize {
            return Err(PostError::KeyRoom { given: extent.octwords, most: key.room() });
        }
        Ok(extent)
    }
}

/// Each part has bytes, and not more than an entry can count.
fn check_each(mut lens: impl Iterator<Item = u32>) -> Result<(), PostError> {
    match lens.find(|len| *len == 0 || *len > MAX_ELEMENT) {
        None => Ok(()),
        Some(0) => Err(PostError::EmptyPart),
        Some(given) => Err(PostError::MessageTooLong { given: given.into(), most: MAX_ELEMENT.into() }),
    }
}

impl Registration<'_> {
    fn change(&self, key: &UmrKey, extent: &Extent, only: Option<u32>) -> Result<Change, PostError> {
        let has = |flag| self.access.contains(flag);
        let remote_writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        if self.access.intersects(remote_writes) && !has(AccessFlags::LOCAL_WRITE) {
            return Err(PostError::RemoteWithoutLocalWrite);
        }
        if has(AccessFlags::REMOTE_ATOMIC) && !key.atomics() {
            return Err(PostError::NoAtomicKeys);
        }
        let mut mask = mkey_mask(REGISTERED);
        if key.atomics() {
            mask |= mkey_mask(&[MkeyMaskBit::Atomic]);
        }
        if only.is_some() {
            mask |= mkey_mask(&[MkeyMaskBit::Qpn]);
        }
        let mut control = UmrCtrlSeg::ZERO;
        control
            .w()
            .inline(extent.is_inline)
            .check_free(UmrCheck::NotFree.number() as u8)
            .xlt_octowords(extent.octwords.next_multiple_of(BLOCK) as u16)
            .mkey_mask(mask);
        let mut context = Mkc::ZERO;
        context
            .w()
            .mkey_7_0(self.variant)
            .qpn(only.unwrap_or(ANY_QP))
            .lr(true)
            .lw(has(AccessFlags::LOCAL_WRITE))
            .rr(has(AccessFlags::REMOTE_READ))
            .rw(has(AccessFlags::REMOTE_WRITE))
            .a(has(AccessFlags::REMOTE_ATOMIC))
            .start_addr(self.start)
            .len(extent.len);
        Ok(Change { control, context })
    }
}

impl<D: SendDoorbell, S: Connected> SendBatch<'_, D, S> {
    /// Gives the free `key` memory and rights: fast registration. Returns its first byte as a remote addresses it.
    ///
    /// The card makes the change in the queue's order, after earlier work requests were begun; the next one waits for
    /// it, so a SEND behind it may tell the remote. What is carried out of earlier ones while it is made is not said:
    /// [`WrFlags::FENCE`] orders it behind earlier RDMA READs, for instance from what the key covers. A key that is not
    /// free, or of another protection domain, fails the work request, and the queue pair goes to ERR.
    ///
    /// Errors: [`PostError`].
    ///
    /// # Safety
    /// From now on until the key is free again (a completion says that [`local_invalidate`](Self::local_invalidate) was
    /// carried out, or that the remote invalidated it) or destroyed:
    /// * each part's memory stays registered under its own key, and each page is memory that was shown to the card and
    ///   stays so;
    /// * where `access` has any right to write, nothing in this process holds a reference to it or relies on what it
    ///   contains.
    ///
    /// Until the work request has completed, or its queue pair was reset or destroyed, the memory of a list stays
    /// registered and as it is.
    pub unsafe fn register(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        key: &UmrKey,
        registration: &Registration<'_>,
    ) -> Result<RemoteAddress, PostError> {
        self.change_key(wr_id, flags, key, registration, None)
    }

    /// As [`register`](Self::register), for this queue pair alone: no other can use the key, and no other remote.
    ///
    /// # Safety
    /// As for [`register`](Self::register).
    pub unsafe fn register_here(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        key: &UmrKey,
        registration: &Registration<'_>,
    ) -> Result<RemoteAddress, PostError> {
        self.change_key(wr_id, flags, key, registration, Some(self.ring.qpn))
    }

    fn change_key(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        key: &UmrKey,
        registration: &Registration<'_>,
        only: Option<u32>,
    ) -> Result<RemoteAddress, PostError> {
        let extent = registration.memory.extent(key)?;
        let change = registration.change(key, &extent, only)?;
        let rkey = key.key(registration.variant);
        let request = Request { opcode: WqeOpcode::Umr, wr_id, flags, imm: rkey };
        match registration.memory {
            KeyMemory::Parts(parts) => self.post_change(request, &change, &Parts(parts)),
            KeyMemory::ListedParts { list, .. } => self.post_change(request, &change, Pointer(list)),
            KeyMemory::Interleaved { turns, parts } => self.post_change(request, &change, &Turns { turns, parts }),
            KeyMemory::Pages { pages, .. } => self.post_change(request, &change, &Pages(pages)),
        }?;
        Ok(RemoteAddress { addr: registration.start, rkey })
    }

    /// Makes `key` free: whoever uses it from now on is refused (LOCAL_INV). It is a [`UmrKey`]'s, with the variant
    /// that it has.
    ///
    /// Accesses of the remote may be under way: once a completion says that it was carried out, there is none any more.
    /// The next work request waits for it. A key that cannot be changed, such as a memory region's, or has another
    /// variant fails the work request, and the queue pair goes to ERR. Errors: [`PostError`].
    pub fn local_invalidate(&mut self, wr_id: u64, flags: WrFlags, key: u32) -> Result<(), PostError> {
        let mut change = Change { control: UmrCtrlSeg::ZERO, context: Mkc::ZERO };
        change.control.w().inline(true).mkey_mask(mkey_mask(&[MkeyMaskBit::Free]));
        change.context.w().free(true).qpn(ANY_QP).mkey_7_0(key as u8);
        self.post_change(Request { opcode: WqeOpcode::Umr, wr_id, flags, imm: key }, &change, Inline(&[]))
    }

    /// Posts a UMR, behind which the next work request waits.
    fn post_change(&mut self, request: Request, change: &Change, list: impl Payload) -> Result<(), PostError> {
        let updates = self.service.key_updates();
        let segments = HEAD + list.segments(self.ring)?;
        if segments > updates.segments.into() {
            let most = list_room(updates.segments.into());
            return Err(PostError::ListTooLong { given: segments - HEAD, most });
        }
        let wqebbs = segments.div_ceil(WQEBB / SEGMENT);
        if wqebbs > self.ring.capacity() {
            return Err(PostError::WqeTooLong { given: wqebbs, most: self.ring.capacity() });
        }
        self.post(request, change, list)?;
        self.fence = updates.fence.bits();
        Ok(())
    }
}
