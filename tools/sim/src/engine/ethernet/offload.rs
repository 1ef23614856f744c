//! What the Ethernet segment asks for: checksums, VLAN tags, segmentation. PRM "Ethernet Segment".
//!
//! In tunnels, the card finds the inner headers itself, or software says where they are (software parser).

use mlx5_prm::wqe::EthSeg;

use crate::ethernet::segment::Segments;
use crate::ethernet::{self, C_VLAN, Layer, Layers, S_VLAN};
use crate::function::Nic;
use crate::objects::Sq;
use crate::strict::rules;

/// Lowest bit of `insert.type`: an S-VLAN tag. PRM "Ethernet Segment".
const SERVICE_TAG: u16 = 1;
/// Unit of the software parser's offsets.
const WORD: usize = 2;

/// The headers are not what the WQE says.
pub(super) struct WrongHeaders;

/// The frame with its checksums and its VLAN tag.
pub(super) fn finished(
    sq: &Sq,
    nic: &Nic,
    eth: &EthSeg,
    mut frame: Vec<u8>,
    may_tag: bool,
) -> Result<Vec<u8>, WrongHeaders> {
    if eth.l3_csum() || eth.l4_csum() || eth.l3_inner_csum() || eth.l4_inner_csum() {
        insert_checksums(sq, nic, eth, &mut frame)?;
    }
    if may_tag && eth.insert_vlan() {
        insert_tag(&mut frame, eth);
    }
    Ok(frame)
}

/// Large send offload: divides a packet into frames after its header.
pub(super) fn divide(
    sq: &Sq,
    nic: &Nic,
    eth: &EthSeg,
    packet: Vec<u8>,
    header_len: usize,
) -> Result<Segments, WrongHeaders> {
    let layers = layers(sq, nic, eth, &packet[..header_len])?.ok_or(WrongHeaders)?;
    let segments = Segments::new(layers, packet, header_len, eth.mss().into(), eth.l4_csum());
    let segments = segments.map_err(|_| WrongHeaders)?;
    if let Some((length, false)) = segments.udp_length() {
        nic.strict.report(rules::UDP_LENGTH, || {
            let mss = eth.mss();
            format!("SQ {:#x}, WQE {:#x}: length {length}, mss {mss}, and what is sent", sq.sqn, sq.fetched)
        });
    }
    Ok(segments)
}

fn insert_checksums(sq: &Sq, nic: &Nic, eth: &EthSeg, frame: &mut [u8]) -> Result<(), WrongHeaders> {
    let Some(Layers { outer, inner }) = layers(sq, nic, eth, frame)? else { return Ok(()) };
    // The outer checksum of UDP covers the inner ones.
    if let Some(inner) = inner {
        inner.insert_checksums(frame, eth.l3_inner_csum(), eth.l4_inner_csum());
    }
    outer.insert_checksums(frame, eth.l3_csum(), eth.l4_csum());
    Ok(())
}

/// The headers of a frame: where the WQE says, otherwise where the card finds them. It looks into tunnels for what asks
/// for that.
fn layers(sq: &Sq, nic: &Nic, eth: &EthSeg, frame: &[u8]) -> Result<Option<Layers>, WrongHeaders> {
    let outer = [eth.swp_outer_l3_offset(), eth.swp_outer_l4_offset()];
    let inner = [eth.swp_inner_l3_offset(), eth.swp_inner_l4_offset()];
    if [outer, inner] != [[0; 2]; 2] {
        let told = if sq.context.allow_swp() { told(frame, eth) } else { None };
        return told.map(Some).ok_or_else(|| {
            nic.strict.report(rules::SOFTWARE_PARSER, || {
                format!("SQ {:#x}, {eth:?}: no such headers there, or the queue has no allow_swp", sq.sqn)
            });
            WrongHeaders
        });
    }
    if eth.l3_inner_csum() || eth.l4_inner_csum() {
        return Ok(Layers::of(frame, &nic.objects.steering.vxlan_ports));
    }
    Ok(Layers::outer_of(frame))
}

/// The headers at the software parser's offsets.
fn told(frame: &[u8], eth: &EthSeg) -> Option<Layers> {
    let layer = |l3: u8, is_v6: bool, l4: u8, is_udp: bool| {
        Layer::told(frame, usize::from(l3) * WORD, !is_v6, usize::from(l4) * WORD, !is_udp)
    };
    let outer =
        layer(eth.swp_outer_l3_offset(), eth.swp_outer_l3_type(), eth.swp_outer_l4_offset(), eth.swp_outer_l4_type())?;
    if eth.swp_inner_l3_offset() == 0 {
        return Some(Layers { outer, inner: None });
    }
    let inner =
        layer(eth.swp_inner_l3_offset(), eth.swp_inner_l3_type(), eth.swp_inner_l4_offset(), eth.swp_inner_l4_type())?;
    Some(Layers { outer, inner: Some(inner) })
}

fn insert_tag(frame: &mut Vec<u8>, eth: &EthSeg) {
    // `insert.type` shares its bits with the inline header's size, and `vlan_tci` with its first bytes.
    let is_service = eth.inline_hdr_sz() & SERVICE_TAG != 0;
    ethernet::insert_tag(frame, if is_service { S_VLAN } else { C_VLAN }, eth.inline_hdr_start());
}
