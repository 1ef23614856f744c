//! Strict mode: completions that software has consumed. Reusing a WQE's place in the ring shows that software has seen
//! its completion. The consumer index must not stay far behind: Linux, libmlx5 and DPDK publish it before they reuse a
//! place, or at the end of each poll. PRM "Completion Queues".

use crate::function::Nic;
use crate::objects::{Consumed, Cq};
use crate::strict::rules;

impl Consumed {
    /// The WQE at `place` completes with the next CQE of the queue `cqn`.
    pub(crate) fn completes(&mut self, nic: &Nic, cqn: u32, place: u16) {
        if let Some(cq) = nic.objects.cqs.get(cqn).filter(|_| nic.strict.is_on()) {
            self.completions.push_back((place, cq.producer));
        }
    }

    /// WQEs up to `posted` are in a ring of `size` places. Older WQEs were overwritten, so their completions were seen.
    pub(crate) fn posted(&mut self, nic: &Nic, cqn: u32, posted: u16, size: u32) {
        let mut seen = None;
        while let Some((place, completion)) = self.completions.front().copied()
            && u32::from(posted.wrapping_sub(place)) > size
        {
            self.completions.pop_front();
            seen = Some(completion.wrapping_add(1));
        }
        if let Some(seen) = seen.filter(|_| !self.is_reported) {
            self.is_reported = is_unpublished(nic, cqn, seen);
        }
    }
}

/// Whether the consumer index is more than half a queue behind `seen`; reports it.
fn is_unpublished(nic: &Nic, cqn: u32, seen: u32) -> bool {
    let Some(cq) = nic.objects.cqs.get(cqn).filter(|cq| !cq.ignore_overrun && !cq.collapsed) else { return false };
    let Ok(consumer) = cq.doorbell.peek(&nic.dma, 0) else { return false };
    // Of the indices that have its low bits, the one that the ring has not gone beyond.
    let unread = cq.unread_by(consumer);
    let behind = seen.wrapping_sub(cq.producer.wrapping_sub(unread));
    let (half, is_ahead) = (1 << cq.log_size >> 1, i32::try_from(behind).is_err());
    // A consumer index that no completion has reached has a rule of its own.
    if consumer > Cq::INDEX || unread > 1 << cq.log_size || is_ahead || behind <= half {
        return false;
    }
    let rule = if consumer == 0 { rules::CI_NEVER_PUBLISHED } else { rules::CI_BEHIND };
    nic.strict.report(rule, || {
        format!("CQ {cqn:#x}: consumer index {consumer:#x}, but WQEs of {seen:#x} completions were replaced")
    });
    true
}
