//! Flow tables, groups and entries. PRM "Flow Group", "Flow Table Entry".

use std::collections::{BTreeMap, BTreeSet, HashMap};

use mlx5_prm::flow::{FlowContext, FlowTableContext, FlowTableType, FteMatchParam};

use super::key::{self, Key, Mask};
use super::meter::Metering;

/// What an entry uses, which must not be destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    Table(u32),
    Tir(u32),
    Counter(u32),
    ModifyHeader(u32),
    Reformat(u32),
    Meter(u32),
    Sampler(u32),
}

/// Destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Another flow table.
    Table(u32),
    /// A flow sampler, and the tables that it leads to.
    Sampler(u32),
    /// A TIR, which selects a receive queue.
    Tir(u32),
    /// The wire, for frames that are sent.
    Wire,
}

/// Miss action: for a frame that matches no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// That of the table type: received frames are dropped, others are sent.
    Default,
    /// Forward to this table.
    Table(u32),
}

/// A VLAN tag to add: EtherType and tag control information.
pub type VlanTag = (u16, u16);

/// How an entry changes frames, in the order in which it does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Take the frame out of its tunnel.
    pub decapsulates: bool,
    /// Remove the outer VLAN tag.
    pub pops_vlan: bool,
    /// `modify_header_id`.
    pub modify_header: Option<u32>,
    /// VLAN tag to add.
    pub push_vlan: Option<VlanTag>,
    /// `packet_reformat_id`.
    pub reformat: Option<u32>,
}

/// A flow table entry.
#[derive(Debug, Clone)]
pub struct FlowEntry {
    /// Its group.
    pub group: u32,
    /// Value that the frame's key must have under the group's mask.
    pub value: Key,
    /// Destinations; if empty, frames are dropped.
    pub destinations: Vec<Destination>,
    /// Flow counters.
    pub counters: Vec<u32>,
    /// Flow tag of the frame's completion.
    pub tag: u32,
    /// The meter that the frame goes through.
    pub metering: Option<Metering>,
    /// How the frame is changed on its way to the destinations.
    pub changes: Changes,
    /// The context as it was given, for `QUERY_FLOW_TABLE_ENTRY`.
    pub context: FlowContext,
    /// The list after the context: destinations, then counters.
    pub list: Vec<u8>,
}

impl FlowEntry {
    /// What it uses.
    pub(super) fn uses(&self) -> impl Iterator<Item = Use> {
        let destinations = self.destinations.iter().filter_map(|destination| match *destination {
            Destination::Table(number) => Some(Use::Table(number)),
            Destination::Sampler(number) => Some(Use::Sampler(number)),
            Destination::Tir(number) => Some(Use::Tir(number)),
            Destination::Wire => None,
        });
        let counters = self.counters.iter().copied().map(Use::Counter);
        let modify = self.changes.modify_header.map(Use::ModifyHeader);
        let reformat = self.changes.reformat.map(Use::Reformat);
        let meter = self.metering.map(|metering| Use::Meter(metering.object));
        destinations.chain(counters).chain(modify).chain(reformat).chain(meter)
    }
}

/// A flow group: a range of entries with the same mask.
#[derive(Debug, Clone)]
pub struct FlowGroup {
    /// First index of its entries.
    pub first: u32,
    /// Last index of its entries.
    pub last: u32,
    /// The mask.
    mask: Mask,
    /// `match_criteria_enable`.
    pub enabled: u8,
    /// The criteria as they were given, for `QUERY_FLOW_GROUP`.
    pub criteria: FteMatchParam,
    /// The entries of each value, so that their number costs a lookup nothing.
    by_value: HashMap<Box<[u64]>, BTreeSet<u32>>,
}

impl FlowGroup {
    /// A group without entries.
    pub fn new(first: u32, last: u32, enabled: u8, criteria: FteMatchParam) -> Self {
        let mask = Mask::of(&key::bytes(&criteria), enabled);
        FlowGroup { first, last, mask, enabled, criteria, by_value: HashMap::new() }
    }

    /// What the group compares of `key`.
    fn selected(&self, key: &Key) -> Box<[u64]> {
        let mut selected = Vec::new();
        self.mask.select(key, &mut selected);
        selected.into()
    }
}

/// A flow table.
#[derive(Debug)]
pub struct FlowTable {
    /// Whether its frames are received or sent.
    pub table_type: FlowTableType,
    /// Tables forward only to tables of a higher level.
    pub level: u8,
    /// log2 of its entries.
    pub log_size: u32,
    /// Miss action.
    pub miss: Miss,
    /// By `group_id`.
    pub groups: BTreeMap<u32, FlowGroup>,
    /// Groups by their first index.
    order: BTreeMap<u32, u32>,
    /// By `flow_index`.
    entries: HashMap<u32, FlowEntry>,
    /// The context as it was given, for `QUERY_FLOW_TABLE`.
    pub context: FlowTableContext,
}

impl FlowTable {
    /// A table without groups.
    pub fn new(table_type: FlowTableType, context: FlowTableContext, miss: Miss) -> Self {
        FlowTable {
            table_type,
            level: context.level(),
            log_size: context.log_size().into(),
            miss,
            groups: BTreeMap::new(),
            order: BTreeMap::new(),
            entries: HashMap::new(),
            context,
        }
    }

    /// The entry that applies to a frame: of all matching ones, that with the lowest index. `scratch` is room for what
    /// groups compare.
    pub(super) fn find(&self, key: &Key, scratch: &mut Vec<u64>) -> Option<&FlowEntry> {
        self.order.values().find_map(|number| {
            let group = self.groups.get(number)?;
            group.mask.select(key, scratch);
            let index = group.by_value.get(scratch.as_slice())?.first()?;
            self.entries.get(index)
        })
    }

    /// Adds a group. Returns false if its range overlaps another group's.
    pub fn add_group(&mut self, number: u32, group: FlowGroup) -> bool {
        let overlaps = self.groups.values().any(|other| group.first <= other.last && other.first <= group.last);
        if !overlaps {
            self.order.insert(group.first, number);
            self.groups.insert(number, group);
        }
        !overlaps
    }

    /// Removes a group. Returns false if there is no such group.
    pub fn remove_group(&mut self, number: u32) -> bool {
        let Some(group) = self.groups.remove(&number) else { return false };
        self.order.remove(&group.first);
        true
    }

    /// Whether a group has entries.
    pub fn is_used(&self, group: u32) -> bool {
        self.groups.get(&group).is_some_and(|group| !group.by_value.is_empty())
    }

    /// The entry at `index`.
    pub fn entry(&self, index: u32) -> Option<&FlowEntry> {
        self.entries.get(&index)
    }

    /// Sets the entry at `index`; returns the one that it replaces.
    pub(super) fn set_entry(&mut self, index: u32, entry: FlowEntry) -> Option<FlowEntry> {
        let old = self.remove_entry(index);
        if let Some(group) = self.groups.get_mut(&entry.group) {
            group.by_value.entry(group.selected(&entry.value)).or_default().insert(index);
        }
        self.entries.insert(index, entry);
        old
    }

    /// Removes the entry at `index`.
    pub(super) fn remove_entry(&mut self, index: u32) -> Option<FlowEntry> {
        let entry = self.entries.remove(&index)?;
        if let Some(group) = self.groups.get_mut(&entry.group) {
            let value = group.selected(&entry.value);
            if let Some(indices) = group.by_value.get_mut(&value) {
                indices.remove(&index);
                if indices.is_empty() {
                    group.by_value.remove(&value);
                }
            }
        }
        Some(entry)
    }
}
