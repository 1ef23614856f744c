//! Striding receive queues: packets one after another in a WQE's buffers. PRM "Striding RQ".
//!
//! A packet takes whole strides of one WQE. One that does not fit into what is left of a WQE goes to the next: a filler
//! completion gives the rest up. A completion names the WQE, the first stride, and how many strides it takes.

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, StridingByteCount};
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{DataSeg, LKEY_INVALID, SEGMENT, SrqNextSeg};

use super::position::{BYTE_COUNT, PacketPosition, Placed, count_out_of_buffer, refresh_posted};
use crate::dma::Purpose;
use crate::engine::{completion, pieces};
use crate::function::Nic;
use crate::objects::{OpenWqe, Piece, RecvRing, Rq, Striding};
use crate::strict::rules;

impl Striding {
    /// Strides that a packet of `len` bytes takes.
    fn strides(&self, len: usize) -> u32 {
        (len as u32 + self.shift).div_ceil(1 << self.log_bytes).max(1)
    }

    fn count(&self) -> u32 {
        1 << self.log_count
    }

    /// Most bytes of a packet whose first `len` are known: it is in one WQE, the open one if they fit there.
    pub(super) fn room(&self, len: usize) -> usize {
        let rest = self.open.as_ref().map(|open| self.count() - open.used).filter(|rest| self.strides(len) <= *rest);
        ((rest.unwrap_or(self.count()) << self.log_bytes) - self.shift) as usize
    }

    /// What a completion of `strides` strides from the open WQE's next one on says.
    fn place(&self, open: &OpenWqe, strides: u32, len: usize, is_filler: bool) -> PacketPosition {
        let mut count = StridingByteCount::ZERO;
        count.w().filler(is_filler).consumed_strides(strides as u16).byte_cnt(len as u16);
        let byte_cnt = count.as_bytes().iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        PacketPosition { wqe_counter: open.used as u16, wqe_id: open.index, byte_cnt }
    }

    /// All that is left of the open WQE.
    fn rest(&self, open: &OpenWqe, is_filler: bool) -> PacketPosition {
        self.place(open, self.count() - open.used, 0, is_filler)
    }
}

/// Writes a packet to the next strides.
pub(super) fn place(rq: &mut Rq, nic: &mut Nic, frame: &[u8], tag: u32) -> Placed {
    let Some(mut striding) = rq.striding.take() else { return Ok(None) };
    let placed = place_in(&mut striding, rq, nic, frame, tag);
    rq.striding = Some(striding);
    placed
}

fn place_in(striding: &mut Striding, rq: &mut Rq, nic: &mut Nic, frame: &[u8], tag: u32) -> Placed {
    let strides = striding.strides(frame.len());
    loop {
        if striding.open.is_none() {
            striding.open = open(striding, rq, nic)?;
        }
        let Some(open) = &mut striding.open else {
            count_out_of_buffer(rq, nic);
            return Ok(None);
        };
        let mut open = std::mem::take(open);
        if strides > striding.count() {
            let place = striding.rest(&open, false);
            striding.open = None;
            return Err((place, CqeSyndrome::LocalLength));
        }
        if open.used + strides > striding.count() {
            let filler = striding.rest(&open, true);
            striding.open = None;
            complete_filler(rq, nic, filler, tag);
            continue;
        }
        let at = (open.used << striding.log_bytes) + striding.shift;
        if let Err(syndrome) = pieces::scatter(rq.user(), nic, &open.pieces, at, frame) {
            let place = striding.rest(&open, false);
            striding.open = None;
            return Err((place, syndrome));
        }
        let place = striding.place(&open, strides, frame.len(), false);
        open.used += strides;
        striding.open = (open.used < striding.count()).then_some(open);
        return Ok(Some(place));
    }
}

/// Fetches the next WQE. `None` if none is posted.
fn open(striding: &mut Striding, rq: &mut Rq, nic: &mut Nic) -> Result<Option<OpenWqe>, (PacketPosition, CqeSyndrome)> {
    refresh_posted(rq, nic);
    if rq.fetched == rq.posted {
        return Ok(None);
    }
    let index = if striding.is_linked { striding.next } else { rq.fetched };
    rq.fetched = rq.fetched.wrapping_add(1);
    let mut open = OpenWqe { index, used: 0, pieces: Vec::new() };
    let mut room = [0; RecvRing::LONGEST];
    let wqe = rq.ring.read(nic.dma.counted(Purpose::Wqe), index, &mut room).unwrap_or_default();
    let Some(link) = SrqNextSeg::read(wqe) else {
        return Err((striding.rest(&open, false), CqeSyndrome::LocalQpOperation));
    };
    striding.next = link.next_wqe_index();
    for segment in wqe[SEGMENT..].chunks_exact(SEGMENT) {
        let Some(data) = DataSeg::read(segment) else { break };
        if data.lkey() == LKEY_INVALID && data.byte_count() == 0 {
            break;
        }
        let (key, address, len) = (data.lkey(), data.addr(), data.byte_count() & BYTE_COUNT);
        open.pieces.push(Piece::Memory { key, address, len });
    }
    if open.pieces.is_empty() {
        nic.strict.report(rules::NO_BUFFER, || format!("RQ {:#x}, WQE {index:#x}", rq.rqn));
    }
    Ok(Some(open))
}

fn complete_filler(rq: &Rq, nic: &mut Nic, place: PacketPosition, tag: u32) {
    let mut cqe = Cqe::ZERO;
    cqe.w().srqn(rq.user_index).qpn(tag).opcode(CqeOpcode::ResponderSend);
    place.write(&mut cqe);
    completion::write(nic, rq.rqn, rq.cqn, &cqe, true);
}

/// Takes the next WQE, or the rest of the open one, to be flushed.
pub(super) fn flush_next(striding: &mut Striding, fetched: u16) -> (PacketPosition, bool) {
    match striding.open.take() {
        Some(open) => (striding.rest(&open, false), false),
        None => {
            let index = if striding.is_linked { striding.next } else { fetched };
            (striding.rest(&OpenWqe { index, ..OpenWqe::default() }, false), true)
        }
    }
}
