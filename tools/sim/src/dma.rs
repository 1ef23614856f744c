//! What the function sees of its client's memory: IOVA ranges, each backed by a mapping of the client's file, or reached
//! by reads and writes where it has none. An access outside of all of them is a fault, reported by strict mode.
//!
//! SIGNATURES AGREED; being built.

use thiserror::Error;

/// An access the function was not allowed to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("DMA {} of {len} bytes at {iova:#x}: {reason}", if *.write { "write" } else { "read" })]
pub struct DmaFault {
    /// First address.
    pub iova: u64,
    /// Bytes.
    pub len: usize,
    /// A write, not a read.
    pub write: bool,
    /// Why not.
    pub reason: &'static str,
}

impl DmaFault {
    /// An access past the end of an object's own memory.
    pub fn past_end(at: u64, len: usize, write: bool) -> Self {
        DmaFault { iova: at, len, write, reason: "past the end of the object's pages" }
    }
}

/// The function's address space. Cheap to clone; all clones are the same space.
#[derive(Debug, Clone, Default)]
pub struct Dma {}

impl Dma {
    /// An empty address space, whose faults go to `strict`.
    pub fn new(_strict: crate::strict::Strict) -> Self {
        Dma {}
    }
    /// Reads from the client's memory.
    pub fn read(&self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, len: bytes.len(), write: false, reason: "not mapped" })
    }
    /// Writes to the client's memory. The bytes of an aligned quadword land together; lower addresses first.
    pub fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, len: bytes.len(), write: true, reason: "not mapped" })
    }
    /// Loads one big-endian dword, acquiring: what its writer stored before it is seen after it.
    pub fn load_be32(&self, iova: u64) -> Result<u32, DmaFault> {
        Err(DmaFault { iova, len: 4, write: false, reason: "not mapped" })
    }
    /// Writes `bytes` (a CQE or EQE) so that the last byte, which carries the ownership bit, is stored last, releasing.
    pub fn publish(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.write(iova, bytes)
    }
}
