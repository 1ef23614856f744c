//! Debian's unmodified mlx5_ib on the model, with libmlx5, perftest and librdmacm. Two functions of one card, each with
//! its network device in a namespace of its own.

mod common;

use std::num::ParseIntError;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Lab, PROBE, Report, SOON, THEY_LISTEN, TRAFFIC, TestResult, assert_lawful, build};
use mlx5_lab::{Guest, GuestBuilder, Model, Software, rounds, verbs_program};
use tempfile::TempDir;

/// Loads the drivers, gives the functions' network devices the namespaces `a` and `b` and the addresses 10.0.0.1 and
/// .2, and waits until the kernel has put those into the GID tables.
const SET_UP: &str = r#"
set -e
modprobe mlx5_ib
modprobe ib_uverbs
modprobe rdma_ucm
names=(a b)
index=0
for device in mlx5_0 mlx5_1; do
    name=${names[$index]}
    index=$((index + 1))
    ip netns add $name
    ip link set $(ls /sys/class/infiniband/$device/device/net) netns $name name eth0
    ip -n $name link set lo up
    ip -n $name addr add 10.0.0.$index/24 dev eth0
    ip -n $name link set eth0 up
done
for device in mlx5_0 mlx5_1; do
    ready=0
    for wait in $(seq 300); do
        if grep -q ACTIVE /sys/class/infiniband/$device/ports/1/state &&
            grep -qi 'ffff:0a00:' /sys/class/infiniband/$device/ports/1/gids/1; then ready=1; break; fi
        sleep 0.1
    done
    [ $ready = 1 ] || { echo "$device: no GID of an IPv4 address on an active port"; exit 1; }
done
# The kernel gives a neighbour's address one second, which a busy machine may miss.
for wait in $(seq 30); do ip netns exec b busybox ping -c 1 -W 1 10.0.0.1 && exit; done
exit 1
"#;

/// Runs a command in the server's namespace.
const A: &str = "ip netns exec a";
/// Runs a command in the client's namespace.
const B: &str = "ip netns exec b";

/// Path in the guest of the programs compiled from `verbs/`.
const C_PROGRAMS: &str = "/opt/verbs";
/// The programs of `verbs/`.
const PROGRAMS: &[&str] = &[
    "clock",
    "packet_clock",
    "traffic",
    "flow_counters",
    "rate_limit",
    "on_demand",
    "page_faults",
    "streams",
    "dynamic",
    "implicit",
    "keys",
    "resize",
    "ece",
    "source_port",
    "memory",
    "windows",
    "events",
];

struct Verbs {
    lab: Lab,
    _programs: TempDir,
}

impl Verbs {
    fn boot() -> Result<Self, Report> {
        Self::boot_on(&[], Guest::builder("mlx5_ib").key_cache())
    }

    /// A guest on a card started with these options.
    fn boot_on(options: &[&str], guest: GuestBuilder) -> Result<Self, Report> {
        let build = build()?;
        let model = Model::start_saying(&build, 2, options, "warn,mlx5_sim::engine::dynamic=debug")?;
        let [first, second] = model.sockets() else { return Err("two sockets".into()) };
        let programs = tempfile::tempdir()?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs");
        for program in PROGRAMS {
            verbs_program(&sources.join(program).with_extension("c"), &programs.path().join(program))?;
        }
        let ucx = Software::ucx()?;
        ucx.compile(&sources.join("ucx.c"), &programs.path().join("ucx"), ["libucp.so.0", "libucs.so.0"])?;
        let guest = guest.nic(first).nic(second).programs(&build);
        let guest = guest.share(programs.path(), C_PROGRAMS).share(ucx.folder(), ucx.place()).boot()?;
        let verbs = Verbs { lab: Lab { guest, model }, _programs: programs };
        verbs.lab.check(SET_UP, PROBE)?;
        Ok(verbs)
    }

    /// Runs a program that exchanges addresses over TCP, as server in `a` and as client in `b`; returns the output of
    /// both.
    fn pair(&self, program: &str, server: &str, client: &str) -> Result<String, Report> {
        let server = self.lab.serve_tcp(A, &format!("{program} {server}"))?;
        self.lab.call(server, &format!("{B} {program} {client}"))
    }

