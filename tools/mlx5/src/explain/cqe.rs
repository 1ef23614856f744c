//! Completions with error: from the 64 bytes, or from the numbers that programs print.

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, ErrorCqe};
use mlx5_prm::decode;
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::WqeOpcode;

use super::report::{Report, lines};
use super::syndromes;

/// Printed numbers of a failed completion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failed {
    /// `syndrome`.
    pub syndrome: Option<u32>,
    /// `vendor_error_syndrome`.
    pub vendor: Option<u32>,
    /// Other printed numbers, by name.
    pub fields: Vec<(&'static str, String)>,
}

/// The queue of a failed completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// A send queue, and the failed operation.
    Send(Option<WqeOpcode>),
    /// A receive queue.
    Receive,
    Unknown,
}

impl Failed {
    /// The queue, by the printed opcodes of CQE and WQE.
    fn side(&self) -> Side {
        let of = |name| self.fields.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str());
        let operation = of("send_wqe_opcode");
        let operation = WqeOpcode::ALL.iter().find(|opcode| Some(opcode.to_string().as_str()) == operation).copied();
        match of("opcode") {
            Some("0xd") => Side::Send(operation),
            Some("0xe") => Side::Receive,
            _ if operation.is_some() => Side::Send(operation),
            _ => Side::Unknown,
        }
    }
}

/// A meaning with causes and what to check, where the queue or the operation tells more than the syndrome.
struct Particular {
    meaning: &'static str,
    causes: &'static [&'static str],
    look_at: &'static [&'static str],
}

impl Particular {
    fn owned(&self) -> (String, (Vec<String>, Vec<String>)) {
        (self.meaning.to_owned(), (lines(self.causes), lines(self.look_at)))
    }
}

const UMR: Particular = Particular {
    meaning: "a UMR, which changes a memory key, was refused",
    causes: &[
        "the memory key does not permit UMR (umr_en), or is not in the state that the UMR checks (check_free)",
        "a field that the card does not let a UMR change: its umr_modify and umr_extended_translation capabilities",
        "more translation entries than the key has room for (translations_octword_size)",
    ],
    look_at: &["the WQE's bytes: `mlx5 explain wqe HEX`", "the memory key's context: QUERY_MKEY"],
};

const SEND_LENGTH: Particular = Particular {
    meaning: "the send's length and its WQE do not fit: more data than the message, the path or the queue permits",
    causes: &[
        "a datagram longer than the port's MTU, or a message longer than log_msg_max",
        "a frame shorter than its inlined headers, or longer than the port's MTU",
        "an atomic or inline segment with a wrong length",
    ],
    look_at: &["the WQE's bytes: `mlx5 explain wqe HEX`", "the MTU of port and path"],
};

/// Report on printed numbers of a failed completion.
pub fn explain(failed: &Failed) -> Report {
    let syndrome = failed.syndrome.map(CqeSyndrome::from_number);
    let mut fields = Vec::new();
    fields.extend(syndrome.map(|syndrome| ("syndrome", format!("{syndrome} ({:#x})", syndrome.number()))));
    fields.extend(failed.vendor.map(|vendor| ("vendor_error_syndrome", format!("{vendor:#x}"))));
    fields.extend(failed.fields.iter().cloned());
    let (what, meaning) = match syndrome {
        Some(syndrome) => (format!("completion with error {syndrome}"), syndrome.meaning().to_owned()),
        None => {
            let meaning = "the vendor-specific reason; no syndrome was printed with it";
            ("vendor syndrome of a completion with error".to_owned(), meaning.to_owned())
        }
    };
    let (meaning, (causes, mut look_at)) = match (syndrome, failed.side()) {
        (Some(CqeSyndrome::MemoryWindowBind), Side::Send(Some(WqeOpcode::Umr))) => UMR.owned(),
        (Some(CqeSyndrome::LocalLength), Side::Send(_)) => SEND_LENGTH.owned(),
        (Some(syndrome), _) => (meaning, advice(syndrome)),
        (None, _) => (meaning, (Vec::new(), Vec::new())),
    };
    let known: Vec<_> = failed.vendor.and_then(syndromes::vendor).into_iter().collect();
    if let (true, Some(vendor)) = (known.is_empty(), failed.vendor.filter(|vendor| *vendor != 0)) {
        look_at.push(format!("vendor syndrome {vendor:#x}: nothing is publicly known about it"));
    }
    Report { what, fields, meaning, causes, look_at, known, ..Report::default() }
}

