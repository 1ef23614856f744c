//! Commands: each has layouts, and what lies in them is told by the fields that say so.

use mlx5_prm::caps::CapPage;
use mlx5_prm::cmd::{
    self, AccessRegisterIn, AccessRegisterUserIn, AllocModifyHeaderContextIn, Command, CreateGeneralObjectIn,
    CreateMkeyIn, Opcode, QueryCongParamsIn, QueryFteOut, QueryGeneralObjectIn, QueryHcaCapIn, SetFteIn, Unpublished,
    WithTail,
};
use mlx5_prm::ctx::{AccessMode, Mkc};
use mlx5_prm::decode::{self, Dump};
use mlx5_prm::flow::{
    AddActionIn, CopyActionIn, DestFormatStruct, ExtendedDestFormat, FlowContext, FlowCounterList, FlowDestinationType,
    FteMatchParam, FteMatchSetLyr24, ModifyActionType, ModifyField, SetActionIn,
};
use mlx5_prm::layout::{Be32, Layout};
use mlx5_prm::obj::{MatchDefiner, MatchDefinerFormat22, MatchDefinerMatchMask, ObjType, SamplerObj};
use mlx5_prm::reg::RegisterId;

/// The dump without its first line, which counts the bytes.
fn body(dump: Option<decode::Dump<'_>>) -> String {
    let text = dump.unwrap().to_string();
    text.split_once('\n').unwrap().1.to_owned()
}

#[test]
fn every_opcode_has_layouts() {
    for opcode in Opcode::ALL {
        assert!(cmd::find(*opcode).is_some(), "{opcode}");
    }
    assert_eq!(cmd::all().count(), Opcode::ALL.len());
}

#[test]
fn what_an_input_tells_is_in_its_output() {
    for command in cmd::all() {
        let Some((field, _)) = command.told else { continue };
        let known = command.output.field(field).or(command.output.list().filter(|list| list.name == field));
        assert!(known.is_some(), "{}.{field}", command.output.name);
    }
}

#[test]
fn op_mods_have_names() {
    let name = |opcode, op_mod| cmd::find(opcode).unwrap().op_mod_name(op_mod);
    assert_eq!(name(Opcode::QueryHcaCap, CapPage::Roce.op_mod(true)), Some("ROCE, current"));
    assert_eq!(name(Opcode::ManagePages, 2), Some("HCA_RETURN_PAGES"));
    assert_eq!(name(Opcode::QueryPages, 0), None);
    assert_eq!(name(Opcode::AllocPd, 0), None);
}

#[test]
fn destinations_and_counters_of_an_entry() {
    let mut flow = FlowContext::default();
    flow.w().destination_list_size(1).flow_counter_list_size(1);
    let mut entry = SetFteIn::default();
    let mut to = DestFormatStruct::default();
    to.w().destination_type(FlowDestinationType::Tir).destination_id(0x12);
    let mut counter = FlowCounterList::default();
    counter.w().flow_counter_id(0x77);
    entry.w().flow_context(&flow);
    let bytes = [entry.as_bytes(), to.as_bytes(), counter.as_bytes()].concat();
    let text = body(decode::command_input(&bytes));
    assert!(
        text.ends_with(
            "  0x0340           destination[0]
  0x0340 [31:24]     destination_type = TIR (0x2)
  0x0340 [23:0]      destination_id = 0x12
  0x0348           destination[1]
  0x0348 [31:0]      flow_counter_id = 0x77
"
        ),
        "{text}"
    );
}

#[test]
fn extended_destinations_are_twice_as_long() {
    let mut flow = FlowContext::default();
    flow.w().extended_destination(true).destination_list_size(1).flow_counter_list_size(1);
    let mut entry = QueryFteOut::default();
    entry.w().flow_context(&flow);
    let mut to = ExtendedDestFormat::default();
    to.w().packet_reformat_id(0x33);
    let bytes = [entry.as_bytes(), to.as_bytes(), &[0, 0, 0, 0x44], &[0; 12]].concat();
    let text = body(decode::command_output(Opcode::QueryFlowTableEntry, 0, &bytes));
    assert!(text.contains("  0x0348 [31:0]      packet_reformat_id = 0x33\n"), "{text}");
    assert!(text.contains("  0x0350 [31:0]        flow_counter_id = 0x44\n"), "{text}");
}

