//! Paths from the function to a remote, and what a queue pair needs to know of one.

use std::net::IpAddr;

use mlx5_dv::objects::{AddressPath, RtrAttributes, RtsAttributes};
use mlx5_dv::{Device, Mac};

use crate::error::ManagerError;
use crate::machine::{Agreed, Path};
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
        true => "an IPv4 address is set by Options::ipv4",
        false => "give its network interface an address (ip addr add), and open the device again",
    };
    ManagerError::NoGid { remote, gids: gids.join(", "), mend }
}

/// MAC address of a local GID, or of a link-local one.
pub(crate) fn known_mac(device: &Device, gid: Gid) -> Option<Mac> {
    let own = device.gids().iter().find(|own| own.address.octets() == gid).map(|own| own.mac);
    own.or_else(|| AddressPath::link_local(gid).map(|path| path.mac))
}

/// Attributes of the queue pair of a connection along `path`.
pub(crate) fn attributes(agreed: &Agreed, path: AddressPath) -> (RtrAttributes, RtsAttributes) {
    let path =
        AddressPath { traffic_class: agreed.route.traffic_class, service_level: agreed.route.service_level, ..path };
    let rtr = RtrAttributes {
        path_mtu: Some(agreed.route.path_mtu),
        max_dest_rd_atomic: Some(agreed.responder_resources),
        ..RtrAttributes::new(agreed.remote_qpn, agreed.rq_psn, path)
    };
    let rts = RtsAttributes {
        sq_psn: agreed.sq_psn,
        timeout: agreed.route.local_ack_timeout,
        retry_count: agreed.route.retry_count,
        rnr_retry: agreed.rnr_retry_count,
        max_rd_atomic: Some(agreed.initiator_depth),
    };
    (rtr, rts)
}
