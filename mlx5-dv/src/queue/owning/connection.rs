//! A connected queue pair that owns the buffers it lends the card.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::fast_key::FastKey;
use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use super::queues::Wait;
use super::setup::{ConnectionOptions, Link, Peer};
use crate::error::Error;
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{AccessFlags, AnyDoorbell, Buffer, Pd, QueuePair, RtrAttributes, RtsAttributes};
use crate::queue::completion::CompletionQueue;
use crate::queue::completion::decode::{Completion, Side, WorkError};
use crate::queue::error::{Full, PostError, RetireError};
use crate::queue::send::SendBatch;
use crate::queue::send::service::{Connected, Messages, UnreliableMessages};
use crate::queue::send::wqe::WrFlags;

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

/// A connection, reliable unless `S` says otherwise: a queue pair, its completion queue, and the buffers that are with
/// the card.
///
/// Each work request takes its [`Buffer`] and [`poll`](Self::poll) hands it back, so a buffer cannot be touched while
/// the card may read or write it, and cannot be freed:
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
pub struct Connection<S: Connected = Messages> {
    in_flight: InFlight,
    /// What a blocking call met while it waited for something else.
    met: VecDeque<Done>,
    link: Link<S>,
    /// What the next work request waits by: the last one changes a key.
    fence: WrFlags,
}

/// A connection whose messages may be lost: SENDs and RDMA WRITEs. See [`UnreliableMessages`].
pub type UnreliableConnection = Connection<UnreliableMessages>;

impl Connection {
    /// As [`of_service`](Self::of_service), reliable.
    ///
    /// # Errors
    /// As for [`of_service`](Self::of_service).
    pub fn new(pd: &Arc<Pd>, options: ConnectionOptions) -> Result<Self, Error> {
        Self::of_service(pd, options)
    }
}

