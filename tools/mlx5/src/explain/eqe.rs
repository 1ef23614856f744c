//! Event queue entries.

use mlx5_prm::decode;
use mlx5_prm::eqe::{CqErrorEvent, CqErrorSyndrome, Eqe, EventType};
use mlx5_prm::layout::Layout;

use super::report::{Report, lines};

/// Report on an event queue entry.
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
            CqErrorSyndrome::Overrun => "overrun: the ring is full of completions that were not polled",
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
            "a completion queue failed and is stopped",
            &[
                "more signaled work requests than the ring has entries",
                "consumer index not written to the doorbell record",
                "the ring's memory was unmapped",
            ],
            &["the ring's size against all queues that complete to it", "writes to the doorbell record"],
        ),
        EventType::WqCatastrophic => (
            "a work queue can no longer be read: its queue pair is in error",
            &["the ring's memory was freed or unmapped", "a doorbell record beyond what was posted"],
            &["`dmesg` for IOMMU faults", "the lifetime of the ring's memory"],
        ),
        EventType::WqInvalidRequest => (
            "the responder received a request that it does not permit",
            &["an operation not enabled on this queue pair", "another transport at the remote side"],
            &["access flags of the queue pair"],
        ),
        EventType::WqAccessError => (
            "the responder received a request with an invalid key or address",
            &["a wrong rkey or address from the remote", "a region deregistered too early"],
            &["the keys and addresses sent to the remote"],
        ),
        EventType::SrqCatastrophic => {
            ("a shared receive queue can no longer be read", &["its memory was freed or unmapped"], &[])
        }
        EventType::InternalError => {
            ("the card reports an internal error", &["a fault of firmware"], &["the health buffer"])
        }
        EventType::PageFault => ("on-demand paging: a page fault", &[], &[]),
        EventType::PageRequest => ("firmware requests or returns pages", &[], &["MANAGE_PAGES in the log after this"]),
        EventType::TemperatureWarning => {
            ("the card is too hot", &["air flow, an optical module"], &["`mget_temp`, `sensors`"])
        }
        EventType::PortChange => ("the port went up or down: the sub type says which", &[], &["`mlxlink`"]),
        EventType::PortModule => ("a module was plugged or unplugged, or reports a fault", &[], &["`ethtool -m`"]),
        EventType::PathMigrationFailed => (
            "a queue pair could not move to its alternate path: it stays on a path that may be dead",
            &["the alternate path is not armed, or does not work"],
            &["the alternate path of the queue pair, at both ends"],
        ),
        EventType::XrqError => (
            "a shared receive queue with tag matching or NVMe offload (XRQ) failed",
            &["its memory was freed or unmapped", "a message that the offload does not permit"],
            &["the event's data: the XRQ, and its error type"],
        ),
        EventType::DctKeyViolation => (
            "a DC target dropped a request with a wrong access key",
            &["an initiator with another `dc_access_key`"],
            &["`dc_access_key` of the target, and of the initiators' address vectors"],
        ),
        EventType::DoorbellCongestion => (
            "doorbells or BlueFlame copies arrive faster than the card takes them",
            &["many small work requests, each with a doorbell of its own"],
            &["several work requests for each doorbell"],
        ),
        EventType::Stall => (
            "a virtual lane is stalled: the port cannot send on it",
            &["a congested network, or a receiver that pauses without end"],
            &["the port's pause counters: `ethtool -S`"],
        ),
        EventType::FpgaError => (
            "the FPGA beside the card reports an error",
            &["a fault of the FPGA or of its image"],
            &["`syndrome` of the event"],
        ),
        EventType::FpgaQpError => (
            "a queue pair of the FPGA beside the card failed",
            &["a retry count was exceeded, or the remote end is gone"],
            &["`syndrome` of the event, and its queue pair"],
        ),
        EventType::DroppedPacketLogged => (
            "the card dropped packets, and counts or logs them",
            &["a queue pair or a flow rule that does not take them"],
            &["the card's counters of drops"],
        ),
        EventType::Unknown(_) => ("unknown event type", &[], &[]),
        EventType::Completion
        | EventType::PathMigrated
        | EventType::CommunicationEstablished
        | EventType::SendQueueDrained
        | EventType::Command
        | EventType::NicVportChange
        | EventType::EswFunctionsChanged
        | EventType::VhcaStateChange
        | EventType::SrqLastWqe
        | EventType::SrqLimit
        | EventType::Gpio
        | EventType::RemoteConfig
        | EventType::DctDrained
        | EventType::General
        | EventType::MonitorCounter
        | EventType::Pps
        | EventType::DeviceTracer
        | EventType::ObjectChange => ("no error by itself", &[], &[]),
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
        assert!(report.meaning.contains("overrun"));
    }

    #[test]
    fn no_error_is_said_to_be_none() {
        for kind in EventType::ALL {
            let name = kind.to_string();
            let is_error = ["ERROR", "VIOLATION", "FAILED"].iter().any(|word| name.contains(word));
            let (meaning, causes, _) = about_event(*kind);
            assert!(!is_error || (meaning != "no error by itself" && !causes.is_empty()), "{name}: {meaning}");
        }
    }
}
