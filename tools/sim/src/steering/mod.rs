//! Flow steering: flow tables, from the root table to the receive queues of a frame, or to the wire. PRM "Flow Tables".
//!
//! A [table](FlowTable) has groups, each with one mask, and in their ranges entries, each with one value. The matching
//! entry with the lowest index decides: drop, or change the frame and forward it to tables, to
//! [TIRs](crate::objects::Tir) or to the wire. If none matches, the table's miss action applies. Tables forward only to
//! tables of a higher level, or to a [sampler](Sampler), whose level is between theirs, so every lookup ends.
//!
//! Entries match on the PRM's `fte_match_param`: a frame's key has the same layout, and is compared under the group's
//! mask. A group finds its entry by a hash of what its mask selects.

pub(crate) mod hash;
pub(crate) mod key;
pub(crate) mod meter;
pub(crate) mod modify;
mod payload;
pub(crate) mod reformat;
mod sampler;
mod table;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;

use mlx5_prm::caps::FlowTablePropLayout;
use mlx5_prm::flow::FlowTableType;

use key::Beside;
pub use meter::{MeterPair, Metering};
pub use modify::ModifyHeader;
pub(crate) use modify::Registers;
pub use payload::GeneveOption;
pub use reformat::{Reformat, ReformatKind};
pub use sampler::Sampler;
pub(crate) use table::Use;
pub use table::{Changes, Destination, FlowEntry, FlowGroup, FlowTable, Miss, VlanTag};

use crate::ethernet::{self, VxlanPorts};
use crate::fault::Random;
use crate::profile::Profile;
use crate::table::Table;

/// Most destinations that one frame can have on its way, tables among them. Linux's rules have a few for each frame. As
/// each table may lead to many others, and these again, a frame would have them without end.
pub(crate) const MOST_DESTINATIONS: usize = 1024;

/// Number of the object whose option is that of `geneve_tlv_option_0_data`.
const FIRST_OPTION: u32 = 1;

/// Makes the draws of samplers others than those of fault injection, which have the same seed.
const SAMPLES: u64 = 0x5a4d_504c;

/// A flow counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowCounter {
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The flow tables of one function, its flow counters, and what its entries do with frames.
#[derive(Debug)]
pub struct Steering {
    /// By `table_id`.
    pub tables: Table<FlowTable>,
    /// The root table of received frames, where each of them starts.
    pub receive_root: Option<u32>,
    /// The root table of frames that are sent.
    pub transmit_root: Option<u32>,
    /// By `flow_counter_id`.
    pub counters: Table<FlowCounter>,
    /// Number of counters that were made at once, by the number of the first.
    pub(crate) bulks: HashMap<u32, u32>,
    /// By `modify_header_id`.
    pub modify_headers: Table<ModifyHeader>,
    /// By `packet_reformat_id`.
    pub reformats: Table<Reformat>,
    /// Options of GENEVE by the number of their object: entries match the data of the first.
    pub geneve_options: Table<GeneveOption>,
    /// Flow meters, by the number of their object, which has two.
    pub meters: Table<MeterPair>,
    /// Number of such objects that were made at once, by the number of the first.
    pub(crate) meter_runs: HashMap<u32, u32>,
    /// Flow samplers, by the number of their object.
    pub samplers: Table<Sampler>,
    /// What draws the frames that are sampled.
    chance: Random,
    /// UDP ports at which frames are looked into as VXLAN's.
    pub vxlan_ports: VxlanPorts,
    /// How many entries use each.
    uses: HashMap<Use, usize>,
    /// Entries of all tables.
    entries: usize,
    /// Number of the next group: unique within a function.
    next_group: u32,
}

/// What flow tables know of a frame that enters them, beside its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entering {
    /// The send queue that sends it; 0 where it is received.
    pub sqn: u32,
    /// `flow_table_metadata` of the work request that sends it; 0 where it is received.
    pub metadata: u32,
    /// When it enters.
    pub now: Instant,
}

/// A frame at its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// `tirn`; `None` for the wire.
    pub tirn: Option<u32>,
    /// `flow_tag`.
    pub tag: u32,
    /// The frame, if entries changed it.
    pub changed: Option<Vec<u8>>,
}

/// A frame on its way through the tables.
#[derive(Debug, Clone)]
struct Traveller<'a> {
    frame: Cow<'a, [u8]>,
    key: key::Key,
    registers: Registers,
    beside: Beside,
}

impl<'a> Traveller<'a> {
    fn new(frame: Cow<'a, [u8]>, registers: Registers, beside: Beside) -> Self {
        let key = key::of(&frame, &registers, &beside);
        Traveller { frame, key, registers, beside }
    }

    fn delivery(self, tirn: Option<u32>, tag: u32) -> Delivery {
        let changed = match self.frame {
            Cow::Owned(frame) => Some(frame),
            Cow::Borrowed(_) => None,
        };
        Delivery { tirn, tag, changed }
    }
}

