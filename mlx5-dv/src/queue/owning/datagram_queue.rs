//! A queue pair for datagrams that owns the buffers of posted work.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::batch::{ConnectionReceives, DatagramBatch, alone};
use super::datagrams::{DatagramOptions, WHAT, queue_pair};
use super::in_flight::{Done, InFlight, Refused, RefusedReason, Ticket};
use super::polled::Polled;
use crate::error::Error;
use crate::objects::{AddressHandle, Buffer, DoorbellKind, Pd, QueuePair};
use crate::queue::error::{Full, PostError, RetireError};
use crate::queue::events::{EventSource, event_source};
use crate::queue::receive::ReceiveQueue;
use crate::queue::send::datagram::Datagrams;

/// A queue pair for datagrams, its completion queue, and the buffers in flight: what a
/// [`Connection`](crate::queue::Connection) is for messages.
///
/// Each datagram takes its [`Buffer`], and [`poll`](Self::poll) returns it. In buffers of an
/// [`ExclusiveRegion`](crate::objects::ExclusiveRegion), a datagram is read where the card put it, and filled where the
/// card takes it. A received one follows [`GRH`](crate::queue::GRH) bytes of header:
///
/// ```no_run
/// # use std::time::Duration;
/// # use mlx5_dv::objects::{ExclusiveRegion, Pd};
/// # use mlx5_dv::queue::{DatagramOptions, DatagramQueue, GRH};
/// # fn f(pd: &std::sync::Arc<Pd>) -> Result<(), Box<dyn std::error::Error>> {
/// let mut queue = DatagramQueue::new(pd, DatagramOptions::new(0x1111_1111))?;
/// let region = ExclusiveRegion::allocate(pd, 64 * 1024)?;
/// for buffer in region.buffers(GRH + 1024)? {
///     queue.receive(buffer)?;
/// }
/// let done = queue.wait(Duration::from_secs(1))?;
/// if let Some(datagram) = done.received().and_then(|bytes| bytes.get(GRH..)) {
///     println!("{}", String::from_utf8_lossy(datagram));
/// }
/// # Ok(())
/// # }
/// ```
///
/// While a queue has a buffer, nobody reads it, and what was read from it is gone:
///
/// ```compile_fail,E0505
/// # use mlx5_dv::objects::Buffer;
/// fn reuse(queue: &mut mlx5_dv::queue::DatagramQueue, buffer: Buffer) {
///     let datagram = buffer.as_slice();
///     queue.receive(buffer).unwrap(); // the card may write it from now on
///     println!("{datagram:?}");
/// }
/// ```
///
/// Used by one thread at a time. Posting and polling make no system call, take no lock and allocate nothing. If it is
/// dropped with work in flight, the queue pair is reset first; if that fails, the buffers are leaked.
#[derive(Debug)]
pub struct DatagramQueue {
    queues: Polled<Datagrams, ReceiveQueue>,
    options: DatagramOptions,
}

impl DatagramQueue {
    /// Creates a queue pair in RTS with its own UAR page and completion queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options exceed a capability, or the kernel uses queue pair 1; [`Error::Memory`],
    /// [`Error::Command`].
    pub fn new(pd: &Arc<Pd>, options: DatagramOptions) -> Result<Self, Error> {
        let (qp, cq) = queue_pair(pd, &options)?;
        let in_flight = InFlight::new(options.send_depth, options.recv_depth);
        let mut queues = Polled::new(qp, cq, in_flight, WHAT);
        queues.start(&options)?;
        Ok(DatagramQueue { queues, options })
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.queues.work.qp
    }

    /// How it rings the doorbell; `None` without a send queue.
    pub fn doorbell_kind(&self) -> Option<DoorbellKind> {
        self.queues.work.doorbell_kind()
    }

    /// Number of datagrams in flight, and of receives posted.
    pub fn in_flight(&self) -> (usize, usize) {
        self.queues.work.in_flight.in_flight()
    }

