//! Decoding of CQEs.

use std::fmt;
use std::ops::Deref;

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, ErrorCqe, L3Header, L4Header, RssIp, RssL4};
use mlx5_prm::layout::{Layout, Value};
use mlx5_prm::wqe::WqeOpcode;

use super::joined::JoinedSegments;
use crate::timestamp::Timestamp;

/// Which of a queue pair's two queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// The work request that a completion reports. Pass it to [`SendQueue::retire`](crate::queue::SendQueue::retire) or
/// [`ReceiveQueue::retire`](crate::queue::ReceiveQueue::retire), which check it and return its `wr_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// The queue pair number in the CQE, 24 bits. More if the CQE reports no work request: see
    /// [`invalid_opcode`](Self::invalid_opcode).
    pub qpn: u32,
    /// Its send or receive queue.
    pub side: Side,
    /// `wqe_counter`: index of the WQE, modulo 2^16; in WQEBBs for a send queue, in WQEs for a receive queue.
    pub index: u16,
}

impl Work {
    /// In `qpn`: no work request. No queue has such a number, so that each refuses it, without a check of its own.
    const NONE: u32 = 1 << 31;

    /// What a CQE of queue pair `qpn` reports whose `opcode` completes nothing.
    fn none(qpn: u32, opcode: CqeOpcode) -> Self {
        // Not of a receive: a shared receive queue takes those of any queue pair.
        Work { qpn: qpn | Self::NONE, side: Side::Send, index: opcode.number() as u16 }
    }

    /// The CQE's opcode, if that completes nothing. Which queue the CQE is of is not known then: none takes it, and its
    /// buffer is not returned.
    pub fn invalid_opcode(&self) -> Option<CqeOpcode> {
        (self.qpn & Self::NONE != 0).then(|| CqeOpcode::from_number(self.index.into()))
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Work { qpn, side, index } = self;
        match self.invalid_opcode() {
            Some(opcode) => write!(f, "a CQE of QP {:#x} with the invalid opcode {opcode}", qpn & !Self::NONE),
            None => write!(f, "{side:?} WQE {index} of QP {qpn:#x}"),
        }
    }
}

/// What a completed work request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A work request of the send queue was executed.
    Sent(WqeOpcode),
    /// A message was received.
    Received,
    /// A message with immediate data was received.
    ReceivedImm(u32),
    /// An RDMA WRITE with immediate data completed a receive.
    WrittenImm(u32),
    /// A message was received that invalidated this key.
    ReceivedInvalidate(u32),
}

/// A successful work request. PRM "CQE Format".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The work request.
    pub work: Work,
    /// What it did.
    pub operation: Operation,
    /// Bytes received or read; undefined for sends and writes.
    pub byte_len: u32,
    /// Source queue pair of a datagram, 24 bits: the destination of a reply. Otherwise undefined.
    pub remote_qpn: u32,
    /// The queue pair's [`QpOptions::user_index`](crate::objects::QpOptions::user_index), from the CQE. Undefined for a
    /// queue pair without one.
    pub user_index: u32,
    /// When the card completed it. Ticks, unless the card has only real time: then seconds in the upper half, and
    /// nanoseconds.
    pub timestamp: Timestamp,
}

impl Completion {
    /// The key of this side that the message invalidated.
    #[inline]
    pub fn invalidated(&self) -> Option<u32> {
        match self.operation {
            Operation::ReceivedInvalidate(key) => Some(key),
            _ => None,
        }
    }

    /// The immediate that came with it.
    pub fn imm(&self) -> Option<u32> {
        match self.operation {
            Operation::ReceivedImm(imm) | Operation::WrittenImm(imm) => Some(imm),
            _ => None,
        }
    }
}

/// The completion of a received frame, with what the card found out about the frame. Of a frame that was sent it is the
/// [`Completion`] alone. PRM "CQE Format".
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FrameCompletion {
    completion: Completion,
    /// The first half of its CQE: decoded where it is asked for.
    found: [u8; FOUND],
    /// `lro_num_seg`.
    segments: u8,
    /// TCP's timestamps, in place of the card's.
    tcp_timestamp: (u32, u32),
}

