//! Flow tables, groups, entries and counters. PRM "Flow Tables". NIC receive and NIC transmit tables are announced.

use mlx5_prm::caps::{FlowTableNicCap, FlowTablePropLayout};
use mlx5_prm::cmd::*;
use mlx5_prm::ctx::TrafficCounter;
use mlx5_prm::flow::{
    DestFormatStruct, ExecuteAso, FlowContext, FlowDestinationType, FlowTableContext, FlowTableMissAction,
    FlowTableType,
};
use mlx5_prm::layout::Layout;
use mlx5_prm::obj::FlowMeterColor;

use super::answer::Answer;
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Capabilities, Context, Function};
use crate::steering::key::{self, Announced};
use crate::steering::{
    Changes, Destination, FlowCounter, FlowEntry, FlowGroup, FlowTable, Metering, Miss, ReformatKind, Use, VlanTag,
};

/// `modify_field_select` of `MODIFY_FLOW_TABLE`.
const SELECT_MISS: u16 = 1;
/// `op_mod` of `SET_FLOW_TABLE_ROOT`.
const SET_ROOT: u16 = 0;
const RESET_ROOT: u16 = 1;
/// `op_mod` of `SET_FLOW_TABLE_ENTRY`.
const SET_NEW: u16 = 0;
const MODIFY: u16 = 1;
/// `flow_context.action`.
mod action {
    pub(super) const ALLOW: u16 = 0x1;
    pub(super) const DROP: u16 = 0x2;
    pub(super) const FORWARD: u16 = 0x4;
    pub(super) const COUNT: u16 = 0x8;
    pub(super) const REFORMAT: u16 = 0x10;
    pub(super) const DECAP: u16 = 0x20;
    pub(super) const MODIFY_HEADER: u16 = 0x40;
    pub(super) const POP_VLAN: u16 = 0x80;
    pub(super) const PUSH_VLAN: u16 = 0x100;
    pub(super) const EXECUTE_ASO: u16 = 0x4000;
}
/// `modify_enable_mask` of `SET_FLOW_TABLE_ENTRY`.
mod modify {
    pub(super) const ACTION: u8 = 1 << 0;
    pub(super) const TAG: u8 = 1 << 1;
    pub(super) const DESTINATIONS: u8 = 1 << 2;
    pub(super) const COUNTERS: u8 = 1 << 3;
}

/// What tables of a type can do.
pub(super) fn properties(caps: &Capabilities, table_type: FlowTableType) -> &FlowTablePropLayout {
    match table_type {
        FlowTableType::NicTx => caps.flow_table().flow_table_properties_nic_transmit(),
        _ => caps.flow_table().flow_table_properties_nic_receive(),
    }
}

/// What tables of this type match.
fn announced(caps: &Capabilities, table_type: FlowTableType) -> Announced {
    Announced {
        fields: *properties(caps, table_type).ft_field_support(),
        fields_2: match table_type {
            FlowTableType::NicTx => *caps.flow_table().ft_field_support_2_nic_transmit(),
            _ => *caps.flow_table().ft_field_support_2_nic_receive(),
        },
        protocols: caps.general().flex_parser_protocols(),
        metadata_a: properties(caps, table_type).metadata_reg_a_width(),
    }
}

/// Checks the table's type, and that it belongs to this function.
pub(super) fn own(table_type: FlowTableType, other: bool, vport: u16) -> Result<(), Syndrome> {
    if !matches!(table_type, FlowTableType::NicRx | FlowTableType::NicTx) {
        return Err(Syndrome::FlowTableType);
    }
    if other || vport != 0 { Err(Syndrome::OtherVport) } else { Ok(()) }
}

/// The table of that type and number.
fn table(f: &mut Function, table_type: FlowTableType, number: u32) -> Result<&mut FlowTable, Syndrome> {
    let table = f.nic.objects.steering.tables.get_mut(number);
    table.filter(|table| table.table_type == table_type).ok_or(Syndrome::NoSuchFlowTable)
}

