//! Limits of a queue pair's path: message length, and packets for each message. PRM "Queue Pair Context", `log_msg_max`
//! and `mtu`.

use crate::objects::Qp;
use crate::transport::Psn;

/// Payload bytes of a full packet.
pub(crate) fn mtu(qp: &Qp) -> u32 {
    qp.mtu.bytes().unwrap_or(256)
}

/// Packets of a message of `len` bytes, at least one.
pub(crate) fn packets(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu).max(1)
}

/// Maximum message length that the queue pair sends or accepts, from its context. Limited to half the PSN space, so
/// that old and new PSNs can be told apart.
pub(crate) fn longest(qp: &Qp) -> u64 {
    const MOST: u64 = 1 << 31;
    let by_psn = u64::from(Psn::MASK >> 1) * u64::from(mtu(qp));
    (1u64 << qp.context.log_msg_max()).min(MOST).min(by_psn)
}
