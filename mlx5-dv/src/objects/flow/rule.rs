//! Flow rules.

use std::sync::Arc;

use mlx5_prm::cmd::{DeleteFteIn, SetFteIn, WithTail};
use mlx5_prm::flow::{
    DestFormatStruct, FlowContext, FlowDestinationType, FlowTableType, FteMatchParam, FteMatchSetLyr24,
};
use mlx5_prm::layout::{Be64, Layout};

use super::criteria::within_criteria;
use super::group::FlowGroup;
use super::matcher::{FlowMatcher, steering};
use crate::access::{Flow, ObjectHandle};
use crate::error::Error;
use crate::objects::check::{fits, one_device};
use crate::objects::object::Object;
use crate::objects::tir::Tir;

/// `flow_context.action`: forward to the destination list.
const FWD_DEST: u16 = 4;

/// Directs matching frames to a TIR until it is dropped. PRM "Flow Table Entry".
///
/// The flow tag is the number of the TIR's receive queue, or of the TIR where it spreads frames over several.
#[derive(Debug)]
pub struct FlowRule {
    location: Location,
    tir: Arc<Tir>,
}

/// Location of a rule.
#[derive(Debug)]
enum Location {
    /// In a flow table of this driver.
    Entry { index: u32, object: Object, group: Arc<FlowGroup> },
    /// In the kernel's flow tables; `None` once deleted.
    Kernel { flow: Option<ObjectHandle>, matcher: Arc<FlowMatcher> },
}

impl FlowRule {
    /// Creates a rule in `group`: frames whose outer headers match `value`, within the group's criteria, go to `tir`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the group is full, `value` has bits outside the criteria, or the parents are of different
    /// cards; [`Error::Command`].
    pub fn create(group: &Arc<FlowGroup>, value: &FteMatchSetLyr24, tir: &Arc<Tir>) -> Result<Self, Error> {
        one_device("a flow rule's group and TIR", tir.device(), [group.table().device()])?;
        within_criteria(value, group.criteria(), &group.name())?;
        let tag = flow_tag(tir)?;
        let index = group.take()?;
        let made = Self::set(group, index, value, tag, tir);
        made.inspect_err(|_| group.release(index))
    }

    fn set(
        group: &Arc<FlowGroup>,
        index: u32,
        value: &FteMatchSetLyr24,
        tag: u32,
        tir: &Arc<Tir>,
    ) -> Result<Self, Error> {
        let table_id = group.table().table_id();
        let (mut all, mut context) = (FteMatchParam::default(), FlowContext::default());
        all.w().outer_headers(value);
        context
            .w()
            .group_id(group.group_id())
            .flow_tag(tag)
            .action(FWD_DEST)
            .destination_list_size(1)
            .match_value(&all);
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
        let location = Location::Entry { index, object, group: Arc::clone(group) };
        Ok(FlowRule { location, tir: Arc::clone(tir) })
    }

    /// Creates a rule on DevX: frames whose outer headers match `value`, within the criteria of `matcher`, go to `tir`
    /// instead of the kernel.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `value` has bits outside the criteria, or the parents are of different devices;
    /// [`Error::Io`] if the kernel refuses: the process needs CAP_NET_RAW, and no other program may have the frames.
    pub fn beside_kernel(matcher: &Arc<FlowMatcher>, value: &FteMatchSetLyr24, tir: &Arc<Tir>) -> Result<Self, Error> {
        one_device("a flow rule's matcher and TIR", tir.device(), [matcher.device()])?;
        within_criteria(value, matcher.criteria(), "its flow matcher")?;
        let flow = Flow { matcher: matcher.handle(), value: value.as_bytes(), tir: tir.handle(), tag: flow_tag(tir)? };
        let flow = steering(matcher.device())?.create_flow(&flow)?;
        let location = Location::Kernel { flow: Some(flow), matcher: Arc::clone(matcher) };
        Ok(FlowRule { location, tir: Arc::clone(tir) })
    }

    /// Destination of matching frames.
    pub fn tir(&self) -> &Arc<Tir> {
        &self.tir
    }

    /// Index in the table; `None` if the kernel chose the entry.
    pub fn index(&self) -> Option<u32> {
        match self.location {
            Location::Entry { index, .. } => Some(index),
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
            Location::Kernel { flow, matcher } => {
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
            (Ok(()), Location::Entry { index, group, .. }) => group.release(*index),
            (Ok(()), Location::Kernel { .. }) => {}
            (Err(error), _) => {
                tracing::error!(%error, "a flow rule was not deleted; it stays with the card until that is reset");
            }
        }
    }
}

fn flow_tag(tir: &Tir) -> Result<u32, Error> {
    // Of a TIR that spreads frames: its own number, as there is no one queue.
    let tag = tir.rq().map_or(tir.tirn(), |rq| rq.rqn());
    fits("flow tag", tag, 24)?;
    Ok(tag)
}
