//! Our driver over DevX of Debian's unmodified mlx5_ib, beside the kernel's network device and libmlx5.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::path::Path;

use common::kernels::{FAR, boot_with, part};
use common::{Lab, PROBE, Report, SOON, TRAFFIC, TestResult};
use mlx5_lab::{Model, rounds, verbs_program};
use serde_json::Value;

/// A bash function that runs `rc_pingpong` with its arguments, and kills it once it is connected and the function
/// `in_traffic` has returned. It uses bash's builtins alone: starting a program takes an emulated processor as long as
/// a hundred messages.
const KILL_IN_TRAFFIC: &str = r#"
kill_in_traffic() {
    local line= said= pid out
    coproc program { exec rc_pingpong -n 1000000000 "$@" 2>&1; }
    pid=$program_PID
    exec {out}<&${program[0]}
    until [[ $line = *'remote address'* ]]; do
        IFS= read -r -t 60 line <&$out || { echo "no traffic: $said"; return 1; }
        said+=$line$'\n'
    done
    in_traffic || { echo "no traffic"; return 1; }
    kill -9 $pid
    wait $pid || [ $? = 137 ]
    exec {out}<&-
}
"#;

/// How often a program tries a key that is closed.
const CLOSED_KEYS: usize = 7 + IMPORTS;
/// How often a process imports what another exports. Each tries at last a key that is closed.
const IMPORTS: usize = 3;
/// A multicast group.
const GROUP: &str = "239.1.2.3";
/// Where the guest sees our C programs.
const C_PROGRAMS: &str = "/opt/verbs";

/// The output of a command that must fail.
fn refusal(lab: &Lab, command: &str) -> Result<String, Report> {
    let output = lab.guest.run(&format!("{command} 2>&1"), TRAFFIC)?;
    let said = output.text();
    match output.status {
        1 => Ok(said),
        status => Err(format!("`{command}` ended with {status}, not with 1:\n{said}").into()),
    }
}

/// The model's object count at the beginning or end of each user context, from byte `from` of its log.
fn counts(lab: &Lab, from: usize, event: &str) -> Vec<u32> {
    let said = lab.model.stderr();
    let lines = said[from..].lines().filter(|line| line.contains("user context") && line.contains(event));
    lines.filter_map(|line| line.split(", ").nth(1)?.split(' ').next()?.parse().ok()).collect()
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn our_driver_runs_beside_the_kernels_own() -> TestResult {
    let programs = tempfile::tempdir()?;
    for name in [
        "atomics",
        "data_in_order",
        "datagrams",
        "dma_buf",
        "dynamic",
        "operations",
        "ece",
        "fast_keys",
        "moderation",
        "now",
        "reserved_qpns",
        "segments",
        "shared",
        "xrc_domain",
    ] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs").join(name).with_extension("c");
        verbs_program(&source, &programs.path().join(name))?;
    }
    let lab = boot_with("devx", |guest| guest.share(programs.path(), C_PROGRAMS))?;
    it_is_listed_and_asked(&lab)?;
    info_is_what_linux_shows(&lab)?;
    counters_are_what_linux_shows(&lab)?;
    messages_bounce(&lab)?;
    libmlx5_is_at_the_other_end(&lab)?;
    datagrams_are_those_of_libmlx5(&lab)?;
    shared_receives_are_those_of_libmlx5(&lab)?;
    xrc_is_that_of_libmlx5(&lab)?;
    processes_share_an_xrc_domain(&lab)?;
    the_kernel_resolves_ipv4_addresses(&lab)?;
    atomics_are_those_of_libmlx5(&lab)?;
    keys_open_and_close_for_libmlx5(&lab)?;
    dynamic_connections_are_those_of_libmlx5(&lab)?;
    operations_are_those_of_libmlx5(&lab)?;
    groups_are_those_of_librdmacm(&lab)?;
    our_clock_is_that_of_libmlx5(&lab)?;
    bytes_come_in_the_order_that_libmlx5_tells(&lab)?;
    options_and_events_are_those_of_libmlx5(&lab)?;
    reserved_numbers_are_libmlx5_s_or_ours(&lab)?;
    processes_share_what_they_export(&lab)?;
    memory_of_a_dma_buf_is_written_and_read(&lab)?;
    frames_pass_beside_the_kernels_own(&lab)?;
    frames_go_out_at_their_rate(&lab)?;
    linux_receives_what_the_card_has_divided(&lab)?;
    rules_count_and_drop_beside_the_kernels_own(&lab)?;
    what_the_kernel_refuses_is_explained(&lab)?;
    events_come(&lab)?;
    tasks_of_an_executor_exchange_messages(&lab)?;
    a_killed_program_leaves_nothing(&lab)?;
    // Strict mode reports objects left at TEARDOWN_HCA.
    lab.check("modprobe -r mlx5_ib && modprobe -r mlx5_core", PROBE)?;
    lab.assert_quiet()?;
    lab.guest.power_off()?;
    assert_refused(&lab.model, CLOSED_KEYS);
    Ok(())
}

/// Strict mode reports `attempts` at keys that are closed, and nothing else.
fn assert_refused(model: &Model, attempts: usize) {
    let violations = model.violations();
    let others: Vec<_> = violations.iter().filter(|said| !said.contains("key does not allow the access")).collect();
    assert!(others.is_empty() && violations.len() == attempts, "{violations:#?}");
}

/// Numbers by name, of `ethtool -S`.
fn ethtool(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| line.trim().rsplit_once(": "));
    lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The numbers of some groups of `mlx5 counters --json`, by name.
fn counted(counters: &Value, groups: &[&str]) -> BTreeMap<String, u64> {
    let of = |group: &&str| counters["groups"][group]["counters"].as_object().into_iter().flatten();
    let all = groups.iter().flat_map(of);
    all.filter_map(|(name, counter)| Some((name.clone(), counter["value"].as_u64()?))).collect()
}

/// The groups that `ethtool -S` shows.
const OF_INTERFACE: &[&str] = &["port", "vport", "netdev", "pcie"];

