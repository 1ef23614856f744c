//! What sets flow meters.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Invalid};
use crate::objects::{AnyDoorbell, CqOptions, FlowMeter, MeterRate, Pd, Sq, SqOptions, Tis, TransportDomain, Uar};
use crate::queue::completion::CompletionQueue;
use crate::queue::send::ethernet::EthernetSendQueue;

/// How long the card may take to write a meter. Linux waits for 10 ms.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sets flow meters of a protection domain, by work requests: see [`FlowMeters`](crate::objects::FlowMeters).
#[derive(Debug)]
pub struct MeterWriter {
    queue: EthernetSendQueue<AnyDoorbell>,
    completions: CompletionQueue,
}

impl MeterWriter {
    /// A writer for the meters of `pd`. As Linux has it: a send queue that sends no frames.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without Ethernet; [`Error::Memory`], [`Error::Command`].
    pub fn new(pd: &Arc<Pd>) -> Result<Self, Error> {
        const WQEBBS: u32 = 4;
        let uar = Uar::alloc(pd.device())?;
        let tis = Tis::create(&TransportDomain::alloc(pd.device())?, 0)?;
        let options = CqOptions::default().entries(WQEBBS).beside(pd).events();
        let completions = CompletionQueue::create(&uar, options)?;
        let mut options = SqOptions::default().wqes(WQEBBS);
        options.of_objects = true;
        let sq = Sq::create(pd, &uar, &tis, completions.cq(), options)?;
        sq.ready()?;
        Ok(MeterWriter { queue: sq.send_queue()?, completions })
    }

    /// Has `meter` hold frames to `rate` from now on; its buckets are full then. Rules go on meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a meter of another protection domain, and for a rate or a burst that no card has;
    /// [`Error::Timeout`], [`Error::InvalidResponse`] if the card does not write it: this writer is of no use then.
    pub fn set(&mut self, meter: &FlowMeter, rate: MeterRate) -> Result<(), Error> {
        if !Arc::ptr_eq(meter.pd(), self.queue.sq().pd()) {
            let requires = "a writer of the meters' protection domain";
            return Err(Invalid::Requires { what: "setting a flow meter".into(), requires }.into());
        }
        let writing = meter.writing(&rate)?;
        let failed = |why: String| Error::response("ACCESS_ASO", writing.object.into(), None, why);
        let mut batch = self.queue.batch();
        let posted = batch.write_meters(writing.object, &writing.data, writing.mask);
        posted.map_err(|error| failed(format!("an earlier one did not complete: {error}")))?;
        batch.ring();
        self.completions.wait(PATIENCE)?;
        match self.completions.poll() {
            Some(Ok(done)) => self.queue.retire(&done.work).map(drop).map_err(|error| failed(error.to_string())),
            Some(Err(error)) => Err(failed(error.to_string())),
            None => Err(Error::Timeout { what: "a flow meter".into(), limit: PATIENCE }),
        }
    }
}
