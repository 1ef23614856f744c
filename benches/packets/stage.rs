//! The frames, and how they come to a queue.

use std::sync::Arc;

use mlx5_benches::Failure;
use mlx5_dv::Mac;
use mlx5_dv::objects::{FlowMatch, FlowMatcher, FlowRule, Tir};

/// Bytes of a frame, without the FCS, which makes it 64.
pub const FRAME: usize = 60;
/// Frames of the largest burst.
pub const MOST: usize = 64;
/// Entries of each queue.
pub const DEPTH: u32 = 1024;
/// An address that nobody has.
pub const NOBODY: Mac = Mac([2, 0, 0, 0, 0, 0x99]);
pub const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 0x98];
/// Ethernet type of the frames: one for experiments.
pub const ETHERTYPE: u16 = 0x88b5;

pub type Frame = [u8; FRAME];

/// Steers our frames to `tir`.
pub fn steer(tir: &Arc<Tir>) -> Result<FlowRule, Failure> {
    let matched = FlowMatch::new().destination_mac(NOBODY).ethertype(ETHERTYPE);
    let matcher = FlowMatcher::create(tir.device(), 0, &matched)?;
    Ok(FlowRule::beside_kernel(&matcher, &matched, tir)?)
}
