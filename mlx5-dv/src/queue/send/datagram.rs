//! Posting datagrams to a send queue.

use mlx5_prm::wqe::{SEGMENT, UdAdrsVector, WqeOpcode};
use uar::SendDoorbell;

use super::ring::Room;
use super::service::Service;
use super::wqe::{Head, Request, WrFlags};
use super::{SendBatch, SendQueue};
use crate::memory::DataSegment;
use crate::objects::{AddressHandle, AnyDoorbell, QueuePair};
use crate::queue::error::PostError;

/// Bytes that stand before the data of each datagram received: the GRH, or the last 20 of them an IPv4 header. A
/// receive needs room for them, and [`Completion::byte_len`](crate::queue::Completion::byte_len) counts them.
pub const GRH: usize = 40;

/// Segments of an address.
const ADDRESS: usize = size_of::<UdAdrsVector>() / SEGMENT;

/// Where a datagram goes: `[ Q_Key, queue pair, UDP source port, MAC address, GID ]`.
impl Head for &AddressHandle {
    #[inline(always)]
    fn segments(&self) -> usize {
        ADDRESS
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>) {
        let segments: [[u64; 2]; ADDRESS] = zerocopy::transmute!(*self.vector());
        for (i, segment) in segments.into_iter().enumerate() {
            room.store(1 + i, segment);
        }
    }
}

/// Datagrams, each of which says where it goes.
#[derive(Debug, Clone, Copy)]
pub struct Datagrams;

impl Service for Datagrams {
    type Object = QueuePair;
}

/// The send queue of a queue pair of datagrams in RTS, used by one thread: not `Sync`, `&mut self` throughout. `D` is
/// how it rings. Datagrams go in batches, as work requests of a [`SendQueue`](super::SendQueue) do.
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
pub type DatagramSendQueue<D = AnyDoorbell> = SendQueue<D, Datagrams>;

/// Datagrams that are written, and not yet shown to the card. One takes a WQEBB for each 64 bytes of its WQE: two for
/// one element.
pub type DatagramSendBatch<'a, D> = SendBatch<'a, D, Datagrams>;

impl<D: SendDoorbell> SendBatch<'_, D, Datagrams> {
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
    /// Until the datagram has completed, or its queue pair was reset or destroyed, each element's memory stays
    /// registered under its key. It may be written meanwhile: then what is sent is a mixture of old and new bytes.
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
}
