//! MAC addresses from the kernel's routes and neighbour table, for functions that it drives.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mlx5_dv::discovery::{DeviceName, RdmaGid, Sysfs};
use mlx5_dv::{Device, Mac};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Error;

/// The port of a device: functions of these cards have one.
const PORT: u8 = 1;
/// Multicast group of changes to the neighbour table: `RTNLGRP_NEIGH`.
const NEIGHBOUR_GROUP: u32 = 3;
/// The kernel resolves an address when something is sent to it: a datagram to the discard service (RFC 863).
const DISCARD: u16 = 9;
/// Between two such datagrams: the kernel gives an address up after about three seconds.
const RETRY: Duration = Duration::from_secs(1);
/// How long the kernel may take to answer a request about its tables.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The kernel's entry of the GID at `index` of `device`. `None`: there is none, or the program owns the function, of
/// which the kernel knows nothing.
pub fn gid_at(device: &Device, index: u16) -> Option<RdmaGid> {
    let Ok(DeviceName::Devx(name)) = device.name().parse() else { return None };
    Sysfs::default().gids(&name, PORT).into_iter().find(|gid| gid.index == index)
}

/// The MAC address in packets from the GID `from` to `address`: that of `address`, or of the gateway to it.
///
/// Reads the kernel's tables; where they lack the address, sends it a UDP datagram, which makes the kernel resolve it.
/// Needs no privilege.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::NoRoute`], [`Error::NoMac`], [`Error::NotUnicast`]; [`Error::Unresolved`] after
/// `patience`; [`Error::Io`].
pub fn resolve(from: &RdmaGid, address: IpAddr, patience: Duration) -> Result<Mac, Error> {
    if address.is_multicast() || address.is_unspecified() {
        return Err(Error::NotUnicast(address));
    }
    let name = from.interface.as_deref().ok_or(Error::NoInterface { index: from.index })?;
    // An address of another interface of this host: by its own interface the kernel would look for it on the network.
    if let Some(index) = interface_of(address)? {
        return mac_of_interface(index)?.ok_or(Error::NoMac(address));
    }
    let interface = Interface { name, index: index_of(name)? };
    match interface.route_to(address)? {
        Route::Local => Err(Error::NoMac(address)),
        Route::Unicast(next_hop) => interface.neighbour(next_hop, patience),
    }
}

/// A network interface of the kernel's.
struct Interface<'a> {
    name: &'a str,
    index: u32,
}

/// Where the kernel sends packets to an address.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    /// To this host itself.
    Local,
    /// To this address: the destination, or a gateway.
    Unicast(IpAddr),
}

