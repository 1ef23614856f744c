//! The steps of a bring-up that a teardown must undo, written down as they are done.

use super::Owned;
use crate::access::UarHandle;
use crate::lock::lock;

/// A step that must be undone.
#[derive(Debug)]
pub(super) enum Step {
    BusMaster,
    EnableHca,
    Pages,
    InitHca,
    Roce,
    EventUar(UarHandle),
    Interrupts,
    EventQueues,
    UnicastList,
    L2Entry,
}

/// Writes down that `step` is done.
pub(super) fn done(card: &Owned, step: Step) {
    lock(&card.done).push(step);
}