#[test]
fn addresses_are_read_by_the_version_beside_them() {
    let mut headers = FteMatchSetLyr24::default();
    headers.w().ip_version(4);
    let mut bytes = headers.as_bytes().to_vec();
    bytes[0x2c..0x30].copy_from_slice(&[10, 0, 0, 1]);
    let headers = FteMatchSetLyr24::read(&bytes).unwrap();
    let mut parameters = FteMatchParam::default();
    parameters.w().outer_headers(&headers);
    let text = decode::Dump::of(&parameters).to_string();
    assert!(text.contains("  0x002c [31:0]      ipv4 = 0xa000001\n"), "{text}");
}

#[test]
fn actions_on_headers_by_their_type() {
    let mut set = SetActionIn::default();
    set.w().action_type(ModifyActionType::Set).field(ModifyField::OutIpTtl).data(63);
    let mut add = AddActionIn::default();
    add.w().action_type(ModifyActionType::Add).field(ModifyField::OutIpTtl).data(0xff);
    let mut copy = CopyActionIn::default();
    copy.w().action_type(ModifyActionType::Copy).dst_field(ModifyField::MetadataRegC0);
    let mut alloc = AllocModifyHeaderContextIn::default();
    alloc.w().num_of_actions(3);
    let bytes = [alloc.as_bytes(), set.as_bytes(), add.as_bytes(), copy.as_bytes()].concat();
    assert_eq!(
        body(decode::command_input(&bytes)),
        "  0x0000 [31:16] opcode = ALLOC_MODIFY_HEADER_CONTEXT (0x940)
  0x000c [7:0]   num_of_actions = 0x3
  0x0010         actions[0]
  0x0010 [31:28]   action_type = SET (0x1)
  0x0010 [27:16]   field = OUT_IP_TTL (0xa)
  0x0014 [31:0]    data = 0x3f
  0x0018         actions[1]
  0x0018 [31:28]   action_type = ADD (0x2)
  0x0018 [27:16]   field = OUT_IP_TTL (0xa)
  0x001c [31:0]    data = 0xff
  0x0020         actions[2]
  0x0020 [31:28]   action_type = COPY (0x3)
  0x0024 [27:16]   dst_field = METADATA_REG_C_0 (0x51)
"
    );
}

#[test]
fn translations_by_the_mode_of_the_key() {
    let mut key = Mkc::default();
    key.set_access_mode(AccessMode::Klms);
    let mut create = CreateMkeyIn::default();
    create.w().memory_key_mkey_entry(&key);
    let bytes = [create.as_bytes(), &[0, 0, 0x10, 0], &[0, 0, 0, 5], &0x8000u64.to_be_bytes()].concat();
    let text = body(decode::command_input(&bytes));
    assert!(text.contains("klm_pas_mtt[0]\n  0x0110 [31:0]    byte_count = 0x1000\n"), "{text}");
    assert!(text.contains("address = 0x8000\n"), "{text}");
}

#[test]
fn an_object_by_its_type_in_input_and_output() {
    let mut sampler = SamplerObj::default();
    sampler.w().sample_ratio(100);
    let mut create = CreateGeneralObjectIn::default();
    create.w().obj_type(ObjType::Sampler);
    let text = body(decode::command_input(&[create.as_bytes(), sampler.as_bytes()].concat()));
    assert!(text.contains("obj_type = SAMPLER (0x20)\n"), "{text}");
    assert!(text.contains("  0x001c [31:0]    sample_ratio = 0x64\n"), "{text}");

    let mut query = QueryGeneralObjectIn::default();
    query.w().obj_type(ObjType::Sampler);
    let output = [&[0; 0x10], sampler.as_bytes()].concat();
    let text = body(decode::command_output_to(query.as_bytes(), &output));
    assert!(text.contains("sample_ratio = 0x64\n"), "{text}");
    let untold = body(decode::command_output(Opcode::QueryGeneralObject, 0, &output));
    assert!(untold.contains("  0x001c         obj_context[3] = 0x64\n"), "{untold}");
}

