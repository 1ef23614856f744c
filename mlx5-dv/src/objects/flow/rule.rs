//! Flow rules.

use std::sync::Arc;

use mlx5_prm::cmd::{DeleteFteIn, QueryFteIn, SetFteIn, SetFteOpMod, WithTail};
use mlx5_prm::flow::{DestFormatStruct, FlowContext, FlowCounterList, FteMatchParam};
use mlx5_prm::layout::{Be64, Layout};

use super::actions::{Fate, FlowActions, FlowDestination};
use super::geneve::GeneveOption;
use super::group::FlowGroup;
use super::matcher::{FlowMatcher, steering};
use super::matching::FlowMatch;
use super::table::{Direction, FlowTable, check_several_paths};
use crate::access::{Flow, FlowFate, ObjectHandle};
use crate::error::{Error, Invalid};
use crate::objects::object::Object;

/// `modify_enable_mask`: action, flow tag, destinations, counters.
const ALL: u8 = 0xf;

/// Does with matching frames what its [`FlowActions`] say, until it is dropped. PRM "Flow Table Entry"; `ibv_flow` of
/// libibverbs.
#[derive(Debug)]
pub struct FlowRule {
    location: Location,
    actions: FlowActions,
    /// Kept for its fields, which would match nothing without it.
    _option: Option<Arc<GeneveOption>>,
}

/// A flow rule as the card has it. PRM "QUERY_FLOW_TABLE_ENTRY".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowRuleStatus {
    /// What it matches and does, under PRM names.
    pub context: FlowContext,
    /// Where frames go.
    pub destinations: Vec<DestFormatStruct>,
    /// `flow_counter_id` of each counter.
    pub counters: Vec<u32>,
}

/// Location of a rule.
#[derive(Debug)]
enum Location {
    /// In a flow table of this driver.
    Entry { entry: Box<Entry>, object: Object },
    /// In the kernel's flow tables; `None` once deleted. What the kernel's rules cannot do is done by a rule that all
    /// its frames are forwarded to.
    Kernel { flow: Option<ObjectHandle>, matcher: Arc<FlowMatcher>, rest: Option<Box<FlowRule>> },
}

/// An entry of a flow table.
#[derive(Debug)]
struct Entry {
    index: u32,
    /// `match_value` without the zeros at its end.
    value: Box<[u8]>,
    group: Arc<FlowGroup>,
}

impl Entry {
    /// The command that sets the entry.
    fn set(&self, actions: &FlowActions, op_mod: SetFteOpMod) -> WithTail<SetFteIn, Be64> {
        let table = self.group.table();
        let (mut context, mut value) = (FlowContext::default(), [0; FteMatchParam::SIZE]);
        value[..self.value.len()].copy_from_slice(&self.value);
        context.w().group_id(self.group.group_id()).match_value(&FteMatchParam::read(&value).unwrap_or_default());
        let list = actions.write(&mut context);
        let mut set = SetFteIn::default();
        set.w()
            .op_mod(op_mod.number() as u16)
            .table_type(table.direction().table_type())
            .table_id(table.table_id())
            .flow_index(self.index)
            .flow_context(&context);
        if op_mod == SetFteOpMod::Modify {
            set.w().modify_enable_mask(ALL);
        }
        WithTail::new(set, list)
    }

    /// Asks the card for the entry, which has a list of this length.
    fn query(&self, object: &Object, listed: usize) -> Result<FlowRuleStatus, Error> {
        let table = self.group.table();
        let mut query = QueryFteIn::default();
        query.w().table_type(table.direction().table_type()).table_id(table.table_id()).flow_index(self.index);
        let mut query = WithTail::<_, Be64>::new(query, vec![]);
        query.out_tail = listed;
        let out = object.query(&query)?;
        let context = *out.reply.flow_context();
        let (items, _) = out.tail.as_chunks::<{ DestFormatStruct::SIZE }>();
        let (destinations, counters) = items.split_at(items.len().min(context.destination_list_size() as usize));
        let counted = counters.iter().take(context.flow_counter_list_size() as usize);
        Ok(FlowRuleStatus {
            context,
            destinations: destinations.iter().filter_map(|item| DestFormatStruct::read(item)).collect(),
            counters: counted.filter_map(|item| Some(FlowCounterList::read(item)?.flow_counter_id())).collect(),
        })
    }
}

