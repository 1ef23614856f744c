//! Page faults: an access is allowed by its key, but finds pages absent. The side of the queue pair that made it waits
//! until software has answered. PRM "Page Fault Handling".
//!
//! There are two schemes. A fault of a transport names the WQE, or the remote access, whose memory is absent; software
//! looks for the key. A fault of memory names the key and the address themselves.

use mlx5_prm::caps::OdpPerTransportServiceCap;
use mlx5_prm::eqe::{EventType, MemoryPageFaultEvent, PageFault as SubType, RdmaPageFaultEvent, WqePageFaultEvent};
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::WqeOpcode;

use super::{event, pieces};
use crate::function::{Nic, PageFault, Side};
use crate::objects::{Absent, FaultyMemory, MkeyRights, Qp, ReceiveFault, SendFault, User};
use crate::strict::rules;
use crate::transport::Transport;

/// Bytes of a page, as faults of memory count them.
const PAGE: u64 = 4096;
/// `flags` of a fault of memory: it is the only one of its token.
const LAST: u8 = 1 << 7;
/// `page_fault_type`: the requester's.
const REQUESTOR: u8 = 1 << 0;
/// `page_fault_type`: the card writes the memory; of a WQE, it is one that has data come in.
const WRITE: u8 = 1 << 1;
/// `page_fault_type`: a remote access.
const RDMA: u8 = 1 << 2;

/// What a transport must allow to meet absent pages: the fields of `odp_per_transport_service_cap`.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Send,
    Receive,
    SharedReceive,
    Write,
    Read,
    Atomic,
}

/// A fault, as both schemes need it.
struct Fault {
    operation: Operation,
    absent: Absent,
    /// Bytes that the message will reach behind those that are absent.
    ahead: u64,
    /// Bytes of the message that were moved before (`bytes_committed`).
    done: u32,
    /// Bytes of the packet.
    packet: u32,
    of: Of,
}

/// Whose memory is absent.
enum Of {
    Wqe { kind: u8, number: u32, index: u16 },
    Remote { key: u32, address: u64, len: u32, writes: bool },
}

/// A remote access by `len` bytes at byte `done` of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote {
    pub user: User,
    pub key: u32,
    /// Address and bytes of the whole operation.
    pub address: u64,
    pub total: u32,
    pub done: u32,
    pub len: u32,
    pub rights: MkeyRights,
}

/// The data of the work request at `cursor` could not be read, `len` bytes from byte `from` on. Whether the requester
/// waits for its pages now.
pub(crate) fn of_send(qp: &mut Qp, nic: &mut Nic, cursor: usize, (from, len): (u32, u32)) -> bool {
    let Some(work) = qp.rc.send.work.get(cursor) else { return false };
    let (operation, index) = match work.opcode {
        WqeOpcode::RdmaWrite | WqeOpcode::RdmaWriteImm => (Operation::Write, work.index),
        _ => (Operation::Send, work.index),
    };
    let found = pieces::absent(qp.user(), nic, &work.pieces, from, len, MkeyRights::LOCAL_READ);
    let Some((absent, ahead)) = found else { return false };
    let of = Of::Wqe { kind: REQUESTOR, number: qp.qpn, index };
    let Some(token) = tell(qp, nic, &Fault { operation, absent, ahead, done: from, packet: len, of }) else {
        return false;
    };
    qp.rc.send.fault = Some(SendFault { token, index, lost_response: false });
    true
}

/// A response could not be written, `len` bytes from byte `from` of the oldest work request on. Whether the requester
/// waits for its pages now; it has to ask for the response again.
pub(crate) fn of_response(qp: &mut Qp, nic: &mut Nic, from: u32, len: u32) -> bool {
    let Some(work) = qp.rc.send.work.front() else { return false };
    let operation = if work.is_atomic() { Operation::Atomic } else { Operation::Read };
    let index = work.index;
    let found = pieces::absent(qp.user(), nic, &work.pieces, from, len, MkeyRights::LOCAL_WRITE);
    let Some((absent, ahead)) = found else { return false };
    if let Some(fault) = &mut qp.rc.send.fault {
        // It is told of when the response comes again.
        fault.lost_response = true;
        return true;
    }
    let of = Of::Wqe { kind: REQUESTOR | WRITE, number: qp.qpn, index };
    let Some(token) = tell(qp, nic, &Fault { operation, absent, ahead, done: from, packet: len, of }) else {
        return false;
    };
    qp.rc.send.fault = Some(SendFault { token, index, lost_response: true });
    true
}

/// The payload of a SEND could not be written to the current receive, `len` bytes from byte `from` on. Whether the
/// responder waits for its pages now. `srqn` is the shared receive queue that the receive is from.
pub(crate) fn of_receive(qp: &mut Qp, nic: &mut Nic, srqn: Option<u32>, from: u32, len: u32) -> bool {
    let Some(work) = &qp.rc.receive.work else { return false };
    let found = pieces::absent(work.user, nic, &work.pieces, from, len, MkeyRights::LOCAL_WRITE);
    let Some((absent, ahead)) = found else { return false };
    let (operation, kind, number) = match srqn {
        Some(srqn) => (Operation::SharedReceive, 0, srqn),
        None => (Operation::Receive, WRITE, qp.qpn),
    };
    let of = Of::Wqe { kind, number, index: work.index };
    let told = tell(qp, nic, &Fault { operation, absent, ahead, done: from, packet: len, of });
    wait(qp, told, FaultyMemory::Receive)
}

