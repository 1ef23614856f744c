//! Health of the card: the health buffer, and messages of drivers about it.

use mlx5_prm::decode::Dump;
use mlx5_prm::init_seg::{HealthBuffer, HealthSyndrome};
use mlx5_prm::layout::Layout;

use super::report::{Report, lines};

/// A printed health buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    /// `synd`.
    pub synd: Option<u32>,
    /// All printed fields, by name.
    pub fields: Vec<(&'static str, String)>,
}

impl Printed {
    /// Whether all its numbers are ones, as registers of a card that is gone read.
    fn is_gone(&self) -> bool {
        const ONES: [&str; 8] = ["0xffffffff", "0xffff", "0xff", "4294967295", "65535", "255", "255.255.65535", "7"];
        let ones = |(_, value): &(&str, String)| ONES.contains(&value.to_ascii_lowercase().as_str());
        matches!(self.synd, Some(0xff)) && self.fields.iter().all(ones)
    }
}

/// Report on a printed health buffer.
pub fn explain(printed: &Printed) -> Report {
    if printed.is_gone() {
        return Report { fields: printed.fields.clone(), ..gone("health buffer of ones") };
    }
    let synd = printed.synd.map(HealthSyndrome::from_number);
    let what = match synd {
        Some(synd) => format!("health buffer: {synd} ({:#x})", synd.number()),
        None => "health buffer without its syndrome".to_owned(),
    };
    let (meaning, causes, look_at) = synd.map_or(NO_SYNDROME, advice);
    Report {
        what,
        fields: printed.fields.clone(),
        meaning: meaning.into(),
        causes: lines(causes),
        look_at: lines(look_at),
        ..Report::default()
    }
}

/// Report on the 64 bytes of a health buffer.
pub fn of_bytes(bytes: &[u8]) -> Option<Report> {
    if bytes.len() >= HealthBuffer::SIZE && bytes.iter().all(|byte| *byte == 0xff) {
        return Some(gone("health buffer of ones"));
    }
    let buffer = HealthBuffer::read(bytes)?;
    let report = explain(&Printed { synd: Some(buffer.synd().number()), fields: Vec::new() });
    Some(Report { decoded: Some(Dump::new(&HealthBuffer::INFO, bytes).to_string()), ..report })
}

/// Report on a health message of mlx5_core without a buffer.
pub fn of_words(words: &str) -> Option<Report> {
    let lower = words.to_ascii_lowercase();
    if lower.contains("health compromised - reached miss count") {
        return Some(stopped(words));
    }
    if lower.contains("pci slot is unavailable") || lower.contains("pci channel offline") {
        return Some(gone(words));
    }
    if lower.contains("cq error on cqn") || lower.contains("mlx5e_cq_error_event") {
        return Some(completion_queue(words, &lower));
    }
    let number = lower.split("fatal error ").nth(1)?.split(' ').next()?.parse().ok()?;
    Some(fatal(words, number))
}

/// An event of a completion queue in error; only mlx5_core prints the syndrome.
fn completion_queue(words: &str, lower: &str) -> Report {
    let number = lower.rsplit_once("syndrom").and_then(|(_, rest)| rest.split_once("0x"));
    let syndrome = number.and_then(|(_, digits)| u32::from_str_radix(digits, 16).ok());
    let meaning = match syndrome {
        Some(1) => "the completion queue overran: the card had a completion and no free entry; the queue is dead",
        Some(2) => "the card could not write the completion queue (access violation); the queue is dead",
        _ => "the completion queue went to error: it overran, or the card could not write it; the queue is dead",
    };
    let causes: &[&str] = match syndrome {
        Some(2) => &["memory of the queue that was unmapped, or that the IOMMU refuses"],
        _ => &[
            "more work posted than the completion queue has entries for, of all queues that share it",
            "completions that are not polled, or a consumer index that is not written",
        ],
    };
    let look_at = ["the size of the completion queue against the sizes of its work queues", "`dmesg`: IOMMU faults"];
    let fields = syndrome.map(|syndrome| ("syndrome", format!("{syndrome:#x}"))).into_iter().collect();
    Report {
        what: words.trim().to_owned(),
        fields,
        meaning: meaning.into(),
        causes: lines(causes),
        look_at: lines(&look_at),
        ..Report::default()
    }
}

