//! A connected queue pair that owns the buffers it lends the card.

use std::collections::VecDeque;
use std::fmt;
use std::hint;
use std::sync::Arc;
use std::time::Duration;

use super::completion::Deadline;
use super::error::{Full, PostError, RetireError};
use super::link::{ConnectionOptions, Link, Peer};
use super::work::{Completion, Side, Work, WorkError};
use super::{AnyDoorbell, DataSegment, ReceiveQueue, RemoteAddress, SendBatch, SendQueue, WrFlags};
use crate::error::Error;
use crate::objects::{Buffer, Pd, QueuePair};

/// Which work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

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
    /// [`Connection::connect`] comes first.
    #[error("the connection has no remote yet: call connect first")]
    NotConnected,
    /// A reset failed.
    #[error("the queue is out of order since its last reset failed: reset it again, or drop it")]
    NotReset,
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

/// A blocking call that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// It was not posted.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It failed.
    #[error("{error}")]
    Failed {
        /// How.
        error: WorkError,
        /// Its buffer, back again.
        buffer: Option<Buffer>,
    },
    /// It did not complete in time, or the card is gone. The buffer is still in flight, and comes back from a later
    /// [`Connection::poll`].
    #[error(transparent)]
    Waiting(#[from] Error),
}

/// What a slot of the in-flight table holds.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) ticket: Ticket,
    pub(super) buffer: Option<Buffer>,
}

/// The buffers of one queue, by slot. Never grows.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Option<InFlight>>,
    free: Vec<u32>,
}

impl Table {
    pub(super) fn new(depth: u32) -> Self {
        Table { slots: (0..depth).map(|_| None).collect(), free: (0..depth).rev().collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used() == 0
    }

    /// How many slots are taken.
    pub(super) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot that the next work request takes, which is its `wr_id`.
    pub(super) fn next(&self) -> Result<u64, PostError> {
        Ok(u64::from(*self.free.last().ok_or(Full)?))
    }

    pub(super) fn put(&mut self, entry: InFlight) {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(entry);
        }
    }

    /// Every buffer there is; the slots are free.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Buffer> {
        let slots = 0..self.slots.len() as u64;
        slots.filter_map(|slot| self.take(slot)).filter_map(|entry| entry.buffer)
    }

    pub(super) fn take(&mut self, wr_id: u64) -> Option<InFlight> {
        let slot = usize::try_from(wr_id).ok()?;
        let entry = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot as u32);
        Some(entry)
    }
}

/// A reliable connection: a queue pair, its completion queue, and the buffers that are with the card.
///
/// Each work request takes its [`Buffer`] and [`poll`](Self::poll) hands it back, so a buffer cannot be touched while the
/// card may read or write it, and cannot be freed:
///
/// ```compile_fail,E0382
/// fn reuse(connection: &mut mlx5_dv::queue::Connection, mut buffer: mlx5_dv::objects::Buffer) {
///     connection.send(buffer).unwrap();
///     buffer.write(0, b"too early"); // it is with the card
/// }
/// ```
///
/// Every work request is signalled and rung for at once. Belongs to one thread at a time; posting and polling make no
/// system call, take no lock and allocate nothing. Dropped with work in flight, the queue pair is reset first; if that
/// fails, the buffers are leaked.
#[derive(Debug)]
pub struct Connection {
    send: Option<SendQueue<AnyDoorbell>>,
    receive: Option<ReceiveQueue>,
    sends: Table,
    receives: Table,
    /// What a blocking call met while it waited for something else.
    met: VecDeque<Done>,
    tickets: u64,
    link: Link,
}

/// How long a wait spins before it sleeps, or lets others run.
const SPIN: Duration = Duration::from_micros(50);
/// Polls between two looks at the clock.
const POLLS: u32 = 64;

