//! Who is to be served: queue pairs with work, with debts, with timers, in error.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::time::Instant;

use super::held::Held;
use super::spare::Spare;
use crate::objects::{Qp, Sq};
use crate::profile::Profile;
use crate::transport::ud::GSI_QPN;

/// What the engines keep for one function.
#[derive(Debug)]
pub struct Engine {
    /// Queue pairs with something to send, in turn.
    pub(super) ready: VecDeque<u32>,
    /// Queue pairs that owe an acknowledgement.
    pub(super) acking: Vec<u32>,
    /// Queue pairs with a timer.
    pub(super) timed: Vec<u32>,
    /// No timer is due before then.
    pub(super) earliest: Option<Instant>,
    /// Queue pairs whose completions could not be written.
    pub(super) broken: Vec<u32>,
    /// Queue pairs in error.
    pub(super) watched: BTreeSet<u32>,
    /// UAR pages whose queue pairs are to be looked at.
    pub(super) rung: Vec<u32>,
    /// The queue pair of the general services.
    pub(super) gsi: Option<u32>,
    /// Queues by the UAR page of their doorbell.
    users: HashMap<u32, Users>,
    pub(super) spare: Spare,
    /// Receive buffers that are the card's.
    pub(super) held: Held,
    /// Send queues with something to send, in turn.
    pub(super) senders: VecDeque<u32>,
    /// Completion queues whose event is held back, and until when.
    pub(super) moderated: Vec<(Instant, u32)>,
}

#[derive(Debug, Default)]
struct Users {
    qps: BTreeSet<u32>,
    /// The one of `qps` that was looked at last, and how many are to be after it.
    seen: u32,
    unseen: usize,
    cqs: BTreeSet<u32>,
}

impl Engine {
    /// Engines at rest.
    pub fn new(_profile: &Profile) -> Self {
        Engine {
            ready: VecDeque::new(),
            acking: Vec::new(),
            timed: Vec::new(),
            earliest: None,
            broken: Vec::new(),
            watched: BTreeSet::new(),
            rung: Vec::new(),
            gsi: None,
            users: HashMap::new(),
            spare: Spare::default(),
            held: Held::default(),
            senders: VecDeque::new(),
            moderated: Vec::new(),
        }
    }

    /// The queue pair that packets to `qpn` are for: general services have a number of their own on the wire.
    pub(super) fn destination(&self, qpn: u32) -> u32 {
        if qpn == GSI_QPN { self.gsi.unwrap_or(qpn) } else { qpn }
    }

    /// The queue pair has something to send.
    pub(crate) fn set_ready(&mut self, qp: &mut Qp) {
        if !std::mem::replace(&mut qp.rc.is_ready, true) {
            self.ready.push_back(qp.qpn);
        }
    }

    /// The send queue has something to send.
    pub(super) fn set_sender(&mut self, sq: &mut Sq) {
        if !std::mem::replace(&mut sq.is_listed, true) {
            self.senders.push_back(sq.sqn);
        }
    }

    /// The queue pair owes an acknowledgement.
    pub(crate) fn set_acking(&mut self, qp: &mut Qp) {
        if !std::mem::replace(&mut qp.rc.is_acking, true) {
            self.acking.push(qp.qpn);
        }
    }

    /// The queue pair wants to be looked at then.
    pub(crate) fn set_timer(&mut self, qp: &mut Qp, at: Instant) {
        if !std::mem::replace(&mut qp.rc.is_timed, true) {
            self.timed.push(qp.qpn);
        }
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }

    /// A completion of the queue pair could not be written.
    pub(crate) fn break_later(&mut self, qpn: u32) {
        if !self.broken.contains(&qpn) {
            self.broken.push(qpn);
        }
    }

    /// The queue pair is in error: what is posted to it is flushed.
    pub(super) fn watch(&mut self, qpn: u32) {
        self.watched.insert(qpn);
    }

    /// Strikes the queue pair off all lists of work.
    pub(super) fn forget_qp(&mut self, qpn: u32) {
        let is_other = |other: &u32| *other != qpn;
        self.ready.retain(is_other);
        self.acking.retain(is_other);
        self.timed.retain(is_other);
        self.broken.retain(is_other);
        self.watched.remove(&qpn);
        self.held.forget(qpn);
        self.senders.retain(is_other);
    }

    pub(super) fn add_qp(&mut self, uar: u32, qpn: u32) {
        self.users.entry(uar).or_default().qps.insert(qpn);
    }

    pub(super) fn remove_qp(&mut self, uar: u32, qpn: u32) {
        self.gsi = self.gsi.filter(|gsi| *gsi != qpn);
        if let Some(users) = self.users.get_mut(&uar) {
            users.qps.remove(&qpn);
        }
    }

    pub(super) fn add_cq(&mut self, uar: u32, cqn: u32) {
        self.users.entry(uar).or_default().cqs.insert(cqn);
    }

    pub(super) fn remove_cq(&mut self, uar: u32, cqn: u32) {
        self.moderated.retain(|(_, other)| *other != cqn);
        if let Some(users) = self.users.get_mut(&uar) {
            users.cqs.remove(&cqn);
        }
    }

    /// A send doorbell was rung in this UAR page: others there may have been overwritten by it.
    pub(super) fn set_rung(&mut self, uar: u32) {
        let Some(users) = self.users.get_mut(&uar) else { return };
        if users.qps.len() < 2 {
            return;
        }
        if users.unseen == 0 {
            self.rung.push(uar);
        }
        users.unseen = users.qps.len();
    }

    /// The next queue pair of a rung UAR page to be looked at; `None` when all have been.
    pub(super) fn next_rung(&mut self, uar: u32) -> Option<u32> {
        let users = self.users.get_mut(&uar)?;
        users.unseen = users.unseen.checked_sub(1)?;
        let after = (Bound::Excluded(users.seen), Bound::Unbounded);
        users.seen = users.qps.range(after).next().or_else(|| users.qps.first()).copied()?;
        Some(users.seen)
    }

    /// The completion queues of a UAR page, to be given back after a walk over them.
    pub(super) fn take_cqs(&mut self, uar: u32) -> BTreeSet<u32> {
        self.users.get_mut(&uar).map(|users| std::mem::take(&mut users.cqs)).unwrap_or_default()
    }

    pub(super) fn put_cqs(&mut self, uar: u32, cqs: BTreeSet<u32>) {
        if let Some(users) = self.users.get_mut(&uar) {
            users.cqs = cqs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_where_one_rang_alone_is_looked_through_once_there_are_two() {
        let mut engine = Engine::new(&Profile::default());
        engine.add_qp(16, 1);
        engine.set_rung(16);
        assert!(engine.rung.is_empty(), "nobody else's doorbell can have been overwritten");
        engine.add_qp(16, 2);
        engine.set_rung(16);
        assert_eq!(engine.rung, [16]);
        let mut seen: Vec<_> = std::iter::from_fn(|| engine.next_rung(16)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    }
}
