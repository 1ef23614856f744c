//! Fields that no frame has together, and headers that all frames with some fields have.

use mlx5_prm::flow::{FteMatchParam, FteMatchSetLyr24, L4Type, L4TypeExt};
use mlx5_prm::layout::Layout;

use super::fields::{Fields, Header, IPV4, IPV6, TCP, UDP};

/// IP protocols whose transport headers have a type.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const PROTOCOLS: [u8; 4] = [ICMP, TCP, UDP, ICMPV6];

/// Whether no frame has the fields of both.
pub(super) fn exclude(one: &Fields, other: &Fields) -> bool {
    differ(one, other)
        || Frame::both(one).iter().zip(Frame::both(other)).any(|(one, other)| one.lacks(&other) || other.lacks(one))
}

/// Whether they want another value of the same bit.
fn differ(one: &Fields, other: &Fields) -> bool {
    let masks = one.criteria.as_bytes().iter().zip(other.criteria.as_bytes());
    let values = one.value.as_bytes().iter().zip(other.value.as_bytes());
    masks.zip(values).any(|((a, b), (x, y))| a & b & (x ^ y) != 0)
}

/// Whether all frames with these values have the header, outside a tunnel.
pub(super) fn implies(criteria: &FteMatchParam, value: &FteMatchParam, header: Header) -> bool {
    let (asked, is) = (criteria.outer_headers(), value.outer_headers());
    match header {
        Header::Ip => {
            let values = [is.ip_protocol(), is.ip_dscp(), is.ip_ecn(), is.ttl_hoplimit()];
            asked.ethertype() == u16::MAX
                || asked.ip_version() != 0
                || is.l4_type() != L4Type::None
                || is.l4_type_ext() != L4TypeExt::None
                || values.iter().any(|value| *value != 0)
        }
        Header::Icmp => {
            let misc3 = value.misc_parameters_3();
            let fields = [misc3.icmp_type(), misc3.icmp_code(), misc3.icmpv6_type(), misc3.icmpv6_code()];
            asked.frag() && !is.frag()
                || is.l4_type_ext() == L4TypeExt::Icmp
                || fields.iter().any(|field| *field != 0)
                || misc3.icmp_header_data() != 0
                || misc3.icmpv6_header_data() != 0
        }
        Header::GeneveOption => {
            value.misc_parameters().geneve_tlv_option_0_exist()
                || value.misc_parameters_3().geneve_tlv_option_0_data() != 0
        }
        Header::Tunnel => {
            let (misc, words) = (criteria.misc_parameters(), value.misc_parameters_5());
            misc.vxlan_vni() != 0
                || misc.geneve_vni() != 0
                || misc.geneve_protocol_type() != 0
                || misc.gre_protocol() != 0
                || is_set(words)
        }
        Header::VlanTag => {
            let misc = value.misc_parameters();
            let tags = [is.cvlan_tag(), is.svlan_tag(), misc.outer_second_cvlan_tag(), misc.outer_second_svlan_tag()];
            tags.contains(&true) || is.first_prio() != 0 || is.first_cfi() || is.first_vid() != 0
        }
    }
}

/// What fields say of a frame, outside a tunnel or inside.
struct Frame {
    criteria: FteMatchSetLyr24,
    value: FteMatchSetLyr24,
    /// They are of a second VLAN tag, too.
    has_second_tag: bool,
    /// They are of headers behind that of IP, too.
    has_payload: bool,
}

impl Frame {
    /// Of the frame outside, and of that inside.
    fn both(fields: &Fields) -> [Frame; 2] {
        let Fields { criteria, value, .. } = fields;
        let (misc, misc2, misc3) =
            (criteria.misc_parameters(), criteria.misc_parameters_2(), criteria.misc_parameters_3());
        let tunnel = [
            misc.gre_c_present() || misc.gre_k_present() || misc.gre_s_present(),
            misc.gre_protocol() != 0,
            misc.vxlan_vni() != 0,
            misc.geneve_vni() != 0 || misc.geneve_protocol_type() != 0,
            misc.geneve_opt_len() != 0 || misc.geneve_oam() || misc.geneve_tlv_option_0_exist(),
            [misc2.outer_first_mpls_over_gre(), misc2.outer_first_mpls_over_udp()].iter().any(|entry| is_set(*entry)),
            is_set(criteria.misc_parameters_5()),
            misc.bth_opcode() != 0 || misc.bth_dst_qp() != 0 || misc.outer_esp_spi() != 0,
        ];
        let mut rest = *misc3;
        rest.w().inner_tcp_seq_num(0).inner_tcp_ack_num(0);
        let outer = Frame {
            criteria: *criteria.outer_headers(),
            value: *value.outer_headers(),
            has_second_tag: misc.outer_second_cvlan_tag()
                || misc.outer_second_svlan_tag()
                || misc.outer_second_vid() != 0,
            has_payload: tunnel.contains(&true) || is_set(&rest),
        };
        let inner = Frame {
            criteria: *criteria.inner_headers(),
            value: *value.inner_headers(),
            has_second_tag: misc.inner_second_cvlan_tag()
                || misc.inner_second_svlan_tag()
                || misc.inner_second_vid() != 0,
            has_payload: misc3.inner_tcp_seq_num() != 0 || misc3.inner_tcp_ack_num() != 0 || misc.inner_esp_spi() != 0,
        };
        [outer, inner]
    }

