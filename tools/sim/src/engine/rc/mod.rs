//! Connected transports, RC and UC: PSNs, acknowledgements, retransmission. IBTA 9.7 for RC. UC has no
//! acknowledgements: a packet completes when it is sent, and a gap in the PSNs drops the rest of the message.
//!
//! [`RcState`](crate::objects::RcState) is the state of one queue pair. The requester turns send WQEs into packets and
//! responses into completions. The responder executes the remote side's requests. Both do a bounded amount of work per
//! call; the scheduler of [`crate::engine`] calls them in turn.
//!
//! Retransmission is go-back-N: after a timeout, a NAK for a PSN sequence error, or a gap in a read response, the
//! requester sends again from the oldest unacknowledged PSN.

mod atomic;
pub(crate) mod channel;
pub(crate) mod requester;
pub(crate) mod responder;
mod resume;

use std::time::Duration;

pub(crate) use resume::resume;

use crate::function::Nic;
use crate::objects::Qp;
use crate::strict::rules;
use crate::transport::header::source_port;
use crate::transport::packet::Route;

/// Addresses of the queue pair's packets. `None` if its GID table entry is empty: nothing can be sent. The source
/// address comes from the GID table, the IPv4 addresses from IPv4-mapped GIDs. IBTA A17.4.1.1, A17.4.2.
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
        // One fixed source port for each connection. IBTA A17.3.2.1.
        sport: source_port(path.udp_sport, qp.qpn),
        hop_limit: path.hop_limit,
        tclass: path.tclass,
        flow_label: path.flow_label,
        tag: source.vlan.map(|vlan| u16::from(path.eth_prio & 7) << 13 | vlan),
    })
}

/// Delay that an RNR NAK timer code asks for. IBTA 9.7.5.2.8, table "Encoding for RNR NAK Timer Field".
pub(crate) fn rnr_delay(code: u8) -> Duration {
    const HUNDREDTHS_OF_MS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    Duration::from_micros(u64::from(HUNDREDTHS_OF_MS[usize::from(code & 31)]) * 10)
}

/// Local ACK timeout, 4.096 us << code. `None` for code 0: no timeout. IBTA 9.7.6.1.3.
pub(crate) fn ack_timeout(qp: &Qp) -> Option<Duration> {
    let code = u32::from(qp.path.ack_timeout & 31);
    (code != 0).then(|| Duration::from_nanos(4096u64 << code))
}
