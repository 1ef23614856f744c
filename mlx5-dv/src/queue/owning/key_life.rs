//! The life of a key that work requests change: free, registered, and free again.

use std::sync::Arc;

use super::in_flight::{Done, RefusedReason, Ticket};
use super::orphans::{Orphan, Orphans};
use crate::queue::completion::decode::{Completion, work_of};

/// Identifies a work request to wait for: its queue pair and ticket.
type Awaited = (u32, Ticket);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Free,
    Registering(Awaited),
    Registered,
    Invalidating(Awaited),
    Unknown,
}

/// State and variant (the low eight bits) of a key, as far as completions have told, which a program may have changed:
/// the holder keeps the key's regions until the key is destroyed.
#[derive(Debug, Default)]
pub(super) struct KeyLife {
    state: State,
    variant: u8,
    /// Of the queue pair with the last work request on it.
    queue: Option<Arc<Orphans>>,
}

impl KeyLife {
    /// The variant of the last registration.
    pub(super) fn variant(&self) -> u8 {
        self.variant
    }

    /// The variant of the next registration.
    pub(super) fn next_variant(&self) -> u8 {
        self.variant.wrapping_add(1)
    }

    /// Whether no remote can use the key, now or by a work request in flight.
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
    pub(super) fn settle(&mut self, done: &Done, rkey: u32) -> bool {
        let awaited = (work_of(&done.result).qpn, done.ticket);
        let went_well = done.result.is_ok();
        let was_invalidated = || done.result.as_ref().ok().and_then(Completion::invalidated) == Some(rkey);
        self.state = match self.state {
            State::Registering(this) if this == awaited && went_well => State::Registered,
            State::Invalidating(this) if this == awaited && went_well => State::Free,
            State::Registering(this) | State::Invalidating(this) if this == awaited => State::Unknown,
            State::Registering(_) | State::Registered if was_invalidated() => State::Free,
            _ => return false,
        };
        true
    }

    /// Whether a work request on it may be in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        !self.is_free() && !self.is_registered()
    }

    /// Destroys the key, once no work request on it is in flight.
    pub(super) fn end(&self, orphan: Orphan) {
        match &self.queue {
            Some(queue) if self.is_in_flight() => queue.keep(orphan),
            _ => drop(orphan),
        }
    }

    /// Another key was created in its place.
    pub(super) fn renewed(&mut self) {
        self.state = State::Free;
    }

    #[inline]
    pub(super) fn check_free(&self) -> Result<(), RefusedReason> {
        if self.is_free() { Ok(()) } else { Err(RefusedReason::KeyInUse) }
    }

    /// Checks that it is registered when a work request of `queue` is done.
    pub(super) fn check_registered(&self, queue: &Arc<Orphans>) -> Result<(), RefusedReason> {
        match self.state {
            State::Registering(_) if self.is_of(queue) => Ok(()),
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
            self.queue = Some(Arc::clone(queue));
        }
    }

    /// A work request of `queue` registers the key in its next variant; `ticket` on queue pair `qpn` completes it.
    pub(super) fn registering(&mut self, qpn: u32, ticket: Ticket, queue: &Arc<Orphans>) {
        self.moves_to(queue);
        self.variant = self.next_variant();
        self.state = State::Registering((qpn, ticket));
    }

    /// A work request of `queue` invalidates the key.
    pub(super) fn invalidating(&mut self, qpn: u32, ticket: Ticket, queue: &Arc<Orphans>) {
        self.moves_to(queue);
        self.state = State::Invalidating((qpn, ticket));
    }
}
