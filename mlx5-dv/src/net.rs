//! Addresses of a port, and what it says of itself.

use std::fmt;
use std::io;
use std::net::Ipv6Addr;
use std::str::FromStr;

use mlx5_prm::ctx::{MacAddressLayout, QueryAdapterParamBlock};
use mlx5_prm::reg::{AnStatus, LinkMode};
use rustix::rand::{GetRandomFlags, getrandom};

/// A port's MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Everybody's.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// The address that frames to the IPv6 multicast group `group` carry. RFC 2464.
    pub fn of_group(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Mac([0x33, 0x33, a, b, c, d])
    }

    /// Whether it is a group's: multicast or broadcast.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The address in a layout.
    pub(crate) fn of(layout: &MacAddressLayout) -> Self {
        let (high, low) = (layout.mac_addr_47_32().to_be_bytes(), layout.mac_addr_31_0().to_be_bytes());
        Mac([high[0], high[1], low[0], low[1], low[2], low[3]])
    }

    /// The layout of the address.
    pub(crate) fn layout(self) -> MacAddressLayout {
        let [a, b, c, d, e, f] = self.0;
        let mut layout = MacAddressLayout::default();
        layout.w().mac_addr_47_32(u16::from_be_bytes([a, b])).mac_addr_31_0(u32::from_be_bytes([c, d, e, f]));
        layout
    }

    /// A random address of one station, administered locally.
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = [0; 6];
        getrandom(&mut bytes, GetRandomFlags::empty())?;
        bytes[0] = bytes[0] & !1 | 2;
        Ok(Mac(bytes))
    }

    /// The link-local IPv6 address made of it: fe80::/64, the universal bit flipped, ff:fe in the middle. RFC 4291.
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

/// Text that is no MAC address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a MAC address, such as 02:00:c5:00:00:01")]
pub struct MacError {
    /// The text.
    pub given: String,
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

/// An entry of the port's GID table: an address RoCE packets can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gid {
    /// Where in the table.
    pub index: u16,
    /// The 16 bytes of the GID. An IPv4 address is mapped: ::ffff:a.b.c.d.
    pub address: Ipv6Addr,
    /// The MAC address its packets carry.
    pub mac: Mac,
    /// Whether its packets are IPv4 ones.
    pub ipv4: bool,
}

impl Gid {
    pub(crate) fn of(index: u16, address: Ipv6Addr, mac: Mac) -> Self {
        Gid { index, address, mac, ipv4: address.to_ipv4_mapped().is_some() }
    }
}

/// The port as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Whether the port has link.
    pub up: bool,
    /// Whether it is meant to be up, or to follow the port.
    pub admin_up: bool,
    /// Its own MAC address; all zero for a virtual function that was given none.
    pub mac: Mac,
    /// Bytes of the longest frame that passes, as register `PMTU` counts them: see
    /// [`Options::mtu`](crate::Options::mtu). Where the card does not
    /// say, as the vport context has it.
    pub mtu: u16,
    /// The most that can be; 0 where the card does not say.
    pub max_mtu: u16,
}

impl PortInfo {
    /// The largest path MTU whose packets pass, in bytes; `None` if not even the smallest does.
    pub fn path_mtu(&self) -> Option<u16> {
        [4096, 2048, 1024, 512, 256].into_iter().find(|path| u32::from(*path) + PATH_HEADERS <= u32::from(self.mtu))
    }
}

/// The physical link as it is now. PRM `PTYS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkInfo {
    /// What it runs as; `None` without link, or in a mode that this driver has no name for.
    pub mode: Option<LinkMode>,
    /// What became of the auto-negotiation.
    pub auto_negotiation: AnStatus,
}

/// A card's board. PRM `query_adapter_param_block`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adapter {
    /// The maker's IEEE number (OUI), 24 bits.
    pub ieee_vendor_id: u32,
    /// The board's name, `vsd_contd_psid`, such as `MT_0000000012`; empty where firmware gives none.
    pub psid: String,
}

impl Adapter {
    pub(crate) fn of(block: &QueryAdapterParamBlock) -> Self {
        let psid = block.vsd_contd_psid().split(|byte| *byte == 0).next().unwrap_or_default();
        let psid = psid.iter().filter(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect();
        Adapter { ieee_vendor_id: block.ieee_vendor_id(), psid }
    }
}

/// Bytes of the largest RoCE v2 frame that are not payload, as `PMTU` counts them: Ethernet header, VLAN tag and check
/// sequence (22), IPv6, UDP, BTH, the largest extension, ICRC.
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
