//! Send queues of dynamically connected initiators.

use mlx5_prm::wqe::WqeOpcode;
use uar::SendDoorbell;

use super::masked::{MaskedAdd, MaskedNumber, MaskedSwap};
use super::ring::Room;
use super::service::sealed::Sealed;
use super::service::{KeyChanging, KeyUpdates, Reliable, Service};
use super::wqe::{Head, Operands, Request, WrFlags};
use super::{SendBatch, SendQueue};
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::{AnyDoorbell, DcTarget, QueuePair};
use crate::queue::error::PostError;

/// Reliable messages, each with a target of its own. Messages to one target, one after the other, flow as on a
/// connection; before the first to another, the card waits until all earlier ones are acknowledged. With
/// [streams](crate::objects::DciStreams) it waits for those of the same stream alone.
#[derive(Debug, Clone, Copy)]
pub struct DynamicMessages(pub(in crate::queue) Reliable);

impl Service for DynamicMessages {
    type Object = QueuePair;
}

impl Sealed for DynamicMessages {}

impl KeyChanging for DynamicMessages {
    fn key_updates(&self) -> KeyUpdates {
        self.0.updates
    }
}

/// The target's address, and its stream in the control segment.
impl Head for &DcTarget {
    #[inline(always)]
    fn segments(&self) -> usize {
        self.vector().segments()
    }

    #[inline(always)]
    fn control(&self) -> u64 {
        self.stream_in_control()
    }

    #[inline(always)]
    fn store(&self, room: &mut Room<'_>, at: usize) {
        self.vector().store(room, at);
    }
}

/// The send queue of a dynamically connected initiator in RTS. Used by one thread: not `Sync`, and all methods take
/// `&mut self`. `D` is the doorbell mode. Work requests are posted in batches, as on a
/// [`SendQueue`](super::SendQueue).
pub type DcSendQueue<D = AnyDoorbell> = SendQueue<D, DynamicMessages>;

impl<D: SendDoorbell> SendBatch<'_, D, DynamicMessages> {
    /// SEND of `data`, which is copied into the WQE at once, to the target `to`. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(&mut self, wr_id: u64, flags: WrFlags, to: &DcTarget, data: &[u8]) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to, data)
    }

    /// As [`send_inline`](Self::send_inline), with immediate data.
    #[inline]
    pub fn send_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to, data)
    }

    /// As [`send_inline`](Self::send_inline); it invalidates the key `rkey` of the target's protection domain.
    /// Otherwise as on a [reliable connection](SendBatch::send_invalidate_inline).
    #[inline]
    pub fn send_invalidate_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        rkey: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendInval, wr_id, flags, imm: rkey }, to, data)
    }

    /// RDMA WRITE of `data`, which is copied into the WQE at once, to `remote` of the target `to`. Errors:
    /// [`PostError`].
    #[inline]
    pub fn write_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        remote: RemoteAddress,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 }, (to, remote), data)
    }

    /// As [`write_inline`](Self::write_inline), with immediate data that completes a receive of the target.
    #[inline]
    pub fn write_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        remote: RemoteAddress,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm }, (to, remote), data)
    }

    /// SEND of `elements`, in this order, to the target `to`. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request completes, or its queue pair is reset or destroyed, each element's memory stays
    /// registered under its key. It may be written meanwhile: then the message mixes old and new bytes.
    #[inline]
    pub unsafe fn send(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to, elements)
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
        to: &DcTarget,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to, elements)
    }

    /// As [`send`](Self::send); it invalidates the key `rkey` of the target's protection domain.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn send_invalidate(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        rkey: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::SendInval, wr_id, flags, imm: rkey }, to, elements)
    }

    /// RDMA WRITE of `elements`, in this order, to `remote`, whose key belongs to the protection domain of the target
    /// `to`. Errors: [`PostError`].
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn write(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 };
        self.post_elements(request, (to, remote), elements)
    }

    /// As [`write`](Self::write), with immediate data that completes a receive of the target.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn write_imm(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        remote: RemoteAddress,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm };
        self.post_elements(request, (to, remote), elements)
    }

    /// RDMA READ from `remote`, whose key belongs to the protection domain of the target `to`, into `elements`, in this
    /// order. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request completes, or its queue pair is reset or destroyed, each element's memory stays
    /// registered under its key, and nothing in this process holds a reference to it or relies on its content.
    #[inline]
    pub unsafe fn read(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::RdmaRead, wr_id, flags, imm: 0 };
        self.post_elements(request, (to, remote), elements)
    }

    /// ATOMIC fetch and add to a number whose key belongs to the protection domain of the target `to`; otherwise as on
    /// a [reliable connection](SendBatch::fetch_add).
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn fetch_add(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        remote: RemoteAddress,
        add: u64,
        element: DataSegment,
    ) -> Result<(), PostError> {
        Operands::check_element(self.service.0.atomics, &element)?;
        let request = Request { opcode: WqeOpcode::AtomicFa, wr_id, flags, imm: 0 };
        self.post_one(request, ((to, remote), Operands { swap_add: add, compare: 0 }), &element)
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
        to: &DcTarget,
        remote: RemoteAddress,
        [compare, swap]: [u64; 2],
        element: DataSegment,
    ) -> Result<(), PostError> {
        Operands::check_element(self.service.0.atomics, &element)?;
        let request = Request { opcode: WqeOpcode::AtomicCs, wr_id, flags, imm: 0 };
        self.post_one(request, ((to, remote), Operands { swap_add: swap, compare }), &element)
    }

    /// Masked ATOMIC compare and swap; otherwise as on a [reliable connection](SendBatch::masked_compare_swap).
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn masked_compare_swap<N: MaskedNumber>(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicMaskedCs, wr_id, flags, imm: 0 };
        self.post_masked::<N>(self.service.0.masked, request, ((to, remote), swap), element)
    }

    /// Masked ATOMIC fetch and add; otherwise as on a [reliable connection](SendBatch::masked_fetch_add).
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn masked_fetch_add<N: MaskedNumber>(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: &DcTarget,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicMaskedFa, wr_id, flags, imm: 0 };
        self.post_masked::<N>(self.service.0.masked, request, ((to, remote), add), element)
    }
}