    /// Starts a batch of datagrams, which go to the card with one doorbell; `None` without a send queue, or if the last
    /// reset failed.
    #[inline(always)]
    pub fn batch(&mut self) -> Option<DatagramBatch<'_>> {
        let work = &mut self.queues.work;
        work.queues.send.is_some().then(|| work.batch())
    }

    /// Starts a batch of receives, which go to the card together.
    #[inline(always)]
    pub fn receives(&mut self) -> ConnectionReceives<'_> {
        self.queues.work.receives()
    }

    /// Receives one datagram into `buffer`, behind [`GRH`](crate::queue::GRH) bytes. Errors: [`Refused`], with the
    /// buffer.
    #[inline]
    pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        self.receives().receive(buffer)
    }

    /// SEND of `buffer` to `to`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send(&mut self, to: &AddressHandle, buffer: Buffer) -> Result<Ticket, Refused> {
        let depth = self.options.send_depth;
        match self.batch() {
            Some(batch) => alone!(batch, send(to, buffer)),
            None => Err(refused(depth, Some(buffer))),
        }
    }

    /// SEND of `buffer` to `to` with immediate data. It wakes a receiver that waits for solicited completions. Errors:
    /// [`Refused`].
    #[inline]
    pub fn send_imm(&mut self, to: &AddressHandle, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        let depth = self.options.send_depth;
        match self.batch() {
            Some(batch) => alone!(batch, send_imm(to, buffer, imm)),
            None => Err(refused(depth, Some(buffer))),
        }
    }

    /// SEND of `data`, which is copied at once, to `to`. Errors: [`Refused`].
    #[inline]
    pub fn send_inline(&mut self, to: &AddressHandle, data: &[u8]) -> Result<Ticket, Refused> {
        let depth = self.options.send_depth;
        match self.batch() {
            Some(batch) => alone!(batch, send_inline(to, data)),
            None => Err(refused(depth, None)),
        }
    }

    /// Returns the next completed work request, with its buffer; `None` if there is none.
    ///
    /// # Errors
    /// [`RetireError`] if the card names a work request that is not in flight: the card or the driver is broken.
    // Inlined, as `Hub::poll`, and for the same reason.
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
        self.queues.poll()
    }

    /// Waits for the next completed work request, with its buffer: polls, then sleeps with
    /// [`DatagramOptions::events`].
    ///
    /// # Errors
    /// [`Error::Timeout`] ([`Duration::MAX`] means no limit), [`Error::CompletionQueue`] if the completion queue
    /// overran, [`Error::Dead`], [`Error::InvalidResponse`] as for [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<Done, Error> {
        self.queues.next_within(timeout)
    }

    /// As [`poll`](Self::poll), but waits for a completion; for tasks of any executor. `readable` and the errors are
    /// those of [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready). The queue needs
    /// [`DatagramOptions::events`].
    pub async fn next(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<Done, Error> {
        self.queues.next(readable).await
    }

    /// The eventfd that becomes readable at an event that [`next`](Self::next) or [`wait`](Self::wait) requested;
    /// `None` without [`DatagramOptions::events`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.queues.cq.fd()
    }

    /// Takes the queue pair through RST to RTS, after an error, or to get everything back. Work in flight and
    /// completions not polled are discarded; their buffers are returned.
    ///
    /// # Errors
    /// [`Error::Command`], or [`Error::Timeout`] while the card does not answer: nothing can be posted then, and the
    /// buffers stay in flight. The reset can be tried again.
    pub fn reset(&mut self) -> Result<Vec<Buffer>, Error> {
        self.queues.restart(&self.options)
    }
}

/// The error of a send without a send queue, of `depth` datagrams.
#[cold]
fn refused(depth: u32, buffer: Option<Buffer>) -> Refused {
    let reason = if depth == 0 { PostError::from(Full).into() } else { RefusedReason::NotReset };
    Refused { buffer, reason }
}

event_source!(DatagramQueue; queues.cq);