/// Report on a completion queue entry: 64 bytes, or the second half of 128.
pub fn of_bytes(bytes: &[u8]) -> Option<Report> {
    let bytes = match bytes.len() {
        64 => bytes,
        128 => &bytes[64..],
        _ => return None,
    };
    let cqe = Cqe::read(bytes)?;
    let decoded = decode::completion(bytes).map(|dump| dump.to_string());
    let (CqeOpcode::RequesterError | CqeOpcode::ResponderError) = cqe.opcode() else {
        return Some(Report { decoded, ..no_error(&cqe) });
    };
    let error = ErrorCqe::read(bytes)?;
    let side = if cqe.opcode() == CqeOpcode::RequesterError { "a send" } else { "a receive" };
    let mut fields = vec![("qpn", format!("{:#x}", error.qpn())), ("wqe_counter", error.wqe_counter().to_string())];
    fields.push(("opcode", format!("{:#x}", cqe.opcode().number())));
    if cqe.opcode() == CqeOpcode::RequesterError {
        let opcode = WqeOpcode::from_number(u32::from(error.send_wqe_opcode()));
        fields.push(("send_wqe_opcode", opcode.to_string()));
    }
    let numbers = Failed {
        syndrome: Some(error.syndrome().number()),
        vendor: Some(u32::from(error.vendor_error_syndrome())),
        fields,
    };
    let report = explain(&numbers);
    Some(Report { what: format!("{} of {side}", report.what), decoded, ..report })
}

fn no_error(cqe: &Cqe) -> Report {
    let meaning = match cqe.opcode() {
        CqeOpcode::Invalid => "the card never wrote this entry: the invalid opcode is from software's initialisation",
        CqeOpcode::SignatureError => {
            "wrong signature of protected data: guard, reference tag or application tag of a block"
        }
        CqeOpcode::Unknown(_) => "invalid opcode: the ring was overwritten, or read while being written",
        _ => "a completion without error",
    };
    let (causes, look_at): (&[&str], &[&str]) = match cqe.opcode() {
        CqeOpcode::Requester if is_zero(cqe) => (
            &["no completion: a ring initialised with zeros instead of 0xff"],
            &["the initialisation of the ring: every opcode must be 0xf"],
        ),
        _ => (&[], &[]),
    };
    let (causes, look_at) = (lines(causes), lines(look_at));
    Report {
        what: format!("completion {}", cqe.opcode()),
        meaning: meaning.into(),
        causes,
        look_at,
        ..Report::default()
    }
}

fn is_zero(cqe: &Cqe) -> bool {
    cqe.as_bytes().iter().all(|byte| *byte == 0)
}

