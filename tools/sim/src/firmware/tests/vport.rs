//! Vport, GIDs, registers.

use std::time::Duration;

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{ModifyNicVportFieldSelect, NicVportContext, RoceAddrLayout};
use mlx5_prm::eqe::{Eqe, EventType};
use mlx5_prm::layout::Layout;
use mlx5_prm::reg::{
    McamAccessReg, McamReg, McqiInfo, McqiReg, McqiVersion, McqsReg, MpcntReg, MtutcReg, NodeDesc, PaosReg, PmtuReg,
    PtysReg, TimestampMode,
};

use super::client::Client;
use crate::firmware::syndromes::Syndrome;
use crate::objects::{L2Table, layout_of, mac_in};
use crate::profile::Profile;
use crate::wire::Port;

fn address(edit: impl FnOnce(&mut RoceAddrLayout)) -> SetRoceAddressIn {
    let mut layout = RoceAddrLayout::ZERO;
    layout.w().source_l3_address(&[0xfe; 16]).roce_version(2).roce_l3_type(1);
    layout.w().source_mac_47_32(0x0200).source_mac_31_0(0x0102_0304);
    edit(&mut layout);
    let mut command = SetRoceAddressIn::default();
    command.w().roce_address_index(3).roce_address(&layout);
    command
}

#[test]
fn the_gid_table() {
    let mut client = Client::up();
    client.exec(&address(|_| {})).unwrap();
    let entry = client.f.nic.objects.gids.get(3).unwrap();
    assert_eq!((entry.gid, entry.mac, entry.vlan, entry.ipv4), ([0xfe; 16], [2, 0, 1, 2, 3, 4], None, false));
    assert_eq!(client.f.nic.objects.gids.find(&[0xfe; 16]).map(|(index, _)| index), Some(3));
    let mut query = QueryRoceAddressIn::default();
    query.w().roce_address_index(3);
    assert_eq!(client.exec(&query).unwrap().roce_address().source_mac_31_0(), 0x0102_0304);
    let c = &mut client;
    assert_eq!(c.refused(&address(|layout| _ = layout.w().roce_version(0))), Syndrome::RoceVersion);
    assert_eq!(c.refused(&address(|layout| _ = layout.w().roce_l3_type(0))), Syndrome::RoceL3Type);
    assert_eq!(c.refused(&address(|layout| _ = layout.w().source_mac_47_32(0xffff))), Syndrome::RoceMac);
    c.exec(&address(|layout| _ = layout.w().vlan_valid(true).vlan_id(7))).unwrap();
    assert_eq!(c.f.nic.objects.gids.get(3).unwrap().vlan, Some(7));
    let mut far = address(|_| {});
    far.w().roce_address_index(255);
    assert_eq!(c.refused(&far), Syndrome::RoceIndex);
    query.w().roce_address_index(255);
    assert_eq!(c.refused(&query), Syndrome::RoceIndex);
    query.w().roce_address_index(3).vhca_port_num(2);
    assert_eq!(c.refused(&query), Syndrome::PortNumber, "there is one");
    c.exec(&address(|layout| *layout = RoceAddrLayout::ZERO)).unwrap();
    assert!(c.f.nic.objects.gids.get(3).is_none());
}

fn modify(
    select: impl FnOnce(&mut ModifyNicVportFieldSelect),
    edit: impl FnOnce(&mut NicVportContext),
) -> ModifyNicVportContextIn {
    let (mut selected, mut context) = (ModifyNicVportFieldSelect::ZERO, NicVportContext::ZERO);
    select(&mut selected);
    edit(&mut context);
    let mut command = ModifyNicVportContextIn::default();
    command.w().field_select(&selected).nic_vport_context(&context);
    command
}

