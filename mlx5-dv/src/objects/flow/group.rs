//! Flow groups.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use mlx5_prm::cmd::{CreateFlowGroupIn, DestroyFlowGroupIn, QueryFlowGroupIn};
use mlx5_prm::flow::FteMatchParam;

use super::matching::FlowMatch;
use super::table::FlowTable;
use crate::error::{Error, Invalid};
use crate::lock::lock;
use crate::objects::object::{DestroyError, Object, destroy_sole};

/// Rules of a flow table with the same match criteria. PRM "Flow Group".
#[derive(Debug)]
pub struct FlowGroup {
    group_id: u32,
    indices: Range<u32>,
    room: Mutex<Room>,
    criteria: FteMatchParam,
    object: Object,
    table: Arc<FlowTable>,
}

/// A flow group as the card has it. PRM "QUERY_FLOW_GROUP".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowGroupStatus {
    /// Its entries of the table.
    pub indices: Range<u32>,
    /// `match_criteria_enable`: which parts of the criteria count.
    pub match_criteria_enable: u8,
    /// The bits that its rules look at.
    pub match_criteria: FteMatchParam,
}

/// Free entries: reserving one costs the same, however many there are.
#[derive(Debug)]
struct Room {
    /// Never used, from here on.
    fresh: Range<u32>,
    /// Used once, and free again.
    free: BTreeSet<u32>,
}

impl FlowGroup {
    /// Creates a group: the entries `indices` of `table`, whose rules match the same header fields as `example`, with
    /// values of their own.
    ///
    /// # Errors
    /// [`Error::Invalid`] for indices outside the table, and for a match that contradicts itself; [`Error::Command`]
    /// names fields that the card cannot match on.
    pub fn create(table: &Arc<FlowTable>, indices: Range<u32>, example: &FlowMatch) -> Result<Arc<Self>, Error> {
        if indices.is_empty() || indices.end > table.capacity() {
            let (given, len) = (indices.start.into()..indices.end.into(), table.capacity().into());
            return Err(Invalid::OutOfBounds { what: "indices", given, of: "a flow table", len }.into());
        }
        example.check()?;
        let table_type = table.direction().table_type();
        let mut create = CreateFlowGroupIn::default();
        create
            .w()
            .table_type(table_type)
            .table_id(table.table_id())
            .start_flow_index(indices.start)
            .end_flow_index(indices.end - 1)
            .match_criteria_enable(example.enabled())
            .match_criteria(example.criteria());
        let (object, out) = Object::create(table.device(), &create, "a flow group", |out| {
            let mut end = DestroyFlowGroupIn::default();
            end.w().table_type(table_type).table_id(table.table_id()).group_id(out.group_id());
            (end, format!("flow group {:#x}", out.group_id()))
        })?;
        Ok(Arc::new(FlowGroup {
            group_id: out.group_id(),
            room: Mutex::new(Room { fresh: indices.clone(), free: BTreeSet::new() }),
            indices,
            criteria: *example.criteria(),
            object,
            table: Arc::clone(table),
        }))
    }

    /// Asks the card for its entries and criteria. Errors: [`Error::Command`].
    pub fn query(&self) -> Result<FlowGroupStatus, Error> {
        let mut query = QueryFlowGroupIn::default();
        query.w().table_type(self.table.direction().table_type());
        query.w().table_id(self.table.table_id()).group_id(self.group_id);
        let reply = self.object.query(&query)?;
        Ok(FlowGroupStatus {
            // The card's end is its last.
            indices: reply.start_flow_index()..reply.end_flow_index().saturating_add(1),
            match_criteria_enable: reply.match_criteria_enable(),
            match_criteria: *reply.match_criteria(),
        })
    }

    /// `group_id`.
    pub fn group_id(&self) -> u32 {
        self.group_id
    }

    /// Its flow table.
    pub fn table(&self) -> &Arc<FlowTable> {
        &self.table
    }

    /// Destroys the group. Its rules must be destroyed first. On an error the group stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |group| group.object.destroy())
    }

    /// The match criteria.
    pub(super) fn criteria(&self) -> &FteMatchParam {
        &self.criteria
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        self.object.name()
    }

    /// Whether it has room for a rule.
    pub(super) fn has_room(&self) -> bool {
        let room = lock(&self.room);
        !room.fresh.is_empty() || !room.free.is_empty()
    }

    /// Frees the entry at `index`.
    pub(super) fn release(&self, index: u32) {
        lock(&self.room).free.insert(index);
    }

    /// Reserves a free index: the lowest that was used before, or else the next.
    pub(super) fn take(&self) -> Result<u32, Error> {
        let mut room = lock(&self.room);
        let Room { fresh, free } = &mut *room;
        free.pop_first().or_else(|| fresh.next()).ok_or_else(|| {
            let (object, entries) = (format!("flow group {:#x}", self.group_id), self.indices.len() as u64);
            Invalid::NoRoom { object, entries, mend: "drop a rule first" }.into()
        })
    }
}
