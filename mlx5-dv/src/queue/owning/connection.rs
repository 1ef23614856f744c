//! A connected queue pair that owns the buffers of posted work.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::batch::{ConnectionBatch, ConnectionReceives, alone};
use super::in_flight::{Done, Kept, Refused, RefusedReason, Ticket};
use super::queues::Wait;
use super::setup::{ConnectionOptions, Link, Peer};
use crate::error::Error;
use crate::memory::RemoteAddress;
use crate::objects::{Buffer, DoorbellKind, Pd, QueuePair, RtrAttributes, RtsAttributes};
use crate::queue::completion::decode::{Completion, WorkError};
use crate::queue::error::RetireError;
use crate::queue::events::{EventSource, event_source};
use crate::queue::send::masked::MaskedNumber;
use crate::queue::send::service::{Connected, Messages, UnreliableMessages};

/// Error of a blocking call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The work request was not posted.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The work request failed.
    #[error("{error}")]
    Failed {
        /// The reason.
        error: WorkError,
        /// Its buffer.
        buffer: Option<Buffer>,
    },
    /// The work request did not complete in time, or the card is dead. The buffer is still in flight; a later
    /// [`Connection::poll`] returns it.
    #[error(transparent)]
    Waiting(#[from] Error),
}

/// A connection, reliable by default: a queue pair, its completion queue, and the buffers in flight.
///
/// Each work request takes its [`Buffer`], and [`poll`](Self::poll) returns it. So a buffer can be neither accessed nor
/// freed while the card may read or write it:
///
/// ```compile_fail,E0382
/// fn reuse(connection: &mut mlx5_dv::queue::Connection, mut buffer: mlx5_dv::objects::Buffer) {
///     connection.send(buffer).unwrap();
///     buffer.write(0, b"too early"); // it is with the card
/// }
/// ```
///
/// Each call rings, and each work request has a completion of its own; a [`batch`](Self::batch) posts several with one
/// doorbell, of several buffers, and quiet ones. Used by one thread at a time. Posting and polling make no system call,
/// take no lock and allocate nothing. If it is dropped with work in flight, the queue pair is reset first; if that
/// fails, the buffers are leaked.
#[derive(Debug)]
pub struct Connection<S: Connected = Messages> {
    link: Link<S>,
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
    /// Creates a queue pair in INIT with its own UAR page and completion queue: receives may be posted.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options exceed a capability; [`Error::Unsupported`] if the card does not support the
    /// service; [`Error::Memory`], [`Error::Command`].
    pub fn of_service(pd: &Arc<Pd>, options: ConnectionOptions) -> Result<Self, Error> {
        Link::new(pd, options).map(|link| Connection { link })
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        self.link.qp()
    }