#[test]
fn the_nic_vport_context() {
    let mut client = Client::up();
    let mac = client.f.nic.profile.mac(0);
    assert_eq!(client.f.nic.objects.vport.mac(), mac);
    let command =
        modify(|select| _ = select.w().mtu(true).roce_en(true), |context| _ = context.w().mtu(9000).roce_en(true));
    client.exec(&command).unwrap();
    let answer = client.exec(&QueryNicVportContextIn::default()).unwrap();
    let context = answer.nic_vport_context();
    assert_eq!((context.mtu(), context.roce_en()), (9000, true));
    assert_eq!(client.f.nic.objects.vport.mac(), mac, "what is not selected stays");
    let command = modify(|select| _ = select.w().mtu(true), |context| _ = context.w().mtu(20));
    assert_eq!(client.refused(&command), Syndrome::VportMtu);
    let loopback = modify(|select| _ = select.w().disable_uc_local_lb(true), |_| {});
    assert_eq!(client.refused(&loopback), Syndrome::CapabilityNotAnnounced);
    let arm = modify(
        |select| _ = select.w().change_event(true),
        |context| _ = context.w().arm_change_event(true).event_on_mtu(true),
    );
    assert_eq!(client.refused(&arm), Syndrome::CapabilityNotAnnounced, "an event that never comes");
    let mut other = command;
    other.w().other_vport(true);
    assert_eq!(client.refused(&other), Syndrome::OtherVport);

    let command = modify(
        |select| _ = select.w().addresses_list(true),
        |context| _ = context.w().allowed_list_type(1).allowed_list_size(1),
    );
    assert_eq!(client.refused(&command), Syndrome::InputListLength);
    let command = WithTail::new(command, vec![[0u8, 0, 1, 0, 0x5e, 1, 2, 3]]);
    client.exec(&command).unwrap();
    let mut longer = command.clone();
    longer.tail.push([0, 0, 1, 0, 0x5e, 1, 2, 4]);
    assert_eq!(client.refused(&longer), Syndrome::InputListLength, "more than allowed_list_size says");
    let mut query = QueryNicVportContextIn::default();
    query.w().allowed_list_type(1);
    let mut query = WithTail::<_, [u8; 8]>::new(query, vec![]);
    query.out_tail = 4;
    let answer = client.exec(&query).unwrap();
    assert_eq!(answer.reply.nic_vport_context().allowed_list_size(), 1);
    assert_eq!(answer.tail[..8], [0, 0, 1, 0, 0x5e, 1, 2, 3]);
}

/// A command that sets the list of unicast addresses.
fn unicast(list: Vec<[u8; 8]>) -> WithTail<ModifyNicVportContextIn, [u8; 8]> {
    let size = list.len() as u16;
    let command =
        modify(|select| _ = select.w().addresses_list(true), |context| _ = context.w().allowed_list_size(size));
    WithTail::new(command, list)
}

#[test]
fn address_lists_hold_addresses_of_their_kind_up_to_the_announced_length() {
    let mut client = Client::up();
    let most = 1 << client.f.nic.profile.general_max.log_max_current_uc_list();
    let list: Vec<_> = (0..most).map(|number| [0, 0, 2, 0, 0, 0, 1, number as u8]).collect();
    client.exec(&unicast(list.clone())).unwrap();
    assert_eq!(client.f.nic.objects.vport.unicast.len(), most);
    assert_eq!(client.refused(&unicast([list, vec![[0, 0, 2, 0, 0, 0, 2, 0]]].concat())), Syndrome::VportList);
    assert_eq!(client.refused(&unicast(vec![[0, 0, 1, 0, 0x5e, 0, 0, 1]])), Syndrome::VportListAddress);
    assert_eq!(client.refused(&unicast(vec![[1, 0, 2, 0, 0, 0, 0, 1]])), Syndrome::VportListAddress);
    assert_eq!(client.f.nic.objects.vport.unicast.len(), most, "what is refused changes nothing");
    client.exec(&unicast(vec![])).unwrap();
    assert!(client.f.nic.objects.vport.unicast.is_empty());
}

fn entry(index: u32, mac: [u8; 6]) -> SetL2TableEntryIn {
    let mut command = SetL2TableEntryIn::default();
    command.w().table_index(index).mac_address(&layout_of(mac));
    command
}

