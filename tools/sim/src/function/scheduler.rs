//! Work lists: queue pairs with packets to send, pending acknowledgements, timers, or errors.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Instant;

use super::packet_pool::PacketPool;
use super::page_faults::PageFaults;
use crate::objects::{Buffer, GSI_QPN, Holder, Qp, Sq};

/// Scheduling state of one function.
#[derive(Debug, Default)]
pub struct Scheduler {
    /// Queue pairs ready to send, in order.
    pub(crate) ready: VecDeque<u32>,
    /// Queue pairs with a pending acknowledgement.
    pub(crate) acking: Vec<u32>,
    /// Queue pairs with a timer.
    pub(crate) timed: Vec<u32>,
    /// No timer expires before.
    pub(crate) earliest: Option<Instant>,
    /// Queue pairs whose completions could not be written.
    pub(crate) broken: Vec<u32>,
    /// Queue pairs in error.
    watched: BTreeSet<u32>,
    /// The one of `watched` to look at next, or the first after it.
    next_watched: u32,
    /// UAR pages whose queues must be checked for overwritten doorbells.
    pub(crate) rung: Vec<u32>,
    /// The GSI queue pair.
    pub(crate) gsi: Option<u32>,
    /// Queues by the UAR page of their doorbell.
    users: BTreeMap<u32, Users>,
    pub(crate) packets: PacketPool,
    /// Receive buffers owned by the card.
    pub(crate) held: Held,
    /// Send queues ready to send, in order.
    pub(crate) senders: VecDeque<u32>,
    /// Completion queues that hold completions to compress.
    pub(crate) compressing: Vec<u32>,
    /// Number of the last connection with a target.
    pub(crate) connections: u32,
    /// Initiators with work of their streams that ended, or that went into error.
    pub(crate) streaming: BTreeSet<u32>,
    /// Queue pairs that wait for pages.
    pub(crate) page_faults: PageFaults,
    /// Send queues that their rate limit holds back, or that wait for a time, and until when.
    pub(crate) paced: Vec<(Instant, u32)>,
    /// Completion queues whose event is held back by moderation, and until when.
    pub(crate) moderated: Vec<(Instant, u32)>,
    /// Receive queues with segments that wait for more to be joined to, and until when.
    pub(crate) joining: Vec<(Instant, u32)>,
}

#[derive(Debug, Default)]
struct Users {
    qps: BTreeSet<u32>,
    /// The queue pair of `qps` checked last, and how many are still to check.
    seen: u32,
    unseen: usize,
    cqs: BTreeSet<u32>,
}

impl Scheduler {
    /// The queue pair for packets to `qpn`: QP 1 of the wire is the GSI queue pair.
    pub(crate) fn destination(&self, qpn: u32) -> u32 {
        if qpn == GSI_QPN { self.gsi.unwrap_or(qpn) } else { qpn }
    }

    /// The queue pair is ready to send.
    pub(crate) fn set_ready(&mut self, qp: &mut Qp) {
        if !std::mem::replace(&mut qp.rc.is_ready, true) {
            self.ready.push_back(qp.scheduled());
        }
    }

    /// The send queue is ready to send.
    pub(crate) fn set_sender(&mut self, sq: &mut Sq) {
        if !std::mem::replace(&mut sq.is_listed, true) {
            self.senders.push_back(sq.sqn);
        }
    }

    /// The send queue waits for its rate limit, or for a time, until `at`.
    pub(crate) fn set_paced(&mut self, sq: &mut Sq, at: Instant) {
        self.unset_paced(sq);
        sq.pace.until = Some(at);
        self.paced.push((at, sq.sqn));
    }

    /// The send queue waits for neither any more.
    pub(crate) fn unset_paced(&mut self, sq: &mut Sq) {
        if sq.pace.until.take().is_some() {
            self.paced.retain(|(_, other)| *other != sq.sqn);
        }
    }

    /// The receive queue waits for no segment any more.
    pub(crate) fn unset_joining(&mut self, rqn: u32) {
        self.joining.retain(|(_, other)| *other != rqn);
    }

    /// The queue pair has a pending acknowledgement.
    pub(crate) fn set_acking(&mut self, qp: &mut Qp) {
        if !std::mem::replace(&mut qp.rc.is_acking, true) {
            self.acking.push(qp.scheduled());
        }
    }

    /// Sets a timer of the queue pair.
    pub(crate) fn set_timer(&mut self, qp: &mut Qp, at: Instant) {
        if !std::mem::replace(&mut qp.rc.is_timed, true) {
            self.timed.push(qp.scheduled());
        }
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }

    /// A completion of the queue pair could not be written.
    pub(crate) fn break_later(&mut self, qpn: u32) {
        if !self.broken.contains(&qpn) {
            self.broken.push(qpn);
        }
    }

    /// The queue pair is in error: WQEs posted to it are flushed.
    pub(crate) fn watch(&mut self, qpn: u32) {
        self.watched.insert(qpn);
    }

