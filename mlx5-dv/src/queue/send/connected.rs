//! Work requests of connections.

use mlx5_prm::wqe::WqeOpcode;
use uar::SendDoorbell;

use super::SendBatch;
use super::service::Connected;
use super::wqe::{Operands, Request, WrFlags};
use crate::memory::{DataSegment, RemoteAddress};
use crate::queue::error::PostError;

impl<D: SendDoorbell, S: Connected> SendBatch<'_, D, S> {
    /// SEND of `data`, which is copied into the WQE at once. Errors: [`PostError`].
    #[inline]
    pub fn send_inline(&mut self, wr_id: u64, flags: WrFlags, data: &[u8]) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, (), data)
    }

    /// As [`send_inline`](Self::send_inline), with immediate data.
    #[inline]
    pub fn send_imm_inline(&mut self, wr_id: u64, flags: WrFlags, imm: u32, data: &[u8]) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, (), data)
    }

    /// RDMA WRITE of `data`, which is copied into the WQE at once, to `remote`. Errors: [`PostError`].
    #[inline]
    pub fn write_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 }, remote, data)
    }

    /// As [`write_inline`](Self::write_inline), with immediate data that completes a receive there.
    #[inline]
    pub fn write_imm_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        imm: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm }, remote, data)
    }

    /// SEND of all `parts` as one message, in this order, copied into the WQE at once: a header and what follows it,
    /// for example (libibverbs' `ibv_wr_set_inline_data_list`). Errors: [`PostError`].
    #[inline]
    pub fn send_inline_all(&mut self, wr_id: u64, flags: WrFlags, parts: &[&[u8]]) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, (), parts)
    }

    /// As [`send_inline_all`](Self::send_inline_all), with immediate data.
    #[inline]
    pub fn send_imm_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        imm: u32,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, (), parts)
    }

    /// RDMA WRITE of all `parts`, one after the other, to `remote`; otherwise as
    /// [`send_inline_all`](Self::send_inline_all).
    #[inline]
    pub fn write_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 }, remote, parts)
    }

    /// As [`write_inline_all`](Self::write_inline_all), with immediate data that completes a receive there.
    #[inline]
    pub fn write_imm_inline_all(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        imm: u32,
        parts: &[&[u8]],
    ) -> Result<(), PostError> {
        self.post_inline_all(Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm }, remote, parts)
    }

    /// SEND of `elements`, in this order. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request completes, or its queue pair is reset or destroyed, each element's memory stays
    /// registered under its key. It may be written meanwhile: then the message mixes old and new bytes.
    #[inline]
    pub unsafe fn send(&mut self, wr_id: u64, flags: WrFlags, elements: &[DataSegment]) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::Send, wr_id, flags, imm: 0 }, (), elements)
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
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::SendImm, wr_id, flags, imm }, (), elements)
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
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::RdmaWrite, wr_id, flags, imm: 0 }, remote, elements)
    }

    /// As [`write`](Self::write), with immediate data that completes a receive there.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn write_imm(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        imm: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::RdmaWriteImm, wr_id, flags, imm }, remote, elements)
    }
}

impl<D: SendDoorbell> SendBatch<'_, D> {
    /// SEND of `data`, copied into the WQE, that invalidates the remote's key `rkey`: its receive completes with
    /// [`Operation::ReceivedInvalidate`](crate::queue::Operation::ReceivedInvalidate), and the key is free. A key that
    /// the remote does not let others invalidate fails the work request. Errors: [`PostError`].
    #[inline]
    pub fn send_invalidate_inline(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        rkey: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        self.post_inline(Request { opcode: WqeOpcode::SendInval, wr_id, flags, imm: rkey }, (), data)
    }

    /// As [`send_invalidate_inline`](Self::send_invalidate_inline), of `elements`, in their order.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    #[inline]
    pub unsafe fn send_invalidate(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        rkey: u32,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::SendInval, wr_id, flags, imm: rkey }, (), elements)
    }

    /// RDMA READ from `remote` into `elements`, in this order. Errors: [`PostError`].
    ///
    /// # Safety
    /// Until the work request completes, or its queue pair is reset or destroyed, each element's memory stays
    /// registered under its key, and nothing in this process holds a reference to it or depends on its content.
    #[inline]
    pub unsafe fn read(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        elements: &[DataSegment],
    ) -> Result<(), PostError> {
        self.post_message(Request { opcode: WqeOpcode::RdmaRead, wr_id, flags, imm: 0 }, remote, elements)
    }

    /// ATOMIC compare and swap: replaces the number at `remote` by `swap` if it equals `compare`. The old value is
    /// written to `element`. It is atomic with respect to other atomics of the remote's card; accesses of its CPU, or
    /// by RDMA, may occur between the read and the write.
    ///
    /// Both numbers are 8 bytes in their host's byte order, except for the old value on a card that has big-endian
    /// alone: [`MemoryRegion::found`](crate::objects::MemoryRegion::found) reads it on all. `remote` must be a multiple
    /// of eight: otherwise the remote refuses the work request, and the queue pair moves to ERR. Errors:
    /// [`PostError`].
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn compare_swap(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        compare: u64,
        swap: u64,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicCs, wr_id, flags, imm: 0 };
        self.post_atomic(request, remote, Operands { swap_add: swap, compare }, element)
    }

    /// ATOMIC fetch and add: adds `add` to the number at `remote`, modulo 2^64. The old value is written to `element`.
    /// Otherwise as [`compare_swap`](Self::compare_swap).
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    pub unsafe fn fetch_add(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        remote: RemoteAddress,
        add: u64,
        element: DataSegment,
    ) -> Result<(), PostError> {
        let request = Request { opcode: WqeOpcode::AtomicFa, wr_id, flags, imm: 0 };
        self.post_atomic(request, remote, Operands { swap_add: add, compare: 0 }, element)
    }

    #[inline(always)]
    fn post_atomic(
        &mut self,
        request: Request,
        remote: RemoteAddress,
        operands: Operands,
        element: DataSegment,
    ) -> Result<(), PostError> {
        Operands::check_element(self.service.0.atomics, &element)?;
        self.post_one(request, (remote, operands), &element)
    }
}
