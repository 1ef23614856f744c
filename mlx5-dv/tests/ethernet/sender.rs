//! A send queue without an owner.

use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::Device;
use mlx5_dv::objects::{CqOptions, Pd, Sq, SqOptions, Tis, TransportDomain, Uar};
use mlx5_dv::queue::CompletionQueue;
use mlx5_dv::queue::ethernet::EthernetSendQueue;
use mlx5_open::Sim;

use crate::ends::SOON;

/// A send queue, and its completions.
pub struct Sender {
    pub queue: EthernetSendQueue,
    pub cq: CompletionQueue,
    pub pd: Arc<Pd>,
}

impl Sender {
    /// On function 0, with a ring of so many WQEBBs.
    pub fn new(sim: &Sim, wqebbs: u32) -> Self {
        Sender::of(&sim.open(0).unwrap(), wqebbs)
    }

    /// On `device`.
    pub fn of(device: &Arc<Device>, wqebbs: u32) -> Self {
        let pd = Pd::alloc(device).unwrap();
        let uar = Uar::alloc(device).unwrap();
        let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
        let tis = Tis::create(&TransportDomain::alloc(device).unwrap(), 0).unwrap();
        let sq = Sq::create(&pd, &uar, &tis, cq.cq(), SqOptions::default().wqes(wqebbs)).unwrap();
        sq.ready().unwrap();
        Sender { queue: sq.send_queue().unwrap(), cq, pd }
    }

    /// Waits for a completion, and returns its `wr_id`.
    pub fn retire_next(&mut self) -> u64 {
        let deadline = Instant::now() + SOON;
        loop {
            match self.cq.poll() {
                Some(done) => return self.queue.retire(&done.unwrap().work).unwrap(),
                None => std::thread::yield_now(),
            }
            assert!(Instant::now() < deadline, "no completion");
        }
    }

    /// Waits for the one completion of what was sent with `wr_id`.
    pub fn completes(&mut self, wr_id: u64) {
        assert_eq!(self.retire_next(), wr_id, "one completion for all");
        assert!(self.cq.poll().is_none());
        assert_eq!(self.queue.free(), self.queue.capacity());
    }
}