/// Bytes of a CQE that say what was found.
const FOUND: usize = 32;

/// The hash that chose the queue of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RssHash {
    /// The hash.
    pub value: u32,
    /// The addresses that it covers.
    pub ip: RssIp,
    /// What of layer 4 it covers.
    pub l4: RssL4,
}

impl FrameCompletion {
    #[inline(always)]
    fn cqe(&self) -> Cqe {
        let mut bytes = [0; Cqe::SIZE];
        bytes[..FOUND].copy_from_slice(&self.found);
        zerocopy::transmute!(bytes)
    }

    /// The hash that chose its queue; `None` of a frame that was not hashed.
    #[inline]
    pub fn rss_hash(&self) -> Option<RssHash> {
        let cqe = self.cqe();
        let (ip, l4) = (cqe.rss_hash_type_ip(), cqe.rss_hash_type_l4());
        let (ip, l4) = (RssIp::from_number(ip.into()), RssL4::from_number(l4.into()));
        let is_hashed = (ip, l4) != (RssIp::None, RssL4::None);
        is_hashed.then_some(RssHash { value: cqe.rss_hash_result(), ip, l4 })
    }

    /// Whether the card has checked the checksum of the IPv4 header, and it is right. `true` of IPv6, which has none.
    #[inline]
    pub fn l3_checksum_ok(&self) -> bool {
        self.cqe().l3_ok()
    }

    /// Whether the card has checked the checksum of TCP or UDP, and it is right. `false` of a fragment.
    #[inline]
    pub fn l4_checksum_ok(&self) -> bool {
        self.cqe().l4_ok()
    }

    /// One's complement sum of the frame's bytes after its Ethernet header, and after a VLAN tag that was stripped.
    #[inline]
    pub fn sum(&self) -> u16 {
        self.cqe().check_sum()
    }

    /// The tag control information of the VLAN tag that was stripped
    /// ([`RqOptions::strip_vlan`](crate::objects::RqOptions::strip_vlan)); `None` of a frame without one.
    #[inline]
    pub fn stripped_vlan(&self) -> Option<u16> {
        let cqe = self.cqe();
        cqe.cv().then(|| cqe.vlan_info())
    }

    /// Its layer 3 header; that of the inner packet, if it is [tunneled](Self::is_tunneled).
    #[inline]
    pub fn l3(&self) -> L3Header {
        L3Header::from_number(self.cqe().l3_hdr_type().into())
    }

    /// Its layer 4 header; that of the inner packet, if it is [tunneled](Self::is_tunneled).
    #[inline]
    pub fn l4(&self) -> L4Header {
        L4Header::from_number(self.cqe().l4_hdr_type().into())
    }

    /// Whether it is an IP fragment.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.cqe().ip_frag()
    }

    /// Whether it has IPv4 options or IPv6 extension headers.
    #[inline]
    pub fn has_ip_options(&self) -> bool {
        self.cqe().ip_ext_opts()
    }

    /// Whether it came in a tunnel that the card looks into: types and verdicts are those of the inner packet.
    #[inline]
    pub fn is_tunneled(&self) -> bool {
        self.cqe().tunneled()
    }

    /// What the card made it of, if it joined TCP segments
    /// ([`LroOptions`](crate::objects::LroOptions)); `None` of a frame as it was on the wire. The checksums of such
    /// a frame were right, [`sum`](Self::sum) is that of its data, and it has no [timestamp](Completion::timestamp) (0)
    /// where TCP's are told.
    #[inline(always)]
    pub fn joined(&self) -> Option<JoinedSegments> {
        if self.is_joined() { Some(self.segments_joined()) } else { None }
    }

    #[inline(always)]
    pub(crate) fn is_joined(&self) -> bool {
        self.segments >= 2
    }

    #[cold]
    fn segments_joined(&self) -> JoinedSegments {
        let cqe = self.cqe();
        let acknowledges = matches!(self.l4(), L4Header::TcpAckNoData | L4Header::TcpAckAndData);
        JoinedSegments {
            segments: self.segments,
            is_pushed: cqe.lro_tcppsh(),
            least_ttl: cqe.lro_min_ttl(),
            ack: acknowledges.then(|| (cqe.lro_ack_seq_num(), cqe.lro_tcp_win())),
            timestamp: cqe.lro_timestamp_valid().then_some(self.tcp_timestamp),
            data_sum: cqe.check_sum(),
        }
    }

    /// The tag that its flow rule gave it; the number of its queue, if the rule gave none.
    #[inline]
    pub fn flow_tag(&self) -> u32 {
        self.work.qpn
    }
}

