//! Flow rules that match an option of GENEVE.

use std::sync::Arc;

use mlx5_dv::objects::{FlowActions, FlowCounter, FlowMatch, FlowRules, FlowRulesOptions, GeneveOption};
use mlx5_dv::queue::ethernet::EthernetOptions;
use mlx5_open::Sim;
use mlx5_prm::caps::{CmdHcaCap, FlowTableFieldsSupported};
use mlx5_sim::profile::Profile;

use crate::ends::{EthernetEnd, end, refusal, two_of};

const CLASS: u16 = 0x0102;
const KIND: u8 = 0x83;

/// GENEVE with these bytes of options in a frame from one function to the other.
fn geneve(here: &EthernetEnd, there: &EthernetEnd, options: &[u8]) -> Vec<u8> {
    let inside = [&[2; 12][..], &[0x88, 0xb5], &[7; 46]].concat();
    let words = (options.len() / 4) as u8;
    let payload = [&[words, 0, 0x65, 0x58, 0, 0, 5, 0][..], options, &inside].concat();
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2(here.device.mac().0, there.device.mac().0);
    builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(7, 6081).write(&mut frame, &payload).unwrap();
    frame
}

/// An option.
fn option(class: u16, kind: u8, data: &[u32]) -> Vec<u8> {
    let head = [&class.to_be_bytes()[..], &[kind, data.len() as u8]].concat();
    [head, data.iter().flat_map(|word| word.to_be_bytes()).collect()].concat()
}

fn all() -> FlowMatch {
    FlowMatch::new()
}

#[test]
fn the_data_of_an_option_is_matched_wherever_it_is() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, mut there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    let rules = FlowRules::create(&there.device, FlowRulesOptions::default()).unwrap();
    rules.start().unwrap();
    let tir = there.queue.tir().clone();
    let tenant = GeneveOption::create(&there.device, CLASS, KIND, 1).unwrap();
    assert_eq!((tenant.class(), tenant.kind(), tenant.words()), (CLASS, KIND, 1));
    let rest = rules.add(1, &all().ethertype(0x88b5), &tir).unwrap();
    let last = here.frame(there.device.mac(), &[0; 46]);
    let [first, behind, other_data, other_kind, longer, none] = [
        option(CLASS, KIND, &[0xc0_ffee]),
        [option(CLASS, KIND + 1, &[]), option(CLASS + 1, KIND, &[1, 2]), option(CLASS, KIND, &[0xc0_ffee])].concat(),
        option(CLASS, KIND, &[0xc0_ffef]),
        option(CLASS, KIND + 1, &[0xc0_ffee]),
        option(CLASS, KIND, &[0xc0_ffee, 0]),
        vec![],
    ]
    .map(|options| geneve(&here, &there, &options));
    let every = [&first, &behind, &other_data, &other_kind, &longer, &none];
    let zero = all().geneve_option_data(&tenant, 0, 0xffff_0000);
    for (matched, wanted) in [
        (all().geneve_option_data(&tenant, 0xc0_ffee, u32::MAX), vec![&first, &behind]),
        (all().geneve_option_data(&tenant, 0xc0_ffee, 0xffff_fffe), vec![&first, &behind, &other_data]),
        (all().geneve_has_option(&tenant, true), vec![&first, &behind, &other_data]),
        (all().geneve_has_option(&tenant, false), vec![&other_kind, &longer, &none]),
        (zero.clone().geneve_has_option(&tenant, true), vec![]),
        (
            all().geneve_option_data(&tenant, 0, 0xff00_0000).geneve_has_option(&tenant, true),
            vec![&first, &behind, &other_data],
        ),
    ] {
        let rule = rules.add(0, &matched, &tir).unwrap();
        there.post(wanted.len() + 1);
        every.iter().for_each(|frame| here.send(frame));
        here.send(&last);
        for frame in wanted.into_iter().chain([&last]) {
            assert_eq!(there.heard(), *frame, "{matched:?}");
        }
        rule.delete().unwrap();
    }
    let text = refusal(zero.check());
    assert!(
        text.ends_with("needs geneve_has_option(true) beside it, as GENEVE without the option has 0 there"),
        "{text}"
    );
    drop((rules, tir, rest, tenant, zero));
    end(sim, [here, there], &[]);
}

