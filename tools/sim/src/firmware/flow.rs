//! Flow tables, groups, entries and counters. PRM "Flow Tables". Only NIC receive tables are announced.

use mlx5_prm::caps::FlowTablePropLayout;
use mlx5_prm::cmd::*;
use mlx5_prm::ctx::TrafficCounter;
use mlx5_prm::flow::{
    DestFormatStruct, FlowContext, FlowDestinationType, FlowTableContext, FlowTableMissAction, FlowTableType,
    FteMatchParam,
};
use mlx5_prm::layout::Layout;

use super::answer::Answer;
use super::pages;
use super::syndromes::Syndrome;
use crate::function::{Capabilities, Context, Function};
use crate::steering::{Destination, FlowCounter, FlowEntry, FlowGroup, FlowTable, Miss, key};

/// `modify_field_select` of `MODIFY_FLOW_TABLE`.
const SELECT_MISS: u16 = 1;
/// `op_mod` of `SET_FLOW_TABLE_ROOT`.
const SET_ROOT: u16 = 0;
const RESET_ROOT: u16 = 1;
/// `op_mod` of `SET_FLOW_TABLE_ENTRY`.
const SET_NEW: u16 = 0;
const MODIFY: u16 = 1;
/// `match_criteria_enable`: the outer headers.
const OUTER_HEADERS: u8 = 1;
/// `flow_context.action`.
mod action {
    pub(super) const DROP: u16 = 0x2;
    pub(super) const FORWARD: u16 = 0x4;
    pub(super) const COUNT: u16 = 0x8;
}
/// `modify_enable_mask` of `SET_FLOW_TABLE_ENTRY`.
mod modify {
    pub(super) const ACTION: u8 = 1 << 0;
    pub(super) const TAG: u8 = 1 << 1;
    pub(super) const DESTINATIONS: u8 = 1 << 2;
    pub(super) const COUNTERS: u8 = 1 << 3;
}
fn properties(caps: &Capabilities) -> &FlowTablePropLayout {
    caps.flow_table().flow_table_properties_nic_receive()
}

/// Checks the table's type, and that it belongs to this function.
fn own(table_type: FlowTableType, other: bool, vport: u16) -> Result<(), Syndrome> {
    if table_type != FlowTableType::NicRx {
        return Err(Syndrome::FlowTableType);
    }
    if other || vport != 0 { Err(Syndrome::OtherVport) } else { Ok(()) }
}

fn table(f: &mut Function, number: u32) -> Result<&mut FlowTable, Syndrome> {
    f.nic.objects.steering.tables.get_mut(number).ok_or(Syndrome::NoSuchFlowTable)
}

fn miss(f: &Function, context: &FlowTableContext) -> Result<Miss, Syndrome> {
    match context.table_miss_action() {
        FlowTableMissAction::Def => Ok(Miss::Drop),
        FlowTableMissAction::Fwd => {
            check_ahead(f, context.level(), context.table_miss_id())?;
            Ok(Miss::Table(context.table_miss_id()))
        }
        _ => Err(Syndrome::FlowTableMiss),
    }
}

/// A table may forward only to tables of a higher level.
fn check_ahead(f: &Function, level: u8, next: u32) -> Result<(), Syndrome> {
    let next = f.nic.objects.steering.tables.get(next).ok_or(Syndrome::NoSuchFlowTable)?;
    if next.level > level { Ok(()) } else { Err(Syndrome::FlowTableLevel) }
}

/// `CREATE_FLOW_TABLE`.
pub(super) fn create_table(f: &mut Function, command: &CreateFlowTableIn) -> Answer<CreateFlowTableOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    let context = *command.flow_table_context();
    let caps = properties(&f.nic.firmware.caps);
    let unannounced = context.reformat_en()
        || context.decap_en()
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
    let miss = miss(f, &context)?;
    f.nic.objects.steering.tables.next_number().ok_or(Syndrome::TooManyFlowTables)?;
    pages::reserve(f, Context::FlowTable)?;
    let table = FlowTable::new(context, miss);
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
    let mut context = table(f, command.table_id())?.context;
    if command.modify_field_select() & SELECT_MISS != 0 {
        let wanted = command.flow_table_context();
        context.w().table_miss_action(wanted.table_miss_action()).table_miss_id(wanted.table_miss_id());
        let miss = miss(f, &context)?;
        let table = table(f, command.table_id())?;
        (table.miss, table.context) = (miss, context);
    }
    Ok(ModifyFlowTableOut::ZERO)
}

/// `QUERY_FLOW_TABLE`.
pub(super) fn query_table(f: &mut Function, command: &QueryFlowTableIn) -> Answer<QueryFlowTableOut> {
    own(command.table_type(), false, 0)?;
    let context = table(f, command.table_id())?.context;
    let mut output = QueryFlowTableOut::ZERO;
    output.w().flow_table_context(&context);
    Ok(output)
}

