//! Work requests that name their remote's receiver, with their buffers: those of extended and of dynamic connections.

use super::batch::ConnectionBatch;
use super::in_flight::{Refused, RefusedReason, Ticket};
use crate::memory::RemoteAddress;
use crate::objects::Buffer;
use crate::queue::send::addressed::{AddressedMessages, Receiver};
use crate::queue::send::masked::{MaskedAdd, MaskedNumber, MaskedSwap};
use crate::queue::send::wqe::WrFlags;

/// Work requests to a receiver `to`. Keys of the remote belong to the protection domain of the receiver.
impl<R: Receiver> ConnectionBatch<'_, AddressedMessages<R>> {
    /// SEND of `buffer` to `to`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn send(&mut self, to: R::Given<'_>, buffer: Buffer) -> Result<Ticket, Refused> {
        // SAFETY: `post` keeps the buffer, and with it its region, until its completion, or until the queue pair was
        // reset or destroyed.
        self.post(Some(buffer), |batch, id, flags, elements| unsafe { batch.send(id, flags, to, elements) })
    }

    /// SEND of `data`, which is copied at once. Errors: [`Refused`].
    #[inline]
    pub fn send_inline(&mut self, to: R::Given<'_>, data: &[u8]) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_inline(id, flags, to, data))
    }

    /// As [`send`](Self::send), with immediate data and the solicited bit.
    #[inline]
    pub fn send_imm(&mut self, to: R::Given<'_>, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, flags, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_imm(id, flags | WrFlags::SOLICITED, to, imm, elements) }
        })
    }

    /// SEND of all `parts` as one message, in this order, which are copied at once. Errors: [`Refused`].
    #[inline]
    pub fn send_inline_all(&mut self, to: R::Given<'_>, parts: &[&[u8]]) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_inline_all(id, flags, to, parts))
    }

    /// RDMA WRITE of all `parts`, one after the other, to `remote`; otherwise as
    /// [`send_inline_all`](Self::send_inline_all).
    #[inline]
    pub fn write_inline_all(
        &mut self,
        to: R::Given<'_>,
        parts: &[&[u8]],
        remote: RemoteAddress,
    ) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.write_inline_all(id, flags, to, remote, parts))
    }

    /// As [`send_inline`](Self::send_inline), with immediate data and the solicited bit.
    #[inline]
    pub fn send_imm_inline(&mut self, to: R::Given<'_>, data: &[u8], imm: u32) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_imm_inline(id, flags | WrFlags::SOLICITED, to, imm, data))
    }

    /// As [`write_inline`](Self::write_inline), with immediate data that completes a receive of `to`.
    #[inline]
    pub fn write_imm_inline(
        &mut self,
        to: R::Given<'_>,
        data: &[u8],
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| {
            batch.write_imm_inline(id, flags | WrFlags::SOLICITED, to, remote, imm, data)
        })
    }

    /// As [`send_inline_all`](Self::send_inline_all), with immediate data and the solicited bit.
    #[inline]
    pub fn send_imm_inline_all(&mut self, to: R::Given<'_>, parts: &[&[u8]], imm: u32) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.send_imm_inline_all(id, flags | WrFlags::SOLICITED, to, imm, parts))
    }

    /// As [`write_inline_all`](Self::write_inline_all), with immediate data that completes a receive of `to`.
    #[inline]
    pub fn write_imm_inline_all(
        &mut self,
        to: R::Given<'_>,
        parts: &[&[u8]],
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| {
            batch.write_imm_inline_all(id, flags | WrFlags::SOLICITED, to, remote, imm, parts)
        })
    }

    /// As [`send`](Self::send), with the solicited bit; it invalidates the remote's key `rkey`.
    #[inline]
    pub fn send_invalidate(&mut self, to: R::Given<'_>, buffer: Buffer, rkey: u32) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, flags, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.send_invalidate(id, flags | WrFlags::SOLICITED, to, rkey, elements) }
        })
    }

    /// As [`send_inline`](Self::send_inline), with the solicited bit; it invalidates the remote's key `rkey`.
    #[inline]
    pub fn send_invalidate_inline(&mut self, to: R::Given<'_>, data: &[u8], rkey: u32) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| {
            batch.send_invalidate_inline(id, flags | WrFlags::SOLICITED, to, rkey, data)
        })
    }

    /// RDMA WRITE of `buffer` to `remote`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn write(&mut self, to: R::Given<'_>, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        // SAFETY: as in `send`.
        self.post(Some(buffer), |batch, id, flags, elements| unsafe { batch.write(id, flags, to, remote, elements) })
    }

    /// As [`write`](Self::write), with immediate data that completes a receive of `to`.
    #[inline]
    pub fn write_imm(
        &mut self,
        to: R::Given<'_>,
        buffer: Buffer,
        remote: RemoteAddress,
        imm: u32,
    ) -> Result<Ticket, Refused> {
        self.post(Some(buffer), |batch, id, flags, elements| {
            // SAFETY: as in `send`.
            unsafe { batch.write_imm(id, flags | WrFlags::SOLICITED, to, remote, imm, elements) }
        })
    }

    /// RDMA WRITE of `data`, which is copied at once, to `remote`. Errors: [`Refused`].
    #[inline]
    pub fn write_inline(&mut self, to: R::Given<'_>, data: &[u8], remote: RemoteAddress) -> Result<Ticket, Refused> {
        self.post(None, |batch, id, flags, _| batch.write_inline(id, flags, to, remote, data))
    }

    /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn read(&mut self, to: R::Given<'_>, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
        // SAFETY: as in `send`.
        self.post(Some(buffer), |batch, id, flags, elements| unsafe { batch.read(id, flags, to, remote, elements) })
    }

    /// SEND of all `buffers` as one message, in this order; otherwise as on a
    /// [connection](ConnectionBatch::send_all).
    ///
    /// # Errors
    /// [`RefusedReason`]; `buffers` is unchanged.
    pub fn send_all(&mut self, to: R::Given<'_>, buffers: &mut Vec<Buffer>) -> Result<Ticket, RefusedReason> {
        // SAFETY: `post_all` keeps the buffers as `post` keeps one: see `send`.
        self.post_all(buffers, |batch, id, flags, elements| unsafe { batch.send(id, flags, to, elements) })
    }

    /// RDMA WRITE of all `buffers`, one after the other, to `remote`; otherwise as [`send_all`](Self::send_all).
    ///
    /// # Errors
    /// As there.
    pub fn write_all(
        &mut self,
        to: R::Given<'_>,
        buffers: &mut Vec<Buffer>,
        remote: RemoteAddress,
    ) -> Result<Ticket, RefusedReason> {
        // SAFETY: as in `send_all`.
        self.post_all(buffers, |batch, id, flags, elements| unsafe { batch.write(id, flags, to, remote, elements) })
    }

    /// RDMA READ from `remote` into all `buffers`, one after the other; otherwise as [`send_all`](Self::send_all).
    ///
    /// # Errors
    /// As there.
    pub fn read_all(
        &mut self,
        to: R::Given<'_>,
        buffers: &mut Vec<Buffer>,
        remote: RemoteAddress,
    ) -> Result<Ticket, RefusedReason> {
        // SAFETY: as in `send_all`.
        self.post_all(buffers, |batch, id, flags, elements| unsafe { batch.read(id, flags, to, remote, elements) })
    }

    /// ATOMIC fetch and add to the number at `remote`. The old value is written to `buffer`, of eight bytes, for
    /// [`Done::found`](crate::queue::Done::found). Errors: [`Refused`], with the buffer.
    #[inline]
    pub fn fetch_add(
        &mut self,
        to: R::Given<'_>,
        buffer: Buffer,
        remote: RemoteAddress,
        add: u64,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.post(Some(buffer), |batch, id, flags, _| {
            // SAFETY: as in `send`.
            unsafe { batch.fetch_add(id, flags, to, remote, add, segment) }
        })
    }

    /// ATOMIC compare and swap, as [`fetch_add`](Self::fetch_add). The operands are a pair `[compare, swap]`: the
    /// number becomes `swap` if it is `compare`.
    #[inline]
    pub fn compare_swap(
        &mut self,
        to: R::Given<'_>,
        buffer: Buffer,
        remote: RemoteAddress,
        operands: [u64; 2],
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.post(Some(buffer), |batch, id, flags, _| {
            // SAFETY: as in `send`.
            unsafe { batch.compare_swap(id, flags, to, remote, operands, segment) }
        })
    }

    /// Masked ATOMIC compare and swap, never quiet; otherwise as on a
    /// [connection](crate::queue::Connection::masked_compare_swap).
    #[inline]
    pub fn masked_compare_swap<N: MaskedNumber>(
        &mut self,
        to: R::Given<'_>,
        buffer: Buffer,
        remote: RemoteAddress,
        swap: MaskedSwap<N>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.post_signalled(Some(buffer), |batch, id, flags, _| {
            // SAFETY: as in `send`.
            unsafe { batch.masked_compare_swap(id, flags, to, remote, swap, segment) }
        })
    }

    /// Masked ATOMIC fetch and add; otherwise as [`masked_compare_swap`](Self::masked_compare_swap).
    #[inline]
    pub fn masked_fetch_add<N: MaskedNumber>(
        &mut self,
        to: R::Given<'_>,
        buffer: Buffer,
        remote: RemoteAddress,
        add: MaskedAdd<N>,
    ) -> Result<Ticket, Refused> {
        let segment = buffer.segment();
        self.post_signalled(Some(buffer), |batch, id, flags, _| {
            // SAFETY: as in `send`.
            unsafe { batch.masked_fetch_add(id, flags, to, remote, add, segment) }
        })
    }
}

