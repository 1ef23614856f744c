//! Frames in tunnels: VXLAN. RFC 7348.

use super::{HEADER, Headers};

/// UDP's destination port of VXLAN.
pub(crate) const VXLAN_PORT: u16 = 4789;
/// Bytes of UDP's header.
const UDP: usize = 8;
/// Bytes of VXLAN's header.
const VXLAN: usize = 8;
/// VXLAN's flag: the network identifier is valid.
const HAS_VNI: u8 = 0x08;

/// A frame in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tunnel {
    /// VXLAN network identifier.
    pub vni: u32,
    /// Offset of the inner frame.
    pub inner_at: usize,
}

/// The VXLAN tunnel that the frame, whose headers are given, is of.
pub(crate) fn vxlan(frame: &[u8], headers: &Headers) -> Option<Tunnel> {
    let l4 = headers.l4.filter(|l4| !l4.is_tcp && l4.destination_port == VXLAN_PORT)?;
    let header = frame.get(l4.at + UDP..l4.at + UDP + VXLAN)?;
    let inner_at = l4.at + UDP + VXLAN;
    let is_whole = frame.len() >= inner_at + HEADER && header[0] & HAS_VNI != 0;
    is_whole.then(|| Tunnel { vni: u32::from_be_bytes([0, header[4], header[5], header[6]]), inner_at })
}
