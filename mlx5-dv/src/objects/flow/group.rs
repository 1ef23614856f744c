//! Flow groups.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use mlx5_prm::cmd::{CreateFlowGroupIn, DestroyFlowGroupIn};
use mlx5_prm::flow::{FlowTableType, FteMatchParam, FteMatchSetLyr24};

use super::criteria::enabled;
use super::table::FlowTable;
use crate::error::{Error, Invalid};
use crate::lock::lock;
use crate::objects::object::{DestroyError, Object, destroy_sole};

/// Rules of a flow table with the same match criteria. PRM "Flow Group".
#[derive(Debug)]
pub struct FlowGroup {
    group_id: u32,
    indices: Range<u32>,
    /// Indices in use.
    taken: Mutex<BTreeSet<u32>>,
    criteria: FteMatchSetLyr24,
    object: Object,
    table: Arc<FlowTable>,
}

impl FlowGroup {
    /// Creates a group: the entries `indices` of `table`, whose rules match on the bits of the outer headers that are
    /// set in `criteria`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for indices outside the table; [`Error::Command`] names fields that the card cannot match on.
    pub fn create(
        table: &Arc<FlowTable>,
        indices: Range<u32>,
        criteria: &FteMatchSetLyr24,
    ) -> Result<Arc<Self>, Error> {
        if indices.is_empty() || indices.end > table.capacity() {
            let (given, len) = (indices.start.into()..indices.end.into(), table.capacity().into());
            return Err(Invalid::OutOfBounds { what: "indices", given, of: "a flow table", len }.into());
        }
        let (mut create, mut all) = (CreateFlowGroupIn::default(), FteMatchParam::default());
        all.w().outer_headers(criteria);
        create
            .w()
            .table_type(FlowTableType::NicRx)
            .table_id(table.table_id())
            .start_flow_index(indices.start)
            .end_flow_index(indices.end - 1)
            .match_criteria_enable(enabled(criteria))
            .match_criteria(&all);
        let (object, out) = Object::create(table.device(), &create, "a flow group", |out| {
            let mut end = DestroyFlowGroupIn::default();
            end.w().table_type(FlowTableType::NicRx).table_id(table.table_id()).group_id(out.group_id());
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

    /// Its flow table.
    pub fn table(&self) -> &Arc<FlowTable> {
        &self.table
    }

    /// Destroys the group. Its rules must be destroyed first. On an error the group stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |group| group.object.destroy())
    }

    /// The match criteria.
    pub(super) fn criteria(&self) -> &FteMatchSetLyr24 {
        &self.criteria
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        self.object.name()
    }

    /// Frees the entry at `index`.
    pub(super) fn release(&self, index: u32) {
        lock(&self.taken).remove(&index);
    }

    /// Reserves a free index.
    pub(super) fn take(&self) -> Result<u32, Error> {
        let mut taken = lock(&self.taken);
        let free = self.indices.clone().find(|index| !taken.contains(index));
        let index = free.ok_or_else(|| {
            let (object, entries) = (format!("flow group {:#x}", self.group_id), self.indices.len() as u64);
            Invalid::NoRoom { object, entries, mend: "drop a rule first" }
        })?;
        taken.insert(index);
        Ok(index)
    }
}