    /// The same for a program that the kernel's connection manager connects.
    fn managed(&self, program: &str, server: &str, client: &str) -> Result<String, Report> {
        let server = self.lab.serve(&format!("{A} {program} {server}"), THEY_LISTEN)?;
        self.lab.call(server, &format!("{B} {program} {client}"))
    }

    /// One of rdma-core's pingpongs.
    fn pingpong(&self, program: &str, options: &str) -> Result<String, Report> {
        self.pair(program, &format!("-d mlx5_0 -g 1 {options}"), &format!("-d mlx5_1 -g 1 {options} 10.0.0.1"))
    }

    /// One of perftest's programs.
    fn perftest(&self, command: &str) -> Result<String, Report> {
        let (program, options) = command.split_once(' ').unwrap_or((command, ""));
        let said = self.pair(
            program,
            &format!("-d mlx5_0 -x 1 -F {options}"),
            &format!("-d mlx5_1 -x 1 -F {options} 10.0.0.1"),
        )?;
        assert!(said.contains("#bytes"), "{command}:\n{said}");
        Ok(said)
    }

    /// One of the programs of `verbs/`, with its arguments; it prints `end` on success.
    fn own(&self, command: &str, end: &str) -> TestResult {
        let said = self.lab.check(&format!("{A} {C_PROGRAMS}/{command} 2>&1 </dev/null"), TRAFFIC)?;
        assert!(said.contains(end), "{command}: {said}");
        Ok(())
    }

    /// Counters of the first device's port: from below which group, and their names.
    fn counters<const N: usize>(&self, names: [(&str, &str); N]) -> Result<Vec<u64>, Report> {
        let files = names.map(|(group, name)| format!(" /sys/class/infiniband/mlx5_0/ports/1/{group}/{name}"));
        let said = self.lab.check(&format!("cat{}", files.concat()), SOON)?;
        Ok(said.lines().map(|line| line.trim().parse()).collect::<Result<_, _>>()?)
    }
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn libmlx5_perftest_and_librdmacm_live_on_the_model() -> TestResult {
    let verbs = Verbs::boot()?;
    attributes(&verbs)?;
    pingpongs(&verbs)?;
    perftest(&verbs, PERFTEST)?;
    ucx(&verbs)?;
    verbs.own("clock mlx5_0 1", "stamped at 156250 kHz")?;
    verbs.own("packet_clock a b 10.0.0.2", "both obey and stamp")?;
    verbs.own("flow_counters mlx5_0 1 b 10.0.0.1", "counted each")?;
    verbs.own("on_demand mlx5_0 1", "pages stay where they are")?;
    refused_on_demand(&verbs)?;
    verbs.own("keys mlx5_0 1", "keys of every shape")?;
    verbs.own("resize mlx5_0 1", "grew and shrank")?;
    verbs.own("ece mlx5_0 1", "both ends agreed on 0x10000000")?;
    verbs.own("source_port mlx5_0 1", "changed the source port three times")?;
    rates_are_kept(&verbs)?;
    counters(&verbs)?;
    port_events(&verbs)?;
    verbs.lab.assert_quiet()?;
    reloaded(&verbs)?;
    verbs.lab.assert_quiet()?;
    assert_lawful(&verbs.lab.model);
    own_programs(&verbs)?;
    let Lab { guest, mut model } = verbs.lab;
    assert!(model.runs(), "the model died:\n{}", model.stderr());
    guest.power_off()?;
    Ok(())
}

/// What a ConnectX-7 has alone: regions on demand, by faults of memory, and streams of DC initiators. Its real-time
/// clock is on, and it combines writes, so that Linux and libmlx5 use BlueFlame. It also runs a part of the other
/// test's programs, so that both guests take about as long.
#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn a_connectx7_has_pages_on_demand_and_streams() -> TestResult {
    let linuxptp = Software::linuxptp()?;
    let guest = Guest::builder("mlx5_ib-connectx7").share(linuxptp.folder(), linuxptp.place());
    let options = ["--profile", "connectx7", "--real-time-clock", "--write-combining", "--stats", "1"];
    let verbs = Verbs::boot_on(&options, guest)?;
    work_requests_are_copied(&verbs)?;
    clocks_follow_each_other(&verbs)?;
    verbs.own("packet_clock a b 10.0.0.2", "both obey and stamp")?;
    is_the_kernels_clock(&verbs)?;
    verbs.own("page_faults mlx5_0 1", "pages came and went")?;
    verbs.own("implicit mlx5_0 1", "all addresses are one region")?;
    for options in ["-o", "-o -P", "-O", "-O -P"] {
        verbs.pingpong("ibv_rc_pingpong", &format!("-n 100 -c {options}"))?;
    }
    pages_come_when_our_queue_pairs_need_them(&verbs)?;
    verbs.own("streams mlx5_0 1", "each stream for itself")?;
    our_streams_go_on(&verbs)?;
    perftest(&verbs, PERFTEST_BY_OTHER_TRANSPORTS)?;
    connection_manager(&verbs)?;
    verbs.lab.assert_quiet()?;
    assert_lawful(&verbs.lab.model);
    let Lab { guest, mut model } = verbs.lab;
    assert!(model.runs(), "the model died:\n{}", model.stderr());
    guest.power_off()?;
    Ok(())
}

