//! Packet reformat contexts: headers that entries put before frames, and tunnels that they take away. PRM
//! "ALLOC_PACKET_REFORMAT_CONTEXT".

use crate::ethernet::{HEADER, Headers, Tunnel, VxlanPorts, checksum};

/// A packet reformat context: a frame is put behind these headers, whose lengths and IPv4 checksum are filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reformat {
    /// The outer headers.
    pub header: Vec<u8>,
}

impl Reformat {
    /// Puts the frame into the tunnel.
    pub(crate) fn apply(&self, frame: &mut Vec<u8>) {
        frame.splice(0..0, self.header.iter().copied());
        let headers = Headers::of(&frame[..self.header.len().max(HEADER).min(frame.len())]);
        let Some(ip) = headers.ip else { return };
        // IPv6's length is that of what follows its header.
        let (at, skipped) = if ip.is_v4 { (ip.at + 2, 0) } else { (ip.at + 4, 40) };
        set_length(frame, at, ip.at + skipped);
        if let Some(l4) = headers.l4.filter(|l4| !l4.is_tcp) {
            set_length(frame, l4.at + 4, l4.at);
        }
        checksum::insert_l3(frame, &ip);
    }
}

/// Writes the bytes from `start` to the frame's end into the 16 bits at `at`.
fn set_length(frame: &mut [u8], at: usize, start: usize) {
    let len = frame.len().saturating_sub(start) as u16;
    if let Some(field) = frame.get_mut(at..at + 2) {
        field.copy_from_slice(&len.to_be_bytes());
    }
}

/// Takes a frame out of its tunnel; any other is left as it is.
pub(crate) fn decapsulate(frame: &mut Vec<u8>, ports: &VxlanPorts) {
    if let Some(tunnel) = Tunnel::of(frame, &Headers::of(frame), ports).filter(|tunnel| tunnel.is_frame) {
        frame.drain(..tunnel.inner_at);
    }
}
