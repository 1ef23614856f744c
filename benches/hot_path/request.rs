//! The work requests: the same for the driver and for the bare loops.

use std::hint::black_box;

use mlx5_dv::queue::{DataSegment, RemoteAddress};

/// Different requests used in turn, so that no loop can keep one in registers.
pub const REQUESTS: usize = 16;
/// Message size in bytes.
pub const INLINE: usize = 64;

/// Sixteen messages of 64 bytes.
pub struct Requests {
    pub remote: [RemoteAddress; REQUESTS],
    pub local: [DataSegment; REQUESTS],
    pub data: [[u8; INLINE]; REQUESTS],
}

impl Requests {
    /// Messages from `local` to `remote`, which have room for all of them; their values are opaque to the compiler.
    pub fn new(remote: RemoteAddress, local: DataSegment) -> Self {
        let at = |i: usize| (i * INLINE) as u64;
        black_box(Requests {
            remote: std::array::from_fn(|i| RemoteAddress { addr: remote.addr + at(i), ..remote }),
            local: std::array::from_fn(|i| DataSegment { addr: local.addr + at(i), len: INLINE as u32, ..local }),
            data: std::array::from_fn(|i| std::array::from_fn(|j| (i * 31 + j) as u8)),
        })
    }
}