/// Linux finds that write combining works: it maps pages so for us, and libmlx5 copies, also what it does not inline.
/// The card executes copies instead of reading the rings, and what arrives is right.
fn work_requests_are_copied(verbs: &Verbs) -> TestResult {
    const POSTS: u64 = 1000;
    let said = verbs.lab.check("frames -d devx:mlx5_0 --peer devx:mlx5_1 -i 20 --blue-flame 2>&1", TRAFFIC)?;
    assert!(said.contains("by BlueFlame, page mapped write-combining"), "{said}");
    for size in [64, 2000] {
        verbs.pingpong("ibv_rc_pingpong", &format!("-n 100 -c -s {size}"))?;
    }
    // The client posts one write after the other, and no receive.
    let counts = || -> Result<[u64; 3], Report> {
        let table = next_table(&verbs.lab.model, 1)?;
        Ok([crossed(&table, "doorbell", 2)?, crossed(&table, "doorbell", 3)?, crossed(&table, "wqe", 0)?])
    };
    let before = counts()?;
    verbs.perftest(&format!("ib_write_lat -n {POSTS} -s 64 -I 64"))?;
    let after = counts()?;
    let [doorbells, bytes, reads] = [0, 1, 2].map(|at| after[at] - before[at]);
    // Control segment, address and 64 bytes inline are two WQEBBs: copied, or read.
    let said = format!("{POSTS} posts: {doorbells} doorbells of {bytes} bytes, {reads} WQEBBs read");
    assert!(bytes > POSTS * 64 && reads < POSTS, "{said}");
    Ok(())
}

