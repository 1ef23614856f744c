//! Ethernet queues: frames from send queues, and to receive queues by flow steering. PRM "Send Queue Context", "Receive
//! Queue Context".

pub(super) mod receive;
pub(super) mod send;

use mlx5_prm::cqe::CqeOpcode;

use super::completion::{self, CqeTarget};
use crate::function::Nic;
use crate::objects::{Failure, Rq, Sq, User};

/// The queue that a completion belongs to.
#[derive(Debug, Clone, Copy)]
struct Owner {
    number: u32,
    cqn: u32,
    user_index: u32,
}

/// Completes a WQE that failed or was flushed.
fn failed(nic: &mut Nic, owner: Owner, opcode: CqeOpcode, wqe_counter: u16, wqe_opcode: u8, failure: Failure) {
    let target = CqeTarget { cqn: owner.cqn, user_index: Some(owner.user_index), wqe_counter };
    completion::failed(nic, owner.number, target, opcode, wqe_opcode, failure);
}

impl Sq {
    fn owner(&self) -> Owner {
        Owner { number: self.sqn, cqn: self.cqn, user_index: self.context.user_index() }
    }

    fn user(&self) -> User {
        User { pd: self.pd, qpn: self.sqn, every_pd: false, is_trusted: self.context.rlky() }
    }
}

impl Rq {
    fn owner(&self) -> Owner {
        Owner { number: self.rqn, cqn: self.cqn, user_index: self.user_index }
    }

    fn user(&self) -> User {
        User { pd: self.pd, qpn: self.rqn, every_pd: false, is_trusted: self.context.rlky() }
    }
}
