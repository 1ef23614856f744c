//! Unreliable datagrams: one message is one packet. Any sender with the queue key is accepted.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::ib::GSI_QKEY;
use mlx5_prm::values::{QpState, ServiceType};

use super::flush::to_error;
use super::{completion, pieces, receive_wqe};
use crate::function::Nic;
use crate::objects::{Datagram, Failure, GSI_QPN, Qp, ReceiveWork};
use crate::strict::rules;
use crate::transport::header::source_port;
use crate::transport::packet::{Deth, Packet, Route};
use crate::transport::{Opcode, Psn, Transport};

/// A Q_Key with this bit in a work request means the queue pair's own. IBTA 10.2.5.
const QKEY_OF_QP: u32 = 1 << 31;
/// Bytes reserved for the IP header before each received message. IBTA A17.4.5.2.
const GLOBAL_HEADER: usize = 40;

/// Addresses of packets to `datagram`. `None` if its GID table entry is empty.
pub(crate) fn route(qp: &Qp, nic: &Nic, datagram: &Datagram) -> Option<Route> {
    let Some(source) = nic.objects.gids.get(u16::from(datagram.src_addr_index)) else {
        let index = datagram.src_addr_index;
        nic.strict.report(rules::EMPTY_GID, || format!("QP {:#x}: GID index {index}", qp.qpn));
        return None;
    };
    Some(Route {
        dst_mac: datagram.rmac,
        src_mac: source.mac,
        src: source.gid,
        dst: datagram.rgid,
        sport: source_port(datagram.sport, qp.qpn),
        hop_limit: datagram.hop_limit,
        tclass: datagram.tclass,
        flow_label: datagram.flow_label,
        tag: source.vlan.map(|vlan| u16::from(datagram.priority & 7) << 13 | vlan),
    })
}

/// An empty packet to the destination `datagram`. `None` if its GID table entry is empty.
pub(crate) fn new_packet(qp: &Qp, nic: &mut Nic, datagram: &Datagram, opcode: Opcode, psn: Psn) -> Option<Box<Packet>> {
    let route = route(qp, nic, datagram)?;
    let mut packet = nic.scheduler.packets.packet(opcode, route, datagram.qpn, psn);
    let qkey = if datagram.qkey & QKEY_OF_QP != 0 { own_qkey(qp) } else { datagram.qkey };
    let src_qpn = if qp.service == ServiceType::Qp1 { GSI_QPN } else { qp.qpn };
    packet.transport = Transport::Ud;
    packet.deth = Deth { qkey, src_qpn };
    Some(packet)
}

fn own_qkey(qp: &Qp) -> u32 {
    if qp.service == ServiceType::Qp1 { GSI_QKEY } else { qp.context.q_key() }
}

/// A datagram arrived. Dropped silently if its Q_Key is wrong, IBTA 9.6.1.4.1, or its length, 9.8.3.2.2.
pub(crate) fn deliver(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    let listens = matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqer);
    let is_violation = listens && packet.deth.qkey != own_qkey(qp);
    if !listens || is_violation {
        if is_violation {
            nic.objects.vport.count_qkey_violation();
        }
        nic.port.counters.dropped += 1;
        return;
    }
    let Some(receive) = receive_wqe::fetch_receive(qp, nic, None) else {
        if let Some(counter) = nic.counter(qp) {
            counter.out_of_buffer = counter.out_of_buffer.wrapping_add(1);
        }
        return;
    };
    let done = match receive.failure.or_else(|| nic.fault_of(qp.qpn)) {
        Some(failure) => Err(failure),
        None => fill(nic, &receive, packet),
    };
    match done {
        Ok(()) => received(qp, nic, packet, receive),
        Err(failure) => {
            completion::receive_failed(nic, qp, &receive, failure);
            to_error(qp, nic);
        }
    }
}

fn fill(nic: &Nic, receive: &ReceiveWork, packet: &Packet) -> Result<(), Failure> {
    let header = packet.global_header();
    pieces::scatter(receive.user, nic, &receive.pieces, 0, &header)
        .and_then(|()| pieces::scatter(receive.user, nic, &receive.pieces, GLOBAL_HEADER as u32, &packet.payload))
        .map_err(Failure::new)
}

fn received(qp: &mut Qp, nic: &mut Nic, packet: &Packet, receive: ReceiveWork) {
    let is_gsi = qp.service == ServiceType::Qp1;
    let opcode = if packet.opcode.has_immediate() { CqeOpcode::ResponderSendImm } else { CqeOpcode::ResponderSend };
    let mut cqe = completion::of_receive(qp, opcode, &receive);
    cqe.w()
        .byte_cnt((GLOBAL_HEADER + packet.payload.len()) as u32)
        .rqpn(packet.deth.src_qpn)
        .grh(1)
        // The service level's field has the kind of the network header. PRM "CQE Format", `l3_hdr_type` of RoCE; IBTA
        // A17.4.5.1.
        .sl(if packet.route.is_ipv4() { ROCE_V2_IPV4 } else { ROCE_V2_IPV6 })
        // On QP 1, the field of the immediate holds the P_Key.
        .immediate(if is_gsi { u32::from(packet.pkey) } else { packet.immediate })
        .se(packet.solicited);
    completion::received(nic, qp, receive, &cqe);
}

/// `sl` of a CQE of RoCE v2 over IPv6.
const ROCE_V2_IPV6: u8 = 1;
/// `sl` of a CQE of RoCE v2 over IPv4.
const ROCE_V2_IPV4: u8 = 2;
