//! Dynamically connected transport: the target's side. Its initiators are requesters as others are, but for each
//! message they say where it goes, and wait until all earlier ones are acknowledged before they turn to another
//! target.
//!
//! A target has a connection with each initiator that addressed it: a hidden queue pair that only responds. NVIDIA's
//! documents name targets, access keys and handshakes, not how they work; see [`crate::transport::dynamic`].

use mlx5_prm::ctx::{DctState, Qpc};
use mlx5_prm::eqe::{DctEvent, EventType};
use mlx5_prm::layout::Layout;
use mlx5_prm::values::{PathMtu, QpState, ServiceType};

use super::rc::responder;
use super::{event, flush};
use crate::function::{Function, Nic};
use crate::objects::{AddressPath, Dct, Qp, Queues, RcState, Responder, Table};
use crate::transport::packet::Nak;
use crate::transport::{Opcode, Packet};

/// Maximum number of connections of one target. An initiator beyond them takes the place of one that was not heard for
/// long: if that goes on, its messages fail, as no acknowledgement comes.
pub(super) const MOST: usize = 1 << 14;

/// A request for the address of a target arrived.
pub(super) fn request(f: &mut Function, packet: &Packet) {
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    let (to, len) = (packet.route.dst_mac, packet.frame_len());
    let Some(dct) = queues.dcts.get_mut(packet.dest_qpn).filter(|dct| dct.state == DctState::Active) else {
        nic.port.counters.dropped += 1;
        return;
    };
    nic.port.counters.rdma.count_received(&to, len);
    let initiator = (packet.route.src, packet.dc.dci);
    let number = match dct.connections.get(&initiator) {
        Some(number) => *number,
        None => {
            if dct.connections.len() >= MOST && !make_room(dct, &mut queues.connections, nic) {
                nic.port.counters.dropped += 1;
                return;
            }
            let Ok(number) = queues.connections.insert(connection(dct, nic, packet)) else { return };
            dct.connections.insert(initiator, number);
            dct.by_age.push_back((initiator, dct.heard + 1));
            number
        }
    };
    let Some(qp) = queues.connections.get_mut(number) else { return };
    qp.hidden = Some(number);
    dct.heard += 1;
    if qp.rc.receive.connection != Some(packet.dc.connection) {
        let is_stale = qp.rc.receive.connection.is_some_and(|now| (packet.dc.connection.wrapping_sub(now) as i32) < 0);
        if is_stale {
            return;
        }
        open(qp, nic, packet);
    }
    qp.rc.receive.heard = dct.heard;
    if packet.dc.access_key != dct.context.dc_access_key() {
        return violation(dct, qp, nic, packet);
    }
    if dct.is_broken {
        return refuse(qp, nic, packet);
    }
    if dct.context.free_ar() && !qp.rc.receive.had_handshake {
        return responder::ask_for_handshake(qp, nic, packet);
    }
    responder::request(qp, nic, packet);
}

/// Begins a connection, with the path back to its initiator.
fn open(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    flush::close(qp, nic);
    nic.scheduler.forget_qp(qp.scheduled());
    qp.rc = RcState::default();
    qp.rc.receive.connection = Some(packet.dc.connection);
    qp.rc.receive.had_handshake = packet.opcode == Opcode::Connect;
    if qp.rc.receive.had_handshake {
        tracing::debug!("DCT {:#x}: initiator {:#x} connects by a handshake", qp.qpn, packet.dc.dci);
    }
    qp.rc.receive.expected = packet.dc.first;
    qp.state = QpState::Rts;
    (qp.path.rmac, qp.path.udp_sport) = (packet.route.src_mac, packet.route.sport);
}

/// The access key is wrong: the initiator's message fails with a remote access error, and the driver is told if it
/// asked to be. PRM "ARM_DCT_FOR_KEY_VIOLATION".
fn violation(dct: &mut Dct, qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    if qp.state == QpState::Err || packet.psn != qp.rc.receive.expected {
        return;
    }
    dct.violations = dct.violations.wrapping_add(1);
    if std::mem::take(&mut dct.is_armed) {
        post(nic, EventType::DctKeyViolation, dct.dctn);
    }
    responder::refuse(qp, nic, Nak::RemoteAccess);
}

/// The target is broken: the initiator's next request fails.
fn refuse(qp: &mut Qp, nic: &mut Nic, packet: &Packet) {
    if qp.state != QpState::Err && packet.psn == qp.rc.receive.expected {
        responder::refuse(qp, nic, Nak::RemoteOperation);
    }
}

