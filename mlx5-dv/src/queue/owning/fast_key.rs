//! Fast registration of buffers: keys that a remote gets for one transfer.

use std::sync::Arc;

use mlx5_prm::ctx::Mkc;
use mlx5_prm::wqe::{SEGMENT, WQEBB};

use super::batch::{ConnectionBatch, alone};
use super::connection::Connection;
use super::in_flight::{Done, RefusedReason, Ticket};
use super::key_life::KeyLife;
use super::orphans::{Orphan, Orphans};
use crate::error::Error;
use crate::memory::{DataSegment, Iova, RemoteAddress};
use crate::objects::{AccessFlags, Buffer, KeyLayout, MemoryRegion, Pd, UmrKey, UmrKeyOptions};
use crate::queue::completion::decode::Completion;
use crate::queue::error::PostError;
use crate::queue::send::service::{Connected, KeyChanging};
use crate::queue::send::umr::{Interleaved, KeyMemory, PAGE_PRESENT, Registration, inline_octwords, sum_of};

/// The bytes of a list in memory are a multiple of this.
const LIST_UNIT: usize = 64;

/// A key for fast registration, with the buffers that it exposes to a remote. A storage engine creates one per
/// concurrent request, and registers it for each I/O without a command.
///
/// Add buffers ([`push`](Self::push)), register them on a [`Connection`] ([`Connection::register`]) or on one of a
/// [`Hub`](crate::queue::Hub) ([`ConnectionBatch::register`]), and send the address to the remote, by the same batch if
/// you like. After the transfer, invalidate the key ([`Connection::invalidate`]), or let the remote do so by a SEND
/// with invalidate. Pass every [`Done`] that may concern the key to [`settle`](Self::settle). When the key is free
/// again, it returns the buffers. The next registration uses another variant of the key, so late accesses of a remote
/// are refused.
///
/// ```no_run
/// # use std::time::Duration;
/// # use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd, UmrKeyOptions};
/// # use mlx5_dv::queue::{Connection, FastKey};
/// # fn f(pd: &std::sync::Arc<Pd>, connection: &mut Connection, region: &std::sync::Arc<MemoryRegion>)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let mut pool = FastKey::pool(pd, 32, UmrKeyOptions::default().entries(8))?;
/// let mut key = pool.pop().ok_or("all keys are in use")?;
/// for range in [0..4096, 65536..69632] {
///     key.push(region.buffer(range)?).map_err(|_| "the key has no room")?;
/// }
/// let (_, remote) = connection.register(&mut key, AccessFlags::REMOTE_READ)?;
/// connection.send_inline(&[remote.addr.to_be_bytes(), u64::from(remote.rkey).to_be_bytes()].concat())?;
/// // The remote reads. Then:
/// while !key.is_free() {
///     let done = connection.wait(Duration::from_secs(1))?;
///     if !key.settle(&done) {
///         // A work request's, or a message's, that has nothing to do with the key.
///     }
/// }
/// key.parts().for_each(drop);
/// pool.push(key);
/// # Ok(())
/// # }
/// ```
///
/// A key of [parts](KeyLayout::Parts) takes any buffers. A key of [pages](KeyLayout::Pages) is a direct list, by which
/// the card finds a byte with one lookup less; its buffers must lie behind each other in pages: each but the last ends
/// where a page ends, each but the first starts where one starts. It exists on an owned function only.
///
/// A key keeps the regions of all buffers that it was ever registered with until it is [renewed](Self::renew) or
/// dropped. If it is dropped while registered, a command destroys the key before the buffers are free. Then, and when
/// it is renewed, its connection keeps the key and the regions if a work request on it may be in flight, until the
/// connection is reset or dropped. That is told by the completions that the connection itself has polled, not by those
/// that [`settle`](Self::settle) was shown: the number of a key never becomes another key's while a work request may
/// still open memory by it. A [registration that is not reported](ConnectionBatch::register_unreported) may be in
/// flight until a later [`invalidate`](Connection::invalidate) of the key on that connection has completed, even if the
/// remote has invalidated the key.
#[derive(Debug)]
pub struct FastKey {
    /// First field: dropped before the memory, so the card cannot access that any more.
    key: UmrKey,
    life: KeyLife,
    /// The regions that it was registered with. That a key is free is known from completions, which a program may have
    /// changed; and another region may get the number of one that is gone.
    exposed: Vec<Arc<MemoryRegion>>,
    parts: Vec<Buffer>,
    /// Bytes of all parts.
    len: usize,
    turns: Vec<Interleaved>,
    lists: Lists,
}

