//! Steering of received frames: flow tables, their groups, and rules.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mlx5_prm::caps::{FlowTableNicCap, FlowTablePropLayout};
use mlx5_prm::cmd::{
    CreateFlowGroupIn, CreateFlowTableIn, DeleteFteIn, DestroyFlowGroupIn, DestroyFlowTableIn, SetFlowTableRootIn,
    SetFteIn, WithTail,
};
use mlx5_prm::flow::{
    DestFormatStruct, FlowContext, FlowDestinationType, FlowTableContext, FlowTableType, FteMatchParam,
    FteMatchSetLyr24,
};
use mlx5_prm::layout::{Be64, Layout};

use super::flow_matcher::{FlowMatcher, steering};
use super::{DestroyError, Object, Tir, destroy_sole, fits, within};
use crate::access::{Flow, ObjectHandle};
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{CommandError, Error};
use crate::lock::lock;
use crate::net::Mac;

/// `match_criteria_enable`: the outer headers.
const OUTER_HEADERS: u8 = 1;
/// `flow_context.action`: to the destinations.
const FWD_DEST: u16 = 4;

/// A flow table of the frames that the function receives: groups of rules. PRM "Flow Table", type `NIC_RX`.
///
/// Once [`set_root`](Self::set_root) it is where every frame begins; one that no rule matches is dropped. RoCE packets reach
/// their queue pairs without it. A function has one root at a time.
#[derive(Debug)]
pub struct FlowTable {
    table_id: u32,
    log_size: u32,
    is_root: AtomicBool,
    object: Object,
}

fn properties(device: &Device) -> Result<FlowTablePropLayout, Error> {
    let unsupported = |capability| Error::Unsupported { what: "steering of received frames".into(), capability };
    let caps: FlowTableNicCap = device.caps().current(CapPage::FlowTable).ok_or(unsupported("nic_flow_table"))?;
    let properties = *caps.flow_table_properties_nic_receive();
    if properties.ft_support() { Ok(properties) } else { Err(unsupported("ft_support of NIC receive")) }
}

impl FlowTable {
    /// A new table of `level` with room for `entries` rules.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the kernel keeps the function, and the tables: see [`FlowMatcher`]; [`Error::Unsupported`],
    /// [`Error::Invalid`] beyond `max_ft_level` or `log_max_ft_size`, [`Error::Command`].
    pub fn create(device: &Arc<Device>, level: u8, entries: u32) -> Result<Arc<Self>, Error> {
        if !device.is_owned() {
            return Err(Error::Invalid(format!(
                "the flow tables of {} are the kernel's: make a flow matcher, and rules of it, instead",
                device.name()
            )));
        }
        let caps = properties(device)?;
        if level > caps.max_ft_level() {
            let most = caps.max_ft_level();
            return Err(Error::Invalid(format!("level is {level}, and this card has at most {most} (max_ft_level)")));
        }
        let size = u64::from(entries.max(1)).next_power_of_two();
        within("entries", size, "log_max_ft_size", caps.log_max_ft_size())?;
        let log_size = size.trailing_zeros();
        let (mut create, mut context) = (CreateFlowTableIn::default(), FlowTableContext::default());
        context.w().level(level).log_size(log_size as u8);
        create.w().table_type(FlowTableType::NicRx).flow_table_context(&context);
        let (object, out) = Object::create(device, &create, "a flow table", |out| {
            let mut end = DestroyFlowTableIn::default();
            end.w().table_type(FlowTableType::NicRx).table_id(out.table_id());
            (end, format!("flow table {:#x}", out.table_id()))
        })?;
        Ok(Arc::new(FlowTable { table_id: out.table_id(), log_size, is_root: AtomicBool::new(false), object }))
    }

    /// Makes it the table where every received frame begins, until it is destroyed.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the function has a root already, [`Error::Command`].
    pub fn set_root(&self) -> Result<(), Error> {
        let mut root = self.device().root_flow_table();
        if let Some(taken) = *root {
            return Err(Error::Invalid(format!(
                "frames that the function receives go to flow table {taken:#x} already: destroy that first, or add rules to it"
            )));
        }
        let mut set = SetFlowTableRootIn::default();
        set.w().table_type(FlowTableType::NicRx).table_id(self.table_id);
        self.device().execute(&set, &self.object.name())?;
        *root = Some(self.table_id);
        self.is_root.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// `table_id`, 24 bits.
    pub fn table_id(&self) -> u32 {
        self.table_id
    }

    /// Rules that it has room for.
    pub fn capacity(&self) -> u32 {
        1 << self.log_size
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    fn end(&mut self) -> Result<(), CommandError> {
        self.object.destroy()?;
        // Once: afterwards the root may be another's.
        if std::mem::take(self.is_root.get_mut()) {
            *self.object.device().root_flow_table() = None;
        }
        Ok(())
    }

    /// Destroys it. Its groups must be gone. Errors: the table, kept alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, FlowTable::end)
    }
}

impl Drop for FlowTable {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a flow table was not destroyed; it stays with the card until that is reset");
        }
    }
}