impl FlowRule {
    /// Creates a rule in `group`, for the frames of `matched`, which has values for the fields of the group.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the group is full, `matched` has other fields than the group, the parents are of different
    /// cards, or the group's table has not what `actions` need; [`Error::Unsupported`]; [`Error::Command`].
    pub fn create<A: Into<FlowActions>>(
        group: &Arc<FlowGroup>,
        matched: &FlowMatch,
        actions: A,
    ) -> Result<Self, Error> {
        let actions = actions.into();
        let device = group.table().device();
        actions.check(device)?;
        actions.check_for(group.table())?;
        matched.check_criteria(group.criteria(), &group.name())?;
        let option = matched.option_of(device)?;
        actions.announce_tag();
        let index = group.take()?;
        let value = matched.value().as_bytes();
        let used = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let entry = Box::new(Entry { index, value: value[..used].into(), group: Arc::clone(group) });
        let (table_type, table_id) = (group.table().direction().table_type(), group.table().table_id());
        let about = format!("entry {index} of flow table {table_id:#x}");
        let made = Object::create(device, &entry.set(&actions, SetFteOpMod::New), &about, |_| {
            let mut end = DeleteFteIn::default();
            end.w().table_type(table_type).table_id(table_id).flow_index(index);
            (end, about.clone())
        });
        let (object, _) = made.inspect_err(|_| group.release(index))?;
        Ok(FlowRule { location: Location::Entry { entry, object }, actions, _option: option })
    }

    /// Creates a rule on DevX, for the frames of `matched`, which has values for the fields of `matcher`. Others are
    /// the kernel's. The kernel's own rules forward to one TIR or table, drop and count; a rule that does more takes a
    /// flow table of the card for itself.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `matched` has other fields than the matcher, the parents are of different devices, or for
    /// actions that frames of this direction cannot have; [`Error::Unsupported`]; [`Error::Io`] if the kernel refuses:
    /// the process needs CAP_NET_RAW, and no other program may have the frames; [`Error::Command`].
    pub fn beside_kernel<A: Into<FlowActions>>(
        matcher: &Arc<FlowMatcher>,
        matched: &FlowMatch,
        actions: A,
    ) -> Result<Self, Error> {
        let actions = actions.into();
        actions.check(matcher.device())?;
        actions.check_tag(matcher.direction())?;
        matched.check_criteria(matcher.criteria(), "its flow matcher")?;
        let option = matched.option_of(matcher.device())?;
        let (fate, rest) = match fate_in_kernel(matcher, &actions)? {
            Some(fate) => (fate, None),
            None => {
                let (table, rest) = Self::in_table_of_its_own(matcher, actions.clone())?;
                (FlowFate::Forward(table.handle()), Some(Box::new(rest)))
            }
        };
        // The rest counts and tags.
        let counter = actions.counters.first().filter(|_| rest.is_none());
        let flow = Flow {
            matcher: matcher.handle(),
            value: matched.value().as_bytes(),
            fate,
            counter: counter.map(|one| (one.handle(), one.index())),
            tag: if rest.is_none() { actions.flow_tag() } else { 0 },
        };
        actions.announce_tag();
        let flow = Some(steering(matcher.device())?.create_flow(&flow)?);
        let location = Location::Kernel { flow, matcher: Arc::clone(matcher), rest };
        Ok(FlowRule { location, actions, _option: option })
    }

    /// The only rule of a table on DevX, for all frames.
    fn in_table_of_its_own(matcher: &FlowMatcher, actions: FlowActions) -> Result<(Arc<FlowTable>, Self), Error> {
        let (direction, tunnels, all) = (matcher.direction(), actions.has_tunnel(), FlowMatch::new());
        let table = FlowTable::of_one_rule(matcher.device(), direction, tunnels)?;
        let rule = Self::create(&FlowGroup::create(&table, 0..1, &all)?, &all, actions)?;
        Ok((table, rule))
    }

