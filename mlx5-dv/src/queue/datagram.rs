//! Posting datagrams to a send queue.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use mlx5_prm::wqe::{SEGMENT, UdAdrsVector, WqeOpcode};
use uar::SendDoorbell;

use super::doorbell::{AnyDoorbell, Leased};
use super::error::{PostError, RetireError};
use super::send::{Elements, Inline, One, Payload, Request, SendBatch, SendRing};
use super::work::Work;
use super::{DataSegment, WrFlags};
use crate::objects::{AddressHandle, QueuePair, SendPermit};

/// Bytes that stand before the data of each datagram received: the GRH, or the last 20 of them an IPv4 header. A receive
/// needs room for them, and [`Completion::byte_len`](super::Completion::byte_len) counts them.
pub const GRH: usize = 40;

/// Segments of an address.
const ADDRESS: usize = size_of::<UdAdrsVector>() / SEGMENT;

/// Data, and where it goes.
///
/// ```text
/// segments 1 to 3  Q_Key, queue pair, UDP source port, MAC address, GID
/// segment 4..      data segments, or inline header and data
/// ```
struct Datagram<'a, P> {
    to: &'a AddressHandle,
    data: P,
}

impl<P: Payload> Payload for Datagram<'_, P> {
    #[inline(always)]
    fn segments(&self, ring: &SendRing) -> Result<usize, PostError> {
        Ok(ADDRESS + self.data.segments(ring)?)
    }

    #[inline(always)]
    fn store(&self, ring: &mut SendRing, index: u32, at: usize) {
        let segments: [[u64; 2]; ADDRESS] = zerocopy::transmute!(*self.to.vector());
        for (i, segment) in segments.into_iter().enumerate() {
            ring.store(index, at + i, segment);
        }
        self.data.store(ring, index, at + ADDRESS);
    }
}

/// The send queue of a queue pair of datagrams in RTS, used by one thread: not `Sync`, `&mut self` throughout. `D` is how it
/// rings. Datagrams go in batches, as work requests of a [`SendQueue`](super::SendQueue) do.
///
/// ```no_run
/// # fn f(sq: &mut mlx5_dv::queue::DatagramSendQueue, to: &mlx5_dv::objects::AddressHandle)
/// # -> Result<(), mlx5_dv::queue::PostError> {
/// use mlx5_dv::queue::WrFlags;
/// let mut batch = sq.batch();
/// batch.send_inline(1, WrFlags::SIGNALLED, to, b"is anybody there?")?;
/// batch.ring();
/// # Ok(())
/// # }
/// ```
pub struct DatagramSendQueue<D: SendDoorbell = AnyDoorbell> {
    ring: SendRing,
    doorbell: Leased<D>,
    /// Keeps the ring. Last, so that it goes last.
    qp: Arc<QueuePair>,
    /// Makes the queue not `Sync`.
    _one_thread: PhantomData<Cell<()>>,
}

impl<D: SendDoorbell> fmt::Debug for DatagramSendQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramSendQueue")
            .field("qpn", &self.qp.qpn())
            .field("in_flight", &self.ring.in_flight())
            .finish_non_exhaustive()
    }
}

impl<D: SendDoorbell> DatagramSendQueue<D> {
    pub(crate) fn new(permit: SendPermit, doorbell: Leased<D>, qp: Arc<QueuePair>) -> Self {
        // SAFETY: `QueuePair::datagram_send_queue` made the permit; the queue keeps the queue pair, and drops it last.
        let ring = unsafe { SendRing::of(permit, &qp) };
        DatagramSendQueue { ring, doorbell, qp, _one_thread: PhantomData }
    }

    /// Begins a batch. Dropped without [`ring`](DatagramSendBatch::ring), it never happened.
    #[inline(always)]
    pub fn batch(&mut self) -> DatagramSendBatch<'_, D> {
        DatagramSendBatch(SendBatch::new(&mut self.ring, self.doorbell.get()))
    }

    /// Says that `work`, from a completion, is done, and so are all datagrams posted before it: their room is free again. The
    /// `wr_id` it was posted with.
    ///
    /// # Errors
    /// [`RetireError`] for a completion of another queue or of nothing in flight. Nothing changes.
    #[inline]
    pub fn retire(&mut self, work: &Work) -> Result<u64, RetireError> {
        self.ring.retire(work)
    }

    /// WQEBBs that are free. A datagram takes one for each 64 bytes of its WQE: two for one element.
    pub fn free(&self) -> usize {
        self.capacity() - self.ring.in_flight() as usize
    }

    /// WQEBBs of the ring.
    pub fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// The queue pair.
    pub fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.qp
    }
}

impl<D: SendDoorbell> Drop for DatagramSendQueue<D> {
    fn drop(&mut self) {
        self.qp.send_queue_came_home();
    }
}

/// Datagrams that are written, and not yet shown to the card.
///
/// Errors leave the batch as it was: nothing of the refused datagram is written.
#[must_use = "a batch that is not rung never happened"]
#[derive(Debug)]
pub struct DatagramSendBatch<'a, D: SendDoorbell>(SendBatch<'a, D>);

impl<D: SendDoorbell> DatagramSendBatch<'_, D> {
    #[inline(always)]
    fn post_inline(&mut self, request: Request, to: &AddressHandle, data: &[u8]) -> Result<(), PostError> {
        self.0.post(request, None, Datagram { to, data: Inline(data) })
    }

    #[inline(always)]
    fn post_elements(
        &mut self,
        request: Request,
        to: &AddressHandle,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        match elements {
            // From 1 to the longest, in one comparison.
            [one] if one.len.wrapping_sub(1) < self.0.ring.longest => {
                self.0.post(request, None, Datagram { to, data: One(one) })
            }
            _ => self.0.post(request, None, Datagram { to, data: Elements(elements) }),
        }
    }

    /// `data` to `to`, copied into the WQE: it can be reused at once. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to, data)
    }

    /// As [`send_inline`](Self::send_inline), with an immediate.
    #[inline]
    pub fn send_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to, data)
    }

    /// `elements`, in their order, to `to`. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the datagram has completed, or its queue pair was reset or destroyed, each element's memory stays registered
    /// under its key and is not written by this process.
    #[inline]
    pub unsafe fn send(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_elements(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to, elements)
    }

    /// As [`send`](Self::send), with an immediate.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn send_imm(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_elements(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to, elements)
    }

    /// How many datagrams the batch holds.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Shows the batch to the card: doorbell record, then one doorbell. An empty batch rings for nothing.
    #[inline(always)]
    pub fn ring(self) {
        self.0.ring();
    }
}
