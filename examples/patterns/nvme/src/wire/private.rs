//! Private data of the connection manager's messages. NVMe RDMA transport specification, "Connection establishment".

use std::fmt;

use zerocopy::little_endian::U16;

use super::declare::{constants, wire};

wire! {
    /// Of a REQ.
    CmRequest = "nvme_rdma_cm_req" {
        /// Format: 0.
        recfmt: U16 = "recfmt",
        /// Queue.
        qid: U16 = "qid",
        /// Receives that the host has posted.
        hrqsize: U16 = "hrqsize",
        /// Commands that the host has under way at once, less one.
        hsqsize: U16 = "hsqsize",
        /// Controller; 0 for an admin queue, and of older hosts.
        cntlid: U16 = "cntlid",
        /// Reserved.
        reserved: [u8; 22] = "rsvd",
    }

    /// Of a REP.
    CmReply = "nvme_rdma_cm_rep" {
        /// Format: 0.
        recfmt: U16 = "recfmt",
        /// Receives that the target has posted.
        crqsize: U16 = "crqsize",
        /// Reserved.
        reserved: [u8; 28] = "rsvd",
    }

    /// Of a REJ.
    CmReject = "nvme_rdma_cm_rej" {
        /// Format: 0.
        recfmt: U16 = "recfmt",
        /// [`CmStatus`].
        status: U16 = "sts",
    }
}

constants! {
    /// Reasons, as numbers.
    pub mod reason: u16 {
        /// See [`CmStatus::InvalidLength`](super::CmStatus::InvalidLength); and so on.
        INVALID_LENGTH = 1, "NVME_RDMA_CM_INVALID_LEN";
        /// Format.
        INVALID_FORMAT = 2, "NVME_RDMA_CM_INVALID_RECFMT";
        /// Queue.
        INVALID_QUEUE = 3, "NVME_RDMA_CM_INVALID_QID";
        /// Send queue.
        INVALID_SEND_SIZE = 4, "NVME_RDMA_CM_INVALID_HSQSIZE";
        /// Receive queue.
        INVALID_RECEIVE_SIZE = 5, "NVME_RDMA_CM_INVALID_HRQSIZE";
        /// Resources.
        NO_RESOURCES = 6, "NVME_RDMA_CM_NO_RSC";
        /// Responder resources.
        INVALID_IRD = 7, "NVME_RDMA_CM_INVALID_IRD";
        /// Initiator depth.
        INVALID_ORD = 8, "NVME_RDMA_CM_INVALID_ORD";
    }

    /// Other numbers.
    pub mod port: u16 {
        /// The port that NVMe over RDMA has by default.
        NVME = 4420, "NVME_RDMA_IP_PORT";
    }
}

/// Why a target refuses a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CmStatus {
    /// The private data is too short.
    InvalidLength,
    /// The format is unknown.
    InvalidFormat,
    /// There is no such queue.
    InvalidQueue,
    /// The host's send queue is too long, or has no entries.
    InvalidSendSize,
    /// The host's receive queue is too short.
    InvalidReceiveSize,
    /// The target is out of memory or objects.
    NoResources,
    /// The host's responder resources are insufficient.
    InvalidIrd,
    /// The host's initiator depth is insufficient.
    InvalidOrd,
    /// A number that the specification does not have.
    Other(u16),
}

const NAMED: [(CmStatus, u16, &str); 8] = [
    (CmStatus::InvalidLength, reason::INVALID_LENGTH, "invalid length of private data"),
    (CmStatus::InvalidFormat, reason::INVALID_FORMAT, "invalid format of private data"),
    (CmStatus::InvalidQueue, reason::INVALID_QUEUE, "invalid queue ID"),
    (CmStatus::InvalidSendSize, reason::INVALID_SEND_SIZE, "invalid send queue size"),
    (CmStatus::InvalidReceiveSize, reason::INVALID_RECEIVE_SIZE, "invalid receive queue size"),
    (CmStatus::NoResources, reason::NO_RESOURCES, "no resources"),
    (CmStatus::InvalidIrd, reason::INVALID_IRD, "invalid responder resources"),
    (CmStatus::InvalidOrd, reason::INVALID_ORD, "invalid initiator depth"),
];

impl CmStatus {
    /// The number.
    pub fn number(self) -> u16 {
        match self {
            CmStatus::Other(number) => number,
            named => NAMED.iter().find(|(status, ..)| *status == named).map_or(0, |(_, number, _)| *number),
        }
    }

    /// What a number means.
    pub fn from_number(number: u16) -> Self {
        NAMED.iter().find(|(_, named, _)| *named == number).map_or(CmStatus::Other(number), |(status, ..)| *status)
    }
}

impl fmt::Display for CmStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMED.iter().find(|(status, ..)| status == self) {
            Some((.., text)) => f.write_str(text),
            None => write!(f, "reason {:#x}", self.number()),
        }
    }
}
