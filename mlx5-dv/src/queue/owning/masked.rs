//! Masked atomics of a connection, and of an endpoint.

use std::time::Duration;

use super::batch::{ConnectionBatch, alone};
use super::connection::{Connection, WaitError};
use super::endpoint::EndpointSends;
use super::in_flight::{Refused, Ticket};
use crate::memory::RemoteAddress;
use crate::objects::Buffer;
use crate::queue::error::PostError;
use crate::queue::send::masked::{MaskedAdd, MaskedNumber, MaskedSwap};
use crate::queue::send::wqe::WrFlags;

impl ConnectionBatch<'_> {
    /// Masked ATOMIC compare and swap, never quiet: see [`Connection::masked_compare_swap`]. Errors: [`Refused`], with
    /// the buffer.
    #[inline]
    pub fn masked_compare_swap<N: MaskedNumber>(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.post_signalled(Some(buffer), |batch, id, flags, _| {
            // SAFETY: `post_signalled` keeps the buffer until its completion, or until the queue pair was reset or
            // destroyed.
            unsafe { batch.masked_compare_swap(id, flags, remote, swap, segment) }
        })
    }

    /// Masked ATOMIC fetch and add, never quiet: see [`Connection::masked_fetch_add`]. Errors: [`Refused`], with the
    /// buffer.
    #[inline]
    pub fn masked_fetch_add<N: MaskedNumber>(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.post_signalled(Some(buffer), |batch, id, flags, _| {
            // SAFETY: as in `masked_compare_swap`.
            unsafe { batch.masked_fetch_add(id, flags, remote, add, segment) }
        })
    }
}

impl EndpointSends<'_> {
    /// Masked ATOMIC compare and swap of the numbers at `remote`, as
    /// [`SendBatch::masked_compare_swap`](crate::queue::SendBatch::masked_compare_swap). What was there is written to
    /// the bytes at `at`, for [`MemoryRegion::found`](crate::objects::MemoryRegion::found). Errors: [`PostError`].
    #[inline]
    #[track_caller]
    pub fn masked_compare_swap<N: MaskedNumber>(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        at: usize,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(at..at + N::BYTES);
        // SAFETY: as for `EndpointSends::send`.
        unsafe { self.batch.masked_compare_swap(wr_id, flags, remote, swap, segment) }
    }

    /// Masked ATOMIC fetch and add to the numbers at `remote`; otherwise as
    /// [`masked_compare_swap`](Self::masked_compare_swap).
    #[inline]
    #[track_caller]
    pub fn masked_fetch_add<N: MaskedNumber>(
        &mut self,
        wr_id: u64,
        flags: WrFlags,
        at: usize,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
    ) -> Result<(), PostError> {
        let segment = self.window.segment(at..at + N::BYTES);
        // SAFETY: as above.
        unsafe { self.batch.masked_fetch_add(wr_id, flags, remote, add, segment) }
    }
}

impl Connection {
    /// Masked ATOMIC compare and swap of the numbers at `remote`, as
    /// [`SendBatch::masked_compare_swap`](crate::queue::SendBatch::masked_compare_swap). What was there is written to
    /// `buffer`, of as many bytes, for
    /// [`Done::found`](crate::queue::Done::found). Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn masked_compare_swap<N: MaskedNumber>(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
    ) -> Result<Ticket, Refused> {
        alone!(self.batch(), masked_compare_swap(buffer, remote, swap))
    }

    /// Masked ATOMIC fetch and add to the numbers at `remote`, as
    /// [`SendBatch::masked_fetch_add`](crate::queue::SendBatch::masked_fetch_add). Otherwise as
    /// [`masked_compare_swap`](Self::masked_compare_swap).
    #[inline]
    pub fn masked_fetch_add<N: MaskedNumber>(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
    ) -> Result<Ticket, Refused> {
        alone!(self.batch(), masked_fetch_add(buffer, remote, add))
    }

    /// As [`masked_compare_swap`](Self::masked_compare_swap), and waits for what was there, which is returned with the
    /// buffer. Errors: [`WaitError`].
    pub fn masked_compare_swap_blocking<N: MaskedNumber>(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
        timeout: Duration,
    ) -> Result<(N, Buffer), WaitError> {
        let ticket = self.masked_compare_swap(buffer, remote, swap);
        self.finish_atomic(ticket, timeout)
    }

    /// As [`masked_fetch_add`](Self::masked_fetch_add), and waits for what was there, which is returned with the
    /// buffer. Errors: [`WaitError`].
    pub fn masked_fetch_add_blocking<N: MaskedNumber>(
        &mut self,
        buffer: Buffer,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
        timeout: Duration,
    ) -> Result<(N, Buffer), WaitError> {
        let ticket = self.masked_fetch_add(buffer, remote, add);
        self.finish_atomic(ticket, timeout)
    }
}
