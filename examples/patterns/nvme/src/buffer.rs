//! Buffers of I/O.

use mlx5_dv::objects::Buffer;

use crate::wire::COMMAND;

/// Bytes in front of a buffer's data: there the command of a capsule goes, so that it and the data are one message.
pub const HEADROOM: usize = COMMAND;

/// A buffer for the data of a command. It belongs to its queue while the command is under way.
#[derive(Debug)]
pub struct IoBuffer(Buffer);

impl IoBuffer {
    /// Of a buffer of the program's own, whose first [`HEADROOM`] bytes are not data. For
    /// [`DataPlacement::StandingKey`](crate::DataPlacement::StandingKey), its region must grant the remote access.
    ///
    /// # Errors
    /// The buffer, where it has no room for data.
    pub fn new(mut buffer: Buffer) -> Result<Self, Buffer> {
        if buffer.capacity() <= HEADROOM {
            return Err(buffer);
        }
        buffer.set_len(buffer.capacity());
        Ok(IoBuffer(buffer))
    }

    /// The buffer, with its headroom.
    pub fn into_inner(self) -> Buffer {
        self.0
    }

    pub(crate) fn of(buffer: Buffer) -> Self {
        IoBuffer(buffer)
    }

    pub(crate) fn inner(&self) -> &Buffer {
        &self.0
    }

    /// Bytes of data that a command transfers: all, unless [`set_len`](Self::set_len) changed it.
    pub fn len(&self) -> usize {
        self.0.len() - HEADROOM
    }

    /// Whether that is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the buffer in bytes of data.
    pub fn capacity(&self) -> usize {
        self.0.capacity() - HEADROOM
    }

    /// Makes commands transfer the first `len` bytes. Panics if `len` exceeds the capacity.
    #[track_caller]
    pub fn set_len(&mut self, len: usize) {
        self.0.set_len(HEADROOM + len);
    }

    /// Copies `bytes` to `offset` of the data. Panics if they do not fit.
    #[track_caller]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0.write(HEADROOM + offset, bytes);
    }

    /// Copies from `offset` of the data to `bytes`. Panics if the buffer ends before.
    #[track_caller]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.0.read(HEADROOM + offset, bytes);
    }

    /// Puts a command in front of the data.
    pub(crate) fn put_command(&mut self, command: &[u8]) {
        self.0.write(0, command);
    }
}
