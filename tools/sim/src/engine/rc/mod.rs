//! Connections: PSNs, acknowledgements, retries. An unreliable connection is the same without the answers: what was
//! sent is done with, and what comes out of order is dropped with the rest of its message.
//!
//! [`RcState`](crate::objects::RcState) is what one queue pair remembers. The requester turns its work requests into
//! packets and the answers into completions; the responder does what the remote requester asks. Both are bounded in
//! what they do at a time; the scheduler of [`crate::engine`] calls them in turn.
//!
//! Losses are repaired by going back: after a timeout, a sequence error or a gap in a read's response, the requester
//! starts anew at the oldest packet that was not acknowledged.

pub(crate) mod requester;
pub(crate) mod responder;

use std::time::Duration;

use crate::function::Nic;
use crate::objects::Qp;
use crate::strict::rules;
use crate::transport::packet::Route;

/// Where the queue pair's packets go. `None` if its GID index is empty: they go nowhere.
pub(crate) fn route(qp: &Qp, nic: &Nic) -> Option<Route> {
    let path = &qp.path;
    let Some(source) = nic.objects.gids.get(u16::from(path.src_addr_index)) else {
        nic.strict.report(rules::EMPTY_GID, || format!("QP {:#x}: GID index {}", qp.qpn, path.src_addr_index));
        return None;
    };
    Some(Route {
        dst_mac: path.rmac,
        src_mac: source.mac,
        src: source.gid,
        dst: path.rgid,
        // A card without a port of the connection's own takes one from the dynamic range.
        sport: if path.udp_sport == 0 { 0xc000 | qp.qpn as u16 & 0x3fff } else { path.udp_sport },
        hop_limit: path.hop_limit,
        tclass: path.tclass,
        flow_label: path.flow_label,
        tag: source.vlan.map(|vlan| u16::from(path.eth_prio & 7) << 13 | vlan),
    })
}

/// How long the responder wants the requester to wait, by RNR NAK timer code.
pub(crate) fn rnr_delay(code: u8) -> Duration {
    const HUNDREDTHS_OF_MS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(u64::from(HUNDREDTHS_OF_MS[usize::from(code & 31)]) * 10)
}

/// How long an acknowledgement may take; `None`: for ever.
pub(crate) fn ack_timeout(qp: &Qp) -> Option<Duration> {
    let code = u32::from(qp.path.ack_timeout & 31);
    (code != 0).then(|| Duration::from_nanos(4096u64 << code))
}