/// The next table of a function that `mlx5 sim --stats` prints.
fn next_table(model: &Model, function: usize) -> Result<String, Report> {
    let heading = format!("function {function} ");
    let tables = || model.stdout().split(&heading).skip(1).map(str::to_owned).collect::<Vec<_>>();
    // The first one that is printed may have been begun before.
    let (due, deadline) = (tables().len() + 2, Instant::now() + SOON);
    while tables().len() < due {
        if Instant::now() > deadline {
            return Err(format!("no table of function {function}:\n{}", model.stdout()).into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(tables().swap_remove(due - 2))
}

/// A number of the row of a purpose.
fn crossed(table: &str, purpose: &str, column: usize) -> Result<u64, Report> {
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = row.into_iter().find(|row| row.first() == Some(&purpose)).ok_or("no row")?;
    Ok(row.get(column + 1).ok_or("no column")?.parse()?)
}

/// Streams of our DC initiator, over DevX: one is in error, and taken out of it. The target is libmlx5's, then ours.
fn our_streams_go_on(verbs: &Verbs) -> TestResult {
    let ours = format!("{A} dynamic -d devx:mlx5_0 --streams");
    let server = verbs.lab.serve_tcp(B, &format!("{C_PROGRAMS}/dynamic mlx5_1 0"))?;
    for said in
        [verbs.lab.call(server, &format!("{ours} 10.0.0.2"))?, verbs.lab.check(&format!("{ours} 2>&1"), TRAFFIC)?]
    {
        for part in ["8 rounds answered", "a wrong access key is refused", "its stream goes on"] {
            assert!(said.contains(part), "{said}");
        }
    }
    Ok(())
}

/// How far from each other, in nanoseconds, two clocks may be that are steered: they are read by an emulated processor,
/// on a host that is busy.
const APART: i64 = 300_000;
/// How much faster the clock is that the other one follows, in billionths: in the time between two updates that alone
/// would be two times [`APART`].
const FASTER: i64 = 10_000_000;

/// linuxptp steers the clock of `b` after that of `a`: phc2sys by reading both, ptp4l by packets with the times that
/// the card stamps, over Ethernet and over UDP. Time and frequency are far apart at first.
fn clocks_follow_each_other(verbs: &Verbs) -> TestResult {
    const PTP4L: &str = "ptp4l -i eth0 -m --logSyncInterval=-4 --logMinDelayReqInterval=-4 --logAnnounceInterval=-2 \
        --summary_interval=-4 --pi_proportional_const=4 --pi_integral_const=1 --tx_timestamp_timeout=10000";
    let run = Software::LINUXPTP;
    let leads = |transport| {
        let sockets = "--uds_address=/tmp/leads --uds_ro_address=/tmp/leads-ro";
        format!("{A} {run} {PTP4L} {transport} {sockets} --serverOnly=1 >/tmp/leads.log 2>&1 & leads=$!")
    };
    let follows = |transport| {
        let sockets = "--uds_address=/tmp/follows --uds_ro_address=/tmp/follows-ro";
        format!("{B} {run} {PTP4L} {transport} {sockets} --clientOnly=1")
    };
    for (leads, follows) in [
        ("leads=".to_owned(), format!("{run} phc2sys -s $a -c $b -O 0 -R 16 -P 4 -I 1 -m")),
        (leads("-2"), follows("-2")),
        (leads("-4"), follows("-4")),
    ] {
        let enough = rounds(10, 200);
        let said = verbs.lab.check(
            &format!(
                r#"
clock() {{ echo /dev/ptp$(ip netns exec $1 ethtool -T eth0 | sed -n 's/^PTP Hardware Clock: //p'); }}
a=$(clock a) b=$(clock b)
{run} phc_ctl $a -- freq {FASTER} set 1000000000 && {run} phc_ctl $b -- freq -20000000 set 5000 || exit 1
{leads}
{follows} >/tmp/follows.log 2>&1 & follows=$!
for wait in $(seq 1500); do
    awk '/ s2 freq/ {{ sub(/.*offset/, ""); near += $1 < {APART} && $1 > -{APART} }}
        END {{ exit near < {enough} }}' /tmp/follows.log && break
    kill -0 $follows || break
    sleep 0.1
done
kill $follows $leads; wait
cat /tmp/follows.log
"#
            ),
            TRAFFIC,
        )?;
        assert_followed(&said, enough);
    }
    Ok(())
}

/// What a program said that steered a clock: offset, the servo's state, frequency. The clock was 10^9 seconds behind,
/// and came near `enough` times, at the other clock's frequency.
fn assert_followed(said: &str, enough: usize) {
    let updates: Vec<(i64, bool, i64)> = said
        .lines()
        .filter_map(|line| {
            let mut words = line.split_once(" offset ")?.1.split_whitespace();
            let offset = words.next()?.parse().ok()?;
            let is_locked = words.next()? == "s2";
            Some((offset, is_locked, words.nth(1)?.parse().ok()?))
        })
        .collect();
    assert!(updates.first().is_some_and(|(offset, ..)| offset.abs() > 900_000_000_000_000_000), "{said}");
    let near = updates.iter().filter(|(offset, is_locked, _)| *is_locked && offset.abs() < APART);
    let mut frequencies: Vec<i64> = near.map(|(.., frequency)| *frequency).collect();
    assert!(frequencies.len() >= enough, "{said}");
    frequencies.sort_unstable();
    let middle = frequencies[frequencies.len() / 2];
    // What it takes away from the clock.
    assert!((middle + FASTER).abs() < FASTER / 2, "{middle} billionths in:\n{said}");
    let last = updates.last().map_or(0, |(offset, ..)| *offset);
    println!("{} updates, {} of them near, the last {last} ns, {middle} billionths", updates.len(), frequencies.len());
}

/// The card's real-time clock, read by ours, is what the kernel's program before has set: 10^9 seconds less 99.5.
fn is_the_kernels_clock(verbs: &Verbs) -> TestResult {
    let said = verbs.lab.check(&format!("{A} timestamps devx:mlx5_0 2>&1"), TRAFFIC)?;
    let seconds = said.lines().find_map(|line| line.strip_prefix("real time ")?.split('.').next()?.parse().ok());
    let seconds: u64 = seconds.ok_or_else(|| format!("no real time in:\n{said}"))?;
    assert!((999_999_900..1_000_001_000).contains(&seconds), "{said}");
    Ok(())
}

/// Without faults of memory ours says so before the kernel does.
fn refused_on_demand(verbs: &Verbs) -> TestResult {
    for option in ["-o", "-O"] {
        let said = verbs.lab.check(&format!("! {A} rc_pingpong -d devx:mlx5_0 -g 1 {option} 2>&1"), TRAFFIC)?;
        assert!(said.contains("memory on demand") && said.contains("mem_page_fault"), "{said}");
    }
    Ok(())
}

/// Ours over DevX, and libmlx5's at the other end, both on demand. What is ours is filled by faults alone, or in
/// advance alone, as the kernel counts it.
fn pages_come_when_our_queue_pairs_need_them(verbs: &Verbs) -> TestResult {
    let lab = &verbs.lab;
    let ours = format!("rc_pingpong -d devx:mlx5_0 -g 1 -c -s {MESSAGE} -r {RECEIVES}");
    let theirs = format!("ibv_rc_pingpong -d mlx5_1 -g 1 -c -n 100 -s {MESSAGE} -r {RECEIVES}");
    for options in ["-o", "-o -P", "-O", "-O -P"] {
        let server = lab.serve_tcp(A, &format!("{ours} -n 100 {options} --listen"))?;
        lab.call(server, &format!("{B} {theirs} {options} 10.0.0.1"))?;
        let server = lab.serve_tcp(B, &format!("{theirs} {options}"))?;
        lab.call(server, &format!("{A} {ours} -n 100 {options} 10.0.0.2"))?;
    }
    // All receives have been used; a server, whose messages have no more memory, has one buffer besides.
    let received = RECEIVES * MESSAGE / 4096;
    let registered = (RECEIVES + 1) * MESSAGE / 4096;
    for option in ["-o", "-O"] {
        let [faults, _, in_advance] = pages_of_ours(lab, &format!("{ours} {option}"), &theirs)?;
        assert!(faults >= received && in_advance == 0, "{option}: {faults} by faults, {in_advance} in advance");
        let [faults, lost, in_advance] = pages_of_ours(lab, &format!("{ours} {option} -P"), &theirs)?;
        // What the guest's kernel took away meanwhile has to come again.
        assert!(faults <= lost, "{option}: {faults} by faults, {lost} lost");
        assert!(in_advance >= registered, "{option}: {in_advance} of {registered} in advance");
    }
    Ok(())
}

/// Bytes of a message, not whole pages.
const MESSAGE: u64 = 20_000;
/// Receives posted at once.
const RECEIVES: u64 = 10;

/// What the kernel counts of regions on demand after a client has ended: pages by faults, lost, in advance. Regions
/// end with their processes, so the server still waits for messages.
fn pages_of_ours(lab: &Lab, server: &str, client: &str) -> Result<[u64; 3], Report> {
    let server = lab.serve_tcp(A, &format!("{server} -n 1000 --listen"))?;
    let said = lab.check(&format!("{B} {client} 10.0.0.1 >&2 && rdma statistic show mr"), TRAFFIC)?;
    drop(server);
    lab.wait_until("the server's region is gone", "! rdma statistic show mr | grep -q page_faults")?;
    let words: Vec<_> = said.split_whitespace().collect();
    let counted = |name| -> Result<u64, ParseIntError> {
        words.windows(2).filter(|pair| pair[0] == name).map(|pair| pair[1].parse::<u64>()).sum()
    };
    Ok([counted("page_faults")?, counted("page_invalidations")?, counted("page_prefetch")?])
}

fn attributes(verbs: &Verbs) -> TestResult {
    let said = verbs.lab.check("ibv_devinfo -v -d mlx5_0", SOON)?;
    for expected in [
        "fw_ver:\t\t\t\t16.35.4030",
        "vendor_part_id:\t\t\t4119",
        "board_id:\t\t\tSIM0000000005",
        "state:\t\t\tPORT_ACTIVE (4)",
        "link_layer:\t\tEthernet",
        "max_mtu:\t\t4096 (5)",
        "atomic_cap:\t\t\tATOMIC_HCA (1)",
        "GID[  1]:\t\t::ffff:10.0.0.1, RoCE v2",
        "MEM_WINDOW\n",
        "MEM_WINDOW_TYPE_2B\n",
        "max_mw:\t\t\t\t16777216",
        "hca_core_clock:\t\t\t156250kHZ",
        "maximum available device memory:\t131072Bytes",
        "general_odp_caps:\n\trc_odp_caps:\n\t\t\t\t\tNO SUPPORT\n",
    ] {
        assert!(said.contains(expected), "{expected:?} in:\n{said}");
    }
    Ok(())
}

fn pingpongs(verbs: &Verbs) -> TestResult {
    // -c compares the received data.
    verbs.pingpong("ibv_rc_pingpong", "-n 200 -c")?;
    verbs.pingpong("ibv_rc_pingpong", "-n 200 -e")?;
    verbs.pingpong("ibv_uc_pingpong", "-n 200 -c")?;
    verbs.pingpong("ibv_ud_pingpong", "-n 200 -c")?;
    verbs.pingpong("ibv_srq_pingpong", "-n 200 -c")?;
    let said = verbs.pingpong("ibv_xsrq_pingpong", "-n 200")?;
    assert_eq!(said.matches("success").count(), 2, "{said}");
    Ok(())
}

/// perftest's programs, the transports of each, and options: polling, by events, inline, several queue pairs in both
/// directions. Latency by events is left out. There perftest requests the next event before it polls the completion of
/// the last, so an event comes at once; it polls once an event and posts more than it has seen completed, and its send
/// queue of one entry is full.
const PERFTEST: Perftest = &[
    ("ib_send_bw -n 200", &["RC", "UC", "UD"], &["", "-e -b -q 4", "-s 32 -I 64"]),
    ("ib_send_lat -n 100", &["RC", "UC", "UD"], &["", "-s 32 -I 64"]),
    ("ib_write_bw -n 200", &["RC", "UC"], &["", "-b -q 4", "-s 32 -I 64"]),
    ("ib_write_lat -n 100", &["RC", "UC"], &["", "-s 32 -I 64"]),
    ("ib_read_bw -n 200", &["RC"], &["", "-e -b -q 4"]),
    ("ib_read_lat -n 100", &["RC"], &[""]),
    ("ib_atomic_bw -n 200", &["RC"], &["", "-e -b -q 4 -A CMP_AND_SWAP"]),
    ("ib_atomic_lat -n 100", &["RC"], &["", "-A CMP_AND_SWAP"]),
];

/// The same over XRC and DC.
const PERFTEST_BY_OTHER_TRANSPORTS: Perftest = &[
    ("ib_send_bw -n 200", &["XRC"], &[""]),
    ("ib_write_bw -n 200", &["XRC"], &[""]),
    ("ib_read_bw -n 200", &["XRC"], &[""]),
    ("ib_atomic_bw -n 200", &["XRC"], &["", "-A CMP_AND_SWAP"]),
    ("ib_send_bw -n 200", &["DC"], &["", "-s 32 -I 64"]),
    ("ib_send_lat -n 100", &["DC"], &[""]),
    ("ib_write_bw -n 200", &["DC"], &["", "-s 32 -I 64"]),
    ("ib_read_bw -n 200", &["DC"], &[""]),
    ("ib_atomic_bw -n 200", &["DC"], &["", "-A CMP_AND_SWAP"]),
];

/// Programs, transports and options of perftest.
type Perftest = &'static [(&'static str, &'static [&'static str], &'static [&'static str])];

