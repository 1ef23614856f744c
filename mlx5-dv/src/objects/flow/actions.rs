//! What flow rules do with frames.

use std::sync::Arc;

use mlx5_prm::flow::{DestFormatStruct, ExecuteAso, FlowContext, FlowCounterList, FlowDestinationType, Vlan};
use mlx5_prm::layout::{Be64, Layout};

use super::counter::FlowCounter;
use super::meter::FlowMeter;
use super::modify::ModifyHeader;
use super::reformat::{PacketReformat, Tunnel};
use super::sampler::FlowSampler;
use super::table::{Direction, FlowTable, check_several_paths};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::objects::check::{fits, in_range};
use crate::objects::tir::Tir;

/// `flow_context.action`.
const ALLOW: u16 = 0x1;
const DROP: u16 = 0x2;
const FWD_DEST: u16 = 0x4;
const COUNT: u16 = 0x8;
const PACKET_REFORMAT: u16 = 0x10;
const DECAP: u16 = 0x20;
const MOD_HDR: u16 = 0x40;
const VLAN_POP: u16 = 0x80;
const VLAN_PUSH: u16 = 0x100;
const EXECUTE_ASO: u16 = 0x4000;

/// Where a frame goes.
#[derive(Debug, Clone)]
pub enum FlowDestination {
    /// A receive queue, or several by a hash.
    Tir(Arc<Tir>),
    /// A flow table of a higher level.
    Table(Arc<FlowTable>),
    /// The tables of a sampler, which are two levels higher or more.
    Sampler(Arc<FlowSampler>),
}

/// What becomes of a frame.
#[derive(Debug, Clone)]
pub(super) enum Fate {
    Drop,
    Send,
    Kernel,
    Forward(Vec<FlowDestination>),
}

/// A VLAN tag to add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag {
    /// 0x8100 for a C-VLAN tag, 0x88a8 for an S-VLAN tag.
    pub ethertype: u16,
    /// Priority, 3 bits.
    pub priority: u8,
    /// VLAN, 12 bits.
    pub vlan: u16,
}

impl VlanTag {
    /// A C-VLAN tag (802.1Q) of priority 0.
    pub fn new(vlan: u16) -> Self {
        VlanTag { ethertype: 0x8100, priority: 0, vlan }
    }

    /// The tag control information; `None` if a part of it is too wide.
    pub(crate) fn tci(self) -> Option<u16> {
        (self.priority < 8 && self.vlan < 1 << 12).then_some(u16::from(self.priority) << 13 | self.vlan)
    }
}

/// What a flow rule does with a frame. One of [`forward`](Self::forward), [`table`](Self::table),
/// [`sample`](Self::sample), [`drop`](Self::drop), [`send`](Self::send) and [`kernel`](Self::kernel) says what becomes
/// of it; the other calls add what is done before.
///
/// The card does it in this order, whatever that of the calls: count, meter, take out of a tunnel, remove a VLAN tag,
/// change headers, add a VLAN tag, put into a tunnel.
///
/// ```no_run
/// # use mlx5_dv::objects::{FlowActions, FlowCounter, Tir};
/// # fn f(device: &std::sync::Arc<mlx5_dv::Device>, tir: &std::sync::Arc<Tir>) -> Result<(), mlx5_dv::Error> {
/// let counter = FlowCounter::create(device)?;
/// let untagged = FlowActions::forward(tir).pop_vlan().tag(7).count(&counter);
/// let away = FlowActions::drop().count(&counter);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FlowActions {
    pub(super) fate: Fate,
    pub(super) counters: Vec<FlowCounter>,
    tag: Option<u32>,
    /// With the number of the register that gets the colour.
    meter: Option<(FlowMeter, u8)>,
    decap: bool,
    decap_l3: Option<Arc<PacketReformat>>,
    pop_vlan: bool,
    modify: Option<Arc<ModifyHeader>>,
    push_vlan: Option<VlanTag>,
    encap: Option<Arc<PacketReformat>>,
}

impl From<&Arc<Tir>> for FlowActions {
    fn from(tir: &Arc<Tir>) -> Self {
        FlowActions::forward(tir)
    }
}

impl From<&Arc<FlowTable>> for FlowActions {
    fn from(table: &Arc<FlowTable>) -> Self {
        FlowActions::table(table)
    }
}

impl From<&FlowActions> for FlowActions {
    fn from(actions: &FlowActions) -> Self {
        actions.clone()
    }
}

