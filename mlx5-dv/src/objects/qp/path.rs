//! Address paths of queue pairs.

use std::net::Ipv6Addr;

use mlx5_prm::ctx::Ads;
use mlx5_prm::wqe::UdAdrsVector;

use crate::caps::Caps;
use crate::error::Invalid;
use crate::net::Mac;
use crate::objects::check::{fits, in_range, port_exists};
use crate::setters::setters;

/// `port_type` of the general capabilities.
const INFINIBAND: u8 = 0;
const ETHERNET: u8 = 1;

/// Path of a queue pair's packets. PRM "Address Path Structure".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressPath {
    /// The remote's GID; an IPv4 address is mapped (::ffff:a.b.c.d).
    pub gid: [u8; 16],
    /// Destination MAC address: the remote's, or a router's.
    pub mac: Mac,
    /// Index of the local GID. Default of [`new`](Self::new): 0.
    pub gid_index: u8,
    /// Hop limit (IPv6) or time to live (IPv4). Default: 64.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN. Default: 0.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits. Default: 0.
    pub flow_label: u32,
    /// UDP source port, from 0xc000 as RoCE v2 requires. Networks distinguish flows by it, to spread them over
    /// equal-cost paths. Default: derived from the flow label, or if that is 0, from both queue pair numbers, as Linux
    /// does.
    pub udp_sport: Option<u16>,
    /// Service level: the Ethernet priority, 0 to 7, or InfiniBand's, 0 to 15. Default: 0.
    pub service_level: u8,
    /// Local port number, from 1. Default: 1.
    pub port: u8,
    /// Where the path leads on InfiniBand; `None` on Ethernet. Default: `None`.
    pub infiniband: Option<InfinibandRoute>,
}

/// A path's addresses within an InfiniBand subnet.
///
/// Unproven: no such packet has been sent, as the software card's ports are Ethernet. The fields are those that Linux
/// (`mlx5_set_path`) and libmlx5 (`mlx5_create_ah`) fill on an InfiniBand port. The port's own LID is in the answer of
/// QUERY_HCA_VPORT_CONTEXT, which [`Device::execute`](crate::Device::execute) asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfinibandRoute {
    /// Local identifier (LID) of the remote's port, or of a router's. PRM `rlid`.
    pub lid: u16,
    /// Which of the own port's LIDs sends: their lower bits, 7 at most. Default: 0. PRM `mlid`.
    pub source_path_bits: u8,
    /// Whether packets have a global route header (GRH), by which routers pass them to another subnet: the path's GIDs,
    /// hop limit, traffic class and flow label are its fields. Default: no.
    pub global: bool,
}

setters! {
    AddressPath {
        gid_index: u8;
        hop_limit: u8;
        traffic_class: u8;
        flow_label: u32;
        udp_sport: Some(u16);
        service_level: u8;
        port: u8;
    }
}

impl AddressPath {
    /// Path to `gid` at `mac`; everything else is default.
    pub fn new(gid: [u8; 16], mac: Mac) -> Self {
        AddressPath {
            gid,
            mac,
            gid_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            udp_sport: None,
            service_level: 0,
            port: 1,
            infiniband: None,
        }
    }

    /// Path to the port `lid` of the same InfiniBand subnet; everything else is default. Unproven: see
    /// [`InfinibandRoute`].
    pub fn infiniband(lid: u16) -> Self {
        let route = InfinibandRoute { lid, source_path_bits: 0, global: false };
        AddressPath { infiniband: Some(route), ..AddressPath::new([0; 16], Mac([0; 6])) }
    }

    /// Path to `gid` in another InfiniBand subnet, by the router at `lid`. Unproven: see [`InfinibandRoute`].
    pub fn infiniband_global(lid: u16, gid: [u8; 16]) -> Self {
        let route = InfinibandRoute { lid, source_path_bits: 0, global: true };
        AddressPath { infiniband: Some(route), ..AddressPath::new(gid, Mac([0; 6])) }
    }

    /// Path to a link-local `gid`, which contains its MAC address; `None` for another GID.
    pub fn link_local(gid: [u8; 16]) -> Option<Self> {
        let [a, b, c, ff, fe, d, e, f] = *gid.last_chunk::<8>()?;
        let local = gid[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0] && (ff, fe) == (0xff, 0xfe);
        local.then(|| AddressPath::new(gid, Mac([a ^ 2, b, c, d, e, f])))
    }