fn perftest(verbs: &Verbs, programs: Perftest) -> TestResult {
    for (program, transports, ways) in programs {
        for (transport, way) in transports.iter().flat_map(|transport| ways.iter().map(move |way| (transport, way))) {
            verbs.perftest(&format!("{program} -c {transport} {way}"))?;
        }
    }
    Ok(())
}

/// UCX's transports, which have code of their own for the card's queues; whether they access remote memory; and further
/// variables.
const UCX: &[(&str, &str, &str)] = &[("rc_x", "rma", ""), ("dc_x", "rma", ""), ("ud_x", "", "")];
/// Who of dynamic connections wants a handshake: the initiator, or the target.
const WITH_HANDSHAKE: [&str; 2] = ["UCX_DC_MLX5_DCI_FULL_HANDSHAKE=y", "UCX_DC_MLX5_DCT_FULL_HANDSHAKE=y"];

/// Messages, and puts, gets and atomics by the card, between two workers of UCX.
fn ucx(verbs: &Verbs) -> TestResult {
    let handshakes = || verbs.lab.model.stderr().matches("connects by a handshake").count();
    for case in UCX {
        ucx_by(verbs, case)?;
    }
    let mut before = handshakes();
    assert_eq!(before, 0, "nobody wants a handshake");
    for variable in WITH_HANDSHAKE {
        ucx_by(verbs, &("dc_x", "rma", variable))?;
        let after = handshakes();
        assert!(after > before, "{variable}: no handshake");
        before = after;
    }
    Ok(())
}