impl<S: Connected> Connection<S> {
    /// A queue pair in INIT with a UAR page and a completion queue of its own: receives may be posted.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the options exceed a capability; [`Error::Unsupported`] where the card has not the
    /// service; [`Error::Memory`], [`Error::Command`].
    pub fn of_service(pd: &Arc<Pd>, options: ConnectionOptions) -> Result<Self, Error> {
        let (send_depth, recv_depth) = (options.send_depth, options.recv_depth);
        Ok(Connection {
            in_flight: InFlight::new(send_depth, recv_depth),
            met: VecDeque::with_capacity(send_depth.saturating_add(recv_depth) as usize),
            link: Link::new(pd, options)?,
            fence: WrFlags::empty(),
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

    /// Connects to `peer`: INIT to RTR to RTS. The remote must do the same before messages go through; until then they
    /// are sent again, or are lost on an unreliable connection.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the MAC address of the GID is not known; [`Error::State`] where it is connected
    /// already; [`Error::Command`].
    pub fn connect(&mut self, peer: &Peer) -> Result<(), Error> {
        self.link.connect(peer)
    }

    /// As [`connect`](Self::connect), by the steps' own attributes: as a connection manager agreed on them. The options
    /// that the connection was made with do not count then.
    ///
    /// # Errors
    /// As for [`QueuePair::ready_to_receive`] and [`QueuePair::ready_to_send`].
    pub fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), Error> {
        self.link.connect_by(rtr, rts)
    }

    /// Sends, writes, reads and atomics in flight, and receives posted.
    pub fn in_flight(&self) -> (usize, usize) {
        self.in_flight.in_flight()
    }

    /// Receives one message into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        let posted = self.post_receive(buffer.segment());
        self.in_flight.keep(posted, Side::Receive, Some(buffer))
    }

    fn post_receive(&mut self, segment: DataSegment) -> Result<(), RefusedReason> {
        let wr_id = self.in_flight.next(Side::Receive)?;
        let queue = self.link.queues.receive.as_mut().ok_or(PostError::from(Full))?;
        let mut batch = queue.batch();
        // SAFETY: `InFlight::keep` puts the buffer, and with it its region, into the table next; it leaves it with the
        // completion, or after the queue pair was reset.
        unsafe { batch.receive(wr_id, &[segment])? };
        batch.ring();
        Ok(())
    }

    /// Posts one send work request by `post`, and rings.
    #[inline(always)]
    fn post_send(
        &mut self,
        post: impl FnOnce(&mut SendBatch<'_, AnyDoorbell, S>, u64, WrFlags) -> Result<(), PostError>,
    ) -> Result<(), RefusedReason> {
        let wr_id = self.in_flight.next(Side::Send)?;
        let queue = self.link.queues.send.as_mut().ok_or(RefusedReason::NotConnected)?;
        let mut batch = queue.batch();
        post(&mut batch, wr_id, WrFlags::SIGNALLED | self.fence)?;
        batch.ring();
        self.fence = WrFlags::empty();
        Ok(())
    }

    /// SEND of `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`: the buffer is kept until its completion.
        let posted = self.post_send(|batch, id, signalled| unsafe { batch.send(id, signalled, &[segment]) });
        self.in_flight.keep(posted, Side::Send, Some(buffer))
    }

    /// SEND of `buffer` with an immediate, waking a receiver that waits for solicited completions. Errors: [`Refused`].
    #[inline]
    pub fn send_imm(&mut self, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`.
        let posted = self.post_send(|batch, id, signalled| unsafe {
            batch.send_imm(id, signalled | WrFlags::SOLICITED, imm, &[segment])
        });
        self.in_flight.keep(posted, Side::Send, Some(buffer))
    }

    /// RDMA WRITE of `buffer` to `remote`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn write(&mut self, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`.
        let posted = self.post_send(|batch, id, signalled| unsafe { batch.write(id, signalled, remote, &[segment]) });
        self.in_flight.keep(posted, Side::Send, Some(buffer))
    }

    /// RDMA WRITE of `buffer` to `remote`, with an immediate that completes a receive there. Errors: [`Refused`].
    #[inline]
    pub fn write_imm(&mut self, buffer: Buffer, remote: RemoteAddress, imm: u32) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`.
        let posted = self.post_send(|batch, id, signalled| unsafe {
            batch.write_imm(id, signalled | WrFlags::SOLICITED, remote, imm, &[segment])
        });
        self.in_flight.keep(posted, Side::Send, Some(buffer))
    }

    /// SEND of `data`, which is copied and free at once. Errors: [`Refused`].
    #[inline]
    pub fn send_inline(&mut self, data: &[u8]) -> Result<Ticket, Refused> {
        let posted = self.post_send(|batch, id, signalled| batch.send_inline(id, signalled, data));
        self.in_flight.keep(posted, Side::Send, None)
    }

    /// RDMA WRITE of `data`, which is copied and free at once, to `remote`. Errors: [`Refused`].
    #[inline]
    pub fn write_inline(&mut self, data: &[u8], remote: RemoteAddress) -> Result<Ticket, Refused> {
        let posted = self.post_send(|batch, id, signalled| batch.write_inline(id, signalled, remote, data));
        self.in_flight.keep(posted, Side::Send, None)
    }

    /// Opens the buffers of `key` to the remote, one behind the other: fast registration. Returns where the first byte
    /// is for the remote; a message posted next may tell it. [`FastKey::settle`] takes the completion.
    ///
    /// # Errors
    /// [`RefusedReason`]; the key is as it was.
    pub fn register(
        &mut self,
        key: &mut FastKey,
        access: AccessFlags,
    ) -> Result<(Ticket, RemoteAddress), RefusedReason> {
        self.check_pd(key.pd())?;
        let remote = self.post_key(|batch, wr_id, signalled| {
            // SAFETY: the buffers keep their regions registered, and nobody has a reference to a region's memory.
            // `FastKey` keeps the buffers, and the list, until the key is free or destroyed.
            key.register(access, |key, new| unsafe { batch.register(wr_id, signalled, key, new) })
        })?;
        let ticket = self.keep_key()?;
        key.registering(self.link.qp.qpn(), ticket);
        Ok((ticket, remote))
    }

    /// As [`register`](Self::register), of buffers that take turns: of each buffer `bytes` of it, then of the next one,
    /// `turns` times. `pieces` says for each buffer how many bytes it gives in a turn, and how far its turns lie apart.
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
        let remote = self.post_key(|batch, wr_id, signalled| {
            key.register_interleaved(access, turns, pieces, |key, new| {
                // SAFETY: as in `register`; `FastKey` checks that the pieces lie inside of the buffers.
                unsafe { batch.register(wr_id, signalled, key, new) }
            })
        })?;
        let ticket = self.keep_key()?;
        key.registering(self.link.qp.qpn(), ticket);
        Ok((ticket, remote))
    }

    /// Closes the buffers of `key` to the remote: LOCAL_INV. Once [`FastKey::settle`] was shown the completion, the key
    /// is free, and gives its buffers back.
    ///
    /// # Errors
    /// [`RefusedReason`]; the key is as it was.
    pub fn invalidate(&mut self, key: &mut FastKey) -> Result<Ticket, RefusedReason> {
        self.check_pd(key.pd())?;
        let rkey = key.to_invalidate()?;
        self.post_key(|batch, wr_id, signalled| Ok(batch.local_invalidate(wr_id, signalled, rkey)?))?;
        let ticket = self.keep_key()?;
        key.invalidating(self.link.qp.qpn(), ticket);
        Ok(ticket)
    }

    /// Checks that a key of `pd` may be used.
    pub(super) fn check_pd(&self, pd: &Arc<Pd>) -> Result<(), RefusedReason> {
        if Arc::ptr_eq(pd, self.link.qp.pd()) { Ok(()) } else { Err(RefusedReason::ForeignKey) }
    }

    /// Posts one work request on a key by `post`, and rings. [`keep_key`](Self::keep_key) is next.
    pub(super) fn post_key<T>(
        &mut self,
        post: impl FnOnce(&mut SendBatch<'_, AnyDoorbell, S>, u64, WrFlags) -> Result<T, RefusedReason>,
    ) -> Result<T, RefusedReason> {
        let wr_id = self.in_flight.next(Side::Send)?;
        let queue = self.link.queues.send.as_mut().ok_or(RefusedReason::NotConnected)?;
        let mut batch = queue.batch();
        let posted = post(&mut batch, wr_id, WrFlags::SIGNALLED | self.fence)?;
        self.fence = batch.fence_after_update();
        batch.ring();
        Ok(posted)
    }

    /// Remembers what [`post_key`](Self::post_key) posted.
    pub(super) fn keep_key(&mut self) -> Result<Ticket, RefusedReason> {
        self.in_flight.keep(Ok(()), Side::Send, None).map_err(|refused| refused.reason)
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

    /// The next work request that is done, with its buffer: polls, then sleeps if the connection was made with
    /// [`ConnectionOptions::events`].
    ///
    /// # Errors
    /// [`Error::Timeout`] ([`Duration::MAX`] is for ever), [`Error::CompletionQueue`] where the completion queue
    /// overran, [`Error::Dead`], [`Error::InvalidResponse`] as for [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<Done, Error> {
        match self.met.pop_front() {
            Some(done) => Ok(done),
            None => {
                let deadline = self.deadline(timeout);
                self.wait_card(&deadline, timeout)
            }
        }
    }

    /// As [`poll`](Self::poll), once there is something; for tasks of any executor. `readable` is as for
    /// [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready), and so are the errors; the connection was made
    /// with [`ConnectionOptions::events`].
    pub async fn next(&mut self, mut readable: impl AsyncFnMut() -> io::Result<()>) -> Result<Done, Error> {
        loop {
            if let Some(done) = self.poll()? {
                return Ok(done);
            }
            self.cq().ready(&mut readable).await?;
        }
    }

    /// The eventfd that becomes readable when an event comes that [`next`](Self::next) or [`wait`](Self::wait) has
    /// asked for; `None` without [`ConnectionOptions::events`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.queues.cq.fd()
    }

    /// Waits for `ticket`; what else is done meanwhile comes from later polls.
    fn finish(
        &mut self,
        ticket: Result<Ticket, Refused>,
        timeout: Duration,
    ) -> Result<(Completion, Option<Buffer>), WaitError> {
        let ticket = ticket?;
        let deadline = self.deadline(timeout);
        loop {
            let done = match self.met.iter().position(|done| done.ticket == ticket) {
                Some(at) => self.met.remove(at),
                None => Some(self.wait_card(&deadline, timeout)?),
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

    /// As [`send`](Self::send), and waits until the remote has it, or an unreliable connection has sent it. Errors:
    /// [`WaitError`].
    pub fn send_blocking(&mut self, buffer: Buffer, timeout: Duration) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.send(buffer);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }

    /// As [`write`](Self::write), and waits until the remote's memory has it, or an unreliable connection has sent it.
    /// Errors: [`WaitError`].
    pub fn write_blocking(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        timeout: Duration,
    ) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.write(buffer, remote);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }

    /// As [`receive`](Self::receive), and waits for the message: what came, and the buffer with it. Errors:
    /// [`WaitError`].
    pub fn receive_blocking(
        &mut self,
        buffer: Buffer,
        timeout: Duration,
    ) -> Result<(Completion, Option<Buffer>), WaitError> {
        let ticket = self.receive(buffer);
        self.finish(ticket, timeout)
    }
}

impl Connection {
    /// SEND of `buffer` that invalidates the remote's key `rkey`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send_invalidate(&mut self, buffer: Buffer, rkey: u32) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`.
        let posted = self.post_send(|batch, id, signalled| unsafe {
            batch.send_invalidate(id, signalled | WrFlags::SOLICITED, rkey, &[segment])
        });
        self.in_flight.keep(posted, Side::Send, Some(buffer))
    }

