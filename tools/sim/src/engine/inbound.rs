//! Received frames: finds the queue for each.

use super::charge::charge;
use super::rc::{requester, responder};
use super::{dynamic, ethernet, ud};
use crate::function::Function;
use crate::objects::{GROUP_QPN, GidTable, Qp, RoceAddress};
use crate::transport::{Packet, Transport};
use crate::wire::Frame;

/// Maximum number of frames taken from the wire in one turn.
const FRAMES: usize = 256;

/// A frame arrived for this function.
pub fn receive(f: &mut Function, frame: Frame) {
    f.nic.port.deliver(frame);
}

/// Delivers received frames to the queue pairs or to Ethernet steering.
pub(super) fn receive_frames(f: &mut Function) -> bool {
    for count in 0..FRAMES {
        let Some((frame, sender)) = f.nic.port.take_received() else { return count > 0 };
        f.nic.observe_frame(&frame, false);
        let Some(frame) = understood(frame, f.nic.objects.vport.roce_enabled()) else {
            f.nic.port.counters.dropped += 1;
            continue;
        };
        match frame {
            Frame::Roce(packet) if packet.dest_qpn == GROUP_QPN => receive_multicast(f, packet),
            Frame::Roce(packet) if packet.transport == Transport::Dc && packet.opcode.message().is_some() => {
                if is_for_target(f, &packet) {
                    dynamic::request(f, &packet);
                } else {
                    f.nic.port.counters.dropped += 1;
                }
                f.nic.scheduler.packets.give_back(packet);
            }
            Frame::Roce(packet) => {
                let (queues, nic) = (&mut f.queues, &mut f.nic);
                let (to, len) = (packet.route.dst_mac, packet.frame_len());
                let qpn = nic.scheduler.destination(packet.dest_qpn);
                let qp = queues.addressed(qpn).filter(|qp| accepts(qp, &nic.objects.gids, &packet));
                if qp.is_some() {
                    nic.port.counters.rdma.count_received(&to, len);
                }
                match qp {
                    Some(qp) => charge(qp, nic, |qp, nic| match packet.opcode.message() {
                        _ if packet.transport == Transport::Ud => ud::deliver(qp, nic, &packet),
                        Some(_) => responder::request(qp, nic, &packet),
                        None => requester::response(qp, nic, &packet),
                    }),
                    None => nic.port.counters.dropped += 1,
                }
                nic.scheduler.packets.give_back(packet);
            }
            Frame::Ethernet(bytes) => ethernet::receive::take(f, &bytes, sender),
        }
    }
    true
}

/// The frame as a function with or without RoCE understands it. Without, RoCE packets are ordinary UDP frames, and
/// reach Ethernet queues byte for byte. `None` for one that is damaged.
fn understood(frame: Frame, has_roce: bool) -> Option<Frame> {
    match frame {
        Frame::Ethernet(bytes) if has_roce => Frame::from_bytes(bytes),
        Frame::Roce(_) if !has_roce => {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            Some(Frame::Ethernet(bytes))
        }
        frame => Some(frame),
    }
}

/// Delivers a multicast datagram to each queue pair attached to its group.
fn receive_multicast(f: &mut Function, packet: Box<Packet>) {
    let members = f.nic.objects.groups.members(&packet.route.dst).to_vec();
    let (qps, nic) = (&mut f.queues.qps, &mut f.nic);
    let is_sound = packet.transport == Transport::Ud && is_partition(&packet) && packet.flipped.is_none();
    if members.is_empty() || !is_sound || !nic.objects.gids.iter().any(|(_, entry)| is_of_vlan(entry, &packet)) {
        nic.port.counters.dropped += 1;
        return;
    }
    nic.port.counters.rdma.count_received(&packet.route.dst_mac, packet.frame_len());
    for qpn in members {
        if let Some(qp) = qps.get_mut(qpn) {
            charge(qp, nic, |qp, nic| ud::deliver(qp, nic, &packet));
        }
    }
    nic.scheduler.packets.give_back(packet);
}

/// Whether a GID table entry has the VLAN of the packet.
fn is_of_vlan(entry: &RoceAddress, packet: &Packet) -> bool {
    entry.vlan.filter(|vlan| *vlan != 0) == packet.route.vlan()
}

/// Whether the queue pair accepts the packet. Connected: only from its peer's address. All: destination GID, VLAN and
/// partition must match. IBTA A17.4.4.2 (addresses), 10.9.3 (partition).
fn accepts(qp: &Qp, gids: &GidTable, packet: &Packet) -> bool {
    let (remote, local) = match &qp.rc.send.target {
        Some(connection) => (connection.target.rgid, connection.target.src_addr_index),
        None => (qp.path.rgid, qp.path.src_addr_index),
    };
    let is_path = if packet.transport == Transport::Ud {
        gids.iter().any(|(_, entry)| is_for(entry, packet))
    } else {
        remote == packet.route.src && gids.get(u16::from(local)).is_some_and(|entry| is_for(entry, packet))
    };
    qp.transport() == packet.transport && is_path && is_partition(packet) && packet.flipped.is_none()
}

/// Whether there is a dynamically connected target of the packet's destination.
fn is_for_target(f: &Function, packet: &Packet) -> bool {
    let gid = f.queues.dcts.get(packet.dest_qpn).map(|dct| u16::from(dct.context.my_addr_index()));
    let entry = gid.and_then(|index| f.nic.objects.gids.get(index));
    entry.is_some_and(|entry| is_for(entry, packet)) && is_partition(packet) && packet.flipped.is_none()
}

/// Whether a GID table entry has the destination and the VLAN of the packet.
fn is_for(entry: &RoceAddress, packet: &Packet) -> bool {
    entry.gid == packet.route.dst && is_of_vlan(entry, packet)
}

/// A RoCE port has only the default partition; the top bit (full or limited membership) is ignored. IBTA A17.4.7,
/// 10.9.1.2.
fn is_partition(packet: &Packet) -> bool {
    packet.pkey & PARTITION == PARTITION
}

/// The default P_Key without its membership bit. IBTA 10.9.1.2.
const PARTITION: u16 = 0x7fff;