#[test]
fn rules_keep_their_option_and_there_is_one() {
    let (sim, here, there) = two_of(Sim::builder(), EthernetOptions::default());
    let rules = FlowRules::create(&there.device, FlowRulesOptions::default()).unwrap();
    let tenant = GeneveOption::create(&there.device, CLASS, KIND, 1).unwrap();
    let another = || GeneveOption::create(&there.device, CLASS, KIND + 1, 1);
    let matched = all().geneve_option_data(&tenant, 5, u32::MAX);
    let counter = FlowCounter::create(&there.device).unwrap();
    let rule = rules.add(0, &matched, FlowActions::drop().count(&counter)).unwrap();
    drop((matched, tenant));
    let text = refusal(another());
    assert!(text.contains("max_geneve_tlv_options"), "{text}");
    rule.delete().unwrap();
    let tenant = another().unwrap();
    let text = refusal(rules.add(
        0,
        &all().geneve_has_option(&GeneveOption::create(&here.device, 1, 1, 1).unwrap(), true),
        FlowActions::drop(),
    ));
    assert!(text.contains("must be of one device"), "{text}");
    let theirs = GeneveOption::create(&here.device, 1, 1, 1).unwrap();
    let both = all().geneve_has_option(&theirs, true).geneve_option_data(&tenant, 5, 7);
    assert!(refusal(both.check()).contains("must be of one device"));
    drop((both, theirs));
    let shared = Arc::clone(&tenant);
    let kept = GeneveOption::destroy(tenant).unwrap_err();
    drop(kept);
    GeneveOption::destroy(shared).unwrap();
    drop((rules, counter));
    end(sim, [here, there], &[]);
}

#[test]
fn what_a_card_does_not_look_for_is_refused_by_name() {
    let mut profile = Profile::connectx5();
    let mut receive = *profile.flow_table.flow_table_properties_nic_receive();
    let mut fields: FlowTableFieldsSupported = *receive.ft_field_support();
    fields.w().geneve_tlv_option_0_data(false).geneve_tlv_option_0_exist(false);
    receive.w().ft_field_support(&fields);
    profile.flow_table.w().flow_table_properties_nic_receive(&receive);
    let (sim, here, there) = two_of(Sim::builder().profile(profile), EthernetOptions::default());
    let rules = FlowRules::create(&there.device, FlowRulesOptions::default()).unwrap();
    let tenant = GeneveOption::create(&there.device, CLASS, KIND, 1).unwrap();
    for (matched, field) in [
        (all().geneve_option_data(&tenant, 5, u32::MAX), "geneve_tlv_option_0_data"),
        (all().geneve_has_option(&tenant, false), "geneve_tlv_option_0_exist"),
    ] {
        let text = refusal(rules.add(0, &matched, FlowActions::drop()));
        assert!(text.contains(&format!("ft_field_support.{field}")), "{text}");
    }
    for words in [0, 2] {
        let text = refusal(GeneveOption::create(&there.device, CLASS, KIND, words));
        assert!(text.contains("max_geneve_tlv_option_data_len"), "{text}");
    }
    drop((rules, tenant));
    end(sim, [here, there], &[]);

    type Without = fn(&mut CmdHcaCap);
    let lacks: [(Without, &str); 3] = [
        (|caps| _ = caps.w().general_obj_types(0), "general_obj_types (GENEVE_TLV_OPT)"),
        (|caps| _ = caps.w().max_geneve_tlv_options(0), "max_geneve_tlv_options"),
        (|caps| _ = caps.w().max_geneve_tlv_option_data_len(0), "max_geneve_tlv_option_data_len"),
    ];
    for (without, capability) in lacks {
        let mut profile = Profile::connectx5();
        without(&mut profile.general_max);
        without(&mut profile.general_current);
        let (sim, here, there) = two_of(Sim::builder().profile(profile), EthernetOptions::default());
        let text = refusal(GeneveOption::create(&there.device, CLASS, KIND, 1));
        assert!(text.contains(capability), "{text}");
        end(sim, [here, there], &[]);
    }
}
