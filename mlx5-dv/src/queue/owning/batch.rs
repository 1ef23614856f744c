//! Several work requests of a connection with one doorbell, with their buffers.

use std::mem;
use std::sync::Arc;

use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{AddressHandle, AnyDoorbell, Buffer, Pd, QueuePair, ReceiveRingOwner};
use crate::queue::completion::decode::Side;
use crate::queue::error::PostError;
use crate::queue::owning::in_flight::{InFlight, KEPT, Kept, Refused, RefusedReason, Ticket, UNREPORTED};
use crate::queue::owning::orphans::Orphans;
use crate::queue::receive::{ReceiveBatch, ReceiveQueue};
use crate::queue::send::SendBatch;
use crate::queue::send::datagram::Datagrams;
use crate::queue::send::service::{Connected, KeyChanging, Messages, Service};
use crate::queue::send::wqe::WrFlags;

/// Work requests of a [`Connection`](crate::queue::Connection), of one of a [`Hub`](crate::queue::Hub), of an
/// [`XrcConnection`](crate::queue::XrcConnection) or of a [`DcInitiator`](crate::queue::DcInitiator), which go to the
/// card with one doorbell: when it is [rung](Self::ring) or dropped. Each takes its buffer; one that is refused returns
/// it and changes nothing.
#[derive(Debug)]
pub struct ConnectionBatch<'a, S: Service = Messages> {
    qp: &'a QueuePair,
    /// `None` before the connection is connected.
    sends: Option<SendBatch<'a, AnyDoorbell, S>>,
    in_flight: &'a mut InFlight,
    /// Whether work requests have no completion of their own.
    is_quiet: bool,
}

/// Datagrams of a [`DatagramQueue`](crate::queue::DatagramQueue), which go to the card with one doorbell, as the work
/// requests of a connection do.
pub type DatagramBatch<'a> = ConnectionBatch<'a, Datagrams>;

impl<S: Service> Drop for ConnectionBatch<'_, S> {
    /// Rings: the buffers of what was posted are in flight, and come back by completions alone.
    #[inline(always)]
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// Posts one work request by a batch of its own, `alone!(batch, send(buffer))`. A batch that may be dropped on the way
/// takes some 16 instructions more. Should the call panic, the batch counts as forgotten.
macro_rules! alone {
    ($batch:expr, $post:ident($($argument:expr),*)) => {{
        let mut batch = std::mem::ManuallyDrop::new($batch);
        match batch.$post($($argument),*) {
            // Then the result is made: it is not kept in memory while the doorbell is rung.
            Ok(posted) => {
                batch.hand_over();
                Ok(posted)
            }
            // Nothing was posted.
            refused => refused,
        }
    }};
}
pub(super) use alone;

impl<'a, S: Service> ConnectionBatch<'a, S> {
    #[inline(always)]
    pub(super) fn new(
        qp: &'a QueuePair,
        sends: impl FnOnce() -> Option<SendBatch<'a, AnyDoorbell, S>>,
        in_flight: &'a mut InFlight,
    ) -> Self {
        in_flight.start_batch();
        // After that, so that a post alone finds out once whether there is a queue.
        ConnectionBatch { qp, sends: sends(), in_flight, is_quiet: false }
    }

    /// What dropping it does.
    #[inline(always)]
    pub(super) fn hand_over(&mut self) {
        // First: the values are at hand then.
        self.in_flight.end_batch();
        if let Some(sends) = self.sends.take() {
            sends.ring();
        }
    }

    /// From here on, work requests have no CQE of their own: the card writes, and the driver reads, fewer. Each
    /// completes with the next one that has a CQE, of this batch or a later one: just before it, in order. One that
    /// takes the last free slot of the queue has a CQE all the same, so that a full queue always completes.
    ///
    /// To wait for the last of them, post one that is not quiet; on a connection, [`nop`](ConnectionBatch::nop) will
    /// do.
    #[inline(always)]
    pub fn quiet(&mut self) {
        self.is_quiet = true;
    }

    /// From here on, each work request has a CQE: as at the start of a batch.
    #[inline(always)]
    pub fn signalled(&mut self) {
        self.is_quiet = false;
    }

