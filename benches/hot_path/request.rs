//! The work requests: the same for the driver and for the bare loops.

use std::hint::black_box;
use std::ops::Range;

use mlx5_dv::objects::FrameSource;
use mlx5_dv::queue::{DataSegment, RemoteAddress};

/// Different requests used in turn, so that no loop can keep one in registers.
pub const REQUESTS: usize = 16;
/// Message size in bytes.
pub const INLINE: usize = 64;

/// Number of the first request of a loop with batches of `BATCH`: 0. The compiler does not know it where it would
/// otherwise know with which of the sixteen each batch begins.
#[inline(always)]
pub fn first_request<const BATCH: usize>() -> usize {
    if BATCH.is_multiple_of(REQUESTS) { black_box(0) } else { 0 }
}

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

/// Bytes of a frame that are in its WQE: an Ethernet header with a VLAN tag, as libmlx5 and Linux have it.
pub const HEADER: usize = 18;

/// Frames of the largest burst.
pub const BURST: usize = 64;

/// Sixteen frames of 64 bytes.
pub struct FrameRequests {
    pub data: [[u8; INLINE]; REQUESTS],
    /// The frames in memory, several times.
    pub whole: [DataSegment; BURST],
    /// What follows their first [`HEADER`] bytes.
    pub behind: [DataSegment; REQUESTS],
    /// Where they are in `memory`, which `source` is made of.
    pub places: [Range<usize>; REQUESTS],
    pub memory: DataSegment,
    pub source: FrameSource,
    /// Most segments of frames of a multi-packet WQE of the card.
    pub most: usize,
}

impl FrameRequests {
    /// Frames with this `header`, one after the other from the start of `memory`, which is that of `source`; their
    /// values are opaque to the compiler.
    pub fn new(header: &[u8], memory: DataSegment, source: FrameSource, most: usize) -> Self {
        let at = |i: usize| (i * INLINE) as u64;
        let rest = HEADER as u64;
        let byte = |i: usize, j: usize| header.get(j).copied().unwrap_or((i * 31 + j) as u8);
        black_box(FrameRequests {
            data: std::array::from_fn(|i| std::array::from_fn(|j| byte(i, j))),
            whole: std::array::from_fn(|i| DataSegment {
                addr: memory.addr + at(i % REQUESTS),
                len: INLINE as u32,
                ..memory
            }),
            behind: std::array::from_fn(|i| DataSegment {
                addr: memory.addr + at(i) + rest,
                len: (INLINE - HEADER) as u32,
                ..memory
            }),
            places: std::array::from_fn(|i| i * INLINE..(i + 1) * INLINE),
            memory,
            source,
            most,
        })
    }
}
