//! User memory region updates (UMR): work requests that configure memory keys. PRM "UMR Control Segment".
//!
//! ```text
//! segment 0       control: UMR, the key
//! segments 1..4   UMR control: what is changed, octwords of the list
//! segments 4..8   the key's new context
//! then            the list, padded to 64 bytes; or a data segment that points to it
//! ```
//! libmlx5 and Linux use these work requests for fast registration, invalidation and binding of windows.

use mlx5_prm::ctx::Mkc;
use mlx5_prm::wqe::{
    DataSeg, MkeyMaskBit, RepeatBlockSeg, RepeatEntry, SEGMENT, UmrCheck, UmrCtrlSeg, WQEBB, WqeOpcode, mkey_mask,
};
use uar::SendDoorbell;

use super::ring::{Room, SendRing};
use super::service::{KeyChanging, longest_wqe};
use super::wqe::{Elements, Head, Inline, Payload, Request, WrFlags};
use super::{NOT_COPIED, SendBatch};
use crate::caps::Caps;
use crate::memory::{DataSegment, Iova, MAX_ELEMENT, RemoteAddress};
use crate::objects::{AccessFlags, KeyLayout, UmrKey};
use crate::queue::error::PostError;

/// Segments of a WQE before its list.
const HEAD: usize = 1 + (size_of::<UmrCtrlSeg>() + size_of::<Mkc>()) / SEGMENT;
/// The octwords of a list are a multiple of this.
const BLOCK: usize = WQEBB / SEGMENT;
/// `op` of a repeat block.
const REPEAT: u32 = 0x400;
/// `qpn` of a key for all queue pairs of its PD.
const ANY_QP: u32 = 0xff_ffff;
/// Rights of a page: read and write; the key restricts them.
pub(crate) const PAGE_PRESENT: u64 = 0b11;

/// Octwords of the longest list in a WQE.
pub(crate) fn inline_octwords(caps: &Caps) -> usize {
    list_room(usize::from(longest_wqe(caps)))
}

/// Octwords of the longest list in a WQE of `segments`.
fn list_room(segments: usize) -> usize {
    segments.saturating_sub(HEAD) / BLOCK * BLOCK
}

/// What restricts a key to one queue pair.
const ONLY: u64 = mkey_mask(&[MkeyMaskBit::Qpn]);

/// New state of a key: see [`SendBatch::register`].
#[derive(Debug, Clone, Copy)]
pub struct Registration<'a> {
    /// The key's new low eight bits. Change it with each registration, so that old keys of a remote are refused.
    pub variant: u8,
    /// Access rights. Local reads are always allowed.
    pub access: AccessFlags,
    /// First address of the key's range, for work requests and remotes; any value, including 0.
    pub start: u64,
    /// The memory.
    pub memory: KeyMemory<'a>,
}

/// The memory of a [`Registration`].
#[derive(Debug, Clone, Copy)]
pub enum KeyMemory<'a> {
    /// Parts of other keys, one after the other, of any length and at any address.
    Parts(&'a [DataSegment]),
    /// The same, by a list in registered memory: for more parts than fit in a WQE.
    ListedParts {
        /// The list: 16 bytes per part, big-endian: length (32 bits), key (32 bits), address (64 bits). Its address is
        /// a multiple of 64, and it is padded with zeros to a multiple of 64 bytes.
        list: DataSegment,
        /// Total length of all parts in bytes.
        len: u64,
    },
    /// Interleaved parts of other keys.
    Interleaved {
        /// Number of repetitions.
        turns: u32,
        /// The interleaved parts.
        parts: &'a [Interleaved],
    },
    /// Pages, by device address. The first byte has the offset in its page that [`Registration::start`] has.
    Pages {
        /// The pages, each aligned to its size.
        pages: &'a [Iova],
        /// Length in bytes.
        len: u64,
    },
    /// The same, by a list in registered memory: for more pages than fit in a WQE.
    ListedPages {
        /// The list: 8 bytes per page, big-endian: its device address with bits 0 and 1 set, which allow reads and
        /// writes. Its address is a multiple of 64, and it is padded with zeros to a multiple of 64 bytes.
        list: DataSegment,
        /// Length in bytes.
        len: u64,
    },
}

