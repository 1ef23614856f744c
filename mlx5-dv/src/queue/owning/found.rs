//! The numbers that atomics found, from where the card wrote them. Cards differ in the order of their bytes.

use std::sync::Arc;

use crate::objects::{Buffer, MemoryRegion, Pd};
use crate::queue::completion::decode::{Completion, Operation};
use crate::queue::owning::in_flight::Done;
use crate::queue::send::masked::{LONGEST_NUMBER, MaskedNumber};

/// The number at the start of `room`, as the card of `pd` wrote it.
#[inline]
fn number<N: MaskedNumber>(pd: &Arc<Pd>, room: &[u8; LONGEST_NUMBER]) -> N {
    N::get(room, pd.device().caps().atomic_order())
}

impl MemoryRegion {
    /// The number that an atomic found, from the bytes at `offset` that it was written to: an atomic of an
    /// [`Endpoint`](crate::queue::Endpoint), or of a [`SendBatch`](crate::queue::SendBatch). It is right on each card,
    /// whichever [order](crate::Caps::atomic_order) that writes; [`read`](Self::read) copies the bytes as they are. The
    /// work request must have completed. Panics outside of the region.
    #[inline]
    #[track_caller]
    pub fn found<N: MaskedNumber>(&self, offset: usize) -> N {
        let mut room = [0; LONGEST_NUMBER];
        self.read(offset, &mut room[..N::BYTES]);
        number(self.pd(), &room)
    }
}

impl Buffer {
    /// The number that an atomic found, from the buffer that it came back in: as [`MemoryRegion::found`], of the
    /// buffer's first bytes. Panics if the buffer is shorter.
    #[inline]
    #[track_caller]
    pub fn found<N: MaskedNumber>(&self) -> N {
        let mut room = [0; LONGEST_NUMBER];
        self.read(0, &mut room[..N::BYTES]);
        number(self.pd(), &room)
    }
}

impl<T> Done<Completion, T> {
    /// The number that an atomic found: a `u64`, but of a masked one what that has. As [`MemoryRegion::found`]; `None`
    /// if the work request failed, was a receive, or has no buffer of as many bytes.
    #[inline]
    pub fn found<N: MaskedNumber>(&self) -> Option<N> {
        let is_send = matches!(self.result, Ok(Completion { operation: Operation::Sent(_), .. }));
        let buffer = self.buffer.as_ref().filter(|buffer| is_send && buffer.len() == N::BYTES)?;
        Some(buffer.found())
    }
}
