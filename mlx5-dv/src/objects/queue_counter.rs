//! Queue counters: what happened to the messages and frames of queues.

use std::sync::Arc;

use mlx5_prm::cmd::{AllocQCounterIn, DeallocQCounterIn, QueryQCounterIn, QueryQCounterOut};

use super::object::{DestroyError, Object, destroy_sole};
use crate::device::Device;
use crate::error::Error;

/// A set of counters that any number of receive queues, queue pairs and targets share. PRM "Queue Counters";
/// `counter_set_id` of contexts.
#[derive(Debug)]
pub struct QueueCounter {
    id: u8,
    object: Object,
}

impl QueueCounter {
    /// Allocates a set, of zeros. Errors: [`Error::Command`].
    pub fn alloc(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        let (object, out) = Object::create(device, &AllocQCounterIn::default(), "a queue counter", |out| {
            let mut end = DeallocQCounterIn::default();
            end.w().counter_set_id(out.counter_set_id());
            (end, format!("queue counter {:#x}", out.counter_set_id()))
        })?;
        Ok(Arc::new(QueueCounter { id: out.counter_set_id(), object }))
    }

    /// `counter_set_id`, 8 bits.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Reads all counters of the set, under their PRM names. Errors: [`Error::Command`].
    pub fn query(&self) -> Result<QueryQCounterOut, Error> {
        let mut query = QueryQCounterIn::default();
        query.w().counter_set_id(self.id);
        Ok(self.object.query(&query)?)
    }

    /// Frames and messages that were dropped, or refused, because no receive was posted. It wraps at 2^32.
    ///
    /// # Errors
    /// As for [`query`](Self::query).
    pub fn out_of_buffer(&self) -> Result<u32, Error> {
        Ok(self.query()?.out_of_buffer())
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Frees the set. Its queues must be destroyed first. On an error it stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |counter| counter.object.destroy())
    }
}
