//! Buffers in flight.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::buffers::Buffers;
use super::orphans::Orphans;
use crate::memory::DataSegment;
use crate::objects::Buffer;
use crate::queue::completion::decode::{Completion, Operation, Side, Work, WorkError, work_of};
use crate::queue::error::{Full, PostError, RetireError};
use crate::queue::send::wqe::WrFlags;
use crate::timestamp::Timestamp;

/// Identifies a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Default for Ticket {
    fn default() -> Self {
        Self::UNREPORTED
    }
}

impl Ticket {
    /// Of work requests that are not reported.
    pub(super) const UNREPORTED: Ticket = Ticket(u64::MAX);

    /// Later ones of a queue pair have higher numbers.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// A completed work request, with its buffer. One of several buffers is completed by as many, with the same ticket, in
/// the order of the buffers.
///
/// `C` is what is known of one that succeeded: a [`Completion`], or a
/// [`FrameCompletion`](crate::queue::ethernet::FrameCompletion) of a queue of Ethernet frames. `T` is what names the
/// work request: a [`Ticket`], or the `wr_id` that it was posted with.
#[derive(Debug)]
pub struct Done<C = Completion, T = Ticket> {
    /// The work request.
    pub ticket: T,
    /// Its buffer, returned; `None` for inline data, and for bytes of an endpoint's region.
    pub buffer: Option<Buffer>,
    /// Its completion or error. A quiet work request ([`ConnectionBatch::quiet`](crate::queue::ConnectionBatch::quiet))
    /// that succeeds has none: then it is the completion of the one that reported it.
    pub result: Result<C, WorkError>,
    /// Where the buffer is in the message.
    part: Part,
}

/// Part of a message that is in one of several buffers.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Offset of the buffer's first byte in the message.
    offset: u32,
    is_last: bool,
}

/// The `wr_id` of work requests that leave nothing to return: no slot of a table has it.
pub(super) const UNREPORTED: u64 = u64::MAX;

/// The bit of a `wr_id` that says that a send keeps its buffer until it is asked for; the others are its slot.
pub(super) const KEPT: u64 = 1 << 63;

/// The bit of a `wr_id` that says that a send is bare: it completes alone and leaves no buffer, and so it has no slot,
/// but is counted. It is in every ticket, and the `wr_id` is the ticket. No slot of a table has it.
const BARE: u64 = 1 << 62;

/// Most CQEs of unreported work requests in flight: completion queues have room for them beside those of the slots.
pub(super) const UNREPORTED_CQES: u32 = 8;

/// A send that keeps its buffer until it is [asked for](crate::queue::Connection::reclaim).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    ticket: Ticket,
    slot: u32,
}

impl Kept {
    /// The ticket of the [`Done`] that it has if it fails.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

/// The part that is the whole message.
const WHOLE: Part = Part { offset: 0, is_last: true };

impl Done {
    /// A work request that was not to be reported, and failed.
    pub(super) fn of_unreported(error: WorkError) -> Self {
        Done { ticket: Ticket::UNREPORTED, buffer: None, result: Err(error), part: WHOLE }
    }
}

impl<C, T> Done<C, T> {
    /// Of a work request that completed alone.
    #[inline(always)]
    pub(super) fn of(ticket: T, buffer: Option<Buffer>, result: Result<C, WorkError>) -> Self {
        Done { ticket, buffer, result, part: WHOLE }
    }

    /// Whether its buffer, if it has one, has the start of the message.
    pub(super) fn is_start(&self) -> bool {
        self.part.offset == 0
    }

    /// Whether its buffer, if it has one, has the whole message.
    pub(super) fn is_whole(&self) -> bool {
        self.is_start() && self.part.is_last
    }
}

impl<C: AsRef<Completion>, T> Done<C, T> {
    /// The message or frame that was received, where the card put it: for a receive into a buffer of an
    /// [`ExclusiveRegion`](crate::objects::ExclusiveRegion). Of a receive into several buffers, what is in this one.
    /// `None` for anything else, errors and RDMA WRITEs with immediate among them, and for a length beyond the buffers,
    /// which only a faulty card reports.
    pub fn received(&self) -> Option<&[u8]> {
        let completion = self.result.as_ref().ok()?.as_ref();
        match completion.operation {
            Operation::Sent(_) | Operation::WrittenImm(_) => None,
            Operation::Received | Operation::ReceivedImm(_) | Operation::ReceivedInvalidate(_) => {
                let buffer = self.buffer.as_ref().filter(|buffer| buffer.is_exclusive())?;
                let from_here = completion.byte_len.saturating_sub(self.part.offset) as usize;
                match self.part.is_last {
                    true => buffer.as_slice().get(..from_here),
                    false => buffer.as_slice().get(..from_here.min(buffer.len())),
                }
            }
        }
    }
}

/// A work request that was rejected. Nothing was posted.
#[derive(Debug)]
pub struct Refused {
    /// The buffer, returned; `None` for inline data.
    pub buffer: Option<Buffer>,
    /// The cause.
    pub reason: RefusedReason,
}

/// Why a work request was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedReason {
    /// Not connected: call [`Connection::connect`](crate::queue::Connection::connect) first.
    #[error("the connection has no remote yet: call connect first")]
    NotConnected,
    /// The last reset failed.
    #[error("queue unusable: last reset failed; reset again or drop it")]
    NotReset,
    /// The connection has left the hub.
    #[error("the connection has left the hub")]
    HasLeft,
    /// The buffer does not belong to the hub.
    #[error("the buffer is not one of this hub's: recycle what Hub::buffer and Hub::poll gave out")]
    ForeignBuffer,
    /// A key that is registered already, or about to be.
    #[error("the key is not free: wait until it was invalidated, and show it that completion (FastKey::settle)")]
    KeyInUse,
    /// A key that is free, or about to be.
    #[error("the key is not registered")]
    KeyNotRegistered,
    /// A key of another protection domain.
    #[error("the key is of another protection domain than the connection")]
    ForeignKey,
    /// Pieces that take turns beyond the buffers that they are of.
    #[error("the pieces are not one for each buffer of the key, or reach beyond it: (turns - 1) * stride + bytes")]
    PiecesOutside,
    /// A window that a work request in flight concerns, or one of type 2 that is bound.
    #[error(
        "the window cannot be bound now: wait for the completion of its last work request, and show it that \
         (FastWindow::settle); unbind one of type 2 first"
    )]
    WindowInUse,
    /// A window of type 2 that is bound on another queue pair.
    #[error("the window is bound on another connection: unbind it there")]
    WindowElsewhere,
    /// Bytes outside of the region.
    #[error("the window's bytes reach beyond the region")]
    WindowOutside,
    /// A region of another protection domain.
    #[error("the region is of another protection domain than the window")]
    ForeignRegion,
    /// Writing, in a region that the card may not write.
    #[error("a key or window that allows writing needs regions with LOCAL_WRITE")]
    RegionReadOnly,
    /// The queue did not take it.
    #[error(transparent)]
    Post(#[from] PostError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.reason, f)
    }
}

