//! Paths from the function to a remote, and what a queue pair needs to know of one.

use std::net::IpAddr;

use mlx5_dv::objects::{AddressPath, RtrAttributes, RtsAttributes};
use mlx5_dv::{Device, Mac};

use crate::error::ManagerError;
use crate::machine::{Agreed, Parameters, Path};
use crate::message::{Gid, address_of, gid_of};

/// Path to `remote` from the local GID of the same kind: link-local or not, IPv4 or IPv6.
pub(crate) fn path_to(device: &Device, remote: IpAddr) -> Result<Path, ManagerError> {
    let kind = |address: IpAddr| match address {
        IpAddr::V4(_) => 4,
        IpAddr::V6(address) if address.is_unicast_link_local() => 10,
        IpAddr::V6(_) => 6,
    };
    let gids = device.gids();
    let local = gids.iter().find(|gid| kind(address_of(gid.address.octets())) == kind(remote.to_canonical()));
    let local = local.ok_or_else(|| no_gid(device, remote))?;
    Ok(Path { local: local.address.octets(), remote: gid_of(remote) })
}

/// The error that no GID of `device` reaches `remote`.
pub(crate) fn no_gid(device: &Device, remote: IpAddr) -> ManagerError {
    let gids: Vec<_> = device.gids().iter().map(|gid| address_of(gid.address.octets()).to_string()).collect();
    let mend = match device.is_owned() {
        true => "Options::ip sets an address",
        false => "give its network interface an address (ip addr add), and open the device again",
    };
    ManagerError::NoGid { remote, gids: gids.join(", "), mend }
}

/// MAC address of a local GID, or of a link-local one.
pub(crate) fn known_mac(device: &Device, gid: Gid) -> Option<Mac> {
    let own = device.gids().iter().find(|own| own.address.octets() == gid).map(|own| own.mac);
    own.or_else(|| AddressPath::link_local(gid).map(|path| path.mac))
}

/// How many READs and atomics a card can have in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CardLimits {
    /// Of the remote.
    responder_resources: u8,
    /// Of its own.
    initiator_depth: u8,
}

impl CardLimits {
    pub(crate) fn of(device: &Device) -> Self {
        let most = |log: u8| 1 << log.min(7);
        let caps = device.caps();
        CardLimits { responder_resources: most(caps.log_max_ra_res_qp), initiator_depth: most(caps.log_max_ra_req_qp) }
    }

    /// `parameters`, but no more in flight than the card can have.
    pub(crate) fn within(self, parameters: &Parameters) -> Parameters {
        Parameters {
            responder_resources: parameters.responder_resources.min(self.responder_resources),
            initiator_depth: parameters.initiator_depth.min(self.initiator_depth),
            ..parameters.clone()
        }
    }
}

/// Attributes of the queue pair of a connection along `path`. The offer of a request may be beyond the limits.
pub(crate) fn attributes(limits: CardLimits, agreed: &Agreed, path: AddressPath) -> (RtrAttributes, RtsAttributes) {
    let path =
        AddressPath { traffic_class: agreed.route.traffic_class, service_level: agreed.route.service_level, ..path };
    let rtr = RtrAttributes {
        path_mtu: Some(agreed.route.path_mtu),
        max_dest_rd_atomic: Some(agreed.responder_resources.min(limits.responder_resources)),
        ..RtrAttributes::new(agreed.remote_qpn, agreed.rq_psn, path)
    };
    let rts = RtsAttributes {
        sq_psn: agreed.sq_psn,
        timeout: agreed.route.local_ack_timeout,
        retry_count: agreed.route.retry_count,
        rnr_retry: agreed.rnr_retry_count,
        max_rd_atomic: Some(agreed.initiator_depth.min(limits.initiator_depth)),
    };
    (rtr, rts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_beyond_the_card_is_cut() {
        let limits = CardLimits { responder_resources: 16, initiator_depth: 8 };
        let path = AddressPath::new([0; 16], Mac([0; 6]));
        for (offered, cut) in [((128, 128), (Some(16), Some(8))), ((2, 3), (Some(2), Some(3)))] {
            let mut agreed = Agreed::none(Path { local: [0; 16], remote: [0; 16] });
            (agreed.responder_resources, agreed.initiator_depth) = offered;
            let (rtr, rts) = attributes(limits, &agreed, path);
            assert_eq!((rtr.max_dest_rd_atomic, rts.max_rd_atomic), cut);
        }
    }
}
