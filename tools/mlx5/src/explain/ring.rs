//! Entries of event queues and send queues: decoded, and what stands out.

use mlx5_prm::decode::{self, Dump};
use mlx5_prm::eqe::{CqErrorEvent, CqErrorSyndrome, Eqe, EventType};
use mlx5_prm::layout::{Info, Layout};
use mlx5_prm::wqe::{AtomicSeg, CtrlSeg, DataSeg, InlineSegHeader, RaddrSeg, SEGMENT, WqeOpcode};

use super::report::{Report, lines};

/// What is said of an event queue's entry.
pub fn event(bytes: &[u8]) -> Option<Report> {
    let eqe = Eqe::read(bytes)?;
    let kind = eqe.event_type();
    let (mut meaning, causes, look_at) = about_event(kind);
    let mut what = format!("event {kind} ({:#x})", kind.number());
    if kind == EventType::CqError
        && let Some(error) = CqErrorEvent::read(eqe.event_data())
    {
        what = format!("{what} of CQ {:#x}", error.cqn());
        meaning = match CqErrorSyndrome::from_number(u32::from(error.syndrome())) {
            CqErrorSyndrome::Overrun => "a completion found no room: the ring is full of entries nobody polled",
            CqErrorSyndrome::AccessViolation => "the card could not write the ring",
            CqErrorSyndrome::Unknown(_) => meaning,
        };
    }
    Some(Report {
        what,
        meaning: meaning.into(),
        causes: lines(causes),
        look_at: lines(look_at),
        decoded: decode::event(bytes).map(|dump| dump.to_string()),
        ..Report::default()
    })
}

fn about_event(kind: EventType) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
    match kind {
        EventType::CqError => (
            "a completion queue is broken; nothing more will come from it",
            &[
                "more work signalled than the ring has entries",
                "consumer index never published in the doorbell record",
                "the ring's memory was unmapped",
            ],
            &["the ring's size against all queues that complete to it", "who writes the doorbell record"],
        ),
        EventType::WqCatastrophic => (
            "a work queue can no longer be read: its queue pair is in error",
            &["the ring's memory was freed or unmapped", "a doorbell record beyond what was posted"],
            &["`dmesg` for IOMMU faults", "the lifetime of the ring's memory"],
        ),
        EventType::WqInvalidRequest => (
            "the responder met a request it may not serve",
            &["an operation not enabled on this queue pair", "the remote speaks another transport"],
            &["access flags of the queue pair"],
        ),
        EventType::WqAccessError => (
            "the responder met a request against a key or address that does not allow it",
            &["a wrong rkey or address from the remote", "a region deregistered too early"],
            &["what was announced to the remote"],
        ),
        EventType::SrqCatastrophic => {
            ("a shared receive queue can no longer be read", &["its memory was freed or unmapped"], &[])
        }
        EventType::InternalError => {
            ("the card reports an internal error", &["a fault of firmware"], &["the health buffer"])
        }
        EventType::PageFault => ("on-demand paging: a page is wanted", &[], &[]),
        EventType::PageRequest => {
            ("firmware wants pages, or gives some back", &[], &["MANAGE_PAGES in the log after this"])
        }
        EventType::TemperatureWarning => {
            ("the card is hot", &["air flow, an optical module"], &["`mget_temp`, `sensors`"])
        }
        EventType::PortChange => ("the port went up or down: the sub type says which", &[], &["`mlxlink`"]),
        EventType::PortModule => ("a module was plugged, unplugged, or is not well", &[], &["`ethtool -m`"]),
        EventType::Unknown(_) => ("an event type that has no name here", &[], &[]),
        _ => ("no error by itself", &[], &[]),
    }
}

