//! Reusable packet buffers, so that steady traffic allocates no memory.

use crate::transport::packet::{Packet, Route};
use crate::transport::{Opcode, Psn};

/// Maximum number of packets kept: a few windows.
const KEPT: usize = 512;

/// Packets that were sent and can be reused.
#[derive(Debug, Default)]
pub(crate) struct PacketPool {
    #[allow(clippy::vec_box, reason = "frames carry boxes; unboxing to keep them would copy each packet")]
    packets: Vec<Box<Packet>>,
}

impl PacketPool {
    /// An empty packet.
    pub(crate) fn packet(&mut self, opcode: Opcode, route: Route, dest_qpn: u32, psn: Psn) -> Box<Packet> {
        let fresh = Packet::new(opcode, route, dest_qpn, psn);
        match self.packets.pop() {
            Some(mut packet) => {
                let mut payload = std::mem::take(&mut packet.payload);
                payload.clear();
                *packet = Packet { payload, ..fresh };
                packet
            }
            None => Box::new(fresh),
        }
    }

    /// Returns a packet to the pool.
    pub(crate) fn give_back(&mut self, packet: Box<Packet>) {
        if self.packets.len() < KEPT {
            self.packets.push(packet);
        }
    }
}