    /// The next queue pairs in error to look at, at most `most`; each has its turn.
    pub(crate) fn next_watched(&mut self, most: usize) -> Vec<u32> {
        let from = self.next_watched;
        let next: Vec<u32> = self.watched.range(from..).chain(self.watched.range(..from)).take(most).copied().collect();
        self.next_watched = next.last().map_or(0, |last| last + 1);
        next
    }

    /// The queue pair is not in error any more, or cannot be looked at.
    pub(crate) fn unwatch(&mut self, qpn: u32) {
        self.watched.remove(&qpn);
    }

    /// Removes the queue pair from all work lists.
    pub(crate) fn forget_qp(&mut self, qpn: u32) {
        let is_other = |other: &u32| *other != qpn;
        self.ready.retain(is_other);
        self.acking.retain(is_other);
        self.timed.retain(is_other);
        self.broken.retain(is_other);
        self.watched.remove(&qpn);
        self.streaming.remove(&qpn);
        self.held.forget(qpn);
        self.page_faults.forget(qpn);
        self.senders.retain(is_other);
        self.paced.retain(|(_, other)| *other != qpn);
        self.unset_joining(qpn);
    }

    pub(crate) fn add_qp(&mut self, uar: u32, qpn: u32) {
        self.users.entry(uar).or_default().qps.insert(qpn);
    }

    pub(crate) fn remove_qp(&mut self, uar: u32, qpn: u32) {
        self.gsi = self.gsi.filter(|gsi| *gsi != qpn);
        if let Some(users) = self.users.get_mut(&uar) {
            users.qps.remove(&qpn);
        }
    }

    pub(crate) fn add_cq(&mut self, uar: u32, cqn: u32) {
        self.users.entry(uar).or_default().cqs.insert(cqn);
    }

    pub(crate) fn remove_cq(&mut self, uar: u32, cqn: u32) {
        self.moderated.retain(|(_, other)| *other != cqn);
        self.compressing.retain(|other| *other != cqn);
        if let Some(users) = self.users.get_mut(&uar) {
            users.cqs.remove(&cqn);
        }
    }

    /// A send doorbell was rung in this UAR page: it may have overwritten those of other queues.
    pub(crate) fn set_rung(&mut self, uar: u32) {
        let Some(users) = self.users.get_mut(&uar) else { return };
        if users.qps.len() < 2 {
            return;
        }
        if users.unseen == 0 {
            self.rung.push(uar);
        }
        users.unseen = users.qps.len();
    }

    /// The next queue pair to check of a UAR page; `None` when all were checked.
    pub(crate) fn next_rung(&mut self, uar: u32) -> Option<u32> {
        let users = self.users.get_mut(&uar)?;
        users.unseen = users.unseen.checked_sub(1)?;
        let after = (Bound::Excluded(users.seen), Bound::Unbounded);
        users.seen = users.qps.range(after).next().or_else(|| users.qps.first()).copied()?;
        Some(users.seen)
    }

    /// Takes the completion queues of a UAR page, to be put back after iterating.
    pub(crate) fn take_cqs(&mut self, uar: u32) -> BTreeSet<u32> {
        self.users.get_mut(&uar).map(|users| std::mem::take(&mut users.cqs)).unwrap_or_default()
    }

    pub(crate) fn put_cqs(&mut self, uar: u32, cqs: BTreeSet<u32>) {
        if let Some(users) = self.users.get_mut(&uar) {
            users.cqs = cqs;
        }
    }
}

/// Receive buffers of all receive queues, each with the queue and WQE that holds it.
#[derive(Debug, Default)]
pub(crate) struct Held(pub(crate) BTreeMap<Buffer, Holder>);

impl Held {
    /// Removes all buffers of the queue. No queue pair has the number of a receive queue.
    pub(crate) fn forget(&mut self, number: u32) {
        self.0.retain(|_, holder| holder.queue.1 != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_in_error_are_looked_at_in_turn() {
        let mut scheduler = Scheduler::default();
        assert!(scheduler.next_watched(4).is_empty());
        (10..16).for_each(|qpn| scheduler.watch(qpn));
        assert_eq!(scheduler.next_watched(4), [10, 11, 12, 13]);
        assert_eq!(scheduler.next_watched(4), [14, 15, 10, 11]);
        scheduler.unwatch(12);
        assert_eq!(scheduler.next_watched(9), [13, 14, 15, 10, 11], "none twice");
    }

    #[test]
    fn a_page_where_one_rang_alone_is_looked_through_once_there_are_two() {
        let mut scheduler = Scheduler::default();
        scheduler.add_qp(16, 1);
        scheduler.set_rung(16);
        assert!(scheduler.rung.is_empty(), "nobody else's doorbell can have been overwritten");
        scheduler.add_qp(16, 2);
        scheduler.set_rung(16);
        assert_eq!(scheduler.rung, [16]);
        let mut seen: Vec<_> = std::iter::from_fn(|| scheduler.next_rung(16)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    }
}
