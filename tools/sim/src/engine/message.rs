//! Messages by the queue pair's path: how long they may be, and how many packets they take.

use crate::objects::Qp;
use crate::transport::Psn;

/// Payload bytes of a full packet.
pub(crate) fn mtu(qp: &Qp) -> u32 {
    qp.mtu.bytes().unwrap_or(256)
}

/// Packets of a message of `len` bytes: one at least.
pub(crate) fn packets(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu).max(1)
}

/// Bytes of the longest message that the queue pair sends or takes, by its context. Never so many that the PSNs of one
/// message go half around the circle, where earlier and later cannot be told apart.
pub(crate) fn longest(qp: &Qp) -> u64 {
    const MOST: u64 = 1 << 31;
    let by_psn = u64::from(Psn::MASK >> 1) * u64::from(mtu(qp));
    (1u64 << qp.context.log_msg_max()).min(MOST).min(by_psn)
}
