//! Work requests: reads WQEs from the rings, checks and parses them. PRM "Work Request (WQE) Formats".

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::layout::Layout;
use mlx5_prm::values::ServiceType;
use mlx5_prm::wqe::{
    AtomicSeg, CompletionMode, CtrlSeg, DataSeg, Fence, InlineSegHeader, LKEY_INVALID, RaddrSeg, SEGMENT, UdAdrsVector,
    WQEBB, WqeOpcode, XrcSeg,
};

use super::check::key_fence;
use super::{message, umr};
use crate::dma::Purpose;
use crate::function::Nic;
use crate::objects::{CopiedWqe, Datagram, Failure, MkeyRights, Piece, Qp, ReceiveWork, SendRing, SendWork, blocks_of};
use crate::profile::{MASKED_COMPARE_SWAP, MASKED_FETCH_ADD};
use crate::strict::rules;
use crate::transport::Transport;

/// Length of a data segment with byte count 0.
const LONGEST: u32 = 1 << 31;

/// Fetches the next WQE of the send ring. `None` if there is no ring.
///
/// If the WQE is invalid, [`SendWork::failure`] says why, and its other fields are not valid.
pub(crate) fn fetch_send(qp: &mut Qp, nic: &mut Nic) -> Option<SendWork> {
    let mut work = qp.rc.send.spare.pop().unwrap_or_default().reuse();
    let copied = qp.rc.send.copied.take();
    let ring = qp.send.as_ref()?;
    work.index = qp.rc.send.fetched;
    work.first = qp.rc.send.assigned;
    let mut wqe = [0; 64 * SEGMENT];
    let mut blocks = 1;
    let posted = qp.rc.send.posted.wrapping_sub(work.index);
    let names_stream = qp.service == ServiceType::Dci;
    let place = WqePosition { number: qp.qpn, index: work.index, posted, names_stream };
    let parsed = read_wqe(place, ring, copied.as_ref(), nic, &mut wqe, &mut blocks).and_then(|len| {
        let ctrl = CtrlSeg::read(&wqe).ok_or(bad_operation())?;
        parse(qp, nic, &ctrl, &wqe[..len], &mut work)?;
        Ok(ctrl)
    });
    if let Ok(ctrl) = &parsed {
        key_fence::check(qp, nic, ctrl, &work, posted <= blocks);
    }
    match parsed.map(drop) {
        Ok(()) if matches!(work.opcode, WqeOpcode::Nop | WqeOpcode::Umr) => {}
        Ok(()) if work.is_read() && work.opcode != WqeOpcode::RdmaRead => work.packets = 1,
        Ok(()) if work.datagram.is_some() => work.packets = 1,
        Ok(()) => work.packets = message::packets(work.len, message::mtu(qp)),
        Err(failure) => work.failure = Some(failure),
    }
    let send = &mut qp.rc.send;
    send.fetched = send.fetched.wrapping_add(blocks);
    send.assigned = work.end();
    Some(work)
}

pub(super) const fn bad_operation() -> Failure {
    Failure::new(CqeSyndrome::LocalQpOperation)
}

/// Position of a queue's next WQE.
#[derive(Debug, Clone, Copy)]
pub(super) struct WqePosition {
    /// The queue's number.
    pub number: u32,
    /// Its index, in WQEBBs posted.
    pub index: u16,
    /// WQEBBs posted from this index on.
    pub posted: u16,
    /// Whether its WQEs may name a stream: those of a DCI. One without streams ignores it; perftest names one always.
    pub names_stream: bool,
}

/// Reads a whole WQE from the ring, where it may wrap around the end, or from its copy. `blocks` is set to its WQEBBs.
pub(super) fn read_wqe(
    at: WqePosition,
    ring: &SendRing,
    copied: Option<&CopiedWqe>,
    nic: &Nic,
    wqe: &mut [u8],
    blocks: &mut u16,
) -> Result<usize, Failure> {
    let place = |block: u16| u64::from(at.index.wrapping_add(block)) & ((1 << ring.log_size) - 1);
    let copied = copied.filter(|copied| copied.index == at.index);
    let mut read = |block: u16| {
        let to = usize::from(block) * WQEBB;
        let (place, wqebb) = (place(block) * WQEBB as u64, &mut wqe[to..to + WQEBB]);
        match copied.and_then(|copied| copied.block(block)) {
            Some(copied) => wqebb.copy_from_slice(copied),
            None => {
                ring.memory.read(nic.dma.counted(Purpose::Wqe), place, wqebb).map_err(|_| bad_operation())?;
            }
        }
        Ok::<_, Failure>(CtrlSeg::read(wqe).unwrap_or_default())
    };
    let ctrl = read(0)?;
    *blocks = blocks_of(&ctrl).min(at.posted.max(1));
    check_control(at, nic, &ctrl)?;
    for block in 1..*blocks {
        read(block)?;
    }
    Ok(usize::from(ctrl.ds()) * SEGMENT)
}

