//! What a target is to be.

use std::time::Duration;

use crate::error::TargetError;
use crate::wire::{DISCOVERY, port};

/// Asynchronous event requests of a host that are held at once.
pub(super) const MOST_AERS: usize = 4;
/// Longest transfer: 4 KiB times two to this.
pub(super) const MDTS: u8 = 8;
/// The same in bytes.
pub(super) const LONGEST: usize = 4096 << MDTS;
/// Longest data in a capsule.
const MOST_IN_CAPSULE: usize = 65536;

/// The subsystem, and limits of its hosts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TargetOptions {
    /// The subsystem's name.
    pub nqn: String,
    /// Port that it listens on. Default: 4420.
    pub port: u16,
    /// Serial number, 20 letters at most.
    pub serial: String,
    /// Names of the hosts that may connect; any if there are none. Default: none.
    pub hosts: Vec<String>,
    /// Commands of a queue under way at once, 32 to 1024. Default: 128.
    pub depth: u16,
    /// I/O queues of a host at most. Default: 16.
    pub io_queues: u16,
    /// Longest data in a capsule of an I/O queue, in bytes: a multiple of 16 up to 64 KiB. Default: 8 KiB.
    pub in_capsule: usize,
    /// Queues of all hosts at most. Default: 256.
    pub queues: usize,
    /// Bytes of a chunk for data under way: a multiple of 4096. Default: 128 KiB.
    pub chunk: usize,
    /// Chunks of all queues. A command waits while there are too few. Default: 256.
    pub chunks: usize,
    /// How long a queue may take from its connection to its CONNECT. Default: 10 s.
    pub connect_timeout: Duration,
}

impl TargetOptions {
    /// Of the subsystem `nqn`; all else default.
    pub fn new(nqn: &str) -> Self {
        TargetOptions {
            nqn: nqn.to_owned(),
            port: port::NVME,
            serial: "mlx5-nvme".to_owned(),
            hosts: Vec::new(),
            depth: 128,
            io_queues: 16,
            in_capsule: 8192,
            queues: 256,
            chunk: 128 << 10,
            chunks: 256,
            connect_timeout: Duration::from_secs(10),
        }
    }

    /// Whether all is within its limits.
    pub(super) fn check(&self) -> Result<(), TargetError> {
        let no = |what, given: &dyn ToString, mend| Err(TargetError::Option { what, given: given.to_string(), mend });
        if !self.nqn.starts_with("nqn.") || self.nqn.len() > 223 || self.nqn == DISCOVERY {
            return no(
                "nqn",
                &self.nqn,
                "it must start with \"nqn.\", have 223 letters at most, and be no discovery's",
            );
        }
        if !(32..=1024).contains(&self.depth) {
            return no("depth", &self.depth, "it must be 32 to 1024");
        }
        if self.io_queues == 0 {
            return no("io_queues", &self.io_queues, "it must be 1 or more");
        }
        if self.in_capsule > MOST_IN_CAPSULE || !self.in_capsule.is_multiple_of(16) {
            return no("in_capsule", &self.in_capsule, "it must be a multiple of 16 up to 65536");
        }
        if self.chunk == 0 || !self.chunk.is_multiple_of(4096) {
            return no("chunk", &self.chunk, "it must be a multiple of 4096");
        }
        if self.chunks * self.chunk < LONGEST {
            return no("chunks", &self.chunks, "all chunks together must hold the longest transfer, 1 MiB");
        }
        Ok(())
    }
}
