//! Lines of a host's log that are no message about a command or a completion: what the kernel says of PCIe, the IOMMU
//! and links, which often names the cause of what a card reports; counters of `ethtool -S` and `rdma statistic`; texts
//! of devlink, DPDK and UCX.

use std::sync::LazyLock;

use regex::Regex;

use super::report::{Report, lines};

/// What a line tells about failures near it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explains {
    /// Nothing.
    Nothing,
    /// The card could not reach memory, or the host the card.
    Bus,
    /// Packets were lost.
    Link,
}

/// One shape of line. Texts are those of Linux 4.x to 7.x, unless noted.
struct Shape {
    regex: &'static str,
    explains: Explains,
    meaning: &'static str,
    causes: &'static [&'static str],
    look_at: &'static [&'static str],
}

const SHAPES: &[Shape] = &[
    Shape {
        regex: r"DMAR: \[(?:DMA|INTR)[^\n]*(?:fault addr|reason)[^\n]*|AMD-Vi: Event logged \[IO_PAGE_FAULT[^\n]*|arm-smmu-v3 \S+ *(?:event 0x10|Unhandled context fault|\s*event: F_\w+)[^\n]*|(?:vfio-pci|iommu)[^\n]*io page fault[^\n]*",
        explains: Explains::Bus,
        meaning: "the IOMMU refused an access of the device: the address was not mapped for it, or not for this direction",
        causes: &[
            "memory that was freed or unmapped while the card still used it",
            "a physical address or another function's address given to the card",
            "a card that is driven without DMA mapping: a driver that died, kexec",
        ],
        look_at: &["the device and address in the line, against what is registered", "what was unmapped just before"],
    },
    Shape {
        regex: r"[^\n]*(?:AER: [^\n]*(?:error|Error) (?:message )?received|PCIe Bus Error: severity=)[^\n]*",
        explains: Explains::Bus,
        meaning: "PCIe Advanced Error Reporting: a transaction on the bus went wrong",
        causes: &[
            "corrected: a bad slot, riser or cable, the link retrains; uncorrected: the card or the slot failed",
            "Completion Timeout: the other side did not answer; Unsupported Request: an address nobody has",
        ],
        look_at: &["the error bits in the lines after it", "`lspci -vv`: link width and speed; another slot"],
    },
    Shape {
        regex: r"[^\n]*(?:\bDPC: (?:containment event|unmasked uncorrectable)|EEH: (?:Frozen|PHB|Fenced)|pciehp: Slot\([^)]*\): (?:Link Down|Card not present)|Slot\([^)]*\): Link Down)[^\n]*",
        explains: Explains::Bus,
        meaning: "the slot was taken off the bus: its link went down, or an error was contained",
        causes: &["an uncorrectable PCIe error just before", "the card lost power, was reset or unplugged"],
        look_at: &["AER lines before it", "`lspci -vv` of the port above the card"],
    },
    Shape {
        regex: r"[^\n]*Detected insufficient power on the PCIe slot[^\n]*",
        explains: Explains::Bus,
        meaning: "the slot advertises less power than the card may draw: the card limits itself, or modules stay off",
        causes: &[
            "a slot of 25 W for a card that needs 75 W",
            "firmware of the host that does not set the slot's limit",
        ],
        look_at: &["the board's manual; a slot with full power, or the auxiliary power cable", "BIOS updates"],
    },
    Shape {
        regex: r"mlx5_core [^\n]*: Link down\b[^\n]*|mlx5_\d+[^\n]* (?:port \d+ )?link down\b[^\n]*",
        explains: Explains::Link,
        meaning: "the port's link went down: nothing is sent or received until it is up again",
        causes: &[
            "cable or module",
            "the switch's port: speed, FEC or auto-negotiation differ",
            "shut down on purpose",
        ],
        look_at: &["`mlxlink -d DEVICE`", "`ethtool -m`, `ethtool --show-fec`", "the switch's log"],
    },
    Shape {
        regex: r"[^\n]*Port module event(?:\[error\])?: module \d+, (?:Cable error|Cable unplugged)[^\n]*",
        explains: Explains::Link,
        meaning: "the cable or module was unplugged, or reports a fault",
        causes: &["the fault that the line names"],
        look_at: &["`ethtool -m`; another module or cable that the card's firmware supports"],
    },
    Shape {
        regex: r"[^\n]*(?:TX timeout on queue|TX timeout detected|NETDEV WATCHDOG: [^\n]*\(mlx5_core\)[^\n]*timed out)[^\n]*",
        explains: Explains::Nothing,
        meaning: "packets were queued for sending, and none was completed for seconds",
        causes: &[
            "the link is up, but paused: a remote that sends PFC or pause frames without end",
            "an error CQE of the send queue before it",
            "an interrupt that was lost: `SQ Cons` lags behind, and the event queue had entries (the kernel recovers it)",
            "firmware has stopped",
        ],
        look_at: &[
            "rx_pause and rx_prioN_pause of `ethtool -S`",
            "`devlink health show DEVICE reporter tx`, and `devlink health diagnose` of it",
            "the error CQE or health lines before it",
        ],
    },
    Shape {
        regex: r"[^\n]*(?:mlx5_core: probe of \S+ failed with error -?\d+|mlx5_core \S+: probe with driver mlx5_core failed[^\n]*|mlx5_load_one failed with error code -?\d+)[^\n]*",
        explains: Explains::Nothing,
        meaning: "mlx5_core gave up bringing the function up: no network or RDMA device appears",
        causes: &[
            "-110: firmware did not answer (it still starts, or is broken); -5: a command failed; -12: no memory or BAR space",
            "-19 or -16: the function is in reset, or another driver has it",
        ],
        look_at: &[
            "the first mlx5_core line with an error before it: that is the reason",
            "`lspci -vv`: regions that are not assigned",
        ],
    },
    Shape {
        regex: r"[^\n]*(?:Firmware over \d+ MS in (?:pre-)?initializing state[^\n]*|FW initialization timeout[^\n]*)",
        explains: Explains::Nothing,
        meaning: "firmware did not finish starting in time",
        causes: &[
            "flash without a valid image, or in recovery mode",
            "another host or the embedded CPU of the card holds it back",
        ],
        look_at: &["`mstflint -d DEVICE query`", "a power cycle, then the firmware burnt again"],
    },
    Shape {
        regex: r"\breporter \w+:?\s*\n\s*state error[^\n]*",
        explains: Explains::Nothing,
        meaning: "devlink's health reporter is in error, and was not recovered",
        causes: &["the last error of that reporter: `error` counts them, `recover` those that were mended"],
        look_at: &[
            "`devlink health diagnose` and `dump show` of the reporter",
            "`devlink health recover DEVICE reporter NAME`",
        ],
    },
    // What `devlink health diagnose` prints of each queue: states of SQC and RQC, and the status of CQC.
    Shape {
        regex: r"\b[sr]qn: \d+ HW state: 3\b[^\n]*",
        explains: Explains::Nothing,
        meaning: "a queue of the network interface is in error: it carries nothing until it is recovered",
        causes: &["a completion with error of this queue, which the kernel's log shows"],
        look_at: &[
            "`dmesg` for the error CQE of this queue",
            "`devlink health show`: whether its reporter recovers by itself (auto_recover), and how often it did",
            "`devlink health recover DEVICE reporter tx` (or rx)",
        ],
    },
    Shape {
        regex: r"\bsqn: \d+ HW state: 1 stopped: true[^\n]*",
        explains: Explains::Nothing,
        meaning: "a send queue is ready but stopped: it is full of entries (pc) that are not completed yet (cc)",
        causes: &["the port may not send: pause frames, no link", "a completion interrupt was lost"],
        look_at: &[
            "whether cc moves",
            "rx_pause_ctrl_phy and rx_prioN_pause of `ethtool -S`",
            "the EQ in the same report",
        ],
    },
    Shape {
        regex: r"\bcqn: \d+ HW status: (?:9|10)\b[^\n]*",
        explains: Explains::Nothing,
        meaning: "a completion queue failed, by an overflow (9) or a write that failed (10): no completion comes from it any more",
        causes: &[
            "more completions than entries: the consumer index was not updated",
            "its memory could not be written",
        ],
        look_at: &[
            "`dmesg` for CQ errors, IOMMU faults and AER",
            "`devlink health recover DEVICE reporter tx` (or rx)",
        ],
    },
    Shape {
        regex: r"[^\n]*no Verbs device matches PCI device \S+, are kernel drivers loaded[^\n]*",
        explains: Explains::Nothing,
        meaning: "DPDK found the card on PCI, but no RDMA device of the kernel for it, which its driver needs",
        causes: &[
            "mlx5_ib is not loaded",
            "the function is bound to vfio-pci: DPDK's mlx5 driver needs mlx5_core",
            "a container without /dev/infiniband",
        ],
        look_at: &["`modprobe mlx5_ib`; `rdma link`", "`dpdk-devbind.py --status`"],
    },
    Shape {
        regex: r"[^\n]*(?:ibv_reg_mr|ibv_create_(?:cq|qp)|mlx5dv_create_qp)\([^\n]*failed: Cannot allocate memory[^\n]*",
        explains: Explains::Nothing,
        meaning: "memory for the card could not be locked",
        causes: &["the limit of locked memory (RLIMIT_MEMLOCK) of the process", "no memory"],
        look_at: &["`ulimit -l unlimited`, or LimitMEMLOCK=infinity in the service's unit; `mlx5 doctor`"],
    },
];

