//! Lines of a host's log that are no message about a command or a completion: what the kernel says of PCIe, the IOMMU
//! and links, which often names the cause of what a card reports; counters of `ethtool -S` and `rdma statistic`; texts
//! of devlink, DPDK and UCX.

use std::collections::HashSet;
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
        regex: r"[^\n]*(?:mlx5_core: probe of \S+ failed with error -?\d+|mlx5_core \S+: probe with driver mlx5_core failed[^\n]*|mlx5_(?:load|init)_one(?:_light)? failed with error code -?\d+)[^\n]*",
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
        regex: r"[^\n]*(?:Firmware over \d+ MS in (?:pre-)?initializing state[^\n]*|FW initialization timeout[^\n]*|Waiting for FW \S+, timeout abort in \d+s[^\n]*)",
        explains: Explains::Nothing,
        meaning: "firmware has not finished starting: the driver waits for it, or gave it up",
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
    // DPDK, drivers/net/mlx5/linux/mlx5_os.c: https://github.com/bytedance/libtpa/issues/14
    Shape {
        regex: r"[^\n]*\bprobe of PCI device \S+ aborted after encountering an error: [^\n]*",
        explains: Explains::Nothing,
        meaning: "DPDK's mlx5 driver gave the function up",
        causes: &[
            "what its lines before this one say: \"Failed to create ...\", \"allocation failure\", \"verbs maximum priority\"",
            "Operation not supported: libibverbs or the kernel lacks something that this DPDK needs",
            "Cannot allocate memory: no huge pages left, or the limit of locked memory",
        ],
        look_at: &[
            "the line of mlx5_net, net_mlx5 or mlx5_common before it; `--log-level=pmd.*mlx5:debug` for more",
            "`mlx5 doctor`; `ibv_devinfo -v` in the same container and network namespace",
        ],
    },
    // drivers/common/mlx5/mlx5_common_devx.c and mlx5_devx_cmds.c of DPDK, versions before 21.11 without a syndrome.
    Shape {
        regex: r"[^\n]*\b(?:mlx5_\w+|net_mlx5|common_mlx5): (?:Failed to (?:create|allocate|modify) [^\n]*DevX[^\n]*)",
        explains: Explains::Nothing,
        meaning: "the kernel or firmware refused DPDK an object of the card; this line does not say why",
        causes: &["firmware refused the command: mlx5_core logs its status and syndrome", "no UAR or memory is left"],
        look_at: &["`dmesg` for mlx5_core lines of the same time, and `mlx5 explain` on them"],
    },
    // src/uct/ib/base/ib_iface.c of UCX: https://github.com/openucx/ucx/issues/8336
    Shape {
        regex: r"[^\n]*\bfailed to create (?:\w+ )?(?:QP|CQ|SRQ)\b[^\n]*: Cannot allocate memory[^\n]*",
        explains: Explains::Nothing,
        meaning: "the kernel, or firmware through it, had no room for the queue",
        causes: &[
            "the limit of locked memory (RLIMIT_MEMLOCK) of the process",
            "queue pairs or UAR pages of the card are used up by many processes: mlx5_core logs EXCEED_LIM",
        ],
        look_at: &[
            "`ulimit -l unlimited`; `mlx5 doctor`",
            "`dmesg` for mlx5_core lines of the same time; `rdma resource show`",
        ],
    },
    Shape {
        regex: r"[^\n]*(?:ibv_reg_mr|ibv_create_(?:cq|qp)|mlx5dv_create_qp)\([^\n]*failed: Cannot allocate memory[^\n]*",
        explains: Explains::Nothing,
        meaning: "memory for the card could not be locked",
        causes: &["the limit of locked memory (RLIMIT_MEMLOCK) of the process", "no memory"],
        look_at: &["`ulimit -l unlimited`, or LimitMEMLOCK=infinity in the service's unit; `mlx5 doctor`"],
    },
];

