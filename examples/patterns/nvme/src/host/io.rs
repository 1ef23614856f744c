//! I/O queues.

use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, MemoryRegion};

use super::queue::{Completed, Data, Queue, Unfinished};
use crate::buffer::{HEADROOM, IoBuffer};
use crate::error::{HostError, Refused, SubmitError};
use crate::wire::{Command, Opcode, ReadWrite};

/// Most blocks that a command names.
const MOST_BLOCKS: u32 = 1 << 16;

/// A namespace: a disk of a subsystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// Its number.
    pub nsid: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_size: u32,
    /// Globally unique number; zeros where it has none.
    pub nguid: [u8; 16],
}

impl Namespace {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }
}

/// A queue of I/O commands, for one thread at a time. Submission and polling make no system call.
///
/// When the connection breaks, [`poll`](Self::poll) says so, and [`close`](Self::close) returns the commands that were
/// not answered.
#[derive(Debug)]
pub struct IoQueue {
    queue: Queue,
    /// Longest transfer in bytes.
    most: usize,
}

impl IoQueue {
    pub(super) fn new(queue: Queue, most: usize) -> Self {
        IoQueue { queue, most }
    }

    /// The queue's number, from 1 on.
    pub fn qid(&self) -> u16 {
        self.queue.qid()
    }

    /// Commands that may be under way at once.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// Commands under way.
    pub fn under_way(&self) -> usize {
        self.queue.under_way()
    }

    /// Longest transfer in bytes.
    pub fn most_bytes(&self) -> usize {
        self.most
    }

    /// Whether the connection is broken or ended: [`close`](Self::close) it.
    pub fn is_broken(&self) -> bool {
        self.queue.is_broken()
    }

    /// Buffers for `bytes` of data each, in memory registered for this queue.
    ///
    /// # Errors
    /// [`HostError::Device`]: no memory.
    pub fn buffers(&self, count: usize, bytes: usize) -> Result<Vec<IoBuffer>, HostError> {
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let each = (HEADROOM + bytes).next_multiple_of(HEADROOM);
        let region = MemoryRegion::allocate(self.queue.pd(), count.max(1) * each, access)?;
        let buffers = region.buffers(each)?.into_iter().take(count).flat_map(IoBuffer::new);
        Ok(buffers
            .map(|mut buffer| {
                buffer.set_len(bytes);
                buffer
            })
            .collect())
    }

    /// Reads blocks from `lba` on into all of `buffer`. `user` comes back with the completion.
    ///
    /// # Errors
    /// [`Refused`], with the buffer.
    pub fn read(&mut self, namespace: &Namespace, lba: u64, buffer: IoBuffer, user: u64) -> Result<(), Refused> {
        match self.blocks(namespace, &buffer) {
            Ok(blocks) => self.queue.submit(command(Opcode::Read, namespace, lba, blocks), Data::In(buffer), user),
            Err(reason) => Err(Refused { buffer: Some(buffer), reason }),
        }
    }

    /// Writes all of `buffer` to blocks from `lba` on.
    ///
    /// # Errors
    /// [`Refused`], with the buffer.
    pub fn write(&mut self, namespace: &Namespace, lba: u64, buffer: IoBuffer, user: u64) -> Result<(), Refused> {
        match self.blocks(namespace, &buffer) {
            Ok(blocks) => self.queue.submit(command(Opcode::Write, namespace, lba, blocks), Data::Out(buffer), user),
            Err(reason) => Err(Refused { buffer: Some(buffer), reason }),
        }
    }

    /// Writes zeros to `blocks` blocks from `lba` on, without sending any.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn write_zeroes(&mut self, namespace: &Namespace, lba: u64, blocks: u32, user: u64) -> Result<(), Refused> {
        if !(1..=MOST_BLOCKS).contains(&blocks) {
            return Err(Refused { buffer: None, reason: SubmitError::Blocks { blocks } });
        }
        self.queue.submit(command(Opcode::WriteZeroes, namespace, lba, blocks), Data::None, user)
    }

    /// Makes durable what was written and answered before.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn flush(&mut self, namespace: &Namespace, user: u64) -> Result<(), Refused> {
        let command = Command { nsid: namespace.nsid.into(), ..Command::new(Opcode::Flush.number()) };
        self.queue.submit(command, Data::None, user)
    }

    /// The blocks that `buffer` has room for.
    #[inline(always)]
    fn blocks(&self, namespace: &Namespace, buffer: &IoBuffer) -> Result<u32, SubmitError> {
        let (len, block) = (buffer.len(), namespace.block_size as usize);
        let most = self.most.min(MOST_BLOCKS as usize * block);
        if len == 0 || len > most || !len.is_multiple_of(block) {
            return Err(SubmitError::Length { len, block: namespace.block_size, most });
        }
        Ok((len / block) as u32)
    }

    /// The next command that the target has answered; `None` while there is none.
    ///
    /// # Errors
    /// [`HostError::Broken`], [`HostError::Disconnected`], [`HostError::Protocol`]: [`close`](Self::close) the queue.
    pub fn poll(&mut self) -> Result<Option<Completed>, HostError> {
        self.queue.poll()
    }

    /// As [`poll`](Self::poll), for up to `timeout`.
    ///
    /// # Errors
    /// [`HostError::Timeout`], and those of [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Duration) -> Result<Completed, HostError> {
        self.queue.wait("an I/O command", timeout)
    }

    /// Ends the connection. Returns the commands that were not answered, with their buffers: whether they were done is
    /// not known.
    pub fn close(self) -> Vec<Unfinished> {
        self.queue.close()
    }
}

#[inline(always)]
fn command(opcode: Opcode, namespace: &Namespace, lba: u64, blocks: u32) -> Command {
    let length = (blocks.wrapping_sub(1) as u16).into();
    ReadWrite { slba: lba.into(), length, ..ReadWrite::new(opcode, namespace.nsid) }.into()
}
