//! Decoding of CQEs.

use std::fmt;

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, ErrorCqe};
use mlx5_prm::layout::{Layout, Value};
use mlx5_prm::wqe::WqeOpcode;

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
    /// The queue pair number in the CQE, 24 bits.
    pub qpn: u32,
    /// Its send or receive queue.
    pub side: Side,
    /// `wqe_counter`: index of the WQE, modulo 2^16; in WQEBBs for a send queue, in WQEs for a receive queue.
    pub index: u16,
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

/// Why a work request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The card reported a syndrome.
    Syndrome(CqeSyndrome),
    /// The CQE has an opcode that is invalid for this queue.
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
pub(crate) fn work_of(result: &Result<Completion, WorkError>) -> Work {
    match result {
        Ok(completion) => completion.work,
        Err(error) => error.work,
    }
}

/// Decodes a CQE. Never panics, for any bytes.
#[inline(always)]
pub fn decode(cqe: &Cqe) -> Result<Completion, WorkError> {
    // Checked first: a poll for sends needs only one comparison.
    if cqe.opcode() == CqeOpcode::Requester {
        let opcode = <WqeOpcode as Value>::from_number(cqe.send_wqe_opcode().into());
        return Ok(completion(cqe, Side::Send, Operation::Sent(opcode)));
    }
    let operation = match cqe.opcode() {
        CqeOpcode::ResponderSend => Operation::Received,
        CqeOpcode::ResponderSendImm => Operation::ReceivedImm(cqe.immediate()),
        CqeOpcode::ResponderWriteImm => Operation::WrittenImm(cqe.immediate()),
        CqeOpcode::ResponderSendInval => Operation::ReceivedInvalidate(cqe.immediate()),
        // By value: a reference would force the copy into memory on the success path, too.
        _ => return Err(decode_error(*cqe)),
    };
    Ok(completion(cqe, Side::Receive, operation))
}

#[inline(always)]
fn completion(cqe: &Cqe, side: Side, operation: Operation) -> Completion {
    let work = Work { qpn: cqe.qpn(), side, index: cqe.wqe_counter() };
    Completion {
        work,
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
    let side = match cqe.opcode() {
        CqeOpcode::RequesterError => Side::Send,
        _ => Side::Receive,
    };
    let failure = match cqe.opcode() {
        CqeOpcode::RequesterError | CqeOpcode::ResponderError => Failure::Syndrome(error.syndrome()),
        opcode => Failure::Unexpected(opcode),
    };
    WorkError {
        work: Work { qpn: cqe.qpn(), side, index: cqe.wqe_counter() },
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
    fn an_error_is_a_sentence_with_all_that_is_known() {
        let mut cqe = ErrorCqe::ZERO;
        cqe.w().opcode(CqeOpcode::RequesterError).qpn(0x43).wqe_counter(3).send_wqe_opcode(0x08);
        cqe.w().syndrome(CqeSyndrome::RemoteAccess).vendor_error_syndrome(0x88);
        let error = decode(&Cqe::read(cqe.as_bytes()).unwrap()).unwrap_err();
        assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess));
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
