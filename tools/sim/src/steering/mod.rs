//! Flow steering: flow tables, from the root table to the receive queues of a frame. PRM "Flow Tables".
//!
//! A [table](FlowTable) has groups, each with one mask, and in their ranges entries, each with one value. The matching
//! entry with the lowest index decides: drop, or forward to tables and [TIRs](crate::objects::Tir). If none matches,
//! the table's miss action applies. Tables forward only to tables of a higher level, so every lookup ends.
//!
//! Entries match on the PRM's `fte_match_set_lyr_2_4`: a frame's key has the same layout, and is compared under the
//! group's mask.

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

/// The `NIC_RX` flow tables of one function, and its flow counters.
#[derive(Debug)]
pub struct Steering {
    /// By `table_id`.
    pub tables: Table<FlowTable>,
    /// The root table, where every frame starts.
    pub root: Option<u32>,
    /// By `flow_counter_id`.
    pub counters: Table<FlowCounter>,
    /// Number of the next group: unique within a function.
    next_group: u32,
}

/// A destination of a frame: the TIR, and the tag of the entry.
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

    /// The destinations of a frame of `len` bytes. Updates the flow counters of matching entries.
    pub(crate) fn lookup(&mut self, headers: &Headers, len: usize) -> Vec<Delivery> {
        let key = key::of(headers);
        let mut deliveries = Vec::new();
        let mut pending: Vec<u32> = self.root.into_iter().collect();
        while let Some(number) = pending.pop() {
            let Some(table) = self.tables.get(number) else { continue };
            let Some(entry) = table.find(&key) else {
                if let Miss::Table(next) = table.miss {
                    pending.push(next);
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
                    Destination::Table(next) => pending.push(next),
                    Destination::Tir(tirn) => deliveries.push(Delivery { tirn, tag: entry.tag }),
                }
            }
        }
        deliveries
    }

    /// Whether any table forwards to table `number`.
    pub(crate) fn forwards_to(&self, number: u32) -> bool {
        self.tables.iter().any(|(_, table)| table.forwards_to(Destination::Table(number)))
    }

    /// Whether any entry forwards to this TIR.
    pub(crate) fn forwards_to_tir(&self, tirn: u32) -> bool {
        self.tables.iter().any(|(_, table)| table.forwards_to(Destination::Tir(tirn)))
    }

    /// Whether any entry uses this counter.
    pub(crate) fn uses_counter(&self, counter: u32) -> bool {
        self.tables.iter().any(|(_, table)| table.entries().any(|entry| entry.counters.contains(&counter)))
    }

    /// Number of entries in all tables.
    pub(crate) fn entry_count(&self) -> usize {
        self.tables.iter().map(|(_, table)| table.entries().count()).sum()
    }

    /// Number of objects: tables, groups and counters.
    pub(crate) fn count(&self) -> usize {
        let groups: usize = self.tables.iter().map(|(_, table)| table.groups.len()).sum();
        self.tables.len() + groups + self.counters.len()
    }
}
