//! Receive queues: steering chooses the queue, and frames are written to its posted buffers. PRM "Transport Interface
//! Receive", "Receive Queue Context".

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, L3Header, L4Header};
use mlx5_prm::ctx::QueueState;
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{DataSeg, LKEY_INVALID, SEGMENT};

use super::place::{BYTE_COUNT, Place, Placed, count_out_of_buffer, refresh_posted};
use super::striding;
use crate::dma::Purpose;
use crate::engine::charge::charge;
use crate::engine::completion;
use crate::ethernet::{self, Headers, checksum};
use crate::function::{Function, Nic};
use crate::objects::{Dispatch, Failure, MkeyRights, Queues, RecvRing, Rq};
use crate::steering::Delivery;
use crate::steering::hash::Hash;
use crate::wire::Sender;

/// The ACK flag of TCP.
const ACK: u16 = 0x10;
/// A frame arrived.
pub(crate) fn take(f: &mut Function, frame: &[u8], sender: Sender) {
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    let headers = Headers::of(frame);
    nic.port.counters.ethernet.count_received(&headers.destination, frame.len());
    let steering = &mut nic.objects.steering;
    let deliveries = steering.receive_root.map_or_else(Vec::new, |root| steering.steer(root, frame));
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
    let (rqn, hash) = match tir.dispatch {
        Dispatch::Direct(rqn) => (Some(rqn), Hash::NONE),
        Dispatch::Indirect(rqtn, hashing) => {
            let hash = hashing.of(headers);
            let rqs = nic.objects.rqts.get(rqtn).map_or(&[][..], |rqt| &rqt.rqs);
            (rqs.get(hash.value as usize % rqs.len().max(1)).copied(), hash)
        }
    };
    if let Some(rq) = rqn.and_then(|rqn| queues.rqs.get_mut(rqn)).filter(|rq| rq.state == QueueState::Rdy) {
        charge(rq, nic, |rq, nic| receive(rq, nic, frame.to_vec(), headers, hash, delivery.tag));
    }
}

/// Whether one of the function's own send queues, in this transport domain, sent the frame.
fn is_of_domain(sender: Sender, domain: u32) -> bool {
    matches!(sender, Sender::Own(own) if own.domain == Some(domain))
}

/// Writes a frame to the next posted buffer, and completes it.
fn receive(rq: &mut Rq, nic: &mut Nic, mut frame: Vec<u8>, headers: &Headers, hash: Hash, tag: u32) {
    let verdict = checksum::verify(&frame, headers);
    let tci = if rq.strips_vlan { ethernet::strip_tag(&mut frame) } else { None };
    let placed = match rq.striding {
        Some(_) => striding::place(rq, nic, &frame, tag),
        None => place(rq, nic, &frame),
    };
    let place = match placed {
        Ok(Some(place)) => place,
        Ok(None) => return,
        Err((place, syndrome)) => {
            super::receive_failed(nic, rq, place, Failure::new(syndrome));
            return to_error(rq, nic);
        }
    };
    let mut cqe = Cqe::ZERO;
    cqe.w()
        .rss_hash_result(hash.value)
        .rss_hash_type_l4(hash.l4.number() as u8)
        .rss_hash_type_ip(hash.ip.number() as u8)
        .check_sum(checksum::whole(&frame))
        .l2_ok(true)
        .l3_ok(verdict.l3_ok)
        .l4_ok(verdict.l4_ok)
        .ip_frag(headers.ip.is_some_and(|ip| ip.is_fragment))
        .l3_hdr_type(l3_kind(headers).number() as u8)
        .l4_hdr_type(l4_kind(headers).number() as u8)
        .cv(tci.is_some())
        .vlan_info(tci.unwrap_or(0))
        .srqn(rq.user_index)
        .qpn(tag)
        .opcode(CqeOpcode::ResponderSend);
    place.write(&mut cqe);
    completion::write(nic, rq.rqn, rq.cqn, &cqe, true);
}

/// Writes a frame to the next WQE.
fn place(rq: &mut Rq, nic: &mut Nic, frame: &[u8]) -> Placed {
    refresh_posted(rq, nic);
    if rq.fetched == rq.posted {
        count_out_of_buffer(rq, nic);
        return Ok(None);
    }
    let index = rq.fetched;
    rq.fetched = index.wrapping_add(1);
    let place = Place { wqe_counter: index, wqe_id: 0, byte_cnt: frame.len() as u32 };
    scatter(rq, nic, index, frame).map_err(|syndrome| (place, syndrome))?;
    Ok(Some(place))
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

/// Writes the frame to the WQE's data segments.
fn scatter(rq: &Rq, nic: &Nic, index: u16, mut frame: &[u8]) -> Result<(), CqeSyndrome> {
    let mut room = [0; RecvRing::LONGEST];
    let wqe =
        rq.ring.read(nic.dma.counted(Purpose::Wqe), index, &mut room).map_err(|_| CqeSyndrome::LocalQpOperation)?;
    for segment in wqe.chunks_exact(SEGMENT) {
        let data = DataSeg::read(segment).ok_or(CqeSyndrome::LocalQpOperation)?;
        if frame.is_empty() || data.lkey() == LKEY_INVALID && data.byte_count() == 0 {
            break;
        }
        let room = data.byte_count() & BYTE_COUNT;
        let (now, later) = frame.split_at(frame.len().min(room as usize));
        let rights = MkeyRights::LOCAL_WRITE;
        if !nic.write(rq.user(), data.lkey(), data.addr(), now, rights) {
            nic.allows(rq.user(), data.lkey(), data.addr(), now.len() as u64, rights); // reports the reason
            return Err(CqeSyndrome::LocalProtection);
        }
        frame = later;
    }
    if frame.is_empty() { Ok(()) } else { Err(CqeSyndrome::LocalLength) }
}

/// Moves the queue to the error state; flushes its WQEs if it was created so.
pub(crate) fn to_error(rq: &mut Rq, nic: &mut Nic) {
    rq.state = QueueState::Err;
    if !rq.context.flush_in_error_en() {
        return;
    }
    refresh_posted(rq, nic);
    while rq.fetched != rq.posted || rq.striding.as_ref().is_some_and(|striding| striding.open.is_some()) {
        let fetched = rq.fetched;
        let (place, is_new) = match &mut rq.striding {
            Some(striding) => striding::flush_next(striding, fetched),
            None => (Place { wqe_counter: fetched, ..Place::default() }, true),
        };
        rq.fetched = fetched.wrapping_add(is_new.into());
        super::receive_failed(nic, rq, place, completion::flushed());
    }
}