fn miss(f: &Function, table_type: FlowTableType, context: &FlowTableContext) -> Result<Miss, Syndrome> {
    match context.table_miss_action() {
        FlowTableMissAction::Def => Ok(Miss::Default),
        FlowTableMissAction::Fwd => {
            check_ahead(f, table_type, context.level(), context.table_miss_id())?;
            Ok(Miss::Table(context.table_miss_id()))
        }
        _ => Err(Syndrome::FlowTableMiss),
    }
}

/// What is of a level may lead only to tables of its type and of a higher level.
pub(super) fn check_ahead(f: &Function, table_type: FlowTableType, level: u8, next: u32) -> Result<(), Syndrome> {
    let next = f.nic.objects.steering.tables.get(next).filter(|next| next.table_type == table_type);
    let next = next.ok_or(Syndrome::NoSuchFlowTable)?;
    if next.level > level { Ok(()) } else { Err(Syndrome::FlowTableLevel) }
}

/// `CREATE_FLOW_TABLE`.
pub(super) fn create_table(f: &mut Function, command: &CreateFlowTableIn) -> Answer<CreateFlowTableOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    let context = *command.flow_table_context();
    let caps = properties(&f.nic.firmware.caps, command.table_type());
    let unannounced = context.reformat_en() && !caps.reformat()
        || context.decap_en() && !caps.decap()
        || context.sw_owner()
        || context.termination_table()
        || context.rtc_valid()
        || context.lag_master_next_table_id() != 0;
    if unannounced {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    if context.level() > caps.max_ft_level() {
        return Err(Syndrome::FlowTableLevel.into());
    }
    if context.log_size() > caps.log_max_ft_size() {
        return Err(Syndrome::FlowTableSize.into());
    }
    let miss = miss(f, command.table_type(), &context)?;
    f.nic.objects.steering.tables.next_number().ok_or(Syndrome::TooManyFlowTables)?;
    pages::reserve(f, Context::FlowTable)?;
    let table = FlowTable::new(command.table_type(), context, miss);
    let number = f.nic.objects.steering.tables.insert(table).map_err(|_| Syndrome::TooManyFlowTables)?;
    let mut output = CreateFlowTableOut::ZERO;
    output.w().table_id(number);
    Ok(output)
}

/// `MODIFY_FLOW_TABLE`: the miss action.
pub(super) fn modify_table(f: &mut Function, command: &ModifyFlowTableIn) -> Answer<ModifyFlowTableOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    if command.modify_field_select() & !SELECT_MISS != 0 {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let mut context = table(f, command.table_type(), command.table_id())?.context;
    if command.modify_field_select() & SELECT_MISS != 0 {
        let wanted = command.flow_table_context();
        context.w().table_miss_action(wanted.table_miss_action()).table_miss_id(wanted.table_miss_id());
        let miss = miss(f, command.table_type(), &context)?;
        let table = table(f, command.table_type(), command.table_id())?;
        (table.miss, table.context) = (miss, context);
    }
    Ok(ModifyFlowTableOut::ZERO)
}

/// `QUERY_FLOW_TABLE`.
pub(super) fn query_table(f: &mut Function, command: &QueryFlowTableIn) -> Answer<QueryFlowTableOut> {
    own(command.table_type(), false, 0)?;
    let context = table(f, command.table_type(), command.table_id())?.context;
    let mut output = QueryFlowTableOut::ZERO;
    output.w().flow_table_context(&context);
    Ok(output)
}

/// `DESTROY_FLOW_TABLE`. Linux destroys the last root table while it is the root; frames are dropped from then on.
pub(super) fn destroy_table(f: &mut Function, command: &DestroyFlowTableIn) -> Answer<DestroyFlowTableOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    let number = command.table_id();
    if !table(f, command.table_type(), number)?.groups.is_empty() {
        return Err(Syndrome::FlowTableInUse.into());
    }
    let steering = &mut f.nic.objects.steering;
    if steering.is_used(Use::Table(number)) {
        return Err(Syndrome::FlowTableInUse.into());
    }
    steering.tables.remove(number);
    let root = steering.root_mut(command.table_type());
    *root = root.filter(|root| *root != number);
    pages::release(f, Context::FlowTable);
    Ok(DestroyFlowTableOut::ZERO)
}