impl Deref for FrameCompletion {
    type Target = Completion;

    #[inline]
    fn deref(&self) -> &Completion {
        &self.completion
    }
}

impl AsRef<Completion> for FrameCompletion {
    #[inline]
    fn as_ref(&self) -> &Completion {
        &self.completion
    }
}

impl AsRef<Completion> for Completion {
    #[inline]
    fn as_ref(&self) -> &Completion {
        self
    }
}

impl From<Completion> for FrameCompletion {
    /// Of a frame that was sent.
    fn from(completion: Completion) -> Self {
        FrameCompletion { completion, found: [0; FOUND], segments: 0, tcp_timestamp: (0, 0) }
    }
}

impl fmt::Debug for FrameCompletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("FrameCompletion");
        all.field("completion", &self.completion);
        if let Operation::Received = self.operation {
            all.field("rss_hash", &self.rss_hash())
                .field("checksums_ok", &(self.l3_checksum_ok(), self.l4_checksum_ok()))
                .field("stripped_vlan", &self.stripped_vlan())
                .field("headers", &(self.l3(), self.l4()))
                .field("joined", &self.joined());
        }
        all.finish()
    }
}

/// Why a work request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The card reported a syndrome.
    Syndrome(CqeSyndrome),
    /// The CQE has an opcode that completes nothing, and reports no [`Work`].
    Unexpected(CqeOpcode),
}

/// A failed work request. PRM "Completion With Error CQE". The message is one sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkError {
    /// The work request.
    pub work: Work,
    /// The cause.
    pub failure: Failure,
    /// `vendor_error_syndrome`: the vendor's own number for the cause.
    pub vendor_syndrome: u8,
    /// `hw_error_syndrome`: not zero if this side detected the error.
    pub hw_syndrome: u8,
    /// `hw_syndrome_type`.
    pub hw_syndrome_type: u8,
    /// Opcode of the WQE; undefined for a receive.
    pub opcode: WqeOpcode,
    /// See [`Completion::user_index`].
    pub user_index: u32,
}

impl WorkError {
    /// The syndrome; `None` for a CQE with an invalid opcode.
    pub fn syndrome(&self) -> Option<CqeSyndrome> {
        match self.failure {
            Failure::Syndrome(syndrome) => Some(syndrome),
            Failure::Unexpected(_) => None,
        }
    }

    /// Whether the work request was flushed: not started, because the queue pair was in error.
    pub fn is_flush(&self) -> bool {
        self.failure == Failure::Syndrome(CqeSyndrome::WorkRequestFlushed)
    }
}

impl std::error::Error for WorkError {}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.work.invalid_opcode().is_some() {
            return write!(f, "{}", self.work);
        }
        match self.work.side {
            Side::Send => write!(f, "{}", self.opcode)?,
            Side::Receive => write!(f, "RECEIVE")?,
        }
        write!(f, " at WQE index {} of QP {:#x} ", self.work.index, self.work.qpn)?;
        match self.failure {
            Failure::Unexpected(opcode) => write!(f, "got a completion with the invalid opcode {opcode}"),
            Failure::Syndrome(syndrome) => write!(
                f,
                "failed: {syndrome} ({:#x}), vendor syndrome {:#x}: {}",
                syndrome.number(),
                self.vendor_syndrome,
                syndrome.meaning()
            ),
        }
    }
}

