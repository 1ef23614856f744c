//! Steering: flow tables, from the root on to the receive queues that a frame goes to.
//!
//! A [table](FlowTable) holds groups, one mask each, and in their ranges the entries, one value each. The lowest entry
//! that matches decides: drop, or go on to tables and [TIRs](crate::objects::Tir). Where none matches, the table says
//! what comes next. Tables lead to tables of a higher level only, so every walk ends.
//!
//! What an entry matches is the PRM's `fte_match_set_lyr_2_4` itself: a frame's key is the same layout, filled
//! from the frame, and compared under the group's mask.

pub(crate) mod hash;
pub(crate) mod key;
mod table;
#[cfg(test)]
mod tests;

pub use table::{Destination, FlowEntry, FlowGroup, FlowTable, Miss};

use crate::ethernet::Headers;
use crate::profile::Profile;
use crate::table::Table;

/// A flow counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowCounter {
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The flow tables of one function, those of `NIC_RX`, and its flow counters.
#[derive(Debug)]
pub struct Steering {
    /// By `table_id`.
    pub tables: Table<FlowTable>,
    /// Where every frame begins.
    pub root: Option<u32>,
    /// By `flow_counter_id`.
    pub counters: Table<FlowCounter>,
    /// The number of the next group: no two of a function share one.
    next_group: u32,
}

/// Where a frame goes: the TIR, and the tag of the entry that named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// `tirn`.
    pub tirn: u32,
    /// `flow_tag`.
    pub tag: u32,
}

impl Steering {
    /// No tables.
    pub fn new(profile: &Profile) -> Self {
        let most = 1 << profile.flow_table.flow_table_properties_nic_receive().log_max_ft_num();
        let caps = &profile.general_max;
        let counters = u32::from(caps.max_flow_counter_31_16()) << 16 | u32::from(caps.max_flow_counter_15_0());
        Steering { tables: Table::new(1, most), root: None, counters: Table::new(1, counters), next_group: 1 }
    }

    /// A number for a new group.
    pub(crate) fn group_number(&mut self) -> u32 {
        let number = self.next_group;
        self.next_group = self.next_group.wrapping_add(1).max(1);
        number
    }

    /// Where a frame of `len` bytes goes. It is counted in the flow counters on its way.
    pub(crate) fn walk(&mut self, headers: &Headers, len: usize) -> Vec<Delivery> {
        let key = key::of(headers);
        let mut deliveries = Vec::new();
        let mut ahead: Vec<u32> = self.root.into_iter().collect();
        while let Some(number) = ahead.pop() {
            let Some(table) = self.tables.get(number) else { continue };
            let Some(entry) = table.find(&key) else {
                if let Miss::Table(next) = table.miss {
                    ahead.push(next);
                }
                continue;
            };
            for number in &entry.counters {
                if let Some(counter) = self.counters.get_mut(*number) {
                    counter.packets += 1;
                    counter.bytes += len as u64;
                }
            }
            for destination in &entry.destinations {
                match *destination {
                    Destination::Table(next) => ahead.push(next),
                    Destination::Tir(tirn) => deliveries.push(Delivery { tirn, tag: entry.tag }),
                }
            }
        }
        deliveries
    }

    /// Whether any table leads to this one.
    pub(crate) fn leads_to(&self, number: u32) -> bool {
        self.tables.iter().any(|(_, table)| table.leads_to(Destination::Table(number)))
    }

    /// Whether an entry delivers to this TIR.
    pub(crate) fn delivers_to(&self, tirn: u32) -> bool {
        self.tables.iter().any(|(_, table)| table.leads_to(Destination::Tir(tirn)))
    }

    /// Whether an entry counts on this counter.
    pub(crate) fn counts_on(&self, counter: u32) -> bool {
        self.tables.iter().any(|(_, table)| table.entries().any(|entry| entry.counters.contains(&counter)))
    }

    /// How many entries there are, in all tables.
    pub(crate) fn entry_count(&self) -> usize {
        self.tables.iter().map(|(_, table)| table.entries().count()).sum()
    }

    /// How many objects there are: tables, groups and counters.
    pub(crate) fn count(&self) -> usize {
        let groups: usize = self.tables.iter().map(|(_, table)| table.groups.len()).sum();
        self.tables.len() + groups + self.counters.len()
    }
}
