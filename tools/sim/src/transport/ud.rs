//! Unreliable datagrams: each packet is a message, to and from anybody who knows the queue key.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::values::{QpState, ServiceType};

use super::packet::{Deth, Gid, Mac, Packet, Route};
use super::{Opcode, Psn, Transport};
use crate::engine::{Failure, Rest, completion, fault_of, rules, to_error, work};
use crate::objects::Qp;

/// The number by which every function's general services are reached.
pub(crate) const GSI_QPN: u32 = 1;
/// The number that datagrams to a group go to.
pub(crate) const GROUP_QPN: u32 = 0xff_ffff;
/// The key that general services ask for.
const GSI_QKEY: u32 = 0x8001_0000;
/// A queue key with this bit in a work request stands for the queue pair's own.
const QKEY_OF_QP: u32 = 1 << 31;
/// Bytes in front of each message received: the IP header, as a global route header.
const GLOBAL_HEADER: usize = 40;

/// Where a datagram goes, from its work request's address vector.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Datagram {
    pub qpn: u32,
    pub qkey: u32,
    /// Our GID index.
    pub src_addr_index: u8,
    pub rgid: Gid,
    pub rmac: Mac,
    pub sport: u16,
    pub hop_limit: u8,
    pub tclass: u8,
    pub flow_label: u32,
    /// Ethernet priority, where the GID has a VLAN.
    pub priority: u8,
}

/// An empty packet to where `datagram` goes; `None` if its GID index is empty.
pub(crate) fn addressed(
    qp: &Qp,
    rest: &mut Rest,
    datagram: &Datagram,
    opcode: Opcode,
    psn: Psn,
) -> Option<Box<Packet>> {
    let Some(source) = rest.gids.get(u16::from(datagram.src_addr_index)) else {
        let index = datagram.src_addr_index;
        rest.strict.report(rules::EMPTY_GID, || format!("QP {:#x}: GID index {index}", qp.qpn));
        return None;
    };
    let route = Route {
        dst_mac: datagram.rmac,
        src_mac: source.mac,
        src: source.gid,
        dst: datagram.rgid,
        sport: if datagram.sport == 0 { 0xc000 | qp.qpn as u16 & 0x3fff } else { datagram.sport },
        hop_limit: datagram.hop_limit,
        tclass: datagram.tclass,
        flow_label: datagram.flow_label,
        tag: source.vlan.map(|vlan| u16::from(datagram.priority & 7) << 13 | vlan),
    };
    let mut packet = rest.spare().packet(opcode, route, datagram.qpn, psn);
    let qkey = if datagram.qkey & QKEY_OF_QP != 0 { own_qkey(qp) } else { datagram.qkey };
    let src_qpn = if qp.service == ServiceType::Qp1 { GSI_QPN } else { qp.qpn };
    packet.transport = Transport::Ud;
    packet.deth = Deth { qkey, src_qpn };
    Some(packet)
}

fn own_qkey(qp: &Qp) -> u32 {
    if qp.service == ServiceType::Qp1 { GSI_QKEY } else { qp.context.q_key() }
}

/// Bytes of the longest message.
pub(crate) fn longest(rest: &Rest) -> u64 {
    rest.largest_payload()
}

/// A datagram arrived.
pub(crate) fn deliver(qp: &mut Qp, rest: &mut Rest, packet: &Packet) {
    let listens = matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqer);
    if !listens || packet.deth.qkey != own_qkey(qp) {
        rest.port.counters.dropped += 1;
        return;
    }
    let Some(receive) = work::fetch_receive(qp, rest, None) else {
        if let Some(counter) = rest.counter(qp) {
            counter.out_of_buffer = counter.out_of_buffer.wrapping_add(1);
        }
        return;
    };
    let done = match receive.failure.or_else(|| fault_of(rest, qp.qpn)) {
        Some(failure) => Err(failure),
        None => fill(rest, &receive, packet),
    };
    match done {
        Ok(()) => received(qp, rest, packet, receive),
        Err(failure) => {
            completion::receive_failed(rest, qp, &receive, failure);
            to_error(qp, rest);
        }
    }
}

fn fill(rest: &Rest, receive: &work::ReceiveWork, packet: &Packet) -> Result<(), Failure> {
    let header = packet.global_header();
    work::scatter(receive.user, rest, &receive.pieces, 0, &header)
        .and_then(|()| work::scatter(receive.user, rest, &receive.pieces, GLOBAL_HEADER as u32, &packet.payload))
        .map_err(Failure::new)
}

fn received(qp: &mut Qp, rest: &mut Rest, packet: &Packet, receive: work::ReceiveWork) {
    let is_gsi = qp.service == ServiceType::Qp1;
    let opcode = if packet.opcode.has_immediate() { CqeOpcode::ResponderSendImm } else { CqeOpcode::ResponderSend };
    let mut cqe = completion::of_receive(qp, opcode, &receive);
    cqe.w()
        .byte_cnt((GLOBAL_HEADER + packet.payload.len()) as u32)
        .rqpn(packet.deth.src_qpn)
        .grh(1)
        // On RoCE the place of the service level says what kind of header it is.
        .sl(if packet.route.is_ipv4() { ROCE_V2_IPV4 } else { ROCE_V2_IPV6 })
        // General services are told the partition in its place.
        .immediate(if is_gsi { u32::from(packet.pkey) } else { packet.immediate })
        .se(packet.solicited);
    completion::received(rest, qp, receive, &cqe);
}

/// `sl` of a CQE of RoCE v2 over IPv6.
const ROCE_V2_IPV6: u8 = 1;
/// `sl` of a CQE of RoCE v2 over IPv4.
const ROCE_V2_IPV4: u8 = 2;