/// The lists of a key's registrations.
#[derive(Debug)]
struct Lists {
    /// The parts as last posted. Never grows.
    segments: Vec<DataSegment>,
    /// The pages of the parts, for a key of pages. Never grows.
    pages: Vec<Iova>,
    /// Where in the first of them the first part starts, and where in the last one the last part ends; 0 for its end.
    ends: (u64, u64),
    /// Maximum number of octwords of a list in a WQE.
    most_inline: usize,
    /// Memory for lists that are too long for a WQE.
    memory: Option<Arc<MemoryRegion>>,
}

impl FastKey {
    /// Creates a key of `pd`.
    ///
    /// # Errors
    /// As for [`UmrKey::create`]; [`Error::Memory`].
    pub fn create(pd: &Arc<Pd>, options: UmrKeyOptions) -> Result<Self, Error> {
        let key = UmrKey::create(pd, options)?;
        let entries = options.entries as usize;
        let most_inline = inline_octwords(pd.device().caps());
        let (bytes, pages) = match options.layout {
            KeyLayout::Parts => (entries * SEGMENT, 0),
            KeyLayout::Pages { .. } => (entries * size_of::<u64>(), entries),
        };
        let memory = if bytes.div_ceil(SEGMENT) > most_inline {
            let bytes = bytes.next_multiple_of(LIST_UNIT);
            Some(MemoryRegion::allocate(pd, bytes, AccessFlags::empty())?)
        } else {
            None
        };
        let (parts, turns) = (Vec::with_capacity(entries), Vec::with_capacity(entries));
        let (segments, pages) = (Vec::with_capacity(entries), Vec::with_capacity(pages));
        let lists = Lists { segments, pages, ends: (0, 0), most_inline, memory };
        Ok(FastKey { key, life: KeyLife::default(), exposed: Vec::new(), parts, len: 0, turns, lists })
    }

    /// Creates `count` keys of `pd`. Errors: as for [`create`](Self::create).
    pub fn pool(pd: &Arc<Pd>, count: usize, options: UmrKeyOptions) -> Result<Vec<Self>, Error> {
        (0..count).map(|_| FastKey::create(pd, options)).collect()
    }

