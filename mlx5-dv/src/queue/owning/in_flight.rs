//! Buffers that are with the card.

use std::fmt;

use crate::objects::Buffer;
use crate::queue::completion::decode::{Completion, Side, WorkError, work_of};
use crate::queue::error::{Full, PostError, RetireError};

/// Which work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A work request that is done, and the buffer it had.
#[derive(Debug)]
pub struct Done {
    /// Which one.
    pub ticket: Ticket,
    /// Its buffer, back again; `None` for inline data.
    pub buffer: Option<Buffer>,
    /// What it did, or how it failed.
    pub result: Result<Completion, WorkError>,
}

/// A work request that was not posted: nothing happened.
#[derive(Debug)]
pub struct Refused {
    /// The buffer, back again; `None` for inline data.
    pub buffer: Option<Buffer>,
    /// Why.
    pub reason: RefusedReason,
}

/// Why a work request was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedReason {
    /// [`Connection::connect`](crate::queue::Connection::connect) comes first.
    #[error("the connection has no remote yet: call connect first")]
    NotConnected,
    /// A reset failed.
    #[error("the queue is out of order since its last reset failed: reset it again, or drop it")]
    NotReset,
    /// It is not the hub's any more.
    #[error("the connection has left the hub")]
    HasLeft,
    /// A buffer of somebody else's.
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

/// What a slot of the in-flight table holds.
#[derive(Debug)]
struct Entry {
    ticket: Ticket,
    buffer: Option<Buffer>,
}

/// The buffers of one queue, by slot. Never grows.
#[derive(Debug)]
struct Table {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Table {
    fn new(depth: u32) -> Self {
        Table { slots: (0..depth).map(|_| None).collect(), free: (0..depth).rev().collect() }
    }

    /// How many slots are taken.
    fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot that the next work request takes, which is its `wr_id`.
    fn next(&self) -> Result<u64, PostError> {
        Ok(u64::from(*self.free.last().ok_or(Full)?))
    }

    fn put(&mut self, entry: Entry) {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(entry);
        }
    }

    /// Every buffer there is; the slots are free.
    fn drain(&mut self) -> impl Iterator<Item = Buffer> {
        let slots = 0..self.slots.len() as u64;
        slots.filter_map(|slot| self.take(slot)).filter_map(|entry| entry.buffer)
    }

    fn take(&mut self, wr_id: u64) -> Option<Entry> {
        let slot = usize::try_from(wr_id).ok()?;
        let entry = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot as u32);
        Some(entry)
    }
}

/// The buffers that a send and a receive queue have lent the card.
#[derive(Debug)]
pub(super) struct InFlight {
    sends: Table,
    receives: Table,
    tickets: u64,
}

impl InFlight {
    /// None, of queues that hold so many work requests.
    pub(super) fn new(send_depth: u32, recv_depth: u32) -> Self {
        InFlight { sends: Table::new(send_depth), receives: Table::new(recv_depth), tickets: 0 }
    }

    /// The `wr_id` of the next work request.
    #[inline(always)]
    pub(super) fn next(&self, side: Side) -> Result<u64, PostError> {
        match side {
            Side::Send => self.sends.next(),
            Side::Receive => self.receives.next(),
        }
    }

    #[inline(always)]
    fn table(&mut self, side: Side) -> &mut Table {
        match side {
            Side::Send => &mut self.sends,
            Side::Receive => &mut self.receives,
        }
    }

    /// Remembers what was posted under [`next`](Self::next), or gives it back.
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
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.table(side).put(Entry { ticket, buffer });
        Ok(ticket)
    }

    /// The work request that was posted under `wr_id` is done: hands out what is remembered of it.
    #[inline(always)]
    pub(super) fn done(&mut self, wr_id: u64, result: Result<Completion, WorkError>) -> Result<Done, RetireError> {
        let work = work_of(&result);
        let entry = self.table(work.side).take(wr_id);
        let Entry { ticket, buffer } = entry.ok_or_else(|| RetireError::nothing_in_flight(work))?;
        Ok(Done { ticket, buffer, result })
    }

    /// Sends and receives in flight.
    pub(super) fn in_flight(&self) -> (usize, usize) {
        (self.sends.used(), self.receives.used())
    }

    /// Whether nothing is.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight() == (0, 0)
    }

    /// Every buffer there is; nothing is in flight any more.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Buffer> {
        self.sends.drain().chain(self.receives.drain())
    }

    /// Never frees what is in flight: the card may still write it.
    pub(super) fn leak(&mut self) {
        self.drain().for_each(std::mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_hands_out_each_slot_once_and_takes_it_back() {
        let mut table = Table::new(2);
        let put = |table: &mut Table, n| {
            let wr_id = table.next()?;
            table.put(Entry { ticket: Ticket(n), buffer: None });
            Ok::<_, PostError>(wr_id)
        };
        let (first, second) = (put(&mut table, 1).unwrap(), put(&mut table, 2).unwrap());
        assert_eq!(put(&mut table, 3), Err(Full.into()));
        assert_eq!(table.take(second).unwrap().ticket, Ticket(2));
        assert!(table.take(second).is_none(), "twice");
        assert!(table.take(99).is_none() && table.take(u64::MAX).is_none());
        assert_eq!(put(&mut table, 4), Ok(second));
        assert_eq!(table.take(first).unwrap().ticket, Ticket(1));
    }
}
