//! Send queues for datagrams.

use mlx5_prm::wqe::{SEGMENT, UdAdrsVector, WqeOpcode};
use uar::SendDoorbell;

use super::ring::Room;
use super::service::Service;
use super::wqe::{Head, Request, WrFlags};
use super::{SendBatch, SendQueue};
use crate::memory::DataSegment;
use crate::objects::{AddressHandle, AnyDoorbell, QueuePair};
use crate::queue::error::PostError;

/// Bytes before the data of each received datagram: the GRH, or an IPv4 header in its last 20 bytes. A receive needs
/// room for them, and [`Completion::byte_len`](crate::queue::Completion::byte_len) includes them.
pub const GRH: usize = 40;

/// Segments of a destination.
const ADDRESS: usize = size_of::<UdAdrsVector>() / SEGMENT;

/// The destination of a message: `[ Q_Key or access key, queue pair or target, UDP source port, MAC address, GID ]`.
impl Head for &UdAdrsVector {
    #[inline(always)]
    fn segments(&self) -> usize {
        ADDRESS
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let segments: [[u64; 2]; ADDRESS] = zerocopy::transmute!(**self);
        for (i, segment) in segments.into_iter().enumerate() {
            room.store(at + i, segment);
        }
    }
}

/// Datagrams, each with its own destination.
#[derive(Debug, Clone, Copy)]
pub struct Datagrams;

impl Service for Datagrams {
    type Object = QueuePair;
    const SPANS: bool = true;
}

/// The send queue of a queue pair for datagrams in RTS. Used by one thread: not `Sync`, and all methods take `&mut
/// self`. `D` is the doorbell mode. Datagrams are posted in batches, as on a [`SendQueue`](super::SendQueue).
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

/// A batch of datagrams, before its doorbell. A datagram takes one WQEBB per 64 bytes of its WQE: two for one element.
pub type DatagramSendBatch<'a, D> = SendBatch<'a, D, Datagrams>;

impl<D: SendDoorbell> SendBatch<'_, D, Datagrams> {
    /// Sends `data` to `to`; it is copied into the WQE at once. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to.vector(), data)
    }

    /// As [`send_inline`](Self::send_inline), with immediate data.
    #[inline]
    pub fn send_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to.vector(), data)
    }

    /// Sends all `parts` as one datagram, in this order, to `to`; they are copied into the WQE at once. Errors:
    /// [`PostError`].
    #[inline]
    pub fn send_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to.vector(), parts)
    }

    /// As [`send_inline_all`](Self::send_inline_all), with immediate data.
    #[inline]
    pub fn send_imm_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        imm: u32,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to.vector(), parts)
    }

    /// Sends `elements`, in this order, to `to`. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the datagram completes, or its queue pair is reset or destroyed, each element's memory stays registered
    /// under its key. It may be written meanwhile: then the datagram mixes old and new bytes.
    #[inline]
    pub unsafe fn send(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &AddressHandle,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to.vector(), elements)
    }

    /// As [`send`](Self::send), with immediate data.
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
        self.post_message(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to.vector(), elements)
    }
}