/// One part of an interleaved pattern: some bytes of it, then some of the next part, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interleaved {
    /// Its first address, within its key's range.
    pub addr: u64,
    /// Its key.
    pub lkey: u32,
    /// Bytes per repetition.
    pub bytes: u16,
    /// Distance between repetitions in bytes.
    pub stride: u16,
}

/// Who may use a key after a registration, and when that is carried out.
#[derive(Clone, Copy)]
pub(super) struct Scope {
    /// The only queue pair; `None`: all of the protection domain.
    pub(super) only: Option<u32>,
    /// The state that the key must not be in.
    pub(super) check: UmrCheck,
}

impl Scope {
    /// For keys that are free.
    pub(super) fn new(only: Option<u32>) -> Self {
        Scope { only, check: UmrCheck::NotFree }
    }
}

/// The segments between control segment and list. Passed by value: behind a reference it would be built in memory, and
/// copied from there.
#[derive(Clone, Copy)]
pub(super) struct Change {
    control: UmrCtrlSeg,
    context: Mkc,
}

impl Change {
    /// What makes a key with low eight bits `variant` free.
    pub(super) fn free(variant: u8) -> Self {
        let mut change = Change { control: UmrCtrlSeg::ZERO, context: Mkc::ZERO };
        change.control.w().inline(true).mkey_mask(mkey_mask(&[MkeyMaskBit::Free]));
        change.context.w().free(true).qpn(ANY_QP).mkey_7_0(variant);
        change
    }

    /// As [`free`](Self::free), refused where the key is not the queue pair's own; the key is nobody's then.
    pub(super) fn free_own(variant: u8) -> Self {
        let mut change = Change::free(variant);
        change.control.w().check_qpn(true).mkey_mask(mkey_mask(&[MkeyMaskBit::Free, MkeyMaskBit::Qpn]));
        change
    }
}

impl Head for Change {
    const LONG: bool = true;

    #[inline(always)]
    fn segments(&self) -> usize {
        HEAD - 1
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        // One by one: the compiler unrolls no loop here.
        let [first, second, third]: [[u64; 2]; 3] = zerocopy::transmute!(self.control);
        room.store(at, first);
        room.store(at + 1, second);
        room.store(at + 2, third);
        let [first, second, third, fourth]: [[u64; 2]; 4] = zerocopy::transmute!(self.context);
        room.store(at + 3, first);
        room.store(at + 4, second);
        room.store(at + 5, third);
        room.store(at + 6, fourth);
    }
}

/// A list in the WQE, padded with zeros.
trait List {
    /// Octwords without padding, at least one.
    fn octwords(&self) -> usize;
    /// Octword number `i`.
    fn octword(&self, i: usize) -> [u64; 2];
}