impl Steering {
    /// No tables.
    pub fn new(profile: &Profile) -> Self {
        let caps = &profile.flow_table;
        let (receive, transmit) = (caps.flow_table_properties_nic_receive(), caps.flow_table_properties_nic_transmit());
        let most = 1 << receive.log_max_ft_num().max(transmit.log_max_ft_num());
        let modify = 1 << receive.log_max_modify_header_context().max(transmit.log_max_modify_header_context());
        let [receive_samplers, transmit_samplers] = [receive, transmit].map(most_samplers);
        let general = &profile.general_max;
        let counters = u32::from(general.max_flow_counter_31_16()) << 16 | u32::from(general.max_flow_counter_15_0());
        Steering {
            tables: Table::new(1, most),
            receive_root: None,
            transmit_root: None,
            counters: Table::new(1, counters),
            bulks: HashMap::new(),
            modify_headers: Table::new(1, modify),
            reformats: Table::new(1, 1 << caps.log_max_packet_reformat_context()),
            geneve_options: Table::new(FIRST_OPTION, general.max_geneve_tlv_options().into()),
            meters: Table::new(1, 1 << profile.qos.log_max_num_meter_aso()),
            meter_runs: HashMap::new(),
            samplers: Table::new(1, receive_samplers.max(transmit_samplers)),
            chance: Random::new(SAMPLES),
            vxlan_ports: VxlanPorts::default(),
            uses: HashMap::new(),
            entries: 0,
            next_group: 1,
        }
    }

    /// Seeds what draws the frames that are sampled.
    pub(crate) fn seed(&mut self, seed: u64) {
        self.chance = Random::new(seed ^ SAMPLES);
    }

    /// Draws on where `before` stopped, whose place it takes: chance begins nothing anew.
    pub(crate) fn succeed(&mut self, before: &mut Steering) {
        self.chance = std::mem::take(&mut before.chance);
    }

    /// The root table of a type.
    pub(crate) fn root_mut(&mut self, table_type: FlowTableType) -> &mut Option<u32> {
        if table_type == FlowTableType::NicTx { &mut self.transmit_root } else { &mut self.receive_root }
    }

    /// A number for a new group.
    pub(crate) fn group_number(&mut self) -> u32 {
        let number = self.next_group;
        self.next_group = self.next_group.wrapping_add(1).max(1);
        number
    }

    /// The destinations of a frame that enters at `root`. Updates the flow counters of matching entries. `None` if it
    /// has more than [`MOST_DESTINATIONS`] on its way.
    pub(crate) fn steer(&mut self, root: u32, frame: &[u8], entering: Entering) -> Option<Vec<Delivery>> {
        let (mut deliveries, mut scratch) = (Vec::new(), Vec::new());
        let beside = Beside { ports: self.vxlan_ports, option: self.first_option(), sqn: entering.sqn };
        let registers = Registers { a: entering.metadata, ..Registers::default() };
        let start = Traveller::new(Cow::Borrowed(frame), registers, beside);
        let (mut pending, mut passed) = (vec![(root, start)], 0);
        while let Some((number, traveller)) = pending.pop() {
            let Some(table) = self.tables.get(number) else { continue };
            let Some(entry) = table.find(&traveller.key, &mut scratch) else {
                match table.miss {
                    Miss::Table(next) => pending.push((next, traveller)),
                    Miss::Default if table.table_type == FlowTableType::NicTx => {
                        deliveries.push(traveller.delivery(None, 0));
                    }
                    Miss::Default => {}
                }
                continue;
            };
            for number in &entry.counters {
                if let Some(counter) = self.counters.get_mut(*number) {
                    counter.packets += 1;
                    counter.bytes += traveller.frame.len() as u64;
                }
            }
            passed += entry.destinations.len();
            if passed > MOST_DESTINATIONS {
                return None;
            }
            let traveller = match &entry.metering {
                Some(metering) => metered(traveller, metering, &mut self.meters, entering.now),
                None => traveller,
            };
            let changed = changed(traveller, &entry.changes, &self.modify_headers, &self.reformats);
            let Some(traveller) = changed else { continue };
            for destination in &entry.destinations {
                match *destination {
                    Destination::Table(next) => pending.push((next, traveller.clone())),
                    Destination::Sampler(number) => {
                        let Some(sampler) = self.samplers.get(number) else { continue };
                        let before = pending.len();
                        let tables = sampler.tables(&mut self.chance);
                        pending.extend(tables.map(|next| (next, traveller.clone())));
                        // The entry's own destination is one of them.
                        passed += pending.len() - before - 1;
                    }
                    Destination::Tir(tirn) => deliveries.push(traveller.clone().delivery(Some(tirn), entry.tag)),
                    Destination::Wire => deliveries.push(traveller.clone().delivery(None, entry.tag)),
                }
            }
        }
        Some(deliveries)
    }

    /// The option that entries match.
    fn first_option(&self) -> Option<GeneveOption> {
        self.geneve_options.iter().next().filter(|(number, _)| *number == FIRST_OPTION).map(|(_, option)| *option)
    }

