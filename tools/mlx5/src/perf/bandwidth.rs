//! Bandwidth and message rate: many messages in flight, from one end or from both.

use quanta::Clock;

use super::arguments::{Goal, Operation, Plan};
use super::report::{Bandwidths, Measured};
use super::test_qp::{Event, Role, TestQp};
use crate::output::Failure;

/// Completions polled from one queue pair before the next one.
const AT_ONCE: usize = 16;

/// Messages that a queue pair has posted, and those that have completed.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    posted: u64,
    left: u64,
}

/// One end of a bandwidth test.
#[derive(Debug)]
pub struct Bandwidth<'a> {
    qps: &'a mut [TestQp],
    operation: Operation,
    role: Role,
    /// Whether this end sends.
    sends: bool,
    /// Whether the other end sends.
    hears: bool,
    size: usize,
    tx_depth: u64,
    post_list: u64,
    cq_mod: u64,
    goal: Goal,
    progress: Vec<Progress>,
    /// Sends that have arrived.
    came: u64,
    /// Whether the other end sends what can be checked.
    checks: bool,
    /// All warm-up messages have completed: counting starts with empty queues.
    warm: bool,
    /// Runs for a time with perftest's end.
    timed: bool,
    /// perftest's end stops by its own clock, and this one by its clock alone: what is in flight may never complete.
    stops: bool,
    /// What comes is measured, too: neither end tells the other what it has sent.
    measures_both: bool,
    /// Time is up: only messages up to the next signaled one are still posted.
    over: bool,
    timing: Timing,
}

impl<'a> Bandwidth<'a> {
    pub(super) fn new(qps: &'a mut [TestQp], plan: &Plan, size: usize, role: Role) -> Self {
        let goal = Goal::from(plan.agreed.amount);
        let sends = role == Role::Client || plan.agreed.both_ways;
        let count = qps.len();
        let operation = plan.agreed.operation;
        let timed = plan.perftest && matches!(goal, Goal::Time { .. });
        let stops = timed && operation == Operation::Send;
        Bandwidth {
            operation,
            role,
            sends,
            hears: role == Role::Server || plan.agreed.both_ways,
            size,
            tx_depth: plan.tx_depth,
            post_list: plan.post_list,
            cq_mod: plan.cq_mod(size),
            goal,
            progress: vec![Progress::default(); count],
            came: 0,
            checks: !plan.perftest,
            warm: !matches!(goal, Goal::Messages { warm_up: 1.., .. }),
            timed,
            stops,
            measures_both: stops && plan.agreed.both_ways,
            over: false,
            timing: Timing::new(goal, count, sends && plan.looks_for_peak()),
            qps,
        }
    }

    pub(super) fn begin(&mut self) {
        self.timing.begin();
    }

    #[inline(always)]
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        let mut moved = false;
        for qp in 0..self.qps.len() {
            if self.sends {
                moved |= self.post(qp)?;
            }
            moved |= self.poll(qp)?;
        }
        if !self.warm {
            self.warm = self.progress.iter().all(|one| one.left == self.target(*one));
        }
        if !moved && self.stops {
            self.over |= self.timing.is_over();
        }
        Ok(moved)
    }

    /// Messages that the queue pair must have posted to be done.
    #[inline(always)]
    fn target(&self, progress: Progress) -> u64 {
        match self.goal {
            Goal::Messages { warm_up, .. } if !self.warm => warm_up,
            Goal::Messages { all, .. } => all,
            // Up to the next signaled message.
            Goal::Time { .. } if self.over => progress.posted.next_multiple_of(self.cq_mod),
            Goal::Time { .. } => u64::MAX,
        }
    }

    #[inline(always)]
    fn post(&mut self, qp: usize) -> Result<bool, Failure> {
        let mut moved = false;
        loop {
            let progress = self.progress[qp];
            let target = self.target(progress);
            let list = self.post_list.min(target - progress.posted);
            let room = progress.left + self.tx_depth - progress.posted;
            // Without a signaled message nothing leaves: then what there is room for is posted, up to the next one.
            let is_signaled = progress.posted / self.cq_mod > progress.left / self.cq_mod;
            let list = if is_signaled { list } else { list.min(room) };
            if list == 0 || list > room {
                return Ok(moved);
            }
            self.timing.posting(progress.posted);
            let (cq_mod, end) = (self.cq_mod, progress.posted + list);
            let signal = |number: u64| (number + 1).is_multiple_of(cq_mod) || number + 1 == target;
            self.qps[qp].post(self.size, progress.posted..end, signal)?;
            self.progress[qp].posted = end;
            moved = true;
        }
    }

    #[inline(always)]
    fn poll(&mut self, qp: usize) -> Result<bool, Failure> {
        for taken in 0..AT_ONCE {
            match self.qps[qp].poll()? {
                None => return Ok(taken > 0),
                Some(Event::Received) => {
                    self.came += 1;
                    if self.measures_both {
                        self.over |= self.timing.left(0, 1);
                    }
                }
                Some(Event::Sent(up_to)) => {
                    let before = std::mem::replace(&mut self.progress[qp].left, up_to);
                    self.over |= self.timing.left(before, up_to);
                }
            }
        }
        Ok(true)
    }

    pub(super) fn is_done(&self) -> bool {
        !self.sends
            || self.stops && self.over
            || self.warm && self.progress.iter().all(|one| one.left == one.posted && one.posted == self.target(*one))
    }

    /// Whether only the card still has work: the other end sends nothing that this end must post receives for.
    pub(super) fn rests(&self) -> bool {
        self.is_done() && !(self.hears && self.operation == Operation::Send)
    }

    /// Whether as many messages have arrived as the other end sends.
    pub(super) fn has_served(&self) -> bool {
        matches!(self.goal, Goal::Messages { all, .. } if self.came == all * self.qps.len() as u64)
    }

    pub(super) fn count(&self) -> u64 {
        self.progress.iter().map(|one| one.left).sum()
    }

    pub(super) fn qps(&mut self) -> &mut [TestQp] {
        self.qps
    }

    pub(super) fn end(self) -> Result<Option<Measured>, Failure> {
        let (size, from) = (self.size, self.role.other());
        for (qp, progress) in self.qps.iter().zip(&self.progress) {
            match self.operation.fetches() {
                _ if !self.checks => {}
                true if self.sends => qp.check_fetched(size, from, progress.posted)?,
                false if self.hears => qp.check(size, from, false)?,
                _ => {}
            }
        }
        if self.sends && self.timed && self.timing.counted == 0 {
            return Err("no message was measured: give both ends the same -D and -f, and more time".into());
        }
        Ok(self.sends.then(|| Measured::Bandwidth(self.timing.rates(self.size))))
    }
}