    /// As [`post`](Self::post), for a WQE that may be longer than the queue's others: never quiet, so that those in
    /// flight cannot fill the ring without one that completes.
    #[inline(always)]
    pub(super) fn post_signalled(
        &mut self,
        buffer: Option<Buffer>,
        post: impl FnOnce(&mut SendBatch<'a, AnyDoorbell, S>, u64, WrFlags, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<Ticket, Refused> {
        let is_quiet = mem::replace(&mut self.is_quiet, false);
        let posted = self.post(buffer, post);
        self.is_quiet = is_quiet;
        posted
    }

    /// Posts one work request by `post`, which gets its `wr_id` and flags, and keeps `buffer`, which it uses.
    #[inline(always)]
    pub(super) fn post(
        &mut self,
        buffer: Option<Buffer>,
        post: impl FnOnce(&mut SendBatch<'a, AnyDoorbell, S>, u64, WrFlags, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<Ticket, Refused> {
        // First: that of a batch of its own is found out once then.
        if self.sends.is_none() {
            return Err(Refused { buffer, reason: RefusedReason::NotConnected });
        }
        // It leaves nothing behind but its ticket.
        let is_bare = buffer.is_none() && self.may_be_bare();
        let wr_id = if is_bare { self.in_flight.next_bare() } else { self.in_flight.next(Side::Send) };
        let segment = buffer.as_ref().map(Buffer::segment);
        match self.post_elements(wr_id, segment.as_slice(), post) {
            Ok((wr_id, _)) if is_bare => Ok(self.in_flight.keep_bare(wr_id)),
            Ok((_, completes)) => Ok(self.in_flight.keep_one(Side::Send, buffer, completes)),
            Err(reason) => Err(Refused { buffer, reason }),
        }
    }

    /// As [`post`](Self::post), without a buffer. `post` is called in two places, so that its flags are known where the
    /// work request is bare: for one of few instructions, which is inlined in both.
    #[inline(always)]
    fn post_short(
        &mut self,
        post: impl FnOnce(&mut SendBatch<'a, AnyDoorbell, S>, u64, WrFlags, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<Ticket, Refused> {
        if self.sends.is_none() {
            return Err(Refused { buffer: None, reason: RefusedReason::NotConnected });
        }
        if self.may_be_bare() && self.in_flight.fence.is_empty() {
            return self.post_bare(post).map_err(|reason| Refused { buffer: None, reason });
        }
        let wr_id = self.in_flight.next(Side::Send);
        match self.post_elements(wr_id, &[], post) {
            Ok((_, completes)) => Ok(self.in_flight.keep_one(Side::Send, None, completes)),
            Err(reason) => Err(Refused { buffer: None, reason }),
        }
    }

    /// Whether the next work request is bare, if it has no buffer: it completes alone.
    #[inline(always)]
    fn may_be_bare(&self) -> bool {
        !self.is_quiet && !self.in_flight.has_quiet()
    }

    /// Posts one that is bare and has no fence.
    #[inline(always)]
    fn post_bare(
        &mut self,
        post: impl FnOnce(&mut SendBatch<'a, AnyDoorbell, S>, u64, WrFlags, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<Ticket, RefusedReason> {
        let wr_id = self.in_flight.next_bare()?;
        let sends = self.sends.as_mut().ok_or(RefusedReason::NotConnected)?;
        post(sends, wr_id, WrFlags::SIGNALLED, &[])?;
        Ok(self.in_flight.keep_bare(wr_id))
    }

    /// Posts the work request `wr_id` by `post`, with `elements`. Returns that, and whether it has a CQE of its own.
    #[inline(always)]
    fn post_elements(
        &mut self,
        wr_id: Result<u64, PostError>,
        elements: &[DataSegment],
        post: impl FnOnce(&mut SendBatch<'a, AnyDoorbell, S>, u64, WrFlags, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<(u64, bool), RefusedReason> {
        let wr_id = wr_id?;
        let sends = self.sends.as_mut().ok_or(RefusedReason::NotConnected)?;
        let completes = !self.is_quiet || !self.in_flight.may_be_quiet();
        post(sends, wr_id, signalled_if(completes) | self.in_flight.fence, elements)?;
        self.in_flight.fence = WrFlags::empty();
        Ok((wr_id, completes))
    }

    /// As [`post`](Self::post), with all `buffers`, in this order. Empties `buffers`, if it succeeds.
    pub(super) fn post_all(
        &mut self,
        buffers: &mut Vec<Buffer>,
        post: impl FnOnce(&mut SendBatch<'a, AnyDoorbell, S>, u64, WrFlags, &[DataSegment]) -> Result<(), PostError>,
    ) -> Result<Ticket, RefusedReason> {
        let elements = segments(buffers)?;
        let wr_id = self.in_flight.next(Side::Send);
        let (_, completes) = self.post_elements(wr_id, elements.as_slice(), post)?;
        Ok(self.in_flight.keep_all(Side::Send, buffers, completes))
    }

    /// Rings the doorbell: hands the batch to the card. Dropping it does the same, by a call.
    #[inline(always)]
    pub fn ring(self) {
        mem::ManuallyDrop::new(self).hand_over();
    }
}

impl<'a, S: KeyChanging> ConnectionBatch<'a, S> {
    /// A work request that does nothing but complete. Errors: [`Refused`].
    #[inline(always)]
    pub fn nop(&mut self) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.nop(id, flags))
    }

    /// Error if `pd`, of a key, is not the protection domain of the queue pair.
    #[inline(always)]
    pub(super) fn check_pd(&self, pd: &Arc<Pd>) -> Result<(), RefusedReason> {
        if pd.is_same(self.qp.pd()) { Ok(()) } else { Err(RefusedReason::ForeignKey) }
    }

    /// Posts one work request on a key by `post`, never quiet: see [`post_signalled`](Self::post_signalled).
    pub(super) fn post_of_key<T>(
        &mut self,
        post: impl FnOnce(&mut SendBatch<'a, AnyDoorbell, S>, u64, WrFlags) -> Result<T, RefusedReason>,
    ) -> Result<(Ticket, T), RefusedReason> {
        let wr_id = self.in_flight.next(Side::Send)?;
        let sends = self.sends.as_mut().ok_or(RefusedReason::NotConnected)?;
        let posted = post(sends, wr_id, WrFlags::SIGNALLED | self.in_flight.fence)?;
        self.in_flight.fence = sends.fence_after_update();
        Ok((self.in_flight.keep_of_key(), posted))
    }

    /// As [`post_of_key`](Self::post_of_key), of up to `wqebbs`, of which nothing comes back.
    #[inline(always)]
    pub(super) fn post_unreported_of_key<T>(
        &mut self,
        wqebbs: u32,
        post: impl FnOnce(&mut SendBatch<'a, AnyDoorbell, S>, u64, WrFlags) -> Result<T, RefusedReason>,
    ) -> Result<T, RefusedReason> {
        let completes = self.in_flight.unreported_completes(wqebbs)?;
        let sends = self.sends.as_mut().ok_or(RefusedReason::NotConnected)?;
        let posted = post(sends, UNREPORTED, signalled_if(completes) | self.in_flight.fence)?;
        self.in_flight.fence = sends.fence_after_update();
        self.in_flight.keep_unreported(wqebbs, completes);
        Ok(posted)
    }

    /// The number of the queue pair.
    pub(super) fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// Keys that lost their holder while a work request of the queue pair on them may be in flight.
    pub(super) fn orphans(&self) -> &Arc<Orphans> {
        self.in_flight.orphans()
    }
}

/// The flag of a work request that has a CQE.
#[inline(always)]
fn signalled_if(completes: bool) -> WrFlags {
    if completes { WrFlags::SIGNALLED } else { WrFlags::empty() }
}

impl<S: Connected> ConnectionBatch<'_, S> {
    /// SEND of all `buffers` as one message, in this order: as many as [`ConnectionOptions::send_sges`]. Each comes
    /// back by a [`Done`](crate::queue::Done) of its own, with the same ticket.
    ///
    /// # Errors
    /// [`RefusedReason`]; `buffers` is unchanged. Otherwise it is empty afterwards, and keeps its memory for the next.
    ///
    /// [`ConnectionOptions::send_sges`]: crate::queue::ConnectionOptions::send_sges
    pub fn send_all(&mut self, buffers: &mut Vec<Buffer>) -> Result<Ticket, RefusedReason> {
        // SAFETY: `post_all` keeps the buffers as `post` keeps one: see `send`.
        self.post_all(buffers, |batch, id, flags, elements| unsafe { batch.send(id, flags, elements) })
    }

    /// As [`send_all`](Self::send_all), with immediate data and the solicited bit.
    pub fn send_imm_all(&mut self, buffers: &mut Vec<Buffer>, imm: u32) -> Result<Ticket, RefusedReason> {
        self.post_all(buffers, |batch, id, flags, elements| {
            // SAFETY: as in `send_all`.
            unsafe { batch.send_imm(id, flags | WrFlags::SOLICITED, imm, elements) }
        })
    }

    /// RDMA WRITE of all `buffers`, one after the other, to `remote`; otherwise as [`send_all`](Self::send_all).
    pub fn write_all(&mut self, buffers: &mut Vec<Buffer>, remote: RemoteAddress) -> Result<Ticket, RefusedReason> {
        // SAFETY: as in `send_all`.
        self.post_all(buffers, |batch, id, flags, elements| unsafe { batch.write(id, flags, remote, elements) })
    }

    /// As [`write_all`](Self::write_all), with immediate data that completes a receive there.
    pub fn write_imm_all(
        &mut self,
        buffers: &mut Vec<Buffer>,
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<Ticket, RefusedReason> {
        self.post_all(buffers, |batch, id, flags, elements| {
            // SAFETY: as in `send_all`.
            unsafe { batch.write_imm(id, flags | WrFlags::SOLICITED, remote, imm, elements) }
        })
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
        self.post_short(|batch, id, flags, _| batch.send_inline(id, flags, data))
    }

    /// SEND of `data`, which is copied at once, of which nothing comes back: it has no [`Done`](crate::queue::Done),
    /// and no CQE but one in many, which polls take for themselves. For a request whose answer says that it has
    /// arrived.
    ///
    /// One that fails, or is flushed, has a `Done` with its error, and with a ticket that no call returned; not each
    /// that is flushed has one.
    ///
    /// # Errors
    /// [`RefusedReason`].
    #[inline(always)]
    pub fn send_inline_unreported(&mut self, data: &[u8]) -> Result<(), RefusedReason> {
        let sends = self.sends.as_mut().ok_or(RefusedReason::NotConnected)?;
        let completes = self.in_flight.unreported_completes(1)?;
        sends.send_inline(UNREPORTED, signalled_if(completes) | self.in_flight.fence, data)?;
        self.in_flight.fence = WrFlags::empty();
        self.in_flight.keep_unreported(1, completes);
        Ok(())
    }

    /// SEND of `buffer`, which waits in the queue until the program asks for it
    /// ([`Connection::reclaim`](crate::queue::Connection::reclaim)): polls take its completion for themselves. It costs
    /// less than a [`Done`](crate::queue::Done). For a request whose answer is what the program waits for.
    ///
    /// No wait ends with it. It keeps its slot of the queue until the buffer is back. One that fails or is flushed has
    /// a `Done` with its error, its buffer and the [ticket](Kept::ticket).
    ///
    /// # Errors
    /// [`Refused`], with the buffer.
    #[inline(always)]
    pub fn send_kept(&mut self, buffer: Buffer) -> Result<Kept, Refused> {
        let elements = [buffer.segment()];
        let mut post = || {
            let slot = self.in_flight.next(Side::Send)?;
            let sends = self.sends.as_mut().ok_or(RefusedReason::NotConnected)?;
            // SAFETY: the buffer is in the in-flight table until the send has completed, or its queue pair was reset.
            unsafe { sends.send(KEPT | slot, WrFlags::SIGNALLED | self.in_flight.fence, &elements) }?;
            Ok(slot)
        };
        match post() {
            Ok(slot) => {
                self.in_flight.fence = WrFlags::empty();
                Ok(self.in_flight.keep_kept(slot, buffer))
            }
            Err(reason) => Err(Refused { buffer: Some(buffer), reason }),
        }
    }

    /// SEND of all `parts` as one message, in this order, which are copied at once. Errors: [`Refused`].
    #[inline(always)]
    pub fn send_inline_all(&mut self, parts: &[&[u8]]) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_inline_all(id, flags, parts))
    }

    /// RDMA WRITE of all `parts`, one after the other, to `remote`; otherwise as
    /// [`send_inline_all`](Self::send_inline_all).
    #[inline(always)]
    pub fn write_inline_all(&mut self, parts: &[&[u8]], remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.write_inline_all(id, flags, remote, parts))
    }

    /// As [`send_inline`](Self::send_inline), with immediate data and the solicited bit.
    #[inline(always)]
    pub fn send_imm_inline(&mut self, data: &[u8], imm: u32) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_imm_inline(id, flags | WrFlags::SOLICITED, imm, data))
    }

    /// As [`write_inline`](Self::write_inline), with immediate data that completes a receive there, and the solicited
    /// bit.
    #[inline(always)]
    pub fn write_imm_inline(&mut self, data: &[u8], remote: RemoteAddress, imm: u32) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.write_imm_inline(id, flags | WrFlags::SOLICITED, remote, imm, data))
    }

    /// As [`send_inline_all`](Self::send_inline_all), with immediate data and the solicited bit.
    #[inline(always)]
    pub fn send_imm_inline_all(&mut self, parts: &[&[u8]], imm: u32) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_imm_inline_all(id, flags | WrFlags::SOLICITED, imm, parts))
    }

    /// As [`write_inline_all`](Self::write_inline_all), with immediate data that completes a receive there, and the
    /// solicited bit.
    #[inline(always)]
    pub fn write_imm_inline_all(
        &mut self,
        parts: &[&[u8]],
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| {
            batch.write_imm_inline_all(id, flags | WrFlags::SOLICITED, remote, imm, parts)
        })
    }

    /// RDMA WRITE of `data`, which is copied at once, to `remote`. Errors: [`Refused`].
    #[inline(always)]
    pub fn write_inline(&mut self, data: &[u8], remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.post_short(|batch, id, flags, _| batch.write_inline(id, flags, remote, data))
    }
}