#[test]
fn the_l2_table() {
    let mut client = Client::up();
    let (first, second) = ([2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 8]);
    let last = (1 << client.f.nic.profile.general_max.log_max_l2_table()) - 1;
    client.exec(&entry(last, first)).unwrap();
    client.exec(&entry(last, second)).unwrap();
    let mut query = QueryL2TableEntryIn::default();
    query.w().table_index(last);
    assert_eq!(mac_in(client.exec(&query).unwrap().mac_address()), second);
    assert_eq!(client.refused(&entry(last + 1, first)), Syndrome::L2Index);
    assert_eq!(client.refused(&entry(0, [0; 6])), Syndrome::L2Mac);
    assert_eq!(client.refused(&entry(0, [0xff; 6])), Syndrome::L2Mac);
    let mut tagged = entry(0, first);
    tagged.w().vlan_valid(true).vlan(7);
    assert_eq!(client.refused(&tagged), Syndrome::L2Vlan);
    let mut silent = entry(0, first);
    silent.w().silent_mode_valid(true);
    assert_eq!(client.refused(&silent), Syndrome::CapabilityNotAnnounced);
    let mut delete = DeleteL2TableEntryIn::default();
    delete.w().table_index(last);
    client.exec(&delete).unwrap();
    assert_eq!(client.refused(&delete), Syndrome::L2Index);
    assert_eq!(client.refused(&query), Syndrome::L2Index);
}

#[test]
fn only_who_manages_the_switch_has_an_l2_table() {
    let mut client = Client::up();
    client.f.nic.profile.general_max.w().eswitch_manager(false);
    client.f.nic.objects.l2_table = L2Table::of(&client.f.nic.profile.general_max);
    assert_eq!(client.refused(&entry(0, [2, 0, 0, 0, 0, 7])), Syndrome::NoL2Table);
}

#[test]
fn a_link_that_changes_is_an_event() {
    let mut client = Client::up();
    let uar = client.exec(&AllocUarIn::default()).unwrap().uar();
    let command = client.eq(uar, 1 << EventType::PortChange.number());
    let ring = command.tail[0].get();
    client.exec(&command).unwrap();
    let mut state = ModifyVportStateIn::default();
    for (number, admin_state, sub_type) in [(0, 0, 1), (1, 1, 4)] {
        state.w().admin_state(admin_state);
        client.exec(&state).unwrap();
        client.exec(&state).unwrap();
        let event = Eqe::read(&client.read(ring + 64 * number, 64)).unwrap();
        assert_eq!((event.event_type(), event.event_sub_type()), (EventType::PortChange, sub_type));
        assert_eq!(event.event_data()[8], 0x10, "port 1");
    }
    let next = Eqe::read(&client.read(ring + 128, 64)).unwrap();
    assert_eq!(next.event_data()[8], 0, "an event a change");
}

#[test]
fn vport_state() {
    let mut client = Client::up();
    let up = client.exec(&QueryVportStateIn::default()).unwrap();
    assert_eq!((up.admin_state(), up.state()), (2, 1));
    let mut down = ModifyVportStateIn::default();
    down.w().admin_state(0);
    client.exec(&down).unwrap();
    assert_eq!(client.exec(&QueryVportStateIn::default()).unwrap().state(), 0);
    assert!(!client.f.nic.port.link_up);
    down.w().admin_state(3);
    assert_eq!(client.refused(&down), Syndrome::VportAdminState);
    let mut other = QueryVportStateIn::default();
    other.w().vport_number(1);
    assert_eq!(client.refused(&other), Syndrome::OtherVport);
}

fn register<R: Layout>(client: &mut Client, id: u16, op_mod: u16, data: &R) -> Result<R, Syndrome> {
    let mut command = AccessRegisterIn::default();
    command.w().register_id(id).op_mod(op_mod);
    let mut command = WithTail::new(command, Layout::as_bytes(data).to_vec());
    command.out_tail = R::SIZE;
    // Once: an adjustment given twice is another one.
    match client.exec(&command) {
        Ok(output) => Ok(R::read(&output.tail).unwrap()),
        Err(_) => Err(client.refused(&command)),
    }
}

