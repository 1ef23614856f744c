//! Where a queue pair's packets go.

use mlx5_prm::ctx::Ads;

use crate::caps::Caps;
use crate::error::Invalid;
use crate::net::Mac;
use crate::objects::check::{fits, in_range, port_exists};

/// Where a queue pair's packets go. PRM "Address Path Structure".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressPath {
    /// The remote's GID; an IPv4 address is mapped (::ffff:a.b.c.d).
    pub gid: [u8; 16],
    /// The MAC address that packets to it carry: the remote's, or a router's.
    pub mac: Mac,
    /// Our GID's index. Default of [`new`](Self::new): 0.
    pub gid_index: u8,
    /// Hop limit, or time to live. Default: 64.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN. Default: 0.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits. Default: 0.
    pub flow_label: u32,
    /// UDP source port, from 0xc000 as RoCE v2 wants. Default: 0xc000.
    pub udp_sport: u16,
    /// Service level: the Ethernet priority, 0 to 7. Default: 0.
    pub service_level: u8,
    /// Our port, from 1. Default: 1.
    pub port: u8,
}

impl AddressPath {
    /// To `gid` at `mac`, all else default.
    pub fn new(gid: [u8; 16], mac: Mac) -> Self {
        AddressPath {
            gid,
            mac,
            gid_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            udp_sport: 0xc000,
            service_level: 0,
            port: 1,
        }
    }

    /// To a link-local `gid`, whose MAC address is in it; `None` for another one.
    pub fn link_local(gid: [u8; 16]) -> Option<Self> {
        let [a, b, c, ff, fe, d, e, f] = *gid.last_chunk::<8>()?;
        let local = gid[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0] && (ff, fe) == (0xff, 0xfe);
        local.then(|| AddressPath::new(gid, Mac([a ^ 2, b, c, d, e, f])))
    }

    /// Our GID is the one at `index`.
    pub fn gid_index(mut self, index: u8) -> Self {
        self.gid_index = index;
        self
    }

    /// Packets are of service level `level`.
    pub fn service_level(mut self, level: u8) -> Self {
        self.service_level = level;
        self
    }

    pub(super) fn check(&self, caps: &Caps) -> Result<(), Invalid> {
        if let Some(last) = caps.roce_address_table_size.checked_sub(1) {
            in_range("gid_index", self.gid_index.into(), 0..=last.into(), "roce_address_table_size")?;
        }
        fits("flow_label", self.flow_label, 20)?;
        fits("service_level", self.service_level.into(), 3)?;
        port_exists(self.port, caps)
    }

    /// As Linux fills it for Ethernet: `grh` and `sl` are InfiniBand's.
    pub(super) fn ads(&self) -> Ads {
        let [a, b, c, d, e, f] = self.mac.0;
        let mut ads = Ads::default();
        ads.w()
            .src_addr_index(self.gid_index)
            .hop_limit(self.hop_limit)
            .tclass(self.traffic_class)
            .flow_label(self.flow_label)
            .rgid_rip(&self.gid)
            .udp_sport(self.udp_sport)
            .dscp(self.traffic_class >> 2)
            .eth_prio(self.service_level)
            .vhca_port_num(self.port)
            .rmac_47_32(u16::from_be_bytes([a, b]))
            .rmac_31_0(u32::from_be_bytes([c, d, e, f]));
        ads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_gid_has_its_mac_in_it() {
        let mac = Mac([0x02, 0x00, 0x5e, 0x10, 0x00, 0x01]);
        let path = AddressPath::link_local(mac.link_local().octets()).unwrap();
        assert_eq!(path.mac, mac);
        assert_eq!(AddressPath::link_local([0; 16]), None);
    }

    #[test]
    fn a_path_is_filled_as_linux_does_for_ethernet() {
        let path = AddressPath { traffic_class: 0xb8, ..AddressPath::new([0; 16], Mac([0; 6])) }.service_level(5);
        let ads = path.ads();
        assert_eq!((ads.eth_prio(), ads.dscp(), ads.tclass()), (5, 0x2e, 0xb8));
        assert_eq!((ads.grh(), ads.sl()), (false, 0), "InfiniBand's");
        let caps = Caps { num_ports: 1, ..Caps::default() };
        assert!(path.check(&caps).is_ok());
        let text = path.service_level(8).check(&caps).unwrap_err().to_string();
        assert_eq!(text, "service_level is 0x8, and the field has 3 bits");
    }
}
