//! The steps of a bring-up that a teardown must undo, written down as they are done.

use crate::access::UarHandle;

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