impl ConnectionBatch<'_, Datagrams> {
    /// SEND of `buffer` to `to`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn send(&mut self, to: &AddressHandle, buffer: Buffer) -> Result<Ticket, Refused> {
        // SAFETY: `post` keeps the buffer, and with it its region, until its completion, or until the queue pair was
        // reset or destroyed.
        self.post(Some(buffer), |batch, id, flags, elements| unsafe { batch.send(id, flags, to, elements) })
    }

    /// As [`send`](Self::send), with immediate data and the solicited bit.
    #[inline(always)]
    pub fn send_imm(&mut self, to: &AddressHandle, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, flags, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_imm(id, flags | WrFlags::SOLICITED, to, imm, elements) }
        })
    }

    /// SEND of `data`, which is copied at once, to `to`. Errors: [`Refused`].
    #[inline(always)]
    pub fn send_inline(&mut self, to: &AddressHandle, data: &[u8]) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_inline(id, flags, to, data))
    }

    /// As [`send_inline`](Self::send_inline), with immediate data and the solicited bit.
    #[inline(always)]
    pub fn send_imm_inline(&mut self, to: &AddressHandle, data: &[u8], imm: u32) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_imm_inline(id, flags | WrFlags::SOLICITED, to, imm, data))
    }

    /// SEND of all `parts` as one datagram, in this order, which are copied at once, to `to`. Errors: [`Refused`].
    #[inline(always)]
    pub fn send_inline_all(&mut self, to: &AddressHandle, parts: &[&[u8]]) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_inline_all(id, flags, to, parts))
    }

    /// As [`send_inline_all`](Self::send_inline_all), with immediate data and the solicited bit.
    #[inline(always)]
    pub fn send_imm_inline_all(&mut self, to: &AddressHandle, parts: &[&[u8]], imm: u32) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_imm_inline_all(id, flags | WrFlags::SOLICITED, to, imm, parts))
    }
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

    /// RDMA READ from `remote` into all `buffers`, one after the other; otherwise as [`send_all`](Self::send_all).
    pub fn read_all(&mut self, buffers: &mut Vec<Buffer>, remote: RemoteAddress) -> Result<Ticket, RefusedReason> {
        // SAFETY: as in `send_all`.
        self.post_all(buffers, |batch, id, flags, elements| unsafe { batch.read(id, flags, remote, elements) })
    }

    /// ATOMIC compare and swap of the number at `remote`, as [`SendBatch::compare_swap`]. The old value is written to
    /// `buffer`, of eight bytes, for [`Done::found`](crate::queue::Done::found). Errors: [`Refused`], with the buffer.
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
    /// `buffer`, of eight bytes, for [`Done::found`](crate::queue::Done::found). Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn fetch_add(&mut self, buffer: Buffer, remote: RemoteAddress, add: u64) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.post(Some(buffer), |batch, id, flags, _| {
            // SAFETY: as in `send`.
            unsafe { batch.fetch_add(id, flags, remote, add, segment) }
        })
    }
}