/// Checks the control segment. PRM "Control Segment".
fn check_control(at: WqePosition, nic: &Nic, ctrl: &CtrlSeg) -> Result<(), Failure> {
    let WqePosition { number: qpn, index: place, posted, names_stream } = at;
    let refuse = |rule, detail: String| {
        nic.strict.report(rule, || format!("QP {qpn:#x}, WQE {place:#x}: {detail}"));
        Err(bad_operation())
    };
    if ctrl.wqe_index() != place {
        return refuse(rules::WQE_INDEX, format!("wqe_index {:#x}", ctrl.wqe_index()));
    }
    if ctrl.qp_or_sq() != qpn {
        return refuse(rules::WQE_QPN, format!("qp_or_sq {:#x}", ctrl.qp_or_sq()));
    }
    if ctrl.ds() == 0 || blocks_of(ctrl) > posted {
        return refuse(rules::WQE_SIZE, format!("ds {}, WQEBBs posted {posted}", ctrl.ds()));
    }
    let Some(dwords) = ctrl.as_bytes().first_chunk::<12>() else { return Ok(()) };
    let stream = !names_stream && ctrl.dci_stream_channel_id() != 0;
    if dwords[7] & 0xc0 != 0 || stream || dwords[11] & 0x11 != 0 {
        nic.strict.report(rules::WQE_RESERVED, || {
            format!("QP {qpn:#x}, WQE {place:#x}: control segment {:02x?}", ctrl.as_bytes())
        });
    }
    Ok(())
}

/// Parses a WQE of `ds` segments.
fn parse(qp: &Qp, nic: &Nic, ctrl: &CtrlSeg, wqe: &[u8], work: &mut SendWork) -> Result<(), Failure> {
    work.opcode = ctrl.opcode();
    work.is_signalled = matches!(ctrl.ce(), CompletionMode::Always | CompletionMode::AlwaysAndEvent);
    work.wakes = ctrl.ce() == CompletionMode::AlwaysAndEvent;
    work.is_solicited = ctrl.se();
    work.stream = if qp.rc.send.streams.is_some() { ctrl.dci_stream_channel_id() } else { 0 };
    work.is_fenced = matches!(ctrl.fm(), Fence::Fence | Fence::StrongOrdering | Fence::FenceAndInitiatorSmall);
    work.immediate = ctrl.imm();
    let mut segments = Segments(wqe.get(SEGMENT..).unwrap_or(&[]));
    let transport = qp.transport();
    if !supports(qp.service, work.opcode) {
        nic.strict.report(rules::WQE_OPCODE, || {
            format!("QP {:#x}, WQE {:#x}: {} on {}", qp.qpn, work.index, work.opcode, qp.service)
        });
        return Err(bad_operation());
    }
    match transport {
        Transport::Xrc if !matches!(work.opcode, WqeOpcode::Nop | WqeOpcode::Umr) => {
            work.xrc_srqn = segments.take::<XrcSeg>().ok_or(bad_operation())?.xrc_srqn();
        }
        Transport::Ud if work.opcode != WqeOpcode::Nop => work.datagram = Some(address_vector(&mut segments)?),
        Transport::Dc if !matches!(work.opcode, WqeOpcode::Nop | WqeOpcode::Umr) => {
            work.target = Some(address_vector(&mut segments)?);
        }
        _ => {}
    }
    match work.opcode {
        WqeOpcode::Nop => return Ok(()),
        WqeOpcode::Umr => {
            work.update = Some(Box::new(umr::parse(ctrl, wqe).ok_or(bad_operation())?));
            return Ok(());
        }
        WqeOpcode::Send | WqeOpcode::SendImm | WqeOpcode::SendInval => {}
        WqeOpcode::RdmaWrite | WqeOpcode::RdmaWriteImm | WqeOpcode::RdmaRead => remote(&mut segments, work)?,
        WqeOpcode::AtomicCs | WqeOpcode::AtomicFa => {
            remote(&mut segments, work)?;
            let atomic = segments.take::<AtomicSeg>().ok_or(bad_operation())?;
            (work.swap_add, work.compare) = (atomic.swap_add(), atomic.compare());
        }
        WqeOpcode::AtomicMaskedCs | WqeOpcode::AtomicMaskedFa => {
            remote(&mut segments, work)?;
            masked_atomic(qp, nic, ctrl, &mut segments, work)?;
        }
        opcode => {
            nic.strict.report(rules::WQE_OPCODE, || format!("QP {:#x}, WQE {:#x}: {opcode}", qp.qpn, work.index));
            return Err(bad_operation());
        }
    }
    gather_list(qp, nic, segments, work)?;
    check_memory(qp, nic, work)
}

