//! One end of the measurement of one size: a state machine, so that both ends can run on one thread.

use std::time::Duration;

use super::arguments::{Plan, Test};
use super::bandwidth::Bandwidth;
use super::latency::Latency;
use super::report::Measured;
use super::test_qp::{Role, TestQp};
use crate::output::Failure;

/// Longest sleep before an idle end checks that the other end is still there.
pub const NAP: Duration = Duration::from_millis(100);

/// One end of the measurement of one size.
#[derive(Debug)]
pub enum Run<'a> {
    /// One message in flight.
    Latency(Latency<'a>),
    /// Many messages in flight.
    Bandwidth(Bandwidth<'a>),
}

impl<'a> Run<'a> {
    /// Prepares memory; sends nothing yet. Of perftest's data none is checked, and its writes of the next size may come
    /// before this end begins it: then memory stays as it is, at first zero.
    pub fn new(qps: &'a mut [TestQp], plan: &Plan, size: usize, role: Role) -> Result<Self, Failure> {
        if !plan.perftest {
            qps.iter_mut().for_each(|qp| qp.prepare(size, role));
        }
        match plan.agreed.test {
            Test::Lat => Ok(Run::Latency(Latency::new(qps, plan, size, role)?)),
            Test::Bw | Test::Rate => Ok(Run::Bandwidth(Bandwidth::new(qps, plan, size, role))),
        }
    }

    /// Starts the clock again: the other end begins now.
    pub fn begin(&mut self) {
        match self {
            Run::Latency(latency) => latency.begin(),
            Run::Bandwidth(bandwidth) => bandwidth.begin(),
        }
    }

    /// Polls and posts without waiting; returns false if there was nothing to do.
    #[inline(always)]
    pub fn turn(&mut self) -> Result<bool, Failure> {
        match self {
            Run::Latency(latency) => latency.turn(),
            Run::Bandwidth(bandwidth) => bandwidth.turn(),
        }
    }

    /// Whether this end has sent all it has to, and all of it has completed.
    #[inline(always)]
    pub fn is_done(&self) -> bool {
        match self {
            Run::Latency(latency) => latency.is_done(),
            Run::Bandwidth(bandwidth) => bandwidth.is_done(),
        }
    }

    /// Whether this end only waits: its card answers alone.
    #[inline(always)]
    pub fn rests(&self) -> bool {
        match self {
            Run::Latency(latency) => latency.rests(),
            Run::Bandwidth(bandwidth) => bandwidth.rests(),
        }
    }

    /// Whether this end, a server, has had all messages of the client, and answered those that ask for it. For what
    /// the card does alone, never.
    pub fn has_served(&self) -> bool {
        match self {
            Run::Latency(latency) => latency.has_served(),
            Run::Bandwidth(bandwidth) => bandwidth.has_served(),
        }
    }

    /// Messages so far, for the progress bar.
    pub fn count(&self) -> u64 {
        match self {
            Run::Latency(latency) => latency.count(),
            Run::Bandwidth(bandwidth) => bandwidth.count(),
        }
    }

    /// Sleeps until a completion arrives, at most `limit`.
    pub fn sleep(&mut self, limit: Duration) -> Result<(), Failure> {
        match self {
            Run::Latency(latency) => latency.qp().sleep(limit),
            Run::Bandwidth(bandwidth) => bandwidth.qps().first_mut().map_or(Ok(()), |qp| qp.sleep(limit)),
        }
    }

    /// Checks the received data byte for byte. Returns the result, if this end measured.
    pub fn end(self) -> Result<Option<Measured>, Failure> {
        match self {
            Run::Latency(latency) => latency.end(),
            Run::Bandwidth(bandwidth) => bandwidth.end(),
        }
    }
}