impl Connection {
    /// A queue pair in INIT with a UAR page and a completion queue of its own: receives may be posted.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the options exceed a capability; [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, options: ConnectionOptions) -> Result<Self, Error> {
        let (send_depth, recv_depth) = (options.send_depth, options.recv_depth);
        let link = Link::new(pd, options)?;
        Ok(Connection {
            send: None,
            receive: link.receive_queue()?,
            sends: Table::new(send_depth),
            receives: Table::new(recv_depth),
            met: VecDeque::with_capacity(send_depth.saturating_add(recv_depth) as usize),
            tickets: 0,
            link,
        })
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.link.qp
    }

    /// What to tell the remote. Errors: [`Error::Invalid`] where our GID index names none.
    pub fn local(&self) -> Result<Peer, Error> {
        self.link.local()
    }

    /// Connects to `peer`: INIT to RTR to RTS. The remote must do the same before messages go through; until then they are
    /// sent again.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the MAC address of the GID is not known; [`Error::State`] where it is connected already;
    /// [`Error::Command`].
    pub fn connect(&mut self, peer: &Peer) -> Result<(), Error> {
        self.send = self.link.connect(peer)?;
        Ok(())
    }

    /// Sends, writes and reads in flight, and receives posted.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.sends.used(), self.receives.used())
    }

    /// Receives one message into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        let posted = self.post_receive(buffer.segment());
        self.keep(posted, Side::Receive, Some(buffer))
    }

    fn post_receive(&mut self, segment: DataSegment) -> Result<(), RefusedReason> {
        let wr_id = self.receives.next()?;
        let queue = self.receive.as_mut().ok_or(PostError::from(Full))?;
        let mut batch = queue.batch();
        // SAFETY: `keep` puts the buffer, and with it its region, into the table next; it leaves it with the completion, or
        // after the queue pair was reset.
        unsafe { batch.receive(wr_id, &[segment])? };
        batch.ring();
        Ok(())
    }

    /// Posts one send work request by `post`, and rings.
    #[inline(always)]
    fn post_send(
        &mut self,
        post: impl FnOnce(&mut SendBatch<'_, AnyDoorbell>, u64) -> Result<(), PostError>,
    ) -> Result<(), RefusedReason> {
        let wr_id = self.sends.next()?;
        let queue = self.send.as_mut().ok_or(RefusedReason::NotConnected)?;
        let mut batch = queue.batch();
        post(&mut batch, wr_id)?;
        batch.ring();
        Ok(())
    }

    /// Remembers what was posted, or gives it back.
    #[inline(always)]
    fn keep(
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
        let table = if side == Side::Send { &mut self.sends } else { &mut self.receives };
        table.put(InFlight { ticket, buffer });
        Ok(ticket)
    }

    /// SEND of `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`: the buffer is kept until its completion.
        let posted = self.post_send(|batch, id| unsafe { batch.send(id, WrFlags::SIGNALLED, &[segment]) });
        self.keep(posted, Side::Send, Some(buffer))
    }

    /// SEND of `buffer` with an immediate, waking a receiver that waits for solicited completions. Errors: [`Refused`].
    #[inline]
    pub fn send_imm(&mut self, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        let (segment, flags) = (buffer.segment(), WrFlags::SIGNALLED | WrFlags::SOLICITED);
        // SAFETY: as in `post_receive`.
        let posted = self.post_send(|batch, id| unsafe { batch.send_imm(id, flags, imm, &[segment]) });
        self.keep(posted, Side::Send, Some(buffer))
    }

    /// RDMA WRITE of `buffer` to `remote`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn write(&mut self, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`.
        let posted = self.post_send(|batch, id| unsafe { batch.write(id, WrFlags::SIGNALLED, remote, &[segment]) });
        self.keep(posted, Side::Send, Some(buffer))
    }

    /// RDMA WRITE of `buffer` to `remote`, with an immediate that completes a receive there. Errors: [`Refused`].
    #[inline]
    pub fn write_imm(&mut self, buffer: Buffer, remote: RemoteAddress, imm: u32) -> Result<Ticket, Refused> {
        let (segment, flags) = (buffer.segment(), WrFlags::SIGNALLED | WrFlags::SOLICITED);
        // SAFETY: as in `post_receive`.
        let posted = self.post_send(|batch, id| unsafe { batch.write_imm(id, flags, remote, imm, &[segment]) });
        self.keep(posted, Side::Send, Some(buffer))
    }

    /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn read(&mut self, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`.
        let posted = self.post_send(|batch, id| unsafe { batch.read(id, WrFlags::SIGNALLED, remote, &[segment]) });
        self.keep(posted, Side::Send, Some(buffer))
    }

    /// SEND of `data`, which is copied and free at once. Errors: [`Refused`].
    #[inline]
    pub fn send_inline(&mut self, data: &[u8]) -> Result<Ticket, Refused> {
        let posted = self.post_send(|batch, id| batch.send_inline(id, WrFlags::SIGNALLED, data));
        self.keep(posted, Side::Send, None)
    }

    /// RDMA WRITE of `data`, which is copied and free at once, to `remote`. Errors: [`Refused`].
    #[inline]
    pub fn write_inline(&mut self, data: &[u8], remote: RemoteAddress) -> Result<Ticket, Refused> {
        let posted = self.post_send(|batch, id| batch.write_inline(id, WrFlags::SIGNALLED, remote, data));
        self.keep(posted, Side::Send, None)
    }

    /// The next work request that is done, with its buffer; `None` while there is none.
    ///
    /// # Errors
    /// [`RetireError`] where the card names a work request that is not in flight: a card, or a driver, that is broken.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        if let Some(done) = self.met.pop_front() {
            return Ok(Some(done));
        }
        self.poll_card()
    }

    #[inline]
    fn poll_card(&mut self) -> Result<Option<Done>, RetireError> {
        let Some(result) = self.link.cq.poll() else { return Ok(None) };
        let work = match &result {
            Ok(completion) => completion.work,
            Err(error) => error.work,
        };
        let entry = match work.side {
            Side::Send => self.send.as_mut().map(|queue| queue.retire(&work)),
            Side::Receive => self.receive.as_mut().map(|queue| queue.retire(&work)),
        };
        let wr_id = entry.unwrap_or(Err(RetireError::NotInFlight { work, first: 0, end: 0 }))?;
        let table = if work.side == Side::Send { &mut self.sends } else { &mut self.receives };
        let InFlight { ticket, buffer } = table.take(wr_id).ok_or_else(|| not_in_flight(work))?;
        Ok(Some(Done { ticket, buffer, result }))
    }

    /// The next work request that is done, with its buffer: polls, then sleeps if the connection was made with
    /// [`ConnectionOptions::events`].
    ///
    /// # Errors
    /// [`Error::Timeout`] ([`Duration::MAX`] is for ever), [`Error::CompletionQueue`] where the completion queue overran, [`Error::Dead`],
    /// [`Error::Nonsense`] as for [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<Done, Error> {
        match self.met.pop_front() {
            Some(done) => Ok(done),
            None => self.wait_card(Deadline::after(timeout), timeout),
        }
    }

    fn wait_card(&mut self, deadline: Deadline, timeout: Duration) -> Result<Done, Error> {
        let spin_until = Deadline::after(SPIN);
        loop {
            for _ in 0..POLLS {
                if let Some(done) = self.poll_card().map_err(nonsense)? {
                    return Ok(done);
                }
                hint::spin_loop();
            }
            if deadline.has_passed() {
                return Err(self
                    .link
                    .qp
                    .device()
                    .death()
                    .unwrap_or_else(|| self.link.cq.cq().why_nothing_came(timeout)));
            }
            if spin_until.has_passed() {
                if self.link.options.events {
                    self.link.cq.wait(deadline.left().unwrap_or(Duration::MAX))?;
                } else if let Some(death) = self.link.qp.device().death() {
                    return Err(death);
                } else {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Waits for `ticket`; what else is done meanwhile comes from later polls.
    fn finish(
        &mut self,
        ticket: Result<Ticket, Refused>,
        timeout: Duration,
    ) -> Result<(Completion, Option<Buffer>), WaitError> {
        let ticket = ticket?;
        let deadline = Deadline::after(timeout);
        loop {
            let done = match self.met.iter().position(|done| done.ticket == ticket) {
                Some(at) => self.met.remove(at),
                None => Some(self.wait_card(deadline, timeout)?),
            };
            match done {
                Some(Done { ticket: this, buffer, result }) if this == ticket => {
                    return match result {
                        Ok(completion) => Ok((completion, buffer)),
                        Err(error) => Err(WaitError::Failed { error, buffer }),
                    };
                }
                other => self.met.extend(other),
            }
        }
    }

    /// As [`send`](Self::send), and waits until the remote has it. Errors: [`WaitError`].
    pub fn send_blocking(&mut self, buffer: Buffer, timeout: Duration) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.send(buffer);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }

    /// As [`write`](Self::write), and waits until the remote's memory has it. Errors: [`WaitError`].
    pub fn write_blocking(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        timeout: Duration,
    ) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.write(buffer, remote);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }

    /// As [`read`](Self::read), and waits until the data is here. Errors: [`WaitError`].
    pub fn read_blocking(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        timeout: Duration,
    ) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.read(buffer, remote);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }

    /// As [`receive`](Self::receive), and waits for the message: what came, and the buffer with it. Errors: [`WaitError`].
    pub fn receive_blocking(
        &mut self,
        buffer: Buffer,
        timeout: Duration,
    ) -> Result<(Completion, Option<Buffer>), WaitError> {
        let ticket = self.receive(buffer);
        self.finish(ticket, timeout)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        (self.send, self.receive) = (None, None);
        if self.sends.is_empty() && self.receives.is_empty() {
            return;
        }
        // Until the queue pair is reset the card may still write the buffers.
        // A dead card has been kept from memory before its death was known.
        if let Err(error) = self.link.qp.reset()
            && !error.is_dead()
        {
            tracing::error!(%error, "a connection could not be reset; its buffers in flight are leaked");
            std::mem::forget(std::mem::replace(&mut self.sends, Table::new(0)));
            std::mem::forget(std::mem::replace(&mut self.receives, Table::new(0)));
        }
    }
}

pub(super) fn nonsense(error: RetireError) -> Error {
    Error::Nonsense(error.to_string())
}

pub(super) fn not_in_flight(work: Work) -> RetireError {
    RetireError::NotInFlight { work, first: 0, end: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_hands_out_each_slot_once_and_takes_it_back() {
        let mut table = Table::new(2);
        let put = |table: &mut Table, n| {
            let wr_id = table.next()?;
            table.put(InFlight { ticket: Ticket(n), buffer: None });
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