impl std::error::Error for Refused {}

/// A slot of the in-flight table, with an entry: a buffer of a work request. Entries that complete together are a
/// group. A free slot has no buffer; its other fields are of its last entry.
#[derive(Debug)]
struct Slot {
    ticket: Ticket,
    buffer: Option<Buffer>,
    /// Slot of the group's first entry in flight.
    first: u32,
    /// Slot of the group's next entry; the entry's own, if it is the last.
    next: u32,
    state: State,
}

/// What a slot of the in-flight table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing.
    Free,
    /// The one buffer, if any, of a work request that completes alone: its group has no other entry. Most have this, so
    /// that a completion finds out by one comparison.
    Alone,
    /// An entry of a group that has, or had, or may get others.
    Grouped,
    /// A reported work request on a key, the last of its group.
    OfKey,
    /// A kept send whose completion has come.
    Done,
}

/// An entry that was taken out.
struct Taken {
    ticket: Ticket,
    buffer: Option<Buffer>,
    next: u32,
}

/// A group to which more entries are added.
#[derive(Debug, Clone, Copy)]
struct Open {
    first: u32,
    last: u32,
}

/// Buffers of one queue by slot: one for each work request, with its last buffer, then those of its other buffers.
/// Fixed size.
#[derive(Debug)]
struct Table {
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Free slots of other buffers, from `depth`.
    spare: Vec<u32>,
    depth: u32,
    open: Option<Open>,
    /// Number of bare work requests: as many of the free slots are not for others.
    bare: usize,
}

impl Table {
    /// For `depth` work requests, of up to `sges` buffers each.
    fn new(depth: u32, sges: u16) -> Self {
        let all = depth.saturating_mul(sges.max(1).into());
        let empty =
            |slot| Slot { ticket: Ticket::UNREPORTED, buffer: None, first: slot, next: slot, state: State::Free };
        let slots = (0..all).map(empty).collect();
        Table {
            slots,
            free: (0..depth).rev().collect(),
            spare: (depth..all).rev().collect(),
            depth,
            open: None,
            bare: 0,
        }
    }

    /// Number of work requests.
    fn used(&self) -> usize {
        self.depth as usize - self.room()
    }

    /// Number of work requests that there is room for.
    #[inline(always)]
    fn room(&self) -> usize {
        self.free.len() - self.bare
    }

