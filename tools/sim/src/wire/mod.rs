//! The wire: what joins two ports.
//!
//! Each function has a [`Port`]. What a port sends to its own address comes back at once; the rest waits until the
//! device thread calls [`Wire::exchange`], which hands it to the other functions of the card, as an embedded switch does,
//! or to the [`Uplink`], the way out of the process. Between functions packets travel as they are; bytes are made only
//! for an uplink and for a [capture](PcapWriter).

mod counters;
mod filter;
mod pcap;
mod port;
mod uplink;

pub use counters::{BothWays, ByAddress, PhysicalCounters, PortCounters, Traffic};
pub use pcap::PcapWriter;
#[cfg(test)]
pub(crate) use port::ROOM;
pub use port::{Own, Port, Sender};
pub use uplink::{SocketUplink, Uplink};

use crate::function::Function;
use crate::transport::Packet;
use crate::transport::decode::DecodeError;
use crate::transport::packet::{self, Mac};
use filter::Claim;

/// What travels on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A packet of a reliable connection.
    Roce(Box<Packet>),
    /// Any other Ethernet frame, without its check sequence.
    Ethernet(Vec<u8>),
}

impl Frame {
    /// The frame that these bytes are. `None` for a RoCE packet that is damaged or of a kind the model does not know: a
    /// card drops it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Frame> {
        match Packet::decode(bytes) {
            Ok(packet) => Some(Frame::Roce(Box::new(packet))),
            Err(DecodeError::NotRoce) => Some(Frame::Ethernet(bytes.to_vec())),
            Err(error) => {
                tracing::debug!(target: "mlx5_sim::wire", "frame of {} bytes dropped: {error}", bytes.len());
                None
            }
        }
    }

    /// Appends the frame's bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Frame::Roce(packet) => packet.encode(bytes),
            Frame::Ethernet(frame) => bytes.extend_from_slice(frame),
        }
    }

    /// Bytes on the wire, with the check sequence: what a port's MTU limits.
    pub(crate) fn wire_len(&self) -> usize {
        CHECK_SEQUENCE
            + match self {
                Frame::Roce(packet) => packet.frame_len(),
                Frame::Ethernet(frame) => frame.len(),
            }
    }

    /// Destination MAC; all zero for a frame too short to have one.
    pub fn destination(&self) -> Mac {
        match self {
            Frame::Roce(packet) => packet.route.dst_mac,
            Frame::Ethernet(frame) => frame.first_chunk().copied().unwrap_or_default(),
        }
    }

    /// Flips bit `bit`, counted modulo the frame's length, where no check sequence of Ethernet covers it: inside a switch.
    /// What comes of it is for the one to find out where it arrives: the sums of IPv4 and RoCE cover most of a packet, but
    /// no address of Ethernet, and nothing that a router may change.
    pub(crate) fn damage(&mut self, bit: u32) {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        packet::flip(&mut bytes, bit);
        match (&mut *self, Packet::decode(&bytes)) {
            (Frame::Roce(packet), Ok(changed)) => **packet = changed,
            (Frame::Roce(packet), Err(error)) if error != DecodeError::NotRoce => packet.flipped = Some(bit),
            _ => *self = Frame::Ethernet(bytes),
        }
    }
}

/// Bytes of a frame's check sequence.
const CHECK_SEQUENCE: usize = 4;

/// Joins the ports of a card's functions, and leads out of it if it has an [`Uplink`].
#[derive(Debug, Default)]
pub struct Wire {
    uplink: Option<Box<dyn Uplink>>,
    bytes: Vec<u8>,
    /// Which function's turn it is to send first: none may always take the last room at a receiver.
    first: usize,
}

/// Most bytes of a frame that an uplink takes or gives.
const LARGEST_FRAME: usize = 16 * 1024;
/// Frames taken from an uplink in one turn.
const UPLINK_BATCH: usize = 64;

impl Wire {
    /// A wire that leads nowhere but from function to function.
    pub fn new() -> Self {
        Self::default()
    }

    /// A wire that also leads out.
    pub fn with_uplink(uplink: impl Uplink + 'static) -> Self {
        Wire { uplink: Some(Box::new(uplink)), ..Wire::default() }
    }

    /// Moves frames: out of each port, over the wire, to [`crate::engine::receive`] of each addressee. True if any moved.
    /// Called by the device thread each turn of its loop.
    pub fn exchange(&mut self, functions: &mut [Function]) -> bool {
        // In before out: who joins the wire is heard before the first frame to it leaves.
        let mut moved = self.take_in(functions);
        let count = functions.len();
        self.first = self.first.wrapping_add(1);
        for turn in 0..count {
            let from = self.first.wrapping_add(turn) % count;
            while has_room(functions, from)
                && let Some(frame) = functions[from].port.take_sent()
            {
                moved = true;
                self.deliver(frame, from, functions);
            }
        }
        moved
    }

    /// Takes a frame to whose address it is; if that is nobody here, out of the card. Those that hear it too get a copy. What
    /// nobody has comes to every port, as from a switch that does not know the address, and each drops it.
    fn deliver(&mut self, frame: Frame, from: usize, functions: &mut [Function]) {
        let destination = frame.destination();
        let own = functions.iter().position(|function| filter::claim(function, destination) == Claim::Own);
        if own.is_none()
            && let Some(uplink) = &mut self.uplink
        {
            self.bytes.clear();
            frame.encode(&mut self.bytes);
            uplink.send(&self.bytes);
        }
        for (index, function) in functions.iter_mut().enumerate() {
            if index == from || Some(index) == own {
                continue;
            }
            match filter::claim(function, destination) {
                Claim::Hears => crate::engine::receive(function, frame.clone()),
                Claim::None if own.is_none() => function.port.pass_by(&frame),
                Claim::None | Claim::Own => {}
            }
        }
        if let Some(own) = own {
            crate::engine::receive(&mut functions[own], frame);
        }
    }

    /// Takes frames from the uplink.
    fn take_in(&mut self, functions: &mut [Function]) -> bool {
        let Some(uplink) = &mut self.uplink else { return false };
        self.bytes.resize(LARGEST_FRAME, 0);
        for count in 0..UPLINK_BATCH {
            // What is not taken now waits in the socket.
            if !functions.iter().all(|function| function.port.can_receive()) {
                return count > 0;
            }
            let Some(len) = uplink.receive(&mut self.bytes) else { return count > 0 };
            let Some(frame) = Frame::from_bytes(&self.bytes[..len]) else { continue };
            let destination = frame.destination();
            for function in functions.iter_mut() {
                if filter::claim(function, destination) == Claim::None {
                    function.port.pass_by(&frame);
                    continue;
                }
                function.port.capture(&frame);
                crate::engine::receive(function, frame.clone());
            }
        }
        true
    }
}

/// Whether all to whom a function's next frame goes can take it; true if there is no such frame.
fn has_room(functions: &[Function], from: usize) -> bool {
    let Some(destination) = functions[from].port.next_destination() else { return true };
    let mut takers = functions.iter().filter(|function| filter::claim(function, destination) != Claim::None);
    takers.all(|function| function.port.can_receive())
}

/// [`Wire::exchange`] on a wire without an uplink.
pub fn exchange(functions: &mut [Function]) -> bool {
    Wire::new().exchange(functions)
}

#[cfg(test)]
mod tests;
