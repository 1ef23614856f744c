//! What can go wrong.

use std::net::IpAddr;
use std::time::Duration;

use smoltcp::wire::IpCidr;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is no multicast group's.
    #[error("{0} is no address of a multicast group")]
    NotMulticast(IpAddr),
    /// The GID has no network interface in this network namespace.
    #[error("GID index {index} has no network interface here: is it in another network namespace?")]
    NoInterface {
        /// The GID's index.
        index: u16,
    },
    /// The kernel has no unicast route to the address.
    #[error(
        "the kernel has no route to {address} by {interface} ({route}): see `ip route get {address} oif {interface}`"
    )]
    NoRoute {
        /// The address.
        address: IpAddr,
        /// The network interface.
        interface: String,
        /// What its routing table has instead.
        route: String,
    },
    /// A local address of an interface without MAC address, such as the loopback.
    #[error("{0} is an address of this host, on an interface without MAC address: see `rdma link` for its GIDs")]
    NoMac(IpAddr),
    /// The kernel has no MAC address for it, after it was asked to resolve it.
    #[error("the kernel found no MAC address of {next_hop} on {interface} within {} ms: is it up, and on this network? See `ip neigh`", patience.as_millis())]
    Unresolved {
        /// The address itself, or the gateway to it.
        next_hop: IpAddr,
        /// The network interface.
        interface: String,
        /// How long it was tried.
        patience: Duration,
    },
    /// A system call failed.
    #[error("{doing} failed")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// No answer for the address.
    #[error(
        "no answer for {next_hop}{} ({asked} requests in {} ms): is it up, and on this network?",
        if next_hop == address { String::new() } else { format!(", the gateway to {address}") },
        patience.as_millis()
    )]
    NoAnswer {
        /// The address.
        address: IpAddr,
        /// Who was asked: the address itself, or the gateway to it.
        next_hop: IpAddr,
        /// Requests sent.
        asked: u32,
        /// How long it was tried.
        patience: Duration,
    },
    /// The address is not on the local network, which has no gateway.
    #[error("{address} is not on {}: give an address of its network, or the function a gateway, as in 10.0.0.4/24,10.0.0.1", network.map_or("a local network, as there is no address but the link-local one".into(), |network| network.to_string()))]
    NotOnLink {
        /// The address.
        address: IpAddr,
        /// The local network.
        network: Option<IpCidr>,
    },
    /// The address is not unicast.
    #[error("{0} is not a unicast address")]
    NotUnicast(IpAddr),
    /// The raw Ethernet queue failed.
    #[error("the queue for ARP and neighbour discovery failed: {0}")]
    Queue(String),
}