    /// Whether there is room for a work request.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.free.len() > self.bare
    }

    /// The slot, and `wr_id`, of the next work request.
    #[inline(always)]
    fn next(&self) -> Result<u64, PostError> {
        match self.free.last() {
            Some(slot) if self.has_room() => Ok(u64::from(*slot)),
            _ => Err(Full.into()),
        }
    }

    /// As [`next`](Self::next), of one of up to `most` buffers that have a slot each: for as many as there is room.
    #[inline(always)]
    fn next_each(&self, most: usize) -> Result<(u64, usize), PostError> {
        let count = most.min(self.room());
        let last = self.free.get(self.free.len() - count).ok_or(Full)?;
        Ok((u64::from(*last), count))
    }

    /// Adds the last buffer of a work request to the open group, or to a group of its own, which ends there if `ends`.
    #[inline(always)]
    fn put(&mut self, ticket: Ticket, buffer: Option<Buffer>, ends: bool) {
        if let Some(slot) = self.free.pop() {
            self.fill(slot, ticket, buffer, ends);
        }
    }

    /// As [`put`](Self::put), of another of its buffers, before the last.
    fn put_other(&mut self, ticket: Ticket, buffer: Buffer) {
        if let Some(slot) = self.spare.pop() {
            self.fill(slot, ticket, Some(buffer), false);
        }
    }

    #[inline(always)]
    fn fill(&mut self, slot: u32, ticket: Ticket, buffer: Option<Buffer>, ends: bool) {
        let is_alone = ends && self.open.is_none();
        let first = if is_alone { slot } else { self.join(slot, ends) };
        let place = &mut self.slots[slot as usize];
        (place.ticket, place.first, place.next) = (ticket, first, slot);
        place.state = if is_alone { State::Alone } else { State::Grouped };
        // Not dropped, but forgotten: a free slot has none.
        mem::forget(mem::replace(&mut place.buffer, buffer));
    }

    /// Makes `slot` the last of the open group, or the first of a new one, which ends there if `ends`. Returns the
    /// group's first.
    #[inline]
    fn join(&mut self, slot: u32, ends: bool) -> u32 {
        let first = self.open.map_or(slot, |open| {
            self.slots[open.last as usize].next = slot;
            open.first
        });
        self.open = (!ends).then_some(Open { first, last: slot });
        first
    }

    /// Ends the open group, whose last work request completes.
    #[inline(always)]
    fn end_group(&mut self) {
        if let Some(Open { first, last }) = self.open.take()
            && first == last
        {
            self.slots[last as usize].state = State::Alone;
        }
    }

    /// The entry in `slot`; `None` if there is none.
    #[inline(always)]
    fn entry(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot as usize).filter(|place| place.state != State::Free)
    }

    /// As [`take`](Self::take), of a work request that completes alone; any other stays, and `None` is returned.
    #[inline(always)]
    fn take_alone(&mut self, wr_id: u64) -> Option<(Ticket, Option<Buffer>)> {
        let place = self.slots.get_mut(usize::try_from(wr_id).ok()?)?;
        if place.state != State::Alone {
            return None;
        }
        place.state = State::Free;
        // It is below `depth`, as that of each work request's last buffer.
        self.free.push(wr_id as u32);
        Some((place.ticket, place.buffer.take()))
    }

    /// Returns all buffers and frees their slots.
    fn drain(&mut self) -> impl Iterator<Item = Buffer> {
        (self.open, self.bare) = (None, 0);
        let slots = 0..self.slots.len() as u32;
        slots.filter_map(|slot| self.take(slot)).filter_map(|entry| entry.buffer)
    }

    /// Takes the entry out of `slot`, and frees that.
    #[inline(always)]
    fn take(&mut self, slot: u32) -> Option<Taken> {
        let place = self.entry(slot)?;
        place.state = State::Free;
        let taken = Taken { ticket: place.ticket, buffer: place.buffer.take(), next: place.next };
        if slot < self.depth {
            self.free.push(slot)
        } else {
            self.spare.push(slot)
        }
        Some(taken)
    }

    /// Drops the entries of the work request `since` and of all after it. If one before them has no completion of its
    /// own, its group is open again.
    #[cold]
    fn drop_since(&mut self, since: Ticket) {
        let is_dropped = |slots: &[Slot], slot: u32| {
            let place = &slots[slot as usize];
            place.state != State::Free && place.ticket >= since
        };
        if self.open.is_some_and(|open| is_dropped(&self.slots, open.first)) {
            self.open = None;
        }
        for slot in 0..self.slots.len() as u32 {
            let Some((first, next)) = self.entry(slot).map(|entry| (entry.first, entry.next)) else { continue };
            if !is_dropped(&self.slots, slot) && is_dropped(&self.slots, next) {
                self.open = Some(Open { first, last: slot });
                self.slots[slot as usize].next = slot;
            }
        }
        for slot in 0..self.slots.len() as u32 {
            if is_dropped(&self.slots, slot) {
                drop(self.take(slot));
            }
        }
    }

    /// Makes the entry in `slot` the last of its group, and returns the group's first. Those after it, which only an
    /// error leaves, are a group from then on.
    #[inline]
    fn close(&mut self, slot: u32) -> Option<u32> {
        let entry = self.entry(slot)?;
        let (first, next) = (entry.first, mem::replace(&mut entry.next, slot));
        let rest = (next != slot).then_some(next);
        let mut at = rest;
        while let Some(entry) = at.and_then(|slot| self.entry(slot)) {
            entry.first = next;
            at = (Some(entry.next) != at).then_some(entry.next);
        }
        self.open = match (self.open, rest) {
            (Some(open), Some(rest)) if open.first == first => Some(Open { first: rest, ..open }),
            (Some(open), None) if open.first == first => None,
            (open, _) => open,
        };
        Some(first)
    }
}

/// The first ticket of the next queue pair. A queue pair gets the number of one that is gone, so a key that waits for a
/// completion of that one would take another's for it, were their tickets the same.
static FIRST_TICKET: AtomicU64 = AtomicU64::new(0);

/// Tickets of a queue pair: of twelve days at a million a second.
const TICKETS: u64 = 1 << 40;

/// Buffers in flight of a send and a receive queue.
#[derive(Debug)]
pub(super) struct InFlight {
    sends: Table,
    receives: Table,
    tickets: u64,
    /// Those of work requests that went to the card: all, but while a batch is filled, and after one was forgotten.
    rung: u64,
    /// WQEBBs posted since the last that has a CQE, without one and without a slot.
    unreported: u32,
    /// Those that have a CQE and no slot, in flight.
    unreported_cqes: u32,
    /// Fence of the next send; set if the last one changes a key.
    pub(super) fence: WrFlags,
    orphans: Arc<Orphans>,
}

impl InFlight {
    /// Tables for queues of these depths, whose work requests have one buffer each.
    pub(super) fn new(send_depth: u32, recv_depth: u32) -> Self {
        Self::of_several((send_depth, 1), (recv_depth, 1))
    }

    /// Tables for queues of a depth and a number of buffers of each work request.
    pub(super) fn of_several(sends: (u32, u16), receives: (u32, u16)) -> Self {
        let table = |(depth, sges)| Table::new(depth, sges);
        let tickets = BARE | (FIRST_TICKET.fetch_add(TICKETS, Ordering::Relaxed) % BARE);
        InFlight {
            sends: table(sends),
            receives: table(receives),
            tickets,
            rung: tickets,
            unreported: 0,
            unreported_cqes: 0,
            fence: WrFlags::empty(),
            orphans: Arc::default(),
        }
    }

    /// The `wr_id` of the next work request.
    #[inline(always)]
    pub(super) fn next(&self, side: Side) -> Result<u64, PostError> {
        match side {
            Side::Send => self.sends.next(),
            Side::Receive => self.receives.next(),
        }
    }

    /// The `wr_id` of the next send, if it is a bare one. For one that completes, and while no quiet ones wait for
    /// it ([`has_quiet`](Self::has_quiet)).
    #[inline(always)]
    pub(super) fn next_bare(&self) -> Result<u64, PostError> {
        if self.sends.has_room() { Ok(self.tickets) } else { Err(Full.into()) }
    }

