//! The life of a key that work requests change: free, registered, and free again.

use super::in_flight::{Done, RefusedReason, Ticket};
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

    /// Another key was created in its place.
    pub(super) fn renewed(&mut self) {
        self.state = State::Free;
    }

    #[inline]
    pub(super) fn check_free(&self) -> Result<(), RefusedReason> {
        if self.is_free() { Ok(()) } else { Err(RefusedReason::KeyInUse) }
    }

    pub(super) fn check_registered(&self) -> Result<(), RefusedReason> {
        match self.state {
            State::Registering(_) | State::Registered => Ok(()),
            _ => Err(RefusedReason::KeyNotRegistered),
        }
    }

    /// A work request registers the key in its next variant; `ticket` on queue pair `qpn` completes it.
    pub(super) fn registering(&mut self, qpn: u32, ticket: Ticket) {
        self.variant = self.next_variant();
        self.state = State::Registering((qpn, ticket));
    }

    /// A work request invalidates the key.
    pub(super) fn invalidating(&mut self, qpn: u32, ticket: Ticket) {
        self.state = State::Invalidating((qpn, ticket));
    }
}