    /// How its sends ring the doorbell; `None` before it is connected, and without a send queue.
    pub fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.link.queues.work.doorbell_kind()
    }

    /// What to tell the remote. Errors: [`Error::Invalid`] if no GID has the index `gid_index`.
    pub fn local(&self) -> Result<Peer, Error> {
        self.link.local()
    }

    /// Connects to `peer`: INIT to RTR to RTS. The remote must do the same before messages arrive; until then they are
    /// retried, or are lost on an unreliable connection.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the MAC address of the GID is not known; [`Error::State`] if it is connected already;
    /// [`Error::Command`].
    pub fn connect(&mut self, peer: &Peer) -> Result<(), Error> {
        self.link.connect(peer)
    }

    /// As [`connect`](Self::connect), with the attributes that a connection manager agreed on. The options of the
    /// connection are then ignored.
    ///
    /// # Errors
    /// As for [`QueuePair::ready_to_receive`] and [`QueuePair::ready_to_send`].
    pub fn connect_by(&mut self, rtr: &RtrAttributes, rts: &RtsAttributes) -> Result<(), Error> {
        self.link.connect_by(rtr, rts)
    }

    /// Disconnects, after an error, too: the queue pair goes through RST to INIT. Work in flight and completions not
    /// polled are discarded; their buffers are returned. Receives may be posted then. To connect again, exchange
    /// [`local`](Self::local) anew: the first PSN is another one, unless the options name it.
    ///
    /// A [`FastKey`](crate::queue::FastKey) or [`FastWindow`](crate::queue::FastWindow) with a work request in flight
    /// stays as it is, with its buffers, until it is destroyed.
    ///
    /// # Errors
    /// [`Error::Command`], or [`Error::Timeout`] while the card does not answer: nothing can be posted then, and the
    /// buffers stay in flight. The reset can be tried again.
    pub fn reset(&mut self) -> Result<Vec<Buffer>, Error> {
        self.link.reset()
    }

    /// Number of sends, writes, reads and atomics in flight, and of receives posted.
    pub fn in_flight(&self) -> (usize, usize) {
        self.link.queues.work.in_flight.in_flight()
    }

    /// Starts a batch of sends, writes and, if reliable, reads and atomics, with one doorbell.
    #[inline(always)]
    pub fn batch(&mut self) -> ConnectionBatch<'_, S> {
        self.link.queues.work.batch()
    }

    /// Starts a batch of receives.
    #[inline(always)]
    pub fn receives(&mut self) -> ConnectionReceives<'_> {
        self.link.queues.work.receives()
    }

    /// Receives one message into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        self.receives().receive(buffer)
    }

    /// SEND of `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        alone!(self.batch(), send(buffer))
    }

    /// SEND of `buffer` with immediate data. It wakes a receiver that waits for solicited completions. Errors:
    /// [`Refused`].
    #[inline]
    pub fn send_imm(&mut self, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        alone!(self.batch(), send_imm(buffer, imm))
    }

    /// RDMA WRITE of `buffer` to `remote`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn write(&mut self, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        alone!(self.batch(), write(buffer, remote))
    }

    /// RDMA WRITE of `buffer` to `remote`, with immediate data that completes a receive there. Errors: [`Refused`].
    #[inline]
    pub fn write_imm(&mut self, buffer: Buffer, remote: RemoteAddress, imm: u32) -> Result<Ticket, Refused> {
        alone!(self.batch(), write_imm(buffer, remote, imm))
    }

    /// SEND of `data`, which is copied at once. Errors: [`Refused`].
    #[inline(always)]
    pub fn send_inline(&mut self, data: &[u8]) -> Result<Ticket, Refused> {
        alone!(self.batch(), send_inline(data))
    }

    /// SEND of `data`, which is copied at once, of which nothing comes back unless it fails: see
    /// [`ConnectionBatch::send_inline_unreported`]. Errors: [`RefusedReason`].
    #[inline(always)]
    pub fn send_inline_unreported(&mut self, data: &[u8]) -> Result<(), RefusedReason> {
        alone!(self.batch(), send_inline_unreported(data))
    }

    /// SEND of `buffer`, which waits in the queue until it is [asked for](Self::reclaim): see
    /// [`ConnectionBatch::send_kept`]. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send_kept(&mut self, buffer: Buffer) -> Result<Kept, Refused> {
        alone!(self.batch(), send_kept(buffer))
    }

    /// The buffer of a send, once polls have met its completion; `None` before, and when it is back already.
    #[inline]
    pub fn reclaim(&mut self, kept: &Kept) -> Option<Buffer> {
        self.link.queues.work.in_flight.reclaim(kept)
    }

    /// RDMA WRITE of `data`, which is copied at once, to `remote`. Errors: [`Refused`].
    #[inline(always)]
    pub fn write_inline(&mut self, data: &[u8], remote: RemoteAddress) -> Result<Ticket, Refused> {
        alone!(self.batch(), write_inline(data, remote))
    }

    /// As [`send_inline`](Self::send_inline), with immediate data. It wakes a receiver that waits for solicited
    /// completions.
    #[inline(always)]
    pub fn send_imm_inline(&mut self, data: &[u8], imm: u32) -> Result<Ticket, Refused> {
        alone!(self.batch(), send_imm_inline(data, imm))
    }

    /// As [`write_inline`](Self::write_inline), with immediate data that completes a receive there, as
    /// [`write_imm`](Self::write_imm) has.
    #[inline(always)]
    pub fn write_imm_inline(&mut self, data: &[u8], remote: RemoteAddress, imm: u32) -> Result<Ticket, Refused> {
        alone!(self.batch(), write_imm_inline(data, remote, imm))
    }

    /// Returns the next completed work request, with its buffer; `None` if there is none.
    ///
    /// # Errors
    /// [`RetireError`] if the card names a work request that is not in flight: the card or the driver is broken.
    // Inlined, as `Hub::poll`, and for the same reason.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        self.link.queues.poll()
    }

    /// Waits for the next completed work request, with its buffer: polls, then sleeps if the connection has
    /// [`ConnectionOptions::events`].
    ///
    /// # Errors
    /// [`Error::Timeout`] ([`Duration::MAX`] means forever), [`Error::CompletionQueue`] if the completion queue
    /// overran, [`Error::Dead`], [`Error::InvalidResponse`] as for [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<Done, Error> {
        self.link.queues.next_within(timeout)
    }

    /// As [`poll`](Self::poll), but waits for a completion; for tasks of any executor. `readable` and the errors are
    /// those of [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready). The connection needs
    /// [`ConnectionOptions::events`].
    pub async fn next(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<Done, Error> {
        self.link.queues.next(readable).await
    }

    /// The eventfd that becomes readable at an event that [`next`](Self::next) or [`wait`](Self::wait) requested;
    /// `None` without [`ConnectionOptions::events`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.queues.cq.fd()
    }

    /// Waits for `ticket`; later polls return what else completes meanwhile.
    pub(super) fn finish(
        &mut self,
        ticket: Result<Ticket, Refused>,
        timeout: Duration,
    ) -> Result<(Completion, Option<Buffer>), WaitError> {
        let ticket = ticket?;
        let queues = &mut self.link.queues;
        let deadline = queues.deadline(timeout);
        loop {
            let done = match queues.met.iter().position(|done| done.ticket == ticket) {
                Some(at) => queues.met.remove(at),
                None => Some(queues.wait_card(&deadline, timeout)?),
            };
            match done {
                Some(Done { ticket: this, buffer, result, .. }) if this == ticket => {
                    return match result {
                        Ok(completion) => Ok((completion, buffer)),
                        Err(error) => Err(WaitError::Failed { error, buffer }),
                    };
                }
                other => queues.met.extend(other),
            }
        }
    }

    /// As [`send`](Self::send), and waits until the remote has received it; on an unreliable connection, until it is
    /// sent. Errors: [`WaitError`].
    pub fn send_blocking(&mut self, buffer: Buffer, timeout: Duration) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.send(buffer);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }

    /// As [`write`](Self::write), and waits until it is in the remote's memory; on an unreliable connection, until it
    /// is sent. Errors: [`WaitError`].
    pub fn write_blocking(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        timeout: Duration,
    ) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.write(buffer, remote);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }

    /// As [`receive`](Self::receive), and waits for the message. Returns its completion and the buffer. Errors:
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
    /// SEND of `buffer`. It invalidates the remote's key `rkey`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send_invalidate(&mut self, buffer: Buffer, rkey: u32) -> Result<Ticket, Refused> {
        alone!(self.batch(), send_invalidate(buffer, rkey))
    }

    /// SEND of `data`, which is copied at once. It invalidates the remote's key `rkey`. Errors: [`Refused`].
    #[inline(always)]
    pub fn send_invalidate_inline(&mut self, data: &[u8], rkey: u32) -> Result<Ticket, Refused> {
        alone!(self.batch(), send_invalidate_inline(data, rkey))
    }

    /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn read(&mut self, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        alone!(self.batch(), read(buffer, remote))
    }

    /// ATOMIC compare and swap of the number at `remote`, as
    /// [`SendBatch::compare_swap`](crate::queue::SendBatch::compare_swap). The old value is written to `buffer`, of
    /// eight bytes, for [`Done::found`]. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn compare_swap(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        compare: u64,
        swap: u64,
    ) -> Result<Ticket, Refused> {
        alone!(self.batch(), compare_swap(buffer, remote, compare, swap))
    }

    /// ATOMIC fetch and add to the number at `remote`, as
    /// [`SendBatch::fetch_add`](crate::queue::SendBatch::fetch_add). The old value is written to `buffer`, of
    /// eight bytes, for [`Done::found`]. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn fetch_add(&mut self, buffer: Buffer, remote: RemoteAddress, add: u64) -> Result<Ticket, Refused> {
        alone!(self.batch(), fetch_add(buffer, remote, add))
    }

    /// As [`read`](Self::read), and waits for the data. Errors: [`WaitError`].
    pub fn read_blocking(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        timeout: Duration,
    ) -> Result<Option<Buffer>, WaitError> {
        let ticket = self.read(buffer, remote);
        self.finish(ticket, timeout).map(|(_, buffer)| buffer)
    }

    /// As [`compare_swap`](Self::compare_swap), and waits for the old value, which is returned with the buffer. Errors:
    /// [`WaitError`].
    pub fn compare_swap_blocking(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        compare: u64,
        swap: u64,
        timeout: Duration,
    ) -> Result<(u64, Buffer), WaitError> {
        let ticket = self.compare_swap(buffer, remote, compare, swap);
        self.finish_atomic(ticket, timeout)
    }

    /// As [`fetch_add`](Self::fetch_add), and waits for the old value, which is returned with the buffer. Errors:
    /// [`WaitError`].
    pub fn fetch_add_blocking(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        add: u64,
        timeout: Duration,
    ) -> Result<(u64, Buffer), WaitError> {
        let ticket = self.fetch_add(buffer, remote, add);
        self.finish_atomic(ticket, timeout)
    }

    /// Waits for the atomic `ticket`, and for the number that it found.
    pub(super) fn finish_atomic<N: MaskedNumber>(
        &mut self,
        ticket: Result<Ticket, Refused>,
        timeout: Duration,
    ) -> Result<(N, Buffer), WaitError> {
        let (completion, buffer) = self.finish(ticket, timeout)?;
        // It was posted with one.
        let buffer = buffer.ok_or_else(|| Error::from(RetireError::nothing_in_flight(completion.work)))?;
        Ok((buffer.found(), buffer))
    }
}

event_source!(Connection<S>, S: Connected; link.queues.cq);