    /// What was posted with that `wr_id` is in flight.
    #[inline(always)]
    pub(super) fn keep_bare(&mut self, wr_id: u64) -> Ticket {
        self.sends.bare += 1;
        // Not by `ticket`, which would load it again.
        self.tickets = wr_id + 1;
        Ticket(wr_id)
    }

    /// Whether the next send may be quiet: another, which completes, can follow.
    #[inline(always)]
    pub(super) fn may_be_quiet(&self) -> bool {
        self.may_be_quiet_of(1)
    }

    /// As [`may_be_quiet`](Self::may_be_quiet), of one with `count` slots.
    #[inline(always)]
    pub(super) fn may_be_quiet_of(&self, count: usize) -> bool {
        self.sends.room() > count
    }

    /// Whether the next work request that leaves nothing to return, of up to `wqebbs`, needs a CQE all the same, so
    /// that the ring never fills with ones that have none.
    ///
    /// # Errors
    /// `Full` while the completion queue has no room for one more.
    #[inline(always)]
    pub(super) fn unreported_completes(&self, wqebbs: u32) -> Result<bool, PostError> {
        let completes = self.unreported + wqebbs > self.sends.depth / 4;
        if completes && self.unreported_cqes >= UNREPORTED_CQES {
            return Err(Full.into());
        }
        Ok(completes)
    }

    /// Such a work request was posted, with a CQE or without.
    #[inline(always)]
    pub(super) fn keep_unreported(&mut self, wqebbs: u32, completes: bool) {
        if completes {
            self.unreported = 0;
            self.unreported_cqes += 1;
        } else {
            self.unreported += wqebbs;
        }
    }

    /// Removes what completes with the work request `wr_id`, any of them, and returns the first that is to be reported,
    /// with its result; `None` if there is nothing to report. The others are added to `later`, in order.
    #[inline(always)]
    pub(super) fn complete(
        &mut self,
        wr_id: u64,
        result: Result<Completion, WorkError>,
        later: &mut VecDeque<Done>,
    ) -> Result<Option<Done>, RetireError> {
        match wr_id < KEPT {
            true => self.done_all(wr_id, result, later).map(Some),
            false => self.done_silently(wr_id, result, later),
        }
    }

    /// A work request whose `wr_id` is [`UNREPORTED`] or has [`KEPT`] completed: what is to be reported all the same.
    /// What completes with it is added to `later`, in order.
    #[inline(always)]
    fn done_silently(
        &mut self,
        wr_id: u64,
        result: Result<Completion, WorkError>,
        later: &mut VecDeque<Done>,
    ) -> Result<Option<Done>, RetireError> {
        match result {
            Ok(completion) if wr_id != UNREPORTED => self.done_kept(wr_id & !KEPT, completion, later),
            Err(_) if wr_id != UNREPORTED => self.done_all(wr_id & !KEPT, result, later).map(Some),
            result => {
                self.unreported_cqes = self.unreported_cqes.saturating_sub(1);
                Ok(result.err().map(Done::of_unreported))
            }
        }
    }

    /// A send that keeps its buffer succeeded. Reported are the quiet ones before it.
    #[inline(always)]
    fn done_kept(
        &mut self,
        slot: u64,
        completion: Completion,
        later: &mut VecDeque<Done>,
    ) -> Result<Option<Done>, RetireError> {
        let nothing = || RetireError::nothing_in_flight(completion.work);
        let slot = u32::try_from(slot).map_err(|_| nothing())?;
        let entry = self.sends.entry(slot).ok_or_else(nothing)?;
        if mem::replace(&mut entry.state, State::Done) == State::Alone {
            return Ok(None);
        }
        Ok(self.done_before_kept(slot, completion, later))
    }

    /// Completes the quiet sends before the kept one in `slot`.
    #[cold]
    fn done_before_kept(&mut self, slot: u32, completion: Completion, later: &mut VecDeque<Done>) -> Option<Done> {
        let mut group = Group::closed(&mut self.sends, slot, Ok(completion))?;
        let mut reported = None;
        while group.at != Some(slot)
            && let Some(done) = group.next(&mut self.sends)
        {
            match reported {
                None => reported = Some(done),
                Some(_) => later.push_back(done),
            }
        }
        self.sends.slots[slot as usize].first = slot;
        reported
    }

    /// The buffer of a send that has completed.
    #[inline(always)]
    pub(super) fn reclaim(&mut self, kept: &Kept) -> Option<Buffer> {
        let place = self.sends.slots.get(kept.slot as usize)?;
        if place.state != State::Done || place.ticket != kept.ticket {
            return None;
        }
        self.sends.take(kept.slot)?.buffer
    }

    /// Stores the buffer of what was posted with [`KEPT`] and the `wr_id` of [`next`](Self::next).
    #[inline(always)]
    pub(super) fn keep_kept(&mut self, slot: u64, buffer: Buffer) -> Kept {
        Kept { slot: slot as u32, ticket: self.keep_one(Side::Send, Some(buffer), true) }
    }

    /// Whether quiet sends are in flight that no later one reports.
    #[inline(always)]
    pub(super) fn has_quiet(&self) -> bool {
        self.sends.open.is_some()
    }

    #[inline(always)]
    fn table(&mut self, side: Side) -> &mut Table {
        self.table_and_orphans(side).0
    }

    #[inline(always)]
    fn table_and_orphans(&mut self, side: Side) -> (&mut Table, &Orphans) {
        match side {
            Side::Send => (&mut self.sends, &self.orphans),
            Side::Receive => (&mut self.receives, &self.orphans),
        }
    }