impl FlowActions {
    fn of(fate: Fate) -> Self {
        FlowActions {
            fate,
            counters: Vec::new(),
            tag: None,
            meter: None,
            decap: false,
            decap_l3: None,
            pop_vlan: false,
            modify: None,
            push_vlan: None,
            encap: None,
        }
    }

    /// The frame is received by `tir`.
    pub fn forward(tir: &Arc<Tir>) -> Self {
        Self::of(Fate::Forward(vec![FlowDestination::Tir(Arc::clone(tir))]))
    }

    /// The frame goes on in `table`, which has a higher level than the rule's.
    pub fn table(table: &Arc<FlowTable>) -> Self {
        Self::of(Fate::Forward(vec![FlowDestination::Table(Arc::clone(table))]))
    }

    /// The frame goes on in the sampler's default table, and, if it is sampled, a copy of it in the sample table: as it
    /// is after what else the rule does.
    pub fn sample(sampler: &Arc<FlowSampler>) -> Self {
        Self::of(Fate::Forward(vec![FlowDestination::Sampler(Arc::clone(sampler))]))
    }

    /// The frame goes to each of `destinations`, which are different ones.
    pub fn several(destinations: impl IntoIterator<Item = FlowDestination>) -> Self {
        Self::of(Fate::Forward(destinations.into_iter().collect()))
    }

    /// The frame is dropped.
    pub fn drop() -> Self {
        Self::of(Fate::Drop)
    }

    /// The frame is sent: for rules of tables of [`Direction::Transmit`].
    pub fn send() -> Self {
        Self::of(Fate::Send)
    }

    /// The frame goes on to the kernel, as without the rule: for rules of a
    /// [`FlowMatcher`](super::matcher::FlowMatcher) of received frames.
    pub fn kernel() -> Self {
        Self::of(Fate::Kernel)
    }

    /// Counts the frame.
    pub fn count(mut self, counter: &FlowCounter) -> Self {
        self.counters.push(counter.clone());
        self
    }