/// Counters that tell of drops and errors: name, meaning, what to check. Names and meanings as in Linux's
/// networking/device_drivers/ethernet/mellanox/mlx5/counters.rst.
const COUNTERS: &[(&str, &str, &str)] = &[
    (
        "rx_out_of_buffer",
        "packets dropped because the receive queue had no buffers",
        "ring size (`ethtool -G`), the load of the CPUs that poll",
    ),
    (
        "rx_discards_phy",
        "packets dropped at the port because the card's buffers were full",
        "PCIe width and speed, PFC, buffer sizes (`mlnx_qos`)",
    ),
    (
        "tx_discards_phy",
        "packets dropped on the way out though nothing was wrong with them: link down, head-of-line lifetime, pause",
        "the link, pause frames of the switch",
    ),
    (
        "tx_errors_phy",
        "packets longer than the port's MTU, dropped instead of sent",
        "MTU of the port and of the sender",
    ),
    ("rx_crc_errors_phy", "frames with a wrong FCS", "cable, module, FEC: `mlxlink -c`"),
    ("rx_symbol_err_phy", "symbol errors on the link", "cable, module, FEC: `mlxlink -c`"),
    (
        "rx_steer_missed_packets",
        "packets that no flow rule and no queue wanted",
        "flow rules, promiscuous mode, VLAN filters",
    ),
    ("rx_oversize_pkts_sw_drop", "packets longer than the MTU, dropped by the driver", "MTU on both sides"),
    ("rx_oversize_pkts_buffer", "packets longer than the queue's receive buffers", "MTU on both sides"),
    ("rx_oversize_pkts_phy", "packets longer than the port's MTU", "MTU of the peer, which is larger"),
    ("rx_out_of_range_len_phy", "packets longer than the port allows", "MTU of the peer, which is larger"),
    ("rx_pcs_symbol_err_phy", "symbol errors that FEC did not correct", "cable, module, FEC: `mlxlink -c`"),
    ("link_down_events_phy", "times that the link went down", "cable, module, the switch's port"),
    (
        "tx_pause_storm_error_events",
        "times that the card sent pauses for so long that it stopped sending them; packets may be lost",
        "the host: it does not post receives, or PCIe stalls",
    ),
    (
        "outbound_pci_buffer_overflow",
        "packets dropped because PCIe took them too slowly",
        "PCIe width and speed: they are below the port's",
    ),
    (
        "rx_wqe_err",
        "completions of receive queues with an unexpected opcode, such as errors",
        "`dmesg` for the error CQE",
    ),
    ("tx_cqe_err", "completions with error of send queues", "`dmesg` for the error CQE"),
    ("rx_buff_alloc_err", "receive buffers that could not be allocated", "free memory of the host"),
    ("rx_prio0_discards", "packets of priority 0 dropped in the card's buffers", "PFC of this priority on both sides"),
    (
        "outbound_pci_stalled_wr",
        "percent of time that writes waited for PCIe credits",
        "PCIe width and speed, relaxed ordering, NUMA node",
    ),
    (
        "outbound_pci_stalled_rd",
        "percent of time that reads waited for PCIe credits",
        "PCIe width and speed, NUMA node",
    ),
    ("module_bad_shorted", "a module that is shorted or faulty", "another module"),
    ("module_high_temp", "times that the module was too hot", "air flow"),
    (
        "dev_internal_queue_oob",
        "packets dropped in the card's internal queues for lack of buffers",
        "receive buffers of representors and hairpin queues",
    ),
    (
        "out_of_buffer",
        "requests dropped because no receive was posted",
        "the depth of receive queues, how fast they are posted again",
    ),
    (
        "out_of_sequence",
        "packets that arrived out of order: others before them were lost",
        "PFC and ECN on the path, the switches' drop counters",
    ),
    (
        "packet_seq_err",
        "NAKs for lost packets: the remote saw a gap",
        "PFC and ECN on the path, the switches' drop counters",
    ),
    (
        "local_ack_timeout_err",
        "acknowledgements that did not come in time",
        "packet loss; the remote's state; timeout of the queue pair",
    ),
    ("rnr_nak_retry_err", "retries after RNR NAKs were used up", "the remote's receives; rnr_retry"),
    (
        "rx_icrc_encapsulated",
        "RoCE packets with a wrong ICRC",
        "memory or firmware of switch or card; a middle box that rewrites packets",
    ),
    (
        "implied_nak_seq_err",
        "acknowledgements that skipped a response: packets of a read were lost",
        "PFC and ECN on the path",
    ),
];