/// `DESTROY_FLOW_TABLE`. Linux destroys the last root table while it is the root; frames are dropped from then on.
pub(super) fn destroy_table(f: &mut Function, command: &DestroyFlowTableIn) -> Answer<DestroyFlowTableOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    let number = command.table_id();
    if !table(f, number)?.groups.is_empty() {
        return Err(Syndrome::FlowTableInUse.into());
    }
    let steering = &mut f.nic.objects.steering;
    if steering.forwards_to(number) {
        return Err(Syndrome::FlowTableInUse.into());
    }
    steering.tables.remove(number);
    steering.root = steering.root.filter(|root| *root != number);
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
    f.nic.objects.steering.root = match command.op_mod() {
        SET_ROOT => {
            table(f, command.table_id())?;
            Some(command.table_id())
        }
        RESET_ROOT => None,
        _ => return Err(Syndrome::UnknownOpMod.into()),
    };
    Ok(SetFlowTableRootOut::ZERO)
}

/// `CREATE_FLOW_GROUP`.
pub(super) fn create_group(f: &mut Function, command: &CreateFlowGroupIn) -> Answer<CreateFlowGroupOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    let size = 1u64 << table(f, command.table_id())?.log_size;
    let (first, last) = (command.start_flow_index(), command.end_flow_index());
    if first > last || u64::from(last) >= size {
        return Err(Syndrome::FlowGroupRange.into());
    }
    if command.group_type() != mlx5_prm::flow::FlowGroupType::TcamSubtable || command.match_definer_id() != 0 {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    check_criteria(command.match_criteria_enable(), command.match_criteria())?;
    pages::reserve(f, Context::FlowGroup)?;
    let number = f.nic.objects.steering.group_number();
    let group = FlowGroup::new(first, last, command.match_criteria_enable(), *command.match_criteria());
    if !table(f, command.table_id())?.add_group(number, group) {
        pages::release(f, Context::FlowGroup);
        return Err(Syndrome::FlowGroupRange.into());
    }
    let mut output = CreateFlowGroupOut::ZERO;
    output.w().group_id(number);
    Ok(output)
}

/// Groups may match only on announced fields. PRM "Flow Group".
fn check_criteria(enabled: u8, criteria: &FteMatchParam) -> Result<(), Syndrome> {
    if enabled & !OUTER_HEADERS != 0 {
        return Err(Syndrome::FlowCriteria);
    }
    let mask = key::bytes(criteria.outer_headers());
    if enabled != 0 && key::masked(&mask, &key::supported()) != mask {
        return Err(Syndrome::FlowCriteria);
    }
    Ok(())
}

/// `QUERY_FLOW_GROUP`.
pub(super) fn query_group(f: &mut Function, command: &QueryFlowGroupIn) -> Answer<QueryFlowGroupOut> {
    own(command.table_type(), false, 0)?;
    let group = table(f, command.table_id())?.groups.get(&command.group_id()).ok_or(Syndrome::NoSuchFlowGroup)?;
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
    let table = table(f, command.table_id())?;
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
    let old = table(f, command.table_id())?.entry(index).cloned();
    let entry = match (command.op_mod(), old) {
        (SET_NEW, Some(_)) => return Err(Syndrome::FlowEntryTaken.into()),
        (SET_NEW, None) => {
            let entry = entry(f, command.table_id(), command.flow_context(), list)?;
            check_group(f, command.table_id(), index, entry.group)?;
            if f.nic.objects.steering.entry_count() >= 1 << properties(&f.nic.firmware.caps).log_max_flow() {
                return Err(Syndrome::TooManyFlowEntries.into());
            }
            pages::reserve(f, Context::FlowEntry)?;
            entry
        }
        (MODIFY, Some(old)) => modified(f, command, list, old)?,
        (MODIFY, None) => return Err(Syndrome::NoSuchFlowEntry.into()),
        _ => return Err(Syndrome::UnknownOpMod.into()),
    };
    table(f, command.table_id())?.set_entry(index, entry);
    Ok(SetFteOut::ZERO)
}

/// The entry's index must be in the range of its group.
fn check_group(f: &mut Function, number: u32, index: u32, group: u32) -> Result<(), Syndrome> {
    let group = table(f, number)?.groups.get(&group).ok_or(Syndrome::NoSuchFlowGroup)?;
    if (group.first..=group.last).contains(&index) { Ok(()) } else { Err(Syndrome::FlowEntryRange) }
}

