//! Attributes of a connected queue pair's transitions.

use mlx5_prm::values::{PathMtu, ServiceType};

use super::ece::EceOptions;
use super::path::AddressPath;
use crate::error::Error;
use crate::objects::check::fits;
use crate::objects::mkey::AccessFlags;

/// Services with a single remote.
pub(super) const CONNECTED: &[ServiceType] = &[ServiceType::Rc, ServiceType::Uc, ServiceType::Xrc];

/// Attributes of RST to INIT.
#[derive(Debug, Clone, Copy)]
pub struct InitAttributes {
    /// Local port number, from 1.
    pub port: u8,
    /// Access rights of the remote: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC. Each key must allow the access, too. An
    /// unreliable connection uses only REMOTE_WRITE.
    pub remote_access: AccessFlags,
}

impl Default for InitAttributes {
    /// Port 1; the remote may write and read.
    fn default() -> Self {
        InitAttributes { port: 1, remote_access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ }
    }
}

/// Attributes of INIT to RTR. An unreliable connection ignores `max_dest_rd_atomic` and `min_rnr_timer`.
#[derive(Debug, Clone, Copy)]
pub struct RtrAttributes {
    /// The remote queue pair, 24 bits.
    pub remote_qpn: u32,
    /// First PSN of the remote, 24 bits.
    pub rq_psn: u32,
    /// Path to the remote.
    pub path: AddressPath,
    /// Path MTU, the same on both sides. Default of [`new`](Self::new): the largest that fits the port's current MTU.
    pub path_mtu: Option<PathMtu>,
    /// Maximum number of outstanding RDMA READs and atomics of the remote, rounded up to a power of two. Default: 16,
    /// or the card's limit.
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer code sent to the remote if no receive is posted, 5 bits. IBTA 9.7.5.2.8. Default: 12 (0.64 ms).
    pub min_rnr_timer: u8,
    /// Options that the two ends agreed on. Default: none.
    pub ece: Option<EceOptions>,
}

impl RtrAttributes {
    /// Connects to queue pair `remote_qpn`, whose first PSN is `rq_psn`; everything else is default.
    pub fn new(remote_qpn: u32, rq_psn: u32, path: AddressPath) -> Self {
        let (max_dest_rd_atomic, min_rnr_timer) = (16, 12);
        RtrAttributes { remote_qpn, rq_psn, path, path_mtu: None, max_dest_rd_atomic, min_rnr_timer, ece: None }
    }
}

/// Attributes of RTR to RTS. An unreliable connection uses only `sq_psn`.
#[derive(Debug, Clone, Copy)]
pub struct RtsAttributes {
    /// First PSN to send, 24 bits.
    pub sq_psn: u32,
    /// Local ACK timeout: 4.096 us * 2^timeout, 5 bits; 0 means none. IBTA 9.7.6.1.3. Default of [`new`](Self::new): 14
    /// (67 ms).
    pub timeout: u8,
    /// Number of retries after a timeout, 0 to 7. Default: 7.
    pub retry_count: u8,
    /// Number of retries after an RNR NAK, 0 to 6; 7 means no limit. Default: 7.
    pub rnr_retry: u8,
    /// Maximum number of our outstanding RDMA READs and atomics, rounded up to a power of two. Default: 16, or the
    /// card's limit.
    pub max_rd_atomic: u8,
}

impl RtsAttributes {
    /// Starts at PSN `sq_psn`; everything else is default.
    pub fn new(sq_psn: u32) -> Self {
        RtsAttributes { sq_psn, timeout: 14, retry_count: 7, rnr_retry: 7, max_rd_atomic: 16 }
    }
}

impl RtsAttributes {
    /// `Ok` if its values fit.
    pub(super) fn check(&self) -> Result<(), Error> {
        fits("sq_psn", self.sq_psn, 24)?;
        fits("timeout", self.timeout.into(), 5)?;
        fits("retry_count", self.retry_count.into(), 3)?;
        Ok(fits("rnr_retry", self.rnr_retry.into(), 3)?)
    }
}

/// Changes for [`QueuePair::modify`](super::QueuePair::modify). `None` leaves an attribute unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpChanges {
    /// Access rights of the remote; for a connection.
    pub remote_access: Option<AccessFlags>,
    /// RNR NAK timer code sent to the remote if no receive is posted, 5 bits; for a reliable connection in RTS.
    pub min_rnr_timer: Option<u8>,
    /// Q_Key that received datagrams must carry; for a queue pair for datagrams in RTS.
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

/// Log of `wanted` outstanding operations, limited to `log_most`.
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