/// Whether a queue pair of this service supports the opcode. PRM "Send WQE opcodes".
fn supports(service: ServiceType, opcode: WqeOpcode) -> bool {
    use WqeOpcode::*;
    match service {
        ServiceType::Uc => matches!(opcode, Nop | Send | SendImm | RdmaWrite | RdmaWriteImm | Umr),
        ServiceType::Ud | ServiceType::Qp1 => matches!(opcode, Nop | Send | SendImm),
        ServiceType::RegUmr => matches!(opcode, Nop | Umr),
        _ => true,
    }
}

fn address_vector(segments: &mut Segments) -> Result<Datagram, Failure> {
    let av = UdAdrsVector::read(segments.0).ok_or(bad_operation())?;
    segments.0 = &segments.0[UdAdrsVector::SIZE..];
    let (high, low) = (av.rmac_47_16().to_be_bytes(), av.rmac_15_0().to_be_bytes());
    Ok(Datagram {
        qpn: av.destination_qp_dct(),
        qkey: (av.dc_key() >> 32) as u32,
        dc_key: av.dc_key(),
        src_addr_index: av.src_addr_index(),
        rgid: *av.rgid_rip(),
        rmac: [high[0], high[1], high[2], high[3], low[0], low[1]],
        sport: av.rlid_udp_sport(),
        hop_limit: av.hop_limit(),
        tclass: av.tclass(),
        flow_label: av.flow_label(),
        // RoCE: the upper three bits of the service level's field are the Ethernet priority. IBTA A17.4.2.
        priority: av.sl_eth_prio() >> 1,
    })
}

fn remote(segments: &mut Segments, work: &mut SendWork) -> Result<(), Failure> {
    let remote = segments.take::<RaddrSeg>().ok_or(bad_operation())?;
    (work.address, work.rkey) = (remote.raddr(), remote.rkey());
    Ok(())
}

/// `opmod` of a masked atomic: this bit, and the log of its bytes, from four on.
const MASKED: u8 = 1 << 3;
const LOG_SMALLEST: u8 = 2;

/// The operands of a masked atomic, padded to whole segments. PRM "Extended Atomic Segment".
fn masked_atomic(
    qp: &Qp,
    nic: &Nic,
    ctrl: &CtrlSeg,
    segments: &mut Segments,
    work: &mut SendWork,
) -> Result<(), Failure> {
    let swaps = work.opcode == WqeOpcode::AtomicMaskedCs;
    let log_size = (ctrl.opmod() & !MASKED).wrapping_add(LOG_SMALLEST);
    let caps = nic.firmware.caps.atomic();
    let operation = if swaps { MASKED_COMPARE_SWAP } else { MASKED_FETCH_ADD };
    let is_announced = caps.atomic_operations() & operation != 0
        && u32::from(caps.atomic_size_qp()).checked_shr(log_size.into()).is_some_and(|sizes| sizes & 1 != 0);
    if ctrl.opmod() & MASKED == 0 || !is_announced {
        nic.strict.report(rules::WQE_OPCODE, || {
            format!("QP {:#x}, WQE {:#x}: {} with opmod {:#x}", qp.qpn, work.index, work.opcode, ctrl.opmod())
        });
        return Err(bad_operation());
    }
    let len = (if swaps { 4 } else { 2 }) << log_size;
    let (operands, rest) = segments.0.split_at_checked(usize::next_multiple_of(len, SEGMENT)).ok_or(bad_operation())?;
    work.inline.extend_from_slice(&operands[..len]);
    segments.0 = rest;
    Ok(())
}

