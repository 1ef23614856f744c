//! The life of a key that work requests change: free, registered, and free again.

use std::sync::Arc;

use super::in_flight::{Done, RefusedReason, Ticket};
use super::orphans::{Orphan, Orphans};
use crate::queue::completion::decode::{Completion, work_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Free,
    Registering,
    Registered,
    Invalidating,
    Unknown,
}

/// State and variant (the low eight bits) of a key, as far as completions have told. A program may have changed those,
/// or show old ones again: the holder keeps the key's regions until the key is destroyed, and whether a work request
/// on it is in flight is asked of its queue pair.
#[derive(Debug, Default)]
pub(super) struct KeyLife {
    state: State,
    variant: u8,
    /// The last work request on it: its queue pair and ticket.
    qpn: u32,
    ticket: Ticket,
    /// Of that queue pair.
    queue: Option<Arc<Orphans>>,
    /// Of others, with earlier ones that may be in flight.
    others: Vec<Arc<Orphans>>,
}

impl KeyLife {
    /// The variant of the last registration.
    #[inline]
    pub(super) fn variant(&self) -> u8 {
        self.variant
    }

    /// The variant of the next registration.
    #[inline]
    pub(super) fn next_variant(&self) -> u8 {
        self.variant.wrapping_add(1)
    }

    /// Whether no remote can use the key, now or by a work request in flight.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.state == State::Free
    }

    /// Whether it is registered, with no work request on it in flight.
    pub(super) fn is_registered(&self) -> bool {
        self.state == State::Registered
    }

    /// Whether a work request on it failed.
    pub(super) fn is_lost(&self) -> bool {
        self.state == State::Unknown
    }

    /// Takes note of `done`; returns whether it concerns the key, which is `rkey` in its present variant.
    #[inline]
    pub(super) fn settle(&mut self, done: &Done, rkey: u32) -> bool {
        let is_awaited = done.ticket == self.ticket && work_of(&done.result).qpn == self.qpn;
        let went_well = done.result.is_ok();
        self.state = match self.state {
            State::Registering if is_awaited && went_well => State::Registered,
            State::Invalidating if is_awaited && went_well => State::Free,
            State::Registering | State::Invalidating if is_awaited => State::Unknown,
            _ => return done.result.as_ref().is_ok_and(|message| self.settle_message(message, rkey)),
        };
        true
    }

    /// Takes note of a message; returns whether it has invalidated the key, which is `rkey` in its present variant.
    #[inline]
    pub(super) fn settle_message(&mut self, message: &Completion, rkey: u32) -> bool {
        let is_open = matches!(self.state, State::Registering | State::Registered);
        let was_invalidated = is_open && message.invalidated() == Some(rkey);
        if was_invalidated {
            self.state = State::Free;
        }
        was_invalidated
    }

    /// Whether a work request on it may be in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.queues_in_flight().next().is_some()
    }

    /// The queue pairs with work requests on it that may be in flight.
    fn queues_in_flight(&self) -> impl Iterator<Item = &Arc<Orphans>> {
        let last = self.queue.iter().filter(|queue| !queue.has_executed(self.ticket.number()));
        last.chain(self.others.iter().filter(|queue| !queue.is_over()))
    }

    /// Destroys the key, once no work request on it is in flight.
    pub(super) fn end(&self, orphan: Orphan) {
        let orphan = Arc::new(orphan);
        self.queues_in_flight().for_each(|queue| queue.keep(&orphan));
    }

    /// Another key was created in its place.
    pub(super) fn renewed(&mut self) {
        *self = KeyLife { variant: self.variant, ..KeyLife::default() };
    }

    #[inline]
    pub(super) fn check_free(&self) -> Result<(), RefusedReason> {
        if self.is_free() { Ok(()) } else { Err(RefusedReason::KeyInUse) }
    }

    /// Checks that it is registered when a work request of `queue` is done.
    pub(super) fn check_registered(&self, queue: &Arc<Orphans>) -> Result<(), RefusedReason> {
        match self.state {
            State::Registering if self.is_of(queue) => Ok(()),
            State::Registered => Ok(()),
            _ => Err(RefusedReason::KeyNotRegistered),
        }
    }

    /// Whether `queue` executes its work request before others, or that one is gone with its queue pair.
    fn is_of(&self, queue: &Arc<Orphans>) -> bool {
        self.queue.as_ref().is_none_or(|last| Arc::ptr_eq(last, queue) || last.is_over())
    }

    /// The next work request on it is of `queue`.
    #[inline]
    fn moves_to(&mut self, queue: &Arc<Orphans>) {
        if !self.queue.as_ref().is_some_and(|last| Arc::ptr_eq(last, queue)) {
            self.moves_from_another_to(queue);
        }
    }

    #[cold]
    fn moves_from_another_to(&mut self, queue: &Arc<Orphans>) {
        let before = self.queue.replace(Arc::clone(queue)).filter(|before| !before.has_executed(self.ticket.number()));
        let is_before = |other: &Arc<Orphans>| before.as_ref().is_some_and(|before| Arc::ptr_eq(other, before));
        self.others.retain(|other| !other.is_over() && !is_before(other));
        self.others.extend(before);
    }

    /// A work request of `queue` registers the key in its next variant; `ticket` on queue pair `qpn` completes it.
    #[inline]
    pub(super) fn registering(&mut self, qpn: u32, ticket: Ticket, queue: &Arc<Orphans>) {
        self.moves_to(queue);
        self.variant = self.next_variant();
        self.state = State::Registering;
        (self.qpn, self.ticket) = (qpn, ticket);
    }

    /// A work request of `queue` invalidates the key.
    pub(super) fn invalidating(&mut self, qpn: u32, ticket: Ticket, queue: &Arc<Orphans>) {
        self.moves_to(queue);
        self.state = State::Invalidating;
        (self.qpn, self.ticket) = (qpn, ticket);
    }
}