/// Counters that tell of drops and errors: name, meaning, what to check; `%` stands for a priority or lane, and a name
/// also for that of each ring (`rx3_wqe_err`). Names and meanings as in Linux's
/// networking/device_drivers/ethernet/mellanox/mlx5/counters.rst; those of queue pairs as in NVIDIA's "Understanding
/// mlx5 Linux Counters and Status Parameters" (enterprise-support.nvidia.com).
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
    ("rx_prio%_discards", "packets of a priority dropped in the card's buffers", "PFC of this priority on both sides"),
    (
        "rx_prio%_buf_discard",
        "packets of a priority dropped for lack of receive buffers of this host",
        "PFC of this priority, buffer sizes (`mlnx_qos`)",
    ),
    (
        "rx_prio%_cong_discard",
        "packets of a priority dropped because this host was congested",
        "PCIe width and speed, ECN of this priority",
    ),
    (
        "rx_prio%_pause",
        "PFC frames of a priority received: the network cannot take what the card sends",
        "the switch's port and what lies behind it",
    ),
    (
        "tx_prio%_pause",
        "PFC frames of a priority sent: the card or the host cannot take what arrives",
        "receives that are not posted, PCIe width and speed",
    ),
    (
        "rx_pause_ctrl_phy",
        "pause frames received: the network cannot take what the card sends",
        "the switch's port and what lies behind it",
    ),
    (
        "tx_pause_ctrl_phy",
        "pause frames sent: the card or the host cannot take what arrives",
        "receives that are not posted, PCIe width and speed",
    ),
    ("rx_undersize_pkts_phy", "frames below 64 bytes, dropped", "the sender of malformed frames"),
    ("rx_fragments_phy", "frames below 64 bytes with a wrong FCS", "cable, module, FEC; the sender's MTU"),
    ("rx_jabbers_phy", "frames above 64 bytes with a wrong FCS", "cable, module, FEC: `mlxlink -c`"),
    ("rx_in_range_len_errors_phy", "packets dropped because length and type field differ", "the sender"),
    ("rx_unsupported_op_phy", "MAC control frames with an opcode that is not supported", "the link's other end"),
    (
        "rx_corrected_bits_phy",
        "bits that FEC corrected: normal on fast links, unless the rate grows",
        "its rate against rx_bits_phy; `mlxlink -c`",
    ),
    ("rx_err_lane_%_phy", "raw errors of a lane, before FEC", "cable, module: `mlxlink -c`"),
    ("rx_if_down_packets", "packets dropped because the interface was down", "`ip link`"),
    (
        "tx_queue_dropped",
        "packets dropped because they could not be mapped for DMA",
        "the IOMMU's space, memory of the host",
    ),
    ("tx_recover", "times that a send queue was recovered after an error", "`dmesg` for the error CQE"),
    ("rx_recover", "times that a receive queue was recovered after an error", "`dmesg` for the error CQE"),
    (
        "ch_eq_rearm",
        "times that an event queue was found with entries and no interrupt, and recovered",
        "lost interrupts: the hypervisor, interrupt remapping; firmware",
    ),
    ("rx_arfs_err", "rules of accelerated RFS that could not be added", "`dmesg`; flow table sizes: `mlx5 caps`"),
    (
        "rx_xsk_buff_alloc_err",
        "AF_XDP buffers that were not there",
        "the fill ring: the program returns frames too late",
    ),
    ("rx_xdp_tx_full", "frames of XDP_TX dropped because the send queue was full", "ring sizes, more queues"),
    ("tx_xdp_full", "frames of XDP_REDIRECT dropped because the send queue was full", "send ring size"),
    ("module_bus_stuck", "times that the module's management bus hung", "another module or cable"),
    ("dev_out_of_buffer", "times that a queue of the device itself had no buffers", "firmware's release notes"),
    (
        "rx_pci_signal_integrity",
        "PCIe errors: transitions to recovery for framing and CRC errors",
        "another slot; firmware and BIOS",
    ),
    ("tx_pci_signal_integrity", "PCIe errors: recovery that the other side began", "another slot; firmware and BIOS"),
    (
        "tx_pause_storm_warning_events",
        "times that the card sent pauses for long",
        "the host: it does not post receives, or PCIe stalls",
    ),
    ("duplicate_request", "requests that came twice: their acknowledgements were lost or late", "packet loss, timeout"),
    (
        "resp_cqe_error",
        "completions with error of responders, flushed ones too",
        "the first error completion of each queue pair",
    ),
    (
        "req_cqe_error",
        "completions with error of requesters, flushed ones too",
        "the first error completion of each queue pair",
    ),
    ("req_remote_access_errors", "requests that the remote refused for their rkey or rights", "rkeys and access flags"),
    ("resp_remote_access_errors", "requests refused here for their rkey or rights", "rkeys and access flags"),
    ("req_remote_invalid_request", "requests that the remote found invalid", "message sizes, receives' lengths"),
    ("resp_local_length_error", "messages longer than the receive they met", "receives' lengths"),
    // `devlink health diagnose` of the reporter vnic: Linux's networking/devlink/mlx5.rst.
    ("total_error_queues", "queues in error after an event or a failed command", "`dmesg` for error CQEs and events"),
    (
        "cq_overrun",
        "completion queues that failed by an overflow",
        "the depth of completion queues against that of their work queues",
    ),
    ("async_eq_overrun", "overflows of event queues of asynchronous events", "`dmesg`; interrupts that are not served"),
    ("comp_eq_overrun", "overflows of event queues of completions", "interrupts that are not served"),
    ("quota_exceeded_command", "commands refused because a quota was exceeded", "`rdma resource show`, `dmesg`"),
    ("invalid_command", "commands refused for another reason than a quota", "`dmesg`, and `mlx5 explain` on it"),
    (
        "nic_receive_steering_discard",
        "packets discarded after receive steering, as no flow table matched them",
        "flow rules, promiscuous mode, VLAN filters",
    ),
    (
        "generated_pkt_steering_fail",
        "packets of this function that met an unexpected failure of steering",
        "flow rules of the e-switch; `dmesg`",
    ),
    (
        "handled_pkt_steering_fail",
        "packets handled by this function that met an unexpected failure of steering",
        "flow rules of the e-switch; `dmesg`",
    ),
    (
        "roce_slow_restart_cnps",
        "congestion notifications sent as a flow restarted slowly",
        "ECN settings on the path: rp_cnp_handled, np_ecn_marked_roce_packets",
    ),
    (
        "rx_dct_connect_dropped",
        "connections of DC targets that were refused for lack of room",
        "`mlx5 caps log_max_dc`; fewer initiators at once",
    ),
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
    all.extend(counters(text));
    all
}