/// Rules of a table that look at the same bits of a frame. PRM "Flow Group".
#[derive(Debug)]
pub struct FlowGroup {
    group_id: u32,
    indices: Range<u32>,
    /// Which of them rules have.
    taken: Mutex<BTreeSet<u32>>,
    criteria: FteMatchSetLyr24,
    object: Object,
    table: Arc<FlowTable>,
}

impl FlowGroup {
    /// A new group: entries `indices` of `table`, whose rules look at the bits of the outer headers that `criteria` has set.
    ///
    /// # Errors
    /// [`Error::Invalid`] for indices outside of the table, [`Error::Command`], whose reason names fields that the card cannot
    /// match.
    pub fn create(
        table: &Arc<FlowTable>,
        indices: Range<u32>,
        criteria: &FteMatchSetLyr24,
    ) -> Result<Arc<Self>, Error> {
        if indices.is_empty() || indices.end > table.capacity() {
            let room = table.capacity();
            return Err(Error::Invalid(format!("indices {indices:?} of a flow table with room for {room} rules")));
        }
        let (mut create, mut all) = (CreateFlowGroupIn::default(), FteMatchParam::default());
        all.w().outer_headers(criteria);
        create
            .w()
            .table_type(FlowTableType::NicRx)
            .table_id(table.table_id)
            .start_flow_index(indices.start)
            .end_flow_index(indices.end - 1)
            .match_criteria_enable(enabled(criteria))
            .match_criteria(&all);
        let (object, out) = Object::create(table.device(), &create, "a flow group", |out| {
            let mut end = DestroyFlowGroupIn::default();
            end.w().table_type(FlowTableType::NicRx).table_id(table.table_id).group_id(out.group_id());
            (end, format!("flow group {:#x}", out.group_id()))
        })?;
        Ok(Arc::new(FlowGroup {
            group_id: out.group_id(),
            indices,
            taken: Mutex::default(),
            criteria: *criteria,
            object,
            table: Arc::clone(table),
        }))
    }

    /// `group_id`.
    pub fn group_id(&self) -> u32 {
        self.group_id
    }

    /// Its table.
    pub fn table(&self) -> &Arc<FlowTable> {
        &self.table
    }

    /// Destroys it. Its rules must be gone. Errors: the group, kept alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |group| group.object.destroy())
    }

    /// An index that no rule has, taken.
    fn take(&self) -> Result<u32, Error> {
        let mut taken = lock(&self.taken);
        let free = self.indices.clone().find(|index| !taken.contains(index));
        let index = free.ok_or_else(|| {
            let all = self.indices.len();
            Error::Invalid(format!("all {all} entries of flow group {:#x} have rules: drop one first", self.group_id))
        })?;
        taken.insert(index);
        Ok(index)
    }
}

/// Frames that match go to a TIR, from now until it is dropped. PRM "Flow Table Entry".
///
/// Its flow tag is the number of the TIR's receive queue, so that completions name that.
#[derive(Debug)]
pub struct FlowRule {
    place: Place,
    tir: Arc<Tir>,
}

/// Where a rule is.
#[derive(Debug)]
enum Place {
    /// In a flow table of ours.
    Entry { index: u32, object: Object, group: Arc<FlowGroup> },
    /// Among the kernel's; `None` once it is ended.
    Kernel { flow: Option<ObjectHandle>, matcher: Arc<FlowMatcher> },
}

impl FlowRule {
    /// A rule of `group`: frames whose outer headers are `value`, where the group looks, go to `tir`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the group is full, `value` has bits that the group does not look at, or the parents are of
    /// different cards; [`Error::Command`].
    pub fn create(group: &Arc<FlowGroup>, value: &FteMatchSetLyr24, tir: &Arc<Tir>) -> Result<Self, Error> {
        same_device(group.table.device(), tir, "a flow rule's group and TIR")?;
        looked_at(value, &group.criteria, &group.object.name())?;
        let tag = flow_tag(tir)?;
        let index = group.take()?;
        let made = Self::set(group, index, value, tag, tir);
        made.inspect_err(|_| _ = lock(&group.taken).remove(&index))
    }