#[test]
fn registers() {
    let mut client = Client::up();
    let c = &mut client;
    let mut paos = PaosReg::ZERO;
    paos.w().local_port(1);
    assert_eq!(register(c, 0x5006, 1, &paos).unwrap().oper_status(), 1);
    paos.w().admin_status(2);
    assert_eq!(register(c, 0x5006, 0, &paos).unwrap().oper_status(), 2);
    assert_eq!(c.exec(&QueryVportStateIn::default()).unwrap().state(), 0);
    let mut ptys = PtysReg::ZERO;
    ptys.w().local_port(1).proto_mask(4);
    assert_ne!(register(c, 0x5004, 1, &ptys).unwrap().eth_proto_capability(), 0);
    assert_eq!(register(c, 0x5004, 0, &ptys), Err(Syndrome::RegisterReadOnly));
    let mut pmtu = PmtuReg::ZERO;
    pmtu.w().local_port(1).admin_mtu(9000);
    let set = register(c, 0x5003, 0, &pmtu).unwrap();
    assert_eq!((set.max_mtu(), set.admin_mtu(), set.oper_mtu()), (Port::MAX_MTU, 9000, 9000));
    assert_eq!(c.f.nic.port.mtu, 9000);
    for wrong in [67, Port::MAX_MTU + 1] {
        pmtu.w().admin_mtu(wrong);
        assert_eq!(register(c, 0x5003, 0, &pmtu), Err(Syndrome::PortMtuRange));
    }
    pmtu.w().local_port(2);
    assert_eq!(register(c, 0x5003, 1, &pmtu), Err(Syndrome::RegisterPort));
    assert!(register(c, 0x6001, 1, &NodeDesc::ZERO).unwrap().node_description().starts_with(b"connectx5 (software)"));
    let mut desc = NodeDesc::ZERO;
    desc.w().node_description(&[b'x'; 64]);
    assert_eq!(register(c, 0x6001, 0, &desc), Ok(desc));
    assert_eq!(register(c, 0x6001, 1, &NodeDesc::ZERO), Ok(desc));
    assert_eq!(register(c, 0x9999, 1, &pmtu), Err(Syndrome::UnknownRegister));
    assert_eq!(register(c, 0x5003, 2, &pmtu), Err(Syndrome::UnknownOpMod));
}