/// `SET_FLOW_TABLE_ROOT`.
pub(super) fn set_root(f: &mut Function, command: &SetFlowTableRootIn) -> Answer<SetFlowTableRootOut> {
    let other = command.other_vport()
        || command.other_eswitch()
        || command.table_of_other_vport()
        || command.table_eswitch_owner_vhca_id_valid();
    own(command.table_type(), other, command.vport_number())?;
    if command.underlay_qpn() != 0 {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let root = match command.op_mod() {
        SET_ROOT => {
            table(f, command.table_type(), command.table_id())?;
            Some(command.table_id())
        }
        RESET_ROOT => None,
        _ => return Err(Syndrome::UnknownOpMod.into()),
    };
    *f.nic.objects.steering.root_mut(command.table_type()) = root;
    Ok(SetFlowTableRootOut::ZERO)
}

/// `CREATE_FLOW_GROUP`.
pub(super) fn create_group(f: &mut Function, command: &CreateFlowGroupIn) -> Answer<CreateFlowGroupOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    let size = 1u64 << table(f, command.table_type(), command.table_id())?.log_size;
    let (first, last) = (command.start_flow_index(), command.end_flow_index());
    if first > last || u64::from(last) >= size {
        return Err(Syndrome::FlowGroupRange.into());
    }
    if command.group_type() != mlx5_prm::flow::FlowGroupType::TcamSubtable || command.match_definer_id() != 0 {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let announced = announced(&f.nic.firmware.caps, command.table_type());
    if !key::is_supported(command.match_criteria(), command.match_criteria_enable(), &announced) {
        return Err(Syndrome::FlowCriteria.into());
    }
    pages::reserve(f, Context::FlowGroup)?;
    let number = f.nic.objects.steering.group_number();
    let group = FlowGroup::new(first, last, command.match_criteria_enable(), *command.match_criteria());
    if !table(f, command.table_type(), command.table_id())?.add_group(number, group) {
        pages::release(f, Context::FlowGroup);
        return Err(Syndrome::FlowGroupRange.into());
    }
    let mut output = CreateFlowGroupOut::ZERO;
    output.w().group_id(number);
    Ok(output)
}

/// `QUERY_FLOW_GROUP`.
pub(super) fn query_group(f: &mut Function, command: &QueryFlowGroupIn) -> Answer<QueryFlowGroupOut> {
    own(command.table_type(), false, 0)?;
    let group = table(f, command.table_type(), command.table_id())?
        .groups
        .get(&command.group_id())
        .ok_or(Syndrome::NoSuchFlowGroup)?;
    let mut output = QueryFlowGroupOut::ZERO;
    output
        .w()
        .start_flow_index(group.first)
        .end_flow_index(group.last)
        .match_criteria_enable(group.enabled)
        .match_criteria(&group.criteria);
    Ok(output)
}

/// `DESTROY_FLOW_GROUP`.
pub(super) fn destroy_group(f: &mut Function, command: &DestroyFlowGroupIn) -> Answer<DestroyFlowGroupOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    let table = table(f, command.table_type(), command.table_id())?;
    if table.is_used(command.group_id()) {
        return Err(Syndrome::FlowGroupInUse.into());
    }
    if !table.remove_group(command.group_id()) {
        return Err(Syndrome::NoSuchFlowGroup.into());
    }
    pages::release(f, Context::FlowGroup);
    Ok(DestroyFlowGroupOut::ZERO)
}

