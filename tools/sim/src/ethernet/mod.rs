//! Ethernet frames: parsing, checksums, segmentation, segments to be joined.
//!
//! Independent of queues. A frame is its bytes from the destination MAC to the end of the payload. The FCS is not part
//! of any frame in the model.

pub(crate) mod checksum;
pub(crate) mod headers;
mod layers;
pub(crate) mod segment;
mod tcp;
mod tunnel;

pub(crate) use headers::{Headers, Ip, L4, Tag};
pub use layers::tunnel_offsets;
pub(crate) use layers::{Layer, Layers};
pub(crate) use tcp::Segment;
pub(crate) use tunnel::{Tunnel, VxlanPorts};

/// Length of an Ethernet header without tags.
pub(crate) const HEADER: usize = 14;
/// Length of a VLAN tag.
pub(crate) const TAG: usize = 4;
/// Offset of a VLAN tag.
const TAG_AT: usize = 12;
/// EtherType of a C-VLAN tag, and of an S-VLAN tag.
pub(crate) const C_VLAN: u16 = 0x8100;
pub(crate) const S_VLAN: u16 = 0x88a8;

/// Inserts a VLAN tag before the EtherType.
pub(crate) fn insert_tag(frame: &mut Vec<u8>, ether_type: u16, tci: u16) {
    let at = TAG_AT.min(frame.len());
    let ([a, b], [c, d]) = (ether_type.to_be_bytes(), tci.to_be_bytes());
    frame.splice(at..at, [a, b, c, d]);
}

/// Removes the C-VLAN tag, if any; returns its tag control information.
pub(crate) fn strip_tag(frame: &mut Vec<u8>) -> Option<u16> {
    let tag = frame.get(TAG_AT..TAG_AT + TAG)?;
    if u16::from_be_bytes([tag[0], tag[1]]) != C_VLAN {
        return None;
    }
    let tci = u16::from_be_bytes([tag[2], tag[3]]);
    frame.drain(TAG_AT..TAG_AT + TAG);
    Some(tci)
}

/// Removes the outer VLAN tag, if any.
pub(crate) fn pop_tag(frame: &mut Vec<u8>) {
    let kind = frame.get(TAG_AT..TAG_AT + TAG).map(|tag| u16::from_be_bytes([tag[0], tag[1]]));
    if matches!(kind, Some(C_VLAN | S_VLAN)) {
        frame.drain(TAG_AT..TAG_AT + TAG);
    }
}

#[cfg(test)]
mod tests;