static COMPILED: LazyLock<Vec<(Regex, &'static Shape)>> = LazyLock::new(|| {
    let compile = |shape: &'static Shape| (Regex::new(&format!("(?i){}", shape.regex)).expect("a regex"), shape);
    SHAPES.iter().map(compile).collect()
});

/// A counter with its value, as `ethtool -S`, `rdma statistic` or `counter = N` print it.
static COUNTER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)(?:^|\s)(?<name>[a-z]\w+?)(?:\s*[:=]\s*|\s+)(?<value>\d+)\b").expect("a regex"));

/// A found line or counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where it starts and ends in the text.
    pub range: std::ops::Range<usize>,
    /// What it tells about failures near it.
    pub explains: Explains,
    /// The report on it.
    pub report: Report,
}

/// All such lines, and counters that are not zero.
pub fn find(text: &str) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for (regex, shape) in COMPILED.iter() {
        all.extend(regex.find_iter(text).map(|found| Found {
            range: found.range(),
            explains: shape.explains,
            report: Report {
                what: message(found.as_str()),
                meaning: shape.meaning.into(),
                causes: lines(shape.causes),
                look_at: lines(shape.look_at),
                ..Report::default()
            },
        }));
    }
    for captures in COUNTER.captures_iter(text) {
        let (Some(whole), name, value) = (captures.get(0), &captures["name"], &captures["value"]) else { continue };
        let Some((name, meaning, look_at)) = COUNTERS.iter().find(|(known, ..)| *known == name) else { continue };
        if value.bytes().all(|digit| digit == b'0') {
            continue;
        }
        let report = Report {
            what: format!("counter {name}"),
            fields: vec![("value", value.to_owned())],
            meaning: (*meaning).to_owned(),
            look_at: lines(&[look_at]),
            ..Report::default()
        };
        all.push(Found { range: whole.range(), explains: Explains::Nothing, report });
    }
    all
}