    /// The remote key of the present or the next registration.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.key.key(self.life.variant())
    }

    /// Asks the card for its context: see [`UmrKey::query`], also for errors. The card knows a registration that has
    /// completed.
    pub fn query(&self) -> Result<Mkc, Error> {
        self.key.query()
    }

    /// Whether it is not registered: buffers can be added and removed.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.life.is_free()
    }

    /// Whether a work request on it failed, so that only the card knows the key's state: [`renew`](Self::renew) it, or
    /// drop it.
    pub fn is_lost(&self) -> bool {
        self.life.is_lost()
    }

    /// Adds `buffer`, with [`Buffer::len`] bytes, behind the present ones. Errors: the buffer, if the key is full, not
    /// free, or of another protection domain than the buffer's region; or if the buffer is
    /// [exclusive](Buffer::is_exclusive): a remote reaches what a key opens. A key of pages also refuses a buffer that
    /// would leave a gap.
    #[inline]
    pub fn push(&mut self, buffer: Buffer) -> Result<(), Buffer> {
        if !self.is_free() || buffer.is_exclusive() || !buffer.pd().is_same(self.pd()) {
            return Err(buffer);
        }
        let entries = self.key.options().entries as usize;
        let fits = match self.key.options().layout {
            KeyLayout::Parts => self.parts.len() < entries,
            KeyLayout::Pages { log_page_size } => self.lists.add_pages(&buffer, log_page_size, entries),
        };
        if !fits {
            return Err(buffer);
        }
        self.len += buffer.len();
        self.parts.push(buffer);
        Ok(())
    }

    /// Total length of all buffers in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether that is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the buffers, in order; none while the key is not free.
    #[inline]
    pub fn parts(&mut self) -> impl Iterator<Item = Buffer> + '_ {
        let count = if self.is_free() { self.parts.len() } else { 0 };
        if count > 0 {
            self.len = 0;
            self.lists.pages.clear();
        }
        self.parts.drain(..count)
    }

    /// Removes the last buffer; `None` if there is none, and while the key is not free. Of a key with one buffer it
    /// costs less than [`parts`](Self::parts).
    #[inline]
    pub fn pop(&mut self) -> Option<Buffer> {
        if !self.is_free() {
            return None;
        }
        let buffer = self.parts.pop()?;
        self.len -= buffer.len();
        if let KeyLayout::Pages { log_page_size } = self.key.options().layout {
            self.add_all_pages(log_page_size);
        }
        Some(buffer)
    }

    /// Makes the list of pages anew.
    #[cold]
    fn add_all_pages(&mut self, log_page_size: u8) {
        self.lists.pages.clear();
        for part in &self.parts {
            self.lists.add_pages(part, log_page_size, self.key.options().entries as usize);
        }
    }

    /// Checks whether `done` completes a registration or an invalidation of this key, by this side or the remote, and
    /// returns that. After an invalidation the key is free. Pass only values from [`Connection`]; others may release
    /// buffers that the remote can still access.
    #[inline]
    pub fn settle(&mut self, done: &Done) -> bool {
        self.life.settle(done, self.rkey())
    }

    /// As [`settle`](Self::settle), of a message whose completion this is: whether the remote's SEND has invalidated
    /// the key, which is free then. For keys that are [registered](ConnectionBatch::register_unreported) and
    /// invalidated without a work request of this side that has a completion.
    #[inline]
    pub fn settle_message(&mut self, message: &Completion) -> bool {
        self.life.settle_message(message, self.rkey())
    }

    /// Destroys the key and creates another one in its place, which is free. Blocks, as commands do. If a work
    /// request on the key may be in flight, or failed, its connection keeps the old key until it is reset or dropped.
    ///
    /// # Errors
    /// [`Error::Command`], [`Error::Memory`]; the key is unchanged then.
    pub fn renew(&mut self) -> Result<(), Error> {
        let fresh = UmrKey::create(self.key.pd(), *self.key.options())?;
        if self.life.is_in_flight() {
            let list = |old: &Arc<MemoryRegion>| MemoryRegion::allocate(self.pd(), old.len(), AccessFlags::empty());
            let list = self.lists.memory.as_ref().map(list).transpose()?;
            self.hand_over();
            self.lists.memory = list;
        } else {
            self.key.end()?;
            self.exposed.clear();
        }
        self.key = fresh;
        self.life.renewed();
        Ok(())
    }

    /// Hands the key, and what it opens, over to its queue pair.
    fn hand_over(&mut self) {
        let mut regions = std::mem::take(&mut self.exposed);
        regions.extend(self.lists.memory.take());
        self.life.end(Orphan::new(self.key.take(), regions));
    }

    /// The protection domain.
    #[inline]
    pub(super) fn pd(&self) -> &Arc<Pd> {
        self.key.pd()
    }

    /// Checks that `access` allows no writing in regions that do not.
    #[inline]
    fn check_rights(&self, access: AccessFlags) -> Result<(), RefusedReason> {
        let writable = |part: &Buffer| part.access().contains(AccessFlags::LOCAL_WRITE);
        let is_allowed = !access.contains(AccessFlags::LOCAL_WRITE) || self.parts.iter().all(writable);
        if is_allowed { Ok(()) } else { Err(RefusedReason::RegionReadOnly) }
    }

    /// Registers the buffers by `post`, which gets the key and the registration.
    pub(super) fn register(
        &mut self,
        access: AccessFlags,
        post: impl FnOnce(&UmrKey, &Registration<'_>) -> Result<RemoteAddress, PostError>,
    ) -> Result<RemoteAddress, RefusedReason> {
        self.life.check_free()?;
        self.check_rights(access)?;
        let (start, memory) = match self.key.options().layout {
            KeyLayout::Parts => (0, self.lists.of_parts(&self.parts)?),
            KeyLayout::Pages { .. } => self.lists.of_pages(self.len as u64),
        };
        expose(&mut self.exposed, &self.parts);
        let registration = Registration { variant: self.life.next_variant(), access, start, memory };
        Ok(post(&self.key, &registration)?)
    }

    /// As [`register`](Self::register), for interleaved parts: `turns` times `(bytes, stride)` of each.
    pub(super) fn register_interleaved(
        &mut self,
        access: AccessFlags,
        turns: u32,
        pieces: &[(u16, u16)],
        post: impl FnOnce(&UmrKey, &Registration<'_>) -> Result<RemoteAddress, PostError>,
    ) -> Result<RemoteAddress, RefusedReason> {
        self.life.check_free()?;
        self.check_rights(access)?;
        let reach =
            |(bytes, stride): (u16, u16)| u64::from(turns.saturating_sub(1)) * u64::from(stride) + u64::from(bytes);
        let fits = |(part, piece): (&Buffer, &(u16, u16))| reach(*piece) <= part.len() as u64;
        if pieces.len() != self.parts.len() || !self.parts.iter().zip(pieces).all(fits) {
            return Err(RefusedReason::PiecesOutside);
        }
        self.turns.clear();
        self.turns.extend(self.parts.iter().zip(pieces).map(|(part, &(bytes, stride))| {
            let DataSegment { addr, lkey, .. } = part.segment();
            Interleaved { addr, lkey, bytes, stride }
        }));
        expose(&mut self.exposed, &self.parts);
        let memory = KeyMemory::Interleaved { turns, parts: &self.turns };
        let registration = Registration { variant: self.life.next_variant(), access, start: 0, memory };
        Ok(post(&self.key, &registration)?)
    }

    /// Most WQEBBs of a registration: two of segments, and its list.
    #[inline]
    pub(super) fn most_wqebbs(&self) -> u32 {
        let inline = self.lists.most_inline.min(self.key.options().entries as usize);
        2 + inline.div_ceil(WQEBB / SEGMENT) as u32
    }

    /// A work request registers it; `ticket` on queue pair `qpn` completes it.
    #[inline]
    pub(super) fn registering(&mut self, qpn: u32, ticket: Ticket, queue: &Arc<Orphans>) {
        self.life.registering(qpn, ticket, queue);
    }

    /// The key to invalidate by a work request of `queue`.
    pub(super) fn to_invalidate(&self, queue: &Arc<Orphans>) -> Result<u32, RefusedReason> {
        self.life.check_registered(queue)?;
        Ok(self.rkey())
    }

    /// A work request invalidates it.
    pub(super) fn invalidating(&mut self, qpn: u32, ticket: Ticket, queue: &Arc<Orphans>) {
        self.life.invalidating(qpn, ticket, queue);
    }
}

impl Lists {
    #[inline]
    fn of_parts(&mut self, parts: &[Buffer]) -> Result<KeyMemory<'_>, PostError> {
        self.segments.clear();
        self.segments.extend(parts.iter().map(Buffer::segment));
        Ok(match &self.memory {
            Some(memory) if self.segments.len() > self.most_inline => {
                // Nobody checks a list in memory but who writes it.
                let len = sum_of(self.segments.iter().map(|part| part.len))?;
                let entry = |part: &DataSegment| {
                    let entry = u128::from(part.len) << 96 | u128::from(part.lkey) << 64 | u128::from(part.addr);
                    entry.to_be_bytes()
                };
                let list = write_list(memory, &self.segments, entry);
                KeyMemory::ListedParts { list, len }
            }
            _ => KeyMemory::Parts(&self.segments),
        })
    }

    /// Adds the pages of `buffer` behind the present ones, of at most `entries`. Whether there is room, and no gap.
    #[inline]
    fn add_pages(&mut self, buffer: &Buffer, log_page_size: u8, entries: usize) -> bool {
        let Some(Iova(first)) = buffer.iova() else { return false };
        let (size, end) = (1u64 << log_page_size, first + buffer.len() as u64);
        let (start, stop) = (first & (size - 1), end & (size - 1));
        let pages = first >> log_page_size..end.div_ceil(size);
        let is_behind = self.pages.is_empty() || (start, self.ends.1) == (0, 0);
        if !is_behind || self.pages.len() + (pages.end - pages.start) as usize > entries {
            return false;
        }
        self.ends = (if self.pages.is_empty() { start } else { self.ends.0 }, stop);
        self.pages.extend(pages.map(|page| Iova(page << log_page_size)));
        true
    }

    /// The address of the first byte, which has its offset in the first page, and the pages, of `len` bytes.
    fn of_pages(&mut self, len: u64) -> (u64, KeyMemory<'_>) {
        let memory = match &self.memory {
            Some(memory) if self.pages.len().div_ceil(2) > self.most_inline => {
                let list = write_list(memory, &self.pages, |page| (page.0 | PAGE_PRESENT).to_be_bytes());
                KeyMemory::ListedPages { list, len }
            }
            _ => KeyMemory::Pages { pages: &self.pages, len },
        };
        (self.ends.0, memory)
    }
}