    /// Stores what was posted with the `wr_id` of [`next`](Self::next), or returns it after an error.
    #[inline(always)]
    pub(super) fn keep(
        &mut self,
        posted: Result<(), RefusedReason>,
        side: Side,
        buffer: Option<Buffer>,
    ) -> Result<Ticket, Refused> {
        if let Err(reason) = posted {
            return Err(Refused { buffer, reason });
        }
        Ok(self.keep_one(side, buffer, true))
    }

    /// As [`keep`](Self::keep), of what was posted; if `completes` is not set, it completes with the next that does.
    #[inline(always)]
    pub(super) fn keep_one(&mut self, side: Side, buffer: Option<Buffer>, completes: bool) -> Ticket {
        let ticket = self.ticket();
        self.table(side).put(ticket, buffer, completes);
        ticket
    }

    /// Posts a receive into each of `buffers`, the last first, with all of its capacity, by `post`, which gets its
    /// `wr_id` and element. Those that it refused stay in `buffers`.
    #[inline(always)]
    pub(super) fn receive_each(
        &mut self,
        buffers: &mut Vec<Buffer>,
        mut post: impl FnMut(u64, &[DataSegment]) -> Result<(), RefusedReason>,
    ) -> Result<(), RefusedReason> {
        while let Some(mut buffer) = buffers.pop() {
            buffer.set_len(buffer.capacity());
            let wr_id = self.next(Side::Receive).map_err(RefusedReason::from);
            if let Err(reason) = wr_id.and_then(|wr_id| post(wr_id, &[buffer.segment()])) {
                buffers.push(buffer);
                return Err(reason);
            }
            self.keep_one(Side::Receive, Some(buffer), true);
        }
        Ok(())
    }

    /// As [`keep_one`](Self::keep_one), of a work request on a key, which completes.
    pub(super) fn keep_of_key(&mut self) -> Ticket {
        let slot = self.sends.free.last().copied();
        let ticket = self.keep_one(Side::Send, None, true);
        if let Some(entry) = slot.and_then(|slot| self.sends.entry(slot)) {
            entry.state = State::OfKey;
        }
        ticket
    }

    /// As [`keep_one`](Self::keep_one), of all `buffers` of one work request.
    pub(super) fn keep_all(&mut self, side: Side, buffers: &mut Vec<Buffer>, completes: bool) -> Ticket {
        let ticket = self.ticket();
        let table = self.table(side);
        let last = buffers.pop();
        for buffer in buffers.drain(..) {
            table.put_other(ticket, buffer);
        }
        table.put(ticket, last, completes);
        ticket
    }

    /// The `wr_id` of the next send if its buffers are frames, a slot each: up to `most`, as many as there is room for.
    #[inline(always)]
    pub(super) fn next_each(&self, most: usize) -> Result<(u64, usize), PostError> {
        self.sends.next_each(most)
    }

    /// Stores the frames of the send that was posted with that.
    #[inline(always)]
    pub(super) fn keep_each(&mut self, frames: impl Iterator<Item = Buffer>, completes: bool) {
        let ticket = self.ticket();
        for frame in frames {
            self.sends.put(ticket, Some(frame), false);
        }
        if completes {
            self.sends.end_group();
        }
    }

    /// Removes all that completes with the send `wr_id`, which succeeded. Their buffers go to `buffers`.
    #[inline(always)]
    pub(super) fn take_sent(&mut self, wr_id: u64, buffers: &mut Vec<Buffer>) -> Option<()> {
        let last = u32::try_from(wr_id).ok()?;
        let mut at = self.sends.close(last)?;
        loop {
            let entry = self.sends.take(at)?;
            if let Some(buffer) = entry.buffer {
                buffers.push(buffer);
            }
            if at == last {
                return Some(());
            }
            at = entry.next;
        }
    }

    /// Starts a batch. What one before it posted that was forgotten (`mem::forget`) never went to the card, which gets
    /// other work requests in its place: its buffers are dropped.
    #[inline(always)]
    pub(super) fn start_batch(&mut self) {
        if self.rung != self.tickets {
            self.drop_unrung();
        }
    }

    /// Drops what was posted and never went to the card.
    #[cold]
    #[inline(never)]
    fn drop_unrung(&mut self) {
        let since = Ticket(self.rung);
        let slots = self.sends.slots.iter().chain(&self.receives.slots);
        let dropped = slots.filter(|place| place.state != State::Free && place.ticket >= since);
        let have_slots: BTreeSet<Ticket> = dropped.map(|place| place.ticket).collect();
        // The others are bare: each ticket is of one or the other.
        let bare = (self.tickets - self.rung) as usize - have_slots.len();
        self.sends.bare = self.sends.bare.saturating_sub(bare);
        self.sends.drop_since(since);
        self.receives.drop_since(since);
        self.rung = self.tickets;
    }

    /// Ends a batch: what it posted went to the card.
    #[inline(always)]
    pub(super) fn end_batch(&mut self) {
        self.rung = self.tickets;
    }