/// The work request that `result` reports.
#[inline(always)]
pub(crate) fn work_of<C: AsRef<Completion>>(result: &Result<C, WorkError>) -> Work {
    match result {
        Ok(completion) => completion.as_ref().work,
        Err(error) => error.work,
    }
}

/// The `user_index` of a completion or error.
#[inline(always)]
pub(in crate::queue) fn user_index_of<C: AsRef<Completion>>(result: &Result<C, WorkError>) -> u32 {
    match result {
        Ok(completion) => completion.as_ref().user_index,
        Err(error) => error.user_index,
    }
}

/// Offset of the byte that has the opcode in its upper half.
const OP_OWN: usize = Cqe::SIZE - 1;

/// Decodes the CQE of a send that succeeded; `None` for any other.
#[inline(always)]
pub(in crate::queue) fn decode_sent(cqe: &Cqe) -> Option<Completion> {
    // By the whole byte: together with the comparisons of its upper half that follow, this one would not be the first.
    const NEXT: u8 = 1 << 4;
    (cqe.as_bytes()[OP_OWN] < CqeOpcode::Requester.number() as u8 * NEXT + NEXT).then(|| sent(cqe))
}

#[inline(always)]
fn sent(cqe: &Cqe) -> Completion {
    let opcode = <WqeOpcode as Value>::from_number(cqe.send_wqe_opcode().into());
    completion(cqe, Side::Send, Operation::Sent(opcode))
}

/// What a receive that succeeded has received; `None` for any other CQE.
#[inline(always)]
fn received(cqe: &Cqe) -> Option<Operation> {
    match cqe.opcode() {
        CqeOpcode::ResponderSend => Some(Operation::Received),
        CqeOpcode::ResponderSendImm => Some(Operation::ReceivedImm(cqe.immediate())),
        CqeOpcode::ResponderWriteImm => Some(Operation::WrittenImm(cqe.immediate())),
        CqeOpcode::ResponderSendInval => Some(Operation::ReceivedInvalidate(cqe.immediate())),
        _ => None,
    }
}

/// Decodes the CQE of a receive that succeeded; `None` for any other.
#[inline(always)]
pub(in crate::queue) fn decode_received(cqe: &Cqe) -> Option<Completion> {
    received(cqe).map(|operation| completion(cqe, Side::Receive, operation))
}

/// Decodes a CQE. Never panics, for any bytes.
#[inline(always)]
pub fn decode(cqe: &Cqe) -> Result<Completion, WorkError> {
    // Checked first: a poll for sends needs only one comparison.
    if cqe.opcode() == CqeOpcode::Requester {
        return Ok(sent(cqe));
    }
    // By value: a reference would force the copy into memory on the success path, too.
    let Some(operation) = received(cqe) else { return Err(decode_error(*cqe)) };
    Ok(completion(cqe, Side::Receive, operation))
}

/// As [`decode`], of a queue of frames.
#[inline(always)]
pub(crate) fn decode_frame(cqe: &Cqe) -> Result<FrameCompletion, WorkError> {
    let mut frame = frame(cqe, decode(cqe)?);
    if frame.segments > 1 && cqe.lro_timestamp_valid() {
        let both = cqe.timestamp();
        frame.tcp_timestamp = ((both >> 32) as u32, both as u32);
        frame.completion.timestamp = Timestamp(0);
    }
    Ok(frame)
}

#[inline(always)]
fn frame(cqe: &Cqe, completion: Completion) -> FrameCompletion {
    let found = cqe.as_bytes().first_chunk().copied().unwrap_or([0; FOUND]);
    FrameCompletion { completion, found, segments: cqe.lro_num_seg(), tcp_timestamp: (0, 0) }
}

/// The side that `cqe` completes, if that was a frame that was sent, or one that was received as it was on the wire.
#[inline(always)]
pub(in crate::queue) fn side_of_plain_frame(cqe: &Cqe) -> Option<Side> {
    match cqe.opcode() {
        CqeOpcode::Requester => Some(Side::Send),
        CqeOpcode::ResponderSend if cqe.lro_num_seg() <= 1 => Some(Side::Receive),
        _ => None,
    }
}