    fn set(
        group: &Arc<FlowGroup>,
        index: u32,
        value: &FteMatchSetLyr24,
        tag: u32,
        tir: &Arc<Tir>,
    ) -> Result<Self, Error> {
        let table_id = group.table.table_id;
        let (mut all, mut context) = (FteMatchParam::default(), FlowContext::default());
        all.w().outer_headers(value);
        context.w().group_id(group.group_id).flow_tag(tag).action(FWD_DEST).destination_list_size(1).match_value(&all);
        let (mut set, mut to) = (SetFteIn::default(), DestFormatStruct::default());
        set.w().table_type(FlowTableType::NicRx).table_id(table_id).flow_index(index).flow_context(&context);
        to.w().destination_type(FlowDestinationType::Tir).destination_id(tir.tirn());
        let to = Be64::new(u64::from_be_bytes(to.as_bytes().first_chunk().copied().unwrap_or_default()));
        let about = format!("entry {index} of flow table {table_id:#x}");
        let (object, _) = Object::create(tir.device(), &WithTail::new(set, vec![to]), &about, |_| {
            let mut end = DeleteFteIn::default();
            end.w().table_type(FlowTableType::NicRx).table_id(table_id).flow_index(index);
            (end, about.clone())
        })?;
        let place = Place::Entry { index, object, group: Arc::clone(group) };
        Ok(FlowRule { place, tir: Arc::clone(tir) })
    }

    /// A rule where the kernel keeps the function: frames whose outer headers are `value`, where `matcher` looks, go to `tir`
    /// instead of the kernel.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `value` has bits that the matcher does not look at, or the parents are of different devices;
    /// [`Error::Io`] says what the kernel wants: the capability CAP_NET_RAW, frames that no other program has.
    pub fn beside_kernel(matcher: &Arc<FlowMatcher>, value: &FteMatchSetLyr24, tir: &Arc<Tir>) -> Result<Self, Error> {
        same_device(matcher.device(), tir, "a flow rule's matcher and TIR")?;
        looked_at(value, matcher.criteria(), "its flow matcher")?;
        let flow = Flow { matcher: matcher.handle(), value: value.as_bytes(), tir: tir.handle(), tag: flow_tag(tir)? };
        let flow = steering(matcher.device())?.create_flow(&flow)?;
        let place = Place::Kernel { flow: Some(flow), matcher: Arc::clone(matcher) };
        Ok(FlowRule { place, tir: Arc::clone(tir) })
    }

    /// Where its frames go.
    pub fn tir(&self) -> &Arc<Tir> {
        &self.tir
    }

    /// Its entry's index in the table; `None` where the kernel chose it.
    pub fn index(&self) -> Option<u32> {
        match self.place {
            Place::Entry { index, .. } => Some(index),
            Place::Kernel { .. } => None,
        }
    }

    /// Deletes it. Errors: [`Error::Command`], [`Error::Io`]; then its entry stays taken.
    pub fn delete(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Once: afterwards there is nothing to do.
    fn end(&mut self) -> Result<(), Error> {
        match &mut self.place {
            Place::Entry { object, .. } => object.destroy()?,
            Place::Kernel { flow, matcher } => {
                if let Some(handle) = *flow {
                    steering(matcher.device())?.destroy_flow(handle)?;
                }
                *flow = None;
            }
        }
        Ok(())
    }
}

impl Drop for FlowRule {
    fn drop(&mut self) {
        match (self.end(), &self.place) {
            (Ok(()), Place::Entry { index, group, .. }) => _ = lock(&group.taken).remove(index),
            (Ok(()), Place::Kernel { .. }) => {}
            (Err(error), _) => {
                tracing::error!(%error, "a flow rule was not deleted; it stays with the card until that is reset");
            }
        }
    }
}

fn same_device(device: &Arc<Device>, tir: &Tir, what: &str) -> Result<(), Error> {
    if Arc::ptr_eq(device, tir.device()) {
        return Ok(());
    }
    Err(Error::Invalid(format!("{what} must be of one device")))
}

/// Refuses bits of `value` that `criteria`, of the thing `name`, do not have.
fn looked_at(value: &FteMatchSetLyr24, criteria: &FteMatchSetLyr24, name: &str) -> Result<(), Error> {
    let mut bytes = value.as_bytes().iter().zip(criteria.as_bytes());
    if bytes.any(|(value, looked_at)| value & !looked_at != 0) {
        return Err(Error::Invalid(format!("the rule's value has bits that {name} does not look at")));
    }
    Ok(())
}

fn flow_tag(tir: &Tir) -> Result<u32, Error> {
    let rqn = tir.rq().rqn();
    fits("rqn, as the flow tag,", rqn, 24)?;
    Ok(rqn)
}

/// `match_criteria_enable`, for rules that look at `criteria` of the outer headers.
pub(super) fn enabled(criteria: &FteMatchSetLyr24) -> u8 {
    if criteria.as_bytes().iter().all(|byte| *byte == 0) { 0 } else { OUTER_HEADERS }
}

/// The outer headers of frames to `mac`; of [`Mac::BROADCAST`] every bit of the field, as criteria.
pub(crate) fn to_mac(mac: Mac) -> FteMatchSetLyr24 {
    let [a, b, c, d, e, f] = mac.0;
    let mut headers = FteMatchSetLyr24::default();
    headers.w().dmac_47_16(u32::from_be_bytes([a, b, c, d])).dmac_15_0(u16::from_be_bytes([e, f]));
    headers
}
