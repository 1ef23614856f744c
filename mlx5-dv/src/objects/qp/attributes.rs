//! Attributes of a connected queue pair's transitions.

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::values::{PathMtu, ServiceType};

use super::ece::EceOptions;
use super::path::AddressPath;
use crate::caps::{CapPage, Caps};
use crate::error::{Error, Invalid};
use crate::objects::check::{fits, lag_port, within};
use crate::objects::mkey::AccessFlags;
use crate::setters::setters;

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
    /// Index of the P_Key of its packets in the port's table ([`Caps::pkey_table_len`]): the partition of an InfiniBand
    /// fabric that it is in. Ports of Ethernet have index 0 alone.
    pub pkey_index: u16,
}

setters! {
    InitAttributes {
        port: u8;
        remote_access: AccessFlags;
        pkey_index: u16;
    }
}

impl Default for InitAttributes {
    /// Port 1, its first P_Key; the remote may write and read.
    fn default() -> Self {
        let remote_access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        InitAttributes { port: 1, remote_access, pkey_index: 0 }
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
    /// or the card's limit (`log_max_ra_res_qp`).
    pub max_dest_rd_atomic: Option<u8>,
    /// RNR NAK timer code sent to the remote if no receive is posted, 5 bits. IBTA 9.7.5.2.8. Default: 12 (0.64 ms).
    pub min_rnr_timer: u8,
    /// Options that the two ends agreed on. Default: none.
    pub ece: Option<EceOptions>,
    /// The port of a bond (LAG) by which it sends, from 1. Default: the card's choice. Not tried with a card yet.
    pub lag_port: Option<u8>,
    /// Another P_Key than that of [`InitAttributes`], by its index. Default: that.
    pub pkey_index: Option<u16>,
}

setters! {
    RtrAttributes {
        path_mtu: Some(PathMtu);
        max_dest_rd_atomic: Some(u8);
        min_rnr_timer: u8;
        ece: Some(EceOptions);
        lag_port: Some(u8);
        pkey_index: Some(u16);
    }
}

impl RtrAttributes {
    /// Connects to queue pair `remote_qpn`, whose first PSN is `rq_psn`; everything else is default.
    pub fn new(remote_qpn: u32, rq_psn: u32, path: AddressPath) -> Self {
        RtrAttributes {
            remote_qpn,
            rq_psn,
            path,
            path_mtu: None,
            max_dest_rd_atomic: None,
            min_rnr_timer: 12,
            ece: None,
            lag_port: None,
            pkey_index: None,
        }
    }

    /// Log of `max_dest_rd_atomic`.
    pub(super) fn log_max_dest_rd_atomic(&self, caps: &Caps) -> Result<u8, Invalid> {
        let (wanted, most) = (self.max_dest_rd_atomic, caps.log_max_ra_res_qp);
        log_outstanding("max_dest_rd_atomic", wanted, "log_max_ra_res_qp", most)
    }

    /// `lag_tx_port_affinity` of the context; 0 leaves the choice to the card.
    pub(super) fn lag_affinity(&self, caps: &Caps) -> Result<u8, Error> {
        let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or_default();
        let may_choose = ("init2_lag_tx_port_affinity", general.init2_lag_tx_port_affinity());
        lag_port(self.lag_port, "a queue pair", &general, may_choose)
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
    /// card's limit (`log_max_ra_req_qp`; `log_max_ra_req_dc` of a dynamically connected initiator).
    pub max_rd_atomic: Option<u8>,
}

setters! {
    RtsAttributes {
        timeout: u8;
        retry_count: u8;
        rnr_retry: u8;
        max_rd_atomic: Some(u8);
    }
}

impl RtsAttributes {
    /// Starts at PSN `sq_psn`; everything else is default.
    pub fn new(sq_psn: u32) -> Self {
        RtsAttributes { sq_psn, timeout: 14, retry_count: 7, rnr_retry: 7, max_rd_atomic: None }
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
    /// UDP source port of the packets that follow, from 0xc000: another way through a fabric that spreads flows (ECMP);
    /// for a connection in RTS, reliable or not, on a card with `rts2rts_qp_udp_sport`.
    pub udp_sport: Option<u16>,
}

setters! {
    QpChanges {
        remote_access: Some(AccessFlags);
        min_rnr_timer: Some(u8);
        qkey: Some(u32);
        udp_sport: Some(u16);
    }
}

/// Log of the outstanding operations where none are asked for.
const LOG_OUTSTANDING: u8 = 4;

/// Log of the number of outstanding operations, which `field` asks for, and `capability` limits to `log_most`.
pub(super) fn log_outstanding(
    field: &'static str,
    wanted: Option<u8>,
    capability: &'static str,
    log_most: u8,
) -> Result<u8, Invalid> {
    // The numbers of verbs have eight bits.
    let log_most = log_most.min(7);
    let Some(wanted) = wanted else { return Ok(LOG_OUTSTANDING.min(log_most)) };
    within(field, wanted.into(), capability, log_most)?;
    Ok(u32::from(wanted.max(1)).next_power_of_two().trailing_zeros() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::RawPage;
    use crate::net::Mac;
    use mlx5_prm::layout::Layout;

    #[test]
    fn the_port_of_a_bond_is_the_card_s_choice_unless_it_lets_software_choose_in_init2rtr() {
        let caps = |may_choose: bool| {
            let mut general = CmdHcaCap::ZERO;
            general.w().num_lag_ports(2).init2_lag_tx_port_affinity(may_choose);
            let page = RawPage { page: CapPage::General, max: vec![], current: general.as_bytes().to_vec() };
            Caps { pages: vec![page], ..Caps::default() }
        };
        let attributes = RtrAttributes::new(1, 0, AddressPath::new([0; 16], Mac([0; 6])));
        assert_eq!(attributes.lag_affinity(&caps(false)).unwrap(), 0);
        let second = attributes.lag_port(2);
        assert_eq!(second.lag_affinity(&caps(true)).unwrap(), 2);
        let refused = second.lag_affinity(&caps(false)).unwrap_err().to_string();
        assert!(refused.contains("init2_lag_tx_port_affinity"), "{refused}");
    }

    #[test]
    fn operations_under_way_are_a_power_of_two_within_the_card_s_limit() {
        let log = |wanted, most| log_outstanding("max_rd_atomic", wanted, "log_max_ra_req_qp", most);
        assert_eq!([Some(0), Some(3), Some(16), None].map(|wanted| log(wanted, 4).unwrap()), [0, 2, 4, 4]);
        assert_eq!([log(None, 2).unwrap(), log(None, 7).unwrap(), log(Some(128), 20).unwrap()], [2, 4, 7]);
        let refused = log(Some(17), 4).unwrap_err().to_string();
        assert!(
            ["max_rd_atomic", "17", "16", "log_max_ra_req_qp"].iter().all(|word| refused.contains(word)),
            "{refused}"
        );
    }
}