/// Adds the regions of `parts` to `exposed`, each once.
#[inline]
fn expose(exposed: &mut Vec<Arc<MemoryRegion>>, parts: &[Buffer]) {
    for region in parts.iter().filter_map(Buffer::region) {
        // Most often it is the one before, or the only one.
        if !exposed.iter().rev().any(|known| Arc::ptr_eq(known, region)) {
            exposed.push(Arc::clone(region));
        }
    }
}

/// Writes `entries` to `list`, padded with zeros.
fn write_list<T, const N: usize>(list: &MemoryRegion, entries: &[T], entry: impl Fn(&T) -> [u8; N]) -> DataSegment {
    let mut bytes = 0;
    for entries in entries.chunks(LIST_UNIT / N) {
        let mut unit = [0; LIST_UNIT];
        unit.as_chunks_mut::<N>().0.iter_mut().zip(entries).for_each(|(place, of)| *place = entry(of));
        list.write(bytes, &unit);
        bytes += LIST_UNIT;
    }
    list.segment(0..bytes)
}

impl Drop for FastKey {
    fn drop(&mut self) {
        self.hand_over();
    }
}

impl<S: KeyChanging> ConnectionBatch<'_, S> {
    /// Fast registration, never quiet: opens the buffers of `key` to the remote, as one range of addresses. Returns the
    /// remote address of the first byte, which the next message may carry. Pass the completion to [`FastKey::settle`].
    ///
    /// # Errors
    /// [`RefusedReason`]; the key is unchanged.
    pub fn register(
        &mut self,
        key: &mut FastKey,
        access: AccessFlags,
    ) -> Result<(Ticket, RemoteAddress), RefusedReason> {
        self.check_pd(key.pd())?;
        let posted = self.post_of_key(|sends, wr_id, flags| {
            // SAFETY: the buffers keep their regions registered, and nobody has a reference to a region's memory.
            // `FastKey` keeps the regions, and the list, until the key is destroyed, or hands them to the orphans.
            key.register(access, |key, new| unsafe { sends.register(wr_id, flags, key, new) })
        })?;
        key.registering(self.qpn(), posted.0, self.orphans());
        Ok(posted)
    }

    /// As [`register`](Self::register), with interleaved buffers: a piece of each buffer in turn, `turns` times.
    /// `pieces` contains for each buffer the bytes of a piece, and the distance between the starts of its pieces.
    ///
    /// # Errors
    /// As for [`register`](Self::register); [`RefusedReason::PiecesOutside`].
    pub fn register_interleaved(
        &mut self,
        key: &mut FastKey,
        access: AccessFlags,
        turns: u32,
        pieces: &[(u16, u16)],
    ) -> Result<(Ticket, RemoteAddress), RefusedReason> {
        self.check_pd(key.pd())?;
        let posted = self.post_of_key(|sends, wr_id, flags| {
            key.register_interleaved(access, turns, pieces, |key, new| {
                // SAFETY: as in `register`; `FastKey` checks that the pieces are inside the buffers.
                unsafe { sends.register(wr_id, flags, key, new) }
            })
        })?;
        key.registering(self.qpn(), posted.0, self.orphans());
        Ok(posted)
    }

    /// As [`register`](Self::register), of which nothing comes back: it has no [`Done`]. The remote's invalidation
    /// ([`FastKey::settle`] of the message that it comes with), or the completion of a later
    /// [`invalidate`](Self::invalidate), says that it was done.
    ///
    /// If it fails, the next `Done` with an error and a ticket that no call returned is for it: the keys whose
    /// registrations are not known to be done are lost ([`FastKey::is_lost`]) when they see it.
    ///
    /// # Errors
    /// [`RefusedReason`]; the key is unchanged.
    #[inline(always)]
    pub fn register_unreported(
        &mut self,
        key: &mut FastKey,
        access: AccessFlags,
    ) -> Result<RemoteAddress, RefusedReason> {
        self.check_pd(key.pd())?;
        let remote = self.post_unreported_of_key(key.most_wqebbs(), |sends, wr_id, flags| {
            // SAFETY: as in `register`. The key is free when it was invalidated, which the card does after this work
            // request.
            key.register(access, |key, new| unsafe { sends.register(wr_id, flags, key, new) })
        })?;
        key.registering(self.qpn(), Ticket::UNREPORTED, self.orphans());
        Ok(remote)
    }

    /// LOCAL_INV, never quiet: closes the buffers of `key` to the remote. After the completion was passed to
    /// [`FastKey::settle`], the key is free and returns its buffers.
    ///
    /// # Errors
    /// [`RefusedReason`]; the key is unchanged.
    pub fn invalidate(&mut self, key: &mut FastKey) -> Result<Ticket, RefusedReason> {
        self.check_pd(key.pd())?;
        let rkey = key.to_invalidate(self.orphans())?;
        let (ticket, ()) = self.post_of_key(|sends, wr_id, flags| Ok(sends.local_invalidate(wr_id, flags, rkey)?))?;
        key.invalidating(self.qpn(), ticket, self.orphans());
        Ok(ticket)
    }
}

impl<S: Connected> Connection<S> {
    /// As [`ConnectionBatch::register`], with a doorbell of its own.
    ///
    /// # Errors
    /// As there.
    pub fn register(
        &mut self,
        key: &mut FastKey,
        access: AccessFlags,
    ) -> Result<(Ticket, RemoteAddress), RefusedReason> {
        alone!(self.batch(), register(key, access))
    }

    /// As [`ConnectionBatch::register_interleaved`], with a doorbell of its own.
    ///
    /// # Errors
    /// As there.
    pub fn register_interleaved(
        &mut self,
        key: &mut FastKey,
        access: AccessFlags,
        turns: u32,
        pieces: &[(u16, u16)],
    ) -> Result<(Ticket, RemoteAddress), RefusedReason> {
        alone!(self.batch(), register_interleaved(key, access, turns, pieces))
    }

    /// As [`ConnectionBatch::invalidate`], with a doorbell of its own.
    ///
    /// # Errors
    /// As there.
    pub fn invalidate(&mut self, key: &mut FastKey) -> Result<Ticket, RefusedReason> {
        alone!(self.batch(), invalidate(key))
    }
}