type Advice = (&'static str, &'static [&'static str], &'static [&'static str]);

const NO_SYNDROME: Advice =
    ("`synd`, the reason, was not printed", &[], &["the lines after it: `synd`, `ext_synd`, `fw_ver`"]);

/// What to check for every syndrome.
const FIRMWARE: &[&str] = &[
    "firmware's release notes for `ext_synd`; a newer firmware",
    "a core dump for the vendor: `devlink health dump show DEVICE reporter fw_fatal`",
];

fn advice(synd: HealthSyndrome) -> Advice {
    match synd {
        HealthSyndrome::None => ("nothing is wrong", &[], &[]),
        HealthSyndrome::FwInternal => (
            "firmware assertion; assert_var, assert_exit_ptr and ext_synd tell where",
            &["a fault of firmware", "a driver that gave firmware something it should have refused"],
            FIRMWARE,
        ),
        HealthSyndrome::DeadIrisc => (
            "one of the card's processors (irisc_index) no longer runs",
            &["a fault of firmware", "failing hardware, where it comes back after a power cycle"],
            FIRMWARE,
        ),
        HealthSyndrome::HwFatal => (
            "hardware reported a fatal error",
            &["failing hardware", "power or temperature outside of what the board allows"],
            &["power cycle the host, not only the driver", "`mlxlink`, temperature and PCIe error counters"],
        ),
        HealthSyndrome::FwCrc => (
            "firmware's image in memory or flash does not match its checksum",
            &["a flash update that was interrupted", "failing flash or memory"],
            &["`mstflint -d DEVICE verify`", "burn the firmware again"],
        ),
        HealthSyndrome::IcmFetchPci => (
            "the card could not read its own contexts out of host memory over PCIe",
            &[
                "an IOMMU that refused the access: pages unmapped while the card still had them",
                "a PCIe link error",
                "a bus reset",
            ],
            &["`dmesg` for IOMMU faults and AER before this", "who took pages back (MANAGE_PAGES) last"],
        ),
        HealthSyndrome::IcmPage => (
            "a page that firmware keeps contexts in is broken",
            &["host memory that was freed or overwritten while firmware had it", "memory errors of the host"],
            &["`dmesg` for machine checks", "drivers that reuse pages before firmware gave them back"],
        ),
        HealthSyndrome::AsyncEqOverrun => (
            "the asynchronous event queue overflowed: events were lost",
            &[
                "interrupts that nobody served: a CPU that hung, a guest that did not run",
                "a storm of events (page faults, QP errors)",
            ],
            &["which events: counters of /proc/interrupts", "a larger EQ: devlink parameter event_eq_size"],
        ),
        HealthSyndrome::EqInError => (
            "an event queue is in error",
            &["the EQ's memory can no longer be written", "an EQ that overflowed"],
            &["`dmesg` for IOMMU faults"],
        ),
        HealthSyndrome::EqInvalid => (
            "a doorbell rang for an event queue that is not there",
            &["a driver that arms an EQ it has destroyed", "a wrong UAR page or EQ number in a user space driver"],
            &["the doorbells of user space drivers"],
        ),
        HealthSyndrome::Ffser => {
            ("a serial link inside the card failed", &["failing hardware"], &["power cycle the host"])
        }
        HealthSyndrome::HighTemperature => (
            "the card is too hot and protects itself",
            &["too little air flow", "an optical module that heats the cage"],
            &["`mget_temp`, `sensors`", "fans and the slot's neighbours"],
        ),
        HealthSyndrome::IcmPciPoisoned => (
            "host memory that firmware keeps contexts in came back poisoned over PCIe",
            &["memory errors of the host"],
            &["`dmesg` for machine checks and AER", "`edac-util`"],
        ),
        HealthSyndrome::TrustLockdown => (
            "the card locked itself: its firmware or its configuration could not be trusted",
            &["an image that is not signed for this card, or was changed", "a failed attestation"],
            FIRMWARE,
        ),
        HealthSyndrome::Unknown(_) => ("unknown syndrome", &[], FIRMWARE),
    }
}

fn stopped(words: &str) -> Report {
    Report {
        what: words.trim().into(),
        meaning: "firmware's health counter did not change for several polls: firmware has stopped, or cannot be read"
            .into(),
        causes: lines(&[
            "firmware crashed: see the health buffer printed after this; all zero means that it could not report the reason",
            "PCIe: the card is gone from the bus, or the link is in error",
            "the driver's poll timer was late by seconds (a hypervisor, a stalled CPU)",
        ]),
        look_at: lines(&[
            "the health buffer lines after this one",
            "`dmesg` for AER, link down, soft lockups",
            "`devlink health show`; `devlink health recover DEVICE reporter fw_fatal`",
        ]),
        ..Report::default()
    }
}

fn gone(words: &str) -> Report {
    Report {
        what: words.trim().into(),
        meaning: "registers read as all ones: the card no longer answers on PCIe".into(),
        causes: lines(&[
            "it was unplugged, lost power, or its link went down",
            "it is in reset: by the driver, by another function, by a firmware update",
            "an error of the slot or a bridge above it was contained (DPC, EEH)",
        ]),
        look_at: lines(&["`dmesg` for AER, DPC, EEH and hotplug", "`lspci -vv`: presence, link width and speed"]),
        ..Report::default()
    }
}

/// mlx5_core's sensors: "Fatal error N detected".
fn fatal(words: &str, number: u32) -> Report {
    let (meaning, cause) = match number {
        1 => return gone(words),
        2 => ("PCI reports the channel as offline", "the kernel's PCI error handling took the slot away"),
        3 => ("the function's NIC interface is disabled", "another driver or the card turned the function off"),
        4 => (
            "the function's NIC interface asks for a software reset",
            "another function of the card found a fatal error first",
        ),
        5 => (
            "firmware asks to be reset (rfr set in the health buffer)",
            "a fatal firmware assert that a reset can mend",
        ),
        _ => ("unknown sensor", "a kernel newer than this program"),
    };
    Report {
        what: words.trim().into(),
        meaning: meaning.into(),
        causes: lines(&[cause]),
        look_at: lines(&["the health buffer lines near it", "`devlink health show`"]),
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_decoded_and_its_syndrome_explained() {
        let mut buffer = HealthBuffer::ZERO;
        let _ = buffer.w().synd(HealthSyndrome::IcmFetchPci).ext_synd(0x8d1c);
        let report = of_bytes(buffer.as_bytes()).expect("64 bytes");
        assert_eq!(report.what, "health buffer: ICM_FETCH_PCI_ERR (0xa)");
        assert!(report.decoded.is_some_and(|text| text.contains("ext_synd = 0x8d1c")));
    }

    #[test]
    fn ones_are_a_card_that_is_gone() {
        assert!(of_bytes(&[0xff; 64]).expect("64 bytes").meaning.contains("no longer answers"));
    }

    #[test]
    fn printed_ones_are_explained_once_and_not_as_a_syndrome() {
        let fields = vec![("assert_var[0]", "0xffffffff".to_owned()), ("synd", "0xff".into())];
        let report = explain(&Printed { synd: Some(0xff), fields });
        assert!(report.meaning.contains("no longer answers") && !report.to_string().contains("syndrome"), "{report}");
    }

    #[test]
    fn every_syndrome_but_none_has_something_to_look_at() {
        for synd in HealthSyndrome::ALL.iter().filter(|synd| **synd != HealthSyndrome::None) {
            assert!(!advice(*synd).2.is_empty(), "{synd}");
            assert!(!advice(*synd).0.contains("unknown"), "{synd}");
        }
    }
}