/// The message of a line, without time and host.
fn message(line: &str) -> String {
    let stamp = line.rfind("] ").filter(|at| line[..*at].rfind('[').is_some_and(|open| line[open..*at].contains('.')));
    let text = stamp.map_or(line, |at| &line[at + 2..]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_found_in_a_line_as_it_is_printed() {
        let printed = [
            "DMAR: [DMA Read NO_PASID] Request device [3b:00.0] fault addr 0x7f000 [fault reason 0x06] PTE Read access is not set",
            "pcieport 0000:3a:00.0: AER: Uncorrectable (Fatal) error message received from 0000:3b:00.0",
            "pcieport 0000:3a:00.0: DPC: containment event, status:0x1f01 source:0x0000",
            "mlx5_core 0000:3b:00.0: mlx5_pcie_event:301:(pid 269): Detected insufficient power on the PCIe slot (25W).",
            "mlx5_core 0000:3b:00.0 ens1f0np0: Link down",
            "mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, Power budget exceeded",
            "mlx5_core 0000:3b:00.0 ens1: TX timeout on queue: 3, SQ: 0x1a2, CQ: 0x4b, SQ Cons: 0x0 SQ Prod: 0x1, usecs since last trans: 21000000",
            "mlx5_core: probe of 0000:3b:00.0 failed with error -110",
            "mlx5_core 0000:3b:00.0: wait_fw_init:199:(pid 7): Firmware over 120000 MS in pre-initializing state, aborting",
            "  reporter tx\n    state error error 3 recover 2 auto_recover true",
            "  channel ix: 0 tc: 0 txq ix: 0 sqn: 4307 HW state: 3 stopped: true cc: 0 pc: 0",
            "  channel ix: 1 tc: 0 txq ix: 1 sqn: 4312 HW state: 1 stopped: true cc: 91 pc: 1115",
            "    cqn: 1030 HW status: 9 ci: 91 size: 1024",
            "mlx5_common: no Verbs device matches PCI device 0000:3b:00.0, are kernel drivers loaded?",
            "ib_md.c:282  UCX  ERROR ibv_reg_mr(address=0x7f, length=4096, access=0xf) failed: Cannot allocate memory",
        ];
        assert_eq!(printed.len(), SHAPES.len());
        for (line, shape) in printed.iter().zip(SHAPES) {
            let found = find(line);
            assert!(found.iter().any(|found| found.report.meaning == shape.meaning), "{line}: {found:?}");
        }
        for line in [
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=3b:00.0 domain=0x000c address=0x7f000 flags=0x0000]",
            "mlx5_core 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "pcieport 0000:3a:00.0: pciehp: Slot(3): Link Down",
            "NETDEV WATCHDOG: ens1 (mlx5_core): transmit queue 3 timed out",
            "mlx5_core 0000:3b:00.0: probe with driver mlx5_core failed with error -110",
        ] {
            assert_eq!(find(line).len(), 1, "{line}");
        }
    }

    #[test]
    fn counters_of_drops_are_explained_and_zeros_left_out() {
        let text = "NIC statistics:\n     rx_packets: 12\n     rx_out_of_buffer: 34\n     rx_discards_phy: 0\n";
        let found = find(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].report.fields, [("value", "34".to_owned())]);
        assert_eq!(find("link mlx5_0/1 rx_write_requests 0 out_of_sequence 7 packet_seq_err 0").len(), 1);
    }

    #[test]
    fn lines_that_say_all_is_well_are_not_explained() {
        for line in [
            "mlx5_core 0000:3b:00.0: PCIe slot advertised sufficient power (27W).",
            "mlx5_core 0000:3b:00.0 ens1: Link up",
            "  channel ix: 0 tc: 0 txq ix: 0 sqn: 4307 HW state: 1 stopped: false cc: 0 pc: 0",
            "    cqn: 1030 HW status: 0 ci: 0 size: 1024",
        ] {
            assert_eq!(find(line), Vec::new(), "{line}");
        }
    }
}
