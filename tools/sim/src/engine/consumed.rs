//! What strict mode knows of the completions that software consumed. A place in a ring that is used again shows that the
//! completion of its last WQE was seen. The consumer index must not stay far behind that: Linux, libmlx5 and DPDK publish
//! it before they use a place again, or at the end of a round of polling.

use std::collections::VecDeque;

use super::completion::INDEX;
use super::{Rest, rules};

/// The completions of one ring's WQEs that are still in their places.
#[derive(Debug, Default)]
pub(crate) struct Consumed {
    /// Each WQE's place, counted from the first posted, and its completion's number.
    completions: VecDeque<(u16, u32)>,
    /// Said once.
    is_reported: bool,
}

impl Consumed {
    /// The WQE at `place` completes with the completion that is written next to the queue `cqn`.
    pub(crate) fn completes(&mut self, rest: &Rest, cqn: u32, place: u16) {
        if let Some(cq) = rest.cqs.get(cqn).filter(|_| rest.strict.is_on()) {
            self.completions.push_back((place, cq.producer));
        }
    }

    /// Everything before `posted` is in a ring of `size` places: earlier WQEs were replaced, so their completions were seen.
    pub(crate) fn posted(&mut self, rest: &Rest, cqn: u32, posted: u16, size: u32) {
        let mut seen = None;
        while let Some((place, completion)) = self.completions.front().copied()
            && u32::from(posted.wrapping_sub(place)) > size
        {
            self.completions.pop_front();
            seen = Some(completion.wrapping_add(1));
        }
        if let Some(seen) = seen.filter(|_| !self.is_reported) {
            self.is_reported = is_unpublished(rest, cqn, seen);
        }
    }
}

/// Whether the consumer index is more than half a queue behind `seen`; reports it.
fn is_unpublished(rest: &Rest, cqn: u32, seen: u32) -> bool {
    let Some(cq) = rest.cqs.get(cqn).filter(|cq| !cq.ignore_overrun && !cq.collapsed) else { return false };
    let Ok(consumer) = cq.doorbell.read(rest.dma, 0) else { return false };
    let behind = seen.wrapping_sub(consumer) & INDEX;
    // One that is ahead has its own rule.
    if consumer > INDEX || behind <= 1 << cq.log_size >> 1 || behind > INDEX / 2 {
        return false;
    }
    let rule = if consumer == 0 { rules::CI_NEVER_PUBLISHED } else { rules::CI_BEHIND };
    rest.strict.report(rule, || {
        format!("CQ {cqn:#x}: consumer index {consumer:#x}, but WQEs of {seen:#x} completions were replaced")
    });
    true
}
