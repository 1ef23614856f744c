//! What the card tells of the objects of flow steering.

use mlx5_dv::objects::{
    Direction, FlowActions, FlowCounter, FlowGroup, FlowMatch, FlowRule, FlowTable, FlowTableOptions, PacketReformat,
    VxlanTunnel,
};
use mlx5_dv::queue::ethernet::EthernetOptions;
use mlx5_open::Sim;
use mlx5_prm::flow::{FlowDestinationType, FlowTableMissAction, ReformatType};

use crate::ends::{EthernetEnd, end, two_of};

/// `flow_context.action`: forward, count; drop.
const FORWARD_AND_COUNT: u16 = 0x4 | 0x8;
const DROP: u16 = 0x2;

#[test]
fn tables_groups_and_rules_are_on_the_card_as_they_were_made() {
    let (sim, here, there) = two_of(Sim::builder(), EthernetOptions::default());
    let next = FlowTable::create(&there.device, 5, 1).unwrap();
    let mut options = FlowTableOptions::default();
    (options.level, options.entries, options.miss) = (3, 8, Some(next.clone()));
    let table = FlowTable::with_options(&there.device, options).unwrap();
    let found = table.query().unwrap();
    assert_eq!((found.level(), found.log_size()), (3, 3));
    assert_eq!((found.table_miss_action(), found.table_miss_id()), (FlowTableMissAction::Fwd, next.table_id()));
    let alone = next.query().unwrap();
    assert_eq!((alone.level(), alone.log_size(), alone.table_miss_action()), (5, 0, FlowTableMissAction::Def));

    let web = FlowMatch::new().tcp_destination_port(80);
    let group = FlowGroup::create(&table, 2..6, &web).unwrap();
    let found = group.query().unwrap();
    assert_eq!((found.indices, found.match_criteria_enable), (2..6, 1));
    assert_eq!(found.match_criteria, *web.criteria());

    let (counter, tir) = (FlowCounter::create(&there.device).unwrap(), there.queue.tir().clone());
    let actions = FlowActions::forward(&tir).count(&counter).tag(7);
    let mut rule = FlowRule::create(&group, &web, actions).unwrap();
    let found = rule.query().unwrap();
    assert_eq!((found.context.action(), found.context.flow_tag()), (FORWARD_AND_COUNT, 7));
    assert_eq!((found.context.group_id(), found.context.match_value()), (group.group_id(), web.value()));
    let destinations = found.destinations.iter().map(|to| (to.destination_type(), to.destination_id()));
    assert_eq!(destinations.collect::<Vec<_>>(), [(FlowDestinationType::Tir, tir.tirn())]);
    assert_eq!(found.counters, [counter.flow_counter_id()]);
    rule.set_actions(FlowActions::drop()).unwrap();
    let found = rule.query().unwrap();
    assert_eq!((found.context.action(), found.destinations, found.counters), (DROP, vec![], vec![]));
    drop((rule, group, table, next, counter, tir));
    end(sim, [here, there], &[]);
}

#[test]
fn a_packet_reformat_context_has_its_whole_header() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| EthernetEnd::new(&sim, function, EthernetOptions::default()));
    for len in [14, 15, 16, 17, 50] {
        let header: Vec<u8> = (1..=len).collect();
        let reformat = PacketReformat::tunnel(&here.device, &header).unwrap();
        assert_eq!(reformat.query().unwrap(), (ReformatType::L2ToL2Tunnel, header));
        PacketReformat::destroy(reformat).unwrap();
    }
    let (source_mac, destination_mac) = (here.device.mac(), there.device.mac());
    let (source, destination) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let tunnel = VxlanTunnel { source_mac, destination_mac, source, destination, source_port: 5, vni: 0x12_3456 };
    let (kind, header) = PacketReformat::vxlan(&here.device, &tunnel).unwrap().query().unwrap();
    assert_eq!((kind, header.len()), (ReformatType::L2ToVxlan, 50));
    assert_eq!(header[46..49], [0x12, 0x34, 0x56]);
    let mut table = FlowTableOptions::default();
    table.direction = Direction::Transmit;
    assert_eq!(FlowTable::with_options(&here.device, table).unwrap().query().unwrap().log_size(), 0);
    end(sim, [here, there], &[]);
}