impl Interface<'_> {
    /// The route to `address` by this interface.
    fn route_to(&self, address: IpAddr) -> Result<Route, Error> {
        let no_route = |route: String| Error::NoRoute { address, interface: self.name.into(), route };
        let mut request = RouteMessage::default();
        request.header.address_family = family(address);
        request.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        request.attributes =
            vec![RouteAttribute::Destination(RouteAddress::from(address)), RouteAttribute::Oif(self.index)];
        let replies = match query_kernel(RouteNetlinkMessage::GetRoute(request), NLM_F_REQUEST) {
            Ok(replies) => replies,
            // The kernel refuses to name a route that is unreachable or prohibited: it names the error instead.
            Err(Error::Io { source, .. }) if source.raw_os_error().is_some() => {
                return Err(no_route(source.to_string()));
            }
            Err(error) => return Err(error),
        };
        let route = replies.into_iter().find_map(|reply| match reply {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        });
        let route = route.ok_or_else(|| no_route("none".into()))?;
        next_hop(&route, address).ok_or_else(|| no_route(format!("{:?}", route.header.kind)))
    }

    /// The MAC address of `next_hop`, which the kernel is made to resolve where it does not know it.
    fn neighbour(&self, next_hop: IpAddr, patience: Duration) -> Result<Mac, Error> {
        let begin = Instant::now();
        // Subscribed before the first look, so that no change is missed.
        let changes = changes()?;
        loop {
            if let Some(mac) = self.known(next_hop)? {
                return Ok(mac);
            }
            let left = patience.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(Error::Unresolved { next_hop, interface: self.name.into(), patience });
            }
            self.trigger_resolution(next_hop)?;
            self.wait_for(next_hop, &changes, left.min(RETRY))?;
        }
    }

    /// Waits until the neighbour table has `next_hop`, for `limit` at most.
    fn wait_for(&self, next_hop: IpAddr, changes: &Socket, limit: Duration) -> Result<(), Error> {
        let begin = Instant::now();
        while let Some(left) = limit.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
            if !is_readable(changes, left)? {
                break;
            }
            match changes.recv_from_full() {
                Ok(_) if self.known(next_hop)?.is_some() => break,
                // More changed than the socket holds: the table is read anyway.
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
                Err(error) => return Err(reading(error)),
            }
        }
        Ok(())
    }

    /// What the neighbour table has.
    fn known(&self, next_hop: IpAddr) -> Result<Option<Mac>, Error> {
        let mut request = NeighbourMessage::default();
        request.header.family = family(next_hop);
        request.header.ifindex = self.index;
        let replies = query_kernel(RouteNetlinkMessage::GetNeighbour(request), NLM_F_REQUEST | NLM_F_DUMP)?;
        Ok(replies.into_iter().find_map(|reply| match reply {
            RouteNetlinkMessage::NewNeighbour(entry) => mac_in(&entry, self.index, next_hop),
            _ => None,
        }))
    }

    /// Sends a datagram to `next_hop`.
    fn trigger_resolution(&self, next_hop: IpAddr) -> Result<(), Error> {
        let sending =
            |source| Error::Io { doing: "sending a datagram that makes the kernel resolve an address", source };
        let (domain, to) = match next_hop {
            IpAddr::V4(address) => (socket2::Domain::IPV4, SocketAddr::V4(SocketAddrV4::new(address, DISCARD))),
            IpAddr::V6(address) => {
                (socket2::Domain::IPV6, SocketAddr::V6(SocketAddrV6::new(address, DISCARD, 0, self.index)))
            }
        };
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).map_err(sending)?;
        socket.set_nonblocking(true).map_err(sending)?;
        socket.bind_device(Some(self.name.as_bytes())).map_err(sending)?;
        match socket.send_to(&[0], &to.into()) {
            Ok(_) => Ok(()),
            // The neighbour failed to answer earlier datagrams; this one has begun anew.
            Err(error) if error.raw_os_error() == Some(EHOSTUNREACH) => Ok(()),
            Err(error) => Err(sending(error)),
        }
    }
}

const ENOBUFS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();
const EHOSTUNREACH: i32 = rustix::io::Errno::HOSTUNREACH.raw_os_error();

/// The index of the local interface that has `address`.
fn interface_of(address: IpAddr) -> Result<Option<u32>, Error> {
    let replies = query_kernel(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_REQUEST | NLM_F_DUMP)?;
    Ok(replies.iter().find_map(|reply| match reply {
        RouteNetlinkMessage::NewAddress(entry) if own_address(entry) == Some(address) => Some(entry.header.index),
        _ => None,
    }))
}

/// The interface's own address: of a point-to-point link, `IFA_ADDRESS` is the remote's.
fn own_address(entry: &AddressMessage) -> Option<IpAddr> {
    let local = entry.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    local.or_else(|| {
        entry.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })
}

/// The MAC address of interface `index`.
fn mac_of_interface(index: u32) -> Result<Option<Mac>, Error> {
    let replies = query_kernel(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_REQUEST | NLM_F_DUMP)?;
    Ok(replies.iter().find_map(|reply| match reply {
        RouteNetlinkMessage::NewLink(link) if link.header.index == index => mac_of_link(link),
        _ => None,
    }))
}

/// The MAC address of an Ethernet interface. The loopback's is zero.
fn mac_of_link(link: &LinkMessage) -> Option<Mac> {
    let bytes = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    bytes.filter(|bytes| *bytes != [0; 6]).map(Mac)
}