/// A remote access could not be made. Whether the responder waits for its pages now.
pub(crate) fn of_remote(qp: &mut Qp, nic: &mut Nic, remote: Remote, memory: FaultyMemory) -> bool {
    let Remote { user, key, address, total, done, len, rights } = remote;
    let at = address.wrapping_add(done.into());
    let Some(absent) = nic.absent(user, key, at, len.into(), rights) else { return false };
    let operation = match rights {
        MkeyRights::REMOTE_READ => Operation::Read,
        MkeyRights::REMOTE_WRITE => Operation::Write,
        _ => Operation::Atomic,
    };
    let of = Of::Remote { key, address, len: total, writes: rights != MkeyRights::REMOTE_READ };
    let ahead = total.saturating_sub(done).saturating_sub(len).into();
    let told = tell(qp, nic, &Fault { operation, absent, ahead, done, packet: len, of });
    wait(qp, told, memory)
}

fn wait(qp: &mut Qp, token: Option<u32>, memory: FaultyMemory) -> bool {
    qp.rc.receive.fault =
        token.map(|token| ReceiveFault { token, memory, stops_replies: memory == FaultyMemory::Reply });
    token.is_some()
}

/// Tells software; returns the token that its answer will have. `None` if nobody will answer: then the access fails.
fn tell(qp: &Qp, nic: &mut Nic, fault: &Fault) -> Option<u32> {
    let caps = &nic.firmware.caps;
    let scheme = caps.odp_scheme();
    let transport = match qp.transport() {
        Transport::Rc => scheme.rc_odp_caps(),
        Transport::Uc => scheme.uc_odp_caps(),
        Transport::Ud => scheme.ud_odp_caps(),
        Transport::Xrc => scheme.xrc_odp_caps(),
        Transport::Dc => scheme.dc_odp_caps(),
    };
    let can_wait = caps.general().pg() && fault.operation.is_in(transport);
    if !can_wait || !event::is_wanted(nic, EventType::PageFault) {
        let Absent { key, address, len } = fault.absent;
        let why = if can_wait { "no EQ takes page faults" } else { "the transport cannot wait for pages" };
        nic.strict.report(rules::ABSENT, || {
            format!("QP {:#x}, {:?}: {len:#x} bytes at {address:#x} by key {key:#x}: {why}", qp.qpn, fault.operation)
        });
        return None;
    }
    let of_memory = caps.odp().mem_page_fault();
    let token = nic.scheduler.page_faults.token()?;
    let (kind, wq_number) = match fault.of {
        Of::Wqe { kind, number, .. } => (kind, number),
        // The PRM's token of a remote access stands for the queue.
        Of::Remote { writes, .. } => (RDMA | if writes { WRITE } else { 0 }, token),
    };
    let side = if kind & REQUESTOR != 0 { Side::Requester } else { Side::Responder };
    nic.scheduler.page_faults.add(token, PageFault { queue: qp.scheduled(), side, kind, wq_number });
    let (sub_type, data) = match of_memory {
        true => (SubType::Memory, memory_event(fault, token)),
        false => transport_event(fault, kind, token),
    };
    event::post(nic, EventType::PageFault, sub_type.number() as u8, &data);
    Some(token)
}

impl Operation {
    fn is_in(self, caps: &OdpPerTransportServiceCap) -> bool {
        match self {
            Operation::Send => caps.send(),
            Operation::Receive => caps.receive(),
            Operation::SharedReceive => caps.srq_receive(),
            Operation::Write => caps.write(),
            Operation::Read => caps.read(),
            Operation::Atomic => caps.atomic(),
        }
    }
}

fn memory_event(fault: &Fault, token: u32) -> Vec<u8> {
    const MOST_DEMANDED: u64 = 0xf_ffff;
    let Absent { key, address, len } = fault.absent;
    let pages = ((address % PAGE).saturating_add(len)).div_ceil(PAGE).min(MOST_DEMANDED);
    let ahead = fault.ahead.div_ceil(PAGE).min(u16::MAX.into());
    let mut data = MemoryPageFaultEvent::ZERO;
    data.w()
        .flags(LAST)
        .token31_0(token)
        .post_demand_fault_pages(ahead as u16)
        .demand_fault_pages((pages * PAGE) as u32)
        .mkey(key)
        .va(&address.to_be_bytes());
    data.as_bytes().to_vec()
}

fn transport_event(fault: &Fault, kind: u8, token: u32) -> (SubType, Vec<u8>) {
    let (rdma, write, requestor) = (kind & RDMA != 0, kind & WRITE != 0, kind & REQUESTOR != 0);
    let packet = fault.packet.min(u16::MAX.into()) as u16;
    match fault.of {
        Of::Wqe { number, index, .. } => {
            let mut data = WqePageFaultEvent::ZERO;
            data.w().bytes_committed(fault.done).wqe_index(index).len(packet).token(token);
            data.w().rdma(rdma).write_read(write).requestor(requestor).qpn(number);
            (SubType::Wqe, data.as_bytes().to_vec())
        }
        Of::Remote { key, address, len, .. } => {
            let mut data = RdmaPageFaultEvent::ZERO;
            data.w().bytes_committed(fault.done).r_key(key).packet_len(packet).rdma_op_len(len).rdma_va(address);
            data.w().rdma(rdma).write(write).requestor(requestor).qp_number(token);
            (SubType::Rdma, data.as_bytes().to_vec())
        }
    }
}
