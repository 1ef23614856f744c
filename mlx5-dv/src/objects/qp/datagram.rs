//! Queue pairs for unreliable datagrams, each of which can send to every other.

use mlx5_prm::cmd::{Init2rtrQpIn, Rst2initQpIn, Rtr2rtsQpIn};
use mlx5_prm::ctx::{Ads, Qpc};
use mlx5_prm::ib::GSI_QKEY;
use mlx5_prm::values::{PathMigration, PathMtu, QpState, ServiceType};
use mlx5_prm::wqe::UdAdrsVector;

use super::QueuePair;
use super::path::AddressPath;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::net::PortInfo;
use crate::objects::check::{fits, pkey_exists, port_exists};

/// Attributes of a queue pair for datagrams.
#[derive(Debug, Clone, Copy)]
pub struct DatagramAttributes {
    /// Local port number, from 1. Default of [`new`](Self::new): 1.
    pub port: u8,
    /// Q_Key that received datagrams must carry. Queue pair 1 uses [`GSI_QKEY`].
    pub qkey: u32,
    /// First PSN to send, 24 bits. Default of [`new`](Self::new): 0.
    pub sq_psn: u32,
    /// Index of the P_Key of its datagrams, as [`InitAttributes::pkey_index`](super::attributes::InitAttributes).
    /// Default of [`new`](Self::new): 0.
    pub pkey_index: u16,
}

impl DatagramAttributes {
    /// Receives datagrams that carry `qkey`; everything else is default.
    pub fn new(qkey: u32) -> Self {
        DatagramAttributes { port: 1, qkey, sq_psn: 0, pkey_index: 0 }
    }

    /// For queue pair 1: management datagrams.
    pub fn general_services() -> Self {
        DatagramAttributes::new(GSI_QKEY)
    }
}

/// Destination of datagrams, in the format of the WQE: path, queue pair and Q_Key. Create it once and use it for any
/// number of datagrams. PRM "Datagram Segment".
#[derive(Debug, Clone, Copy)]
pub struct AddressHandle(UdAdrsVector);

impl AddressHandle {
    /// Destination queue pair `qpn`, 24 bits, along `path`, with `qkey`. If the path has no UDP source port, one is
    /// derived from `qpn` and the GID; [`to`](Self::to) keeps it. A Q_Key whose highest bit is set stands for the Q_Key
    /// of the sending queue pair. Errors: [`Error::Invalid`] for a value out of range.
    pub fn new(device: &Device, path: &AddressPath, qpn: u32, qkey: u32) -> Result<Self, Error> {
        path.check(device.caps())?;
        AddressHandle(path.vector(qpn)).to(qpn, qkey)
    }

    /// Destination is another queue pair along the same path. Errors: [`Error::Invalid`] for a `qpn` of more than 24
    /// bits.
    pub fn to(mut self, qpn: u32, qkey: u32) -> Result<Self, Error> {
        fits("qpn", qpn, 24)?;
        self.0.w().destination_qp_dct(qpn).dc_key(u64::from(qkey) << 32);
        Ok(self)
    }

    /// The datagram segment.
    #[inline(always)]
    pub(crate) fn vector(&self) -> &UdAdrsVector {
        &self.0
    }
}

/// Services with datagrams.
pub(crate) const DATAGRAMS: &[ServiceType] = &[ServiceType::Ud, ServiceType::Qp1];

