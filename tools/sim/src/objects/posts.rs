//! What doorbells of a send queue are checked against.

use super::{Doorbell, Qp, QueueName, SendRing, Sq};

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
