//! The card's part, while its thread is stopped: writing completions.

use mlx5_benches::Failure;
use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_prm::layout::Layout;
use mlx5_sim::card::FunctionHandle;
use mlx5_sim::objects::PageList;

/// A completion queue of sends as the card sees it.
pub struct Completions {
    ring: PageList,
    entries: usize,
    /// Number of completions written.
    produced: usize,
    card: FunctionHandle,
}

impl Completions {
    /// Those of the completion queue of queue pair `qpn`, which has got `produced` of them.
    pub fn of(card: &FunctionHandle, qpn: u32, produced: usize) -> Result<Self, Failure> {
        let found = card.with(move |f| {
            let cq = f.nic.objects.cqs.get(f.queues.qps.get(qpn)?.cqn_send)?;
            Some((cq.ring.clone(), 1 << cq.log_size))
        });
        let (ring, entries) = found.flatten().ok_or("the model does not know the queues")?;
        Ok(Completions { ring, entries, produced, card: card.clone() })
    }

    /// Writes that of a SEND, as a card does: of the WQE at `index` of queue pair `qpn`.
    pub fn write(&mut self, qpn: u32, user_index: u32, index: u16) -> Result<(), Failure> {
        let mut cqe = Cqe::ZERO;
        cqe.w().opcode(CqeOpcode::Requester).qpn(qpn).wqe_counter(index);
        cqe.w().send_wqe_opcode(0x0a).srqn(user_index);
        cqe.w().owner((self.produced / self.entries) & 1 != 0);
        let at = self.produced % self.entries * Cqe::SIZE;
        self.ring.write(self.card.dma(), at as u64, cqe.as_bytes())?;
        self.produced += 1;
        Ok(())
    }
}