    #[inline(always)]
    fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        ticket
    }

    /// Removes the completed work request with `wr_id`, and returns it with `result`. For queues whose work requests
    /// all complete, and have one buffer.
    #[inline(always)]
    pub(super) fn done<C>(&mut self, wr_id: u64, result: Result<C, WorkError>) -> Result<Done<C>, RetireError>
    where
        C: AsRef<Completion> + From<Completion> + Copy,
    {
        self.done_all(wr_id, result, &mut VecDeque::new())
    }

    /// Removes a work request that completes alone and has one buffer at most; any other stays, and `None` is returned.
    #[inline(always)]
    pub(super) fn take_alone(&mut self, side: Side, wr_id: u64) -> Option<(Ticket, Option<Buffer>)> {
        // A number beyond the slots is that of a bare send, or has `KEPT`: receives have no such numbers.
        if side == Side::Send && wr_id >= self.sends.slots.len() as u64 {
            return if wr_id < KEPT { Some((self.take_bare(wr_id), None)) } else { None };
        }
        self.table(side).take_alone(wr_id)
    }

    /// Removes the bare send `wr_id`, which is retired: that it is removed once is the ring's doing.
    #[inline(always)]
    fn take_bare(&mut self, wr_id: u64) -> Ticket {
        self.sends.bare = self.sends.bare.wrapping_sub(1);
        Ticket(wr_id)
    }

    /// Completes the send `wr_id`, which succeeded, if there is nothing to report. Returns whether it did.
    #[inline(always)]
    pub(super) fn complete_silently(&mut self, wr_id: u64) -> bool {
        if wr_id < KEPT {
            return false;
        }
        if wr_id == UNREPORTED {
            self.unreported_cqes = self.unreported_cqes.saturating_sub(1);
            return true;
        }
        let place = self.sends.slots.get_mut((wr_id & !KEPT) as usize);
        place.filter(|place| place.state == State::Alone).map(|place| place.state = State::Done).is_some()
    }

    /// As [`done`](Self::done), of any work request: what completes with it is added to `later`, in order.
    #[inline(always)]
    pub(super) fn done_all<C>(
        &mut self,
        wr_id: u64,
        result: Result<C, WorkError>,
        later: &mut VecDeque<Done<C>>,
    ) -> Result<Done<C>, RetireError>
    where
        C: AsRef<Completion> + From<Completion> + Copy,
    {
        let work = work_of(&result);
        if let Some((ticket, buffer)) = self.take_alone(work.side, wr_id) {
            return Ok(Done { ticket, buffer, result, part: WHOLE });
        }
        let (table, orphans) = self.table_and_orphans(work.side);
        let mut group = Group::of((table, orphans), work, wr_id, result)?;
        let first = group.next(table).ok_or_else(|| RetireError::nothing_in_flight(work))?;
        while let Some(done) = group.next(table) {
            later.push_back(done);
        }
        Ok(first)
    }

    /// What completes with the work request `wr_id`, to be taken one by one by [`next_of`](Self::next_of).
    pub(super) fn group<C>(&mut self, wr_id: u64, result: Result<C, WorkError>) -> Result<Group<C>, RetireError>
    where
        C: AsRef<Completion> + From<Completion> + Copy,
    {
        let work = work_of(&result);
        Group::of(self.table_and_orphans(work.side), work, wr_id, result)
    }

    /// The next of `group`; `None` after the last.
    #[inline(always)]
    pub(super) fn next_of<C>(&mut self, group: &mut Group<C>) -> Option<Done<C>>
    where
        C: AsRef<Completion> + From<Completion> + Copy,
    {
        let table = self.table(work_of(&group.result).side);
        group.next(table)
    }

    /// Number of sends and receives in flight.
    pub(super) fn in_flight(&self) -> (usize, usize) {
        (self.sends.used(), self.receives.used())
    }

    /// Whether nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight() == (0, 0)
    }

    /// Keys that lost their holder.
    #[inline(always)]
    pub(super) fn orphans(&self) -> &Arc<Orphans> {
        &self.orphans
    }

    /// Whether a work request on a key may be in flight: there are keys that had one, or orphans.
    fn has_keys(&mut self) -> bool {
        Arc::get_mut(&mut self.orphans).is_none_or(|orphans| !orphans.is_empty())
    }

    /// Returns all buffers; nothing is in flight afterwards.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Buffer> {
        mem::take(&mut self.orphans).end();
        self.rung = self.tickets;
        (self.unreported, self.unreported_cqes) = (0, 0);
        self.fence = WrFlags::empty();
        self.sends.drain().chain(self.receives.drain())
    }
}

impl Buffers for InFlight {
    type Ticket = Ticket;

    fn most_together(&self) -> usize {
        self.sends.slots.len() + self.receives.slots.len()
    }

    fn may_be_used(&mut self, _: bool) -> bool {
        !self.is_empty() || self.has_keys()
    }

    fn take_all(&mut self) -> Vec<Buffer> {
        self.drain().collect()
    }

    /// So are keys whose work requests are in flight, now or when their holder drops them.
    fn leak(&mut self) {
        mem::forget(mem::take(&mut self.orphans));
        self.drain().for_each(mem::forget);
    }
}

impl Drop for InFlight {
    /// The owner has reset or destroyed the queue pair, if anything was in flight.
    fn drop(&mut self) {
        self.orphans.end();
    }
}

/// Entries that complete together, in order.
#[derive(Debug)]
pub(super) struct Group<C> {
    /// Slot of the next entry; `None` after the last.
    at: Option<u32>,
    /// Slot of the last.
    end: u32,
    /// The work request that has a completion, and that.
    ticket: Ticket,
    result: Result<C, WorkError>,
    /// Offset of its next buffer in the message.
    offset: u32,
}

impl<C: From<Completion> + Copy> Group<C> {
    /// That of the work request `wr_id`, which is `work`, up to it.
    #[cold]
    fn of(
        (table, orphans): (&mut Table, &Orphans),
        work: Work,
        wr_id: u64,
        result: Result<C, WorkError>,
    ) -> Result<Self, RetireError> {
        let slot = u32::try_from(wr_id).ok();
        if let Some(entry) = slot.and_then(|slot| table.entry(slot))
            && entry.state == State::OfKey
            && result.is_ok()
        {
            orphans.executed(entry.ticket.number());
        }
        let group = slot.and_then(|slot| Self::closed(table, slot, result));
        group.ok_or_else(|| RetireError::nothing_in_flight(work))
    }

    /// That of the entry in `slot`, which becomes its last.
    fn closed(table: &mut Table, slot: u32, result: Result<C, WorkError>) -> Option<Self> {
        let at = table.close(slot);
        let ticket = table.entry(slot)?.ticket;
        Some(Group { at, end: slot, ticket, result, offset: 0 })
    }

