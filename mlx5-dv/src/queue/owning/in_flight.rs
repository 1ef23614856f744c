//! Buffers in flight.

use std::fmt;

use crate::objects::Buffer;
use crate::queue::completion::decode::{Completion, Operation, Side, WorkError, work_of};
use crate::queue::error::{Full, PostError, RetireError};

/// Identifies a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A completed work request, with its buffer.
#[derive(Debug)]
pub struct Done {
    /// The work request.
    pub ticket: Ticket,
    /// Its buffer, returned; `None` for inline data.
    pub buffer: Option<Buffer>,
    /// Its completion or error.
    pub result: Result<Completion, WorkError>,
}

impl Done {
    /// The message or frame that was received, where the card put it: for a receive into a buffer of an
    /// [`ExclusiveRegion`](crate::objects::ExclusiveRegion). `None` for anything else, errors and RDMA WRITEs with
    /// immediate among them, and for a length beyond the buffer, which only a faulty card reports.
    pub fn received(&self) -> Option<&[u8]> {
        let completion = self.result.as_ref().ok()?;
        match completion.operation {
            Operation::Sent(_) | Operation::WrittenImm(_) => None,
            Operation::Received | Operation::ReceivedImm(_) | Operation::ReceivedInvalidate(_) => {
                let buffer = self.buffer.as_ref().filter(|buffer| buffer.is_exclusive())?;
                buffer.as_slice().get(..completion.byte_len as usize)
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

/// An entry of the in-flight table.
#[derive(Debug)]
struct Entry {
    ticket: Ticket,
    buffer: Option<Buffer>,
}

/// Buffers of one queue by slot. Fixed size.
#[derive(Debug)]
struct Table {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Table {
    fn new(depth: u32) -> Self {
        Table { slots: (0..depth).map(|_| None).collect(), free: (0..depth).rev().collect() }
    }

    /// Number of used slots.
    fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot, and `wr_id`, of the next work request.
    fn next(&self) -> Result<u64, PostError> {
        Ok(u64::from(*self.free.last().ok_or(Full)?))
    }

    fn put(&mut self, entry: Entry) {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(entry);
        }
    }

    /// Returns all buffers and frees their slots.
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

/// Buffers in flight of a send and a receive queue.
#[derive(Debug)]
pub(super) struct InFlight {
    sends: Table,
    receives: Table,
    tickets: u64,
}

impl InFlight {
    /// Tables for queues of these depths.
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
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.table(side).put(Entry { ticket, buffer });
        Ok(ticket)
    }

    /// Removes the completed work request with `wr_id`, and returns it with `result`.
    #[inline(always)]
    pub(super) fn done(&mut self, wr_id: u64, result: Result<Completion, WorkError>) -> Result<Done, RetireError> {
        let work = work_of(&result);
        let entry = self.table(work.side).take(wr_id);
        let Entry { ticket, buffer } = entry.ok_or_else(|| RetireError::nothing_in_flight(work))?;
        Ok(Done { ticket, buffer, result })
    }

    /// Number of sends and receives in flight.
    pub(super) fn in_flight(&self) -> (usize, usize) {
        (self.sends.used(), self.receives.used())
    }

    /// Whether nothing is in flight.
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight() == (0, 0)
    }

    /// Returns all buffers; nothing is in flight afterwards.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Buffer> {
        self.sends.drain().chain(self.receives.drain())
    }

    /// Leaks all buffers on purpose: the card may still write them.
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
