//! Status of a completion.

use std::fmt;

/// Result of a command: status code type in bits 8 to 10, status code in bits 0 to 7. NVMe base specification,
/// "Status Code".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

/// Do not retry.
const DNR: u16 = 0x4000;

macro_rules! statuses {
    ($( $(#[$doc:meta])* $name:ident = $number:literal, $c_name:literal, $text:literal; )*) => {
        impl Status {
            $( $(#[$doc])* pub const $name: Status = Status($number); )*
        }

        const NAMED: &[(Status, &str)] = &[$( (Status::$name, $text), )*];

        /// The statuses with their names in the kernel's headers.
        pub(crate) const CONSTANTS: &[(&str, u64)] = &[$( ($c_name, $number), )*];
    };
}

statuses! {
    /// Done.
    SUCCESS = 0x0, "NVME_SC_SUCCESS", "success";
    /// No such command.
    INVALID_OPCODE = 0x1, "NVME_SC_INVALID_OPCODE", "invalid opcode";
    /// A field has a reserved value.
    INVALID_FIELD = 0x2, "NVME_SC_INVALID_FIELD", "invalid field";
    /// The command ID is in use.
    COMMAND_ID_CONFLICT = 0x3, "NVME_SC_CMDID_CONFLICT", "command ID in use";
    /// Data could not be moved.
    DATA_TRANSFER_ERROR = 0x4, "NVME_SC_DATA_XFER_ERROR", "data transfer error";
    /// The controller failed.
    INTERNAL = 0x6, "NVME_SC_INTERNAL", "internal error";
    /// Aborted by a command.
    ABORTED = 0x7, "NVME_SC_ABORT_REQ", "aborted";
    /// No such namespace.
    INVALID_NAMESPACE = 0xb, "NVME_SC_INVALID_NS", "invalid namespace";
    /// Wrong order of commands.
    SEQUENCE_ERROR = 0xc, "NVME_SC_CMD_SEQ_ERROR", "command sequence error";
    /// The descriptor's length does not fit the command.
    INVALID_SGL_LENGTH = 0xf, "NVME_SC_SGL_INVALID_DATA", "SGL length does not fit the command";
    /// A type of descriptor that is not supported.
    INVALID_SGL_TYPE = 0x11, "NVME_SC_SGL_INVALID_TYPE", "invalid SGL type";
    /// The offset is outside of the capsule.
    INVALID_SGL_OFFSET = 0x16, "NVME_SC_SGL_INVALID_OFFSET", "SGL offset outside of the capsule";
    /// No keep-alive came in time.
    KEEP_ALIVE_EXPIRED = 0x19, "NVME_SC_KA_TIMEOUT_EXPIRED", "keep-alive timeout expired";
    /// Blocks outside of the namespace.
    LBA_OUT_OF_RANGE = 0x80, "NVME_SC_LBA_RANGE", "LBA out of range";
    /// The namespace is not ready.
    NOT_READY = 0x82, "NVME_SC_NS_NOT_READY", "namespace not ready";
    /// No such queue.
    INVALID_QUEUE_ID = 0x101, "NVME_SC_QID_INVALID", "invalid queue ID";
    /// Too many asynchronous event requests.
    ASYNC_EVENT_LIMIT = 0x105, "NVME_SC_ASYNC_LIMIT", "too many asynchronous event requests";
    /// No such log page.
    INVALID_LOG_PAGE = 0x109, "NVME_SC_INVALID_LOG_PAGE", "invalid log page";
    /// CONNECT: the format is unknown.
    CONNECT_FORMAT = 0x180, "NVME_SC_CONNECT_FORMAT", "incompatible connect format";
    /// CONNECT: the controller is busy.
    CONNECT_BUSY = 0x181, "NVME_SC_CONNECT_CTRL_BUSY", "controller busy";
    /// CONNECT: a parameter is wrong.
    CONNECT_INVALID_PARAMETER = 0x182, "NVME_SC_CONNECT_INVALID_PARAM", "invalid connect parameter";
    /// CONNECT: the host is not allowed.
    CONNECT_INVALID_HOST = 0x184, "NVME_SC_CONNECT_INVALID_HOST", "host not allowed";
    /// The medium could not be written.
    WRITE_FAULT = 0x280, "NVME_SC_WRITE_FAULT", "write fault";
    /// The medium could not be read.
    READ_ERROR = 0x281, "NVME_SC_READ_ERROR", "unrecovered read error";
}

impl Status {
    /// The status in a completion's word.
    pub fn from_word(word: u16) -> Self {
        Status(word >> 1)
    }

    /// The completion's word.
    pub fn word(self) -> u16 {
        self.0 << 1
    }

    /// The same, for a command that would fail again.
    pub fn do_not_retry(self) -> Self {
        Status(self.0 | DNR)
    }

    /// Type and code, without flags.
    pub fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// Whether the command was done.
    pub fn is_success(self) -> bool {
        self.code() == 0
    }

    /// Whether the command may succeed if it is sent again.
    pub fn may_retry(self) -> bool {
        !self.is_success() && self.0 & DNR == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMED.iter().find(|(status, _)| status.0 == self.code()) {
            Some((_, text)) => write!(f, "{text} ({:#x})", self.code()),
            None => write!(f, "status {:#x}", self.code()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_lies_from_bit_1_on_and_keeps_its_flags() {
        let status = Status::LBA_OUT_OF_RANGE.do_not_retry();
        assert_eq!(status.word(), 0x8100);
        assert_eq!(Status::from_word(0x8100), status);
        assert!(!status.may_retry() && Status::INTERNAL.may_retry());
        assert_eq!(status.to_string(), "LBA out of range (0x80)");
        assert_eq!(Status(0x2ff).to_string(), "status 0x2ff");
    }
}