/// Usual causes of a syndrome, and what to check.
fn advice(syndrome: CqeSyndrome) -> (Vec<String>, Vec<String>) {
    let (causes, look_at): (&[&str], &[&str]) = match syndrome {
        CqeSyndrome::LocalLength => (
            &["a receive buffer smaller than the message", "a message longer than the port or log_msg_max allows"],
            &["the size of posted receives against what the remote sends"],
        ),
        CqeSyndrome::LocalQpOperation => (
            &[
                "a WQE invalid for the queue pair: wrong opcode for its transport, wrong ds, too much inline data",
                "a UD send with a missing or invalid address",
                "an atomic or read on a queue pair created without them",
            ],
            &["the WQE's bytes: `mlx5 explain wqe HEX`", "max_wqe_sz_sq, and the queue pair's service type"],
        ),
        CqeSyndrome::LocalProtection => (
            &[
                "an lkey of another protection domain or device, or of a region that was deregistered",
                "address and length outside the region",
                "a region without local write under a receive or a read",
                "memory of a GPU that the card cannot reach over PCIe",
            ],
            &[
                "lkey, address and length of every data segment against the registration",
                "when regions are deregistered",
            ],
        ),
        CqeSyndrome::WorkRequestFlushed => (
            &[
                "a consequence: the queue pair was in error before",
                "the queue pair was closed on purpose with work still posted",
            ],
            &["the first completion with error of this queue pair", "asynchronous events of the queue pair"],
        ),
        CqeSyndrome::MemoryWindowBind => {
            (&["the region does not allow windows, or the window is in use"], &["access flags of the region (MW_BIND)"])
        }
        CqeSyndrome::BadResponse => (
            &["a remote that answers with an opcode of another transport", "corrupted packets"],
            &["the remote's firmware", "a capture of the packets"],
        ),
        CqeSyndrome::LocalAccess => (
            &["the remote wrote or read through an rkey that does not allow it"],
            &["the completion at the remote side"],
        ),
        CqeSyndrome::RemoteInvalidRequest => (
            &[
                "the remote's receive buffer is shorter than the message",
                "an operation the remote's queue pair does not allow: write, read or atomic not enabled there",
                "an atomic at an address that is not a multiple of 8",
                "more reads in flight than the remote's max_dest_rd_atomic",
            ],
            &["access flags and max_dest_rd_atomic of the remote's queue pair", "sizes of the remote's receives"],
        ),
        CqeSyndrome::RemoteAccess => (
            &[
                "an rkey of another protection domain or device of the remote",
                "an rkey of a region that the remote has deregistered",
                "address and length not inside the remote's region",
                "the region was not registered for remote write, read or atomic",
            ],
            &["rkey, address and length as the remote announced them", "byte order of what was exchanged"],
        ),
        CqeSyndrome::RemoteOperation => (
            &[
                "the remote's own receive or memory failed: its completion says why",
                "the remote's IOMMU refused its card",
            ],
            &["completions and `dmesg` of the remote"],
        ),
        CqeSyndrome::TransportRetryExceeded => (
            &[
                "wrong GID index: the address is not routable, or of another RoCE version than the remote's",
                "wrong queue pair number, or the remote's queue pair is not ready to receive, or gone",
                "packets are lost: no PFC or ECN where the traffic needs it; MTU larger than the path's",
                "a firewall or security group on UDP port 4791",
            ],
            &[
                "`show_gids` on both sides",
                "ping with the path's MTU and no fragmentation",
                "local_ack_timeout_err and out_of_sequence counters",
                "the remote's log: often it failed first",
            ],
        ),
        CqeSyndrome::RnrRetryExceeded => (
            &[
                "the remote posts too few receives, or too late",
                "rnr_retry is not 7 (infinite), or min_rnr_timer is short",
            ],
            &["the remote's receive queue", "counter out_of_buffer of the remote"],
        ),
        CqeSyndrome::RemoteAborted => (
            &[
                "the remote's card aborted the operation, for example because of a page fault that failed (on-demand paging)",
            ],
            &["the remote's completions and `dmesg`"],
        ),
        _ => (&[], &["the firmware's release notes"]),
    };
    (lines(causes), lines(look_at))
}