    /// Path to the multicast group `gid`: an IPv6 group address, or an IPv4 one, mapped (::ffff:239.1.2.3). Its MAC
    /// address is derived from it. `None` for another GID. RFC 1112, RFC 2464.
    pub fn group(gid: [u8; 16]) -> Option<Self> {
        let address = Ipv6Addr::from(gid).to_canonical();
        address.is_multicast().then(|| AddressPath::new(gid, Mac::of_group(address)))
    }

    /// UDP source port of packets from queue pair `local` to `remote`.
    pub(super) fn sport(&self, local: u32, remote: u32) -> u16 {
        self.udp_sport.unwrap_or_else(|| match self.flow_label {
            0 => sport_of_label(label_of_pair(local, remote)),
            label => sport_of_label(label),
        })
    }

    /// Flow label from which Linux derives the UDP source port of this path. Errors: both are given and do not agree.
    pub(super) fn label(&self) -> Result<u32, Invalid> {
        let Some(port) = self.udp_sport else { return Ok(self.flow_label) };
        let derived = sport_of_label(self.flow_label);
        match self.flow_label {
            0 => Ok(label_of_sport(port)),
            label if derived == port => Ok(label),
            _ => Err(Invalid::out_of_range("udp_sport", port.into(), derived.into()..=derived.into(), "flow_label")),
        }
    }

    pub(super) fn check(&self, caps: &Caps) -> Result<(), Invalid> {
        if let Some(last) = caps.roce_address_table_size.checked_sub(1) {
            in_range("gid_index", self.gid_index.into(), 0..=last.into(), "roce_address_table_size")?;
        }
        fits("flow_label", self.flow_label, 20)?;
        fits("service_level", self.service_level.into(), if self.infiniband.is_some() { 4 } else { 3 })?;
        self.check_link_layer(caps)?;
        port_exists(self.port, caps)
    }

    /// The ports are those that the path's addresses are for.
    fn check_link_layer(&self, caps: &Caps) -> Result<(), Invalid> {
        let wrong = |what: &str, requires| Err(Invalid::Requires { what: what.into(), requires });
        match (&self.infiniband, caps.port_type) {
            (Some(_), ETHERNET) => wrong("a path with a LID", "an InfiniBand port (port_type)"),
            (None, INFINIBAND) => wrong("a path without a LID", "an Ethernet port (port_type)"),
            (Some(InfinibandRoute { lid: 0, .. }), _) => Err(Invalid::Empty { what: "a path", lacks: "a LID" }),
            (Some(route), _) => fits("source_path_bits", route.source_path_bits.into(), 7),
            (None, _) => Ok(()),
        }
    }

    /// As Linux sets it, between queue pairs `local` and `remote`.
    pub(super) fn ads(&self, local: u32, remote: u32) -> Ads {
        let mut ads = Ads::default();
        ads.w().vhca_port_num(self.port);
        if self.is_global() {
            ads.w()
                .src_addr_index(self.gid_index)
                .hop_limit(self.hop_limit)
                .tclass(self.traffic_class)
                .flow_label(self.flow_label)
                .rgid_rip(&self.gid);
        }
        match &self.infiniband {
            Some(route) => {
                ads.w().rlid(route.lid).mlid(route.source_path_bits).grh(route.global).sl(self.service_level);
            }
            None => self.fill_ethernet(&mut ads, self.sport(local, remote)),
        }
        ads
    }

    /// Whether packets have GIDs: all of RoCE have.
    fn is_global(&self) -> bool {
        self.infiniband.is_none_or(|route| route.global)
    }

    fn fill_ethernet(&self, ads: &mut Ads, sport: u16) {
        let [a, b, c, d, e, f] = self.mac.0;
        ads.w()
            .udp_sport(sport)
            .dscp(self.traffic_class >> 2)
            .eth_prio(self.service_level)
            .rmac_47_32(u16::from_be_bytes([a, b]))
            .rmac_31_0(u32::from_be_bytes([c, d, e, f]));
    }