fn ucx_by(verbs: &Verbs, (transport, what, more): &(&str, &str, &str)) -> TestResult {
    let environment = format!("{} UCX_TLS={transport} UCX_NET_DEVICES=mlx5_0:1 {more}", Software::UCX);
    let program = format!("{A} env {environment} UCX_ATOMIC_MODE=device {C_PROGRAMS}/ucx {what} 2>&1");
    let said = verbs.lab.check(&program, TRAFFIC)?;
    assert!(said.contains("UCX's contents are right"), "{said}");
    // Atomics have a lane of their own, or go by messages.
    assert_eq!(said.contains(" amo#0 "), *what == "rma", "{said}");
    Ok(())
}

/// The kernel's connection manager: MADs over queue pair 1.
fn connection_manager(verbs: &Verbs) -> TestResult {
    let said = verbs.managed("rping", "-s -a 10.0.0.1 -C 20 -V -v", "-c -a 10.0.0.1 -C 20 -V -v")?;
    assert!(said.contains("ping data: rdma-ping-19"), "{said}");
    for program in ["ucmatose", "udaddy"] {
        let said = verbs.managed(program, "-b 10.0.0.1", "-s 10.0.0.1")?;
        assert_eq!(said.matches("return status 0").count(), 2, "{said}");
    }
    // Sockets. Both ends need the same options.
    let said = verbs.managed("rstream", "-b 10.0.0.1 -S 65536 -C 20 -T v", "-s 10.0.0.1 -S 65536 -C 20 -T v")?;
    assert_eq!(said.matches("custom    64k     20").count(), 2, "{said}");
    // A multicast group.
    let server = verbs.lab.serve(
        &format!("{A} stdbuf -oL mckey -m 239.1.2.3 -b 10.0.0.1 > /tmp/mckey; cat /tmp/mckey"),
        "grep -q 'receiving data transfers' /tmp/mckey",
    )?;
    let said = verbs.lab.call(server, &format!("{B} mckey -m 239.1.2.3 -b 10.0.0.2 -s"))?;
    assert!(said.contains("receiving data transfers") && said.matches("return status 0").count() == 2, "{said}");
    Ok(())
}

