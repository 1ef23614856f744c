//! What one end does while a size is measured: a state machine, so that both ends may take turns on one thread.

use std::time::Duration;

use super::arguments::{Amount, Plan, Test};
use super::bandwidth::Bandwidth;
use super::lane::{Lane, Role};
use super::latency::Latency;
use super::report::Measured;
use crate::Failure;

/// When an end that begins messages stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// After so many messages, of which the first ones do not count.
    Messages {
        /// Those that do not count.
        warm_up: u64,
        /// All.
        all: u64,
    },
    /// By the clock, in nanoseconds since the start.
    Time {
        /// What counts begins.
        from: u64,
        /// What counts ends.
        to: u64,
        /// All ends.
        end: u64,
    },
}

impl From<Amount> for Goal {
    fn from(amount: Amount) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match amount {
            Amount::Messages { warm_up, counted } => Goal::Messages { warm_up, all: warm_up + counted },
            Amount::Time { total, margin } => {
                Goal::Time { from: nanos(margin), to: nanos(total - margin), end: nanos(total) }
            }
        }
    }
}

/// One end's part in the measurement of one size.
#[derive(Debug)]
pub enum Play<'a> {
    /// One message under way.
    Latency(Latency<'a>),
    /// Many.
    Bandwidth(Bandwidth<'a>),
}

impl<'a> Play<'a> {
    /// Memory is made ready; nothing is sent yet.
    pub fn new(lanes: &'a mut [Lane], plan: &Plan, size: usize, role: Role) -> Result<Self, Failure> {
        lanes.iter_mut().for_each(|lane| lane.prepare(size, role));
        match plan.agreed.test {
            Test::Lat => Ok(Play::Latency(Latency::new(lanes, plan, size, role)?)),
            Test::Bw | Test::Rate => Ok(Play::Bandwidth(Bandwidth::new(lanes, plan, size, role))),
        }
    }

    /// Does what can be done at once; false if that was nothing.
    #[inline(always)]
    pub fn turn(&mut self) -> Result<bool, Failure> {
        match self {
            Play::Latency(latency) => latency.turn(),
            Play::Bandwidth(bandwidth) => bandwidth.turn(),
        }
    }

    /// Whether all that this end was to begin is done, and nothing of its is under way.
    #[inline(always)]
    pub fn is_done(&self) -> bool {
        match self {
            Play::Latency(latency) => latency.is_done(),
            Play::Bandwidth(bandwidth) => bandwidth.is_done(),
        }
    }

    /// Whether this end has nothing to do but to wait: its card answers alone.
    #[inline(always)]
    pub fn rests(&self) -> bool {
        match self {
            Play::Latency(latency) => latency.rests(),
            Play::Bandwidth(bandwidth) => bandwidth.rests(),
        }
    }

    /// Messages so far, for those who watch.
    pub fn count(&self) -> u64 {
        match self {
            Play::Latency(latency) => latency.count(),
            Play::Bandwidth(bandwidth) => bandwidth.count(),
        }
    }

    /// Sleeps until there is a completion, or the time is over.
    pub fn sleep(&mut self, limit: Duration) -> Result<(), Failure> {
        match self {
            Play::Latency(latency) => latency.lane().sleep(limit),
            Play::Bandwidth(bandwidth) => bandwidth.lanes().first_mut().map_or(Ok(()), |lane| lane.sleep(limit)),
        }
    }

    /// Ends it: checks what came, byte for byte. What was measured, if this end measured.
    pub fn end(self) -> Result<Option<Measured>, Failure> {
        match self {
            Play::Latency(latency) => latency.end(),
            Play::Bandwidth(bandwidth) => bandwidth.end(),
        }
    }
}
