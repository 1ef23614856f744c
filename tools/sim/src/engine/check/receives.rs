//! Strict mode that [watches receives](crate::strict::Strict::watch_receives): each receive buffer must be posted only
//! once at a time. IBTA 10.8: a buffer is the card's from its post to its completion.

use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{DataSeg, LKEY_INVALID, SEGMENT};

use crate::function::Nic;
use crate::objects::{Buffer, Doorbell, HeldByQueue, Holder, Qp, QueueName, RecvRing, Rq};
use crate::strict::rules;

/// The receives of a queue pair's own ring, or of an Ethernet queue's.
pub(crate) struct Receives<'a> {
    queue: QueueName,
    ring: &'a RecvRing,
    doorbell: &'a Doorbell,
    held: &'a mut HeldByQueue,
}

impl Qp {
    /// `None` if it has no ring of its own.
    pub(crate) fn receives(&mut self) -> Option<Receives<'_>> {
        let (ring, held) = (self.recv.as_ref()?, &mut self.rc.receive.held);
        Some(Receives { queue: QueueName("QP", self.qpn), ring, doorbell: &self.doorbell, held })
    }
}

impl Rq {
    /// `None` if it is a striding queue: its WQEs can be linked in any order.
    pub(crate) fn receives(&mut self) -> Option<Receives<'_>> {
        let queue = QueueName("RQ", self.rqn);
        let receives = Receives { queue, ring: &self.ring, doorbell: &self.doorbell, held: &mut self.held };
        self.striding.is_none().then_some(receives)
    }
}

/// Records the receives posted since the last call.
pub(crate) fn look(receives: Option<Receives>, nic: &mut Nic) {
    let (Some(Receives { queue, ring, doorbell, held }), true) = (receives, nic.strict.watches_receives()) else {
        return;
    };
    let Ok(posted) = doorbell.peek(&nic.dma, 0) else { return };
    // More receives than ring places are an overrun, which has a rule of its own.
    let count = u32::from((posted as u16).wrapping_sub(held.next)).min(1 << ring.log_size) as u16;
    for place in (0..count).rev().map(|back| (posted as u16).wrapping_sub(back + 1)) {
        let mut room = [0; RecvRing::LONGEST];
        let Ok(wqe) = ring.read(&nic.dma, place, &mut room) else { continue };
        for buffer in buffers(wqe) {
            take(nic, Holder { queue, place }, buffer);
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

fn take(nic: &mut Nic, holder: Holder, buffer: Buffer) {
    let first = *nic.scheduler.held.0.entry(buffer).or_insert(holder);
    if first != holder {
        let (key, address, len) = buffer;
        nic.strict.report(rules::RECEIVE_TWICE, || {
            format!("{holder}: {len:#x} bytes at {address:#x} of key {key:#x}, posted to {first} already")
        });
    }
}

/// The receive at `place` is about to complete: its buffers belong to software again.
pub(crate) fn give_back(receives: Option<Receives>, nic: &mut Nic, place: u16) {
    let Some(Receives { queue, held, .. }) = receives else { return };
    while let Some((_, buffer)) = held.buffers.front().copied().filter(|(first, _)| *first == place) {
        held.buffers.pop_front();
        if nic.scheduler.held.0.get(&buffer) == Some(&Holder { queue, place }) {
            nic.scheduler.held.0.remove(&buffer);
        }
    }
}