/// libmlx5's rate limits of a raw packet queue pair, as the card keeps them.
fn rates_are_kept(verbs: &Verbs) -> TestResult {
    verbs.own("rate_limit mlx5_0 1", "frames keep their rate")
}

/// Known traffic is counted by the default queue counter and by one that the queue pairs are bound to: 10 writes, 5
/// reads, 4 sends of 64 bytes, and one send that waits for a receive.
fn counters(verbs: &Verbs) -> TestResult {
    let names = [
        ("hw_counters", "rx_write_requests"),
        ("hw_counters", "rx_read_requests"),
        ("hw_counters", "out_of_buffer"),
        ("hw_counters", "rnr_nak_retry_err"),
        ("counters", "port_xmit_packets"),
        ("counters", "port_rcv_packets"),
        ("counters", "port_xmit_data"),
        ("counters", "port_rcv_data"),
        ("counters", "unicast_xmit_packets"),
        ("counters", "multicast_xmit_packets"),
        ("counters", "port_xmit_discards"),
    ];
    let before = verbs.counters(names)?;
    verbs.own("traffic mlx5_0 1", "sent")?;
    let counted: Vec<u64> = verbs.counters(names)?.iter().zip(&before).map(|(after, before)| after - before).collect();
    let [writes, reads, buffers, retries, sent, received, data_sent, data_received, unicast, multicast, discards] =
        counted[..]
    else {
        return Err("a counter is missing".into());
    };
    assert_eq!((writes, reads), (10, 5), "{counted:?}");
    assert!(buffers >= 1 && retries >= 1, "{counted:?}");
    // The port sends to itself, so what is sent is received: requests, responses, acknowledgements. Data is in dwords.
    assert_eq!((sent, data_sent), (received, data_received), "{counted:?}");
    assert!(sent >= 10 + 2 * 5 + 4 && data_sent * 4 >= (10 + 5 + 4) * 64, "{counted:?}");
    assert_eq!((unicast, multicast, discards), (sent, 0, 0), "{counted:?}");

    let said = verbs.lab.check("rdma statistic show link mlx5_0/1", SOON)?;
    assert!(said.contains(&format!("rx_write_requests {} ", before[0] + 10)), "{said}");
    let said = verbs.lab.check(
        &format!(
            "set -e
            rdma statistic qp set link mlx5_0/1 auto type on
            rm -f /tmp/hold; mkfifo /tmp/hold
            {C_PROGRAMS}/traffic mlx5_0 1 < /tmp/hold > /tmp/traffic & traffic=$!
            exec 3> /tmp/hold
            for wait in $(seq 600); do grep -q sent /tmp/traffic && break; sleep 0.1; done
            rdma statistic qp show link mlx5_0/1
            exec 3>&-
            wait $traffic
            rdma statistic qp set link mlx5_0/1 auto off"
        ),
        TRAFFIC,
    )?;
    assert!(said.contains("rx_write_requests 10 ") && said.contains("rx_read_requests 5 "), "{said}");
    // What a destroyed counter counted remains in the port's.
    assert_eq!(verbs.counters([names[0]])?, [before[0] + 20]);
    Ok(())
}