/// A completion of the target could not be written. What its initiators have under way fails, and so does what they
/// begin later.
pub(super) fn break_target(queues: &mut Queues, nic: &mut Nic, dctn: u32) {
    let Some(dct) = queues.dcts.get_mut(dctn).filter(|dct| !dct.is_broken) else { return };
    dct.is_broken = true;
    for number in dct.connections.values() {
        if let Some(qp) = queues.connections.get_mut(*number).filter(|qp| is_busy(&qp.rc.receive)) {
            responder::refuse(qp, nic, Nak::RemoteOperation);
        }
    }
}

/// The hidden queue pair of a connection.
fn connection(dct: &Dct, nic: &Nic, packet: &Packet) -> Qp {
    let dctc = &dct.context;
    let mut context = Qpc::ZERO;
    context.w().atomic_mode(dctc.atomic_mode()).log_msg_max(nic.firmware.caps.general().log_max_msg());
    const NO_USER_INDEX: u32 = 0xff_ffff;
    Qp {
        qpn: dct.dctn,
        hidden: None,
        state: QpState::Rts,
        service: ServiceType::Dct,
        pd: dctc.pd(),
        uar: 0,
        user_index: (dctc.user_index() != NO_USER_INDEX).then(|| dctc.user_index()),
        send: None,
        recv: None,
        srqn: Some(dctc.srqn_xrqn()),
        xrcd: 0,
        cqn_send: dctc.cqn(),
        cqn_recv: dctc.cqn(),
        doorbell: Default::default(),
        path: AddressPath {
            src_addr_index: dctc.my_addr_index(),
            rgid: packet.route.src,
            hop_limit: dctc.hop_limit(),
            tclass: dctc.tclass(),
            flow_label: dctc.flow_label(),
            eth_prio: dctc.eth_prio(),
            ..AddressPath::default()
        },
        mtu: PathMtu::from_number(dctc.mtu().number()),
        remote_qpn: packet.dc.dci,
        retry_count: 0,
        rnr_retry: 0,
        min_rnr_nak: dctc.min_rnr_nak(),
        log_sra_max: 0,
        log_rra_max: nic.firmware.caps.general().log_max_ra_res_dc(),
        remote_write: dctc.rwe(),
        remote_read: dctc.rre(),
        remote_atomic: dctc.rae(),
        ece: 0,
        counter_set_id: dctc.counter_set_id(),
        umem: None,
        doorbell_umem: None,
        context,
        traffic: Default::default(),
        rc: RcState::default(),
    }
}

/// Forgets a connection that has nothing to do and was not heard for long. Returns false if there is none.
fn make_room(dct: &mut Dct, connections: &mut Table<Qp>, nic: &mut Nic) -> bool {
    for _ in 0..=dct.by_age.len() {
        let Some((initiator, heard)) = dct.by_age.pop_front() else { break };
        let Some(number) = dct.connections.get(&initiator).copied() else { continue };
        let receive = connections.get(number).map(|qp| &qp.rc.receive);
        if let Some(now) = receive.filter(|receive| is_busy(receive) || receive.heard != heard) {
            dct.by_age.push_back((initiator, now.heard));
            continue;
        }
        dct.connections.remove(&initiator);
        forget(number, connections, nic);
        return true;
    }
    false
}

fn is_busy(receive: &Responder) -> bool {
    !receive.replies.is_empty() || receive.message.is_some() || receive.pending_ack.is_some()
}

pub(super) fn forget(number: u32, connections: &mut Table<Qp>, nic: &mut Nic) {
    if let Some(mut qp) = connections.remove(number) {
        flush::close(&mut qp, nic);
        nic.scheduler.forget_qp(number);
    }
}

/// Ends all connections of a target. It takes no more messages.
pub(super) fn drain(f: &mut Function, dctn: u32) {
    let (queues, nic) = (&mut f.queues, &mut f.nic);
    let Some(dct) = queues.dcts.get_mut(dctn) else { return };
    dct.by_age.clear();
    for number in std::mem::take(&mut dct.connections).into_values() {
        forget(number, &mut queues.connections, nic);
    }
    dct.state = DctState::Drained;
    post(nic, EventType::DctDrained, dctn);
}

fn post(nic: &mut Nic, event_type: EventType, dctn: u32) {
    let mut data = DctEvent::ZERO;
    data.w().dct_number(dctn);
    event::post(nic, event_type, 0, data.as_bytes());
}
