//! The memory of a transfer.

use mlx5_dv::objects::Buffer;

use crate::wire::MAX_FRAGMENTS;

/// `LNET_MTU` of `include/uapi/linux/lnet/lnet-types.h`: bytes of a transfer at most.
pub const TRANSFER_BYTES: usize = 1 << 20;

/// Memory of a transfer: buffers, one behind the other. It belongs to the transfer while that is under way.
#[derive(Debug, Default)]
pub struct Payload {
    parts: Vec<Buffer>,
    len: usize,
}

/// Buffers that are no payload.
#[derive(Debug, thiserror::Error)]
#[error("a payload of {len} bytes in {} buffers: 1 MiB and {MAX_FRAGMENTS} buffers are the most", parts.len())]
pub struct BadPayload {
    /// The buffers.
    pub parts: Vec<Buffer>,
    /// Their bytes.
    pub len: usize,
}

impl Payload {
    /// Of `parts`, by their lengths. None is a payload of no bytes, which is a message.
    ///
    /// # Errors
    /// [`BadPayload`], with the buffers: more than [`TRANSFER_BYTES`] or [`MAX_FRAGMENTS`].
    pub fn new(parts: Vec<Buffer>) -> Result<Self, BadPayload> {
        let len = parts.iter().map(Buffer::len).sum();
        if len > TRANSFER_BYTES || parts.len() > MAX_FRAGMENTS.into() || parts.iter().any(Buffer::is_empty) {
            return Err(BadPayload { parts, len });
        }
        Ok(Payload { parts, len })
    }

    /// The buffers.
    pub fn into_parts(self) -> Vec<Buffer> {
        self.parts
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether they are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to the front. Panics if they do not fit.
    #[track_caller]
    pub fn write(&mut self, mut bytes: &[u8]) {
        assert!(bytes.len() <= self.len, "{} bytes into a payload of {}", bytes.len(), self.len);
        for part in &mut self.parts {
            let (here, rest) = bytes.split_at(bytes.len().min(part.len()));
            part.write(0, here);
            bytes = rest;
        }
    }

    /// Copies from the front to `bytes`. Panics if there are fewer.
    #[track_caller]
    pub fn read(&self, mut bytes: &mut [u8]) {
        assert!(bytes.len() <= self.len, "{} bytes of a payload of {}", bytes.len(), self.len);
        for part in &self.parts {
            let (here, rest) = bytes.split_at_mut(bytes.len().min(part.len()));
            part.read(0, here);
            bytes = rest;
        }
    }
}
