//! Ethernet queues at work: frames out of send queues, and into receive queues as steering says.

pub(super) mod receive;
pub(super) mod send;

use mlx5_prm::cqe::CqeOpcode;

use super::access::User;
use super::completion::{self, Place};
use super::rest::{Failure, Rest};
use crate::objects::{Rq, Rqt, Sq, Table, Tir};
use crate::steering::Steering;

/// Of a function taken apart, what Ethernet queues are made of.
pub(crate) struct Ethernet<'a> {
    pub sqs: &'a mut Table<Sq>,
    pub rqs: &'a mut Table<Rq>,
    pub tirs: &'a Table<Tir>,
    pub rqts: &'a Table<Rqt>,
    pub steering: &'a mut Steering,
}

/// Whose completion it is.
#[derive(Debug, Clone, Copy)]
struct Owner {
    number: u32,
    cqn: u32,
    user_index: u32,
}

/// Completes a WQE that failed, or was flushed.
fn failed(rest: &mut Rest, owner: Owner, opcode: CqeOpcode, wqe_counter: u16, wqe_opcode: u8, failure: Failure) {
    let place = Place { cqn: owner.cqn, user_index: Some(owner.user_index), wqe_counter };
    completion::failed(rest, owner.number, place, opcode, wqe_opcode, failure);
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