/// Makes an entry from a flow context and the list after it. PRM "Flow Table Entry".
fn entry(f: &mut Function, number: u32, context: &FlowContext, list: &[u8]) -> Result<FlowEntry, Syndrome> {
    let level = table(f, number)?.level;
    let does = context.action();
    if does & !(action::DROP | action::FORWARD | action::COUNT) != 0
        || (does & action::DROP != 0) == (does & action::FORWARD != 0)
        || context.extended_destination()
    {
        return Err(Syndrome::FlowAction);
    }
    let counts = [context.destination_list_size(), context.flow_counter_list_size()].map(|count| count as usize);
    let (items, _) = list.as_chunks::<{ DestFormatStruct::SIZE }>();
    let items = items.get(..counts[0] + counts[1]).ok_or(Syndrome::InputListLength)?;
    let (destinations, counters) = items.split_at(counts[0]);
    let caps = properties(&f.nic.firmware.caps);
    if counts[0] > 1 << caps.log_max_destination() || counts[1] > 1 << caps.log_max_flow_counter() {
        return Err(Syndrome::FlowDestinations);
    }
    if (does & action::FORWARD != 0) == destinations.is_empty() || (does & action::COUNT != 0) == counters.is_empty() {
        return Err(Syndrome::FlowDestinations);
    }
    let destinations = destinations.iter().map(|item| destination(f, level, item)).collect::<Result<_, _>>()?;
    let counters: Vec<u32> =
        counters.iter().map(|item| u32::from_be_bytes([item[0], item[1], item[2], item[3]])).collect();
    if counters.iter().any(|counter| f.nic.objects.steering.counters.get(*counter).is_none()) {
        return Err(Syndrome::NoSuchFlowCounter);
    }
    Ok(FlowEntry {
        group: context.group_id(),
        value: key::bytes(context.match_value().outer_headers()),
        destinations,
        counters,
        tag: context.flow_tag(),
        context: *context,
        list: items.concat(),
    })
}

fn destination(f: &Function, level: u8, item: &[u8]) -> Result<Destination, Syndrome> {
    let item = DestFormatStruct::read(item).ok_or(Syndrome::InputListLength)?;
    if item.destination_eswitch_owner_vhca_id_valid() || item.packet_reformat() {
        return Err(Syndrome::CapabilityNotAnnounced);
    }
    let number = item.destination_id();
    match item.destination_type() {
        FlowDestinationType::FlowTable => {
            check_ahead(f, level, number)?;
            Ok(Destination::Table(number))
        }
        FlowDestinationType::Tir => {
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
        context.w().action(wanted.action());
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
    entry(f, command.table_id(), &context, &[destinations, counters].concat())
}

/// `QUERY_FLOW_TABLE_ENTRY`: the context, and as much of its list as fits.
pub(super) fn query_entry(
    f: &mut Function,
    command: &QueryFteIn,
    _: &[u8],
    room: usize,
) -> Answer<(QueryFteOut, Vec<u8>)> {
    own(command.table_type(), false, 0)?;
    let entry = table(f, command.table_id())?.entry(command.flow_index()).ok_or(Syndrome::NoSuchFlowEntry)?;
    let mut output = QueryFteOut::ZERO;
    output.w().flow_context(&entry.context);
    Ok((output, entry.list[..entry.list.len().min(room)].to_vec()))
}

/// `DELETE_FLOW_TABLE_ENTRY`.
pub(super) fn delete_entry(f: &mut Function, command: &DeleteFteIn) -> Answer<DeleteFteOut> {
    own(command.table_type(), command.other_vport() || command.other_eswitch(), command.vport_number())?;
    if !table(f, command.table_id())?.remove_entry(command.flow_index()) {
        return Err(Syndrome::NoSuchFlowEntry.into());
    }
    pages::release(f, Context::FlowEntry);
    Ok(DeleteFteOut::ZERO)
}

/// `ALLOC_FLOW_COUNTER`.
pub(super) fn alloc_counter(f: &mut Function, command: &AllocFlowCounterIn) -> Answer<AllocFlowCounterOut> {
    if command.flow_counter_bulk() != 0 || command.flow_counter_bulk_log_size() != 0 {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    f.nic.objects.steering.counters.next_number().ok_or(Syndrome::TooManyFlowCounters)?;
    pages::reserve(f, Context::FlowEntry)?;
    let counter = f.nic.objects.steering.counters.insert(FlowCounter::default());
    let number = counter.map_err(|_| Syndrome::TooManyFlowCounters)?;
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
    let counters = &mut f.nic.objects.steering.counters;
    if count == 1 && counters.get(command.flow_counter_id()).is_none() {
        return Err(Syndrome::NoSuchFlowCounter.into());
    }
    let mut list = Vec::new();
    for number in (command.flow_counter_id()..).take(count) {
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

/// `DEALLOC_FLOW_COUNTER`.
pub(super) fn dealloc_counter(f: &mut Function, command: &DeallocFlowCounterIn) -> Answer<DeallocFlowCounterOut> {
    let number = command.flow_counter_id();
    f.nic.objects.steering.counters.get(number).ok_or(Syndrome::NoSuchFlowCounter)?;
    if f.nic.objects.steering.uses_counter(number) {
        return Err(Syndrome::FlowCounterInUse.into());
    }
    f.nic.objects.steering.counters.remove(number);
    pages::release(f, Context::FlowEntry);
    Ok(DeallocFlowCounterOut::ZERO)
}
