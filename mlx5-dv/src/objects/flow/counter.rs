//! Flow counters.

use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{AllocFlowCounterIn, DeallocFlowCounterIn, QueryFlowCounterIn, WithTail};
use mlx5_prm::ctx::TrafficCounter;
use mlx5_prm::layout::Layout;

use crate::access::ObjectHandle;
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{Error, Invalid};
use crate::objects::check::in_range;
use crate::objects::object::{DestroyError, Object, destroy_sole};

/// Counters of a bulk whose `flow_counter_bulk` is 1.
const UNIT: u32 = 128;
/// Most counters that are read by one command: 16 KiB of output.
const AT_ONCE: u32 = 1024;

/// What a flow counter counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Frames.
    pub packets: u64,
    /// Their bytes, from the destination MAC address to the end of the payload.
    pub bytes: u64,
}

/// Flow counters that were made at once, and are read at once. PRM "ALLOC_FLOW_COUNTER".
#[derive(Debug)]
pub struct FlowCounters {
    /// `flow_counter_id` of the first.
    first: u32,
    len: u32,
    object: Object,
}

/// One flow counter: rules that [count](super::actions::FlowActions::count) on it add their frames. Several rules may
/// share it. `ibv_counters` of libibverbs.
#[derive(Debug, Clone)]
pub struct FlowCounter {
    index: u32,
    counters: Arc<FlowCounters>,
}

impl FlowCounters {
    /// Makes at least `count` counters, of value 0: one, or a multiple of 128.
    ///
    /// # Errors
    /// [`Error::Invalid`] for none, and for more than the card makes at once (`flow_counter_bulk_alloc`);
    /// [`Error::Command`].
    pub fn create(device: &Arc<Device>, count: u32) -> Result<Arc<Self>, Error> {
        let general: CmdHcaCap = device.caps().current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
        let units = general.flow_counter_bulk_alloc();
        let most = if units == 0 { 1 } else { UNIT * u32::from(units) };
        in_range("count", count.into(), 1..=most.into(), "flow_counter_bulk_alloc")?;
        let (mut create, mut len) = (AllocFlowCounterIn::default(), 1);
        if count > 1 {
            let bulk = least_within(count.div_ceil(UNIT) as u8, units);
            len = UNIT * u32::from(bulk);
            create.w().flow_counter_bulk(bulk);
        }
        let (object, out) = Object::create(device, &create, "a flow counter", |out| {
            let mut end = DeallocFlowCounterIn::default();
            end.w().flow_counter_id(out.flow_counter_id());
            (end, format!("flow counter {:#x}", out.flow_counter_id()))
        })?;
        let first = out.flow_counter_id();
        if first.checked_add(len).is_none() {
            return Err(Error::response("flow_counter_id", first.into(), None, format!("the first of {len}")));
        }
        Ok(Arc::new(FlowCounters { first, len, object }))
    }

    /// Number of counters.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The counter of index `index`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer.
    pub fn counter(self: &Arc<Self>, index: u32) -> Result<FlowCounter, Error> {
        let last = self.len - 1;
        if index > last {
            return Err(Invalid::out_of_range("index", index.into(), 0..=last.into(), "these counters").into());
        }
        Ok(FlowCounter { index, counters: Arc::clone(self) })
    }

    /// Reads all counters, by their index. PRM "QUERY_FLOW_COUNTER".
    pub fn read(&self) -> Result<Vec<Counted>, Error> {
        let mut all = Vec::with_capacity(self.len as usize);
        for start in (0..self.len).step_by(AT_ONCE as usize) {
            all.extend(self.query(start, AT_ONCE.min(self.len - start), false)?);
        }
        Ok(all)
    }

