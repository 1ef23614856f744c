//! Every field of `fte_match_param` is one of [`FlowMatch`], or there is a reason why not.

use std::net::Ipv6Addr;

use mlx5_prm::flow::{
    FteMatchParam, FteMatchSetLyr24, FteMatchSetMisc, FteMatchSetMisc2, FteMatchSetMisc3, FteMatchSetMisc4,
    FteMatchSetMisc5, FteMatchSetMisc6, L4Type, L4TypeExt,
};
use mlx5_prm::layout::{Kind, Layout};

use super::matching::FlowMatch;
use crate::net::Mac;

/// Fields that a match has not, and why.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "of the e-switch: tables of the NIC do not have it",
        &["source_vhca_port", "source_eswitch_owner_vhca_id", "source_port"],
    ),
    ("of an option that a card has to make: see geneve_option.rs", &["geneve_tlv_option_0_exist"]),
    ("of an option that a card has to make: see geneve_option.rs", &["geneve_tlv_option_0_data"]),
    ("of the IPsec engine, which this driver has not", &["ipsec_syndrome", "ipsec_next_header"]),
    ("of the MACsec engine, which this driver has not", &["macsec_syndrome"]),
    (
        "of the MACsec engine, which this driver has not",
        &["macsec_tag_0", "macsec_tag_1", "macsec_tag_2", "macsec_tag_3"],
    ),
    ("of the PSP engine, which this driver has not", &["psp_syndrome", "psp_version"]),
    (
        "of samplers, which software makes for headers that no card knows",
        &[
            "prog_sample_field_value_0",
            "prog_sample_field_id_0",
            "prog_sample_field_value_1",
            "prog_sample_field_id_1",
            "prog_sample_field_value_2",
            "prog_sample_field_id_2",
            "prog_sample_field_value_3",
            "prog_sample_field_id_3",
        ],
    ),
];

/// A frame's own fields, of which some are of a tunnel's inside, too.
fn of_both() -> Vec<FlowMatch> {
    let all = FlowMatch::new;
    let (six, mac) = (Ipv6Addr::LOCALHOST.into(), Mac([2, 0, 0, 0, 0, 1]));
    vec![
        all().destination_mac(mac).source_mac(mac).ethertype(5),
        all().vlan(5).vlan_priority(5).vlan_dei(true).inner_vlan(5).inner_vlan_priority(5).inner_vlan_dei(true),
        all().service_vlan(5).inner_service_vlan(5),
        all().source_ip(six).destination_ip(six).flow_label(5),
        all().ip_version(4).ipv4_header_words(5).protocol(5).dscp(5).ecn(1).hop_limit(5).fragments(false),
        all().l4_type(L4Type::Tcp).l4_type_ext(L4TypeExt::Tcp),
        all().tcp_source_port(5).tcp_destination_port(5).tcp_flags(0x1ff, 0x1ff).tcp_sequence(5).tcp_acknowledgement(5),
        all().udp_source_port(5).udp_destination_port(5),
        all().mpls_label(5).mpls_traffic_class(5).mpls_bottom_of_stack(true).mpls_ttl(5),
        all().esp_spi(5),
    ]
}

/// All that can be asked for without a card.
fn everything() -> Vec<FlowMatch> {
    let all = FlowMatch::new;
    let mut everything = of_both();
    everything.extend(of_both().into_iter().map(|inside| all().inner(inside)));
    everything.extend([
        all().gre(5).gre_key(5).gre_has_checksum(true).gre_has_sequence(true),
        all().vxlan(5),
        all().geneve(5).geneve_protocol(5).geneve_option_words(5).geneve_oam(true),
        all().bth_opcode(5).bth_destination_qp(5),
        all().source_sq(5).sent_metadata(5, u32::MAX),
        all().mpls_over_udp_label(5).mpls_over_udp_traffic_class(5).mpls_over_udp_ttl(5),
        all().mpls_over_gre_label(5).mpls_over_gre_traffic_class(5).mpls_over_gre_ttl(5),
        all().vxlan_gpe(5).vxlan_gpe_next_protocol(5).vxlan_gpe_flags(8, 8),
        all().icmp_type(5).icmp_code(5).icmp_header_data(5, u32::MAX),
        all().icmpv6_type(5).icmpv6_code(5).icmpv6_header_data(5, u32::MAX),
        all().gtpu_teid(5).gtpu_message_type(5).gtpu_length(5).gtpu_sequence(5).gtpu_qfi(5),
    ]);
    everything.extend((0..8).map(|register| all().metadata(register, 5, u32::MAX)));
    everything.extend((0..4).map(|word| all().tunnel_header(word, 5, u32::MAX)));
    everything
}

/// The names of the fields of a part, and whether the criteria have a bit of each.
fn looked_at<L: Layout>(part: usize, criteria: &[u8]) -> Vec<(&'static str, bool)> {
    let bytes = &criteria[part * L::SIZE..][..L::SIZE];
    let is_set = |field: &mlx5_prm::layout::Field| match field.kind {
        Kind::Bits { .. } => field.number(bytes) != Some(0),
        _ => bytes[field.offset..][..field.bits() / 8].iter().any(|byte| *byte != 0),
    };
    L::FIELDS.iter().map(|field| (field.name, is_set(field))).collect()
}

#[test]
fn every_field_is_asked_for_or_has_a_reason() {
    let mut criteria = [0; FteMatchParam::SIZE];
    for matched in everything() {
        matched.check().unwrap();
        criteria.iter_mut().zip(matched.criteria().as_bytes()).for_each(|(all, one)| *all |= one);
    }
    let fields = [
        looked_at::<FteMatchSetLyr24>(0, &criteria),
        looked_at::<FteMatchSetMisc>(1, &criteria),
        looked_at::<FteMatchSetLyr24>(2, &criteria),
        looked_at::<FteMatchSetMisc2>(3, &criteria),
        looked_at::<FteMatchSetMisc3>(4, &criteria),
        looked_at::<FteMatchSetMisc4>(5, &criteria),
        looked_at::<FteMatchSetMisc5>(6, &criteria),
        looked_at::<FteMatchSetMisc6>(7, &criteria),
    ]
    .concat();
    for (name, is_asked) in &fields {
        let reason = LEFT_OUT.iter().find(|(_, names)| names.contains(name)).map(|(reason, _)| reason);
        assert_eq!(*is_asked, reason.is_none(), "{name}: {reason:?}");
    }
    for name in LEFT_OUT.iter().flat_map(|(_, names)| *names) {
        assert!(fields.iter().any(|(field, _)| field == name), "there is no field {name}");
    }
}
