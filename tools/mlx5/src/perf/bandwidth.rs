//! Many messages under way, from one end or from both.

use quanta::Clock;

use super::arguments::{Operation, Plan};
use super::lane::{Event, Lane, Role};
use super::play::Goal;
use super::report::{Bandwidths, Measured};
use crate::Failure;

/// Completions taken of one queue pair before the next one's turn.
const AT_ONCE: usize = 16;

/// What a queue pair has done.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    posted: u64,
    left: u64,
}

/// One end of it.
#[derive(Debug)]
pub struct Bandwidth<'a> {
    lanes: &'a mut [Lane],
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
    /// All that does not count has left: what counts begins with empty queues.
    warm: bool,
    /// Time is up: only what is needed to complete all is posted still.
    over: bool,
    timing: Timing,
}

impl<'a> Bandwidth<'a> {
    pub(super) fn new(lanes: &'a mut [Lane], plan: &Plan, size: usize, role: Role) -> Self {
        let goal = Goal::from(plan.agreed.amount);
        let sends = role == Role::Client || plan.agreed.both_ways;
        let qps = lanes.len();
        Bandwidth {
            operation: plan.agreed.operation,
            role,
            sends,
            hears: role == Role::Server || plan.agreed.both_ways,
            size,
            tx_depth: plan.tx_depth,
            post_list: plan.post_list,
            cq_mod: plan.cq_mod(size),
            goal,
            progress: vec![Progress::default(); qps],
            warm: !matches!(goal, Goal::Messages { warm_up: 1.., .. }),
            over: false,
            timing: Timing::new(goal, qps, sends && plan.looks_for_peak()),
            lanes,
        }
    }

    #[inline(always)]
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        let mut moved = false;
        for lane in 0..self.lanes.len() {
            if self.sends {
                moved |= self.post(lane)?;
            }
            moved |= self.poll(lane)?;
        }
        if !self.warm {
            self.warm = self.progress.iter().all(|one| one.left == self.target(*one));
        }
        Ok(moved)
    }

    /// Messages that the queue pair is to have posted before it is done.
    #[inline(always)]
    fn target(&self, progress: Progress) -> u64 {
        match self.goal {
            Goal::Messages { warm_up, .. } if !self.warm => warm_up,
            Goal::Messages { all, .. } => all,
            // As far as the next message that completes.
            Goal::Time { .. } if self.over => progress.posted.next_multiple_of(self.cq_mod),
            Goal::Time { .. } => u64::MAX,
        }
    }

    #[inline(always)]
    fn post(&mut self, lane: usize) -> Result<bool, Failure> {
        let mut moved = false;
        loop {
            let progress = self.progress[lane];
            let target = self.target(progress);
            let list = self.post_list.min(target - progress.posted);
            if list == 0 || progress.posted + list > progress.left + self.tx_depth {
                return Ok(moved);
            }
            self.timing.posting(progress.posted);
            let (cq_mod, end) = (self.cq_mod, progress.posted + list);
            let signal = |number: u64| (number + 1).is_multiple_of(cq_mod) || number + 1 == target;
            self.lanes[lane].post(self.size, progress.posted..end, signal)?;
            self.progress[lane].posted = end;
            moved = true;
        }
    }

    #[inline(always)]
    fn poll(&mut self, lane: usize) -> Result<bool, Failure> {
        for taken in 0..AT_ONCE {
            match self.lanes[lane].poll()? {
                None => return Ok(taken > 0),
                Some(Event::Received) => {}
                Some(Event::Sent(up_to)) => {
                    let before = std::mem::replace(&mut self.progress[lane].left, up_to);
                    self.over |= self.timing.left(before, up_to);
                }
            }
        }
        Ok(true)
    }

    pub(super) fn is_done(&self) -> bool {
        !self.sends
            || self.warm && self.progress.iter().all(|one| one.left == one.posted && one.posted == self.target(*one))
    }

    /// Whether it is for the card alone to answer what still comes.
    pub(super) fn rests(&self) -> bool {
        self.is_done() && !(self.hears && self.operation == Operation::Send)
    }

    pub(super) fn count(&self) -> u64 {
        self.progress.iter().map(|one| one.left).sum()
    }

    pub(super) fn lanes(&mut self) -> &mut [Lane] {
        self.lanes
    }

    pub(super) fn end(self) -> Result<Option<Measured>, Failure> {
        let (size, from) = (self.size, self.role.other());
        for (lane, progress) in self.lanes.iter().zip(&self.progress) {
            match self.operation.fetches() {
                true if self.sends => lane.check_fetched(size, from, progress.posted)?,
                false if self.hears => lane.check(size, from, false)?,
                _ => {}
            }
        }
        Ok(self.sends.then(|| Measured::Bandwidth(self.timing.rates(self.size))))
    }
}

/// When what was posted, and when it had left.
#[derive(Debug)]
struct Timing {
    clock: Clock,
    goal: Goal,
    qps: u64,
    start: u64,
    /// The first post that counts, and the last completion.
    first: Option<u64>,
    last: u64,
    /// Messages that count and have left.
    counted: u64,
    /// Of each counted message, where the peak is looked for: when it was posted, and when it had left.
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

    /// Message `number`, and maybe more, are about to be posted. Where time is what ends it, completions alone are looked at.
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

    /// Messages `before` to `up_to`, not included, have left. Whether time is up.
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
        // In time there is no number of messages to ask each queue pair for.
        let iterations = if matches!(self.goal, Goal::Time { .. }) { self.counted } else { self.counted / self.qps };
        Bandwidths::of(size, iterations, per_second, peak)
    }

    /// The shortest time a message, over all stretches from a post to a completion: perftest's peak.
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
        // The clock's unit in nanoseconds, of a stretch long enough to tell.
        const LONG: u64 = 1 << 40;
        Some(least * self.clock.delta_as_nanos(0, LONG) as f64 / LONG as f64)
    }
}
