//! Memory for data under way.

use std::sync::Arc;

use mlx5_dv::objects::{Buffer, ExclusiveRegion, Pd};

use crate::error::TargetError;

/// Chunks of one size in one region, for all queues. What is taken comes back.
#[derive(Debug)]
pub(super) struct Pool {
    free: Vec<Buffer>,
    chunk: usize,
    all: usize,
}

impl Pool {
    pub(super) fn new(pd: &Arc<Pd>, chunk: usize, count: usize) -> Result<Self, TargetError> {
        let free = ExclusiveRegion::allocate(pd, chunk * count)?.buffers(chunk)?;
        Ok(Pool { all: free.len(), free, chunk })
    }

    /// Chunks that all hold `len` bytes, of which the last has the rest; `None` while there are too few.
    pub(super) fn take(&mut self, len: usize) -> Option<Vec<Buffer>> {
        let count = len.div_ceil(self.chunk);
        let at = self.free.len().checked_sub(count)?;
        let mut chunks = self.free.split_off(at);
        for (number, chunk) in chunks.iter_mut().enumerate() {
            chunk.set_len(self.chunk.min(len - number * self.chunk));
        }
        Some(chunks)
    }

    pub(super) fn put(&mut self, chunk: Buffer) {
        self.free.push(chunk);
    }

    /// Chunks in use.
    pub(super) fn in_use(&self) -> usize {
        self.all - self.free.len()
    }
}
