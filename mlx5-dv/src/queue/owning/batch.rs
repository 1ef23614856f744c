//! Several work requests of a connection with one doorbell, with their buffers.

use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{AnyDoorbell, Buffer};
use crate::queue::completion::decode::Side;
use crate::queue::error::{Full, PostError};
use crate::queue::owning::in_flight::{InFlight, Refused, RefusedReason, Ticket};
use crate::queue::receive::{ReceiveBatch, ReceiveQueue};
use crate::queue::send::service::{Connected, Messages};
use crate::queue::send::wqe::WrFlags;
use crate::queue::send::{SendBatch, SendQueue};

/// Work requests of a [`Connection`](crate::queue::Connection) or of one of a [`Hub`](crate::queue::Hub), which go to
/// the card with one doorbell: when it is [rung](Self::ring) or dropped. Each takes its buffer; one that is refused
/// returns it and changes nothing.
#[derive(Debug)]
pub struct ConnectionBatch<'a, S: Connected = Messages> {
    /// `None` before the connection is connected.
    sends: Option<SendBatch<'a, AnyDoorbell, S>>,
    in_flight: &'a mut InFlight,
    /// Fence of the next work request.
    fence: &'a mut WrFlags,
}

impl<S: Connected> Drop for ConnectionBatch<'_, S> {
    /// Rings: the buffers of what was posted are in flight, and come back by completions alone.
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(sends) = self.sends.take() {
            sends.ring();
        }
    }
}

impl<'a, S: Connected> ConnectionBatch<'a, S> {
    #[inline(always)]
    pub(super) fn new(
        queue: Option<&'a mut SendQueue<AnyDoorbell, S>>,
        in_flight: &'a mut InFlight,
        fence: &'a mut WrFlags,
    ) -> Self {
        ConnectionBatch { sends: queue.map(SendQueue::batch), in_flight, fence }
    }

    /// Posts one work request by `post`, which gets its `wr_id` and flags, and keeps `buffer`, which it uses.
    #[inline(always)]
    pub(super) fn post(
        &mut self,
        buffer: Option<Buffer>,
        post: impl FnOnce(&mut SendBatch<'a, AnyDoorbell, S>, u64, WrFlags, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.as_ref().map(Buffer::segment);
        let posted = self.in_flight.next(Side::Send).map_err(RefusedReason::from).and_then(|wr_id| {
            let sends = self.sends.as_mut().ok_or(RefusedReason::NotConnected)?;
            post(sends, wr_id, WrFlags::SIGNALLED | *self.fence, segment.as_slice())?;
            *self.fence = WrFlags::empty();
            Ok(())
        });
        self.in_flight.keep(posted, Side::Send, buffer)
    }

    /// SEND of `buffer`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn send(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        // SAFETY: `post` keeps the buffer, and with it its region, until its completion, or until the queue pair was
        // reset or destroyed.
        self.post(Some(buffer), |batch, id, flags, elements| unsafe { batch.send(id, flags, elements) })
    }

    /// SEND of `buffer` with immediate data. It wakes a receiver that waits for solicited completions. Errors:
    /// [`Refused`].
    #[inline(always)]
    pub fn send_imm(&mut self, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, flags, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_imm(id, flags | WrFlags::SOLICITED, imm, elements) }
        })
    }

    /// RDMA WRITE of `buffer` to `remote`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn write(&mut self, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        // SAFETY: as in `send`.
        self.post(Some(buffer), |batch, id, flags, elements| unsafe { batch.write(id, flags, remote, elements) })
    }

    /// RDMA WRITE of `buffer` to `remote`, with immediate data that completes a receive there. Errors: [`Refused`].
    #[inline(always)]
    pub fn write_imm(&mut self, buffer: Buffer, remote: RemoteAddress, imm: u32) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, flags, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.write_imm(id, flags | WrFlags::SOLICITED, remote, imm, elements) }
        })
    }

    /// SEND of `data`, which is copied at once. Errors: [`Refused`].
    #[inline(always)]
    pub fn send_inline(&mut self, data: &[u8]) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_inline(id, flags, data))
    }

    /// RDMA WRITE of `data`, which is copied at once, to `remote`. Errors: [`Refused`].
    #[inline(always)]
    pub fn write_inline(&mut self, data: &[u8], remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.write_inline(id, flags, remote, data))
    }

    /// Rings the doorbell: hands the batch to the card. Dropping it does the same.
    #[inline(always)]
    pub fn ring(self) {}
}

impl ConnectionBatch<'_> {
    /// SEND of `buffer`. It invalidates the remote's key `rkey`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn send_invalidate(&mut self, buffer: Buffer, rkey: u32) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, flags, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_invalidate(id, flags | WrFlags::SOLICITED, rkey, elements) }
        })
    }

    /// SEND of `data`, which is copied at once. It invalidates the remote's key `rkey`. Errors: [`Refused`].
    #[inline(always)]
    pub fn send_invalidate_inline(&mut self, data: &[u8], rkey: u32) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_invalidate_inline(id, flags | WrFlags::SOLICITED, rkey, data))
    }

    /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn read(&mut self, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        // SAFETY: as in `send`.
        self.post(Some(buffer), |batch, id, flags, elements| unsafe { batch.read(id, flags, remote, elements) })
    }

    /// ATOMIC compare and swap of the number at `remote`, as [`SendBatch::compare_swap`]. The old value is written to
    /// `buffer`, of eight bytes. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn compare_swap(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        compare: u64,
        swap: u64,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.post(Some(buffer), |batch, id, flags, _| {
            // SAFETY: as in `send`.
            unsafe { batch.compare_swap(id, flags, remote, compare, swap, segment) }
        })
    }

    /// ATOMIC fetch and add to the number at `remote`, as [`SendBatch::fetch_add`]. The old value is written to
    /// `buffer`, of eight bytes. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn fetch_add(&mut self, buffer: Buffer, remote: RemoteAddress, add: u64) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.post(Some(buffer), |batch, id, flags, _| {
            // SAFETY: as in `send`.
            unsafe { batch.fetch_add(id, flags, remote, add, segment) }
        })
    }
}

/// Receives of a [`Connection`](crate::queue::Connection), which go to the card with one doorbell record: when it is
/// [rung](Self::ring) or dropped.
#[derive(Debug)]
pub struct ConnectionReceives<'a> {
    /// `None` without a receive queue.
    batch: Option<ReceiveBatch<'a>>,
    in_flight: &'a mut InFlight,
}

impl Drop for ConnectionReceives<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            batch.ring();
        }
    }
}

impl<'a> ConnectionReceives<'a> {
    #[inline(always)]
    pub(super) fn new(queue: Option<&'a mut ReceiveQueue>, in_flight: &'a mut InFlight) -> Self {
        ConnectionReceives { batch: queue.map(ReceiveQueue::batch), in_flight }
    }

    /// Receives one message into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        let posted = self.in_flight.next(Side::Receive).and_then(|wr_id| {
            let batch = self.batch.as_mut().ok_or(PostError::from(Full))?;
            // SAFETY: `InFlight::keep` then stores the buffer, and with it its region, until the completion or until
            // the queue pair was reset.
            unsafe { batch.receive(wr_id, &[buffer.segment()]) }
        });
        self.in_flight.keep(posted.map_err(RefusedReason::from), Side::Receive, Some(buffer))
    }

    /// Hands the batch to the card. Dropping it does the same.
    #[inline(always)]
    pub fn ring(self) {}
}