#[test]
fn the_real_time_clock_is_set_moved_and_steered_where_it_is_announced() {
    let mut mtutc = MtutcReg::ZERO;
    assert_eq!(register(&mut Client::up(), 0x9055, 1, &mtutc), Err(Syndrome::UnknownRegister));
    let mut client = Client::with(Profile::connectx6dx().with_real_time_clock());
    let c = &mut client;
    c.bring_up();
    let mcam = register(c, 0x907f, 1, &McamReg::ZERO).unwrap();
    assert!(McamAccessReg::read(mcam.mng_access_reg_cap_mask()).unwrap().mtutc());
    let can = mcam.mng_feature_cap_mask();
    assert!(can.ptpcyc2realtime_modify() && can.mtutc_freq_adj_units());
    assert_eq!(register(c, 0x9055, 1, &mtutc).unwrap().log_max_freq_adjustment(), 26);
    let time = |c: &Client| {
        let segment = c.f.nic.firmware.init_segment(&c.f.nic.profile, c.f.nic.now);
        (segment.real_time_h(), segment.real_time_l())
    };
    mtutc.w().operation(1).utc_sec(1_700_000_000).utc_nsec(5);
    register(c, 0x9055, 0, &mtutc).unwrap();
    let set = c.f.nic.now;
    assert_eq!(time(c), (1_700_000_000, 5));
    let mut moved = MtutcReg::ZERO;
    moved.w().operation(2).time_adjustment(-6_i32 as u32);
    register(c, 0x9055, 0, &moved).unwrap();
    let mut slow = MtutcReg::ZERO;
    slow.w().operation(3).freq_adjustment(-1_000_000_i32 as u32);
    register(c, 0x9055, 0, &slow).unwrap();
    assert_eq!(c.f.nic.now, set, "a bench's time stands still");
    c.f.nic.now += Duration::from_secs(1);
    assert_eq!(time(c), (1_700_000_000, 998_999_999));
    // Millionths over 2^16.
    slow.w().freq_adjustment((-1000_i32 as u32) << 16).freq_adj_units(1);
    register(c, 0x9055, 0, &slow).unwrap();
    c.f.nic.now += Duration::from_secs(1);
    assert_eq!(time(c), (1_700_000_001, 997_999_999));

    mtutc.w().utc_nsec(1_000_000_000);
    assert_eq!(register(c, 0x9055, 0, &mtutc), Err(Syndrome::ClockAdjustment));
    moved.w().time_adjustment(200_001);
    assert_eq!(register(c, 0x9055, 0, &moved), Err(Syndrome::ClockAdjustment));
    slow.w().freq_adjustment((1 << 26) + 1).freq_adj_units(0);
    assert_eq!(register(c, 0x9055, 0, &slow), Err(Syndrome::ClockAdjustment));
    slow.w().freq_adjustment(1).freq_adj_units(2);
    assert_eq!(register(c, 0x9055, 0, &slow), Err(Syndrome::ClockAdjustment));
    assert_eq!(register(c, 0x9055, 0, &MtutcReg::ZERO), Err(Syndrome::ClockAdjustment));
    assert_eq!(time(c), (1_700_000_001, 997_999_999));
}

#[test]
fn a_user_reads_which_clock_is_in_completions_and_nothing_else() {
    let ask = |op_mod: u16, id: u16| {
        let mut command = AccessRegisterUserIn::default();
        command.w().register_id(id).op_mod(op_mod);
        // As DPDK: nothing of the register.
        let mut command = WithTail::new(command, Vec::<u8>::new());
        command.out_tail = MtutcReg::SIZE;
        command
    };
    let mut plain = Client::up();
    assert_eq!(plain.refused(&ask(1, 0x9055)), Syndrome::CapabilityNotAnnounced);
    let mut client = Client::with(Profile::connectx6dx().with_real_time_clock());
    client.bring_up();
    let read = client.exec(&ask(1, 0x9055)).unwrap();
    assert_eq!(MtutcReg::read(&read.tail).unwrap().time_stamp_mode(), TimestampMode::RealTime.number() as u8);
    assert_eq!(client.refused(&ask(0, 0x9055)), Syndrome::RegisterReadOnly);
    assert_eq!(client.refused(&ask(1, 0x5004)), Syndrome::UnknownRegister);
    assert_eq!(client.refused(&ask(2, 0x9055)), Syndrome::UnknownOpMod);
}

