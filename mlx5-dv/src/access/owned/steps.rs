//! Bring-up steps that a teardown must undo. Each is recorded once it is done.

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
