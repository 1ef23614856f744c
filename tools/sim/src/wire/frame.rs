//! Frames on the wire.

use crate::transport::Packet;
use crate::transport::decode::DecodeError;
use crate::transport::packet::{self, Mac};

/// A frame on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A RoCE packet.
    Roce(Box<Packet>),
    /// Any Ethernet frame, without FCS. Also a RoCE packet as bytes, until a function with RoCE receives it.
    Ethernet(Vec<u8>),
}

impl Frame {
    /// Decodes a frame. `None` for a RoCE packet that is damaged or unsupported: a function with RoCE drops it.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Frame> {
        match Packet::decode(&bytes) {
            Ok(packet) => Some(Frame::Roce(Box::new(packet))),
            Err(DecodeError::NotRoce) => Some(Frame::Ethernet(bytes)),
            Err(error) => {
                tracing::debug!(target: "mlx5_sim::wire", "frame of {} bytes dropped: {error}", bytes.len());
                None
            }
        }
    }

    /// Appends the encoded frame.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Frame::Roce(packet) => packet.encode(bytes),
            Frame::Ethernet(frame) => bytes.extend_from_slice(frame),
        }
    }

    /// Length on the wire with FCS, which the port's MTU limits.
    pub(crate) fn wire_len(&self) -> usize {
        CHECK_SEQUENCE
            + match self {
                Frame::Roce(packet) => packet.frame_len(),
                Frame::Ethernet(frame) => frame.len(),
            }
    }

    /// Destination MAC; zero if the frame is too short.
    pub fn destination(&self) -> Mac {
        match self {
            Frame::Roce(packet) => packet.route.dst_mac,
            Frame::Ethernet(frame) => frame.first_chunk().copied().unwrap_or_default(),
        }
    }

    /// Flips bit `bit`, modulo the frame's length, as if inside a switch where no FCS protects the frame. The receiver
    /// may or may not detect it: IPv4 checksum and ICRC cover most of a packet, but neither the MAC addresses nor the
    /// fields that routers change.
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

/// Length of the FCS in bytes.
const CHECK_SEQUENCE: usize = 4;