/// `ibv_wc_status`: the verbs' numbers and texts of the syndromes.
const WC_STATUS: [(u32, &str, &str, Option<CqeSyndrome>); 24] = [
    (0, "SUCCESS", "success", None),
    (1, "LOC_LEN_ERR", "local length error", Some(CqeSyndrome::LocalLength)),
    (2, "LOC_QP_OP_ERR", "local QP operation error", Some(CqeSyndrome::LocalQpOperation)),
    (3, "LOC_EEC_OP_ERR", "local EE context operation error", None),
    (4, "LOC_PROT_ERR", "local protection error", Some(CqeSyndrome::LocalProtection)),
    (5, "WR_FLUSH_ERR", "work request flushed error", Some(CqeSyndrome::WorkRequestFlushed)),
    (6, "MW_BIND_ERR", "memory bind operation error", Some(CqeSyndrome::MemoryWindowBind)),
    (7, "BAD_RESP_ERR", "bad response error", Some(CqeSyndrome::BadResponse)),
    (8, "LOC_ACCESS_ERR", "local access error", Some(CqeSyndrome::LocalAccess)),
    (9, "REM_INV_REQ_ERR", "remote invalid request error", Some(CqeSyndrome::RemoteInvalidRequest)),
    (10, "REM_ACCESS_ERR", "remote access error", Some(CqeSyndrome::RemoteAccess)),
    (11, "REM_OP_ERR", "remote operation error", Some(CqeSyndrome::RemoteOperation)),
    (12, "RETRY_EXC_ERR", "transport retry counter exceeded", Some(CqeSyndrome::TransportRetryExceeded)),
    (13, "RNR_RETRY_EXC_ERR", "RNR retry counter exceeded", Some(CqeSyndrome::RnrRetryExceeded)),
    (14, "LOC_RDD_VIOL_ERR", "local RDD violation error", None),
    (15, "REM_INV_RD_REQ_ERR", "remote invalid RD request", None),
    (16, "REM_ABORT_ERR", "aborted error", Some(CqeSyndrome::RemoteAborted)),
    (17, "INV_EECN_ERR", "invalid EE context number", None),
    (18, "INV_EEC_STATE_ERR", "invalid EE context state", None),
    (19, "FATAL_ERR", "fatal error", None),
    (20, "RESP_TIMEOUT_ERR", "response timeout error", None),
    (21, "GENERAL_ERR", "general error", None),
    (22, "TM_ERR", "TM error", None),
    (23, "TM_RNDV_INCOMPLETE", "TM software rendezvous", None),
];

/// The texts of the kernel's `ib_wc_status_msg`, and of older libraries, that are others.
const OTHER_TEXTS: [(&str, u32); 4] = [
    ("WR flushed", 5),
    ("memory management operation error", 6),
    ("invalid request error", 9),
    ("operation aborted", 16),
];

/// The syndrome of an `ibv_wc_status`.
pub fn syndrome_of_wc(status: u32) -> Option<u32> {
    let row = WC_STATUS.iter().find(|row| row.0 == status)?;
    row.3.map(CqeSyndrome::number)
}

/// Parses an `ibv_wc_status`: its name (`IBV_WC_RETRY_EXC_ERR`) or the text of `ibv_wc_status_str`.
pub fn wc_by_words(words: &str) -> Option<u32> {
    let name = words.trim().to_ascii_uppercase();
    let name = name.strip_prefix("IBV_WC_").or_else(|| name.strip_prefix("IB_WC_")).unwrap_or(&name);
    let found = WC_STATUS.iter().find(|(_, short, long, _)| *short == name || long.eq_ignore_ascii_case(words.trim()));
    let other = OTHER_TEXTS.iter().find(|(text, _)| text.eq_ignore_ascii_case(words.trim()));
    found.map(|row| row.0).or(other.map(|(_, status)| *status))
}

