//! What flow rules match: header fields and their values.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use mlx5_prm::flow::{FteMatchParam, FteMatchSetLyr24, Ipv6Layout, Ipv6LayoutIpv4LayoutAuto, L4Type, L4TypeExt};
use mlx5_prm::layout::Layout;
use mlx5_prm::obj::FlowMeterColor;

use super::conflict::{exclude, implies};
use super::fields::{Bits, Fields, Header, IPV4, IPV6, PART, TCP, UDP, united};
use super::geneve::GeneveOption;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::net::Mac;
use crate::objects::check::fits;
use crate::objects::tunnel::VXLAN_PORT;

/// How errors name the field.
const VXLAN_NETWORK: &str = "VXLAN network";
/// Bits of a register that a meter writes: Linux's `PACKET_COLOR_BITS`.
const COLOR: u32 = 0xff;
/// Bits of an address.
const IPV4_BITS: u8 = 32;
const IPV6_BITS: u8 = 128;

/// The frames that a flow rule is for: values of header fields, all of which a frame must have. Without any, all
/// frames.
///
/// Fields of a protocol imply that protocol: a TCP port matches TCP packets alone. Those of IP of either version, and
/// of either VLAN tag, do not, and cards read them as 0 in frames without the header: beside such a 0, something else
/// has to say that there is one. So it is with those of ICMP, which fragments have not. A contradiction, such as a TCP
/// port in UDP packets or in ARP, is remembered, and is the error of what the match is used for.
///
/// ```
/// use std::net::Ipv4Addr;
///
/// use mlx5_dv::objects::FlowMatch;
///
/// let web = FlowMatch::new().destination_ip(Ipv4Addr::new(10, 0, 0, 1).into()).tcp_destination_port(80);
/// web.check()?;
/// let error = web.udp_source_port(53).check().unwrap_err();
/// assert_eq!(error.to_string(), "no frame has both TCP destination port 80 and UDP source port 53");
/// # Ok::<(), mlx5_dv::Error>(())
/// ```
///
/// Most fields have a masked form, too: `tcp_source_port_masked` is for ports that are as told in the bits of a mask.
/// Of the PRM's fields these are none of a match, but [`of_fields`](Self::of_fields) takes them: the ports of the
/// e-switch (`source_port` and its like), which tables of the NIC do not match; what IPsec, MACsec and PSP engines and
/// samplers of a user's own parser leave, as this driver has none of them; register a, which its queues leave 0.
///
/// A card may not match on every field: `ft_field_support`, `ft_field_support_2_nic_receive` (and that of `transmit`)
/// and `flex_parser_protocols` of its capabilities tell, and
/// the error of [`FlowGroup::create`](super::group::FlowGroup::create) names the capability that is missing.
#[derive(Debug, Clone)]
pub struct FlowMatch {
    criteria: FteMatchParam,
    value: FteMatchParam,
    /// What was asked for, in order.
    facts: Vec<Fact>,
    /// The first mistake.
    mistake: Option<Invalid>,
    /// The option of GENEVE that fields are of.
    option: Option<Arc<GeneveOption>>,
}

/// A field and its value, with what they imply.
#[derive(Debug, Clone)]
struct Fact {
    name: String,
    fields: Fields,
}

impl Default for FlowMatch {
    fn default() -> Self {
        Self::new()
    }
}

/// The bits of an address before its prefix ends are set in the result.
fn prefix_mask(prefix: u8, bits: u8) -> [u8; 16] {
    let host = u32::from(bits - prefix);
    let ones = u128::MAX.checked_shl(host).unwrap_or(0);
    let used = u128::MAX >> (IPV6_BITS - bits);
    (ones & used).to_be_bytes()
}

fn address(bytes: [u8; 16]) -> Ipv6LayoutIpv4LayoutAuto {
    let (mut layout, mut any) = (Ipv6Layout::default(), Ipv6LayoutIpv4LayoutAuto::default());
    layout.w().ipv6(&bytes);
    any.w().ipv6_layout(&layout);
    any
}