impl QueuePair {
    /// Takes a queue pair for datagrams from RST to RTS. If firmware refuses a step, call [`reset`](Self::reset) before
    /// the next try.
    ///
    /// # Errors
    /// [`Error::State`] in any state but RST, [`Error::Invalid`] for a value out of range or a queue pair for
    /// connections, [`Error::Command`].
    pub fn activate(&self, attributes: &DatagramAttributes) -> Result<(), Error> {
        self.must_be(DATAGRAMS, "activate", "init, ready_to_receive and ready_to_send")?;
        let mut state = self.lock();
        if *state != QpState::Rst {
            return Err(self.forbidden(*state, "activate", "RST", QpState::Rst));
        }
        port_exists(attributes.port, self.device().caps())?;
        pkey_exists(attributes.pkey_index, self.device().caps())?;
        fits("sq_psn", attributes.sq_psn, 24)?;

        let (mut init, mut context, mut path) = (Rst2initQpIn::default(), Qpc::default(), Ads::default());
        path.w().vhca_port_num(attributes.port).pkey_index(attributes.pkey_index);
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .primary_address_path(&path)
            .q_key(attributes.qkey)
            .counter_set_id(self.counter_set_id());
        init.w().qpn(self.qpn).qpc(&context);
        self.step(&mut state, QpState::Init, &init)?;

        // As on Linux: the port's MTU is the limit; management datagrams have 256 bytes, and their port at each step.
        let is_gsi = self.options.service == ServiceType::Qp1;
        let (mtu, path) = if is_gsi { (PathMtu::Mtu256, path) } else { (PathMtu::Mtu4096, Ads::default()) };
        let (mut rtr, mut context) = (Init2rtrQpIn::default(), Qpc::default());
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .primary_address_path(&path)
            .mtu(mtu)
            .log_msg_max(log_limit(self.options.service));
        rtr.w().qpn(self.qpn).qpc(&context);
        self.step(&mut state, QpState::Rtr, &rtr)?;

        let (mut rts, mut context) = (Rtr2rtsQpIn::default(), Qpc::default());
        context.w().pm_state(PathMigration::Migrated).primary_address_path(&path).next_send_psn(attributes.sq_psn);
        rts.w().qpn(self.qpn).qpc(&context);
        self.step(&mut state, QpState::Rts, &rts)?;
        Ok(())
    }
}

/// Log of the length of the longest datagram in bytes.
const LOG_MOST: u8 = 12;
/// Log of the length in bytes that every port must carry.
const LOG_LEAST: u8 = 8;

/// Log of the length in bytes of the longest datagram of `service`. Management datagrams have 256 bytes. IBTA 13.4.
fn log_limit(service: ServiceType) -> u8 {
    if service == ServiceType::Qp1 { LOG_LEAST } else { LOG_MOST }
}

/// Log of the length in bytes of the longest datagram of `service` that fits `port`.
pub(crate) fn log_most(service: ServiceType, port: &PortInfo) -> Result<u8, Invalid> {
    let (headers, mtu) = (port.headers(), port.mtu);
    let fits = |log: &u8| (1 << log) + headers <= u32::from(mtu);
    (LOG_LEAST..=log_limit(service)).rev().find(fits).ok_or_else(|| {
        let (what, payload) = ("the smallest path MTU", 1 << LOG_LEAST);
        Invalid::PortMtu { what, payload, headers, mtu, max_mtu: None, syndrome: None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Mac;

    #[test]
    fn the_longest_datagram_is_a_power_of_two_that_passes_the_port() {
        let ethernet = |mtu| PortInfo { up: true, admin_up: true, mac: Mac([2; 6]), lid: None, mtu, max_mtu: 0 };
        let mtus = [1500 + 22, 4096 + 118, 9000 + 22, 256 + 118];
        let longest = |service| mtus.map(|mtu| log_most(service, &ethernet(mtu)).unwrap());
        assert_eq!((longest(ServiceType::Ud), longest(ServiceType::Qp1)), ([10, 12, 12, 8], [8; 4]));
        let infiniband = |mtu| PortInfo { lid: Some(7), ..ethernet(mtu) };
        let longest = |mtu| log_most(ServiceType::Ud, &infiniband(mtu)).unwrap();
        assert_eq!([256, 2048, 4096].map(longest), [8, 11, 12]);
        assert_eq!([256, 2048, 4096].map(|mtu| infiniband(mtu).path_mtu()), [Some(256), Some(2048), Some(4096)]);
        assert!(matches!(
            log_most(ServiceType::Ud, &ethernet(256 + 117)),
            Err(Invalid::PortMtu { mtu: 373, payload: 256, headers: 118, .. })
        ));
    }
}