    /// Whether all were taken.
    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.at.is_none()
    }

    /// Takes the next.
    #[inline(always)]
    fn next(&mut self, table: &mut Table) -> Option<Done<C>> {
        let at = self.at.take()?;
        let entry = table.take(at)?;
        let is_last = at == self.end;
        self.at = (!is_last).then_some(entry.next);
        let part = if entry.ticket == self.ticket { self.next_part(&entry.buffer, is_last) } else { WHOLE };
        Some(Done { ticket: entry.ticket, buffer: entry.buffer, result: self.result_of(entry.ticket), part })
    }

    /// That of the next `buffer` of the work request that has the completion.
    #[inline(always)]
    fn next_part(&mut self, buffer: &Option<Buffer>, is_last: bool) -> Part {
        let part = Part { offset: self.offset, is_last };
        let len = buffer.as_ref().map_or(0, Buffer::len);
        self.offset = self.offset.saturating_add(u32::try_from(len).unwrap_or(u32::MAX));
        part
    }

    /// That of the work request `ticket`. Those before the last succeeded: work requests complete in order, and one
    /// that fails has a completion of its own (IBTA 10.8.5.1).
    #[inline(always)]
    fn result_of(&self, ticket: Ticket) -> Result<C, WorkError> {
        match &self.result {
            Err(error) if ticket != self.ticket => Ok(before(error)),
            result => *result,
        }
    }
}

/// The completion of a quiet work request before one that failed with `error`.
#[cold]
fn before<C: From<Completion>>(error: &WorkError) -> C {
    C::from(Completion {
        work: error.work,
        operation: Operation::Sent(error.opcode),
        byte_len: 0,
        remote_qpn: 0,
        user_index: error.user_index,
        timestamp: Timestamp::default(),
    })
}

#[cfg(test)]
mod tests {
    use mlx5_prm::cqe::CqeSyndrome;
    use mlx5_prm::wqe::WqeOpcode;

    use super::*;
    use crate::queue::completion::decode::Failure;

    #[test]
    fn the_table_hands_out_each_slot_once_and_takes_it_back() {
        let mut table = Table::new(2, 1);
        let put = |table: &mut Table, n| {
            let wr_id = table.next()?;
            table.put(Ticket(n), None, true);
            Ok::<_, PostError>(wr_id)
        };
        let (first, second) = (put(&mut table, 1).unwrap(), put(&mut table, 2).unwrap());
        assert_eq!(put(&mut table, 3), Err(Full.into()));
        assert_eq!(table.take_alone(second).unwrap().0, Ticket(2));
        assert!(table.take_alone(second).is_none() && table.take(second as u32).is_none(), "twice");
        assert!(table.take_alone(99).is_none() && table.take_alone(u64::MAX).is_none() && table.take(99).is_none());
        assert_eq!(put(&mut table, 4), Ok(second));
        assert_eq!(table.take(first as u32).unwrap().ticket, Ticket(1));
    }

    const WORK: Work = Work { qpn: 7, side: Side::Send, index: 0 };

    fn success() -> Result<Completion, WorkError> {
        let operation = Operation::Sent(WqeOpcode::Send);
        Ok(Completion { work: WORK, operation, byte_len: 0, remote_qpn: 0, user_index: 0, timestamp: Timestamp(0) })
    }

    fn flushed() -> Result<Completion, WorkError> {
        let failure = Failure::Syndrome(CqeSyndrome::WorkRequestFlushed);
        let opcode = WqeOpcode::Send;
        let (vendor_syndrome, hw_syndrome, hw_syndrome_type, user_index) = (0, 0, 0, 0);
        Err(WorkError { work: WORK, failure, vendor_syndrome, hw_syndrome, hw_syndrome_type, opcode, user_index })
    }

    /// Posts a send without a buffer; returns its `wr_id`.
    fn post(in_flight: &mut InFlight, completes: bool) -> u64 {
        let wr_id = in_flight.next(Side::Send).unwrap();
        in_flight.keep_one(Side::Send, None, completes);
        wr_id
    }

    /// Tickets that the completion of `wr_id` completes, and whether each succeeded.
    fn complete(in_flight: &mut InFlight, wr_id: u64, result: Result<Completion, WorkError>) -> Vec<(u64, bool)> {
        let mut later = VecDeque::new();
        let first = in_flight.done_all(wr_id, result, &mut later).unwrap();
        let all = std::iter::once(first).chain(later);
        all.map(|done| (nth(done.ticket), done.result.is_ok())).collect()
    }

    /// The place of `ticket` among those of its queue pair.
    fn nth(ticket: Ticket) -> u64 {
        ticket.0 % TICKETS
    }

    /// Posts a bare send; returns its `wr_id`.
    fn post_bare(in_flight: &mut InFlight) -> u64 {
        let wr_id = in_flight.next_bare().unwrap();
        assert_eq!(in_flight.keep_bare(wr_id).number(), wr_id);
        wr_id
    }

    #[test]
    fn bare_sends_and_those_with_slots_share_the_depth() {
        let mut in_flight = InFlight::new(3, 0);
        let (first, slot, second) = (post_bare(&mut in_flight), post(&mut in_flight, true), post_bare(&mut in_flight));
        assert!(in_flight.next_bare().is_err() && in_flight.next(Side::Send).is_err());
        assert_eq!((in_flight.in_flight().0, in_flight.may_be_quiet()), (3, false));
        assert!(in_flight.next_each(8).is_err(), "no room for frames");
        let (ticket, buffer) = in_flight.take_alone(Side::Send, first).unwrap();
        assert!(nth(ticket) == 0 && buffer.is_none());
        // One place is free, for either.
        assert_eq!(in_flight.next_each(8).unwrap().1, 1);
        let again = post(&mut in_flight, true);
        assert!(in_flight.next_bare().is_err());
        assert_eq!(complete(&mut in_flight, second, flushed()), [(2, false)]);
        assert_eq!(complete(&mut in_flight, slot, success()), [(1, true)]);
        assert_eq!(complete(&mut in_flight, again, success()), [(3, true)]);
        assert!(in_flight.is_empty());
    }