/// Report on an `ibv_wc_status`, with its vendor error if printed.
pub fn of_wc(status: u32, vendor: Option<u32>) -> Report {
    let row = WC_STATUS.iter().find(|row| row.0 == status);
    let name = row.map_or_else(|| "unknown".to_owned(), |row| format!("IBV_WC_{}", row.1));
    let mut report = explain(&Failed { syndrome: syndrome_of_wc(status), vendor, fields: Vec::new() });
    report.what = format!("ibv_wc_status {name} ({status})");
    if syndrome_of_wc(status).is_none() {
        report.meaning = match (status, row) {
            (0, _) => "the work request is done".into(),
            (_, Some(row)) => {
                format!("{}: no mlx5 syndrome corresponds to it; libmlx5 uses GENERAL_ERR for unknown ones", row.2)
            }
            (_, None) => "unknown status".into(),
        };
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(syndrome: CqeSyndrome, vendor: u8) -> Vec<u8> {
        let mut cqe = ErrorCqe::ZERO;
        let _ = cqe.w().opcode(CqeOpcode::RequesterError).syndrome(syndrome).vendor_error_syndrome(vendor).qpn(0x43);
        let _ = cqe.w().send_wqe_opcode(0x08).wqe_counter(7);
        cqe.as_bytes().to_vec()
    }

    #[test]
    fn an_error_is_decoded_and_both_syndromes_are_explained() {
        let report = of_bytes(&error(CqeSyndrome::RemoteAccess, 0x88)).expect("64 bytes");
        assert_eq!(report.what, "completion with error REMOTE_ACCESS_ERR of a send");
        assert!(report.fields.contains(&("send_wqe_opcode", "RDMA_WRITE".into())), "{:?}", report.fields);
        assert_eq!(report.known[0].number, 0x88);
        assert!(report.causes.iter().any(|cause| cause.contains("deregistered")));
    }

    #[test]
    fn a_umrs_failure_is_no_memory_windows() {
        let mut cqe = ErrorCqe::ZERO;
        let _ = cqe.w().opcode(CqeOpcode::RequesterError).syndrome(CqeSyndrome::MemoryWindowBind).send_wqe_opcode(0x25);
        let report = of_bytes(cqe.as_bytes()).expect("64 bytes");
        assert!(report.meaning.contains("UMR") && !report.to_string().contains("window"), "{report}");
    }

    #[test]
    fn a_sends_length_error_is_no_short_receive() {
        let report = of_bytes(&error(CqeSyndrome::LocalLength, 0x68)).expect("64 bytes");
        assert!(!report.to_string().contains("receive") && report.meaning.contains("the send's length"), "{report}");
        let printed = |opcode: &str| Failed {
            syndrome: Some(1),
            vendor: Some(0x68),
            fields: vec![("opcode", opcode.to_owned())],
        };
        assert!(explain(&printed("0xd")).meaning.contains("the send's length"));
        assert!(explain(&printed("0xe")).causes[0].contains("receive buffer"));
        assert!(explain(&Failed { syndrome: Some(1), ..Failed::default() }).causes[0].contains("receive buffer"));
    }

    #[test]
    fn of_128_bytes_the_second_half_counts() {
        let whole = [vec![0; 64], error(CqeSyndrome::LocalLength, 0)].concat();
        assert!(of_bytes(&whole).expect("128 bytes").what.contains("LOCAL_LENGTH_ERR"));
    }

    #[test]
    fn zeros_are_not_taken_for_a_completion_in_silence() {
        let report = of_bytes(&[0; 64]).expect("64 bytes");
        assert!(report.causes[0].contains("initialised with zeros"));
        assert_eq!(of_bytes(&[0; 63]), None);
    }

    #[test]
    fn every_syndrome_has_causes_and_a_verbs_status() {
        for syndrome in CqeSyndrome::ALL {
            assert!(!advice(*syndrome).0.is_empty(), "{syndrome}");
            assert!(WC_STATUS.iter().any(|row| row.3 == Some(*syndrome)), "{syndrome}");
        }
    }

    /// `wc_statuses` of the kernel's verbs.c, old and new, and `wc_status_str` of libibverbs' enum_strs.c.
    #[test]
    fn every_text_of_kernel_and_libibverbs_is_known() {
        let texts = [
            (0, "success"),
            (1, "local length error"),
            (2, "local QP operation error"),
            (3, "local EE context operation error"),
            (4, "local protection error"),
            (5, "WR flushed"),
            (5, "Work Request Flushed Error"),
            (6, "memory bind operation error"),
            (6, "memory management operation error"),
            (7, "bad response error"),
            (8, "local access error"),
            (9, "remote invalid request error"),
            (9, "invalid request error"),
            (10, "remote access error"),
            (11, "remote operation error"),
            (12, "transport retry counter exceeded"),
            (13, "RNR retry counter exceeded"),
            (14, "local RDD violation error"),
            (15, "remote invalid RD request"),
            (16, "operation aborted"),
            (16, "aborted error"),
            (17, "invalid EE context number"),
            (18, "invalid EE context state"),
            (19, "fatal error"),
            (20, "response timeout error"),
            (21, "general error"),
            (22, "TM error"),
            (23, "TM software rendezvous"),
        ];
        for (status, text) in texts {
            assert_eq!(wc_by_words(text), Some(status), "{text}");
        }
    }

    #[test]
    fn verbs_names_and_words_are_found() {
        for words in ["IBV_WC_RETRY_EXC_ERR", "retry_exc_err", "transport retry counter exceeded"] {
            assert_eq!(wc_by_words(words), Some(12), "{words}");
        }
        assert_eq!(wc_by_words("nonsense"), None);
    }
}