/// What is said of a send queue's WQE.
pub fn wqe(bytes: &[u8]) -> Option<Report> {
    let ctrl = CtrlSeg::read(bytes)?;
    let opcode = ctrl.opcode();
    let promised = usize::from(ctrl.ds()) * SEGMENT;
    let mut offending = Vec::new();
    if let WqeOpcode::Unknown(number) = opcode {
        offending.push(format!("opcode {number:#x} is no send opcode"));
    }
    if ctrl.ds() == 0 {
        offending.push("ds is 0: the control segment alone is 1".into());
    } else if promised > bytes.len() {
        offending.push(format!("ds {} promises {promised} bytes, given are {}", ctrl.ds(), bytes.len()));
    }
    let mut decoded = Dump::new(&CtrlSeg::INFO, &bytes[..SEGMENT]).to_string();
    let end = promised.clamp(SEGMENT, bytes.len().max(SEGMENT)).min(bytes.len());
    segments(opcode, &bytes[SEGMENT..end], &mut decoded, &mut offending);
    let meaning = if offending.is_empty() { "nothing in it is impossible by itself" } else { "a card would refuse it" };
    Some(Report {
        what: format!("send WQE {opcode} of QP {:#x}, index {}", ctrl.qp_or_sq(), ctrl.wqe_index()),
        meaning: meaning.into(),
        offending,
        decoded: Some(decoded),
        ..Report::default()
    })
}

/// What follows the control segment of the operations on a connection; of others only the bytes are shown.
fn segments(opcode: WqeOpcode, mut rest: &[u8], decoded: &mut String, offending: &mut Vec<String>) {
    let fixed: &[&Info] = match opcode {
        WqeOpcode::RdmaWrite | WqeOpcode::RdmaWriteImm | WqeOpcode::RdmaRead => &[&RaddrSeg::INFO],
        WqeOpcode::AtomicCs | WqeOpcode::AtomicFa => &[&RaddrSeg::INFO, &AtomicSeg::INFO],
        WqeOpcode::Send | WqeOpcode::SendImm | WqeOpcode::SendInval => &[],
        _ => return,
    };
    for info in fixed {
        let Some((head, tail)) = rest.split_at_checked(info.size) else {
            offending.push(format!("{opcode} needs a {}: ds is too small", info.prm_name()));
            return;
        };
        *decoded += &Dump::new(info, head).to_string();
        rest = tail;
    }
    while let Some((head, tail)) = rest.split_at_checked(SEGMENT) {
        let inline = InlineSegHeader::read(head).filter(InlineSegHeader::inline);
        if let Some(header) = inline {
            let bytes = usize::from(header.byte_count());
            *decoded += &Dump::new(&InlineSegHeader::INFO, &head[..InlineSegHeader::SIZE]).to_string();
            if InlineSegHeader::SIZE + bytes > rest.len() {
                offending.push(format!("inline byte_count {bytes} runs past the WQE's end: ds is too small"));
            }
            let taken = (InlineSegHeader::SIZE + bytes).next_multiple_of(SEGMENT).min(rest.len());
            rest = &rest[taken..];
            continue;
        }
        *decoded += &Dump::new(&DataSeg::INFO, head).to_string();
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overrun_names_its_queue() {
        let mut error = CqErrorEvent::ZERO;
        let _ = error.w().cqn(0x43).syndrome(1);
        let mut eqe = Eqe::ZERO;
        let mut data = [0; 28];
        data.copy_from_slice(error.as_bytes());
        let _ = eqe.w().event_type(EventType::CqError).event_data(&data);
        let report = event(eqe.as_bytes()).expect("64 bytes");
        assert_eq!(report.what, "event CQ_ERROR (0x4) of CQ 0x43");
        assert!(report.meaning.contains("no room"));
    }

    #[test]
    fn a_wqe_that_promises_more_than_it_has_is_named() {
        let mut ctrl = CtrlSeg::default();
        let _ = ctrl.w().opcode(WqeOpcode::RdmaWrite).ds(5).qp_or_sq(0x43);
        let report = wqe(&[ctrl.as_bytes(), &[0; 16][..]].concat()).expect("32 bytes");
        assert_eq!(report.offending, ["ds 5 promises 80 bytes, given are 32"]);
        let _ = ctrl.w().ds(1);
        let report = wqe(ctrl.as_bytes()).expect("16 bytes");
        assert_eq!(report.offending, ["RDMA_WRITE needs a wqe_raddr_seg: ds is too small"]);
    }

    #[test]
    fn inline_data_that_runs_past_the_end_is_named() {
        let mut ctrl = CtrlSeg::default();
        let _ = ctrl.w().opcode(WqeOpcode::Send).ds(2);
        let mut header = InlineSegHeader::default();
        let _ = header.w().byte_count(100);
        let bytes = [ctrl.as_bytes(), header.as_bytes(), &[0; 12][..]].concat();
        assert!(wqe(&bytes).expect("32 bytes").offending[0].contains("byte_count 100"));
    }
}
