//! The posted buffers of receive queues: packets are written there and completed. PRM "Receive Queue Context".

use mlx5_prm::cqe::{Cqe, CqeSyndrome};
use mlx5_prm::ctx::QueueState;
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{DataSeg, LKEY_INVALID, SEGMENT};

use super::position::{BYTE_COUNT, PacketPosition, Placed, count_out_of_buffer, refresh_posted};
use super::striding;
use crate::dma::Purpose;
use crate::engine::check::receives;
use crate::engine::completion;
use crate::function::Nic;
use crate::objects::{Failure, MkeyRights, RecvRing, Rq};

/// Writes a packet to the next posted buffer, and completes it.
pub(super) fn complete(rq: &mut Rq, nic: &mut Nic, frame: &[u8], cqe: &Cqe) {
    let placed = match rq.striding {
        Some(_) => striding::place(rq, nic, frame, cqe.qpn()),
        None => place(rq, nic, frame),
    };
    let place = match placed {
        Ok(Some(place)) => place,
        Ok(None) => return,
        Err((place, syndrome)) => {
            super::receive_failed(nic, rq, place, Failure::new(syndrome));
            return to_error(rq, nic);
        }
    };
    if let Some(failure) = nic.fault_of(rq.rqn) {
        super::receive_failed(nic, rq, place, failure);
        return to_error(rq, nic);
    }
    let is_used_up = rq.striding.as_ref().is_none_or(|striding| striding.open.is_none());
    if is_used_up {
        let index = rq.fetched.wrapping_sub(1);
        receives::give_back(rq.receives(), nic, index);
        rq.consumed.completes(nic, rq.cqn, index);
    }
    let mut cqe = *cqe;
    place.write(&mut cqe);
    completion::write(nic, rq.rqn, rq.cqn, &cqe, true);
}

/// The queue leaves its state: segments that wait to be joined are lost.
pub(crate) fn forget_joined(rq: &mut Rq, nic: &mut Nic) {
    if rq.joined.take().is_some() {
        nic.scheduler.unset_joining(rq.rqn);
    }
}

/// Writes a frame to the next WQE.
fn place(rq: &mut Rq, nic: &mut Nic, frame: &[u8]) -> Placed {
    refresh_posted(rq, nic);
    receives::look(rq.receives(), nic);
    if rq.fetched == rq.posted {
        count_out_of_buffer(rq, nic);
        return Ok(None);
    }
    let index = rq.fetched;
    rq.fetched = index.wrapping_add(1);
    let place = PacketPosition { wqe_counter: index, wqe_id: 0, byte_cnt: frame.len() as u32 };
    scatter(rq, nic, index, frame).map_err(|syndrome| (place, syndrome))?;
    Ok(Some(place))
}

/// Writes the frame to the WQE's data segments.
fn scatter(rq: &Rq, nic: &Nic, index: u16, mut frame: &[u8]) -> Result<(), CqeSyndrome> {
    let mut room = [0; RecvRing::LONGEST];
    let wqe =
        rq.ring.read(nic.dma.counted(Purpose::Wqe), index, &mut room).map_err(|_| CqeSyndrome::LocalQpOperation)?;
    for segment in wqe.chunks_exact(SEGMENT) {
        let data = DataSeg::read(segment).ok_or(CqeSyndrome::LocalQpOperation)?;
        if frame.is_empty() || data.lkey() == LKEY_INVALID && data.byte_count() == 0 {
            break;
        }
        let room = data.byte_count() & BYTE_COUNT;
        let (now, later) = frame.split_at(frame.len().min(room as usize));
        let rights = MkeyRights::LOCAL_WRITE;
        if !nic.write(rq.user(), data.lkey(), data.addr(), now, rights) {
            nic.allows(rq.user(), data.lkey(), data.addr(), now.len() as u64, rights); // reports the reason
            return Err(CqeSyndrome::LocalProtection);
        }
        frame = later;
    }
    if frame.is_empty() { Ok(()) } else { Err(CqeSyndrome::LocalLength) }
}

/// Moves the queue to the error state; flushes its WQEs if it was created so.
pub(crate) fn to_error(rq: &mut Rq, nic: &mut Nic) {
    rq.state = QueueState::Err;
    forget_joined(rq, nic);
    nic.scheduler.held.forget(rq.rqn);
    if !rq.context.flush_in_error_en() {
        return;
    }
    refresh_posted(rq, nic);
    while rq.fetched != rq.posted || rq.striding.as_ref().is_some_and(|striding| striding.open.is_some()) {
        let fetched = rq.fetched;
        let (place, is_new) = match &mut rq.striding {
            Some(striding) => striding::flush_next(striding, fetched),
            None => (PacketPosition { wqe_counter: fetched, ..PacketPosition::default() }, true),
        };
        rq.fetched = fetched.wrapping_add(is_new.into());
        super::receive_failed(nic, rq, place, completion::flushed());
    }
}
