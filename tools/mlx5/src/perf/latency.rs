//! Latency: one message in flight. The client sends, the server sends back. A read or an atomic needs no answer from
//! the server, which sleeps.

use hdrhistogram::Histogram;
use quanta::Clock;

use super::arguments::{Goal, Operation, Plan};
use super::report::{Latencies, Measured};
use super::test_qp::{Event, Role, TestQp};
use crate::output::Failure;

/// Longer round trips are recorded as this, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// Significant decimal digits of recorded times.
const DIGITS: u8 = 3;

/// One end of a latency test.
#[derive(Debug)]
pub struct Latency<'a> {
    qp: &'a mut TestQp,
    operation: Operation,
    role: Role,
    /// Whether this end sends first.
    is_first: bool,
    size: usize,
    /// Whether the other end sends what can be checked.
    checks: bool,
    goal: Goal,
    /// When this client stops by its clock alone, in nanoseconds since the start: perftest's server stops by its own,
    /// and leaves the last message without an answer. Before the first it prepares itself: the clock starts with it.
    stops: Option<u64>,
    /// Whether that clock runs.
    is_begun: bool,
    /// Messages posted.
    sent: u64,
    /// Messages that have completed: their buffer may be overwritten.
    left: u64,
    /// Messages received.
    came: u64,
    over: bool,
    clock: Clock,
    start: u64,
    last: u64,
    /// Nanoseconds from one post to the next.
    times: Histogram<u64>,
}

impl<'a> Latency<'a> {
    pub(super) fn new(lanes: &'a mut [TestQp], plan: &Plan, size: usize, role: Role) -> Result<Self, Failure> {
        let qp = lanes.first_mut().ok_or("no queue pair to measure with")?;
        let clock = Clock::new();
        let start = clock.raw();
        let goal = plan.agreed.amount.into();
        Ok(Latency {
            qp,
            operation: plan.agreed.operation,
            role,
            // Of writes, perftest's server sends first.
            is_first: (role == Role::Client) != (plan.perftest && plan.agreed.operation == Operation::Write),
            size,
            checks: !plan.perftest,
            goal,
            stops: match goal {
                Goal::Time { end, .. } if plan.perftest && role == Role::Client => Some(end),
                _ => None,
            },
            is_begun: false,
            sent: 0,
            left: 0,
            came: 0,
            over: false,
            clock,
            start,
            last: start,
            times: Histogram::new_with_bounds(1, LONGEST, DIGITS)?,
        })
    }

    pub(super) fn begin(&mut self) {
        self.start = self.clock.raw();
        self.last = self.start;
        self.is_begun = self.operation.fetches() || self.came > 0;
    }

    #[inline(always)]
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        let mut moved = false;
        match self.qp.poll()? {
            Some(Event::Sent(up_to)) => (self.left, moved) = (up_to, true),
            Some(Event::Received) => (self.came, moved) = (self.came + 1, true),
            None => {}
        }
        if self.operation == Operation::Write && self.awaits() {
            let came = self.qp.mark_that_came(self.size) == (self.came + 1) as u8;
            self.came += u64::from(came);
            moved |= came;
        }
        if self.stops.is_some() && self.came == 1 && !self.is_begun {
            self.begin();
        }
        if self.left == self.sent && self.may_send() {
            self.send()?;
            moved = true;
        }
        if !moved
            && self.is_begun
            && let Some(end) = self.stops
        {
            self.over |= self.clock.delta_as_nanos(self.start, self.clock.raw()) >= end;
        }
        Ok(moved)
    }

    /// Whether the other end sends next.
    #[inline(always)]
    fn awaits(&self) -> bool {
        if self.is_first { self.came < self.sent } else { self.came == self.sent }
    }

    /// Whether this end sends next: the last message was answered, or this is the first.
    #[inline(always)]
    fn may_send(&self) -> bool {
        match (self.role, self.operation.fetches()) {
            (role, true) => role == Role::Client && !self.over,
            (_, false) if self.is_first => !self.over && self.came == self.sent,
            (_, false) => self.came > self.sent,
        }
    }

    /// Sends the next message. The client first records the time of the last one, and stops if the run is over.
    #[inline(always)]
    fn send(&mut self) -> Result<(), Failure> {
        if self.role == Role::Client {
            let now = self.clock.raw();
            self.over = self.record(now);
            if self.over {
                return Ok(());
            }
            self.last = now;
        }
        self.over |= self.is_last_of_both();
        let number = self.sent;
        self.sent += 1;
        if !self.operation.fetches() {
            self.qp.mark(self.size, self.sent as u8);
        }
        self.qp.post(self.size, number..number + 1, |_| true)
    }

    /// Whether this end is about to send its last message, and need not wait for an answer: that of a client who sends
    /// second, and of a server who sends first.
    #[inline(always)]
    fn is_last_of_both(&self) -> bool {
        let is_unusual = self.is_first != (self.role == Role::Client);
        is_unusual && matches!(self.goal, Goal::Messages { all, .. } if self.sent + 1 == all)
    }

    /// Records the time of the last message, unless it was warm-up. Returns whether the run is over.
    #[inline(always)]
    fn record(&mut self, now: u64) -> bool {
        let (counts, over) = match self.goal {
            Goal::Messages { warm_up, all } => (self.sent > warm_up, self.sent == all),
            Goal::Time { from, to, end } => {
                let at = self.clock.delta_as_nanos(self.start, now);
                let is_whole = self.stops.is_none() || self.operation.fetches() || self.came > 1;
                (self.sent > 0 && is_whole && (from..to).contains(&at), at >= end)
            }
        };
        if counts {
            self.times.saturating_record(self.clock.delta_as_nanos(self.last, now));
        }
        over
    }

    pub(super) fn is_done(&self) -> bool {
        let idle = self.left == self.sent || self.stops.is_some();
        idle && (self.over || self.role == Role::Server)
    }

    /// Whether the card answers without this end.
    pub(super) fn rests(&self) -> bool {
        self.role == Role::Server && self.operation.fetches()
    }

    pub(super) fn count(&self) -> u64 {
        self.sent
    }

    /// Whether this end has had as many messages as the other end sends, and has sent as many.
    pub(super) fn has_served(&self) -> bool {
        let all = matches!(self.goal, Goal::Messages { all, .. } if self.sent == all && self.came == all);
        all && self.left == self.sent
    }

    pub(super) fn qp(&mut self) -> &mut TestQp {
        self.qp
    }

    pub(super) fn end(self) -> Result<Option<Measured>, Failure> {
        match (self.role, self.operation.fetches()) {
            _ if !self.checks => {}
            (Role::Server, true) => {}
            (Role::Client, true) => self.qp.check_fetched(self.size, Role::Server, self.sent)?,
            (role, false) => self.qp.check(self.size, role.other(), true)?,
        }
        if self.role == Role::Server {
            return Ok(None);
        }
        let ways = if self.operation.fetches() { 1 } else { 2 };
        let mut row = Latencies::of(self.size, &self.times, ways)?;
        if !self.is_first && self.role == Role::Client && self.stops.is_none() {
            // Nothing answers the last message. perftest, too, has one time less, and counts messages.
            row.iterations = self.sent;
        }
        Ok(Some(Measured::Latency(row)))
    }
}
