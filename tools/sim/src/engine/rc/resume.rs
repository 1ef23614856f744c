//! Software has answered a page fault: the side of the queue pair that waited goes on, or fails.

use mlx5_prm::cqe::CqeSyndrome;

use super::{requester, responder};
use crate::engine::completion;
use crate::function::{Function, Nic, PageFault, Side};
use crate::objects::{Failure, FaultyMemory, Qp};
use crate::transport::packet::Nak;

/// Answers the fault of `token`. `failed`: its pages cannot be had.
pub(crate) fn resume(f: &mut Function, token: u32, fault: PageFault, failed: bool) {
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    let Some(qp) = queues.scheduled(fault.queue) else { return };
    match fault.side {
        Side::Requester => requester::resume(qp, nic, token, failed),
        Side::Responder => respond(qp, nic, token, failed),
    }
}

/// The peer, told to wait, sends its request again. A response that waited goes on.
fn respond(qp: &mut Qp, nic: &mut Nic, token: u32, failed: bool) {
    let Some(fault) = qp.rc.receive.fault.filter(|fault| fault.token == token) else { return };
    qp.rc.receive.fault = None;
    match fault.memory {
        _ if !failed => {
            if fault.stops_replies {
                nic.scheduler.set_ready(qp);
            }
        }
        FaultyMemory::Remote => responder::refuse(qp, nic, Nak::RemoteAccess),
        FaultyMemory::Receive => {
            if let Some(work) = qp.rc.receive.work.take() {
                completion::receive_failed(nic, qp, &work, Failure::new(CqeSyndrome::LocalProtection));
            }
            responder::refuse(qp, nic, Nak::RemoteOperation);
        }
        FaultyMemory::Reply => responder::abandon_replies(qp, nic),
    }
}