/// When messages were posted, and when they completed.
#[derive(Debug)]
struct Timing {
    clock: Clock,
    goal: Goal,
    qps: u64,
    start: u64,
    /// The first counted post, and the last completion.
    first: Option<u64>,
    last: u64,
    /// Counted messages that have completed.
    counted: u64,
    /// For the peak: when each counted message was posted, and when it completed.
    posted: Vec<u64>,
    completed: Vec<u64>,
}

impl Timing {
    fn new(goal: Goal, qps: usize, peak: bool) -> Self {
        let clock = Clock::new();
        let start = clock.raw();
        let stamps = match goal {
            Goal::Messages { warm_up, all } if peak => (all - warm_up) as usize,
            _ => 0,
        };
        let (posted, completed) = (vec![0; stamps], vec![0; stamps]);
        Timing { clock, goal, qps: qps as u64, start, first: None, last: start, counted: 0, posted, completed }
    }

    /// Starts the clock again.
    fn begin(&mut self) {
        self.start = self.clock.raw();
        self.last = self.start;
    }

    /// Whether the time of a timed run is up.
    fn is_over(&self) -> bool {
        matches!(self.goal, Goal::Time { end, .. }
            if self.clock.delta_as_nanos(self.start, self.clock.raw()) >= end)
    }

    /// Records that message `number` and maybe more are about to be posted. Timed runs look at completions alone.
    #[inline(always)]
    fn posting(&mut self, number: u64) {
        let Goal::Messages { warm_up, .. } = self.goal else { return };
        let Some(counted) = number.checked_sub(warm_up) else { return };
        if self.first.is_none() || !self.posted.is_empty() {
            let now = self.clock.raw();
            self.first.get_or_insert(now);
            if let Some(stamp) = self.posted.get_mut(counted as usize) {
                *stamp = now;
            }
        }
    }

    /// Records that messages `before..up_to` have completed, or that as many have come. Returns whether time is up.
    #[inline(always)]
    fn left(&mut self, before: u64, up_to: u64) -> bool {
        let now = self.clock.raw();
        match self.goal {
            Goal::Messages { warm_up, .. } => {
                self.counted += up_to.saturating_sub(warm_up) - before.saturating_sub(warm_up);
                self.last = now;
                let stamp = up_to.checked_sub(warm_up + 1).and_then(|at| self.completed.get_mut(at as usize));
                if let Some(stamp) = stamp {
                    *stamp = now;
                }
                false
            }
            Goal::Time { from, to, end } => {
                let at = self.clock.delta_as_nanos(self.start, now);
                if (from..to).contains(&at) {
                    self.counted += if self.first.is_some() { up_to - before } else { 0 };
                    self.first.get_or_insert(now);
                    self.last = now;
                }
                at >= end
            }
        }
    }

    fn rates(&self, size: usize) -> Bandwidths {
        let nanos = self.clock.delta_as_nanos(self.first.unwrap_or(self.start), self.last).max(1);
        let per_second = self.counted as f64 / (nanos as f64 / 1e9);
        let peak = self.least_nanos().map(|least| 1e9 / least);
        // A timed run has no number of iterations per queue pair.
        let iterations = if matches!(self.goal, Goal::Time { .. }) { self.counted } else { self.counted / self.qps };
        Bandwidths::of(size, iterations, per_second, peak)
    }

    /// perftest's peak: the shortest time per message, over all spans from a post to a completion.
    fn least_nanos(&self) -> Option<f64> {
        let stamps = |stamps: &[u64]| -> Vec<(usize, u64)> {
            stamps.iter().copied().enumerate().filter(|(_, stamp)| *stamp != 0).collect()
        };
        let (posted, completed) = (stamps(&self.posted), stamps(&self.completed));
        let least = completed.iter().flat_map(|&(last, end)| {
            let begun = posted.iter().take_while(move |(first, _)| *first <= last);
            begun.map(move |&(first, start)| end.saturating_sub(start) as f64 / (last - first + 1) as f64)
        });
        let least = least.min_by(f64::total_cmp).filter(|least| *least > 0.0)?;
        // The clock's unit in nanoseconds, from a span long enough for precision.
        const LONG: u64 = 1 << 40;
        Some(least * self.clock.delta_as_nanos(0, LONG) as f64 / LONG as f64)
    }
}