    /// Asks the card for the rule: what it matches, where frames go, its counters.
    ///
    /// # Errors
    /// [`Error::Command`]; [`Error::NotImplemented`] for a rule that is in the kernel's tables alone.
    pub fn query(&self) -> Result<FlowRuleStatus, Error> {
        match &self.location {
            Location::Entry { entry, object } => {
                entry.query(object, self.actions.write(&mut FlowContext::default()).len())
            }
            Location::Kernel { rest: Some(rest), .. } => rest.query(),
            Location::Kernel { rest: None, matcher, .. } => {
                let what = format!("the state of a rule of the kernel's on {}", matcher.device().name());
                let instead = "Linux does not tell it: count its frames with FlowActions::count".into();
                Err(Error::NotImplemented { what, instead })
            }
        }
    }

    /// Replaces what it does; each frame meets the old actions or the new ones. PRM "SET_FLOW_TABLE_ENTRY", `op_mod` 1.
    ///
    /// # Errors
    /// As for [`create`](Self::create), and [`Error::Invalid`] for a rule of the kernel's tables alone; the rule is as
    /// it was.
    pub fn set_actions<A: Into<FlowActions>>(&mut self, actions: A) -> Result<(), Error> {
        let actions = actions.into();
        let (entry, object) = match &mut self.location {
            Location::Entry { entry, object } => (entry, object),
            Location::Kernel { rest: Some(rest), .. } => {
                rest.set_actions(&actions)?;
                self.actions = actions;
                return Ok(());
            }
            Location::Kernel { rest: None, .. } => {
                let requires = "a rule of a flow table: delete this one, and create another";
                return Err(Invalid::Requires { what: "a rule's new actions".into(), requires }.into());
            }
        };
        let table = entry.group.table();
        actions.check(table.device())?;
        actions.check_for(table)?;
        if !table.properties().flow_modify_en() {
            let what = "changing the actions of a flow rule".into();
            return Err(Error::Unsupported { what, capability: "flow_modify_en" });
        }
        actions.announce_tag();
        object.modify(&entry.set(&actions, SetFteOpMod::Modify))?;
        self.actions = actions;
        Ok(())
    }

    /// What it does.
    pub fn actions(&self) -> &FlowActions {
        &self.actions
    }

    /// Index in the table; `None` if the kernel chose the entry.
    pub fn index(&self) -> Option<u32> {
        match &self.location {
            Location::Entry { entry, .. } => Some(entry.index),
            Location::Kernel { .. } => None,
        }
    }

    /// Deletes the rule. After [`Error::Command`] or [`Error::Io`] its entry stays in use.
    pub fn delete(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Deletes the rule; further calls do nothing.
    fn end(&mut self) -> Result<(), Error> {
        match &mut self.location {
            Location::Entry { object, .. } => object.destroy()?,
            Location::Kernel { flow, matcher, .. } => {
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
        match (self.end(), &self.location) {
            (Ok(()), Location::Entry { entry, .. }) => entry.group.release(entry.index),
            (Ok(()), Location::Kernel { .. }) => {}
            (Err(error), _) => {
                tracing::error!(%error, "a flow rule was not deleted; it stays with the card until that is reset");
            }
        }
    }
}

/// What becomes of frames by a rule of the kernel's tables; `None` if such a rule cannot do all of `actions`.
fn fate_in_kernel(matcher: &FlowMatcher, actions: &FlowActions) -> Result<Option<FlowFate>, Error> {
    let direction = matcher.direction();
    let is_simple = !actions.changes_frames() && actions.counters.len() <= 1;
    let fate = match (&actions.fate, actions.destinations()) {
        (Fate::Kernel, _) => {
            let wrong = |what: &str, requires| Err(Invalid::Requires { what: what.into(), requires }.into());
            if direction == Direction::Transmit {
                return wrong("leaving a frame to the kernel", "a matcher of received frames");
            }
            if !is_simple {
                return wrong("changing a frame, or counting it twice", "a rule that forwards, drops or sends it");
            }
            check_several_paths(matcher.device(), false)?;
            FlowFate::Kernel
        }
        _ if !is_simple => return Ok(None),
        (Fate::Drop, _) => FlowFate::Drop,
        (Fate::Send, _) if direction == Direction::Transmit => FlowFate::Send,
        (_, [FlowDestination::Tir(tir)]) if direction == Direction::Receive => FlowFate::Forward(tir.handle()),
        (_, [FlowDestination::Table(table)]) if table.direction() == direction => FlowFate::Forward(table.handle()),
        _ => return Ok(None),
    };
    Ok(Some(fate))
}
