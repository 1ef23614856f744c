//! Work requests that name their remote's receiver: those of extended and of dynamic connections.

use std::marker::PhantomData;

use mlx5_prm::wqe::WqeOpcode;
use uar::SendDoorbell;

use super::SendBatch;
use super::masked::{MaskedAdd, MaskedNumber, MaskedSwap};
use super::service::sealed::Sealed;
use super::service::{KeyChanging, KeyUpdates, Reliable, Service};
use super::wqe::{Head, Operands, Request, WrFlags};
use crate::caps::Caps;
use crate::memory::{DataSegment, RemoteAddress};
use crate::objects::QueuePair;
use crate::queue::error::PostError;

/// What a work request names as its receiver: a [`RemoteSrq`](crate::queue::RemoteSrq), or a
/// [`DcTarget`](crate::objects::DcTarget).
pub trait Receiver: Sized + Sealed {
    /// How it is given.
    type Given<'a>: Head + Copy;
    /// Whether code that posts single elements is kept apart from that for lists, which costs less where the segments
    /// of the receiver are long.
    #[doc(hidden)]
    const APART: bool;
}

/// A reliable service whose work requests each name their receiver at the remote.
#[derive(Debug)]
pub struct AddressedMessages<R> {
    pub(super) reliable: Reliable,
    receivers: PhantomData<fn() -> R>,
}

impl<R> AddressedMessages<R> {
    pub(in crate::queue) fn new(caps: &Caps) -> Self {
        AddressedMessages { reliable: Reliable::new(caps), receivers: PhantomData }
    }
}

impl<R: Receiver> Service for AddressedMessages<R> {
    type Object = QueuePair;
}

impl<R: Receiver> Sealed for AddressedMessages<R> {}

impl<R: Receiver> KeyChanging for AddressedMessages<R> {
    fn key_updates(&self) -> KeyUpdates {
        self.reliable.updates
    }
}

impl<D: SendDoorbell, R: Receiver> SendBatch<'_, D, AddressedMessages<R>> {
    #[inline(always)]
    fn post_to(&mut self, request: Request, to: R::Given<'_>, elements: &[DataSegment]) -> Result<(), PostError> {
        if R::APART { self.post_message(request, to, elements) } else { self.post_elements(request, to, elements) }
    }
}

/// Work requests to a receiver `to`. Keys of the remote belong to the protection domain of the receiver.
impl<D: SendDoorbell, R: Receiver> SendBatch<'_, D, AddressedMessages<R>> {
    /// SEND of `data`, which is copied into the WQE at once, to `to`. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(&mut self, wr_id: u64, flags: WrFlags, to: R::Given<'_>, data: &[u8]) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to, data)
    }

    /// As [`send_inline`](Self::send_inline), with immediate data.
    #[inline]
    pub fn send_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to, data)
    }

    /// As [`send_inline`](Self::send_inline); it invalidates the remote's key `rkey`. Otherwise as on a
    /// [reliable connection](SendBatch::send_invalidate_inline).
    #[inline]
    pub fn send_invalidate_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        rkey: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendInval, wr_id, flags, imm: rkey }, to, data)
    }

    /// RDMA WRITE of `data`, which is copied into the WQE at once, to `remote`. Errors: [`PostError`].
    #[inline]
    pub fn write_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        remote: RemoteAddress,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 }, (to, remote), data)
    }

    /// As [`write_inline`](Self::write_inline), with immediate data that completes a receive of `to`.
    #[inline]
    pub fn write_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        remote: RemoteAddress,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm }, (to, remote), data)
    }

    /// SEND of all `parts` as one message, in this order, copied into the WQE at once, to `to`; otherwise as on a
    /// [reliable connection](SendBatch::send_inline_all).
    #[inline]
    pub fn send_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to, parts)
    }

    /// As [`send_inline_all`](Self::send_inline_all), with immediate data.
    #[inline]
    pub fn send_imm_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        imm: u32,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to, parts)
    }

    /// RDMA WRITE of all `parts`, one after the other, to `remote`; otherwise as
    /// [`send_inline_all`](Self::send_inline_all).
    #[inline]
    pub fn write_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        remote: RemoteAddress,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 }, (to, remote), parts)
    }

    /// As [`write_inline_all`](Self::write_inline_all), with immediate data that completes a receive of `to`.
    #[inline]
    pub fn write_imm_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        remote: RemoteAddress,
        imm: u32,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm }, (to, remote), parts)
    }

    /// SEND of `elements`, in this order, to `to`. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request completes, or its queue pair is reset or destroyed, each element's memory stays
    /// registered under its key. It may be written meanwhile: then the message mixes old and new bytes.
    #[inline]
    pub unsafe fn send(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_to(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, to, elements)
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
        to: R::Given<'_>,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_to(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, to, elements)
    }

    /// As [`send`](Self::send); it invalidates the remote's key `rkey`.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn send_invalidate(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        rkey: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_to(Request { opcode: WqeOpcode::SendInval, wr_id, flags, imm: rkey }, to, elements)
    }

    /// RDMA WRITE of `elements`, in this order, to `remote`. Errors: [`PostError`].
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn write(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 };
        self.post_elements(request, (to, remote), elements)
    }

    /// As [`write`](Self::write), with immediate data that completes a receive of `to`.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn write_imm(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        remote: RemoteAddress,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm };
        self.post_elements(request, (to, remote), elements)
    }

    /// RDMA READ from `remote` into `elements`, in this order. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request completes, or its queue pair is reset or destroyed, each element's memory stays
    /// registered under its key, and nothing in this process holds a reference to it or relies on its content.
    #[inline]
    pub unsafe fn read(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::RdmaRead, wr_id, flags, imm: 0 };
        self.post_elements(request, (to, remote), elements)
    }

    /// ATOMIC fetch and add; otherwise as on a [reliable connection](SendBatch::fetch_add).
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn fetch_add(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        to: R::Given<'_>,
        remote: RemoteAddress,
        add: u64,
        element: DataSegment,
    ) -> Result<(), PostError> {
        Operands::check_element(self.service.reliable.atomics, &element)?;
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
        to: R::Given<'_>,
        remote: RemoteAddress,
        [compare, swap]: [u64; 2],
        element: DataSegment,
    ) -> Result<(), PostError> {
        Operands::check_element(self.service.reliable.atomics, &element)?;
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
        to: R::Given<'_>,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicMaskedCs, wr_id, flags, imm: 0 };
        self.post_masked::<N>(self.service.reliable.masked, request, ((to, remote), swap), element)
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
        to: R::Given<'_>,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicMaskedFa, wr_id, flags, imm: 0 };
        self.post_masked::<N>(self.service.reliable.masked, request, ((to, remote), add), element)
    }
}
