//! What software posted: doorbell records, and the control segments they cover.

use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{CtrlSeg, SEGMENT, WQEBB};

use crate::dma::Purpose;
use crate::function::Nic;
use crate::objects::{Qp, RecvRing, blocks_of};
use crate::strict::{Strict, rules};

/// Reads dword 1 of the doorbell record, and heeds it up to `end`. Returns true if there is more than before.
pub(super) fn refresh(qp: &mut Qp, nic: &Nic, end: Option<u16>) -> bool {
    let Some(ring) = &qp.send else { return false };
    let Ok(record) = qp.doorbell.read(&nic.dma, 1) else { return false };
    let send = &mut qp.rc.send;
    let before = send.posted;
    send.posted = heeded(before, record as u16, end);
    if send.posted == before {
        return false;
    }
    if record > 0xffff && record.swap_bytes() <= 0xffff {
        nic.strict.report(rules::RECORD_LITTLE_ENDIAN, || format!("QP {:#x}: send counter {record:#x}", qp.qpn));
    }
    // Software may reuse a WQE's place in the ring once the WQE is complete.
    let held = send.posted.wrapping_sub(send.oldest());
    if u32::from(held) > 1 << ring.log_size {
        let size = 1u32 << ring.log_size;
        nic.strict.report(rules::SEND_OVERRUN, || {
            format!("QP {:#x}: {held} WQEBBs posted and not complete, in a ring of {size}", qp.qpn)
        });
    }
    send.consumed.posted(nic, qp.cqn_send, send.posted, 1 << ring.log_size);
    true
}

/// How much of the `record` counts: up to `end` if that lies between what was known and the record, else all.
pub(super) fn heeded(known: u16, record: u16, end: Option<u16>) -> u16 {
    let is_ahead = |end: &u16| end.wrapping_sub(known) as i16 > 0 && record.wrapping_sub(*end) as i16 > 0;
    end.filter(is_ahead).unwrap_or(record)
}

/// Reads dword 0 of the doorbell record, once all receives known to be posted are fetched.
pub(crate) fn refresh_posted(qp: &mut Qp, nic: &Nic) {
    let receive = &mut qp.rc.receive;
    let Some(ring) = &mut qp.recv else { return };
    if receive.fetched != receive.posted {
        return;
    }
    let Ok(record) = qp.doorbell.read(&nic.dma, 0) else { return };
    receive.posted = record as u16;
    receive.consumed.posted(nic, qp.cqn_recv, receive.posted, 1 << ring.log_size);
    check_posted(&nic.strict, ("QP", qp.qpn), ring, record, receive.fetched);
}

/// Strict mode: a receive counter must be big-endian, and must not exceed `taken` by more than the ring size. `queue`:
/// kind and number, for the report.
pub(super) fn check_posted(strict: &Strict, queue: (&str, u32), ring: &mut RecvRing, record: u32, taken: u16) {
    let (kind, number) = queue;
    let (posted, size) = (u32::from((record as u16).wrapping_sub(taken)), 1u32 << ring.log_size);
    if record > 0xffff {
        // A little-endian counter has zeros where a card reads: by that nothing was ever posted.
        ring.is_wide |= record as u16 != 0 || (1..=size).contains(&posted);
        if !ring.is_wide {
            strict.report(rules::RECORD_LITTLE_ENDIAN, || format!("{kind} {number:#x}: receive counter {record:#x}"));
        }
    }
    if posted > size {
        strict.report(rules::RECEIVE_OVERRUN, || {
            format!("{kind} {number:#x}: {posted} receives posted to a ring of {size}")
        });
    }
}

/// The control segment at ring position `index` of the send queue. PRM "Control Segment".
pub(super) fn control(qp: &Qp, nic: &Nic, index: u16) -> Option<CtrlSeg> {
    let ring = qp.send.as_ref()?;
    let mut bytes = [0; 16];
    let place = u64::from(index) & ((1 << ring.log_size) - 1);
    ring.memory.read(nic.dma.counted(Purpose::Wqe), place * WQEBB as u64, &mut bytes).ok()?;
    mlx5_prm::layout::Layout::read(&bytes)
}

/// The `wqe_index` in a send doorbell, whose eight bytes are the first of a [`CtrlSeg`].
pub(super) fn index_of(doorbell: u64) -> u16 {
    (doorbell >> 40) as u16
}

/// The index behind the WQE that a send doorbell names.
pub(super) fn end_of(doorbell: u64) -> u16 {
    let mut ctrl = [0; SEGMENT];
    ctrl[..size_of_val(&doorbell)].copy_from_slice(&doorbell.to_be_bytes());
    index_of(doorbell).wrapping_add(CtrlSeg::read(&ctrl).map_or(1, |ctrl| blocks_of(&ctrl)))
}
