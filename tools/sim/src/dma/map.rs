//! Mappings of a client's memory: source, access rights, and errors.

use std::fs::File;
use std::sync::Arc;

use thiserror::Error;

/// Why a range cannot be mapped.
#[derive(Debug, Error)]
pub enum MapError {
    /// The range is empty or exceeds the address space.
    #[error("invalid IOVA range {iova:#x} + {len:#x}: empty, or past the end of the address space")]
    NoRange {
        /// First address.
        iova: u64,
        /// Bytes.
        len: u64,
    },
    /// Part of it is already mapped.
    #[error("IOVA range {iova:#x} + {len:#x} overlaps the mapped range at {other:#x}")]
    Overlap {
        /// First address.
        iova: u64,
        /// Bytes.
        len: u64,
        /// Start of the range already mapped.
        other: u64,
    },
    /// The range exceeds the file.
    #[error("the file ends at {file_len:#x}, before {offset:#x} + {len:#x}")]
    PastEndOfFile {
        /// Offset of the range in the file.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Size of the file in bytes.
        file_len: u64,
    },
    /// The file cannot be mapped.
    #[error("cannot map the client's file: {0}")]
    Mmap(#[source] std::io::Error),
}

bitflags::bitflags! {
    /// What the device may do with a range.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Read.
        const READ = 1;
        /// Write.
        const WRITE = 2;
    }
}

/// Where a range's memory is.
#[derive(Debug)]
pub enum Source {
    /// In a file that can be mapped: memfd, huge page file, shared memory.
    File {
        /// The file; not needed after the range is mapped.
        file: File,
        /// Offset of the range in the file, in bytes.
        offset: u64,
    },
    /// In a process, accessed by its `/proc/PID/mem` or `/proc/self/mem`, opened for reading and writing.
    Process {
        /// That file.
        mem: Arc<File>,
        /// Start of the range in the process.
        address: u64,
    },
    /// Not accessible: the range is mapped, but every access faults.
    Unreachable,
}
