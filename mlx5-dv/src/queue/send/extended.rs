//! Send queues of extended reliable connections.

use mlx5_prm::wqe::{WqeOpcode, XrcSeg};
use uar::SendDoorbell;

use super::ring::Room;
use super::service::sealed::Sealed;
use super::service::{KeyChanging, KeyUpdates, Reliable, Service};
use super::wqe::{Head, Operands, Request, WrFlags};
use super::{SendBatch, SendQueue};
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{AnyDoorbell, QueuePair};
use crate::queue::error::PostError;

/// A shared receive queue of the remote's XRC domain, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteSrq(u32);

impl RemoteSrq {
    /// The shared receive queue with the number `srqn` at the remote; `None` for more than 24 bits.
    pub fn new(srqn: u32) -> Option<Self> {
        (srqn >> 24 == 0).then_some(RemoteSrq(srqn))
    }
}

/// `[ xrc_srqn ]`.
impl Head for RemoteSrq {
    #[inline(always)]
    fn segments(&self) -> usize {
        1
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        let mut segment = XrcSeg::ZERO;
        segment.w().xrc_srqn(self.0);
        room.store(at, zerocopy::transmute!(segment));
    }
}

/// An extended reliable connection: as [`Messages`](super::service::Messages), but each work request names a shared
/// receive queue of the remote.
#[derive(Debug, Clone, Copy)]
pub struct ExtendedMessages(pub(in crate::queue) Reliable);

impl Service for ExtendedMessages {
    type Object = QueuePair;
}

impl Sealed for ExtendedMessages {}

impl KeyChanging for ExtendedMessages {
    fn key_updates(&self) -> KeyUpdates {
        self.0.updates
    }
}

/// The send queue of an XRC initiator in RTS. Used by one thread: not `Sync`, and all methods take `&mut self`. `D` is
/// the doorbell mode. Work requests are posted in batches, as on a [`SendQueue`](super::SendQueue).
pub type XrcSendQueue<D = AnyDoorbell> = SendQueue<D, ExtendedMessages>;

impl<D: SendDoorbell> SendBatch<'_, D, ExtendedMessages> {
    /// SEND of `data`, which is copied into the WQE at once, to `srq`. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(&mut self, wr_id: u64, flags: WrFlags, srq: RemoteSrq, data: &[u8]) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, srq, data)
    }

    /// As [`send_inline`](Self::send_inline), with immediate data.
    #[inline]
    pub fn send_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, srq, data)
    }

    /// As [`send_inline`](Self::send_inline); it invalidates the remote's key `rkey`, which belongs to the protection
    /// domain of `srq`. Otherwise as on a [reliable connection](SendBatch::send_invalidate_inline).
    #[inline]
    pub fn send_invalidate_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        rkey: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendInval, wr_id, flags, imm: rkey }, srq, data)
    }

    /// RDMA WRITE of `data`, which is copied into the WQE at once, to `remote`, whose key belongs to the protection
    /// domain of `srq`. Errors: [`PostError`].
    #[inline]
    pub fn write_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        remote: RemoteAddress,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 }, (srq, remote), data)
    }

    /// As [`write_inline`](Self::write_inline), with immediate data that completes a receive of `srq`.
    #[inline]
    pub fn write_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        remote: RemoteAddress,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm }, (srq, remote), data)
    }

    /// SEND of `elements`, in this order, to `srq`. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request completes, or its queue pair is reset or destroyed, each element's memory stays
    /// registered under its key. It may be written meanwhile: then the message mixes old and new bytes.
    #[inline]
    pub unsafe fn send(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_elements(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, srq, elements)
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
        srq: RemoteSrq,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_elements(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, srq, elements)
    }

    /// As [`send`](Self::send); it invalidates the remote's key `rkey`, which belongs to the protection domain of
    /// `srq`.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn send_invalidate(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        rkey: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_elements(Request { opcode: WqeOpcode::SendInval, wr_id, flags, imm: rkey }, srq, elements)
    }

    /// RDMA WRITE of `elements`, in this order, to `remote`, whose key belongs to the protection domain of `srq`.
    /// Errors: [`PostError`].
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn write(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 };
        self.post_elements(request, (srq, remote), elements)
    }

    /// As [`write`](Self::write), with immediate data that completes a receive of `srq`.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn write_imm(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        remote: RemoteAddress,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm };
        self.post_elements(request, (srq, remote), elements)
    }

    /// RDMA READ from `remote`, whose key belongs to the protection domain of `srq`, into `elements`, in this order.
    /// Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request completes, or its queue pair is reset or destroyed, each element's memory stays
    /// registered under its key, and nothing in this process holds a reference to it or relies on its content.
    #[inline]
    pub unsafe fn read(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::RdmaRead, wr_id, flags, imm: 0 };
        self.post_elements(request, (srq, remote), elements)
    }

    /// ATOMIC fetch and add to a number whose key belongs to the protection domain of `srq`; otherwise as on a
    /// [reliable connection](SendBatch::fetch_add).
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn fetch_add(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        remote: RemoteAddress,
        add: u64,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicFa, wr_id, flags, imm: 0 };
        self.post_atomic(request, (srq, remote), Operands { swap_add: add, compare: 0 }, element)
    }

    /// ATOMIC compare and swap, as [`fetch_add`](Self::fetch_add). The operands are a pair `[compare, swap]`: the
    /// number becomes `swap` if it is `compare`.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn compare_swap(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        srq: RemoteSrq,
        remote: RemoteAddress,
        [compare, swap]: [u64; 2],
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicCs, wr_id, flags, imm: 0 };
        self.post_atomic(request, (srq, remote), Operands { swap_add: swap, compare }, element)
    }

    #[inline(always)]
    fn post_atomic(
        &mut self,
        request: Request,
        target: (RemoteSrq, RemoteAddress),
        operands: Operands,
        element: DataSegment,
    ) -> Result<(), PostError> {
        Operands::check_element(self.service.0.atomics, &element)?;
        self.post_one(request, (target, operands), &element)
    }
}
