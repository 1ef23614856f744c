//! Compressed completions: receives that differ only in what a mini CQE has room for share one title. PRM "Compressed
//! CQEs".
//!
//! Completions are held until one comes that does not fit the title, until there are as many as the card announces, or
//! until the end of the turn: waiting for more would only delay them. Only receives are compressed. No block goes round
//! the end of the ring: DPDK's vector code gives its entries back without looking for the end.

use mlx5_prm::cqe::{
    Cqe, CqeFormat, CqeOpcode, MiniCqeChecksum, MiniCqeFlowTag, MiniCqeFormat, MiniCqeHash, MiniCqeHeaderType,
    StridingByteCount,
};
use mlx5_prm::layout::Layout;

use super::charge::charge;
use super::cq_ring;
use crate::function::{Function, Nic};

/// Bytes of a mini CQE.
const MINI: usize = 8;
/// Longest byte count of a mini CQE with a flow tag.
const FLOW_TAG_BYTES: u32 = 0xff_ffff;

/// Holds a completion back to be compressed. False if it is to be written now, after what was held before it.
pub(super) fn hold(nic: &mut Nic, number: u32, cqn: u32, cqe: &Cqe, solicited: bool) -> bool {
    let most = usize::from(nic.firmware.capabilities().general().cqe_compression_max_num());
    let Some(cq) = nic.objects.cqs.get_mut(cqn) else { return false };
    let Some(compression) = &mut cq.compression else { return false };
    let format = compression.format;
    let can_follow = match compression.held.as_slice() {
        [] => true,
        held @ [title, .., last] | held @ [title @ last] => {
            let end = cq.producer.wrapping_add(held.len() as u32);
            held.len() < most
                && !end.is_multiple_of(1 << cq.log_size)
                && compression.number == number
                && fits(format, title, last, cqe)
        }
    };
    if !can_follow {
        close(nic, cqn);
    }
    if cqe.opcode() != CqeOpcode::ResponderSend || !solicited || !is_expressible(format, cqe) {
        close(nic, cqn);
        return false;
    }
    let Some(compression) = nic.objects.cqs.get_mut(cqn).and_then(|cq| cq.compression.as_mut()) else { return false };
    compression.held.push(*cqe);
    compression.number = number;
    if compression.held.len() == 1 {
        nic.scheduler.compressing.push(cqn);
    }
    true
}

/// Writes what is held of one completion queue.
pub(super) fn close(nic: &mut Nic, cqn: u32) {
    let Some(compression) = nic.objects.cqs.get_mut(cqn).and_then(|cq| cq.compression.as_mut()) else { return };
    let (format, number) = (compression.format, compression.number);
    let mut held = std::mem::take(&mut compression.held);
    nic.scheduler.compressing.retain(|other| *other != cqn);
    match held.as_slice() {
        [] => {}
        [alone] => cq_ring::put(nic, number, cqn, *alone, true),
        [first, ..] => {
            let mut title = *first;
            title.w().cqe_format(CqeFormat::Compressed.number() as u8).byte_cnt(held.len() as u32);
            let minis: Vec<u8> = held.iter().flat_map(|cqe| mini(format, cqe)).collect();
            cq_ring::put_compressed(nic, number, cqn, title, &minis, &held);
        }
    }
    held.clear();
    if let Some(compression) = nic.objects.cqs.get_mut(cqn).and_then(|cq| cq.compression.as_mut()) {
        compression.held = held;
    }
}

/// Writes all that is held: the end of a turn.
pub(super) fn close_all(f: &mut Function) {
    while let Some(cqn) = f.nic.scheduler.compressing.pop() {
        let (queues, nic) = (&mut f.queues, &mut f.nic);
        let number = nic.objects.cqs.get(cqn).and_then(|cq| cq.compression.as_ref()).map(|held| held.number);
        match number.and_then(|number| queues.rqs.get_mut(number)) {
            Some(rq) => charge(rq, nic, |_, nic| close(nic, cqn)),
            None => close(nic, cqn),
        }
    }
}

/// Whether a mini CQE of this form can say it. None tells of joined segments.
fn is_expressible(format: MiniCqeFormat, cqe: &Cqe) -> bool {
    cqe.lro_num_seg() < 2 && (format != MiniCqeFormat::FlowTag || cqe.byte_cnt() <= FLOW_TAG_BYTES)
}

/// Whether a completion after `last` has the title's fields, where a mini CQE has no room for its own.
fn fits(format: MiniCqeFormat, title: &Cqe, last: &Cqe, cqe: &Cqe) -> bool {
    let is_next = match format {
        MiniCqeFormat::Hash | MiniCqeFormat::Checksum => cqe.wqe_counter() == next_counter(last),
        _ => true,
    };
    is_next && shared(format, title).as_bytes() == shared(format, cqe).as_bytes()
}

/// The index after a completion's: of the next WQE, or in a striding receive queue of the next stride.
fn next_counter(cqe: &Cqe) -> u16 {
    let strides = StridingByteCount::read(&cqe.byte_cnt().to_be_bytes()).map_or(0, |count| count.consumed_strides());
    cqe.wqe_counter().wrapping_add(strides.max(1))
}

/// What all completions of a block have in common. The hash and the checksum are lost where the mini CQE has no room
/// for them, and so is each one's time.
fn shared(format: MiniCqeFormat, cqe: &Cqe) -> Cqe {
    let mut shared = *cqe;
    shared.w().timestamp(0).rss_hash_result(0).check_sum(0).byte_cnt(0).wqe_counter(0);
    match format {
        MiniCqeFormat::FlowTag => _ = shared.w().qpn(0),
        MiniCqeFormat::HeaderType => {
            shared.w().ip_frag(false).l4_hdr_type(0).l3_hdr_type(0).ip_ext_opts(false).cv(false);
        }
        _ => {}
    }
    shared
}

fn mini(format: MiniCqeFormat, cqe: &Cqe) -> [u8; MINI] {
    let mut bytes = [0; MINI];
    match format {
        MiniCqeFormat::Checksum | MiniCqeFormat::ChecksumStride => {
            let mut mini = MiniCqeChecksum::ZERO;
            mini.w().checksum(cqe.check_sum()).byte_cnt(cqe.byte_cnt());
            if format == MiniCqeFormat::ChecksumStride {
                mini.w().stride_index(cqe.wqe_counter());
            }
            bytes.copy_from_slice(mini.as_bytes());
        }
        MiniCqeFormat::FlowTag => {
            let (tag, mut mini) = (cqe.qpn(), MiniCqeFlowTag::ZERO);
            mini.w().flow_tag_15_0(tag as u16).flow_tag_23_16((tag >> 16) as u8);
            mini.w().stride_index(cqe.wqe_counter()).byte_cnt(cqe.byte_cnt());
            bytes.copy_from_slice(mini.as_bytes());
        }
        MiniCqeFormat::HeaderType => {
            let mut mini = MiniCqeHeaderType::ZERO;
            mini.w().hdr_type(cqe.as_bytes()[HDR_TYPE]).stride_index(cqe.wqe_counter()).byte_cnt(cqe.byte_cnt());
            bytes.copy_from_slice(mini.as_bytes());
        }
        MiniCqeFormat::Hash | MiniCqeFormat::Unknown(_) => {
            let mut mini = MiniCqeHash::ZERO;
            mini.w().rx_hash_result(cqe.rss_hash_result()).byte_cnt(cqe.byte_cnt());
            bytes.copy_from_slice(mini.as_bytes());
        }
    }
    bytes
}

/// The byte of a CQE with the header types: bits 23:16 of dword 0x1c.
const HDR_TYPE: usize = 0x1d;