/// Counters of the table that are not zero; those of rings only where their sum is not in the text too.
fn counters(text: &str) -> Vec<Found> {
    let matched = COUNTER.captures_iter(text).filter_map(|captures| {
        let (whole, name, value) = (captures.get(0)?, captures.name("name")?, captures.name("value")?);
        let counted = value.as_str().bytes().any(|digit| digit != b'0');
        Some((whole.range(), name.as_str(), value.as_str())).filter(|_| counted)
    });
    let matched: Vec<_> = matched.collect();
    let names: HashSet<&str> = matched.iter().map(|(_, name, _)| *name).collect();
    let told = matched.iter().filter_map(|(range, name, value)| {
        let (sum, (_, meaning, look_at)) = known_counter(name)?;
        if sum != *name && names.contains(sum.as_str()) {
            return None;
        }
        let report = Report {
            what: format!("counter {name}"),
            fields: vec![("value", (*value).to_owned())],
            meaning: (*meaning).to_owned(),
            look_at: lines(&[look_at]),
            ..Report::default()
        };
        Some(Found { range: range.clone(), explains: Explains::Nothing, report })
    });
    told.collect()
}

/// The row of a counter, and its name without the number of a ring: `rx3_wqe_err` is `rx_wqe_err`.
fn known_counter(name: &str) -> Option<(String, &'static (&'static str, &'static str, &'static str))> {
    let ring = name.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let direction = &name[..name.len() - ring.len()];
    let sum = match ring.trim_start_matches(|c: char| c.is_ascii_digit()) {
        rest if rest.starts_with('_') => format!("{direction}{rest}"),
        _ => name.to_owned(),
    };
    let is = |known: &str| match known.split_once('%') {
        Some((before, after)) => {
            let number = sum.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
        }
        None => known == sum,
    };
    COUNTERS.iter().find(|(known, ..)| is(known)).map(|row| (sum.clone(), row))
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
            "mlx5_net: probe of PCI device 0000:98:00.0 aborted after encountering an error: Cannot allocate memory",
            "net_mlx5: Failed to create TIS using DevX",
            "ib_iface.c:988  UCX  ERROR iface=0x224c8a10: failed to create UD QP TX wr:256 sge:6 inl:64 resp:0 RX wr:4096 sge:1 resp:0: Cannot allocate memory",
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
            "mlx5_core 0000:3b:00.0: probe_one:1764:(pid 7): mlx5_init_one failed with error code -110",
            "mlx5_core 0000:3b:00.0: wait_fw_init:199:(pid 7): Waiting for FW initialization, timeout abort in 100s (0x15b3)",
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
    fn counters_of_priorities_lanes_and_rings_are_known() {
        let names = |text: &str| find(text).into_iter().map(|found| found.report.what).collect::<Vec<_>>();
        let text = "  rx_prio0_discards: 1\n  rx_prio5_discards: 2\n  rx_err_lane_3_phy: 3\n  rx_prio5_packets: 4\n";
        let known = ["counter rx_prio0_discards", "counter rx_prio5_discards", "counter rx_err_lane_3_phy"];
        assert_eq!(names(text), known);
        assert_eq!(
            names("     tx7_cqe_err: 2\n     ch12_eq_rearm: 1\n"),
            ["counter tx7_cqe_err", "counter ch12_eq_rearm"]
        );
        assert_eq!(names("rx_wqe_err: 2\nrx0_wqe_err: 0\nrx1_wqe_err: 2\n"), ["counter rx_wqe_err"], "the sum alone");
        let vnic = " vNIC env counters:\n    total_error_queues: 0 send_queue_priority_update_flow: 0\n    comp_eq_overrun: 1 quota_exceeded_command: 0\n";
        assert_eq!(names(vnic), ["counter comp_eq_overrun"]);
        assert_eq!(names("rx_64_bytes_phy: 7\nrx0_packets: 1\nrx_prio_discards: 1\n"), [""; 0]);
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