/// Receives of a [`Connection`](crate::queue::Connection), or of frames, which go to the card with one doorbell record:
/// when it is [rung](Self::ring) or dropped.
#[derive(Debug)]
pub struct ConnectionReceives<'a> {
    /// `None` without a receive queue.
    batch: Option<ReceiveBatch<'a>>,
    /// Why, then.
    absent: RefusedReason,
    in_flight: &'a mut InFlight,
}

impl Drop for ConnectionReceives<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            batch.ring();
        }
        self.in_flight.end_batch();
    }
}

impl<'a> ConnectionReceives<'a> {
    #[inline(always)]
    pub(super) fn new<O: ReceiveRingOwner>(
        queue: Option<&'a mut ReceiveQueue<O>>,
        in_flight: &'a mut InFlight,
        absent: RefusedReason,
    ) -> Self {
        in_flight.start_batch();
        ConnectionReceives { batch: queue.map(ReceiveQueue::batch), absent, in_flight }
    }

    /// Posts a receive into `elements`; the caller keeps their buffers.
    #[inline(always)]
    fn post(&mut self, elements: &[DataSegment]) -> Result<(), RefusedReason> {
        let wr_id = self.in_flight.next(Side::Receive)?;
        let batch = self.batch.as_mut().ok_or(self.absent)?;
        // SAFETY: `InFlight` then stores the buffers, and with them their regions, until the completion or until the
        // queue was reset.
        unsafe { batch.receive(wr_id, elements)? };
        Ok(())
    }

