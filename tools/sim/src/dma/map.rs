//! What a client maps: where the memory is, what the device may do with it, and why a range was refused.

use std::fs::File;
use std::sync::Arc;

use thiserror::Error;

/// Why a range was not mapped.
#[derive(Debug, Error)]
pub enum MapError {
    /// The range is empty, or runs past the end of the address space.
    #[error("{len:#x} bytes at IOVA {iova:#x} are no range")]
    NoRange {
        /// First address.
        iova: u64,
        /// Bytes.
        len: u64,
    },
    /// A part of it is mapped already.
    #[error("IOVA range {iova:#x} + {len:#x} overlaps the mapped range at {other:#x}")]
    Overlap {
        /// First address.
        iova: u64,
        /// Bytes.
        len: u64,
        /// First address of the range that is there.
        other: u64,
    },
    /// The file has no memory there.
    #[error("the file ends at {file_len:#x}, before {offset:#x} + {len:#x}")]
    PastEndOfFile {
        /// Where the range begins in the file.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The file's bytes.
        file_len: u64,
    },
    /// The file's memory cannot be mapped here.
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

/// Where the memory behind a range is.
#[derive(Debug)]
pub enum Source {
    /// In a file that can be mapped: a memfd, a huge-page file, shared memory.
    File {
        /// The file; not needed any more once the range is mapped.
        file: File,
        /// Where in it the range begins, bytes.
        offset: u64,
    },
    /// In a process, reached through its `/proc/PID/mem` or `/proc/self/mem`, opened for reading and writing.
    Process {
        /// That file.
        mem: Arc<File>,
        /// The range's first address in the process.
        address: u64,
    },
    /// Nowhere that the device could reach. The range is there, but every access faults.
    Unreachable,
}