/// Decodes the CQE of such a frame.
#[inline(always)]
pub(in crate::queue) fn decode_plain_frame(cqe: &Cqe, side: Side) -> FrameCompletion {
    let completion = match side {
        Side::Send => sent(cqe),
        Side::Receive => completion(cqe, side, Operation::Received),
    };
    frame(cqe, completion)
}

/// The work request that `cqe` completes, of `side`.
#[inline(always)]
pub(in crate::queue) fn work_at(cqe: &Cqe, side: Side) -> Work {
    Work { qpn: cqe.qpn(), side, index: cqe.wqe_counter() }
}

#[inline(always)]
fn completion(cqe: &Cqe, side: Side, operation: Operation) -> Completion {
    Completion {
        work: work_at(cqe, side),
        operation,
        byte_len: cqe.byte_cnt(),
        remote_qpn: cqe.rqpn(),
        user_index: cqe.srqn(),
        timestamp: Timestamp(cqe.timestamp()),
    }
}

#[cold]
#[inline(never)]
fn decode_error(cqe: Cqe) -> WorkError {
    let error = ErrorCqe::read(cqe.as_bytes()).unwrap_or_default();
    let syndrome = Failure::Syndrome(error.syndrome());
    let (work, failure) = match cqe.opcode() {
        CqeOpcode::RequesterError => (work_at(&cqe, Side::Send), syndrome),
        CqeOpcode::ResponderError => (work_at(&cqe, Side::Receive), syndrome),
        opcode => (Work::none(cqe.qpn(), opcode), Failure::Unexpected(opcode)),
    };
    WorkError {
        work,
        failure,
        vendor_syndrome: error.vendor_error_syndrome(),
        hw_syndrome: error.hw_error_syndrome(),
        hw_syndrome_type: error.hw_syndrome_type(),
        opcode: <WqeOpcode as Value>::from_number(error.send_wqe_opcode().into()),
        user_index: error.srqn(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_good_completion_is_decoded() {
        let mut cqe = Cqe::ZERO;
        cqe.w()
            .opcode(CqeOpcode::ResponderSendImm)
            .qpn(0x43)
            .wqe_counter(7)
            .byte_cnt(64)
            .immediate(0xabcd)
            .timestamp(9);
        let completion = decode(&cqe).unwrap();
        assert_eq!(completion.work, Work { qpn: 0x43, side: Side::Receive, index: 7 });
        assert_eq!((completion.byte_len, completion.imm(), completion.timestamp), (64, Some(0xabcd), Timestamp(9)));
        assert_eq!(completion.invalidated(), None);
        cqe.w().opcode(CqeOpcode::ResponderSendInval);
        let completion = decode(&cqe).unwrap();
        assert_eq!((completion.invalidated(), completion.imm()), (Some(0xabcd), None));
        cqe.w().opcode(CqeOpcode::Requester).send_wqe_opcode(0x08);
        assert_eq!(decode(&cqe).unwrap().operation, Operation::Sent(WqeOpcode::RdmaWrite));
    }

    #[test]
    fn what_the_card_found_out_about_a_frame_is_said() {
        let mut cqe = Cqe::ZERO;
        cqe.w().opcode(CqeOpcode::ResponderSend).qpn(0x77).byte_cnt(60);
        let plain = decode_frame(&cqe).unwrap();
        assert_eq!((plain.rss_hash(), plain.stripped_vlan(), plain.is_tunneled()), (None, None, false));
        assert_eq!(
            (plain.l3(), plain.l4(), plain.byte_len, plain.flow_tag()),
            (L3Header::None, L4Header::None, 60, 0x77)
        );
        assert!(!plain.l3_checksum_ok() && !plain.l4_checksum_ok() && !plain.is_fragment() && !plain.has_ip_options());
        cqe.w()
            .rss_hash_result(0x51cc_c178)
            .rss_hash_type_ip(RssIp::Ipv4.number() as u8)
            .rss_hash_type_l4(RssL4::Tcp.number() as u8)
            .cv(true)
            .vlan_info(0x2005)
            .l3_ok(true)
            .l4_ok(true)
            .check_sum(0xbeef)
            .tunneled(true)
            .ip_frag(true)
            .ip_ext_opts(true)
            .l3_hdr_type(L3Header::Ipv6.number() as u8)
            .l4_hdr_type(L4Header::Udp.number() as u8);
        let frame = decode_frame(&cqe).unwrap();
        let hash = RssHash { value: 0x51cc_c178, ip: RssIp::Ipv4, l4: RssL4::Tcp };
        assert_eq!((frame.rss_hash(), frame.stripped_vlan(), frame.sum()), (Some(hash), Some(0x2005), 0xbeef));
        assert_eq!((frame.l3(), frame.l4()), (L3Header::Ipv6, L4Header::Udp));
        assert!(frame.l3_checksum_ok() && frame.l4_checksum_ok() && frame.is_fragment() && frame.has_ip_options());
        assert!(frame.is_tunneled() && format!("{frame:?}").contains("8197"), "{frame:?}");
    }

    #[test]
    fn joined_segments_are_told_with_what_their_headers_said() {
        let mut cqe = Cqe::ZERO;
        cqe.w()
            .opcode(CqeOpcode::ResponderSend)
            .byte_cnt(4000)
            .srqn(7)
            .lro_num_seg(1)
            .lro_tcppsh(true)
            .lro_min_ttl(60)
            .lro_ack_seq_num(0x1234_5678)
            .lro_tcp_win(500)
            .check_sum(0xbeef)
            .timestamp(3 << 32 | 4);
        let alone = decode_frame(&cqe).unwrap();
        assert_eq!((alone.joined(), alone.timestamp), (None, Timestamp(3 << 32 | 4)));
        cqe.w().lro_num_seg(3);
        let joined = decode_frame(&cqe).unwrap().joined().unwrap();
        let expected = JoinedSegments {
            segments: 3,
            is_pushed: true,
            least_ttl: 60,
            ack: None,
            timestamp: None,
            data_sum: 0xbeef,
        };
        assert_eq!(joined, expected);
        cqe.w().lro_timestamp_valid(true).l4_hdr_type(L4Header::TcpAckAndData.number() as u8);
        let frame = decode_frame(&cqe).unwrap();
        let told = JoinedSegments { ack: Some((0x1234_5678, 500)), timestamp: Some((3, 4)), ..expected };
        assert_eq!((frame.joined(), frame.timestamp, frame.user_index), (Some(told), Timestamp(0), 7));
    }

    #[test]
    fn an_error_is_a_sentence_with_all_that_is_known() {
        let mut cqe = ErrorCqe::ZERO;
        cqe.w().opcode(CqeOpcode::RequesterError).qpn(0x43).wqe_counter(3).send_wqe_opcode(0x08);
        cqe.w().syndrome(CqeSyndrome::RemoteAccess).vendor_error_syndrome(0x88);
        // The dword of a card: the syndrome type is four bits, and four reserved ones follow it.
        let mut bytes = cqe.as_bytes().to_vec();
        bytes[0x34..0x36].copy_from_slice(&[2, 0x10]);
        let error = decode(&Cqe::read(&bytes).unwrap()).unwrap_err();
        assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess));
        assert_eq!((error.hw_syndrome, error.hw_syndrome_type), (2, 1));
        let text = error.to_string();
        assert!(
            text.starts_with(
                "RDMA_WRITE at WQE index 3 of QP 0x43 failed: REMOTE_ACCESS_ERR (0x13), vendor syndrome 0x88"
            ),
            "{text}"
        );
    }

    proptest! {
        /// Any 64 bytes decode, and only good opcodes decode to a completion.
        #[test]
        fn any_bytes_decode(bytes in prop::array::uniform32(any::<u8>()), more in prop::array::uniform32(any::<u8>())) {
            let cqe = Cqe::read(&[bytes, more].concat()).unwrap();
            match decode(&cqe) {
                Ok(_) => prop_assert!(cqe.opcode().number() <= 4),
                Err(error) => {
                    prop_assert!(cqe.opcode().number() > 4);
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}
