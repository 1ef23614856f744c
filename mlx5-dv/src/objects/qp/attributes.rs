//! What the steps of a connected queue pair need.

use mlx5_prm::values::PathMtu;

use super::path::AddressPath;
use crate::objects::mkey::AccessFlags;

/// What RST to INIT needs.
#[derive(Debug, Clone, Copy)]
pub struct InitAttributes {
    /// Our port, from 1.
    pub port: u8,
    /// What the remote may do: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC. Each key must allow it too. On an unreliable
    /// connection only REMOTE_WRITE has a meaning.
    pub remote_access: AccessFlags,
}

impl Default for InitAttributes {
    /// Port 1; the remote may write and read.
    fn default() -> Self {
        InitAttributes { port: 1, remote_access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ }
    }
}

/// What INIT to RTR needs. An unreliable connection has no use for `max_dest_rd_atomic` and `min_rnr_timer`.
#[derive(Debug, Clone, Copy)]
pub struct RtrAttributes {
    /// The remote queue pair, 24 bits.
    pub remote_qpn: u32,
    /// First packet sequence number the remote sends, 24 bits.
    pub rq_psn: u32,
    /// Where it is.
    pub path: AddressPath,
    /// Payload of a full packet: the same on both sides. Default of [`new`](Self::new): the largest that the port has
    /// room for as it is now.
    pub path_mtu: Option<PathMtu>,
    /// RDMA READs and atomics of the remote that may be under way at once, rounded up to a power of two. Default: 16,
    /// or what the card can.
    pub max_dest_rd_atomic: u8,
    /// What the remote is told to wait when no receive is posted: a code of 5 bits. Default: 12 (0.64 ms).
    pub min_rnr_timer: u8,
}

impl RtrAttributes {
    /// To queue pair `remote_qpn`, which starts at `rq_psn`; all else default.
    pub fn new(remote_qpn: u32, rq_psn: u32, path: AddressPath) -> Self {
        RtrAttributes { remote_qpn, rq_psn, path, path_mtu: None, max_dest_rd_atomic: 16, min_rnr_timer: 12 }
    }
}

/// What RTR to RTS needs. An unreliable connection has use for `sq_psn` alone.
#[derive(Debug, Clone, Copy)]
pub struct RtsAttributes {
    /// First packet sequence number we send, 24 bits.
    pub sq_psn: u32,
    /// How long to wait for an acknowledgement: 4.096 us times two to this, 5 bits; 0 for ever. Default of
    /// [`new`](Self::new): 14 (67 ms).
    pub timeout: u8,
    /// How often to send again then, 0 to 7. Default: 7.
    pub retry_count: u8,
    /// How often to send again when the remote has no receive posted, 0 to 6; 7 for ever. Default: 7.
    pub rnr_retry: u8,
    /// RDMA READs and atomics of ours that may be under way at once, rounded up to a power of two. Default: 16, or what
    /// the card can.
    pub max_rd_atomic: u8,
}

impl RtsAttributes {
    /// We start at `sq_psn`; all else default.
    pub fn new(sq_psn: u32) -> Self {
        RtsAttributes { sq_psn, timeout: 14, retry_count: 7, rnr_retry: 7, max_rd_atomic: 16 }
    }
}

/// What [`QueuePair::modify`](super::QueuePair::modify) changes. What is `None` stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpChanges {
    /// What the remote may do, of a connection.
    pub remote_access: Option<AccessFlags>,
    /// What the remote is told to wait when no receive is posted: a code of 5 bits. Of a reliable connection in RTS.
    pub min_rnr_timer: Option<u8>,
    /// What a datagram must carry to be received here, of a queue pair of datagrams in RTS.
    pub qkey: Option<u32>,
}

impl QpChanges {
    /// Sets [`remote_access`](Self::remote_access).
    pub fn remote_access(mut self, access: AccessFlags) -> Self {
        self.remote_access = Some(access);
        self
    }

    /// Sets [`min_rnr_timer`](Self::min_rnr_timer).
    pub fn min_rnr_timer(mut self, timer: u8) -> Self {
        self.min_rnr_timer = Some(timer);
        self
    }

    /// Sets [`qkey`](Self::qkey).
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.qkey = Some(qkey);
        self
    }
}

/// log2 of `wanted` operations under way at once, no more than `log_most`.
pub(super) fn log_outstanding(wanted: u8, log_most: u8) -> u8 {
    (u32::from(wanted.max(1)).next_power_of_two().trailing_zeros() as u8).min(log_most).min(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_under_way_are_a_power_of_two_within_the_card_s_limit() {
        assert_eq!(
            [log_outstanding(0, 4), log_outstanding(3, 4), log_outstanding(16, 4), log_outstanding(255, 4)],
            [0, 2, 4, 4]
        );
    }
}