    /// Receives one message into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline(always)]
    pub fn receive(&mut self, buffer: Buffer) -> Result<Ticket, Refused> {
        let posted = self.post(&[buffer.segment()]);
        self.in_flight.keep(posted, Side::Receive, Some(buffer))
    }

    /// Receives one message into each of `buffers`, with all of its capacity.
    ///
    /// # Errors
    /// [`RefusedReason`]: `buffers` has those that were not posted. Otherwise it is empty afterwards.
    #[inline(always)]
    pub fn receive_each(&mut self, buffers: &mut Vec<Buffer>) -> Result<(), RefusedReason> {
        let (batch, absent) = (&mut self.batch, self.absent);
        self.in_flight.receive_each(buffers, |wr_id, elements| {
            let batch = batch.as_mut().ok_or(absent)?;
            // SAFETY: as in `post`.
            unsafe { batch.receive(wr_id, elements) }.map_err(RefusedReason::from)
        })
    }

    /// Receives one message into all `buffers`, one after the other, as many as [`ConnectionOptions::recv_sges`]. Each
    /// comes back by a [`Done`](crate::queue::Done) of its own, with the same ticket, the unused ones, too. Of frames:
    /// the buffers may differ in length and region, so that headers and payloads are apart.
    ///
    /// # Errors
    /// [`RefusedReason`]; `buffers` is unchanged. Otherwise it is empty afterwards, and keeps its memory for the next.
    ///
    /// [`ConnectionOptions::recv_sges`]: crate::queue::ConnectionOptions::recv_sges
    pub fn receive_all(&mut self, buffers: &mut Vec<Buffer>) -> Result<Ticket, RefusedReason> {
        self.post(segments(buffers)?.as_slice())?;
        Ok(self.in_flight.keep_all(Side::Receive, buffers, true))
    }