/// The 16-byte segments not yet parsed.
struct Segments<'a>(&'a [u8]);

impl Segments<'_> {
    fn take<L: Layout>(&mut self) -> Option<L> {
        let layout = L::read(self.0)?;
        self.0 = &self.0[SEGMENT..];
        Some(layout)
    }
}

/// Parses the data segments at the end of a WQE.
fn gather_list(qp: &Qp, nic: &Nic, mut segments: Segments, work: &mut SendWork) -> Result<(), Failure> {
    let mut len = 0u64;
    while !segments.0.is_empty() {
        let header = InlineSegHeader::read(segments.0).ok_or(bad_operation())?;
        let piece = if header.inline() {
            inline_piece(&header, &mut segments, work)?
        } else {
            let data = segments.take::<DataSeg>().ok_or(bad_operation())?;
            memory_piece(qp, nic, &data)
        };
        len += u64::from(piece.len());
        work.pieces.push(piece);
    }
    let longest = if work.datagram.is_some() { nic.largest_payload() } else { message::longest(qp) };
    if len > longest {
        return Err(Failure::new(CqeSyndrome::LocalLength));
    }
    work.len = len as u32;
    Ok(())
}

fn inline_piece(header: &InlineSegHeader, segments: &mut Segments, work: &mut SendWork) -> Result<Piece, Failure> {
    const HEADER: usize = 4;
    let len = usize::from(header.byte_count());
    let whole = (HEADER + len).next_multiple_of(SEGMENT);
    // A read cannot return data into the WQE, and inline data must end with the WQE.
    if work.is_read() || whole > segments.0.len() {
        return Err(bad_operation());
    }
    let at = work.inline.len() as u32;
    work.inline.extend_from_slice(&segments.0[HEADER..HEADER + len]);
    segments.0 = &segments.0[whole..];
    Ok(Piece::Inline { at, len: len as u32 })
}

fn memory_piece(qp: &Qp, nic: &Nic, data: &DataSeg) -> Piece {
    let len = match data.byte_count() {
        0 => {
            nic.strict.report(rules::ZERO_SEGMENT, || format!("QP {:#x}: key {:#x}", qp.qpn, data.lkey()));
            LONGEST
        }
        len => len & 0x7fff_ffff,
    };
    Piece::Memory { key: data.lkey(), address: data.addr(), len }
}

/// Checks the keys of all data segments.
fn check_memory(qp: &Qp, nic: &Nic, work: &SendWork) -> Result<(), Failure> {
    let rights = local_rights(work);
    for piece in &work.pieces {
        if let Piece::Memory { key, address, len } = *piece
            && !nic.allows(qp.user(), key, address, u64::from(len), rights)
        {
            return Err(Failure::new(CqeSyndrome::LocalProtection));
        }
    }
    let needed = match work.opcode {
        WqeOpcode::AtomicMaskedCs => work.inline.len() / 4,
        WqeOpcode::AtomicMaskedFa => work.inline.len() / 2,
        _ => size_of::<u64>(),
    };
    if work.is_atomic() && work.len as usize != needed {
        return Err(Failure::new(CqeSyndrome::LocalLength));
    }
    Ok(())
}

fn local_rights(work: &SendWork) -> MkeyRights {
    if work.is_read() { MkeyRights::LOCAL_WRITE } else { MkeyRights::LOCAL_READ }
}

/// Parses the data segments of a receive WQE.
pub(super) fn scatter_list(qp: &Qp, nic: &Nic, segments: &[u8], work: &mut ReceiveWork) {
    let mut segments = Segments(segments);
    while let Some(data) = segments.take::<DataSeg>() {
        if data.lkey() == LKEY_INVALID && data.byte_count() == 0 {
            break;
        }
        work.pieces.push(memory_piece(qp, nic, &data));
    }
}
