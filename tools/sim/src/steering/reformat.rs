//! Packet reformat contexts: headers that entries put before frames, and tunnels that they take away. PRM
//! "ALLOC_PACKET_REFORMAT_CONTEXT".

use mlx5_prm::flow::ReformatType;

use crate::ethernet::{HEADER, Headers, Tunnel, VxlanPorts, checksum};

/// What a packet reformat context does with its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReformatKind {
    /// The header is put before the frame.
    L2Tunnel,
    /// The header takes the place of the frame's Ethernet header and VLAN tags.
    L3Tunnel,
    /// The header takes the place of all that is before the packet of IP in the tunnel.
    Leave,
}

/// A packet reformat context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reformat {
    /// What is done.
    pub kind: ReformatKind,
    /// What the driver calls it.
    pub reformat_type: ReformatType,
    /// The headers, the first of which is that of Ethernet.
    pub header: Vec<u8>,
}

impl Reformat {
    /// Puts the frame into the tunnel; lengths and IPv4's checksum are filled in. Returns false if the frame has not
    /// what goes into it.
    #[must_use]
    pub(crate) fn encapsulate(&self, frame: &mut Vec<u8>) -> bool {
        let kept_from = match self.kind {
            ReformatKind::L2Tunnel => Some(0),
            ReformatKind::L3Tunnel => Headers::of(frame).ip.map(|ip| ip.at),
            ReformatKind::Leave => None,
        };
        let Some(kept_from) = kept_from else { return false };
        frame.splice(..kept_from, self.header.iter().copied());
        let headers = Headers::of(&frame[..self.header.len().max(HEADER).min(frame.len())]);
        let Some(ip) = headers.ip else { return true };
        // IPv6's length is that of what follows its header.
        let (at, skipped) = if ip.is_v4 { (ip.at + 2, 0) } else { (ip.at + 4, 40) };
        set_length(frame, at, ip.at + skipped);
        if let Some(l4) = headers.l4.filter(|l4| !l4.is_tcp) {
            set_length(frame, l4.at + 4, l4.at);
        }
        checksum::insert_l3(frame, &ip);
        true
    }

    /// Takes the packet out of its tunnel, and puts it behind the header. Returns false for any other frame.
    #[must_use]
    pub(crate) fn leave(&self, frame: &mut Vec<u8>, ports: &VxlanPorts) -> bool {
        let tunnel = Tunnel::of(frame, &Headers::of(frame), ports);
        let Some(packet) = tunnel.and_then(|tunnel| tunnel.inner.ip) else { return false };
        frame.splice(..packet.at, self.header.iter().copied());
        true
    }
}

/// Writes the bytes from `start` to the frame's end into the 16 bits at `at`.
fn set_length(frame: &mut [u8], at: usize, start: usize) {
    let len = frame.len().saturating_sub(start) as u16;
    if let Some(field) = frame.get_mut(at..at + 2) {
        field.copy_from_slice(&len.to_be_bytes());
    }
}

/// Takes a frame out of its tunnel. Returns false for a frame that is in no tunnel of frames: the steering entries that
/// Linux writes into a card say `fail_on_error` of it (core/steering/sws/dr_ste_v0.c).
#[must_use]
pub(crate) fn decapsulate(frame: &mut Vec<u8>, ports: &VxlanPorts) -> bool {
    let tunnel = Tunnel::of(frame, &Headers::of(frame), ports).filter(|tunnel| tunnel.is_frame);
    tunnel.is_some_and(|tunnel| {
        frame.drain(..tunnel.inner_at);
        true
    })
}
