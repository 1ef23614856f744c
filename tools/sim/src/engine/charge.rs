//! Charges queues for what their work moves across PCIe.

use crate::dma::Traffic;
use crate::function::Nic;
use crate::objects::{Qp, Rq, Sq};

/// A queue with an account.
pub(super) trait Account {
    fn account(&mut self) -> &mut Traffic;
}

impl Account for Sq {
    fn account(&mut self) -> &mut Traffic {
        &mut self.traffic
    }
}

impl Account for Rq {
    fn account(&mut self) -> &mut Traffic {
        &mut self.traffic
    }
}

impl Account for Qp {
    fn account(&mut self) -> &mut Traffic {
        &mut self.traffic
    }
}

/// Does `work` of `queue`, and charges the queue for it.
pub(super) fn charge<Q: Account, T>(queue: &mut Q, nic: &mut Nic, work: impl FnOnce(&mut Q, &mut Nic) -> T) -> T {
    let before = nic.dma.traffic();
    let done = work(queue, nic);
    *queue.account() += nic.dma.traffic() - before;
    done
}
