//! Receive queues: steering chooses the queue, and completions say what frames are. PRM "Transport Interface Receive".

use mlx5_prm::cqe::{Cqe, CqeOpcode, L3Header, L4Header};
use mlx5_prm::ctx::QueueState;

use super::lro;
use crate::engine::charge::charge;
use crate::ethernet::checksum::{self, Verdict};
use crate::ethernet::{self, Headers, Tunnel};
use crate::function::{Function, Nic};
use crate::objects::{Dispatch, Lro, Queues, Rq};
use crate::steering::hash::Hash;
use crate::steering::{Delivery, Entering};
use crate::wire::Sender;

/// The ACK flag of TCP.
const ACK: u16 = 0x10;

/// A frame arrived.
pub(crate) fn take(f: &mut Function, frame: &[u8], sender: Sender) {
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    let headers = Headers::of(frame);
    nic.port.counters.ethernet.count_received(&headers.destination, frame.len());
    let root = nic.objects.steering.receive_root;
    // No send queue of this function sent it.
    let entering = Entering { sqn: 0, metadata: 0, now: nic.now };
    let deliveries = root.map_or_else(Vec::new, |root| nic.steer(root, frame, entering));
    if deliveries.is_empty() {
        nic.port.counters.dropped += 1;
    }
    for mut delivery in deliveries {
        match delivery.changed.take() {
            None => deliver(queues, nic, frame, &headers, &delivery, sender),
            Some(changed) => deliver(queues, nic, &changed, &Headers::of(&changed), &delivery, sender),
        }
    }
}

fn deliver(queues: &mut Queues, nic: &mut Nic, frame: &[u8], headers: &Headers, delivery: &Delivery, sender: Sender) {
    let Some(tir) = delivery.tirn.and_then(|tirn| nic.objects.tirs.get(tirn)) else { return };
    let (takes_unicast, takes_multicast) = tir.takes_own;
    let is_taken = if headers.is_group() { takes_multicast } else { takes_unicast };
    if is_of_domain(sender, tir.transport_domain) && !is_taken {
        return;
    }
    let ports = &nic.objects.steering.vxlan_ports;
    let tunnel = if tir.looks_inside { Tunnel::of(frame, headers, ports) } else { None };
    let inner = tunnel.map(|tunnel| tunnel.inner);
    let (rqn, hash) = match tir.dispatch {
        Dispatch::Direct(rqn) => (Some(rqn), Hash::NONE),
        Dispatch::Indirect(rqtn, hashing) => {
            let hashed = if hashing.is_inner { inner.as_ref() } else { Some(headers) };
            let hash = hashed.map_or(Hash::NONE, |headers| hashing.of(headers));
            let rqs = nic.objects.rqts.get(rqtn).map_or(&[][..], |rqt| &rqt.rqs);
            (rqs.get(hash.value as usize % rqs.len().max(1)).copied(), hash)
        }
    };
    let steered = Steered { hash, tag: delivery.tag, lro: tir.lro, inner };
    if let Some(rq) = rqn.and_then(|rqn| queues.rqs.get_mut(rqn)).filter(|rq| rq.state == QueueState::Rdy) {
        charge(rq, nic, |rq, nic| receive(rq, nic, frame.to_vec(), headers, steered));
    }
}

/// Whether one of the function's own send queues, in this transport domain, sent the frame.
fn is_of_domain(sender: Sender, domain: u32) -> bool {
    matches!(sender, Sender::Own(own) if own.domain == Some(domain))
}

/// How steering brought a frame to a queue.
struct Steered {
    hash: Hash,
    tag: u32,
    lro: Option<Lro>,
    /// The headers of what is in the frame's tunnel, if the TIR looks into it.
    inner: Option<Headers>,
}

/// Takes a frame: for the next posted buffer, or to join it to others.
fn receive(rq: &mut Rq, nic: &mut Nic, mut frame: Vec<u8>, headers: &Headers, steered: Steered) {
    let Steered { hash, tag, lro, inner } = steered;
    let verdict = verdict(&frame, headers, inner.as_ref());
    let segment = lro.and_then(|lro| Some((lro, lro.segment(&frame, headers)?)));
    let tci = if rq.strips_vlan { ethernet::strip_tag(&mut frame) } else { None };
    let segment = segment.map(|(lro, segment)| (lro, if tci.is_some() { segment.without_tag() } else { segment }));
    let told = inner.as_ref().unwrap_or(headers);
    let mut cqe = Cqe::ZERO;
    cqe.w()
        .tunneled(inner.is_some())
        .outer_l3_type(inner.is_some() && headers.ip.is_some_and(|ip| !ip.is_v4))
        .rss_hash_result(hash.value)
        .rss_hash_type_l4(hash.l4.number() as u8)
        .rss_hash_type_ip(hash.ip.number() as u8)
        .check_sum(checksum::whole(&frame))
        .l2_ok(true)
        .l3_ok(verdict.l3_ok)
        .l4_ok(verdict.l4_ok)
        .ip_frag(told.ip.is_some_and(|ip| ip.is_fragment))
        .l3_hdr_type(l3_kind(told).number() as u8)
        .l4_hdr_type(l4_kind(told).number() as u8)
        .cv(tci.is_some())
        .vlan_info(tci.unwrap_or(0))
        .srqn(rq.user_index)
        .qpn(tag)
        .opcode(CqeOpcode::ResponderSend);
    lro::take(rq, nic, frame, &cqe, segment);
}

/// What the checksums say: of a frame with a tunnel, those around it as well as those inside, of which UDP's around it
/// may be absent.
fn verdict(frame: &[u8], headers: &Headers, inner: Option<&Headers>) -> Verdict {
    let outer = checksum::verify(frame, headers);
    let Some(inner) = inner else { return outer };
    let within = checksum::verify(frame, inner);
    Verdict { l3_ok: outer.l3_ok && within.l3_ok, l4_ok: within.l4_ok && (outer.l4_ok || headers.l4.is_none()) }
}

fn l3_kind(headers: &Headers) -> L3Header {
    headers.ip.map_or(L3Header::None, |ip| if ip.is_v4 { L3Header::Ipv4 } else { L3Header::Ipv6 })
}

fn l4_kind(headers: &Headers) -> L4Header {
    let (Some(ip), Some(l4)) = (headers.ip, headers.l4) else { return L4Header::None };
    let has_data = ip.at + ip.len > l4.at + l4.header_len;
    match (l4.is_tcp, l4.tcp_flags & ACK != 0) {
        (false, _) => L4Header::Udp,
        (true, false) => L4Header::TcpNoAck,
        (true, true) if has_data => L4Header::TcpAckAndData,
        (true, true) => L4Header::TcpAckNoData,
    }
}