/// `SET_FLOW_TABLE_ENTRY`.
pub(super) fn set_entry(f: &mut Function, command: &SetFteIn, list: &[u8]) -> Answer<SetFteOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    if command.ignore_flow_level() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let index = command.flow_index();
    let old = table(f, command.table_type(), command.table_id())?.entry(index).cloned();
    let entry = match (command.op_mod(), old) {
        (SET_NEW, Some(_)) => return Err(Syndrome::FlowEntryTaken.into()),
        (SET_NEW, None) => {
            let entry = entry(f, command, command.flow_context(), list)?;
            let group = table(f, command.table_type(), command.table_id())?.groups.get(&entry.group);
            check_group(group, index)?;
            let caps = properties(&f.nic.firmware.caps, command.table_type());
            if f.nic.objects.steering.entry_count() >= 1 << caps.log_max_flow() {
                return Err(Syndrome::TooManyFlowEntries.into());
            }
            pages::reserve(f, Context::FlowEntry)?;
            entry
        }
        (MODIFY, Some(old)) => modified(f, command, list, old)?,
        (MODIFY, None) => return Err(Syndrome::NoSuchFlowEntry.into()),
        _ => return Err(Syndrome::UnknownOpMod.into()),
    };
    f.nic.objects.steering.set_entry(command.table_id(), index, entry);
    Ok(SetFteOut::ZERO)
}

/// The entry's index must be in the range of its group.
fn check_group(group: Option<&FlowGroup>, index: u32) -> Result<(), Syndrome> {
    let group = group.ok_or(Syndrome::NoSuchFlowGroup)?;
    if (group.first..=group.last).contains(&index) { Ok(()) } else { Err(Syndrome::FlowEntryRange) }
}

/// Makes an entry from a flow context and the list after it. PRM "Flow Table Entry".
fn entry(f: &mut Function, command: &SetFteIn, context: &FlowContext, list: &[u8]) -> Result<FlowEntry, Syndrome> {
    let (table_type, number) = (command.table_type(), command.table_id());
    let FlowTable { level, context: about_table, .. } = *table(f, table_type, number)?;
    let does = context.action();
    let caps = *properties(&f.nic.firmware.caps, table_type);
    check_action(context, table_type, &about_table, &caps)?;
    let counts = [context.destination_list_size(), context.flow_counter_list_size()].map(|count| count as usize);
    let (items, _) = list.as_chunks::<{ DestFormatStruct::SIZE }>();
    let items = items.get(..counts[0] + counts[1]).ok_or(Syndrome::InputListLength)?;
    let (destinations, counters) = items.split_at(counts[0]);
    if counts[0] > 1 << caps.log_max_destination() || counts[1] > 1 << caps.log_max_flow_counter() {
        return Err(Syndrome::FlowDestinations);
    }
    if (does & action::FORWARD != 0) == destinations.is_empty() || (does & action::COUNT != 0) == counters.is_empty() {
        return Err(Syndrome::FlowDestinations);
    }
    let mut destinations: Vec<_> =
        destinations.iter().map(|item| destination(f, table_type, level, item)).collect::<Result<_, _>>()?;
    check_paths(f.nic.firmware.caps.flow_table(), &destinations)?;
    if does & action::ALLOW != 0 {
        destinations.push(Destination::Wire);
    }
    let counters: Vec<u32> =
        counters.iter().map(|item| u32::from_be_bytes([item[0], item[1], item[2], item[3]])).collect();
    if counters.iter().any(|counter| f.nic.objects.steering.counters.get(*counter).is_none()) {
        return Err(Syndrome::NoSuchFlowCounter);
    }
    Ok(FlowEntry {
        group: context.group_id(),
        value: key::bytes(context.match_value()),
        destinations,
        counters,
        tag: context.flow_tag(),
        metering: metering(f, context)?,
        changes: changes(f, table_type, context)?,
        context: *context,
        list: items.concat(),
    })
}