fn port_events(verbs: &Verbs) -> TestResult {
    let said = verbs.lab.check(
        "ibv_asyncwatch -d mlx5_0 > /tmp/events 2>&1 & watch=$!
        for wait in $(seq 600); do [ -s /tmp/events ] && break; sleep 0.1; done
        ip -n a link set eth0 down
        for wait in $(seq 100); do grep -q PORT_ERR /tmp/events && break; sleep 0.1; done
        ip -n a link set eth0 up
        for wait in $(seq 100); do grep -q PORT_ACTIVE /tmp/events && break; sleep 0.1; done
        kill $watch
        cat /tmp/events",
        TRAFFIC,
    )?;
    assert!(said.contains("IBV_EVENT_PORT_ERR (10), port 1"), "{said}");
    assert!(said.contains("IBV_EVENT_PORT_ACTIVE (9), port 1"), "{said}");
    Ok(())
}

fn reloaded(verbs: &Verbs) -> TestResult {
    verbs.lab.check("rmmod rdma_ucm && rmmod mlx5_ib && [ ! -e /sys/class/infiniband/mlx5_0 ]", PROBE)?;
    verbs.lab.check("modprobe mlx5_ib && ls /sys/class/infiniband/mlx5_0 /sys/class/infiniband/mlx5_1", PROBE)?;
    Ok(())
}

/// Events of queue pairs and queues, memory windows, device memory. These programs cause errors on purpose, which
/// strict mode and the kernel report: they use keys beyond their rights, bind a bound window, and let a completion
/// queue overrun.
fn own_programs(verbs: &Verbs) -> TestResult {
    verbs
        .lab
        .wait_until("the GID table is filled", "grep -qi ffff:0a00: /sys/class/infiniband/mlx5_0/ports/1/gids/1")?;
    verbs.own("memory mlx5_0 1", "stored and loaded")?;
    verbs.own("windows mlx5_0 1", "windows open and close")?;
    verbs.own("events mlx5_0 1", "all came")?;
    let violations = verbs.lab.model.violations();
    assert!(!violations.is_empty());
    let expected =
        ["key does not allow the access", "key update not allowed", "entries, all unconsumed", "full after its first"];
    let others: Vec<_> = violations.iter().filter(|said| !expected.iter().any(|part| said.contains(part))).collect();
    assert!(others.is_empty(), "{others:#?}");
    Ok(())
}