#[test]
fn a_command_that_nobody_published_is_its_head_and_dwords() {
    let head = Unpublished::<{ Opcode::QueryRdb.number() }>::new(3, 1);
    let query = WithTail::new(head, vec![Be32::new(0), Be32::new(0xabcd)]);
    let input = [query.head(), query.tail()].concat();
    let text = body(decode::command_input(&input));
    for line in ["opcode = QUERY_RDB (0x512)\n", "uid = 0x3\n", "op_mod = 0x1\n", "unpublished[1] = 0xabcd\n"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = body(decode::command_output_to(&input, &[&[0; 12][..], &[0, 0, 0, 7]].concat()));
    assert!(text.contains("unpublished[1] = 0x7\n"), "{text}");
}

#[test]
fn outputs_that_only_the_input_explains() {
    let mut access = AccessRegisterIn::default();
    access.w().register_id(RegisterId::Pmtu.number() as u16);
    let mut output = vec![0; 0x20];
    output[0x14..0x16].copy_from_slice(&[0x23, 0x28]);
    let mut by_user = AccessRegisterUserIn::default();
    by_user.w().register_id(RegisterId::Pmtu.number() as u16);
    for input in [access.as_bytes(), by_user.as_bytes()] {
        let text = body(decode::command_output_to(input, &output));
        assert!(text.contains("max_mtu = 0x2328\n"), "{text}");
    }

    let mut query = QueryCongParamsIn::default();
    query.w().cong_protocol(mlx5_prm::cmd::CongProtocol::RRoceEcnNp);
    let output = [0xff; 0x120];
    let text = body(decode::command_output_to(query.as_bytes(), &output));
    assert!(text.contains("cnp_dscp = 0x3f\n"), "{text}");

    let mut query = QueryHcaCapIn::default();
    query.w().op_mod(CapPage::General.op_mod(true));
    let text = body(decode::command_output_to(query.as_bytes(), &[0xff; 0x1010]));
    assert!(text.contains("log_max_qp = 0x1f\n"), "{text}");
}

#[test]
fn a_definers_mask_by_its_format() {
    let mut definer = MatchDefiner::default();
    let mut mask = MatchDefinerFormat22::default();
    mask.w().outer_l4_dport(0xffff);
    definer.w().format_id(22).match_mask(mask.as_bytes().try_into().unwrap());
    let text = Dump::of(&definer).to_string();
    assert!(text.contains("  0x0068 [15:0]    outer_l4_dport = 0xffff\n"), "{text}");

    let mut mask = MatchDefinerMatchMask::default();
    mask.w().match_byte_0(0xff);
    definer.w().format_id(MatchDefiner::SELECT).match_mask(mask.as_bytes().try_into().unwrap());
    let text = Dump::of(&definer).to_string();
    assert!(text.contains("  0x007c [7:0]     match_byte_0 = 0xff\n"), "{text}");
}

#[test]
fn an_item_of_configuration_by_its_class_and_number() {
    let mut access = AccessRegisterIn::default();
    access.w().register_id(RegisterId::Mnvda.number() as u16);
    let item = |class: u32, data: [u8; 12]| {
        let header = [0, class, 0].map(u32::to_be_bytes).concat();
        [access.as_bytes(), &header, &data].concat()
    };
    let text = body(decode::command_input(&item(0x80, [0, 0, 0, 0, 0x80, 0, 0, 8, 0, 0, 0, 0])));
    assert!(text.contains("parameter_index = 0x80\n") && text.contains("total_vfs = 0x8\n"), "{text}");
    let text = body(decode::command_input(&item(0x0300_0480, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9])));
    assert!(text.contains("pci_bus_index = 0x1\n") && text.contains("total_vf = 0x9\n"), "{text}");
}