    /// SEND of `data`, which is copied and free at once, that invalidates the remote's key `rkey`. Errors: [`Refused`].
    #[inline]
    pub fn send_invalidate_inline(&mut self, data: &[u8], rkey: u32) -> Result<Ticket, Refused> {
        let posted = self.post_send(|batch, id, signalled| {
            batch.send_invalidate_inline(id, signalled | WrFlags::SOLICITED, rkey, data)
        });
        self.in_flight.keep(posted, Side::Send, None)
    }

    /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn read(&mut self, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`.
        let posted = self.post_send(|batch, id, signalled| unsafe { batch.read(id, signalled, remote, &[segment]) });
        self.in_flight.keep(posted, Side::Send, Some(buffer))
    }

    /// ATOMIC compare and swap of the number at `remote`, which comes into `buffer`, of eight bytes, as
    /// [`SendBatch::compare_swap`] has it. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn compare_swap(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        compare: u64,
        swap: u64,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        let posted = self.post_send(|batch, id, signalled| {
            // SAFETY: as in `post_receive`.
            unsafe { batch.compare_swap(id, signalled, remote, compare, swap, segment) }
        });
        self.in_flight.keep(posted, Side::Send, Some(buffer))
    }

    /// ATOMIC fetch and add to the number at `remote`, which comes into `buffer`, of eight bytes, as
    /// [`SendBatch::fetch_add`] has it. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn fetch_add(&mut self, buffer: Buffer, remote: RemoteAddress, add: u64) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        // SAFETY: as in `post_receive`.
        let posted =
            self.post_send(|batch, id, signalled| unsafe { batch.fetch_add(id, signalled, remote, add, segment) });
        self.in_flight.keep(posted, Side::Send, Some(buffer))
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

    /// As [`compare_swap`](Self::compare_swap), and waits until what the number was is here. Errors: [`WaitError`].
    pub fn compare_swap_blocking(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        compare: u64,
        swap: u64,
        timeout: Duration,
    ) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.compare_swap(buffer, remote, compare, swap);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }

    /// As [`fetch_add`](Self::fetch_add), and waits until what the number was is here. Errors: [`WaitError`].
    pub fn fetch_add_blocking(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        add: u64,
        timeout: Duration,
    ) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.fetch_add(buffer, remote, add);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }
}

impl<S: Connected> Wait for Connection<S> {
    #[inline]
    fn poll_card(&mut self) -> Result<Option<Done>, RetireError> {
        let Some((wr_id, result)) = self.link.queues.poll()? else { return Ok(None) };
        self.in_flight.done(wr_id, result).map(Some)
    }

    fn cq(&mut self) -> &mut CompletionQueue {
        &mut self.link.queues.cq
    }

    fn sleeps(&self) -> bool {
        self.link.options.events
    }
}

impl<S: Connected> Drop for Connection<S> {
    fn drop(&mut self) {
        self.link.queues.close();
        if self.in_flight.is_empty() {
            return;
        }
        // Until the queue pair is reset the card may still write the buffers.
        // A dead card has been kept from memory before its death was known.
        if let Err(error) = self.link.qp.reset()
            && !error.is_dead()
        {
            tracing::error!(%error, "a connection could not be reset; its buffers in flight are leaked");
            self.in_flight.leak();
        }
    }
}
