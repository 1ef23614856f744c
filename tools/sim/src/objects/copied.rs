//! A WQE that arrived with its doorbell. PRM "BlueFlame".

use mlx5_prm::wqe::{CtrlSeg, SEGMENT, WQEBB};

/// A WQE that software copied to a BlueFlame buffer, and that arrived there whole.
#[derive(Debug, Clone)]
pub(crate) struct CopiedWqe {
    /// Its index, in WQEBBs posted.
    pub(crate) index: u16,
    /// Its WQEBBs.
    pub(crate) bytes: Vec<u8>,
}

/// WQEBBs of a WQE, by `ds` of its control segment.
pub(crate) fn blocks_of(ctrl: &CtrlSeg) -> u16 {
    u16::from(ctrl.ds()).div_ceil((WQEBB / SEGMENT) as u16).max(1)
}

impl CopiedWqe {
    /// WQEBB `block` of it.
    pub(crate) fn block(&self, block: u16) -> Option<&[u8]> {
        self.bytes.chunks_exact(WQEBB).nth(block.into())
    }
}