/// The bytes of an address as cards compare it: IPv4 in the last four.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)).to_be_bytes(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl FlowMatch {
    /// All frames.
    pub fn new() -> Self {
        let (criteria, value) = (FteMatchParam::ZERO, FteMatchParam::ZERO);
        FlowMatch { criteria, value, facts: Vec::new(), mistake: None, option: None }
    }

    /// The match by the PRM's own fields: frames that have `value` in the bits of `criteria`. The error of its use is
    /// [`Invalid::OutsideCriteria`] for bits of `value` outside `criteria`.
    pub fn of_fields(criteria: &FteMatchParam, value: &FteMatchParam) -> Self {
        let outside = value.as_bytes().iter().zip(criteria.as_bytes()).position(|(value, mask)| value & !mask != 0);
        let mistake = outside.map(|offset| Invalid::OutsideCriteria { by: "its criteria".into(), offset });
        let fields = Fields { criteria: *criteria, value: *value, of: None };
        let fact = Fact { name: "fields of fte_match_param".into(), fields };
        FlowMatch { criteria: *criteria, value: *value, facts: vec![fact], mistake, option: None }
    }

    /// Whether frames can match.
    ///
    /// # Errors
    /// [`Invalid::Contradiction`] names two fields that exclude each other; [`Invalid::TooWide`] and
    /// [`Invalid::OutOfRange`] a value that its field has not; [`Invalid::Requires`] a 0 that frames without the
    /// field's header have, too.
    pub fn check(&self) -> Result<(), Error> {
        let mistake = self.mistake.clone().or_else(|| self.ambiguity());
        mistake.map_or(Ok(()), |mistake| Err(mistake.into()))
    }

    /// The first field whose value frames without its header have, too.
    fn ambiguity(&self) -> Option<Invalid> {
        let unsaid = |header| !implies(&self.criteria, &self.value, header);
        let (fact, header) =
            self.facts.iter().find_map(|fact| Some((fact, fact.fields.of.filter(|of| unsaid(*of))?)))?;
        let requires = match header {
            Header::Ip => "ipv4() or ipv6() beside it, as frames without IP have 0 there",
            Header::Icmp => "fragments(false) beside it, as fragments have 0 there",
            Header::GeneveOption => "geneve_has_option(true) beside it, as GENEVE without the option has 0 there",
            Header::VlanTag => "vlan() or service_vlan() beside it, as frames without a tag have 0 there",
            Header::Tunnel => "vxlan(), geneve() or gre() beside it, as frames of no tunnel have 0 there",
        };
        Some(Invalid::Requires { what: fact.name.clone(), requires })
    }

    /// Adds a field, or several that go together, of this name.
    pub(super) fn and(mut self, name: impl Display, fields: Fields) -> Self {
        let name = name.to_string();
        if let Some(earlier) = self.facts.iter().find(|earlier| exclude(&earlier.fields, &fields)) {
            let contradiction = Invalid::Contradiction { first: earlier.name.clone(), second: name.clone() };
            self.mistake.get_or_insert(contradiction);
        }
        self.criteria = united(&self.criteria, &fields.criteria);
        self.value = united(&self.value, &fields.value);
        self.facts.push(Fact { name, fields });
        self
    }

    pub(super) fn wrong(mut self, mistake: Invalid) -> Self {
        self.mistake.get_or_insert(mistake);
        self
    }

    /// As [`and`](Self::and), with fields of an option of GENEVE.
    pub(super) fn and_of_option(mut self, option: &Arc<GeneveOption>, name: impl Display, fields: Fields) -> Self {
        // A card has one option.
        if self.option.as_ref().is_some_and(|own| !Arc::ptr_eq(own, option)) {
            return self.wrong(Invalid::ForeignDevice { what: "the GENEVE options of a match" });
        }
        self.option = Some(Arc::clone(option));
        self.and(name, fields)
    }

    /// As [`and`](Self::and), if `number` has no more than `bits` bits.
    pub(super) fn and_fitting(
        self,
        what: &'static str,
        number: u32,
        bits: u32,
        name: impl Display,
        fields: Fields,
    ) -> Self {
        match fits(what, number, bits) {
            Ok(()) => self.and(name, fields),
            Err(mistake) => self.wrong(mistake),
        }
    }

    /// As [`and_fitting`](Self::and_fitting), named by field and value.
    fn and_within(self, what: &'static str, value: u32, bits: u32, fields: Fields) -> Self {
        self.and_fitting(what, value, bits, format_args!("{what} {value}"), fields)
    }

    /// As [`and_fitting`](Self::and_fitting), of the bits of `mask`.
    pub(super) fn and_masked(self, what: &'static str, value: u32, mask: u32, bits: u32, fields: Fields) -> Self {
        self.and_fitting(what, value | mask, bits, format_args!("{what} {value:#x} of {mask:#x}"), fields)
    }

    /// Destination MAC address.
    pub fn destination_mac(self, mac: Mac) -> Self {
        self.destination_mac_masked(mac, Mac::BROADCAST)
    }

    /// Destination MAC addresses that are `mac` in the bits of `mask`.
    pub fn destination_mac_masked(self, mac: Mac, mask: Mac) -> Self {
        let fields = Fields::none().outer(|set, is_mask| {
            let [a, b, c, d, e, f] = masked(mac, mask, is_mask);
            set.w().dmac_47_16(u32::from_be_bytes([a, b, c, d])).dmac_15_0(u16::from_be_bytes([e, f]));
        });
        self.and(format_args!("destination MAC address {mac}"), fields)
    }

    /// Source MAC address.
    pub fn source_mac(self, mac: Mac) -> Self {
        self.source_mac_masked(mac, Mac::BROADCAST)
    }

    /// Source MAC addresses that are `mac` in the bits of `mask`.
    pub fn source_mac_masked(self, mac: Mac, mask: Mac) -> Self {
        let fields = Fields::none().outer(|set, is_mask| {
            let [a, b, c, d, e, f] = masked(mac, mask, is_mask);
            set.w().smac_47_16(u32::from_be_bytes([a, b, c, d])).smac_15_0(u16::from_be_bytes([e, f]));
        });
        self.and(format_args!("source MAC address {mac}"), fields)
    }

    /// Drop eligibility (DEI) of the outer VLAN tag. Where it is not set with [`vlan`](Self::vlan) or
    /// [`service_vlan`](Self::service_vlan).
    pub fn vlan_dei(self, is_eligible: bool) -> Self {
        let fields = Fields::of(Header::VlanTag).outer(|set, mask| _ = set.w().first_cfi(mask || is_eligible));
        self.and(format_args!("VLAN DEI {}", u8::from(is_eligible)), fields)
    }

    /// Drop eligibility (DEI) of the tag inside the outer one, a C-VLAN tag.
    pub fn inner_vlan_dei(self, is_eligible: bool) -> Self {
        let fields = Fields::none()
            .misc(|set, mask| _ = set.w().outer_second_cvlan_tag(true).outer_second_cfi(mask || is_eligible));
        self.and(format_args!("inner VLAN DEI {}", u8::from(is_eligible)), fields)
    }

    /// Frames without a VLAN tag.
    pub fn untagged(self) -> Self {
        let fields = Fields::none().outer(|set, mask| _ = set.w().cvlan_tag(mask).svlan_tag(mask));
        self.and("no VLAN tag", fields)
    }

    /// IPv4 packets.
    pub fn ipv4(self) -> Self {
        self.and("IPv4", Fields::none().ethertype(IPV4))
    }

    /// IPv6 packets.
    pub fn ipv6(self) -> Self {
        self.and("IPv6", Fields::none().ethertype(IPV6))
    }

    /// Packets of this version of IP, 4 or 6, by the first bits of the header; [`ipv4`](Self::ipv4) and
    /// [`ipv6`](Self::ipv6) go by the EtherType.
    pub fn ip_version(self, version: u8) -> Self {
        if ![4, 6].contains(&version) {
            let what = "version of IP that cards know";
            return self.wrong(Invalid::NotA { what, given: version.to_string(), mend: Some("match 4 or 6") });
        }
        let fields = Fields::none().outer(|set, mask| _ = set.w().ip_version(if mask { 0xf } else { version }));
        self.and(format_args!("IP version {version}"), fields)
    }

    /// Source address, of IPv4 or of IPv6.
    pub fn source_ip(self, address: IpAddr) -> Self {
        self.source_net(address, if address.is_ipv4() { IPV4_BITS } else { IPV6_BITS })
    }

    /// Source addresses whose first `prefix` bits are those of `address`.
    pub fn source_net(self, address: IpAddr, prefix: u8) -> Self {
        self.net("source address", address, prefix, |set, bytes| _ = set.w().src_ipv4_src_ipv6(&bytes))
    }

    /// Destination address, of IPv4 or of IPv6.
    pub fn destination_ip(self, address: IpAddr) -> Self {
        self.destination_net(address, if address.is_ipv4() { IPV4_BITS } else { IPV6_BITS })
    }

    /// Destination addresses whose first `prefix` bits are those of `address`.
    pub fn destination_net(self, address: IpAddr, prefix: u8) -> Self {
        self.net("destination address", address, prefix, |set, bytes| _ = set.w().dst_ipv4_dst_ipv6(&bytes))
    }

    /// Source addresses that are `address` in the bits of `mask`, which is of the same version of IP.
    pub fn source_ip_masked(self, address: IpAddr, mask: IpAddr) -> Self {
        self.ip_masked("source address", address, mask, |set, bytes| _ = set.w().src_ipv4_src_ipv6(&bytes))
    }

    /// Destination addresses that are `address` in the bits of `mask`, which is of the same version of IP.
    pub fn destination_ip_masked(self, address: IpAddr, mask: IpAddr) -> Self {
        self.ip_masked("destination address", address, mask, |set, bytes| _ = set.w().dst_ipv4_dst_ipv6(&bytes))
    }

    fn ip_masked(
        self,
        what: &'static str,
        ip: IpAddr,
        mask: IpAddr,
        put: impl Fn(&mut FteMatchSetLyr24, Ipv6LayoutIpv4LayoutAuto),
    ) -> Self {
        if ip.is_ipv4() != mask.is_ipv4() {
            let what = "mask of an address of this version of IP";
            return self.wrong(Invalid::NotA { what, given: mask.to_string(), mend: None });
        }
        self.and_address(format_args!("{what} {ip} of {mask}"), ip, octets(mask), put)
    }

    fn net(
        self,
        what: &'static str,
        ip: IpAddr,
        prefix: u8,
        put: impl Fn(&mut FteMatchSetLyr24, Ipv6LayoutIpv4LayoutAuto),
    ) -> Self {
        let bits = if ip.is_ipv4() { IPV4_BITS } else { IPV6_BITS };
        if prefix > bits {
            let of = if ip.is_ipv4() { "an IPv4 address" } else { "an IPv6 address" };
            return self.wrong(Invalid::out_of_range("prefix", prefix.into(), 0..=bits.into(), of));
        }
        self.and_address(format_args!("{what} {ip}/{prefix}"), ip, prefix_mask(prefix, bits), put)
    }

    /// As [`and`](Self::and), with an address that is `ip` in the bits of `mask`.
    fn and_address(
        self,
        name: impl Display,
        ip: IpAddr,
        mask: [u8; 16],
        put: impl Fn(&mut FteMatchSetLyr24, Ipv6LayoutIpv4LayoutAuto),
    ) -> Self {
        let ip_bytes = octets(ip);
        let value: [u8; 16] = std::array::from_fn(|at| ip_bytes[at] & mask[at]);
        let fields = Fields::none().outer(|set, is_mask| put(set, address(if is_mask { mask } else { value })));
        self.and(name, fields.ethertype(if ip.is_ipv4() { IPV4 } else { IPV6 }))
    }

    /// Fragments of IP packets, or all that is none. Only the first fragment has ports, and cards do not look for them
    /// there.
    pub fn fragments(self, wanted: bool) -> Self {
        let fields = Fields::none().outer(|set, mask| _ = set.w().frag(mask || wanted));
        self.and(if wanted { "a fragment" } else { "no fragment" }, fields)
    }

    /// Frames whose transport header is of this type, as the card's parser found it: unlike
    /// [`protocol`](Self::protocol) it is none in fragments, and where the header is cut off.
    pub fn l4_type(self, l4: L4Type) -> Self {
        let number = l4.number() & 3;
        let fields =
            Fields::none().outer(|set, mask| _ = set.w().l4_type(L4Type::from_number(if mask { 3 } else { number })));
        self.and_fitting("L4 type", l4.number(), 2, format_args!("L4 type {l4}"), fields)
    }

    /// As [`l4_type`](Self::l4_type), of more types: ICMP, of either version of IP.
    pub fn l4_type_ext(self, l4: L4TypeExt) -> Self {
        let number = l4.number() & 0xf;
        let fields = Fields::none()
            .outer(|set, mask| _ = set.w().l4_type_ext(L4TypeExt::from_number(if mask { 0xf } else { number })));
        self.and_fitting("extended L4 type", l4.number(), 4, format_args!("extended L4 type {l4}"), fields)
    }

    /// TCP packets.
    pub fn tcp(self) -> Self {
        self.and("TCP", Fields::none().protocol(TCP))
    }

    /// UDP packets.
    pub fn udp(self) -> Self {
        self.and("UDP", Fields::none().protocol(UDP))
    }

    /// Flags of TCP, from FIN (bit 0) to NS (bit 8): those of `mask` are as in `flags`.
    pub fn tcp_flags(self, flags: u16, mask: u16) -> Self {
        let fields = Fields::none()
            .outer(|set, is_mask| _ = set.w().tcp_flags(if is_mask { mask & 0x1ff } else { flags & mask & 0x1ff }));
        let matched = self.and(format_args!("TCP flags {flags:#x} of {mask:#x}"), fields.protocol(TCP));
        match fits("TCP flags", (mask | flags).into(), 9) {
            Ok(()) => matched,
            Err(mistake) => matched.wrong(mistake),
        }
    }

    /// Frames in VXLAN of network `vni`, 24 bits. What is in them: [`inner`](Self::inner).
    pub fn vxlan(self, vni: u32) -> Self {
        self.vxlan_at(VXLAN_PORT, vni)
    }

    /// As [`vxlan`](Self::vxlan), for what is `value` in the bits of `mask`.
    pub fn vxlan_masked(self, value: u32, mask: u32) -> Self {
        self.vxlan_at_masked(VXLAN_PORT, value, mask)
    }

    /// As [`vxlan`](Self::vxlan), at a UDP port that is one of VXLAN by a [`VxlanPort`](crate::objects::VxlanPort).
    pub fn vxlan_at(self, port: u16, vni: u32) -> Self {
        self.and_within(VXLAN_NETWORK, vni, 24, vxlan_network(port, Bits::of(vni, u32::MAX, 24)))
    }

    /// As [`vxlan_at`](Self::vxlan_at), of networks that are `vni` in the bits of `mask`.
    pub fn vxlan_at_masked(self, port: u16, vni: u32, mask: u32) -> Self {
        self.and_masked(VXLAN_NETWORK, vni, mask, 24, vxlan_network(port, Bits::of(vni, mask, 24)))
    }

    /// Word 0 to 3 of the header of a tunnel (VXLAN, GENEVE or GRE), its first byte in the upper bits: those of `mask`
    /// are as in `value`. Where these are all 0, with [`vxlan`](Self::vxlan), [`geneve`](Self::geneve) or
    /// [`gre`](Self::gre).
    pub fn tunnel_header(self, word: u8, value: u32, mask: u32) -> Self {
        if word > 3 {
            return self.wrong(Invalid::out_of_range("word of a tunnel's header", word.into(), 0..=3, "a card"));
        }
        let fields = Fields::of(Header::Tunnel).misc5(|set, is_mask| {
            let (bits, set) = (if is_mask { mask } else { value & mask }, set.w());
            _ = match word {
                0 => set.tunnel_header_0(bits),
                1 => set.tunnel_header_1(bits),
                2 => set.tunnel_header_2(bits),
                _ => set.tunnel_header_3(bits),
            };
        });
        self.and(format_args!("word {word} of a tunnel's header of {:#x}", value & mask), fields)
    }

    /// Frames that this send queue sends ([`Sq::sqn`](crate::objects::Sq::sqn)). For tables of sent frames: what is
    /// received has none.
    pub fn source_sq(self, sqn: u32) -> Self {
        let fields =
            Fields::none().misc(|set, mask| _ = set.w().source_sqn(if mask { 0xff_ffff } else { sqn & 0xff_ffff }));
        self.and_within("send queue", sqn, 24, fields)
    }

    /// Metadata register c of number 0 to 7, which an earlier table's rule set: those bits of `mask` are as in `value`.
    pub fn metadata(self, register: u8, value: u32, mask: u32) -> Self {
        if register > 7 {
            return self.wrong(Invalid::out_of_range("metadata register", register.into(), 0..=7, "a card"));
        }
        let fields = Fields::none().misc2(|set, is_mask| {
            let bits = if is_mask { mask } else { value & mask };
            let set = set.w();
            _ = match register {
                0 => set.metadata_reg_c_0(bits),
                1 => set.metadata_reg_c_1(bits),
                2 => set.metadata_reg_c_2(bits),
                3 => set.metadata_reg_c_3(bits),
                4 => set.metadata_reg_c_4(bits),
                5 => set.metadata_reg_c_5(bits),
                6 => set.metadata_reg_c_6(bits),
                _ => set.metadata_reg_c_7(bits),
            };
        });
        self.and(format_args!("metadata register {register} of {:#x}", value & mask), fields)
    }

    /// Frames of this colour, which a meter of an earlier table's rule has left in metadata register c of number 0 to
    /// 7: see [`FlowMeters`](crate::objects::FlowMeters).
    pub fn color(self, register: u8, color: FlowMeterColor) -> Self {
        self.metadata(register, color.number(), COLOR)
    }

    /// Frames that are sent with this metadata
    /// ([`SendBatch::flow_metadata`](crate::queue::SendBatch::flow_metadata)): those bits of `mask` are as in `value`.
    /// For tables of sent frames: what is received has none. PRM `metadata_reg_a`.
    pub fn sent_metadata(self, value: u32, mask: u32) -> Self {
        let fields =
            Fields::none().misc2(|set, is_mask| _ = set.w().metadata_reg_a(if is_mask { mask } else { value & mask }));
        self.and(format_args!("metadata of {:#x} from its sender", value & mask), fields)
    }

    /// The frame in the tunnel is as `inner` says: its MAC addresses, VLAN tags, IP and transport headers.
    ///
    /// Its check fails if `inner` has fields that no card looks at in a tunnel.
    pub fn inner(self, inner: FlowMatch) -> Self {
        let matched = match inner.mistake.clone().or_else(|| inner.ambiguity()) {
            Some(mistake) => self.wrong(mistake),
            None => self,
        };
        inner.facts.into_iter().fold(matched, |matched, Fact { name, fields }| match fields.moved_in() {
            Some(moved) => matched.and(format_args!("inner {name}"), moved),
            None => {
                let what = "field that is matched inside a tunnel";
                matched.wrong(Invalid::NotA { what, given: name, mend: None })
            }
        })
    }

    /// `match_criteria`.
    pub fn criteria(&self) -> &FteMatchParam {
        &self.criteria
    }

    /// `match_value`.
    pub fn value(&self) -> &FteMatchParam {
        &self.value
    }

    /// The option of GENEVE that it needs, if that is of `device`.
    pub(super) fn option_of(&self, device: &Arc<Device>) -> Result<Option<Arc<GeneveOption>>, Error> {
        match &self.option {
            Some(option) if !Arc::ptr_eq(option.device(), device) => {
                Err(Invalid::ForeignDevice { what: "GENEVE option and flow table" }.into())
            }
            option => Ok(option.clone()),
        }
    }

    /// `match_criteria_enable`: bit n for the nth part of the criteria, if that is not empty.
    pub(super) fn enabled(&self) -> u8 {
        let parts = self.criteria.as_bytes().chunks(PART).zip(0..);
        parts.fold(0, |all, (part, bit)| all | u8::from(part.iter().any(|byte| *byte != 0)) << bit)
    }

    /// Error unless it compares the bits of `criteria`, which are those of `by`.
    pub(super) fn check_criteria(&self, criteria: &FteMatchParam, by: &str) -> Result<(), Error> {
        self.check()?;
        let differs = self.criteria.as_bytes().iter().zip(criteria.as_bytes()).position(|(own, other)| own != other);
        match differs {
            Some(offset) => Err(Invalid::OutsideCriteria { by: by.into(), offset }.into()),
            None => Ok(()),
        }
    }
}

