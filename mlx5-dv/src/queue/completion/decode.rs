//! What a completion says.

use std::fmt;

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, ErrorCqe};
use mlx5_prm::layout::{Layout, Value};
use mlx5_prm::wqe::WqeOpcode;

/// Which of a queue pair's two queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// Which work request a completion is about. Give it to [`SendQueue::retire`](crate::queue::SendQueue::retire) or
/// [`ReceiveQueue::retire`](crate::queue::ReceiveQueue::retire), which check it and know its `wr_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Work {
    /// The queue pair, 24 bits, as the card said.
    pub qpn: u32,
    /// Which queue of it.
    pub side: Side,
    /// `wqe_counter`: the WQE's index, modulo 2^16. In WQEBBs for a send queue, in WQEs for a receive queue.
    pub index: u16,
}

/// What a completed work request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The send queue carried this out.
    Sent(WqeOpcode),
    /// A message was received.
    Received,
    /// A message was received, with this immediate.
    ReceivedImm(u32),
    /// The remote wrote into our memory, and consumed a receive to give this immediate.
    WrittenImm(u32),
    /// A message was received that invalidated this key.
    ReceivedInvalidate(u32),
}

/// A work request that was carried out. PRM "CQE Format".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which work request.
    pub work: Work,
    /// What it did.
    pub operation: Operation,
    /// Bytes received or read. Meaningless for sends and writes.
    pub byte_len: u32,
    /// The queue pair that sent a datagram, 24 bits: where an answer goes. Meaningless for all else.
    pub remote_qpn: u32,
    /// [`QpOptions::user_index`](crate::objects::QpOptions::user_index) of the queue pair, as the card said. Of a queue
    /// pair without one it means nothing.
    pub user_index: u32,
    /// The card's clock when it wrote the completion, in the CQ's time format.
    pub timestamp: u64,
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

/// How a work request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The card says why.
    Syndrome(CqeSyndrome),
    /// A completion whose kind makes no sense on this queue.
    Unexpected(CqeOpcode),
}

/// A work request that failed. PRM "Completion With Error CQE". Its display is one sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkError {
    /// Which work request.
    pub work: Work,
    /// How it failed.
    pub failure: Failure,
    /// `vendor_error_syndrome`: the card maker's own number for the reason.
    pub vendor_syndrome: u8,
    /// `hw_error_syndrome`: not zero when this side found the error.
    pub hw_syndrome: u8,
    /// `hw_syndrome_type`.
    pub hw_syndrome_type: u8,
    /// What the WQE asked for; meaningless for a receive.
    pub opcode: WqeOpcode,
    /// As [`Completion::user_index`].
    pub user_index: u32,
}

impl WorkError {
    /// The syndrome; `None` for a completion that makes no sense.
    pub fn syndrome(&self) -> Option<CqeSyndrome> {
        match self.failure {
            Failure::Syndrome(syndrome) => Some(syndrome),
            Failure::Unexpected(_) => None,
        }
    }

    /// Whether the work request itself was never begun: the queue pair was in error already.
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
            Failure::Unexpected(opcode) => write!(f, "got a completion of an impossible kind, {opcode}"),
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

/// Which work request `result` is about.
#[inline(always)]
pub(crate) fn work_of(result: &Result<Completion, WorkError>) -> Work {
    match result {
        Ok(completion) => completion.work,
        Err(error) => error.work,
    }
}

/// What 64 bytes of a completion queue say. Never panics, whatever they are.
#[inline(always)]
pub fn decode(cqe: &Cqe) -> Result<Completion, WorkError> {
    // First, so that who polls for sends alone compares once.
    if cqe.opcode() == CqeOpcode::Requester {
        let opcode = <WqeOpcode as Value>::from_number(cqe.send_wqe_opcode().into());
        return Ok(completion(cqe, Side::Send, Operation::Sent(opcode)));
    }
    let operation = match cqe.opcode() {
        CqeOpcode::ResponderSend => Operation::Received,
        CqeOpcode::ResponderSendImm => Operation::ReceivedImm(cqe.immediate()),
        CqeOpcode::ResponderWriteImm => Operation::WrittenImm(cqe.immediate()),
        CqeOpcode::ResponderSendInval => Operation::ReceivedInvalidate(cqe.immediate()),
        // By value: a reference would keep the copy in memory also where there is no error.
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
        timestamp: cqe.timestamp(),
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
        assert_eq!((completion.byte_len, completion.imm(), completion.timestamp), (64, Some(0xabcd), 9));
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
        /// Whatever 64 bytes a device writes, they decode, and only good opcodes decode to a completion.
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
