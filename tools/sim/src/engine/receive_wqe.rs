//! Receive WQEs, fetched from a queue pair's own ring or from a shared receive queue. PRM "Work Queue Structure", "SRQ
//! WQE".

use super::check::receives;
use super::posted::refresh_posted;
use super::srq;
use super::wqe::{bad_operation, scatter_list};
use crate::dma::Purpose;
use crate::function::Nic;
use crate::objects::{Qp, ReceiveWork, RecvRing};

/// Fetches the next receive WQE: of the XRC shared receive queue `xrc_srqn` if given, else of the queue pair's shared
/// receive queue, else of its own ring. `None` if none is posted.
pub(crate) fn fetch_receive(qp: &mut Qp, nic: &mut Nic, xrc_srqn: Option<u32>) -> Option<ReceiveWork> {
    if let Some(srqn) = xrc_srqn.or(qp.srqn) {
        return srq::fetch(qp, nic, srqn);
    }
    refresh_posted(qp, nic);
    receives::look(qp.receives(), nic);
    let user = qp.user();
    let ring = qp.recv.as_ref()?;
    let receive = &mut qp.rc.receive;
    if receive.fetched == receive.posted {
        return None;
    }
    let mut work = receive.spare.take().unwrap_or_default().reuse(user);
    work.index = receive.fetched;
    receive.fetched = receive.fetched.wrapping_add(1);
    let mut room = [0; RecvRing::LONGEST];
    match ring.read(nic.dma.counted(Purpose::Wqe), work.index, &mut room) {
        Ok(wqe) => scatter_list(qp, nic, wqe, &mut work),
        Err(_) => work.failure = Some(bad_operation()),
    }
    Some(work)
}
