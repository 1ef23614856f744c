//! Ethernet queues: frames from send queues, and to receive queues by flow steering. PRM "Send Queue Context", "Receive
//! Queue Context".

mod aso;
pub(super) mod buffers;
pub(super) mod lro;
mod offload;
mod position;
pub(super) mod receive;
pub(super) mod send;
mod striding;

use mlx5_prm::cqe::CqeOpcode;

use super::completion::{self, CqeTarget};
use crate::function::Nic;
use crate::objects::{Failure, Rq, Sq, User};
use position::PacketPosition;

/// Completes a send WQE that failed or was flushed.
fn send_failed(nic: &mut Nic, sq: &Sq, wqe_counter: u16, wqe_opcode: u8, failure: Failure) {
    let target = CqeTarget { wqe_counter, ..CqeTarget::new(sq.cqn, Some(sq.context.user_index())) };
    completion::failed(nic, sq.sqn, target, CqeOpcode::RequesterError, wqe_opcode, failure);
}

/// Completes a receive WQE, or what is left of one, that failed or was flushed.
fn receive_failed(nic: &mut Nic, rq: &Rq, place: PacketPosition, failure: Failure) {
    let PacketPosition { wqe_counter, wqe_id, byte_cnt } = place;
    let target = CqeTarget { wqe_counter, wqe_id, byte_cnt, ..CqeTarget::new(rq.cqn, Some(rq.user_index)) };
    completion::failed(nic, rq.rqn, target, CqeOpcode::ResponderError, 0, failure);
}

impl Sq {
    /// Linux registers the pages of its receive queues by send queues without `fre`.
    fn user(&self) -> User {
        let is_trusted = self.context.rlky();
        User { pd: self.pd, qpn: self.sqn, every_pd: false, is_trusted, registers_pages: true }
    }
}

impl Rq {
    fn user(&self) -> User {
        User { pd: self.pd, qpn: self.rqn, is_trusted: self.context.rlky(), ..User::default() }
    }
}
