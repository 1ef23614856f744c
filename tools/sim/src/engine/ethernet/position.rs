//! Where received packets go: what plain and striding receive queues have in common.

use mlx5_prm::cqe::{Cqe, CqeSyndrome};

use crate::engine::posted;
use crate::function::Nic;
use crate::objects::Rq;

/// Byte count of a receive WQE's segment. Linux sets the bit above, "start padding".
pub(super) const BYTE_COUNT: u32 = 0x7fff_ffff;

/// What a completion says of where its packet is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PacketPosition {
    /// The WQE; of a striding queue the stride.
    pub(super) wqe_counter: u16,
    /// Of a striding queue: the WQE.
    pub(super) wqe_id: u16,
    /// Bytes; of a striding queue with the strides taken.
    pub(super) byte_cnt: u32,
}

impl PacketPosition {
    pub(super) fn write(self, cqe: &mut Cqe) {
        cqe.w().wqe_counter(self.wqe_counter).wqe_id(self.wqe_id).byte_cnt(self.byte_cnt);
    }
}

/// Where a packet was written; `None` if no receive was posted; or what failed.
pub(super) type Placed = Result<Option<PacketPosition>, (PacketPosition, CqeSyndrome)>;

/// No receive was posted for a packet.
pub(super) fn count_out_of_buffer(rq: &Rq, nic: &mut Nic) {
    if let Some(counter) = nic.objects.queue_counters.get_mut(rq.counter_set_id.into()) {
        counter.out_of_buffer = counter.out_of_buffer.wrapping_add(1);
    }
}

/// Reads dword 0 of the doorbell record, once all receives known to be posted are fetched.
pub(super) fn refresh_posted(rq: &mut Rq, nic: &Nic) {
    if rq.fetched != rq.posted {
        return;
    }
    let Ok(record) = rq.doorbell.read(&nic.dma, 0) else { return };
    rq.posted = record as u16;
    rq.consumed.posted(nic, rq.cqn, rq.posted, 1 << rq.ring.log_size);
    posted::check_posted(&nic.strict, ("RQ", rq.rqn), &mut rq.ring, record, rq.fetched);
}

/// Whether a receive is posted: one that was not begun, or the rest of one.
pub(super) fn has_receive(rq: &mut Rq, nic: &Nic) -> bool {
    refresh_posted(rq, nic);
    rq.fetched != rq.posted || rq.striding.as_ref().is_some_and(|striding| striding.open.is_some())
}
