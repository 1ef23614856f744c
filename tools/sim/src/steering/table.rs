//! Flow tables, groups and entries. PRM "Flow Group", "Flow Table Entry".

use std::collections::{BTreeMap, HashMap};

use mlx5_prm::flow::{FlowContext, FlowTableContext, FteMatchParam};

use super::key::{self, Key};

/// Destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Another flow table.
    Table(u32),
    /// A TIR, which selects a receive queue.
    Tir(u32),
}

/// Miss action: for a frame that matches no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// Drop.
    Drop,
    /// Forward to this table.
    Table(u32),
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
    /// The context as it was given, for `QUERY_FLOW_TABLE_ENTRY`.
    pub context: FlowContext,
    /// The list after the context: destinations, then counters.
    pub list: Vec<u8>,
}

/// A flow group: a range of entries with the same mask.
#[derive(Debug, Clone)]
pub struct FlowGroup {
    /// First index of its entries.
    pub first: u32,
    /// Last index of its entries.
    pub last: u32,
    /// The mask.
    pub mask: Key,
    /// `match_criteria_enable`.
    pub enabled: u8,
    /// The criteria as they were given, for `QUERY_FLOW_GROUP`.
    pub criteria: FteMatchParam,
    /// The lowest entry for each value.
    by_value: HashMap<Key, u32>,
}

impl FlowGroup {
    /// A group without entries.
    pub fn new(first: u32, last: u32, enabled: u8, criteria: FteMatchParam) -> Self {
        let mask = if enabled == 0 { [0; key::LEN] } else { key::bytes(criteria.outer_headers()) };
        FlowGroup { first, last, mask, enabled, criteria, by_value: HashMap::new() }
    }
}

/// A flow table.
#[derive(Debug)]
pub struct FlowTable {
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
    entries: BTreeMap<u32, FlowEntry>,
    /// The context as it was given, for `QUERY_FLOW_TABLE`.
    pub context: FlowTableContext,
}

impl FlowTable {
    /// A table without groups.
    pub fn new(context: FlowTableContext, miss: Miss) -> Self {
        FlowTable {
            level: context.level(),
            log_size: context.log_size().into(),
            miss,
            groups: BTreeMap::new(),
            order: BTreeMap::new(),
            entries: BTreeMap::new(),
            context,
        }
    }

    /// The entry that applies to a frame: of all matching ones, that with the lowest index.
    pub(crate) fn find(&self, key: &Key) -> Option<&FlowEntry> {
        self.order.values().find_map(|number| {
            let group = self.groups.get(number)?;
            let index = group.by_value.get(&key::masked(key, &group.mask))?;
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
        self.entries.values().any(|entry| entry.group == group)
    }

    /// The entry at `index`.
    pub fn entry(&self, index: u32) -> Option<&FlowEntry> {
        self.entries.get(&index)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &FlowEntry> {
        self.entries.values()
    }

    /// Sets the entry at `index`; replaces an existing one.
    pub fn set_entry(&mut self, index: u32, mut entry: FlowEntry) {
        self.remove_entry(index);
        if let Some(group) = self.groups.get_mut(&entry.group) {
            entry.value = key::masked(&entry.value, &group.mask);
            let lowest = group.by_value.entry(entry.value).or_insert(index);
            *lowest = index.min(*lowest);
        }
        self.entries.insert(index, entry);
    }

    /// Removes the entry at `index`. Returns false if there is none.
    pub fn remove_entry(&mut self, index: u32) -> bool {
        let Some(entry) = self.entries.remove(&index) else { return false };
        let next = self.entries.iter().find(|(_, other)| other.group == entry.group && other.value == entry.value);
        let next = next.map(|(index, _)| *index);
        if let Some(group) = self.groups.get_mut(&entry.group) {
            match next {
                Some(next) => group.by_value.insert(entry.value, next),
                None => group.by_value.remove(&entry.value),
            };
        }
        true
    }

    /// Whether an entry or the miss action forwards to `destination`.
    pub(crate) fn forwards_to(&self, destination: Destination) -> bool {
        let misses = matches!((self.miss, destination), (Miss::Table(next), Destination::Table(to)) if next == to);
        misses || self.entries().any(|entry| entry.destinations.contains(&destination))
    }
}