    /// The address vector of a datagram to queue pair `remote`, as libmlx5 fills it.
    pub(super) fn vector(&self, remote: u32) -> UdAdrsVector {
        let mut vector = UdAdrsVector::default();
        vector.w().ext(true);
        if self.is_global() {
            vector
                .w()
                .tclass(self.traffic_class)
                .hop_limit(self.hop_limit)
                .src_addr_index(self.gid_index)
                .flow_label(self.flow_label)
                .rgid_rip(&self.gid);
        }
        match &self.infiniband {
            Some(route) => {
                let w = vector.w();
                w.sl_eth_prio(self.service_level).rlid_udp_sport(route.lid).mlid(route.source_path_bits);
                vector.w().grh(route.global);
            }
            None => {
                let ([a, b, c, d, e, f], [.., g, h, i, j]) = (self.mac.0, self.gid);
                vector
                    .w()
                    // On Ethernet the upper three bits are the priority.
                    .sl_eth_prio(self.service_level << 1)
                    .rlid_udp_sport(self.sport(u32::from_be_bytes([g, h, i, j]) | 1, remote))
                    .rmac_47_16(u32::from_be_bytes([a, b, c, d]))
                    .rmac_15_0(u16::from_be_bytes([e, f]));
            }
        }
        vector
    }

    /// From the card's context.
    pub(super) fn of(ads: &Ads) -> Self {
        let ([a, b], [c, d, e, f]) = (ads.rmac_47_32().to_be_bytes(), ads.rmac_31_0().to_be_bytes());
        let route = InfinibandRoute { lid: ads.rlid(), source_path_bits: ads.mlid(), global: ads.grh() };
        let infiniband = (route.lid != 0).then_some(route);
        AddressPath {
            gid: *ads.rgid_rip(),
            mac: Mac([a, b, c, d, e, f]),
            gid_index: ads.src_addr_index(),
            hop_limit: ads.hop_limit(),
            traffic_class: ads.tclass(),
            flow_label: ads.flow_label(),
            udp_sport: infiniband.is_none().then(|| ads.udp_sport()),
            service_level: if infiniband.is_some() { ads.sl() } else { ads.eth_prio() },
            port: ads.vhca_port_num(),
            infiniband,
        }
    }
}

/// Flow label for two queue pairs, the same on both ends. Linux `rdma_calc_flow_label`.
fn label_of_pair(local: u32, remote: u32) -> u32 {
    let product = u64::from(local) * u64::from(remote);
    let folded = product ^ product >> 20;
    (folded ^ folded >> 40) as u32 & 0xf_ffff
}

/// UDP source port for a flow label: its 20 bits folded into the 14 that RoCE v2 leaves. IBTA A17; Linux
/// `rdma_flow_label_to_udp_sport`.
fn sport_of_label(label: u32) -> u16 {
    0xc000 | ((label & 0x3fff) ^ (label >> 14 & 0x3f)) as u16
}