    /// Whether it has not a header that `other` has.
    fn lacks(&self, other: &Frame) -> bool {
        self.is_untagged() && other.has_tag()
            || self.is_not_ip() && other.is_ip()
            || self.is_fragment() && other.has_l4()
            || self.version().zip(other.version()).is_some_and(|(own, its)| own != its)
            || self.is_typed() && !PROTOCOLS.iter().any(|protocol| self.allows(*protocol) && other.allows(*protocol))
    }

    /// The version of IP that it has, as its first bits or its EtherType say.
    fn version(&self) -> Option<u8> {
        let Frame { criteria, value, .. } = self;
        match (criteria.ip_version(), criteria.ethertype(), value.ethertype()) {
            (0xf, ..) => Some(value.ip_version()),
            (_, u16::MAX, IPV4) => Some(4),
            (_, u16::MAX, IPV6) => Some(6),
            _ => None,
        }
    }

    /// Whether it says of which type the transport header is.
    fn is_typed(&self) -> bool {
        self.value.l4_type() != L4Type::None || self.value.l4_type_ext() != L4TypeExt::None
    }

    /// Whether packets of this protocol can have it. Of none as the type, all can: fragments have it.
    fn allows(&self, protocol: u8) -> bool {
        let Frame { criteria, value, .. } = self;
        let by_type = match value.l4_type() {
            L4Type::Tcp => protocol == TCP,
            L4Type::Udp => protocol == UDP,
            _ => true,
        };
        let by_extended = match value.l4_type_ext() {
            L4TypeExt::Tcp => protocol == TCP,
            L4TypeExt::Udp => protocol == UDP,
            L4TypeExt::Icmp => [ICMP, ICMPV6].contains(&protocol),
            _ => true,
        };
        let differs = (protocol ^ value.ip_protocol()) & criteria.ip_protocol() != 0;
        by_type && by_extended && !differs
    }

    fn is_untagged(&self) -> bool {
        let Frame { criteria, value, .. } = self;
        criteria.cvlan_tag() && criteria.svlan_tag() && !value.cvlan_tag() && !value.svlan_tag()
    }

    fn has_tag(&self) -> bool {
        let criteria = &self.criteria;
        self.has_second_tag || criteria.first_prio() != 0 || criteria.first_cfi() || criteria.first_vid() != 0
    }

    fn is_not_ip(&self) -> bool {
        self.criteria.ethertype() == u16::MAX && ![IPV4, IPV6].contains(&self.value.ethertype())
    }

    /// Frames of other protocols are no fragments, so that alone does not count.
    fn is_ip(&self) -> bool {
        let criteria = &self.criteria;
        let addresses = [criteria.src_ipv4_src_ipv6(), criteria.dst_ipv4_dst_ipv6()];
        self.has_payload
            || self.has_l4()
            || self.is_fragment()
            || criteria.ip_protocol() != 0
            || criteria.ip_dscp() != 0
            || criteria.ip_ecn() != 0
            || criteria.ttl_hoplimit() != 0
            || criteria.ipv4_ihl() != 0
            || addresses.iter().any(|address| is_set(*address))
    }

    fn is_fragment(&self) -> bool {
        self.value.frag()
    }

    /// Fields of headers that no fragment has, or that cards do not look for there.
    fn has_l4(&self) -> bool {
        let criteria = &self.criteria;
        let ports = [criteria.tcp_sport(), criteria.tcp_dport(), criteria.udp_sport(), criteria.udp_dport()];
        self.has_payload || self.is_typed() || criteria.tcp_flags() != 0 || ports.iter().any(|port| *port != 0)
    }
}

/// Whether any bit is set.
fn is_set(fields: &impl Layout) -> bool {
    Layout::as_bytes(fields).iter().any(|byte| *byte != 0)
}
