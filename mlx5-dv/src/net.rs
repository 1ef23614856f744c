//! A port's addresses and state.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use mlx5_prm::ctx::{MacAddressLayout, QueryAdapterParamBlock};
use mlx5_prm::reg::{AnStatus, LinkMode};
use rustix::rand::{GetRandomFlags, getrandom};

bitflags::bitflags! {
    /// Which frames a function receives beside those to its own addresses, as far as its flow tables accept them. PRM
    /// `nic_vport_context`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Promiscuous: u8 {
        /// Unicast frames from the wire to addresses that no other function has. PRM `promisc_uc`.
        const UNICAST = 1;
        /// All multicast frames ("all-multicast"). PRM `promisc_mc`.
        const MULTICAST = 2;
        /// All frames of the port, those of its other functions, too. PRM `promisc_all`; not every function may.
        const ALL = 4;
    }
}

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// The MAC address of the multicast group `group`: 23 bits of an IPv4 address (RFC 1112), or 32 bits of an IPv6 one
    /// (RFC 2464).
    pub fn of_group(group: IpAddr) -> Self {
        match group {
            IpAddr::V4(group) => {
                let [_, b, c, d] = group.octets();
                Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d])
            }
            IpAddr::V6(group) => {
                let [.., a, b, c, d] = group.octets();
                Mac([0x33, 0x33, a, b, c, d])
            }
        }
    }

    /// Whether it is a multicast or broadcast address.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Reads the address from its layout.
    pub(crate) fn of(layout: &MacAddressLayout) -> Self {
        let (high, low) = (layout.mac_addr_47_32().to_be_bytes(), layout.mac_addr_31_0().to_be_bytes());
        Mac([high[0], high[1], low[0], low[1], low[2], low[3]])
    }

    /// The address as a layout.
    pub(crate) fn layout(self) -> MacAddressLayout {
        let [a, b, c, d, e, f] = self.0;
        let mut layout = MacAddressLayout::default();
        layout.w().mac_addr_47_32(u16::from_be_bytes([a, b])).mac_addr_31_0(u32::from_be_bytes([c, d, e, f]));
        layout
    }

    /// A random unicast address, locally administered.
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = [0; 6];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        bytes[0] = bytes[0] & !1 | 2;
        Ok(Mac(bytes))
    }

    /// The link-local IPv6 address of this MAC: fe80::/64, the universal bit flipped, ff:fe in the middle. RFC 4291.
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
        let mac = bytes.and_then(|bytes| bytes.try_into().ok()).map(Mac);
        mac.ok_or_else(|| MacError { given: text.into() })
    }
}

/// A string that is not a MAC address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a MAC address, such as 02:00:c5:00:00:01")]
pub struct MacError {
    /// The text.
    pub given: String,
}

/// A string or bytes that name no peer, or no remote memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not {wanted}")]
pub struct AddressError {
    /// What was given.
    pub given: String,
    /// What it should be, with an example.
    pub(crate) wanted: &'static str,
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The address of a GID: IPv4 if it is mapped (::ffff:a.b.c.d), else IPv6.
pub fn address_of(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// The GID of an address: an IPv4 address is mapped.
pub fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// An entry of the port's GID table: a source address of RoCE packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gid {
    /// Index in the table.
    pub index: u16,
    /// The 16 bytes of the GID. An IPv4 address is mapped: ::ffff:a.b.c.d.
    pub address: Ipv6Addr,
    /// Source MAC address of its packets.
    pub mac: Mac,
    /// Whether its packets are IPv4.
    pub ipv4: bool,
    /// The VLAN of its packets, both ways: the card tags them, with the
    /// [service level](crate::objects::AddressPath::service_level) as priority. `None` for packets without tag.
    pub vlan: Option<u16>,
}

impl Gid {
    /// The entry at `index`: `address`, from `mac`, in no VLAN.
    pub fn new(index: u16, address: impl Into<IpAddr>, mac: Mac) -> Self {
        let address = gid_of(address.into()).into();
        Gid { index, address, mac, ipv4: address.to_ipv4_mapped().is_some(), vlan: None }
    }

    /// Sets [`vlan`](Self::vlan).
    pub fn vlan(mut self, id: u16) -> Self {
        self.vlan = Some(id);
        self
    }
}

/// Current state of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Whether the port has link.
    pub up: bool,
    /// Whether the administrative state is up, or follows the port's.
    pub admin_up: bool,
    /// Its MAC address; all zero for a virtual function without one, and on InfiniBand.
    pub mac: Mac,
    /// Its LID, if it is an InfiniBand port; 0 until a subnet manager gives it one.
    pub lid: Option<u16>,
    /// Longest frame in bytes as register `PMTU` counts it: see [`Options::mtu`](crate::Options::mtu). If the card does
    /// not report it, the value of the vport context. On InfiniBand the longest payload of a packet, and 256 if the
    /// card does not report it, as on DevX.
    pub mtu: u16,
    /// The largest MTU that can be set; 0 if the card does not report it.
    pub max_mtu: u16,
}

impl PortInfo {
    /// The largest path MTU in bytes whose packets fit the port's MTU; `None` if not even the smallest does.
    pub fn path_mtu(&self) -> Option<u16> {
        let headers = self.headers();
        [4096, 2048, 1024, 512, 256].into_iter().find(|path| u32::from(*path) + headers <= u32::from(self.mtu))
    }

    /// Bytes of a packet beside its payload, at most, as `mtu` counts them.
    pub(crate) fn headers(&self) -> u32 {
        if self.lid.is_some() { 0 } else { PATH_HEADERS }
    }
}

/// Current state of the physical link. PRM `PTYS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkInfo {
    /// Link mode; `None` without link, or for a mode not known here.
    pub mode: Option<LinkMode>,
    /// Result of the auto-negotiation.
    pub auto_negotiation: AnStatus,
}

/// A card's board. PRM `query_adapter_param_block`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adapter {
    /// IEEE vendor number (OUI), 24 bits.
    pub ieee_vendor_id: u32,
    /// Board ID, `vsd_contd_psid`, such as `MT_0000000012`; empty if firmware does not report it.
    pub psid: String,
}

impl Adapter {
    pub(crate) fn of(block: &QueryAdapterParamBlock) -> Self {
        let psid = block.vsd_contd_psid().split(|byte| *byte == 0).next().unwrap_or_default();
        let psid = psid.iter().filter(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect();
        Adapter { ieee_vendor_id: block.ieee_vendor_id(), psid }
    }
}

/// Bytes of a RoCE v2 frame beside its payload, at most, as `PMTU` counts them: Ethernet header, VLAN tag and FCS (22);
/// IPv6, UDP, BTH, the largest extension header and ICRC (96).
pub(crate) const PATH_HEADERS: u32 = 22 + 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_local_gid_is_the_one_every_host_makes_of_a_mac() {
        let mac = Mac([0x02, 0x00, 0x5e, 0x10, 0x00, 0x01]);
        assert_eq!(mac.link_local().to_string(), "fe80::5eff:fe10:1");
        assert_eq!(mac.to_string(), "02:00:5e:10:00:01");
    }
}
