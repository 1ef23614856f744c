//! Entries of event queues: decoded, and what stands out.

use mlx5_prm::decode;
use mlx5_prm::eqe::{CqErrorEvent, CqErrorSyndrome, Eqe, EventType};
use mlx5_prm::layout::Layout;

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
}
