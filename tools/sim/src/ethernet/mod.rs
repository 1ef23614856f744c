//! Ethernet frames: what is in them, their checksums, and their division into segments.
//!
//! Nothing here knows of queues. A frame is its bytes from the destination MAC to the last of the payload, without the
//! check sequence, which no wire of the model carries.

pub(crate) mod checksum;
pub(crate) mod headers;
pub(crate) mod segment;

pub(crate) use headers::{Headers, Ip, L4};

/// Bytes of a frame's header without tags.
pub(crate) const HEADER: usize = 14;
/// Bytes of a VLAN tag.
pub(crate) const TAG: usize = 4;
/// Where a VLAN tag begins.
const TAG_AT: usize = 12;
/// The EtherType of a C-VLAN tag, and of an S-VLAN tag.
pub(crate) const C_VLAN: u16 = 0x8100;
pub(crate) const S_VLAN: u16 = 0x88a8;

/// Puts a VLAN tag between the addresses and the EtherType.
pub(crate) fn insert_tag(frame: &mut Vec<u8>, ether_type: u16, tci: u16) {
    let at = TAG_AT.min(frame.len());
    let ([a, b], [c, d]) = (ether_type.to_be_bytes(), tci.to_be_bytes());
    frame.splice(at..at, [a, b, c, d]);
}

/// Takes the C-VLAN tag off, if there is one: its tag control information.
pub(crate) fn strip_tag(frame: &mut Vec<u8>) -> Option<u16> {
    let tag = frame.get(TAG_AT..TAG_AT + TAG)?;
    if u16::from_be_bytes([tag[0], tag[1]]) != C_VLAN {
        return None;
    }
    let tci = u16::from_be_bytes([tag[2], tag[3]]);
    frame.drain(TAG_AT..TAG_AT + TAG);
    Some(tci)
}

#[cfg(test)]
mod tests;
