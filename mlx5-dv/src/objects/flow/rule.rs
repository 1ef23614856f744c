//! Rules: which frames go where.

use std::sync::Arc;

use mlx5_prm::cmd::{DeleteFteIn, SetFteIn, WithTail};
use mlx5_prm::flow::{
    DestFormatStruct, FlowContext, FlowDestinationType, FlowTableType, FteMatchParam, FteMatchSetLyr24,
};
use mlx5_prm::layout::{Be64, Layout};

use super::criteria::looked_at;
use super::group::FlowGroup;
use super::matcher::{FlowMatcher, steering};
use crate::access::{Flow, ObjectHandle};
use crate::error::Error;
use crate::objects::check::{fits, one_device};
use crate::objects::object::Object;
use crate::objects::tir::Tir;

/// `flow_context.action`: to the destinations.
const FWD_DEST: u16 = 4;

/// Frames that match go to a TIR, from now until it is dropped. PRM "Flow Table Entry".
///
/// Its flow tag is the number of the TIR's receive queue, so that completions name that.
#[derive(Debug)]
pub struct FlowRule {
    location: Location,
    tir: Arc<Tir>,
}

/// Where a rule is.
#[derive(Debug)]
enum Location {
    /// In a flow table of ours.
    Entry { index: u32, object: Object, group: Arc<FlowGroup> },
    /// Among the kernel's; `None` once it is ended.
    Kernel { flow: Option<ObjectHandle>, matcher: Arc<FlowMatcher> },
}

impl FlowRule {
    /// A rule of `group`: frames whose outer headers are `value`, where the group looks, go to `tir`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the group is full, `value` has bits that the group does not look at, or the parents are
    /// of different cards; [`Error::Command`].
    pub fn create(group: &Arc<FlowGroup>, value: &FteMatchSetLyr24, tir: &Arc<Tir>) -> Result<Self, Error> {
        one_device("a flow rule's group and TIR", tir.device(), [group.table().device()])?;
        looked_at(value, group.criteria(), &group.name())?;
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

    /// A rule where the kernel keeps the function: frames whose outer headers are `value`, where `matcher` looks, go to
    /// `tir` instead of the kernel.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `value` has bits that the matcher does not look at, or the parents are of different
    /// devices; [`Error::Io`] says what the kernel wants: the capability CAP_NET_RAW, frames that no other program has.
    pub fn beside_kernel(matcher: &Arc<FlowMatcher>, value: &FteMatchSetLyr24, tir: &Arc<Tir>) -> Result<Self, Error> {
        one_device("a flow rule's matcher and TIR", tir.device(), [matcher.device()])?;
        looked_at(value, matcher.criteria(), "its flow matcher")?;
        let flow = Flow { matcher: matcher.handle(), value: value.as_bytes(), tir: tir.handle(), tag: flow_tag(tir)? };
        let flow = steering(matcher.device())?.create_flow(&flow)?;
        let location = Location::Kernel { flow: Some(flow), matcher: Arc::clone(matcher) };
        Ok(FlowRule { location, tir: Arc::clone(tir) })
    }

    /// Where its frames go.
    pub fn tir(&self) -> &Arc<Tir> {
        &self.tir
    }

    /// Its entry's index in the table; `None` where the kernel chose it.
    pub fn index(&self) -> Option<u32> {
        match self.location {
            Location::Entry { index, .. } => Some(index),
            Location::Kernel { .. } => None,
        }
    }

    /// Deletes it. Errors: [`Error::Command`], [`Error::Io`]; then its entry stays taken.
    pub fn delete(mut self) -> Result<(), Error> {
        self.end()
    }

    /// Once: afterwards there is nothing to do.
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
    let rqn = tir.rq().rqn();
    fits("rqn as flow tag", rqn, 24)?;
    Ok(rqn)
}
