//! Strict mode that [watches receives](crate::strict::Strict::watch_receives): each receive buffer must be posted only
//! once at a time. IBTA 10.8: a buffer is the card's from its post to its completion.

use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{DataSeg, LKEY_INVALID, SEGMENT};

use crate::function::Nic;
use crate::objects::{Buffer, Qp, RecvRing};
use crate::strict::rules;

/// Records the receives posted since the last call.
pub(crate) fn look(qp: &mut Qp, nic: &mut Nic) {
    let (Some(ring), true) = (&qp.recv, nic.strict.watches_receives()) else { return };
    let Ok(posted) = qp.doorbell.peek(&nic.dma, 0) else { return };
    let held = &mut qp.rc.receive.held;
    // More receives than ring places are an overrun, which has a rule of its own.
    let count = u32::from((posted as u16).wrapping_sub(held.next)).min(1 << ring.log_size) as u16;
    for place in (0..count).rev().map(|back| (posted as u16).wrapping_sub(back + 1)) {
        let mut room = [0; RecvRing::LONGEST];
        let Ok(wqe) = ring.read(&nic.dma, place, &mut room) else { continue };
        for buffer in buffers(wqe) {
            take(nic, qp.qpn, place, buffer);
            held.buffers.push_back((place, buffer));
        }
    }
    held.next = posted as u16;
}

/// The buffers of a receive WQE.
fn buffers(wqe: &[u8]) -> impl Iterator<Item = Buffer> {
    let segments = wqe.chunks_exact(SEGMENT).map_while(DataSeg::read);
    let used = segments.take_while(|data| data.lkey() != LKEY_INVALID);
    used.map(|data| (data.lkey(), data.addr(), data.byte_count())).filter(|(_, _, len)| *len != 0)
}

fn take(nic: &mut Nic, qpn: u32, place: u16, buffer: Buffer) {
    let first = *nic.scheduler.held.0.entry(buffer).or_insert((qpn, place));
    if first != (qpn, place) {
        let (key, address, len) = buffer;
        nic.strict.report(rules::RECEIVE_TWICE, || {
            let (other, earlier) = first;
            format!(
                "QP {qpn:#x}, WQE {place:#x}: {len:#x} bytes at {address:#x} of key {key:#x}, posted to QP {other:#x} as WQE \
                 {earlier:#x} already"
            )
        });
    }
}

/// The receive at `place` is about to complete: its buffers belong to software again.
pub(crate) fn give_back(qp: &mut Qp, nic: &mut Nic, place: u16) {
    let held = &mut qp.rc.receive.held;
    while let Some((_, buffer)) = held.buffers.front().copied().filter(|(first, _)| *first == place) {
        held.buffers.pop_front();
        if nic.scheduler.held.0.get(&buffer) == Some(&(qp.qpn, place)) {
            nic.scheduler.held.0.remove(&buffer);
        }
    }
}