    /// Hands the batch to the card. Dropping it does the same.
    #[inline(always)]
    pub fn ring(self) {}
}

/// Elements of one work request.
pub(super) struct Segments {
    all: [DataSegment; MOST_SEGMENTS],
    len: usize,
}

/// As many as a WQE has room for beside its head: the longest WQE has 64 segments (PRM `max_wqe_sz_sq`).
const MOST_SEGMENTS: usize = 62;

impl Segments {
    /// `len` empty ones.
    #[inline(always)]
    pub(super) fn empty(len: usize) -> Result<Self, PostError> {
        match len <= MOST_SEGMENTS {
            true => Ok(Segments { all: [DataSegment { addr: 0, len: 0, lkey: 0 }; MOST_SEGMENTS], len }),
            false => Err(PostError::TooManySges { given: len, most: MOST_SEGMENTS }),
        }
    }

    pub(super) fn as_slice(&self) -> &[DataSegment] {
        &self.all[..self.len]
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [DataSegment] {
        &mut self.all[..self.len]
    }
}

/// The `buffers` as elements.
pub(super) fn segments(buffers: &[Buffer]) -> Result<Segments, PostError> {
    let mut segments = Segments::empty(buffers.len())?;
    segments.as_mut_slice().iter_mut().zip(buffers).for_each(|(element, buffer)| *element = buffer.segment());
    Ok(segments)
}