#[test]
fn the_image_is_the_only_component_and_says_its_version() {
    let mut client = Client::up();
    let c = &mut client;
    let mcam = register(c, 0x907f, 1, &McamReg::ZERO).unwrap();
    let there = McamAccessReg::read(mcam.mng_access_reg_cap_mask()).unwrap();
    assert!(there.mcqs() && there.mcqi() && !there.mcc() && !there.mcda());
    assert_eq!(register(c, 0x907f, 0, &McamReg::ZERO), Err(Syndrome::RegisterReadOnly));
    let features = mcam.mng_feature_cap_mask();
    assert!(features.pcie_performance_group() && features.tx_overflow_buffer_pkt() && features.pcie_outbound_stalled());
    assert!(!features.mtpps_fs(), "there are no pulses");
    let mut others = McamReg::ZERO;
    others.w().feature_group(1);
    assert!(!register(c, 0x907f, 1, &others).unwrap().mng_feature_cap_mask().pcie_performance_group());

    assert_eq!(register(c, 0x9051, 1, &MpcntReg::ZERO), Ok(MpcntReg::ZERO));
    let mut mpcnt = MpcntReg::ZERO;
    mpcnt.w().clr(true);
    assert_eq!(register(c, 0x9051, 1, &mpcnt), Err(Syndrome::RegisterReadOnly));
    mpcnt.w().clr(false).grp(1);
    assert_eq!(register(c, 0x9051, 1, &mpcnt), Err(Syndrome::CounterGroup));
    let mcqs = register(c, 0x9060, 1, &McqsReg::ZERO).unwrap();
    assert_eq!((mcqs.last_index_flag(), mcqs.identifier(), mcqs.component_update_state()), (true, 1, 0));
    let mut second = McqsReg::ZERO;
    second.w().component_index(1);
    assert_eq!(register(c, 0x9060, 1, &second), Err(Syndrome::NoSuchComponent));

    let mut mcqi = McqiReg::ZERO;
    mcqi.w().info_type(McqiInfo::Version.number() as u8).data_size(McqiVersion::SIZE as u16);
    let mut query = AccessRegisterIn::default();
    query.w().register_id(0x9061).op_mod(1);
    let mut query = WithTail::new(query, Layout::as_bytes(&mcqi).to_vec());
    query.out_tail = McqiReg::SIZE + McqiVersion::SIZE;
    let answer = c.exec(&query).unwrap().tail;
    assert_eq!(McqiReg::read(&answer).unwrap().data_size(), McqiVersion::SIZE as u16);
    assert_eq!(McqiVersion::read(&answer[McqiReg::SIZE..]).unwrap().version(), 16 << 24 | 35 << 16 | 4030);
    mcqi.w().info_type(McqiInfo::Capabilities.number() as u8);
    assert_eq!(register(c, 0x9061, 1, &mcqi), Err(Syndrome::ComponentInfo));
}

#[test]
fn there_is_one_partition_and_everyone_is_its_full_member() {
    let mut c = Client::up();
    let first = QueryHcaVportPkeyIn::default();
    let list = [0, 0, 0xff, 0xff];
    let (mut all, mut second, mut elsewhere) = (first, first, first);
    all.w().pkey_index(0xffff).port_num(1);
    for query in [first, all] {
        assert_eq!(c.exec_bytes(query.as_bytes(), 0x14).unwrap()[0x10..], list);
    }
    second.w().pkey_index(1);
    assert_eq!(c.refused(&second), Syndrome::PkeyTable);
    elsewhere.w().port_num(2);
    assert_eq!(c.refused(&elsewhere), Syndrome::PkeyPort);
}

#[test]
fn an_infiniband_port_has_a_context_of_its_own() {
    let mut c = Client::up();
    assert_eq!(c.refused(&QueryHcaVportContextIn::default()), Syndrome::NotInfiniband);
    let mut profile = Profile::connectx5();
    profile.general_max.w().port_type(0).roce(false);
    profile.general_current.w().port_type(0).roce(false);
    let mut c = Client::with(profile);
    c.bring_up();
    assert_eq!(c.refused(&QueryNicVportContextIn::default()), Syndrome::NotEthernet);
    assert_eq!(c.refused(&ModifyNicVportContextIn::default()), Syndrome::NotEthernet);
    let context = *c.exec(&QueryHcaVportContextIn::default()).unwrap().hca_vport_context();
    assert_eq!((context.vport_state(), context.lid()), (4, 1));
    let mut elsewhere = QueryHcaVportContextIn::default();
    elsewhere.w().port_num(2);
    assert_eq!(c.refused(&elsewhere), Syndrome::PkeyPort);
    elsewhere.w().port_num(1).other_vport(true);
    assert_eq!(c.refused(&elsewhere), Syndrome::OtherVport);
    let mut mtu = PmtuReg::ZERO;
    mtu.w().local_port(1).admin_mtu(2048);
    assert_eq!(register(&mut c, 0x5003, 1, &mtu).unwrap().oper_mtu(), 4096);
    assert_eq!(register(&mut c, 0x5003, 0, &mtu), Err(Syndrome::RegisterReadOnly));
}