/// An entry does one of drop, forward and allow, and what its table can do beside.
fn check_action(
    context: &FlowContext,
    table_type: FlowTableType,
    table: &FlowTableContext,
    caps: &FlowTablePropLayout,
) -> Result<(), Syndrome> {
    let announced = [
        (action::ALLOW, table_type == FlowTableType::NicTx),
        (action::DROP | action::FORWARD, true),
        (action::COUNT, caps.flow_counter()),
        (action::REFORMAT, caps.reformat() && table.reformat_en()),
        (action::DECAP, caps.decap() && table.decap_en()),
        (action::MODIFY_HEADER, caps.max_modify_header_actions() > 0),
        (action::POP_VLAN, caps.pop_vlan()),
        (action::PUSH_VLAN, caps.push_vlan()),
        (action::EXECUTE_ASO, caps.execute_aso()),
    ];
    let allowed = announced.iter().filter(|(_, is_there)| *is_there).fold(0, |all, (bit, _)| all | bit);
    let fate = context.action() & (action::ALLOW | action::DROP | action::FORWARD);
    if context.action() & !allowed != 0 || fate.count_ones() != 1 || context.extended_destination() {
        return Err(Syndrome::FlowAction);
    }
    Ok(())
}

/// Whether entries of such tables may use a packet reformat context of this kind.
pub(super) fn can_reformat(caps: &FlowTablePropLayout, kind: ReformatKind) -> bool {
    match kind {
        ReformatKind::L2Tunnel => caps.reformat(),
        ReformatKind::L3Tunnel => caps.reformat_l2_to_l3_tunnel(),
        ReformatKind::Leave => caps.reformat_l3_tunnel_to_l2(),
    }
}

/// How an entry changes frames.
fn changes(f: &Function, table_type: FlowTableType, context: &FlowContext) -> Result<Changes, Syndrome> {
    let steering = &f.nic.objects.steering;
    let does = |bit: u16| context.action() & bit != 0;
    let modify_header = does(action::MODIFY_HEADER).then_some(context.modify_header_id());
    if let Some(number) = modify_header {
        let header = steering.modify_headers.get(number).filter(|header| header.table_type == table_type);
        header.ok_or(Syndrome::NoSuchModifyHeader)?;
    }
    let reformat = does(action::REFORMAT).then_some(context.packet_reformat_id());
    if let Some(number) = reformat {
        let kind = steering.reformats.get(number).ok_or(Syndrome::NoSuchPacketReformat)?.kind;
        if !can_reformat(properties(&f.nic.firmware.caps, table_type), kind) {
            return Err(Syndrome::CapabilityNotAnnounced);
        }
        if kind == ReformatKind::Leave && does(action::DECAP) {
            return Err(Syndrome::FlowAction);
        }
    }
    let vlan = context.push_vlan();
    let tag: VlanTag = (vlan.ethtype(), u16::from(vlan.prio()) << 13 | u16::from(vlan.cfi()) << 12 | vlan.vid());
    Ok(Changes {
        decapsulates: does(action::DECAP),
        pops_vlan: does(action::POP_VLAN),
        modify_header,
        push_vlan: does(action::PUSH_VLAN).then_some(tag),
        reformat,
    })
}

/// The flow meter that an entry runs: it can run one.
fn metering(f: &Function, context: &FlowContext) -> Result<Option<Metering>, Syndrome> {
    /// `aso_type`, of which this is public: Linux's `MLX5_EXE_ASO_FLOW_METER`.
    const FLOW_METER: u8 = 2;
    const REGISTERS: usize = 8;
    let [first, rest @ ..] = context.execute_aso();
    if context.action() & action::EXECUTE_ASO == 0 {
        return Ok(None);
    }
    let control = first.exe_aso_ctrl().exe_aso_ctrl_flow_meter();
    let register = usize::from(control.return_reg_id());
    if !first.valid() || rest.iter().any(ExecuteAso::valid) || control.aso_type() != FLOW_METER || register >= REGISTERS
    {
        return Err(Syndrome::FlowMetering);
    }
    let object = first.aso_object_id();
    f.nic.objects.steering.meters.get(object).ok_or(Syndrome::NoSuchGeneralObject)?;
    let entered = FlowMeterColor::from_number(control.init_color().into());
    Ok(Some(Metering { object, is_second: control.meter_id(), entered, register }))
}

