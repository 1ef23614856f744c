//! Shared receive queues: takes WQEs in the order in which software linked them, or in that of the ring.

use mlx5_prm::eqe::EventType;
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{SEGMENT, SrqNextSeg};

use super::posted::check_posted;
use super::{event, wqe};
use crate::dma::{Dma, Purpose};
use crate::function::Nic;
use crate::objects::{Qp, ReceiveWork, RecvRing, Srq, User};
use crate::strict::Strict;

/// Takes the next receive of the shared receive queue `srqn` for `qp`. `None` if none is posted.
pub(super) fn fetch(qp: &mut Qp, nic: &mut Nic, srqn: u32) -> Option<ReceiveWork> {
    let srq = nic.objects.srqs.get_mut(srqn)?;
    refresh_posted(srq, &nic.dma, &nic.strict);
    if srq.taken == srq.posted {
        return None;
    }
    let spare = qp.rc.receive.spare.take().unwrap_or_default();
    let mut work = spare.reuse(User { pd: srq.pd, ..qp.user() });
    (work.index, work.srqn) = (srq.next, Some(srqn));
    srq.taken = srq.taken.wrapping_add(1);
    if let Some(xrc) = srq.xrc {
        (work.cqn, work.user_index) = (Some(xrc.cqn), xrc.user_index);
    }
    let mut room = [0; RecvRing::LONGEST];
    let bytes = srq.ring.read(nic.dma.counted(Purpose::Wqe), srq.next, &mut room).unwrap_or_default();
    match SrqNextSeg::read(bytes) {
        Some(_) if srq.is_cyclic => srq.next = srq.next.wrapping_add(1) & ((1 << srq.ring.log_size) - 1),
        Some(link) => srq.next = link.next_wqe_index(),
        None => work.failure = Some(wqe::bad_operation()),
    }
    let is_low = srq.limit > 0 && srq.posted.wrapping_sub(srq.taken) < srq.limit;
    if is_low {
        // The limit event is sent once, until software arms the limit again. PRM "Event Types".
        srq.limit = 0;
    }
    if work.failure.is_none() {
        wqe::scatter_list(qp, nic, bytes.get(SEGMENT..).unwrap_or(&[]), &mut work);
    }
    if is_low {
        event::post_srq(nic, EventType::SrqLimit, srqn);
    }
    Some(work)
}

/// Reads the doorbell record.
fn refresh_posted(srq: &mut Srq, dma: &Dma, strict: &Strict) {
    let Ok(record) = srq.doorbell.read(dma, 0) else { return };
    if record as u16 == srq.posted {
        return;
    }
    srq.posted = record as u16;
    check_posted(strict, ("SRQ", srq.srqn), &mut srq.ring, record, srq.taken);
}