/// Where `route`, which was asked for `address`, leads; `None` where it drops or rejects.
fn next_hop(route: &RouteMessage, address: IpAddr) -> Option<Route> {
    match route.header.kind {
        RouteType::Local => Some(Route::Local),
        RouteType::Unicast => {
            let gateway = route.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => Some(IpAddr::V4(*gateway)),
                RouteAttribute::Gateway(RouteAddress::Inet6(gateway)) => Some(IpAddr::V6(*gateway)),
                RouteAttribute::Via(RouteVia::Inet(gateway)) => Some(IpAddr::V4(*gateway)),
                RouteAttribute::Via(RouteVia::Inet6(gateway)) => Some(IpAddr::V6(*gateway)),
                _ => None,
            });
            Some(Route::Unicast(gateway.unwrap_or(address)))
        }
        _ => None,
    }
}

/// The MAC address in `entry`, if it is a valid one of `address` on interface `index`.
fn mac_in(entry: &NeighbourMessage, index: u32, address: IpAddr) -> Option<Mac> {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    let is_valid = matches!(entry.header.state, Reachable | Stale | Delay | Probe | Permanent | Noarp);
    let is_of_address = entry.attributes.iter().any(|attribute| match (attribute, address) {
        (NeighbourAttribute::Destination(NeighbourAddress::Inet(of)), IpAddr::V4(address)) => *of == address,
        (NeighbourAttribute::Destination(NeighbourAddress::Inet6(of)), IpAddr::V6(address)) => *of == address,
        _ => false,
    });
    if entry.header.ifindex != index || !is_valid || !is_of_address {
        return None;
    }
    entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok().map(Mac),
        _ => None,
    })
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn index_of(interface: &str) -> Result<u32, Error> {
    let reading = |source| Error::Io { doing: "reading the index of a network interface", source };
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/ifindex")).map_err(reading)?;
    text.trim().parse().map_err(|error| reading(io::Error::new(io::ErrorKind::InvalidData, error)))
}

fn reading(source: io::Error) -> Error {
    Error::Io { doing: "reading the kernel's routes and neighbours", source }
}

fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    reading(io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A socket that tells of changes to the neighbour table.
fn changes() -> Result<Socket, Error> {
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(reading)?;
    socket.bind_auto().map_err(reading)?;
    socket.add_membership(NEIGHBOUR_GROUP).map_err(reading)?;
    Ok(socket)
}

/// Whether there is something to read within `limit`.
fn is_readable(socket: &Socket, limit: Duration) -> Result<bool, Error> {
    let limit = Timespec::try_from(limit).map_err(unreadable)?;
    let mut poll_fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    match poll(&mut poll_fds, Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(reading(error.into())),
    }
}

/// Asks the kernel, and collects its answers.
fn query_kernel(request: RouteNetlinkMessage, flags: u16) -> Result<Vec<RouteNetlinkMessage>, Error> {
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(reading)?;
    socket.bind_auto().map_err(reading)?;
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send_to(&bytes, &netlink_sys::SocketAddr::new(0, 0), 0).map_err(reading)?;
    let mut replies = Vec::new();
    loop {
        if !is_readable(&socket, REPLY_TIMEOUT)? {
            return Err(reading(io::ErrorKind::TimedOut.into()));
        }
        let (bytes, _) = socket.recv_from_full().map_err(reading)?;
        if collect(&bytes, flags & NLM_F_DUMP != 0, &mut replies)? {
            return Ok(replies);
        }
    }
}

/// Reads the messages of a datagram. Whether the last was there; without a dump there is only one.
fn collect(bytes: &[u8], is_dump: bool, replies: &mut Vec<RouteNetlinkMessage>) -> Result<bool, Error> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(unreadable)?;
        let len = (message.header.length as usize).next_multiple_of(4);
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(reading(error.to_io())),
            NetlinkPayload::InnerMessage(reply) => replies.push(reply),
            _ => {}
        }
        if !is_dump {
            return Ok(true);
        }
        rest = rest.get(len.max(1)..).unwrap_or_default();
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const HERE: u32 = 7;
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    fn entry(state: NeighbourState, index: u32, address: Ipv4Addr) -> NeighbourMessage {
        let mut entry = NeighbourMessage::default();
        entry.header.state = state;
        entry.header.ifindex = index;
        entry.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)),
            NeighbourAttribute::LinkLayerAddress(MAC.to_vec()),
        ];
        entry
    }

    #[test]
    fn only_a_valid_entry_of_the_interface_and_address_counts() {
        let address = Ipv4Addr::new(10, 0, 0, 2);
        let mac = |entry| mac_in(&entry, HERE, address.into());
        assert_eq!(mac(entry(NeighbourState::Reachable, HERE, address)), Some(Mac(MAC)));
        assert_eq!(mac(entry(NeighbourState::Stale, HERE, address)), Some(Mac(MAC)));
        assert_eq!(mac(entry(NeighbourState::Failed, HERE, address)), None);
        assert_eq!(mac(entry(NeighbourState::Incomplete, HERE, address)), None);
        assert_eq!(mac(entry(NeighbourState::Reachable, HERE + 1, address)), None);
        assert_eq!(mac(entry(NeighbourState::Reachable, HERE, Ipv4Addr::new(10, 0, 0, 3))), None);
        let mut infiniband = entry(NeighbourState::Reachable, HERE, address);
        infiniband.attributes[1] = NeighbourAttribute::LinkLayerAddress(vec![0; 20]);
        assert_eq!(mac(infiniband), None, "20 bytes are no MAC address");
    }

    #[test]
    fn the_remote_of_a_point_to_point_link_is_not_local() {
        let (own, remote) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut entry = AddressMessage::default();
        entry.attributes = vec![AddressAttribute::Address(remote), AddressAttribute::Local(own)];
        assert_eq!(own_address(&entry), Some(own));
        entry.attributes = vec![AddressAttribute::Address(IpAddr::V6(Ipv6Addr::LOCALHOST))];
        assert_eq!(own_address(&entry), Some(Ipv6Addr::LOCALHOST.into()), "IPv6 has no IFA_LOCAL");
    }

    #[test]
    fn a_gateway_is_the_next_hop() {
        let (address, gateway) = (IpAddr::from([10, 1, 0, 2]), Ipv4Addr::new(10, 0, 0, 1));
        let mut route = RouteMessage::default();
        route.header.kind = RouteType::Unicast;
        assert_eq!(next_hop(&route, address), Some(Route::Unicast(address)));
        route.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway))];
        assert_eq!(next_hop(&route, address), Some(Route::Unicast(gateway.into())));
        route.attributes = vec![RouteAttribute::Via(RouteVia::Inet6(Ipv6Addr::LOCALHOST))];
        assert_eq!(next_hop(&route, address), Some(Route::Unicast(Ipv6Addr::LOCALHOST.into())));
        route.header.kind = RouteType::BlackHole;
        assert_eq!(next_hop(&route, address), None);
        route.header.kind = RouteType::Local;
        assert_eq!(next_hop(&route, address), Some(Route::Local));
    }

    #[test]
    fn the_kernel_of_this_machine_knows_its_own_address() {
        let lo = Interface { name: "lo", index: index_of("lo").unwrap() };
        let own = [127, 0, 0, 1].into();
        assert_eq!(lo.route_to(own).unwrap(), Route::Local);
        assert_eq!(interface_of(own).unwrap(), Some(lo.index));
        assert_eq!(mac_of_interface(lo.index).unwrap(), None);
        assert_eq!(interface_of([192, 0, 2, 1].into()).unwrap(), None, "an address for documentation (RFC 5737)");
    }

    #[test]
    fn a_gid_without_interface_and_a_group_are_refused() {
        let mut from = RdmaGid {
            index: 3,
            address: Ipv6Addr::LOCALHOST,
            kind: "RoCE v2".into(),
            interface: None,
            mac: None,
            vlan: None,
        };
        let asked = |from: &RdmaGid, address| resolve(from, address, Duration::ZERO).unwrap_err();
        assert!(matches!(asked(&from, [10, 0, 0, 2].into()), Error::NoInterface { index: 3 }));
        from.interface = Some("lo".into());
        assert!(matches!(asked(&from, [224, 0, 0, 1].into()), Error::NotUnicast(_)));
        from.interface = Some("no-such-interface".into());
        assert!(matches!(asked(&from, [10, 0, 0, 2].into()), Error::Io { .. }));
    }
}
