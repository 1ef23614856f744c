//! Groups of a flow table's rules.

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
    /// A new group: entries `indices` of `table`, whose rules look at the bits of the outer headers that `criteria` has
    /// set.
    ///
    /// # Errors
    /// [`Error::Invalid`] for indices outside of the table, [`Error::Command`], whose reason names fields that the card
    /// cannot match.
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

    /// Its table.
    pub fn table(&self) -> &Arc<FlowTable> {
        &self.table
    }

    /// Destroys it. Its rules must be gone. Errors: the group, kept alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |group| group.object.destroy())
    }

    /// The bits that its rules look at.
    pub(super) fn criteria(&self) -> &FteMatchSetLyr24 {
        &self.criteria
    }

    /// How messages call it.
    pub(super) fn name(&self) -> String {
        self.object.name()
    }

    /// The entry at `index` has no rule any more.
    pub(super) fn release(&self, index: u32) {
        lock(&self.taken).remove(&index);
    }

    /// An index that no rule has, taken.
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
