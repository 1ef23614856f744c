//! What travels on the wire.

use crate::transport::Packet;
use crate::transport::decode::DecodeError;
use crate::transport::packet::{self, Mac};

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

    /// Flips bit `bit`, counted modulo the frame's length, where no check sequence of Ethernet covers it: inside a
    /// switch. What comes of it is for the one to find out where it arrives: the sums of IPv4 and RoCE cover most of a
    /// packet, but no address of Ethernet, and nothing that a router may change.
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