/// `mlx5 counters` over DevX has the names and numbers of ethtool, sysfs and `rdma statistic`.
fn counters_are_what_linux_shows(lab: &Lab) -> TestResult {
    // Twice, around ours: meanwhile the kernel may send.
    let script = "device=$(ls /sys/class/infiniband/mlx5_0/device/net)
        theirs() {
            ethtool -S $device | tail -n +2
            cd /sys/class/infiniband/mlx5_0/ports/1
            grep -H . counters/* hw_counters/* 2>/dev/null | sed 's/:/: /'
            cd /
        }
        theirs; echo ==; mlx5 counters --json -d devx:mlx5_0; echo ==; theirs; echo ==
        rdma --json statistic show link mlx5_0/1";
    let text = lab.check(script, TRAFFIC)?;
    let [before, ours, after, rdma] = text.split("==\n").collect::<Vec<_>>()[..] else { return Err(text.into()) };
    let (before, after) = (ethtool(before), ethtool(after));
    let counters: Value = serde_json::from_str(ours)?;
    let plain = |name: &String| name.rsplit('/').next().unwrap_or_default().to_owned();
    let of_sysfs = |dir: &str| {
        let own = before.keys().filter(|name| name.starts_with(dir)).map(plain);
        own.filter(|name| name != "lifespan").collect::<BTreeSet<String>>()
    };
    let names = |groups: &[&str]| counted(&counters, groups).into_keys().collect::<BTreeSet<String>>();
    assert_eq!(names(&["infiniband"]), of_sysfs("counters/"), "{text}");
    assert_eq!(names(&["queue", "hardware"]), of_sysfs("hw_counters/"), "{text}");
    let of_interface: BTreeSet<String> = before.keys().filter(|name| !name.contains('/')).cloned().collect();
    let more: Vec<String> = names(OF_INTERFACE).difference(&of_interface).cloned().collect();
    // Today's Linux shows the vport's errors no more.
    let errors = ["rx_vport_error_bytes", "rx_vport_error_packets", "tx_vport_error_bytes", "tx_vport_error_packets"];
    assert_eq!(more, errors, "{text}");
    assert!(of_interface.is_subset(&names(OF_INTERFACE)), "{text}");

    let mut compared = 0;
    for (groups, prefix) in
        [(OF_INTERFACE, ""), (&["infiniband"][..], "counters/"), (&["queue", "hardware"][..], "hw_counters/")]
    {
        for (name, value) in counted(&counters, groups) {
            let key = format!("{prefix}{name}");
            let (Some(low), Some(high)) = (before.get(&key), after.get(&key)) else { continue };
            assert!((low..=high).contains(&&value), "{key}: {value}, but Linux shows {low} and then {high}");
            compared += usize::from(value > 0);
        }
    }
    let of_pcie = ["outbound_pci_buffer_overflow", "rx_pci_signal_integrity", "tx_pci_signal_integrity"];
    assert!(names(&["pcie"]).len() == 7 && of_pcie.iter().all(|name| names(&["pcie"]).contains(*name)), "{text}");
    assert!(compared >= 10, "only {compared} counters counted anything: {text}");
    let rdma: Value = serde_json::from_str(rdma)?;
    let hardware = counted(&counters, &["queue", "hardware"]);
    let theirs = rdma[0].as_object().into_iter().flatten();
    let theirs: Vec<_> = theirs.filter(|(name, _)| !["ifname", "ifindex", "port"].contains(&name.as_str())).collect();
    assert!(!theirs.is_empty(), "{rdma}");
    for (name, value) in theirs {
        let ours = hardware.get(name).ok_or_else(|| format!("no {name}:\n{text}"))?;
        assert!(value.as_u64().is_some_and(|value| *ours <= value), "{name}: {ours} and {value}");
    }
    Ok(())
}

/// `mlx5 list` and `mlx5 caps` agree with the kernel.
fn it_is_listed_and_asked(lab: &Lab) -> TestResult {
    let text = lab.check("mlx5 list --json", TRAFFIC)?;
    let list: Value = serde_json::from_str(&text)?;
    let card = list["cards"].as_array().and_then(|cards| cards.iter().find(|card| card["rdma"][0]["name"] == "mlx5_0"));
    let card = card.ok_or_else(|| format!("no mlx5_0:\n{text}"))?;
    let way = card["ways"].as_array().and_then(|ways| ways.iter().find(|way| way["device"] == "devx:mlx5_0"));
    assert_eq!(way.map(|way| &way["usable"]), Some(&Value::Bool(true)), "{text}");
    let port = &card["rdma"][0]["ports"][0];
    assert_eq!(port["state"], "ACTIVE", "{text}");
    let theirs =
        lab.check("cat /sys/class/infiniband/mlx5_0/fw_ver; ls /sys/class/infiniband/mlx5_0/device/net", SOON)?;
    let [firmware, interface] = theirs.lines().collect::<Vec<_>>()[..] else { return Err(theirs.into()) };
    assert_eq!((&card["rdma"][0]["firmware"], &port["interface"]), (&firmware.into(), &interface.into()), "{text}");
    assert!(port["gids"][0]["address"].as_str().is_some_and(|gid| gid.starts_with("fe80::")), "{text}");

    assert_eq!(ports(&lab.check("rdma --json link", SOON)?)?, listed_ports(&text)?, "{text}");
    // Without RDMA netlink the same comes from sysfs.
    let without =
        "strace -f --seccomp-bpf -o /dev/null -e trace=socket -e inject=socket:error=EPROTONOSUPPORT mlx5 list --json";
    assert_eq!(listed_ports(&lab.check(without, TRAFFIC)?)?, listed_ports(&text)?);

    let caps = lab.check("mlx5 caps --json -d devx:mlx5_0", TRAFFIC)?;
    serde_json::from_str::<Value>(&caps)?;
    let caps = lab.check("mlx5 caps -d devx:mlx5_0 log_max_uctx", TRAFFIC)?;
    assert!(caps.contains("log_max_uctx"), "{caps}");
    Ok(())
}

/// `mlx5 info` shows what ethtool and libibverbs show of the same function.
fn info_is_what_linux_shows(lab: &Lab) -> TestResult {
    let text = lab.check("mlx5 info --json -d devx:mlx5_0", TRAFFIC)?;
    let info: Value = serde_json::from_str(&text)?;
    let theirs = "device=$(ls /sys/class/infiniband/mlx5_0/device/net)
        echo device: $device; echo address: $(< /sys/class/net/$device/address)
        ethtool -i $device && ethtool $device && ibv_devinfo -v -d mlx5_0";
    let theirs = lab.check(theirs, TRAFFIC)?;
    let word = |name: &str| {
        let found = theirs.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        found.map(|word| word.trim().to_owned()).ok_or_else(|| format!("no {name}:\n{theirs}"))
    };
    let ours = |path: &str| info.pointer(path).map_or(String::new(), |value| value.to_string().replace('"', ""));
    assert_eq!(word("firmware-version")?, format!("{} ({})", ours("/firmware"), ours("/psid")), "{text}");
    assert_eq!((word("bus-info")?, word("driver")?), (ours("/pci_address"), ours("/driver")), "{text}");
    assert_eq!((word("device")?, word("address")?), (ours("/port/netdev"), ours("/port/mac")), "{text}");
    assert_eq!(word("Speed")?, format!("{}Mb/s", ours("/port/speed_mbps")), "{text}");
    assert!(word("active_width")?.starts_with(&format!("{}X ", ours("/port/lanes"))), "{text}{theirs}");
    assert!(word("active_mtu")?.starts_with(&format!("{} ", ours("/port/path_mtu"))), "{text}{theirs}");
    let limits = [
        ("log_max_qp", "max_qp", 0),
        ("log_max_cq", "max_cq", 0),
        ("log_max_cq_sz", "max_cqe", 1),
        ("log_max_mkey", "max_mr", 0),
        ("log_max_pd", "max_pd", 0),
    ];
    let limit = |capability: &str| {
        let mut limits = info["limits"].as_array().into_iter().flatten();
        limits.find(|limit| limit["capability"] == capability).and_then(|limit| limit["limit"].as_u64())
    };
    for (capability, name, less) in limits {
        assert_eq!(limit(capability).map(|limit| limit - less), Some(word(name)?.parse()?), "{name}: {text}");
    }
    let gids = theirs.lines().filter(|line| line.trim().starts_with("GID["));
    let gids: Vec<_> = gids.filter_map(|line| line.split_once("]:")?.1.trim().split_once(", ")).collect();
    let rows = info["gids"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert_eq!(rows.len(), gids.len(), "{text}{theirs}");
    for (row, (address, kind)) in rows.iter().zip(gids) {
        let own: Ipv6Addr = row["address"].as_str().unwrap_or_default().parse()?;
        assert_eq!(own, address.parse::<Ipv6Addr>()?, "{text}");
        assert!(row["type"].as_str().is_some_and(|own| own.ends_with(kind)), "{kind}: {text}");
    }
    Ok(())
}

/// Device, state, physical state and network interface of every port, as `rdma link` of iproute2 shows them.
fn ports(text: &str) -> Result<Vec<[String; 4]>, Report> {
    let links: Value = serde_json::from_str(text)?;
    let word = |link: &Value, name: &str| link[name].as_str().unwrap_or_default().to_owned();
    let port = |link: &Value| {
        ["ifname", "state", "physical_state", "netdev"].map(|name| word(link, name).replace("LINK_UP", "LinkUp"))
    };
    Ok(links.as_array().ok_or("no list")?.iter().map(port).collect())
}

/// The same, as `mlx5 list` shows them.
fn listed_ports(text: &str) -> Result<Vec<[String; 4]>, Report> {
    let list: Value = serde_json::from_str(text)?;
    let mut ports = Vec::new();
    for device in list["cards"].as_array().into_iter().flatten().flat_map(|card| card["rdma"].as_array()).flatten() {
        for port in device["ports"].as_array().into_iter().flatten() {
            let words = [&device["name"], &port["state"], &port["physical_state"], &port["interface"]];
            ports.push(words.map(|word| word.as_str().unwrap_or_default().to_owned()));
        }
    }
    Ok(ports)
}

/// Ping-pongs on one function and between two, polled and by events.
fn messages_bounce(lab: &Lab) -> TestResult {
    lab.check("rc_pingpong -d devx:mlx5_0 -c 2>&1", TRAFFIC)?;
    lab.check("rc_pingpong -d devx:mlx5_1 -c -e -n 200 2>&1", TRAFFIC)?;
    let server = lab.serve_tcp("", "rc_pingpong -d devx:mlx5_1 --listen -c")?;
    lab.call(server, "rc_pingpong -d devx:mlx5_0 -c 127.0.0.1")?;
    let server = lab.serve_tcp("", "rc_pingpong -d devx:mlx5_0 --listen -c -e -n 200")?;
    lab.call(server, "rc_pingpong -d devx:mlx5_1 -c -e -n 200 127.0.0.1")?;
    Ok(())
}

/// `ibv_rc_pingpong` on the second function, ours on the first, as client and as server. Then `ibv_uc_pingpong`.
fn libmlx5_is_at_the_other_end(lab: &Lab) -> TestResult {
    part(lab)?;
    let theirs = "ibv_rc_pingpong -d mlx5_1 -g 0 -c -n 200";
    let ours = "rc_pingpong -d devx:mlx5_0 -c -n 200";
    assert_status(&lab.call(lab.serve_tcp(FAR, theirs)?, &format!("{ours} --status 10.0.0.2"))?, 200)?;
    lab.call(lab.serve_tcp(FAR, &format!("{theirs} -e"))?, &format!("{ours} -e 10.0.0.2"))?;
    lab.call(lab.serve_tcp("", &format!("{ours} --listen"))?, &format!("{FAR} {theirs} 10.0.0.1"))?;
    rings_lie_where_the_user_says(lab, theirs, ours)?;
    let (theirs, ours) = (theirs.replace("_rc_", "_uc_"), format!("{ours} --uc"));
    lab.call(lab.serve_tcp(FAR, &theirs)?, &format!("{ours} 10.0.0.2"))?;
    lab.call(lab.serve_tcp("", &format!("{ours} --listen"))?, &format!("{FAR} {theirs} 10.0.0.1"))?;
    Ok(())
}

/// Datagrams to and from `ibv_ud_pingpong`, polled and by events. Then such of several inline parts to a program in C.
fn datagrams_are_those_of_libmlx5(lab: &Lab) -> TestResult {
    let (theirs, ours) = ("ibv_ud_pingpong -d mlx5_1 -g 0 -c -n 200", "ud_pingpong -d devx:mlx5_0 -c -n 200");
    lab.call(lab.serve_tcp(FAR, theirs)?, &format!("{ours} -e 10.0.0.2"))?;
    lab.call(lab.serve_tcp("", &format!("{ours} --listen"))?, &format!("{FAR} {theirs} -e 10.0.0.1"))?;
    lab.check(&format!("{ours} 2>&1"), TRAFFIC)?;
    let theirs = lab.serve_tcp(FAR, &format!("{C_PROGRAMS}/datagrams mlx5_1 0"))?;
    let said = lab.call(theirs, "datagrams -d devx:mlx5_0 10.0.0.2")?;
    assert!(said.contains("18 datagrams of several parts heard"), "{said}");
    Ok(())
}

/// A parent domain whose rings lie in huge pages: without any the kernel has none to give.
fn rings_lie_where_the_user_says(lab: &Lab, theirs: &str, ours: &str) -> TestResult {
    const HUGE: &str = "/proc/sys/vm/nr_hugepages";
    let before = lab.check(&format!("cat {HUGE}; echo 0 > {HUGE}"), PROBE)?;
    let said = refusal(lab, "rc_pingpong -d devx:mlx5_0 -n 1 --ring-pages 2M")?;
    assert!(said.contains("no 2 MiB huge pages"), "{said}");
    lab.check(&format!("echo 4 > {HUGE}"), PROBE)?;
    lab.call(lab.serve_tcp(FAR, theirs)?, &format!("{ours} --ring-pages 2M 10.0.0.2"))?;
    lab.check(&format!("echo {} > {HUGE}", before.trim()), PROBE)?;
    Ok(())
}

/// `rc_pingpong --status` has said what the other end knows of the connection: its addresses, and how many packets both
/// have sent in `messages` of 4 packets each way.
fn assert_status(said: &str, messages: u32) -> TestResult {
    let line = said.lines().find(|line| line.contains("queue pair:")).ok_or("no status")?;
    // What follows `name` in the line.
    let of = |line: &str, name: &str| {
        line.split(", ").find_map(|part| part.split_once(name)).map(|(_, value)| value.to_owned())
    };
    let number = |line: &str, name: &str| -> Result<u32, Report> {
        let value = of(line, name).ok_or_else(|| format!("no {name:?} in {line}"))?;
        Ok(u32::from_str_radix(value.trim_start_matches("0x"), 16)?)
    };
    let gid = of(line, "GID ").ok_or("no GID")?;
    let (theirs, ours): (Vec<&str>, Vec<&str>) = said
        .lines()
        .filter(|line| line.contains("local address:"))
        .partition(|line| line.ends_with(&format!(" {gid}")));
    let ([theirs], [ours]) = (&theirs[..], &ours[..]) else { return Err(format!("not one end each:\n{said}").into()) };
    let after = |psn: u32| psn.wrapping_add(4 * messages) & 0xff_ffff;
    assert_eq!(number(line, "to QPN ")?, number(theirs, "QPN ")?, "{said}");
    assert_eq!(number(line, "expected ")?, after(number(theirs, "PSN ")?), "{said}");
    assert_eq!(number(line, "next PSN ")?, after(number(ours, "PSN ")?), "{said}");
    assert!(line.contains("RTS") && line.contains("path MTU 1024"), "{line}");
    assert!(line.ends_with(&format!("{messages} receives used")), "{line}");
    Ok(())
}

/// `ibv_srq_pingpong` at the other end of a hub's connections, which share their receives: as client and as server,
/// polled and by events, with fewer receives than messages, with a completion queue that the hub resizes meanwhile.
fn shared_receives_are_those_of_libmlx5(lab: &Lab) -> TestResult {
    let theirs = "ibv_srq_pingpong -d mlx5_1 -g 0 -c -n 400";
    let ours = "srq_pingpong -d devx:mlx5_0 -c -n 400";
    lab.call(lab.serve_tcp(FAR, theirs)?, &format!("{ours} 10.0.0.2"))?;
    lab.call(lab.serve_tcp(FAR, &format!("{theirs} -q 200 -r 256 -e"))?, &format!("{ours} -q 200 -e --grow 10.0.0.2"))?;
    let said = lab.call(lab.serve_tcp("", &format!("{ours} --listen -r 15"))?, &format!("{FAR} {theirs} 10.0.0.1"))?;
    assert!(!said.contains("invalid data"), "{said}");
    let (far, near) = ("srq_pingpong -d devx:mlx5_1 --listen -c", "srq_pingpong -d devx:mlx5_0 -c 127.0.0.1");
    lab.call(lab.serve_tcp("", far)?, near)?;
    Ok(())
}

/// `ibv_xsrq_pingpong` at the other end, as client and as server; it waits by events.
fn xrc_is_that_of_libmlx5(lab: &Lab) -> TestResult {
    let theirs = "ibv_xsrq_pingpong -d mlx5_1 -g 0 -n 100";
    let ours = "xsrq_pingpong -d devx:mlx5_0 -n 100";
    lab.call(lab.serve_tcp(FAR, theirs)?, &format!("{ours} 10.0.0.2"))?;
    lab.call(lab.serve_tcp(FAR, &format!("{theirs} -e"))?, &format!("{ours} 10.0.0.2"))?;
    // Whoever receives asks for the event of the limit of its queue, which is the kernel's.
    let server = lab.serve_tcp("", &format!("{ours} --listen --limit 8"))?;
    let said = lab.call(server, &format!("{FAR} {theirs} 10.0.0.1"))?;
    assert!(said.contains("fewer receives than the limit were posted"), "{said}");
    Ok(())
}

/// A process makes an XRC domain and a target in it, another one receives by them: ours for one in C on libibverbs,
/// that one for ours, ours for ours. The target goes on without its maker.
fn processes_share_an_xrc_domain(lab: &Lab) -> TestResult {
    let theirs = format!("{C_PROGRAMS}/xrc_domain");
    for (round, (we_make, we_join)) in [(true, false), (false, true), (true, true)].into_iter().enumerate() {
        let (file, socket) = (format!("/tmp/xrc{round}"), format!("/tmp/xrc{round}.sock"));
        lab.check(&format!("touch {file}"), PROBE)?;
        let part = |ours: bool, part: &str, flag: &str| match ours {
            true => format!("xrc_domain -d devx:mlx5_0 -f {file} --socket {socket} {flag}"),
            false => format!("{theirs} {part} {file} {socket} mlx5_0"),
        };
        let listens = format!("grep -q ' 00010000 .* {socket}$' /proc/net/unix");
        let server = lab.serve(&part(we_make, "make", "--make"), &listens)?;
        let said = lab.call(server, &part(we_join, "join", ""))?;
        for part in ["made, and sent", "joined, and received", "received: by the other process's alone"] {
            assert!(said.contains(part), "{said}");
        }
        if we_make {
            assert!(said.contains("the XRC domain of this file is not known: nobody has it open"), "{said}");
        }
        if we_join {
            assert!(said.contains("the XRC domain of this file is taken by another process"), "{said}");
            assert!(said.contains("in this domain is not known"), "{said}");
            assert!(said.contains("of the other process is in RTS"), "{said}");
            assert!(said.contains("ready_to_send needs RTR"), "{said}");
        }
    }
    Ok(())
}

/// Over IPv4 GIDs: the kernel's neighbour table has the address that TCP uses; it resolves the second one for us.
fn the_kernel_resolves_ipv4_addresses(lab: &Lab) -> TestResult {
    lab.check(SECOND_ADDRESSES, PROBE)?;
    for gid in [1, 2] {
        let theirs = format!("ibv_rc_pingpong -d mlx5_1 -g {gid} -c -n 200");
        let ours = format!("rc_pingpong -d devx:mlx5_0 -g {gid} -c -n 200");
        lab.call(lab.serve_tcp(FAR, &theirs)?, &format!("{ours} 10.0.0.2"))?;
        lab.check("ip neigh flush to 10.9.0.0/24; ! ip neigh | grep 10.9.0.2", SOON)?;
        lab.call(lab.serve_tcp("", &format!("{ours} --listen"))?, &format!("{FAR} {theirs} 10.0.0.1"))?;
    }
    Ok(())
}

/// A second IPv4 address for both functions. It becomes GID 2.
const SECOND_ADDRESSES: &str = "
ip addr add 10.9.0.1/24 dev $(ls /sys/class/infiniband/mlx5_0/device/net)
ip netns exec far ip addr add 10.9.0.2/24 dev eth0
for device in mlx5_0 mlx5_1; do
    for wait in $(seq 100); do grep -qi ffff:0a09 /sys/class/infiniband/$device/ports/1/gids/2 && continue 2; sleep 0.1; done
    echo no GID 2 on $device
    exit 1
done
";

/// A program in C on libibverbs and ours change a number of each other's by atomics. So do two of ours, on two
/// functions and on one.
fn atomics_are_those_of_libmlx5(lab: &Lab) -> TestResult {
    let theirs = format!("{C_PROGRAMS}/atomics mlx5_1 200");
    let ours = "atomics -d devx:mlx5_0 -n 200";
    let swapped = "the client changed it to 0xf1e2d3c4b5a69788";
    let said = lab.call(lab.serve_tcp(FAR, &theirs)?, &format!("{ours} 10.0.0.2"))?;
    assert!(said.contains(swapped), "{said}");
    let said = lab.call(lab.serve_tcp("", &format!("{ours} --listen"))?, &format!("{FAR} {theirs} 10.0.0.1"))?;
    assert!(said.contains(swapped), "{said}");
    let said = lab.call(lab.serve_tcp("", "atomics -d devx:mlx5_1 --listen")?, &format!("{ours} 127.0.0.1"))?;
    assert!(said.contains(swapped), "{said}");
    let said = lab.check(&format!("{ours} 2>&1"), TRAFFIC)?;
    assert!(said.contains(swapped), "{said}");
    Ok(())
}

/// Keys that are registered and invalidated by work requests, with a program in C on libibverbs at the other end: it
/// uses and invalidates ours, keys of buffers and memory windows, and opens memory windows that ours uses and
/// invalidates. The card refuses a closed key, and reports that in strict mode.
fn keys_open_and_close_for_libmlx5(lab: &Lab) -> TestResult {
    let (theirs, ours) = (format!("{C_PROGRAMS}/fast_keys mlx5_1"), "fast_keys -d devx:mlx5_0");
    let refused = "a closed key is refused";
    let said = lab.call(lab.serve_tcp(FAR, &theirs)?, &format!("{ours} 10.0.0.2"))?;
    assert!(said.contains("8 rounds, and a closed key is refused"), "{said}");
    for shape in ["", "--window", "--rereg"] {
        let server = lab.serve_tcp("", &format!("{ours} --listen {shape}"))?;
        let said = lab.call(server, &format!("{FAR} {theirs} 10.0.0.1"))?;
        assert!(said.contains("8 rounds, and a closed key is refused"), "{said}");
        let said = lab.check(&format!("{ours} {shape} 2>&1"), TRAFFIC)?;
        assert!(said.contains(refused), "{said}");
    }
    Ok(())
}

/// An initiator and a target of ours, and of libmlx5: each at both ends. Ours wants a handshake, or does not.
fn dynamic_connections_are_those_of_libmlx5(lab: &Lab) -> TestResult {
    let theirs = format!("{C_PROGRAMS}/dynamic mlx5_1 0");
    for option in ["", "--handshake"] {
        let ours = format!("dynamic -d devx:mlx5_0 {option}");
        let by_ours = lab.call(lab.serve_tcp(FAR, &theirs)?, &format!("{ours} 10.0.0.2"))?;
        let server = lab.serve_tcp("", &format!("{ours} --listen"))?;
        let by_theirs = lab.call(server, &format!("{FAR} {theirs} 10.0.0.1"))?;
        for said in [&by_ours, &by_theirs] {
            for part in ["8 rounds\n", "8 rounds answered", "a wrong access key is refused"] {
                assert!(said.contains(part), "{said}");
            }
        }
        assert!(by_theirs.contains("its key is closed"), "{by_theirs}");
    }
    Ok(())
}

/// Writes, reads, atomics and messages with immediate data of each service, libmlx5 at either end.
fn operations_are_those_of_libmlx5(lab: &Lab) -> TestResult {
    for service in ["rc", "uc", "xrc"] {
        let theirs = format!("{C_PROGRAMS}/operations mlx5_1 0 {service}");
        let ours = format!("operations -d devx:mlx5_0 --service {service}");
        let by_ours = lab.call(lab.serve_tcp(FAR, &theirs)?, &format!("{ours} 10.0.0.2"))?;
        let server = lab.serve_tcp("", &format!("{ours} --listen"))?;
        let by_theirs = lab.call(server, &format!("{FAR} {theirs} 10.0.0.1"))?;
        for said in [by_ours, by_theirs] {
            for part in ["8 rounds by", "8 rounds answered"] {
                assert!(said.contains(part), "{service}: {said}");
            }
        }
    }
    Ok(())
}

/// Datagrams to a group of IPv4: librdmacm's `mckey` hears ours, and we hear its. Two queue pairs of ours hear a third
/// one's, over IPv6.
fn groups_are_those_of_librdmacm(lab: &Lab) -> TestResult {
    lab.check("modprobe rdma_ucm && [ -e /dev/infiniband/rdma_cm ]", SOON)?;
    let ours = "stdbuf -oL multicast -d devx:mlx5_0";
    let theirs = format!("{FAR} stdbuf -oL mckey -m {GROUP} -b 10.0.0.2");
    let server =
        lab.serve(&format!("{theirs} > /tmp/mckey; cat /tmp/mckey"), "grep -q 'receiving data transfers' /tmp/mckey")?;
    let said = lab.call(server, &format!("{ours} --send {GROUP}"))?;
    assert!(said.contains("10 datagrams sent") && said.contains("return status 0"), "{said}");
    let server = lab.serve(
        &format!("{ours} --listen {GROUP} > /tmp/multicast; cat /tmp/multicast"),
        "grep -q listening /tmp/multicast",
    )?;
    let said = lab.call(server, &format!("{theirs} -s"))?;
    assert!(said.contains("10 datagrams of 100 bytes heard") && said.contains("return status 0"), "{said}");
    let said = lab.check(&format!("{ours} 2>&1"), TRAFFIC)?;
    assert_eq!(said.matches("10 datagrams of 100 bytes heard").count(), 2, "{said}");
    Ok(())
}

/// The card's clock has the rate that libmlx5 tells, and goes on from what libmlx5 reads before to what it reads after.
fn our_clock_is_that_of_libmlx5(lab: &Lab) -> TestResult {
    let theirs = format!("{C_PROGRAMS}/now mlx5_0 0");
    let said = lab.check(&format!("{theirs} && timestamps devx:mlx5_0 2>&1 && {theirs}"), TRAFFIC)?;
    let times: Vec<u64> = said
        .lines()
        .filter_map(|line| line.strip_prefix("now ").or(line.split_once(" at ").map(|(_, rest)| rest)))
        .filter_map(|rest| rest.split([' ', ',']).next()?.parse().ok())
        .collect();
    assert_eq!(times.len(), 9, "{said}");
    assert!(times.is_sorted(), "{said}");
    let rates: BTreeSet<&str> =
        said.lines().filter_map(|line| line.split_once(" at ")?.1.strip_suffix(" kHz")).collect();
    assert_eq!(rates.len(), 1, "{said}");
    Ok(())
}

/// libmlx5 and we are told the same of the order of bytes, before RTS and in it; and it is true: of each message, who
/// sees the last byte has all of it.
fn bytes_come_in_the_order_that_libmlx5_tells(lab: &Lab) -> TestResult {
    let said = lab.check(&format!("{C_PROGRAMS}/data_in_order mlx5_0 0 2>&1"), TRAFFIC)?;
    assert!(said.contains("libmlx5 polled 100 messages in order"), "{said}");
    let said = lab.check("poll_data -d devx:mlx5_0 -i 100 2>&1", TRAFFIC)?;
    assert!(said.contains("data in order: before RTS false, card true, card and processors true"), "{said}");
    assert!(said.contains("polled: 100 messages of 8192 bytes"), "{said}");
    Ok(())
}

/// Our ends of a connection agree on the options (ECE) on which libmlx5's agree; and events that we moderate wait for
/// the period, as those do that libmlx5 moderates (`ibv_modify_cq`).
fn options_and_events_are_those_of_libmlx5(lab: &Lab) -> TestResult {
    let theirs = lab.check(&format!("{C_PROGRAMS}/ece mlx5_0 0 && {C_PROGRAMS}/moderation mlx5_0 0"), TRAFFIC)?;
    let ours = lab.check("tuning -d devx:mlx5_0 2>&1", TRAFFIC)?;
    let agreed = |said: &str| Some(said.split_once("both ends agreed on ")?.1.lines().next()?.to_owned());
    assert!(agreed(&theirs).is_some() && agreed(&theirs) == agreed(&ours), "{theirs}{ours}");
    for said in [&theirs, &ours] {
        assert!(said.contains("us, and moderated in "), "{said}");
    }
    Ok(())
}

/// While we have reserved numbers of queue pairs, libmlx5 gets others, more than one object has; all are given back.
fn reserved_numbers_are_libmlx5_s_or_ours(lab: &Lab) -> TestResult {
    let theirs = format!("{C_PROGRAMS}/reserved_qpns mlx5_0 0");
    let said = lab.check(&format!("reserved_qpns -d devx:mlx5_0 {theirs} 2>&1 && {theirs} 2>&1"), TRAFFIC)?;
    let runs: Vec<(u32, u32)> = said
        .lines()
        .filter_map(|line| line.split_once("reserved 0x")?.1.split_once(" to 0x"))
        .filter_map(|(first, last)| Some((hex(first)?, hex(last)?)))
        .collect();
    let [ours, theirs, again] = runs[..] else { return Err(said.into()) };
    assert_eq!((ours.1 - ours.0, theirs.1 - theirs.0), (63, 99), "{said}");
    assert!(ours.1 < theirs.0 || theirs.1 < ours.0, "{said}");
    assert_eq!(again.0, ours.0, "{said}");
    Ok(())
}

/// A number in hexadecimal digits.
fn hex(digits: &str) -> Option<u32> {
    u32::from_str_radix(digits.trim(), 16).ok()
}

/// A process exports its context, a protection domain, a memory region and memory on the card to another one, which
/// does RC traffic with them: ours to one in C on libibverbs, that one to ours, ours to ours.
fn processes_share_what_they_export(lab: &Lab) -> TestResult {
    let theirs = format!("{C_PROGRAMS}/shared");
    let (export, import) = ("shared -d devx:mlx5_0 --socket", "shared --import --socket");
    let pairs: [(&str, &str); IMPORTS] =
        [(export, &format!("{theirs} import")), (&format!("{theirs} export"), import), (export, import)];
    for (round, (export, import)) in pairs.into_iter().enumerate() {
        let socket = format!("/tmp/shared{round}");
        // The C program takes the device after the socket.
        let device = if export.contains(C_PROGRAMS) { "mlx5_0" } else { "" };
        let listens = format!("grep -q ' 00010000 .* {socket}$' /proc/net/unix");
        let server = lab.serve(&format!("{export} {socket} {device}"), &listens)?;
        let said = lab.call(server, &format!("{import} {socket}"))?;
        assert!(said.contains("exported, and read what was written"), "{said}");
        assert!(said.contains("imported, and a deregistered key is refused"), "{said}");
        if !export.contains(C_PROGRAMS) {
            assert!(said.contains("not destroyed"), "{said}");
        }
        if !import.contains(C_PROGRAMS) {
            assert!(said.contains("77777 (protection domain) is no handle of an object of this context"), "{said}");
        }
    }
    Ok(())
}

/// A dma-buf that another process has made of its memory.
fn memory_of_a_dma_buf_is_written_and_read(lab: &Lab) -> TestResult {
    let listens = "grep -q ' 00010000 .* /tmp/dma_buf$' /proc/net/unix";
    let server = lab.serve(&format!("{C_PROGRAMS}/dma_buf /tmp/dma_buf"), listens)?;
    let said = lab.call(server, "dma_buf -d devx:mlx5_0 --socket /tmp/dma_buf")?;
    assert!(said.contains("handed over, and what was written is there"), "{said}");
    assert!(said.contains("40000 bytes of a dma-buf were written and read"), "{said}");
    assert_eq!(said.matches("the file is no dma-buf, or ends before").count(), 2, "{said}");
    Ok(())
}

/// Frames of one Ethernet type over raw Ethernet queues, polled, by events and with BlueFlame. A flow rule of the
/// kernel's directs them to us; its network devices work on meanwhile.
fn frames_pass_beside_the_kernels_own(lab: &Lab) -> TestResult {
    let frames = "frames -d devx:mlx5_0 --peer devx:mlx5_1";
    let said = lab.check(&format!("{frames} -i 300 2>&1"), TRAFFIC)?;
    assert!(said.contains("300 frames of type 0x88b5 from devx:mlx5_0 to devx:mlx5_1 and back"), "{said}");
    lab.check(&format!("{frames} -i 100 --events 2>&1"), TRAFFIC)?;
    let said = lab.check("spread -d devx:mlx5_0 --peer devx:mlx5_1 -f 32 -i 5 2>&1", TRAFFIC)?;
    assert!(said.contains("160 frames of 32 flows, each on one queue"), "{said}");
    assert!(said.contains("with a table of the last queue alone: 160 frames there"), "{said}");
    let said = lab.check(&format!("{frames} -i 300 --blue-flame 2>&1"), TRAFFIC)?;
    // Linux finds that write combining does not work here, and maps the page uncached.
    assert!(said.contains("by BlueFlame, page mapped uncached"), "{said}");
    let both = format!(
        "{frames} -i 3000 > /tmp/frames 2>&1 & for round in $(seq 5); do busybox ping -c 1 -W 20 10.0.0.2 || exit 1; done; \
         wait $! || {{ cat /tmp/frames; exit 1; }}"
    );
    lab.check(&both, TRAFFIC)?;
    Ok(())
}

/// A send queue of ours that is held to a rate of the kernel's: no frame is early, and without it all are faster.
fn frames_go_out_at_their_rate(lab: &Lab) -> TestResult {
    let time = |rate: &str| -> Result<u64, Report> {
        let said = lab.check(&format!("frames -d devx:mlx5_0 --peer devx:mlx5_1 -i 30 {rate} 2>&1"), TRAFFIC)?;
        let time = said.trim_end().rsplit_once(", in ").and_then(|(_, time)| time.strip_suffix(" ms"));
        Ok(time.ok_or_else(|| said.clone())?.parse()?)
    };
    // At 5 kbit/s, 60 bytes take 96 ms. The first goes at once.
    let (free, held) = (time("")?, time("--rate 5")?);
    assert!(held >= 29 * 96 && free < held / 2, "{free} ms free, {held} ms held");
    Ok(())
}

/// Packets of TCP that our queue sends whole, and the card in frames: Linux' network device receives them, over IPv4
/// and IPv6, and a program of its own looks at each.
fn linux_receives_what_the_card_has_divided(lab: &Lab) -> TestResult {
    let script = |addresses: &str| {
        format!(
            "{FAR} ethtool -K eth0 gro off || exit 1
            {FAR} {C_PROGRAMS}/segments eth0 3 20000 1400 > /tmp/segments 2>&1 &
            until grep -q listening /tmp/segments || ! kill -0 $!; do sleep 0.1; done
            segments -d devx:mlx5_0 --to $({FAR} cat /sys/class/net/eth0/address) {addresses} 2>&1 || exit 1
            wait $!; code=$?; cat /tmp/segments; {FAR} ethtool -K eth0 gro on; exit $code"
        )
    };
    for addresses in ["", "--source fd00::1 --destination fd00::77"] {
        let said = lab.check(&script(addresses), TRAFFIC)?;
        assert!(said.contains("3 packets of 20000 bytes in 45 frames, every checksum right"), "{said}");
    }
    Ok(())
}

/// Rules of ours in the kernel's tables: what they receive, drop and leave to the kernel, and what their counters say.
/// The kernel's network device receives what is left to it, and nothing else of those frames.
fn rules_count_and_drop_beside_the_kernels_own(lab: &Lab) -> TestResult {
    let script = "received() { cat /sys/class/infiniband/mlx5_0/device/net/*/statistics/rx_packets; }
        before=$(received)
        rules -d devx:mlx5_0 --peer devx:mlx5_1 -i 50 2>&1 && echo kernel: $(($(received) - before))";
    let said = lab.check(script, TRAFFIC)?;
    let kernel = said.lines().find_map(|line| line.strip_prefix("kernel: ")?.parse::<u32>().ok());
    // Beside them the kernel's own discovery of neighbours.
    assert!(kernel.is_some_and(|count| (50..100).contains(&count)), "{said}");
    for line in [
        "received: 50 frames of 3000 bytes to port 7001",
        "dropped: 50 frames of 3000 bytes to port 7002",
        "left: 50 frames of 3000 bytes to port 7003",
        // In tables of our own beside the kernel's: put into VXLAN where they are sent, and taken out.
        "into the tunnel: 50 frames of 3000 bytes to port 7004",
        "out of the tunnel: 50 frames of 5500 bytes to port 7004",
        // By an object that the kernel passes on, between tables of our own.
        "sampled from: 50 frames of 3000 bytes to port 7005",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let samples = said.lines().find_map(|line| line.strip_prefix("samples: ")?.split_once(' ')?.0.parse::<u32>().ok());
    assert!(samples.is_some_and(|count| (1..50).contains(&count)), "one of three in the mean: {said}");
    // The same inside of VXLAN, at a port that the kernel's card is told.
    let said = lab.check("rules -d devx:mlx5_0 --peer devx:mlx5_1 -i 50 --vxlan 8472 2>&1", TRAFFIC)?;
    for line in ["received: 50 frames of 5500 bytes to port 7001", "dropped: 50 frames of 5500 bytes to port 7002"] {
        assert!(said.contains(line), "{said}");
    }
    Ok(())
}

/// Port events arrive when the kernel takes the port down and up.
fn events_come(lab: &Lab) -> TestResult {
    let watch =
        lab.serve("asyncwatch devx:mlx5_0 --events 2 --seconds 120 > /tmp/events", "grep -q 'port up' /tmp/events")?;
    lab.check(
        "device=$(ls /sys/class/infiniband/mlx5_0/device/net) && ip link set $device down && ip link set $device up",
        SOON,
    )?;
    lab.ended(watch)?;
    let said = lab.check("cat /tmp/events", SOON)?;
    let events: Vec<&str> = said.lines().skip(1).collect();
    assert_eq!(events, ["PORT_CHANGE: DOWN", "PORT_CHANGE: ACTIVE"]);
    lab.wait_until("the port is up", "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
}

/// Completion events of the kernel wake tasks of tokio.
fn tasks_of_an_executor_exchange_messages(lab: &Lab) -> TestResult {
    let said = lab.check("tokio devx:mlx5_0 2>&1", TRAFFIC)?;
    assert!(said.contains("1000 messages were echoed and compared"), "{said}");
    Ok(())
}

fn what_the_kernel_refuses_is_explained(lab: &Lab) -> TestResult {
    let said = refusal(lab, "mlx5 caps -d devx:mlx5_7")?;
    assert!(said.contains("there is no such device, only mlx5_0, mlx5_1"), "{said}");
    let said = refusal(lab, "rc_pingpong -d devx:mlx5_0 --ip 10.77.0.1/24")?;
    assert!(said.contains("10.77.0.1 is none of them") && said.contains("ip addr add 10.77.0.1/PREFIX dev"), "{said}");
    lab.check("chmod 600 /dev/infiniband/uverbs0", SOON)?;
    let nobody = "chroot --userspec=65534:65534 / $(command -v mlx5) caps -d devx:mlx5_0";
    let said = refusal(lab, nobody)?;
    assert!(said.contains("may not open /dev/infiniband/uverbs0") && said.contains("chmod 666"), "{said}");
    lab.check("chmod 666 /dev/infiniband/uverbs0", SOON)?;
    lab.check(&format!("ulimit -l unlimited; {nobody}"), TRAFFIC)?;
    Ok(())
}

/// A program is killed in mid-traffic, repeatedly: the kernel destroys its objects, and the card goes on.
fn a_killed_program_leaves_nothing(lab: &Lab) -> TestResult {
    let kills = rounds(10, 100);
    let before = lab.model.stderr().len();
    let script = format!(
        "set -e
         {KILL_IN_TRAFFIC}
         sent=/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets
         in_traffic() {{
             local end=$((SECONDS + 60))
             until (($(< $sent) > before)); do ((SECONDS < end)) || return 1; done
         }}
         for round in {{1..5}}; do before=$(< $sent); kill_in_traffic -d devx:mlx5_0; done"
    );
    for _ in 0..kills / 5 {
        lab.check(&script, PROBE)?;
    }
    lab.check("rc_pingpong -d devx:mlx5_0 -c -n 100 2>&1", TRAFFIC)?;
    let (begun, ended) = (counts(lab, before, "begins"), counts(lab, before, "ends"));
    assert_eq!((begun.len(), ended.len()), (kills + 1, kills + 1), "{}", lab.model.stderr());
    // The kernel adds one now and then: the port was just set up again. What a program leaves comes each time.
    let stay = ended[kills].saturating_sub(begun[0]) as usize;
    assert!(stay < kills / 2, "objects stay: {begun:?} {ended:?}");
    Ok(())
}
