//! Strict mode: compares doorbell records and doorbells with the ring. PRM "Doorbell Record".

use mlx5_prm::wqe::WQEBB;

use crate::engine::posted::index_of;
use crate::function::Nic;
use crate::objects::{Posts, Qp};
use crate::strict::rules;

/// Strict mode: the doorbell record must cover the WQE that the doorbell names, and the doorbell must equal its first 8
/// bytes. `posts`: of a queue that may send.
pub(crate) fn check_record(posts: &Posts, nic: &Nic, value: u64) {
    let (Ok(receive), Ok(record)) = (posts.doorbell.peek(&nic.dma, 0), posts.doorbell.peek(&nic.dma, 1)) else {
        return;
    };
    let named = index_of(value);
    // The counter of a WQE is 1 to 16 WQEBBs after its index.
    let covers = |counter: u16| (1..=16).contains(&counter.wrapping_sub(named));
    let is_known = (posts.posted.wrapping_sub(named) as i16) > 0 || (record as u16).wrapping_sub(named) as i16 > 0;
    if !is_known {
        let rule = if covers(record.swap_bytes() as u16) {
            rules::RECORD_LITTLE_ENDIAN
        } else if covers(receive as u16) {
            rules::RECORD_IN_WRONG_SLOT
        } else {
            rules::RECORD_NOT_WRITTEN
        };
        return nic.strict.report(rule, || {
            format!("{}: the doorbell names WQE {named:#x}, the record holds {receive:#x}, {record:#x}", posts.queue)
        });
    }
    check_copy(posts, nic, named, value);
}

/// Strict mode: nothing may be posted to a receive queue in RST.
pub(crate) fn check_unposted(qp: &Qp, nic: &Nic) {
    if !nic.strict.is_on() || qp.recv.is_none() {
        return;
    }
    if let Ok(record @ 1..) = qp.doorbell.peek(&nic.dma, 0) {
        nic.strict.report(rules::RECEIVE_IN_RST, || format!("QP {:#x}: receive counter {record:#x}", qp.qpn));
    }
}

/// Compares the doorbell's eight bytes with the WQE that it names, unless that WQE may have been overwritten. The rest
/// of a BlueFlame copy arrives later, and is checked in [`crate::bar`].
fn check_copy(posts: &Posts, nic: &Nic, named: u16, value: u64) {
    let is_fetched = (named.wrapping_sub(posts.fetched) as i16) < 0;
    let mut bytes = [0; 8];
    let place = u64::from(named) & ((1 << posts.ring.log_size) - 1);
    if is_fetched || posts.ring.memory.read(&nic.dma, place * WQEBB as u64, &mut bytes).is_err() {
        return;
    }
    let in_ring = u64::from_be_bytes(bytes);
    if in_ring != value {
        nic.strict.report(rules::DOORBELL_DIFFERS, || {
            format!("{}, WQE {named:#x}: doorbell {value:#018x}, ring {in_ring:#018x}", posts.queue)
        });
    }
}