/// The calls of a type with `sends`, which are [`Polled`](super::polled::Polled), to receivers of a type: batches, work
/// requests that are posted alone, completions.
macro_rules! addressed_calls {
    ($Type:ty, $Service:ty, $Receiver:ty) => {
        impl $Type {
            /// How its sends ring the doorbell; `None` before it is connected.
            pub fn doorbell_kind(&self) -> Option<DoorbellKind> {
                self.sends.work.doorbell_kind()
            }

            /// Number of work requests in flight.
            pub fn in_flight(&self) -> usize {
                self.sends.work.in_flight.in_flight().0
            }

            /// Starts a batch of work requests, with one doorbell: all calls below, those of several buffers, fast
            /// registrations, memory windows.
            #[inline(always)]
            pub fn batch(&mut self) -> ConnectionBatch<'_, $Service> {
                self.sends.work.batch()
            }

            /// SEND of `buffer` to `to`. Errors: [`Refused`], with the buffer.
            #[inline]
            pub fn send(&mut self, to: $Receiver, buffer: Buffer) -> Result<Ticket, Refused> {
                alone!(self.batch(), send(to, buffer))
            }

            /// SEND of `data`, which is copied at once. Errors: [`Refused`].
            #[inline]
            pub fn send_inline(&mut self, to: $Receiver, data: &[u8]) -> Result<Ticket, Refused> {
                alone!(self.batch(), send_inline(to, data))
            }

            /// As [`send`](Self::send), with immediate data and the solicited bit.
            #[inline]
            pub fn send_imm(&mut self, to: $Receiver, buffer: Buffer, imm: u32) -> Result<Ticket, Refused> {
                alone!(self.batch(), send_imm(to, buffer, imm))
            }

            /// As [`send`](Self::send), with the solicited bit; it invalidates the remote's key `rkey`.
            #[inline]
            pub fn send_invalidate(&mut self, to: $Receiver, buffer: Buffer, rkey: u32) -> Result<Ticket, Refused> {
                alone!(self.batch(), send_invalidate(to, buffer, rkey))
            }

            /// RDMA WRITE of `buffer` to `remote`. Errors: [`Refused`], with the buffer.
            #[inline]
            pub fn write(&mut self, to: $Receiver, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
                alone!(self.batch(), write(to, buffer, remote))
            }

            /// As [`write`](Self::write), with immediate data that completes a receive of `to`.
            #[inline]
            pub fn write_imm(
                &mut self,
                to: $Receiver,
                buffer: Buffer,
                remote: RemoteAddress,
                imm: u32,
            ) -> Result<Ticket, Refused> {
                alone!(self.batch(), write_imm(to, buffer, remote, imm))
            }

            /// RDMA WRITE of `data`, which is copied at once, to `remote`. Errors: [`Refused`].
            #[inline]
            pub fn write_inline(
                &mut self,
                to: $Receiver,
                data: &[u8],
                remote: RemoteAddress,
            ) -> Result<Ticket, Refused> {
                alone!(self.batch(), write_inline(to, data, remote))
            }

            /// RDMA READ from `remote` into `buffer`. Errors: [`Refused`], with the buffer.
            #[inline]
            pub fn read(&mut self, to: $Receiver, buffer: Buffer, remote: RemoteAddress) -> Result<Ticket, Refused> {
                alone!(self.batch(), read(to, buffer, remote))
            }

            /// ATOMIC fetch and add to the number at `remote`. The old value is written to `buffer`, of eight bytes,
            /// for [`Done::found`](crate::queue::Done::found). Errors: [`Refused`], with the buffer.
            #[inline]
            pub fn fetch_add(
                &mut self,
                to: $Receiver,
                buffer: Buffer,
                remote: RemoteAddress,
                add: u64,
            ) -> Result<Ticket, Refused> {
                alone!(self.batch(), fetch_add(to, buffer, remote, add))
            }

            /// ATOMIC compare and swap, as [`fetch_add`](Self::fetch_add). The operands are a pair `[compare, swap]`:
            /// the number becomes `swap` if it is `compare`.
            #[inline]
            pub fn compare_swap(
                &mut self,
                to: $Receiver,
                buffer: Buffer,
                remote: RemoteAddress,
                operands: [u64; 2],
            ) -> Result<Ticket, Refused> {
                alone!(self.batch(), compare_swap(to, buffer, remote, operands))
            }

            /// Masked ATOMIC compare and swap; otherwise as on a
            /// [connection](crate::queue::Connection::masked_compare_swap).
            #[inline]
            pub fn masked_compare_swap<N: MaskedNumber>(
                &mut self,
                to: $Receiver,
                buffer: Buffer,
                remote: RemoteAddress,
                swap: MaskedSwap<N>,
            ) -> Result<Ticket, Refused> {
                alone!(self.batch(), masked_compare_swap(to, buffer, remote, swap))
            }

            /// Masked ATOMIC fetch and add; otherwise as [`masked_compare_swap`](Self::masked_compare_swap).
            #[inline]
            pub fn masked_fetch_add<N: MaskedNumber>(
                &mut self,
                to: $Receiver,
                buffer: Buffer,
                remote: RemoteAddress,
                add: MaskedAdd<N>,
            ) -> Result<Ticket, Refused> {
                alone!(self.batch(), masked_fetch_add(to, buffer, remote, add))
            }

            /// Returns the next completed work request; `None` if there is none.
            ///
            /// # Errors
            /// [`RetireError`] if the card names a work request that is not in flight: the card or the driver is
            /// broken.
            // Inlined, as `Hub::poll`, and for the same reason.
            #[inline(always)]
            pub fn poll(&mut self) -> Result<Option<Done>, RetireError> {
                self.sends.poll()
            }

            /// Waits until [`poll`](Self::poll) may have a completion. It sleeps with
            /// [`ConnectionOptions::events`](crate::queue::ConnectionOptions::events).
            ///
            /// # Errors
            /// [`Error::Timeout`] after `timeout`, [`Error::CompletionQueue`] if the completion queue overran,
            /// [`Error::Dead`].
            pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
                self.sends.wait(timeout)
            }

            /// The eventfd that becomes readable at an event that [`ready`](Self::ready) or [`wait`](Self::wait)
            /// requested; `None` without [`ConnectionOptions::events`](crate::queue::ConnectionOptions::events).
            pub fn fd(&self) -> Option<BorrowedFd<'_>> {
                self.sends.cq.fd()
            }

            /// As [`wait`](Self::wait), for tasks of any executor: see
            /// [`CompletionQueue::ready`](crate::queue::CompletionQueue::ready).
            pub async fn ready(&mut self, readable: impl AsyncFnMut() -> io::Result<()>) -> Result<(), Error> {
                self.sends.ready(readable).await
            }
        }

        event_source!($Type; sends.cq);
    };
}
pub(super) use addressed_calls;