fn vxlan_network(port: u16, bits: Bits) -> Fields {
    Fields::none().datagram(port).misc(|set, mask| _ = set.w().vxlan_vni(bits.part(mask)))
}

fn masked(mac: Mac, mask: Mac, is_mask: bool) -> [u8; 6] {
    if is_mask { mask.0 } else { std::array::from_fn(|at| mac.0[at] & mask.0[at]) }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn text(matched: FlowMatch) -> String {
        matched.check().unwrap_err().to_string()
    }

    #[test]
    fn fields_that_exclude_each_other_are_both_named() {
        let ten = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
        let tcp = FlowMatch::new().tcp_destination_port(80);
        assert_eq!(text(tcp.clone().udp()), "no frame has both TCP destination port 80 and UDP");
        assert_eq!(text(tcp.clone().vxlan(5)), "no frame has both TCP destination port 80 and VXLAN network 5");
        assert_eq!(
            text(tcp.clone().tcp_destination_port(81)),
            "no frame has both TCP destination port 80 and TCP destination port 81"
        );
        assert_eq!(
            text(FlowMatch::new().ipv6().source_ip(ten)),
            "no frame has both IPv6 and source address 10.0.0.1/32"
        );
        assert_eq!(text(FlowMatch::new().untagged().vlan(5)), "no frame has both no VLAN tag and VLAN 5");
        assert_eq!(text(FlowMatch::new().vlan(5).service_vlan(5)), "no frame has both VLAN 5 and service VLAN 5");
        assert!(text(FlowMatch::new().ethertype(0x806).destination_ip(ten)).contains("EtherType 0x0806"));
        assert!(text(FlowMatch::new().inner(tcp.clone().udp())).contains("UDP"));
        let numbered = tcp.clone().tcp_sequence(7);
        assert_eq!(text(numbered.icmp_type(8)), "no frame has both TCP destination port 80 and ICMP type 8");
        assert_eq!(text(FlowMatch::new().flow_label(5).source_ip(ten)).split(" and ").count(), 2);
        let gre_in_udp = FlowMatch::new().geneve(7).gre_key(5);
        assert_eq!(text(gre_in_udp), "no frame has both GENEVE network 7 and GRE key 0x5");
        assert_eq!(text(FlowMatch::new().bth_opcode(4).tcp()), "no frame has both RoCE opcode 0x04 and TCP");
        assert_eq!(
            text(FlowMatch::new().bth_opcode(4).geneve(7)),
            "no frame has both RoCE opcode 0x04 and GENEVE network 7"
        );
        let session = FlowMatch::new().gtpu_qfi(0);
        assert_eq!(
            text(session.clone().gtpu_has_extension(false)),
            "no frame has both GTP-U QFI 0 and GTP-U without extension headers"
        );
        assert_eq!(
            text(session.clone().gtpu_extension(0x20, 0, 0)),
            "no frame has both GTP-U QFI 0 and GTP-U extension header 0x20 with 0x0 of 0x0"
        );
        assert_eq!(text(session.clone().gtpu_qfi(1)), "no frame has both GTP-U QFI 0 and GTP-U QFI 1");
        session.gtpu_pdu_type(1).gtpu_sequence(5).gtpu_has_n_pdu(false).gtpu_length(40).check().unwrap();
        // Outside and inside are two frames.
        FlowMatch::new().vxlan(7).inner(tcp).check().unwrap();
        FlowMatch::new().destination_ip(ten).destination_net(ten, 8).check().unwrap();
    }

    #[test]
    fn fields_of_headers_that_a_frame_cannot_have_are_refused_with_what_excludes_them() {
        let (arp, all) = (FlowMatch::new().ethertype(0x0806), FlowMatch::new);
        let both = |first: &str, second: &str| format!("no frame has both {first} and {second}");
        assert_eq!(text(arp.clone().tcp_source_port(5)), both("EtherType 0x0806", "TCP source port 5"));
        assert_eq!(text(all().udp().ethertype(0x0806)), both("UDP", "EtherType 0x0806"));
        assert_eq!(text(arp.clone().dscp(1)), both("EtherType 0x0806", "DSCP 1"));
        assert_eq!(text(arp.clone().hop_limit(0)), both("EtherType 0x0806", "hop limit 0"));
        assert_eq!(text(all().mpls_label(7).tcp()), both("MPLS label 7", "TCP"));
        assert_eq!(text(all().tcp().mpls_ttl(7)), both("TCP", "MPLS time to live 7"));
        let over_udp = all().mpls_over_udp_label(7);
        assert_eq!(
            text(all().mpls_label(7).mpls_over_udp_ttl(0)),
            both("MPLS label 7", "MPLS over UDP time to live 0")
        );
        assert_eq!(
            text(over_udp.clone().mpls_over_gre_ttl(0)),
            both("MPLS over UDP label 7", "MPLS over GRE time to live 0")
        );
        assert_eq!(
            text(over_udp.clone().udp_destination_port(6636)),
            both("MPLS over UDP label 7", "UDP destination port 6636")
        );
        assert_eq!(text(over_udp.clone().fragments(true)), both("MPLS over UDP label 7", "a fragment"));
        assert_eq!(text(all().gre(0x0800).mpls_over_gre_label(0)), both("GRE of 0x0800", "MPLS over GRE label 0"));
        assert_eq!(text(all().untagged().inner_vlan(5)), both("no VLAN tag", "inner VLAN 5"));
        assert_eq!(text(all().inner_vlan_dei(true).untagged()), both("inner VLAN DEI 1", "no VLAN tag"));
        assert_eq!(text(all().untagged().vlan_priority(0)), both("no VLAN tag", "VLAN priority 0"));
        assert_eq!(text(all().fragments(true).udp_source_port(1)), both("a fragment", "UDP source port 1"));
        let data = all().icmp_header_data(5, 0xff);
        assert_eq!(text(data.clone().fragments(true)), both("ICMP header data 0x5 of 0xff", "a fragment"));
        assert_eq!(text(data.clone().icmpv6_code(1)), both("ICMP header data 0x5 of 0xff", "ICMPv6 code 1"));
        assert_eq!(
            text(data.icmp_header_data(6, 2)),
            both("ICMP header data 0x5 of 0xff", "ICMP header data 0x6 of 0x2")
        );
        assert_eq!(text(all().gre(0x6558).fragments(true)), both("GRE of 0x6558", "a fragment"));
        assert_eq!(text(all().bth_opcode(0x81).fragments(true)), both("RoCE opcode 0x81", "a fragment"));
        assert_eq!(text(all().l4_type(L4Type::Tcp).udp()), both("L4 type TCP", "UDP"));
        assert_eq!(text(all().icmp_type(8).l4_type(L4Type::Udp)), both("ICMP type 8", "L4 type UDP"));
        assert_eq!(
            text(all().l4_type(L4Type::Tcp).l4_type_ext(L4TypeExt::Icmp)),
            both("L4 type TCP", "extended L4 type ICMP")
        );
        assert_eq!(text(arp.clone().l4_type(L4Type::Udp)), both("EtherType 0x0806", "L4 type UDP"));
        assert_eq!(text(all().fragments(true).l4_type(L4Type::Udp)), both("a fragment", "L4 type UDP"));
        assert_eq!(text(all().ip_version(4).ipv6()), both("IP version 4", "IPv6"));
        assert_eq!(
            text(arp.clone().tunnel_header(0, 8, 8)),
            both("EtherType 0x0806", "word 0 of a tunnel's header of 0x8")
        );
        assert_eq!(text(all().inner_vlan(5).inner_service_vlan(5)), both("inner VLAN 5", "inner service VLAN 5"));
        let inside = all().inner(arp.clone()).inner(all().tcp());
        assert_eq!(text(inside), both("inner EtherType 0x0806", "inner TCP"));
        // Frames can have these.
        for possible in [
            arp.clone().vlan(5).fragments(false),
            arp.clone().untagged(),
            all().vlan(5).inner_vlan(6).tcp_source_port(1),
            all().fragments(true).protocol(17).dscp(1),
            all().fragments(false).udp_source_port(1),
            all().vxlan(5).untagged().inner(all().ethertype(0x0806).vlan(6)),
            all().mpls_label(7).mpls_ttl(5).vlan(4),
            over_udp.mpls_over_udp_bottom_of_stack(false).ipv6(),
            all().mpls_over_gre_label(7).gre_key(5).gre_has_sequence(true),
            all().ethertype(0x0800).tcp(),
            all().l4_type(L4Type::Tcp).l4_type_ext(L4TypeExt::Tcp).tcp_source_port(5).ip_version(6),
            all().l4_type(L4Type::None).l4_type_ext(L4TypeExt::Icmp).icmpv6_type(0),
            all().l4_type(L4Type::None).protocol(6).fragments(true),
            arp.l4_type(L4Type::None),
        ] {
            possible.check().unwrap();
        }
    }

    #[test]
    fn a_zero_that_frames_without_the_header_have_too_needs_the_header_said() {
        let all = FlowMatch::new;
        for (of_ip, name) in [
            (all().dscp(0), "DSCP 0"),
            (all().ecn(0), "ECN 0"),
            (all().hop_limit(0), "hop limit 0"),
            (all().protocol(0), "IP protocol 0"),
        ] {
            assert_eq!(
                text(of_ip.clone()),
                format!("{name} needs ipv4() or ipv6() beside it, as frames without IP have 0 there")
            );
            assert!(text(all().vxlan(5).inner(of_ip.clone())).starts_with(name));
            of_ip.clone().ipv6().check().unwrap();
            of_ip.clone().udp().check().unwrap_or_else(|_| assert_eq!(name, "IP protocol 0"));
            all().ecn(1).inner(of_ip.ipv4()).check().unwrap();
        }
        for (of_tag, name) in [(all().vlan_priority(0), "VLAN priority 0"), (all().vlan_dei(false), "VLAN DEI 0")] {
            assert!(text(of_tag.clone()).starts_with(&format!("{name} needs vlan() or service_vlan()")));
            of_tag.clone().vlan(0).check().unwrap();
            of_tag.clone().service_vlan(0).check().unwrap();
            of_tag.inner_vlan(0).check().unwrap();
        }
        for (of_icmp, name) in [
            (all().icmp_type(0), "ICMP type 0"),
            (all().icmp_code(0), "ICMP code 0"),
            (all().icmp_header_data(0, u32::MAX), "ICMP header data 0x0 of 0xffffffff"),
            (all().icmp_header_data(0x1_0000, 0xffff), "ICMP header data 0x10000 of 0xffff"),
            (all().icmpv6_type(0), "ICMPv6 type 0"),
            (all().icmpv6_code(0), "ICMPv6 code 0"),
            (all().icmpv6_header_data(0, 0xff), "ICMPv6 header data 0x0 of 0xff"),
        ] {
            let requires = "needs fragments(false) beside it, as fragments have 0 there";
            assert_eq!(text(of_icmp.clone()), format!("{name} {requires}"));
            of_icmp.fragments(false).check().unwrap();
        }
        all().icmp_type(8).icmp_code(0).icmp_header_data(0, u32::MAX).check().unwrap();
        all().icmpv6_type(0).icmpv6_header_data(5, u32::MAX).check().unwrap();
        for of_tunnel in [all().tunnel_header(0, 0, 1), all().tunnel_header(2, 8, 7)] {
            assert!(text(of_tunnel.clone()).contains("needs vxlan(), geneve() or gre() beside it"));
            of_tunnel.clone().vxlan(0).check().unwrap();
            of_tunnel.clone().geneve_masked(0, 1).check().unwrap();
            of_tunnel.gre(0x6558).check().unwrap();
        }
        all().dscp(0).l4_type(L4Type::Tcp).check().unwrap();
        all().dscp(1).hop_limit(0).check().unwrap();
        all().vlan_priority(1).vlan_dei(false).check().unwrap();
        // Who names the PRM's fields means them.
        let (criteria, value) = (*all().dscp(0).criteria(), FteMatchParam::ZERO);
        FlowMatch::of_fields(&criteria, &value).check().unwrap();
    }

    #[test]
    fn values_that_fields_have_not_are_refused() {
        assert!(text(FlowMatch::new().vlan(4096)).starts_with("VLAN is 0x1000"));
        assert!(text(FlowMatch::new().vxlan(1 << 24)).contains("24 bits"));
        assert!(text(FlowMatch::new().source_net(Ipv4Addr::LOCALHOST.into(), 33)).contains("at most 32"));
        assert!(text(FlowMatch::new().source_net(Ipv6Addr::LOCALHOST.into(), 129)).contains("at most 128"));
        assert!(text(FlowMatch::new().metadata(8, 0, 0)).contains("at most 7"));
        assert!(text(FlowMatch::new().tunnel_header(4, 0, 0)).contains("at most 3"));
        assert_eq!(text(FlowMatch::new().ip_version(5)), "5 is no version of IP that cards know: match 4 or 6");
        assert!(text(FlowMatch::new().gtpu_extension(0, 5, 7)).starts_with("extension header type is 0"));
        let in_tunnel = FlowMatch::new().inner(FlowMatch::new().vxlan(4));
        assert_eq!(text(in_tunnel), "VXLAN network 4 is no field that is matched inside a tunnel");
        let (criteria, mut value) = (FteMatchParam::ZERO, FteMatchParam::ZERO);
        let mut set = FteMatchSetLyr24::ZERO;
        set.w().tcp_dport(1);
        value.w().outer_headers(&set);
        assert!(text(FlowMatch::of_fields(&criteria, &value)).contains("byte 0x17"));
    }

    #[test]
    fn prefixes_are_those_of_the_address() {
        let net = FlowMatch::new().source_net(Ipv4Addr::new(10, 1, 2, 3).into(), 12);
        let bytes = |all: &FteMatchParam| *all.outer_headers().src_ipv4_src_ipv6().ipv6_layout().ipv6();
        assert_eq!(bytes(net.criteria())[..], [&[0; 12][..], &[0xff, 0xf0, 0, 0]].concat());
        assert_eq!(bytes(net.value())[..], [&[0; 12][..], &[10, 0, 0, 0]].concat());
        let all = FlowMatch::new().source_net(Ipv6Addr::LOCALHOST.into(), 0);
        assert_eq!(bytes(all.criteria()), [0; 16]);
        let one = FlowMatch::new().source_ip(Ipv6Addr::LOCALHOST.into());
        assert_eq!((bytes(one.criteria()), bytes(one.value())), ([0xff; 16], Ipv6Addr::LOCALHOST.octets()));
    }

    #[test]
    fn each_part_of_the_criteria_has_its_bit() {
        assert_eq!(FlowMatch::new().enabled(), 0);
        assert_eq!(FlowMatch::new().tcp().enabled(), 1);
        assert_eq!(FlowMatch::new().vxlan(1).inner(FlowMatch::new().ipv4()).enabled(), 0b111);
        assert_eq!(FlowMatch::new().metadata(3, 1, 1).enabled(), 0b1000);
        assert_eq!(FlowMatch::new().icmp_type(8).enabled(), 0b1_0001);
    }
}