/// A flow label, not 0, from which [`sport_of_label`] derives `port`.
fn label_of_sport(port: u16) -> u32 {
    match u32::from(port) & 0x3fff {
        0 => 1 << 14 | 1,
        label => label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_port_is_of_the_flow_label_or_of_both_queue_pairs() {
        // By hand: 0x43 times 0x44 is 0x11cc; the square of 2^24 - 1 folds to 0xfff1e; 0x12345 is 0x2345 and 4 above
        // it.
        let path = AddressPath::new([0; 16], Mac([0; 6]));
        assert_eq!((path.sport(0x43, 0x44), path.sport(0x44, 0x43)), (0xd1cc, 0xd1cc));
        assert_eq!(path.sport(0xff_ffff, 0xff_ffff), 0xff21);
        let labelled = AddressPath { flow_label: 0x1_2345, ..path };
        assert_eq!((labelled.sport(1, 2), labelled.sport(3, 4)), (0xe341, 0xe341));
        assert_eq!(AddressPath { udp_sport: Some(0xc123), ..labelled }.sport(1, 2), 0xc123);
    }

    #[test]
    fn a_source_port_is_asked_for_by_a_flow_label() {
        let path = AddressPath::new([0; 16], Mac([0; 6]));
        for port in [0xc000, 0xc001, 0xd234, 0xffff] {
            let label = AddressPath { udp_sport: Some(port), ..path }.label().unwrap();
            assert_ne!(label, 0, "0 means that Linux chooses");
            assert_eq!(sport_of_label(label), port);
        }
        assert_eq!(path.label().unwrap(), 0);
        let both = AddressPath { udp_sport: Some(0xe341), flow_label: 0x1_2345, ..path };
        assert_eq!(both.label().unwrap(), 0x1_2345);
        let text = AddressPath { udp_sport: Some(0xe342), ..both }.label().unwrap_err().to_string();
        assert!(text.contains("udp_sport") && text.contains("flow_label"), "{text}");
    }

    #[test]
    fn a_link_local_gid_has_its_mac_in_it() {
        let mac = Mac([0x02, 0x00, 0x5e, 0x10, 0x00, 0x01]);
        let path = AddressPath::link_local(mac.link_local().octets()).unwrap();
        assert_eq!(path.mac, mac);
        assert_eq!(AddressPath::link_local([0; 16]), None);
    }

    #[test]
    fn a_group_has_its_mac_in_its_gid() {
        let v4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 129, 2, 3];
        assert_eq!(AddressPath::group(v4).unwrap().mac, Mac([0x01, 0x00, 0x5e, 1, 2, 3]));
        let mut v6 = [0; 16];
        (v6[0], v6[1], v6[15]) = (0xff, 0x0e, 9);
        assert_eq!(AddressPath::group(v6).unwrap().mac, Mac([0x33, 0x33, 0, 0, 0, 9]));
        assert_eq!(AddressPath::group([0; 16]), None);
        assert_eq!(AddressPath::group([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]), None);
    }

    #[test]
    fn a_path_is_filled_as_linux_does_for_ethernet() {
        let path = AddressPath { traffic_class: 0xb8, ..AddressPath::new([0; 16], Mac([0; 6])) }.service_level(5);
        let ads = path.ads(0x43, 0x44);
        assert_eq!((ads.eth_prio(), ads.dscp(), ads.tclass()), (5, 0x2e, 0xb8));
        assert_eq!(AddressPath::of(&ads), AddressPath { udp_sport: Some(ads.udp_sport()), ..path });
        assert_eq!((ads.grh(), ads.sl()), (false, 0), "InfiniBand's");
        let caps = Caps { num_ports: 1, port_type: ETHERNET, ..Caps::default() };
        assert!(path.check(&caps).is_ok());
        let text = path.service_level(8).check(&caps).unwrap_err().to_string();
        assert_eq!(text, "service_level is 0x8, and the field has 3 bits");
    }

    #[test]
    fn a_path_is_filled_as_linux_does_for_infiniband() {
        let within = AddressPath::infiniband(0x1234).service_level(9);
        let ads = within.ads(0x43, 0x44);
        assert_eq!((ads.rlid(), ads.sl(), ads.grh(), ads.vhca_port_num()), (0x1234, 9, false, 1));
        assert_eq!((ads.udp_sport(), ads.eth_prio(), ads.hop_limit()), (0, 0, 0), "Ethernet's, and the GRH's");
        let mut beyond = AddressPath::infiniband_global(7, [3; 16]).gid_index(2).flow_label(5);
        beyond.infiniband.as_mut().unwrap().source_path_bits = 0x7f;
        let ads = beyond.ads(0x43, 0x44);
        assert_eq!((ads.rlid(), ads.mlid(), ads.grh()), (7, 0x7f, true));
        assert_eq!((ads.src_addr_index(), ads.flow_label(), ads.rgid_rip()), (2, 5, &[3; 16]));
        assert_eq!(AddressPath::of(&ads), beyond);
    }

    #[test]
    fn a_datagram_s_vector_has_the_lid_in_place_of_the_source_port() {
        let vector = AddressPath::infiniband(0x1234).service_level(9).vector(0x44);
        assert_eq!((vector.rlid_udp_sport(), vector.sl_eth_prio(), vector.grh()), (0x1234, 9, false));
        let vector = AddressPath::infiniband_global(7, [3; 16]).vector(0x44);
        assert_eq!((vector.rlid_udp_sport(), vector.grh(), vector.rgid_rip()), (7, true, &[3; 16]));
    }

    #[test]
    fn a_path_is_for_the_port_s_link_layer() {
        let of = |port_type| Caps { num_ports: 1, port_type, ..Caps::default() };
        let ethernet = AddressPath::new([0; 16], Mac([0; 6]));
        let infiniband = AddressPath::infiniband(1).service_level(15);
        assert!(ethernet.check(&of(ETHERNET)).is_ok() && infiniband.check(&of(INFINIBAND)).is_ok());
        let refused = |path: AddressPath, port_type| path.check(&of(port_type)).unwrap_err().to_string();
        assert_eq!(refused(infiniband, ETHERNET), "a path with a LID needs an InfiniBand port (port_type)");
        assert_eq!(refused(ethernet, INFINIBAND), "a path without a LID needs an Ethernet port (port_type)");
        assert_eq!(refused(AddressPath::infiniband(0), INFINIBAND), "a path without a LID");
        assert!(refused(infiniband.service_level(16), INFINIBAND).contains("4 bits"));
    }
}