    #[test]
    fn a_number_of_no_send_takes_nothing() {
        let mut in_flight = InFlight::new(2, 2);
        let bare = post_bare(&mut in_flight);
        for wr_id in [0, 1, KEPT, KEPT | 1, UNREPORTED] {
            assert!(in_flight.take_alone(Side::Send, wr_id).is_none(), "{wr_id:#x}");
        }
        assert!(in_flight.take_alone(Side::Receive, bare).is_none() && in_flight.done(bare, success()).is_ok());
        assert!(in_flight.is_empty());
    }

    #[test]
    fn nothing_of_a_forgotten_batch_is_in_flight() {
        let mut in_flight = InFlight::new(8, 2);
        in_flight.start_batch();
        let (bare, slot) = (post_bare(&mut in_flight), post(&mut in_flight, true));
        in_flight.end_batch();
        in_flight.start_batch();
        for _ in 0..2 {
            post_bare(&mut in_flight);
            post(&mut in_flight, true);
        }
        in_flight.keep_one(Side::Receive, None, true);
        assert_eq!(in_flight.in_flight(), (6, 1));
        // It is forgotten; then the first two complete, and another begins.
        assert_eq!(complete(&mut in_flight, bare, success()), [(0, true)]);
        in_flight.start_batch();
        assert_eq!(in_flight.in_flight(), (1, 0));
        assert_eq!(complete(&mut in_flight, slot, success()), [(1, true)]);
        assert!(in_flight.is_empty());
    }

    #[test]
    fn after_a_reset_no_bare_send_is_in_flight() {
        let mut in_flight = InFlight::new(1, 0);
        post_bare(&mut in_flight);
        assert_eq!((in_flight.drain().count(), in_flight.is_empty()), (0, true));
        post_bare(&mut in_flight);
    }

    #[test]
    fn quiet_sends_complete_in_order_with_the_next_that_is_not() {
        let mut in_flight = InFlight::new(8, 0);
        let alone = post(&mut in_flight, true);
        let quiet: Vec<u64> = (0..3).map(|_| post(&mut in_flight, false)).collect();
        assert!(in_flight.has_quiet());
        let reports = post(&mut in_flight, true);
        let next = post(&mut in_flight, true);
        assert!(!in_flight.has_quiet());
        assert_eq!(complete(&mut in_flight, alone, success()), [(0, true)]);
        assert_eq!(complete(&mut in_flight, reports, success()), [(1, true), (2, true), (3, true), (4, true)]);
        assert_eq!(complete(&mut in_flight, next, success()), [(5, true)]);
        assert!(in_flight.is_empty());
        for wr_id in quiet {
            assert!(in_flight.done(wr_id, success()).is_err(), "{wr_id} completed twice");
        }
    }

    #[test]
    fn a_quiet_send_that_fails_says_that_those_before_it_succeeded() {
        let mut in_flight = InFlight::new(8, 0);
        let wr_ids: Vec<u64> = (0..4).map(|_| post(&mut in_flight, false)).collect();
        let end = post(&mut in_flight, true);
        assert_eq!(complete(&mut in_flight, wr_ids[1], flushed()), [(0, true), (1, false)]);
        // The slots that came back are used again, by a group of its own.
        let other = [post(&mut in_flight, false), post(&mut in_flight, true)];
        assert_eq!(complete(&mut in_flight, wr_ids[2], flushed()), [(2, false)]);
        assert_eq!(complete(&mut in_flight, wr_ids[3], flushed()), [(3, false)]);
        assert_eq!(complete(&mut in_flight, end, flushed()), [(4, false)]);
        assert_eq!(complete(&mut in_flight, other[1], success()), [(5, true), (6, true)]);
        assert!(in_flight.is_empty());
    }

    #[test]
    fn an_open_group_of_which_some_failed_goes_on() {
        let mut in_flight = InFlight::new(4, 0);
        let first = post(&mut in_flight, false);
        assert_eq!(complete(&mut in_flight, first, flushed()), [(0, false)]);
        assert!(!in_flight.has_quiet(), "nothing is left to report");
        let wr_ids = [post(&mut in_flight, false), post(&mut in_flight, false)];
        assert_eq!(complete(&mut in_flight, wr_ids[0], flushed()), [(1, false)]);
        assert!(in_flight.has_quiet());
        let end = post(&mut in_flight, true);
        assert_eq!(complete(&mut in_flight, end, success()), [(2, true), (3, true)]);
    }

    #[test]
    fn quiet_sends_before_a_kept_one_come_after_what_waits_to_be_polled() {
        let mut in_flight = InFlight::new(8, 0);
        for _ in 0..2 {
            post(&mut in_flight, false);
        }
        let kept = post(&mut in_flight, true);
        let mut later = VecDeque::from([Done::of_unreported(flushed().unwrap_err())]);
        let first = in_flight.done_silently(KEPT | kept, success(), &mut later).unwrap().unwrap();
        assert_eq!((nth(first.ticket), later.len()), (0, 2));
        let waited = later.pop_front().unwrap();
        assert_eq!((waited.ticket, nth(later[0].ticket)), (Ticket::UNREPORTED, 1));
        assert_eq!(in_flight.in_flight().0, 1, "the kept one");
    }

    #[test]
    fn the_last_free_slot_is_not_for_a_quiet_send() {
        let mut in_flight = InFlight::new(2, 0);
        assert!(in_flight.may_be_quiet());
        post(&mut in_flight, false);
        assert!(!in_flight.may_be_quiet());
    }
}
