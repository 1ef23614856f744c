//! Flow rules of any fields and priorities, without tables, groups or matchers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mlx5_prm::flow::FteMatchParam;
use mlx5_prm::layout::Layout;

use super::actions::FlowActions;
use super::group::FlowGroup;
use super::matcher::{FlowMatcher, LAST_PRIORITY};
use super::matching::FlowMatch;
use super::rule::FlowRule;
use super::table::{Direction, FlowTable, FlowTableOptions};
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::lock::lock;
use crate::objects::check::in_range;

/// Entries of the first group of some criteria; each further one has twice as many.
const FIRST_GROUP: u32 = 64;

/// How a set of flow rules is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FlowRulesOptions {
    /// Which frames it is for. Default: those that are received.
    pub direction: Direction,
    /// Number of priorities. Default: 4.
    pub priorities: u8,
    /// Room for rules of each priority, where the function is ours. Rules of different fields do not share it entry by
    /// entry, so leave twice as much. Default: 4096.
    pub entries: u32,
    /// Whether rules may put frames into tunnels and take them out: see [`FlowTableOptions::tunnels`]. On DevX they may
    /// anyway. Default: no.
    pub tunnels: bool,
}

impl Default for FlowRulesOptions {
    fn default() -> Self {
        FlowRulesOptions { direction: Direction::Receive, priorities: 4, entries: 4096, tunnels: false }
    }
}

/// A set of flow rules: says for which frames a rule is and what it does, and nothing of tables. On an owned function
/// it is the whole steering of a direction; on DevX its rules are before those of the kernel.
///
/// Of the rules that match a frame, one of the lowest priority number applies. Among rules of one priority with
/// different fields that match the same frame, which one applies is unspecified.
///
/// ```no_run
/// use mlx5_dv::objects::{FlowActions, FlowCounter, FlowMatch, FlowRules, FlowRulesOptions, Tir};
///
/// fn steer(device: &std::sync::Arc<mlx5_dv::Device>, tir: &std::sync::Arc<Tir>) -> Result<(), mlx5_dv::Error> {
///     let rules = FlowRules::create(device, FlowRulesOptions::default())?;
///     let counter = FlowCounter::create(device)?;
///     let dns = FlowMatch::new().udp_destination_port(53);
///     let _dns = rules.add(0, &dns, FlowActions::drop().count(&counter))?;
///     let _rest = rules.add(1, &FlowMatch::new().destination_mac(device.mac()), tir)?;
///     rules.start()?;
///     println!("{:?}", counter.read()?);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct FlowRules {
    /// By priority.
    levels: Vec<Mutex<Level>>,
    direction: Direction,
    device: Arc<Device>,
}

/// Rules of a priority.
#[derive(Debug)]
enum Level {
    Table { table: Arc<FlowTable>, groups: BTreeMap<Criteria, Vec<Arc<FlowGroup>>>, next: u32 },
    Kernel { matchers: BTreeMap<Criteria, Arc<FlowMatcher>> },
}

/// Criteria as a key. Ordered, so that groups end in the same order in each run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Criteria(Box<[u8]>);

impl Criteria {
    fn of(criteria: &FteMatchParam) -> Self {
        Criteria(criteria.as_bytes().into())
    }
}

impl FlowRules {
    /// Makes a set without rules. Frames do not meet it before [`start`](Self::start).
    ///
    /// # Errors
    /// [`Error::Invalid`] for no priorities, or more than the card or the kernel has; as for
    /// [`FlowTable::with_options`].
    pub fn create(device: &Arc<Device>, options: FlowRulesOptions) -> Result<Self, Error> {
        let FlowRulesOptions { direction, priorities, entries, tunnels } = options;
        in_range("priorities", priorities.into(), 1..=u8::MAX.into(), "max_ft_level")?;
        let mut levels = Vec::new();
        if device.is_owned() {
            let mut miss = None;
            for level in (0..priorities).rev() {
                let options = FlowTableOptions { direction, level, entries, miss, tunnels };
                let table = FlowTable::with_options(device, options)?;
                miss = Some(Arc::clone(&table));
                levels.push(Mutex::new(Level::Table { table, groups: BTreeMap::new(), next: 0 }));
            }
            levels.reverse();
        } else {
            in_range(
                "priorities",
                priorities.into(),
                1..=u64::from(LAST_PRIORITY) + 1,
                "a flow matcher of the kernel",
            )?;
            levels.resize_with(priorities.into(), || Mutex::new(Level::Kernel { matchers: BTreeMap::new() }));
        }
        Ok(FlowRules { levels, direction, device: Arc::clone(device) })
    }

    /// From now on frames meet the rules. On DevX they do anyway, from when each rule is added.
    ///
    /// # Errors
    /// As for [`FlowTable::set_root`].
    pub fn start(&self) -> Result<(), Error> {
        match self.levels.first().map(|level| lock(level)).as_deref() {
            Some(Level::Table { table, .. }) => table.set_root(),
            _ => Ok(()),
        }
    }

    /// Adds a rule of `priority`, 0 being the first, for the frames of `matched`. It stays until it is dropped.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a priority beyond [`FlowRulesOptions::priorities`], for a match that contradicts itself,
    /// and if there is no room; otherwise as for [`FlowRule::create`] and [`FlowRule::beside_kernel`].
    pub fn add<A: Into<FlowActions>>(&self, priority: u8, matched: &FlowMatch, actions: A) -> Result<FlowRule, Error> {
        matched.check()?;
        let last = self.levels.len() as u64 - 1;
        let level = self.levels.get(usize::from(priority));
        let refused = || Invalid::out_of_range("priority", priority.into(), 0..=last, "these rules");
        let mut level = lock(level.ok_or_else(refused)?);
        let criteria = Criteria::of(matched.criteria());
        match &mut *level {
            Level::Kernel { matchers } => {
                let matcher = match matchers.get(&criteria) {
                    Some(matcher) => Arc::clone(matcher),
                    None => {
                        let (device, direction) = (&self.device, self.direction);
                        let matcher = FlowMatcher::of_direction(device, direction, priority.into(), matched)?;
                        matchers.insert(criteria, Arc::clone(&matcher));
                        matcher
                    }
                };
                FlowRule::beside_kernel(&matcher, matched, actions)
            }
            Level::Table { table, groups, next } => {
                let groups = groups.entry(criteria).or_default();
                let group = match groups.iter().rev().find(|group| group.has_room()) {
                    Some(group) => Arc::clone(group),
                    None => {
                        let group = further_group(table, groups.len() as u32, *next, matched)?;
                        *next = group.1;
                        groups.push(Arc::clone(&group.0));
                        group.0
                    }
                };
                FlowRule::create(&group, matched, actions)
            }
        }
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

/// Another group of the fields of `matched`, which has `earlier` groups already, from entry `next` on; the first entry
/// after it.
fn further_group(
    table: &Arc<FlowTable>,
    earlier: u32,
    next: u32,
    matched: &FlowMatch,
) -> Result<(Arc<FlowGroup>, u32), Error> {
    let room = table.capacity() - next;
    if room == 0 {
        let (object, entries) = (format!("flow table {:#x}", table.table_id()), table.capacity().into());
        return Err(Invalid::NoRoom { object, entries, mend: "make FlowRulesOptions::entries larger" }.into());
    }
    let end = next + FIRST_GROUP.saturating_mul(1u32.checked_shl(earlier).unwrap_or(u32::MAX)).min(room);
    Ok((FlowGroup::create(table, next..end, matched)?, end))
}