/// Several destinations, TIRs among them, or TIRs and tables, are capabilities of tables of received frames.
fn check_paths(caps: &FlowTableNicCap, destinations: &[Destination]) -> Result<(), Syndrome> {
    let tirs = destinations.iter().filter(|destination| matches!(destination, Destination::Tir(_))).count();
    let several = tirs > 0 && destinations.len() > 1;
    let unannounced = several && !caps.nic_rx_multi_path_tirs()
        || several && tirs < destinations.len() && !caps.nic_rx_multi_path_tirs_fts();
    if unannounced { Err(Syndrome::CapabilityNotAnnounced) } else { Ok(()) }
}

fn destination(f: &Function, table_type: FlowTableType, level: u8, item: &[u8]) -> Result<Destination, Syndrome> {
    let item = DestFormatStruct::read(item).ok_or(Syndrome::InputListLength)?;
    if item.destination_eswitch_owner_vhca_id_valid() || item.packet_reformat() {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    let number = item.destination_id();
    match item.destination_type() {
        FlowDestinationType::FlowTable => {
            check_ahead(f, table_type, level, number)?;
            Ok(Destination::Table(number))
        }
        FlowDestinationType::FlowSampler => {
            let sampler = f.nic.objects.steering.samplers.get(number).filter(|one| one.table_type == table_type);
            if sampler.ok_or(Syndrome::NoSuchGeneralObject)?.level <= level {
                return Err(Syndrome::FlowTableLevel);
            }
            Ok(Destination::Sampler(number))
        }
        FlowDestinationType::Tir if table_type == FlowTableType::NicRx => {
            f.nic.objects.tirs.get(number).ok_or(Syndrome::NoSuchTir)?;
            Ok(Destination::Tir(number))
        }
        _ => Err(Syndrome::FlowDestinations),
    }
}

/// The entry with the parts that `modify_enable_mask` names replaced.
fn modified(f: &mut Function, command: &SetFteIn, list: &[u8], old: FlowEntry) -> Result<FlowEntry, Syndrome> {
    let select = command.modify_enable_mask();
    if select & !(modify::ACTION | modify::TAG | modify::DESTINATIONS | modify::COUNTERS) != 0 {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    let wanted = command.flow_context();
    let mut context = old.context;
    let old_split = (context.destination_list_size() as usize * DestFormatStruct::SIZE).min(old.list.len());
    let new_split = (wanted.destination_list_size() as usize * DestFormatStruct::SIZE).min(list.len());
    let (mut destinations, mut counters) = old.list.split_at(old_split);
    if select & modify::ACTION != 0 {
        context
            .w()
            .action(wanted.action())
            .packet_reformat_id(wanted.packet_reformat_id())
            .modify_header_id(wanted.modify_header_id())
            .push_vlan(wanted.push_vlan())
            .execute_aso(wanted.execute_aso());
    }
    if select & modify::TAG != 0 {
        context.w().flow_tag(wanted.flow_tag());
    }
    if select & modify::DESTINATIONS != 0 {
        context.w().destination_list_size(wanted.destination_list_size());
        destinations = &list[..new_split];
    }
    if select & modify::COUNTERS != 0 {
        context.w().flow_counter_list_size(wanted.flow_counter_list_size());
        counters = &list[new_split..];
    }
    entry(f, command, &context, &[destinations, counters].concat())
}

/// `QUERY_FLOW_TABLE_ENTRY`: the context, and as much of its list as fits.
pub(super) fn query_entry(
    f: &mut Function,
    command: &QueryFteIn,
    _: &[u8],
    room: usize,
) -> Answer<(QueryFteOut, Vec<u8>)> {
    own(command.table_type(), false, 0)?;
    let entry = table(f, command.table_type(), command.table_id())?
        .entry(command.flow_index())
        .ok_or(Syndrome::NoSuchFlowEntry)?;
    let mut output = QueryFteOut::ZERO;
    output.w().flow_context(&entry.context);
    Ok((output, entry.list[..entry.list.len().min(room)].to_vec()))
}

/// `DELETE_FLOW_TABLE_ENTRY`.
pub(super) fn delete_entry(f: &mut Function, command: &DeleteFteIn) -> Answer<DeleteFteOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    table(f, command.table_type(), command.table_id())?;
    if !f.nic.objects.steering.remove_entry(command.table_id(), command.flow_index()) {
        return Err(Syndrome::NoSuchFlowEntry.into());
    }
    pages::release(f, Context::FlowEntry);
    Ok(DeleteFteOut::ZERO)
}

/// Counters of a bulk with `flow_counter_bulk` 1; the field's value is a multiple of it.
const BULK_UNIT: u32 = 128;
/// Linux reads several counters at once only from a multiple of this number.
const BULK_ALIGNMENT: u32 = 4;

/// `ALLOC_FLOW_COUNTER`: one, or several with numbers one after the other.
pub(super) fn alloc_counter(f: &mut Function, command: &AllocFlowCounterIn) -> Answer<AllocFlowCounterOut> {
    let general = f.nic.firmware.caps.general();
    let (units, log_size) = (command.flow_counter_bulk(), command.flow_counter_bulk_log_size());
    if units & !general.flow_counter_bulk_alloc() != 0 || log_size > general.log_max_flow_counter_bulk() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    let count = if units != 0 { BULK_UNIT * u32::from(units) } else { 1 << log_size };
    let counters = &mut f.nic.objects.steering.counters;
    counters.next_number().ok_or(Syndrome::TooManyFlowCounters)?;
    pages::reserve(f, Context::FlowEntry)?;
    let counters = &mut f.nic.objects.steering.counters;
    let number = match count {
        1 => counters.insert(FlowCounter::default()).ok(),
        _ => counters.insert_run(count, BULK_ALIGNMENT, FlowCounter::default),
    };
    let Some(number) = number else {
        pages::release(f, Context::FlowEntry);
        return Err(Syndrome::TooManyFlowCounters.into());
    };
    f.nic.objects.steering.bulks.insert(number, count);
    let mut output = AllocFlowCounterOut::ZERO;
    output.w().flow_counter_id(number);
    Ok(output)
}

/// `QUERY_FLOW_COUNTER`: one counter or a range; unused numbers in the range read as zero.
pub(super) fn query_counter(
    f: &mut Function,
    command: &QueryFlowCounterIn,
    _: &[u8],
    room: usize,
) -> Answer<(QueryFlowCounterOut, Vec<u8>)> {
    let count = usize::from(command.num_of_counters().max(1));
    if room < count * TrafficCounter::SIZE {
        return Err(Syndrome::OutputTooShort.into());
    }
    let first = command.flow_counter_id();
    let end = first.checked_add(count as u32).ok_or(Syndrome::NoSuchFlowCounter)?;
    let counters = &mut f.nic.objects.steering.counters;
    if count == 1 && counters.get(first).is_none() {
        return Err(Syndrome::NoSuchFlowCounter.into());
    }
    let mut list = Vec::new();
    for number in first..end {
        let mut counted = TrafficCounter::ZERO;
        if let Some(counter) = counters.get_mut(number) {
            counted.w().packets(counter.packets).octets(counter.bytes);
            if command.clear() {
                *counter = FlowCounter::default();
            }
        }
        list.extend_from_slice(Layout::as_bytes(&counted));
    }
    Ok((QueryFlowCounterOut::ZERO, list))
}

/// `DEALLOC_FLOW_COUNTER`: with all counters of its bulk.
pub(super) fn dealloc_counter(f: &mut Function, command: &DeallocFlowCounterIn) -> Answer<DeallocFlowCounterOut> {
    let number = command.flow_counter_id();
    let steering = &mut f.nic.objects.steering;
    let count = *steering.bulks.get(&number).ok_or(Syndrome::NoSuchFlowCounter)?;
    if (number..number + count).any(|number| steering.is_used(Use::Counter(number))) {
        return Err(Syndrome::FlowCounterInUse.into());
    }
    steering.bulks.remove(&number);
    for number in number..number + count {
        steering.counters.remove(number);
    }
    pages::release(f, Context::FlowEntry);
    Ok(DeallocFlowCounterOut::ZERO)
}