    /// Flow tag of the frame's completion, 24 bits: for rules that forward frames that are received. Without it: the
    /// number of the TIR's receive queue, or of the TIR where it spreads frames.
    pub fn tag(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    /// The frame goes through `meter`, and has its colour in metadata register c of number 0 to 7 in the tables after
    /// this one, whose rules find it by [`FlowMatch::color`](super::matching::FlowMatch::color): for rules that forward
    /// to a table or sample.
    pub fn meter(mut self, meter: &FlowMeter, register: u8) -> Self {
        self.meter = Some((meter.clone(), register));
        self
    }

    /// Takes the frame out of its tunnel, VXLAN, GENEVE or GRE of frames (NVGRE): all headers before the inner frame
    /// are removed. Frames that are in no such tunnel are dropped, so have the rule match the tunnel.
    pub fn decap(mut self) -> Self {
        self.decap = true;
        self
    }

    /// Takes the packet out of its tunnel of packets, such as GRE and IP in IP, and puts an Ethernet header before it:
    /// for a [`PacketReformat::l3_tunnel_to_l2`]. Frames that are in no tunnel are dropped, so have the rule match the
    /// tunnel.
    pub fn decap_l3(mut self, header: &Arc<PacketReformat>) -> Self {
        self.decap_l3 = Some(Arc::clone(header));
        self
    }

    /// Removes the outer VLAN tag.
    pub fn pop_vlan(mut self) -> Self {
        self.pop_vlan = true;
        self
    }

    /// Changes header fields.
    pub fn modify(mut self, modify: &Arc<ModifyHeader>) -> Self {
        self.modify = Some(Arc::clone(modify));
        self
    }

    /// Adds a VLAN tag before those that there are.
    pub fn push_vlan(mut self, tag: VlanTag) -> Self {
        self.push_vlan = Some(tag);
        self
    }

    /// Puts the frame, or the packet in it, into a tunnel.
    pub fn encap(mut self, tunnel: &Arc<PacketReformat>) -> Self {
        self.encap = Some(Arc::clone(tunnel));
        self
    }

    /// Where frames go; none if they are dropped, sent, or the kernel's.
    pub fn destinations(&self) -> &[FlowDestination] {
        match &self.fate {
            Fate::Forward(destinations) => destinations,
            _ => &[],
        }
    }

    /// `flow_tag`.
    pub(super) fn flow_tag(&self) -> u32 {
        let own = self.destinations().iter().find_map(|destination| match destination {
            // Of a TIR that spreads frames: its own number, as there is no one queue.
            FlowDestination::Tir(tir) => Some(tir.rq().map_or(tir.tirn(), |rq| rq.rqn())),
            FlowDestination::Table(_) | FlowDestination::Sampler(_) => None,
        });
        self.tag.or(own).unwrap_or(0)
    }

    /// Prepares the receive queues for flow tags other than their numbers.
    pub(super) fn announce_tag(&self) {
        for destination in self.destinations() {
            if let FlowDestination::Tir(tir) = destination
                && let Some(rq) = tir.rq().filter(|rq| rq.rqn() != self.flow_tag())
            {
                rq.mark_tagged();
            }
        }
    }

    /// Error unless all that it names is of `device`, and its numbers fit.
    pub(super) fn check(&self, device: &Arc<Device>) -> Result<(), Error> {
        let destinations = self.destinations().iter().map(|destination| match destination {
            FlowDestination::Tir(tir) => tir.device(),
            FlowDestination::Table(table) => table.device(),
            FlowDestination::Sampler(sampler) => sampler.device(),
        });
        let counters = self.counters.iter().map(|counter| counter.counters().device());
        let modify = self.modify.iter().map(|modify| modify.device());
        let reformats = self.decap_l3.iter().chain(&self.encap).map(|reformat| reformat.device());
        let meter = self.meter.iter().map(|(meter, _)| meter.device());
        let mut all = destinations.chain(counters).chain(modify).chain(reformats).chain(meter);
        if all.any(|other| !Arc::ptr_eq(device, other)) {
            return Err(Invalid::ForeignDevice { what: "a flow rule and what it names" }.into());
        }
        self.check_effects()?;
        fits("flow tag", self.flow_tag(), 24)?;
        if let Some((_, register)) = self.meter {
            in_range("metadata register", register.into(), 0..=7, "metadata_reg_c_7")?;
        }
        if let Some(tag) = self.push_vlan {
            fits("VLAN", tag.vlan.into(), 12)?;
            fits("VLAN priority", tag.priority.into(), 3)?;
        }
        if matches!(&self.fate, Fate::Forward(destinations) if destinations.is_empty()) {
            return Err(Invalid::Empty { what: "a flow rule that forwards", lacks: "destinations" }.into());
        }
        Ok(())
    }

    /// Error for an action that is for nothing, as frames are dropped, or nobody gets their completion.
    fn check_effects(&self) -> Result<(), Invalid> {
        let beside = match &self.fate {
            Fate::Drop => "drops frames",
            Fate::Send => "sends frames",
            Fate::Kernel => "leaves frames to the kernel",
            Fate::Forward(destinations) => {
                let is_tir = |one: &FlowDestination| matches!(one, FlowDestination::Tir(_));
                return match self.meter.is_some() && destinations.iter().all(is_tir) {
                    true => Err(Invalid::NoEffect { action: METERING, beside: "forwards to no table" }),
                    false => Ok(()),
                };
            }
        };
        let is_dropped = matches!(self.fate, Fate::Drop);
        let idle = [
            (self.tag.is_some(), "a flow tag"),
            (self.meter.is_some(), METERING),
            (is_dropped && self.encap.is_some(), "putting into a tunnel"),
            (is_dropped && (self.decap || self.decap_l3.is_some()), "taking out of a tunnel"),
            (is_dropped && self.modify.is_some(), "changing headers"),
            (is_dropped && self.pop_vlan, "removing a VLAN tag"),
            (is_dropped && self.push_vlan.is_some(), "adding a VLAN tag"),
        ];
        let first = idle.into_iter().find(|(is_idle, _)| *is_idle);
        first.map_or(Ok(()), |(_, action)| Err(Invalid::NoEffect { action, beside }))
    }

    /// Error for a flow tag of frames of `direction` that have no completion to bear it.
    pub(super) fn check_tag(&self, direction: Direction) -> Result<(), Invalid> {
        match direction == Direction::Transmit && self.tag.is_some() {
            true => Err(Invalid::NoEffect { action: "a flow tag", beside: "is for frames that are sent" }),
            false => Ok(()),
        }
    }

    /// Error unless a rule of `table` can do it.
    pub(super) fn check_for(&self, table: &FlowTable) -> Result<(), Error> {
        let direction = table.direction();
        let wrong = |what: &str, requires| Err(Invalid::Requires { what: what.into(), requires }.into());
        match &self.fate {
            Fate::Kernel => {
                if !table.device().is_owned() {
                    return wrong("leaving a frame to the kernel", "a rule of a flow matcher");
                }
                let (device, mend) = (table.device().name().into(), "drop the frame or forward it");
                return Err(Invalid::WrongAccess { what: "a rule's way back", device, kernel: false, mend }.into());
            }
            Fate::Send if direction == Direction::Receive => return wrong("sending a frame", SENDS),
            Fate::Forward(destinations) => {
                let is_tir = |destination: &FlowDestination| matches!(destination, FlowDestination::Tir(_));
                if destinations.len() > 1 && destinations.iter().any(is_tir) {
                    check_several_paths(table.device(), !destinations.iter().all(is_tir))?;
                }
                for destination in destinations {
                    match destination {
                        FlowDestination::Tir(_) if direction == Direction::Transmit => {
                            return wrong("forwarding to a TIR", "a table of received frames");
                        }
                        FlowDestination::Table(next) if next.direction() != direction => {
                            return wrong("forwarding to a table", "tables of one direction");
                        }
                        FlowDestination::Table(next) if next.card_level() <= table.card_level() => {
                            let (given, limit) = (next.level().into(), u64::from(table.level()) + 1..=255);
                            return Err(Invalid::out_of_range("level", given, limit, "a rule's next table").into());
                        }
                        FlowDestination::Sampler(sampler) if sampler.direction() != direction => {
                            return wrong("sampling frames", "a sampler between tables of the rule's direction");
                        }
                        FlowDestination::Sampler(sampler) if sampler.card_level() <= table.card_level() => {
                            let (given, limit) = (sampler.table_level().into(), u64::from(table.level()) + 2..=255);
                            return Err(Invalid::out_of_range("level", given, limit, "a table after a sampler").into());
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        self.check_tag(direction)?;
        if self.modify.as_ref().is_some_and(|modify| modify.direction() != direction) {
            return wrong("changing headers", "a ModifyHeader of the table's direction");
        }
        let caps = table.properties();
        self.check_tunnels(table)?;
        in_range(
            "destinations",
            self.destinations().len() as u64,
            0..=1 << caps.log_max_destination().min(31),
            "log_max_destination",
        )?;
        in_range(
            "counters",
            self.counters.len() as u64,
            0..=1 << caps.log_max_flow_counter().min(31),
            "log_max_flow_counter",
        )?;
        self.check_distinct()?;
        let lacks = |wanted: bool, has: bool, what: &str, capability| match wanted && !has {
            true => Err(Error::Unsupported { what: format!("flow rules that {what}"), capability }),
            false => Ok(()),
        };
        lacks(!self.counters.is_empty(), caps.flow_counter(), "count", "flow_counter")?;
        lacks(self.meter.is_some(), caps.execute_aso(), "meter frames", "execute_aso")?;
        lacks(self.pop_vlan, caps.pop_vlan(), "remove a VLAN tag", "pop_vlan")?;
        lacks(self.push_vlan.is_some(), caps.push_vlan(), "add a VLAN tag", "push_vlan")
    }

    /// Error for a destination that is named twice. The PRM does not say how often a frame then goes there; Linux keeps
    /// one of each in an entry (mlx5_core, fs_core.c).
    fn check_distinct(&self) -> Result<(), Invalid> {
        let all = self.destinations();
        let is_named = |before: &[FlowDestination], one| before.iter().any(|other| destination(other) == one);
        let again = all.iter().enumerate().find(|(at, one)| is_named(&all[..*at], destination(one)));
        again.map_or(Ok(()), |(_, again)| {
            let what = match again {
                FlowDestination::Tir(tir) => format!("TIR {:#x}", tir.tirn()),
                FlowDestination::Table(table) => format!("flow table {:#x}", table.table_id()),
                FlowDestination::Sampler(sampler) => format!("flow sampler {:#x}", sampler.obj_id()),
            };
            Err(Invalid::NamedTwice { what })
        })
    }

    pub(super) fn has_tunnel(&self) -> bool {
        self.decap || self.decap_l3.is_some() || self.encap.is_some()
    }

    /// Error unless a rule of `table` can take frames out of tunnels and put them into some as it says.
    fn check_tunnels(&self, table: &FlowTable) -> Result<(), Error> {
        let wrong = |what: &str, requires| Err(Invalid::Requires { what: what.into(), requires }.into());
        let (decap_l3, encap) = (self.decap_l3.as_ref(), self.encap.as_ref());
        if self.has_tunnel() {
            if !table.has_tunnels() {
                return wrong("a tunnel", "FlowTableOptions::tunnels of the rule's table");
            }
            if decap_l3.is_some_and(|reformat| reformat.tunnel_use() != Tunnel::Left) {
                return wrong("FlowActions::decap_l3", "a PacketReformat::l3_tunnel_to_l2");
            }
            if encap.is_some_and(|reformat| reformat.tunnel_use() == Tunnel::Left) {
                return wrong("FlowActions::encap", "a PacketReformat that puts into a tunnel");
            }
            // An entry has one reformat.
            if decap_l3.is_some() && (self.decap || encap.is_some()) {
                return wrong("FlowActions::decap_l3 beside another tunnel", "a rule of its own, in a table before");
            }
        }
        if self.decap && !table.properties().decap() {
            let what = "flow rules that take frames out of tunnels".into();
            return Err(Error::Unsupported { what, capability: "decap" });
        }
        for reformat in decap_l3.into_iter().chain(encap) {
            reformat.tunnel_use().check(&[table.properties()])?;
        }
        Ok(())
    }

    /// Writes it into an entry's context; the list that follows that.
    pub(super) fn write(&self, context: &mut FlowContext) -> Vec<Be64> {
        let mut action = match &self.fate {
            Fate::Drop => DROP,
            Fate::Send | Fate::Kernel => ALLOW,
            Fate::Forward(_) => FWD_DEST,
        };
        let reformat = self.decap_l3.as_ref().or(self.encap.as_ref());
        for (is_done, bit) in [
            (!self.counters.is_empty(), COUNT),
            (self.decap, DECAP),
            (self.pop_vlan, VLAN_POP),
            (self.modify.is_some(), MOD_HDR),
            (self.push_vlan.is_some(), VLAN_PUSH),
            (reformat.is_some(), PACKET_REFORMAT),
            (self.meter.is_some(), EXECUTE_ASO),
        ] {
            action |= if is_done { bit } else { 0 };
        }
        context
            .w()
            .flow_tag(self.flow_tag())
            .action(action)
            .destination_list_size(self.destinations().len() as u32)
            .flow_counter_list_size(self.counters.len() as u32)
            .modify_header_id(self.modify.as_ref().map_or(0, |modify| modify.modify_header_id()))
            .packet_reformat_id(reformat.map_or(0, |reformat| reformat.packet_reformat_id()));
        if let Some((meter, register)) = &self.meter {
            let mut all = [ExecuteAso::ZERO; 4];
            all[0] = meter.execution(*register);
            context.w().execute_aso(&all);
        }
        if let Some(VlanTag { ethertype, priority, vlan }) = self.push_vlan {
            let mut tag = Vlan::default();
            tag.w().ethtype(ethertype).prio(priority).vid(vlan);
            context.w().push_vlan(&tag);
        }
        self.destinations().iter().map(destination).chain(self.counters.iter().map(counter)).collect()
    }

    /// Whether it changes frames, which the kernel's rules cannot.
    pub(super) fn changes_frames(&self) -> bool {
        self.has_tunnel() || self.meter.is_some() || self.pop_vlan || self.modify.is_some() || self.push_vlan.is_some()
    }
}

const SENDS: &str = "a table of frames that are sent";
const METERING: &str = "a flow meter";

fn destination(destination: &FlowDestination) -> Be64 {
    let mut to = DestFormatStruct::default();
    match destination {
        FlowDestination::Tir(tir) => _ = to.w().destination_type(FlowDestinationType::Tir).destination_id(tir.tirn()),
        FlowDestination::Table(table) => {
            to.w().destination_type(FlowDestinationType::FlowTable).destination_id(table.table_id());
        }
        FlowDestination::Sampler(sampler) => {
            to.w().destination_type(FlowDestinationType::FlowSampler).destination_id(sampler.obj_id());
        }
    }
    eight_bytes(to.as_bytes())
}

fn counter(counter: &FlowCounter) -> Be64 {
    let mut item = FlowCounterList::default();
    item.w().flow_counter_id(counter.flow_counter_id());
    eight_bytes(item.as_bytes())
}

fn eight_bytes(bytes: &[u8]) -> Be64 {
    Be64::new(u64::from_be_bytes(bytes.first_chunk().copied().unwrap_or_default()))
}