    fn query(&self, index: u32, count: u32, clear: bool) -> Result<Vec<Counted>, Error> {
        let mut query = QueryFlowCounterIn::default();
        // 0 means one, without a range.
        let range = if count == 1 { 0 } else { count as u16 };
        query.w().flow_counter_id(self.first + index).num_of_counters(range).clear(clear);
        let mut query: WithTail<_, TrafficCounter> = WithTail::new(query, Vec::new());
        query.out_tail = count as usize;
        let reply = self.object.query(&query)?;
        let counters = reply.tail.chunks_exact(TrafficCounter::SIZE).filter_map(TrafficCounter::read);
        Ok(counters.map(|counter| Counted { packets: counter.packets(), bytes: counter.octets() }).collect())
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Destroys the counters. Rules that count on them must be deleted first. On an error the counters stay alive and
    /// are returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |counters| counters.object.destroy())
    }
}

/// The least number from `wanted` on that has no bits but those of `allowed`, which is one itself.
fn least_within(wanted: u8, allowed: u8) -> u8 {
    (wanted..allowed).find(|units| units & !allowed == 0).unwrap_or(allowed)
}

impl FlowCounter {
    /// Makes one counter, of value 0.
    pub fn create(device: &Arc<Device>) -> Result<Self, Error> {
        Ok(FlowCounter { index: 0, counters: FlowCounters::create(device, 1)? })
    }

    /// Reads it.
    pub fn read(&self) -> Result<Counted, Error> {
        self.query(false)
    }

    /// Reads it, and sets it to 0: no frame is left out.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Command`].
    pub fn take(&self) -> Result<Counted, Error> {
        self.query(true)
    }

    fn query(&self, clear: bool) -> Result<Counted, Error> {
        Ok(self.counters.query(self.index, 1, clear)?.first().copied().unwrap_or_default())
    }

    /// Its index in [`counters`](Self::counters).
    pub fn index(&self) -> u32 {
        self.index
    }

    /// What it is one of.
    pub fn counters(&self) -> &Arc<FlowCounters> {
        &self.counters
    }

    /// `flow_counter_id`.
    pub fn flow_counter_id(&self) -> u32 {
        self.counters.first + self.index
    }

    /// The access's handle of what it is one of.
    pub(super) fn handle(&self) -> ObjectHandle {
        self.counters.object.handle()
    }
}

/// Finds rules that matched no frame for some time, by their counters.
///
/// The card keeps no time of a rule's last frame; [`FlowAging::idle`] compares with what the counters were before. So
/// an age is as exact as the calls are often.
#[derive(Debug)]
pub struct FlowAging {
    counters: Arc<FlowCounters>,
    /// By index: packets, and when that number was seen first.
    seen: Vec<(u64, Duration)>,
    limit: Duration,
}

impl FlowAging {
    /// Watches `counters`: one that does not change for `limit` is idle.
    pub fn new(counters: &Arc<FlowCounters>, limit: Duration) -> Result<Self, Error> {
        let now = counters.device().clock().now();
        let seen = counters.read()?.into_iter().map(|counted| (counted.packets, now)).collect();
        Ok(FlowAging { counters: Arc::clone(counters), seen, limit })
    }

    /// Starts the time of the counter of index `index` anew, for a new rule that counts on it.
    pub fn touch(&mut self, index: u32) {
        if let Some(seen) = self.seen.get_mut(index as usize) {
            seen.1 = self.counters.device().clock().now();
        }
    }

    /// Reads the counters; the indices of those that are idle, lowest first. One that stays idle is named each time.
    pub fn idle(&mut self) -> Result<Vec<u32>, Error> {
        let counted = self.counters.read()?;
        let now = self.counters.device().clock().now();
        let mut idle = Vec::new();
        for ((index, counted), (packets, since)) in (0..).zip(counted).zip(&mut self.seen) {
            if counted.packets != *packets {
                (*packets, *since) = (counted.packets, now);
            } else if now.saturating_sub(*since) >= self.limit {
                idle.push(index);
            }
        }
        Ok(idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bulk_is_the_least_that_the_card_makes() {
        assert_eq!([1, 2, 3, 15].map(|wanted| least_within(wanted, 0xf)), [1, 2, 3, 15]);
        assert_eq!([1, 2, 4, 5, 7].map(|wanted| least_within(wanted, 0b1010)), [2, 2, 8, 8, 8]);
        assert_eq!(least_within(9, 0b1010), 10);
    }
}