    /// `geneve_option_fte_index` of an object: which field of match parameters has the option's data.
    pub(crate) fn field_of_option(number: u32) -> u8 {
        (number - FIRST_OPTION) as u8
    }

    /// Sets an entry of a table; replaces an existing one.
    pub(crate) fn set_entry(&mut self, table: u32, index: u32, entry: FlowEntry) {
        let Some(table) = self.tables.get_mut(table) else { return };
        for used in entry.uses() {
            *self.uses.entry(used).or_default() += 1;
        }
        match table.set_entry(index, entry) {
            Some(old) => self.release(&old),
            None => self.entries += 1,
        }
    }

    /// Removes an entry of a table. Returns false if there is none.
    pub(crate) fn remove_entry(&mut self, table: u32, index: u32) -> bool {
        let removed = self.tables.get_mut(table).and_then(|table| table.remove_entry(index));
        if let Some(entry) = &removed {
            self.release(entry);
            self.entries -= 1;
        }
        removed.is_some()
    }

    /// `entry` uses no more what it did.
    fn release(&mut self, entry: &FlowEntry) {
        for used in entry.uses() {
            if let Some(count) = self.uses.get_mut(&used) {
                *count -= 1;
                if *count == 0 {
                    self.uses.remove(&used);
                }
            }
        }
    }

    /// Whether any entry, sampler, or miss action of any table uses it.
    pub(crate) fn is_used(&self, used: Use) -> bool {
        let is_missed_to = |number| self.tables.iter().any(|(_, table)| table.miss == Miss::Table(number));
        let is_sampled_to =
            |number| self.samplers.iter().any(|(_, one)| [one.sample_table, one.default_table].contains(&number));
        self.uses.contains_key(&used)
            || matches!(used, Use::Table(number) if is_missed_to(number) || is_sampled_to(number))
    }

    /// Number of entries in all tables.
    pub(crate) fn entry_count(&self) -> usize {
        self.entries
    }

    /// Number of objects: tables, groups, counters, meters, samplers, modify header and packet reformat contexts,
    /// options of GENEVE.
    pub(crate) fn count(&self) -> usize {
        let groups: usize = self.tables.iter().map(|(_, table)| table.groups.len()).sum();
        let contexts = self.modify_headers.len() + self.reformats.len() + self.geneve_options.len();
        self.tables.len() + groups + self.bulks.len() + self.meter_runs.len() + self.samplers.len() + contexts
    }
}

/// How many samplers there can be for tables of a type.
pub(crate) fn most_samplers(tables: &FlowTablePropLayout) -> u32 {
    match tables.log_max_ft_sampler_num() {
        0 => 0,
        log => 1 << log,
    }
}

/// The frame with the colour that a meter gives it in a register.
fn metered<'a>(
    traveller: Traveller<'a>,
    metering: &Metering,
    meters: &mut Table<MeterPair>,
    now: Instant,
) -> Traveller<'a> {
    const COLOR: u32 = 0xff;
    let Some(pair) = meters.get_mut(metering.object) else { return traveller };
    let color = pair.color(metering, &traveller.frame, now).number();
    let Traveller { frame, mut registers, beside, .. } = traveller;
    let register = &mut registers.c[metering.register];
    *register = *register & !COLOR | color;
    Traveller::new(frame, registers, beside)
}

/// The frame as an entry changes it. `None` if it has no tunnel to be taken out of, or nothing to be put into one: it
/// is dropped.
fn changed<'a>(
    traveller: Traveller<'a>,
    changes: &Changes,
    modify_headers: &Table<ModifyHeader>,
    reformats: &Table<Reformat>,
) -> Option<Traveller<'a>> {
    if *changes == Changes::default() {
        return Some(traveller);
    }
    let Traveller { frame, mut registers, beside, .. } = traveller;
    let ports = &beside.ports;
    let mut frame = frame.into_owned();
    let reformat = changes.reformat.and_then(|number| reformats.get(number));
    let (leaves, enters) = match reformat {
        Some(reformat) if reformat.kind == ReformatKind::Leave => (Some(reformat), None),
        other => (None, other),
    };
    if changes.decapsulates && !reformat::decapsulate(&mut frame, ports)
        || leaves.is_some_and(|reformat| !reformat.leave(&mut frame, ports))
    {
        return None;
    }
    if changes.pops_vlan {
        ethernet::pop_tag(&mut frame);
    }
    if let Some(modify) = changes.modify_header.and_then(|number| modify_headers.get(number)) {
        modify.apply(&mut frame, &mut registers);
    }
    if let Some((ether_type, tci)) = changes.push_vlan {
        ethernet::insert_tag(&mut frame, ether_type, tci);
    }
    if enters.is_some_and(|reformat| !reformat.encapsulate(&mut frame)) {
        return None;
    }
    Some(Traveller::new(Cow::Owned(frame), registers, beside))
}