impl<L: List> Payload for L {
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
        // The last block as a whole: a loop over the padding would be a call of memset.
        let last = at + (octwords - 1) / BLOCK * BLOCK;
        for i in 0..BLOCK {
            room.store(last + i, [0; 2]);
        }
        for i in 0..octwords {
            room.store(at + i, self.octword(i));
        }
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
        // A KLM entry has the form of a data segment.
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

/// Pointer to a list outside the WQE.
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

/// Octwords of a list, and bytes that the key covers.
struct Extent {
    octwords: usize,
    len: u64,
    is_inline: bool,
}

impl KeyMemory<'_> {
    #[inline(always)]
    fn extent(&self, key: &UmrKey) -> Result<Extent, PostError> {
        let extent = |octwords, len| Extent { octwords, len, is_inline: true };
        let (layout, extent) = match *self {
            KeyMemory::Parts(parts) => (true, extent(parts.len(), sum_of(parts.iter().map(|part| part.len))?)),
            KeyMemory::ListedParts { list, len } => (true, listed(list, len)?),
            KeyMemory::ListedPages { list, len } => (false, listed(list, len)?),
            KeyMemory::Interleaved { turns, parts } => {
                let cycle = sum_of(parts.iter().map(|part| part.bytes.into()))?;
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

/// Of a key of `len` bytes by a `list` in memory.
#[inline(always)]
fn listed(list: DataSegment, len: u64) -> Result<Extent, PostError> {
    if !list.addr.is_multiple_of(WQEBB as u64) || !list.len.is_multiple_of(SEGMENT as u32) {
        return Err(PostError::ListMisaligned { addr: list.addr, len: list.len });
    }
    Ok(Extent { octwords: list.len as usize / SEGMENT, len, is_inline: false })
}

/// The sum of `lens`, of which none is empty or longer than an entry allows.
#[inline(always)]
pub(in crate::queue) fn sum_of(lens: impl Iterator<Item = u32> + Clone) -> Result<u64, PostError> {
    let mut sum = 0;
    for len in lens.clone() {
        if !is_part(len) {
            return Err(no_part(lens));
        }
        sum += u64::from(len);
    }
    Ok(sum)
}

/// Whether an entry can say `len`.
#[inline(always)]
fn is_part(len: u32) -> bool {
    // Both limits in one comparison.
    len.wrapping_sub(1) < MAX_ELEMENT
}

/// Names the first of `lens` that an entry cannot say.
#[cold]
#[inline(never)]
fn no_part(mut lens: impl Iterator<Item = u32> + Clone) -> PostError {
    let given = lens.clone().find(|len| !is_part(*len)).unwrap_or(0);
    PostError::PartLength { part: lens.position(|len| !is_part(len)).unwrap_or(0), given, most: MAX_ELEMENT }
}

impl Registration<'_> {
    #[inline(always)]
    fn check(&self, key: &UmrKey) -> Result<(), PostError> {
        let has = |flag| self.access.contains(flag);
        let remote_writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        if self.access.intersects(remote_writes) && !has(AccessFlags::LOCAL_WRITE) {
            return Err(PostError::RemoteWithoutLocalWrite);
        }
        if has(AccessFlags::REMOTE_ATOMIC) && !key.atomics() {
            return Err(PostError::NoAtomicKeys);
        }
        Ok(())
    }

    #[inline(always)]
    fn change(&self, key: &UmrKey, extent: &Extent, scope: Scope) -> Change {
        let has = |flag| self.access.contains(flag);
        let only = if scope.only.is_some() { ONLY } else { 0 };
        let mut control = UmrCtrlSeg::ZERO;
        control
            .w()
            .inline(extent.is_inline)
            .check_free(scope.check.number() as u8)
            .xlt_octowords(extent.octwords.next_multiple_of(BLOCK) as u16)
            .mkey_mask(key.changed() | only);
        let mut context = Mkc::ZERO;
        context
            .w()
            .mkey_7_0(self.variant)
            .qpn(scope.only.unwrap_or(ANY_QP))
            .lr(true)
            .lw(has(AccessFlags::LOCAL_WRITE))
            .rr(has(AccessFlags::REMOTE_READ))
            .rw(has(AccessFlags::REMOTE_WRITE))
            .a(has(AccessFlags::REMOTE_ATOMIC))
            .relaxed_ordering_write(has(AccessFlags::RELAXED_ORDERING))
            .relaxed_ordering_read(has(AccessFlags::RELAXED_ORDERING))
            .start_addr(self.start)
            .len(extent.len);
        Change { control, context }
    }
}

impl<D: SendDoorbell, S: KeyChanging> SendBatch<'_, D, S> {
    /// What the work request directly behind a [`register`](Self::register) or
    /// [`local_invalidate`](Self::local_invalidate) must carry among its flags, in this batch or a later one, by the
    /// card's `umr_fence`. A [`Connection`](crate::queue::Connection) adds it by itself.
    pub fn fence_after_update(&self) -> WrFlags {
        self.service.key_updates().fence
    }

    /// Fast registration: gives the free `key` memory and rights. Returns the address of its first byte for the remote.
    ///
    /// The card executes it in the queue's order, after earlier work requests have started. The next work request
    /// carries [`fence_after_update`](Self::fence_after_update); then a following SEND may pass the key to the remote.
    /// Without it, the card may use the key before it is changed. Earlier work requests may still be executing:
    /// [`WrFlags::FENCE`] orders it after earlier RDMA READs, for example from the key's memory. A key that is not
    /// free, or is of another protection domain, fails the work request, and the queue pair moves to ERR.
    ///
    /// Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the key is free again (a [`local_invalidate`](Self::local_invalidate) has completed, or a completion
    /// reports an invalidation by the remote) or destroyed:
    /// * each part's memory stays registered under its own key, and each page is memory that is mapped for the card and
    ///   stays so;
    /// * if `access` allows any writing, nothing in this process holds a reference to the memory or depends on its
    ///   content.
    ///
    /// Until the work request completes, or its queue pair is reset or destroyed, the memory of a list stays registered
    /// and unchanged.
    #[inline(always)]
    pub unsafe fn register(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        key: &UmrKey,
        registration: &Registration<'_>,
    ) -> Result<RemoteAddress, PostError> {
        self.change_key(wr_id, flags, key, registration, Scope::new(None))
    }

    /// As [`register`](Self::register), for this queue pair alone: the key is not valid on any other.
    ///
    /// # Safety
    /// As for [`register`](Self::register).
    #[inline(always)]
    pub unsafe fn register_here(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        key: &UmrKey,
        registration: &Registration<'_>,
    ) -> Result<RemoteAddress, PostError> {
        self.change_key(wr_id, flags, key, registration, Scope::new(Some(self.ring.qpn)))
    }

    // Where it is inlined, the kind of memory is known, and mostly the rights.
    #[inline(always)]
    pub(super) fn change_key(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        key: &UmrKey,
        registration: &Registration<'_>,
        scope: Scope,
    ) -> Result<RemoteAddress, PostError> {
        let extent = registration.memory.extent(key)?;
        registration.check(key)?;
        let change = registration.change(key, &extent, scope);
        let rkey = key.key(registration.variant);
        let request = Request { opcode: WqeOpcode::Umr, wr_id, flags, imm: rkey };
        match registration.memory {
            KeyMemory::Parts(parts) => self.post_change(request, change, Parts(parts)),
            KeyMemory::ListedParts { list, .. } | KeyMemory::ListedPages { list, .. } => {
                self.post_change(request, change, Pointer(list))
            }
            KeyMemory::Interleaved { turns, parts } => self.post_change(request, change, Turns { turns, parts }),
            KeyMemory::Pages { pages, .. } => self.post_change(request, change, Pages(pages)),
        }?;
        Ok(RemoteAddress { addr: registration.start, rkey })
    }

    /// LOCAL_INV: invalidates `key`, which becomes free; later accesses by it are refused. It must be the key of a
    /// [`UmrKey`] with its present variant.
    ///
    /// Accesses of the remote may still be executing; when the completion is polled, all have ended. The next work
    /// request carries [`fence_after_update`](Self::fence_after_update). A key that cannot be changed, such as a memory
    /// region's, or one with another variant fails the work request, and the queue pair moves to ERR. Errors:
    /// [`PostError`].
    pub fn local_invalidate(&mut self, wr_id: u64, flags: WrFlags, key: u32) -> Result<(), PostError> {
        self.post_free(Request { opcode: WqeOpcode::Umr, wr_id, flags, imm: key }, Change::free(key as u8))
    }

    /// Posts a UMR without a list.
    pub(super) fn post_free(&mut self, request: Request, change: Change) -> Result<(), PostError> {
        self.post_change(request, change, Inline(&[]))
    }

    /// Posts a UMR. Its WQE has 192 bytes or more, and what waits for it is most often posted with it: a copy to the
    /// card would cost more than it saves. (libmlx5 copies those of up to 256 bytes.)
    #[inline(always)]
    fn post_change(&mut self, request: Request, change: Change, list: impl Payload) -> Result<(), PostError> {
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
        self.last = NOT_COPIED;
        Ok(())
    }
}
