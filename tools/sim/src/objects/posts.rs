//! What doorbells of a send queue are checked against.

use std::fmt;

use super::{Doorbell, Qp, SendRing, Sq};

/// A queue as reports name it: what it is, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueName(pub(crate) &'static str, pub(crate) u32);

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:#x}", self.0, self.1)
    }
}

/// What was posted to a send queue: a queue pair's, or one of Ethernet frames.
pub(crate) struct Posts<'a> {
    /// The queue.
    pub(crate) queue: QueueName,
    /// Its doorbell record.
    pub(crate) doorbell: &'a Doorbell,
    /// Its ring.
    pub(crate) ring: &'a SendRing,
    /// WQEBBs known to be posted.
    pub(crate) posted: u16,
    /// WQEBBs fetched.
    pub(crate) fetched: u16,
}

impl Qp {
    /// `None` if it has no send queue.
    pub(crate) fn posts(&self) -> Option<Posts<'_>> {
        let (ring, send) = (self.send.as_ref()?, &self.rc.send);
        let (posted, fetched) = (send.posted, send.fetched);
        Some(Posts { queue: QueueName("QP", self.qpn), doorbell: &self.doorbell, ring, posted, fetched })
    }
}

impl Sq {
    pub(crate) fn posts(&self) -> Posts<'_> {
        let (posted, fetched) = (self.posted, self.fetched);
        Posts { queue: QueueName("SQ", self.sqn), doorbell: &self.doorbell, ring: &self.ring, posted, fetched }
    }
}
