//! DPDK's testpmd of Debian, unmodified, between two wires of the model. Each has a port of it and a network device
//! of the kernel's mlx5e. The kernels count what testpmd forwards and compare its contents.

mod common;
#[path = "common/our_end.rs"]
mod our_end;
#[path = "common/tcp.rs"]
mod tcp;

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Lab, PROBE, Report, SOON, TRAFFIC, TestResult, assert_lawful, assert_quiet};
use etherparse::PacketBuilder;
use mlx5_dv::objects::Pd;
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_lab::{Build, Guest, Job, Model, Software, rounds, verbs_program};
use our_end::ends;
use tempfile::TempDir;

/// Functions in the order of their PCI addresses: `a`'s, testpmd's ports 0 and 1, `b`'s. The first two share a wire, so
/// do the last two. A card's functions hear what their switch is told of, and DPDK tells it nothing: the ports are
/// promiscuous by the kernel. That warns of S-VLAN tags unless C-VLAN tags are left alone.
///
/// EAL looks for each of its 128 possible processors in each of 32 nodes, half a minute on an emulated processor where
/// sysfs has to say no each time.
const NETWORK: &str = r#"
set -e
modprobe mlx5_ib
set -- $(lspci -D -n -d 15b3: | cut -d' ' -f1)
device() {
    for wait in $(seq 300); do
        ls /sys/bus/pci/devices/$1/net 2>/dev/null && return
        sleep 0.1
    done
    return 1
}
sysctl -q -w net.ipv6.conf.all.disable_ipv6=1
sysctl -q -w net.ipv6.conf.default.disable_ipv6=1
end() {
    ip netns add $1
    ip netns exec $1 sysctl -q -w net.ipv6.conf.all.disable_ipv6=1
    ip netns exec $1 sysctl -q -w net.ipv6.conf.default.disable_ipv6=1
    ip link set $(device $2) netns $1 name eth0
    ip -n $1 link set lo up
    ip -n $1 link set eth0 address 02:00:00:00:00:0$1
    ip -n $1 addr add 10.0.0.$3/24 dev eth0
    ip -n $1 link set eth0 up
    # With nothing lost for want of room, counts are exact.
    ip netns exec $1 ethtool -G eth0 rx 4096
    for wait in $(seq 300); do ip -n $1 link show eth0 | grep -q LOWER_UP && break; sleep 0.1; done
    ip -n $1 link show eth0 | grep -q LOWER_UP
}
end a $1 1
end b $4 2
for port in $2 $3; do
    name=$(device $port)
    ethtool -K $name rxvlan off
    ip link set $name promisc on
    ip link set $name up
done
ip -n a neigh replace 10.0.0.2 lladdr 02:00:00:00:00:0b dev eth0
ip -n b neigh replace 10.0.0.1 lladdr 02:00:00:00:00:0a dev eth0
# An address that nobody has, at port 0.
ip -n a neigh replace 10.0.0.9 lladdr $(cat /sys/class/net/$(device $2)/address) dev eth0
mount -t tmpfs none /sys/devices/system/node
mkfifo /tmp/commands
"#;

/// Sends datagrams that come back, and compares them.
const ECHO: &str = r#"
set -e
dd if=/dev/urandom of=/tmp/sent bs=1000 count=50 status=none
exec 5<>/dev/udp/10.0.0.2/7
dd if=/tmp/sent bs=1000 status=none >&5
timeout 60 dd bs=1500 count=50 status=none <&5 >/tmp/received
busybox cmp /tmp/sent /tmp/received
"#;

const PROMPT: &str = "testpmd> ";

/// Where its ports send.
const PEERS: [&str; 2] = ["set eth-peer 0 02:00:00:00:00:0a", "set eth-peer 1 02:00:00:00:00:0b"];

/// The functions of the guest become `$1`, `$2`, ..., in the order of their addresses.
const FUNCTIONS: &str = "set -- $(lspci -D -n -d 15b3: | cut -d' ' -f1)";
/// Where guests find C programs of ours.
const C_PROGRAMS: &str = "/opt/c";

/// A guest, the cards of both wires, and what has been asked of testpmd.
struct Rig {
    lab: Lab,
    far: Model,
    _programs: TempDir,
}

impl Rig {
    fn boot(name: &str) -> Result<Self, Report> {
        let (dpdk, linuxptp) = (Software::dpdk()?, Software::linuxptp()?);
        let build = Build::dev(&["mlx5"], &[])?;
        // The third function of that wire is for ourselves.
        let near = Model::start(&build, 3, &["--real-time-clock", "--profile", "connectx7", "--watch-receives"])?;
        let far = Model::start(&build, 2, &["--watch-receives"])?;
        let programs = tempfile::tempdir()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs/timed_frames.c");
        verbs_program(&source, &programs.path().join("timed_frames"))?;
        let guest = Guest::builder(name).memory_mib(3072).huge_pages_2m(192).share(dpdk.folder(), dpdk.place());
        let guest = guest.share(linuxptp.folder(), linuxptp.place()).share(programs.path(), C_PROGRAMS);
        // testpmd's driver reads the real-time clock in the BAR, which Debian's kernel lets nobody map but its own.
        let guest = guest.kernel_arg("iomem=relaxed");
        let sockets = near.sockets()[..2].iter().chain(far.sockets());
        let guest = sockets.fold(guest, |guest, socket| guest.nic(socket)).boot()?;
        let rig = Rig { lab: Lab { guest, model: near }, far, _programs: programs };
        rig.lab.check(NETWORK, PROBE)?;
        Ok(rig)
    }

    fn check(&self, script: &str) -> Result<String, Report> {
        self.lab.check(script, TRAFFIC).map_err(|error| format!("{error:?}\nand far:\n{}", self.far.stderr()).into())
    }

    /// Sets or reads the clock of port 0's function, as the kernel has it: nanoseconds.
    fn port_clock(&self, command: &str) -> Result<u64, Report> {
        self.clock(2, command)
    }

    /// The same of function `number`, from 1.
    fn clock(&self, number: usize, command: &str) -> Result<u64, Report> {
        let said = self.check(&format!(
            "{FUNCTIONS}\n\
             {} phc_ctl /dev/$(ls /sys/bus/pci/devices/${number}/ptp) -- {command}",
            Software::LINUXPTP
        ))?;
        // "set clock time to S.N or ...", "clock time is S.N or ...".
        let time = said.split_once("clock time ").and_then(|(_, rest)| rest.split_whitespace().nth(1)?.split_once('.'));
        let (seconds, nanoseconds) = time.ok_or_else(|| format!("no time in:\n{said}"))?;
        Ok(seconds.parse::<u64>()? * 1_000_000_000 + nanoseconds.parse::<u64>()?)
    }

    /// Starts what prints `count` frames of `a` that say when they are to leave.
    fn timed_frames(&self, count: usize) -> Result<Job<'_>, Report> {
        let mut receiver = self.lab.guest.start(&format!(
            "{FUNCTIONS}\n\
             {C_PROGRAMS}/timed_frames a /dev/$(ls /sys/bus/pci/devices/$2/ptp) {count} 2>&1"
        ))?;
        receiver.wait_for("ready", SOON)?;
        Ok(receiver)
    }

    /// Sends MiB from `a` to `b` over TCP, and compares them.
    fn tcp(&self, mebibytes: u64, to: &str) -> TestResult {
        self.check(&tcp::script(mebibytes, "a", "b", to))?;
        Ok(())
    }

    /// Sends `count` datagrams from `a` to port 0, each from a port of its own.
    fn datagrams(&self, count: u64, port: u16) -> TestResult {
        let send = format!("for each in $(seq {count}); do echo > /dev/udp/10.0.0.9/{port}; done");
        self.check(&format!("ip netns exec a bash -c '{send}'"))?;
        Ok(())
    }

    /// Sends `count` datagrams from one port of `a` to port 0.
    fn stream(&self, count: u64, port: u16) -> TestResult {
        let send = format!("exec 5<>/dev/udp/10.0.0.9/{port}; for each in $(seq {count}); do echo >&5; done");
        self.check(&format!("ip netns exec a bash -c '{send}'"))?;
        Ok(())
    }

    /// Datagrams, and bytes of IP, that `b`'s kernel took so far, and frames that had no room.
    fn taken_by_b(&self) -> Result<[u64; 3], Report> {
        let said = self.check("ip netns exec b cat /proc/net/snmp /proc/net/netstat")?;
        let value = |protocol: &str, name: &str| -> Result<u64, Report> {
            let mut rows = said.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
            let (names, values) = rows.next().zip(rows.next()).ok_or_else(|| format!("no {protocol} in:\n{said}"))?;
            let at = names.split(' ').position(|each| each == name).ok_or_else(|| format!("no {name} in:\n{said}"))?;
            Ok(values.split(' ').nth(at).unwrap_or_default().parse()?)
        };
        Ok([value("Udp", "NoPorts")?, value("IpExt", "InOctets")?, self.counter("b", "rx_out_of_buffer")?])
    }

    /// A counter of `ethtool -S` of `a` or `b`.
    fn counter(&self, namespace: &str, name: &str) -> Result<u64, Report> {
        let said = self.check(&format!("ip netns exec {namespace} ethtool -S eth0"))?;
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        Ok(line.ok_or_else(|| format!("no counter {name} in:\n{said}"))?.parse()?)
    }

    /// Starts testpmd with these device arguments for both ports and `options` of its own.
    fn testpmd(&self, device: &str, options: &str) -> Result<Testpmd<'_>, Report> {
        self.start([device; 2], "", options)
    }

    /// The same with device arguments for each port, and options of EAL.
    fn start(&self, [first, second]: [&str; 2], eal: &str, options: &str) -> Result<Testpmd<'_>, Report> {
        let run = format!(
            "{}\n{FUNCTIONS}\nexec 3<>/tmp/commands\n\
             dpdk dpdk-testpmd -l 0,1 --no-telemetry {eal} -a $2,{first} -a $3,{second} -- \
             --interactive --no-mlockall --total-num-mbufs=24576 --rxd=1024 --txd=1024 {options} < /tmp/commands 2>&1",
            Software::DPDK
        );
        let job = self.lab.guest.start(&run)?;
        let mut testpmd = Testpmd { rig: self, job, heard: 0, is_debugged: !eal.is_empty() };
        testpmd.wait(1, "to start")?;
        Ok(testpmd)
    }
}

/// testpmd, at its prompt.
struct Testpmd<'rig> {
    rig: &'rig Rig,
    job: Job<'rig>,
    /// Bytes of its output that were looked at.
    heard: usize,
    /// Its driver says what it does.
    is_debugged: bool,
}

impl Testpmd<'_> {
    /// Waits for so many prompts more, and returns what it said until then.
    fn wait(&mut self, prompts: usize, what: &str) -> Result<String, Report> {
        let deadline = Instant::now() + TRAFFIC;
        loop {
            let runs = self.job.runs();
            let all = self.job.so_far();
            let new = all.get(self.heard..).unwrap_or_default();
            if new.matches(PROMPT).count() >= prompts {
                self.heard = all.len();
                return Ok(new.to_owned());
            }
            if !runs || Instant::now() > deadline {
                return Err(self.rig.lab.explain(format!("testpmd was waited for {what}; it said:\n{all}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Gives a command, and returns what it said.
    fn say(&mut self, command: &str) -> Result<String, Report> {
        self.rig.lab.check(&format!("echo '{command}' > /tmp/commands"), SOON)?;
        let said = self.wait(1, command)?;
        for wrong in ["Bad arguments", "Command not found", "Ambiguous command", "Caught PMD error", "Please stop"] {
            assert!(!said.contains(wrong), "{said}");
        }
        Ok(said)
    }

    fn says(&mut self, commands: &[&str]) -> TestResult {
        commands.iter().try_for_each(|command| self.say(command).map(|_| ()))
    }

    /// Forwards in this way, from a clean count.
    fn forward(&mut self, way: &str) -> TestResult {
        self.says(&[&format!("set fwd {way}"), "clear port stats all", "start"])
    }

    /// Counts of a port, by testpmd's names.
    fn count(&mut self, port: u16, names: &[&str]) -> Result<Vec<u64>, Report> {
        let said = self.say(&format!("show port stats {port}"))?;
        let number = |name: &&str| -> Result<u64, Report> {
            let (_, rest) = said.split_once(*name).ok_or_else(|| format!("no {name} in:\n{said}"))?;
            Ok(rest.split_whitespace().next().unwrap_or_default().parse()?)
        };
        names.iter().map(number).collect()
    }

    /// Frames received and sent by a port.
    fn counts(&mut self, port: u16) -> Result<[u64; 2], Report> {
        let counts = self.count(port, &["RX-packets:", "TX-packets:"])?;
        Ok([counts[0], counts[1]])
    }

    /// Packets that port 0 received, their bytes, and those that found no room.
    fn received(&mut self) -> Result<[u64; 3], Report> {
        let counts = self.count(0, &["RX-packets:", "RX-bytes:", "RX-missed:"])?;
        Ok([counts[0], counts[1], counts[2]])
    }

    /// Waits until so many frames are printed. A command given before would have its answer torn by them.
    fn await_printed(&self, frames: u64) -> TestResult {
        let deadline = Instant::now() + TRAFFIC;
        loop {
            let all = self.job.so_far();
            let new = all.get(self.heard..).unwrap_or_default();
            let ends = new.split_inclusive('\n').filter(|line| line.contains("ol_flags: ") && line.ends_with('\n'));
            if ends.count() as u64 >= frames {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.rig.lab.explain(format!("{frames} frames were to be printed; it said:\n{all}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until port 0 has received so many frames.
    fn await_frames(&mut self, expected: u64) -> TestResult {
        let deadline = Instant::now() + SOON;
        loop {
            match self.counts(0)? {
                [received, _] if received == expected => return Ok(()),
                [received, _] if received > expected || Instant::now() > deadline => {
                    return Err(self.rig.lab.explain(format!("{received} frames received of {expected}")));
                }
                _ => {}
            }
        }
    }

    /// Frames that each queue of port 0 received since the counts were cleared.
    fn by_queue(&mut self) -> Result<Vec<u64>, Report> {
        let said = self.say("show port xstats 0")?;
        let of_queue = |line: &str| line.trim().strip_prefix("rx_q")?.split_once("_packets: ")?.1.parse().ok();
        Ok(said.lines().filter_map(of_queue).collect())
    }

    /// What it has said after `at`.
    fn since(&self, at: usize) -> String {
        self.job.so_far().split_off(at)
    }

    /// Ends it; it must end well, and its driver must have complained of nothing.
    fn quit(self) -> TestResult {
        self.rig.lab.check("echo quit > /tmp/commands", SOON)?;
        let output = self.job.wait(TRAFFIC)?;
        let said = output.text();
        assert_eq!(output.status, 0, "{said}");
        let complains = |line: &&str| line.starts_with("mlx5_");
        let complaints: Vec<_> = said.lines().filter(|_| !self.is_debugged).filter(complains).collect();
        assert!(complaints.is_empty() && !said.contains("Segmentation"), "{complaints:?} in:\n{said}");
        Ok(())
    }
}

/// Frames pass as they are, and with other MAC addresses; all are counted at both ends.
fn forwards(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    for way in ["io", "mac"] {
        let before = (rig.counter("a", "tx_packets_phy")?, rig.counter("b", "rx_packets_phy")?);
        testpmd.forward(way)?;
        rig.tcp(2, "10.0.0.2")?;
        testpmd.say("stop")?;
        let ([received, back], [_, sent]) = (testpmd.counts(0)?, testpmd.counts(1)?);
        let sent_by_a = rig.counter("a", "tx_packets_phy")? - before.0;
        let received_by_b = rig.counter("b", "rx_packets_phy")? - before.1;
        assert_eq!([received, sent, received_by_b], [sent_by_a; 3], "{way}");
        assert!(back > 0, "{way}");
    }
    Ok(())
}

/// Rules send datagrams to a queue and mark them, and drop others, by their UDP port; counters say how many.
fn rules(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    const COUNT: u64 = 50;
    testpmd.forward("rxonly")?;
    for actions in [
        "7001 / end actions count / mark id 4660 / queue index 3 / end",
        "7002 / end actions drop / end",
        "7003 / end actions rss types ipv4-udp end queues 1 2 end / end",
    ] {
        let said = testpmd.say(&format!("flow create 0 ingress pattern eth / ipv4 / udp dst is {actions}"))?;
        assert!(said.contains(" created"), "{said}");
    }
    testpmd.say("set verbose 1")?;
    let before = testpmd.by_queue()?;
    rig.datagrams(COUNT, 7002)?;
    rig.datagrams(COUNT, 7001)?;
    testpmd.await_printed(COUNT)?;
    testpmd.await_frames(COUNT)?;
    let queues: Vec<u64> = testpmd.by_queue()?.iter().zip(&before).map(|(after, before)| after - before).collect();
    assert_eq!(queues, [0, 0, 0, COUNT]);
    let said = testpmd.job.so_far();
    assert!(said.matches("FDIR matched ID=0x1234").count() as u64 >= COUNT, "{said}");
    let counted = testpmd.say("flow query 0 0 count")?;
    assert!(counted.contains(&format!("hits: {COUNT}")), "{counted}");
    testpmd.say("set verbose 0")?;
    rig.datagrams(COUNT, 7003)?;
    testpmd.await_frames(2 * COUNT)?;
    let both = testpmd.by_queue()?;
    assert!(both[0] == 0 && both[1] > 0 && both[2] > 0 && both[1] + both[2] == COUNT && both[3] == COUNT, "{both:?}");
    testpmd.says(&["flow flush 0", "stop"])
}

/// Rules by headers that follow IP's: DPDK writes what they match, and `a`'s kernel the frames, of which each rule
/// counts its own alone.
fn rules_of_headers(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    const COUNT: usize = 10;
    testpmd.forward("rxonly")?;
    for (pattern, queue) in [
        ("icmp type is 8", 1),
        ("gre k_bit is 1 / gre_key value is 7", 2),
        ("gre k_bit is 1 / gre_key value is 8", 3),
        ("gre k_bit is 0", 3),
    ] {
        let rule =
            format!("flow create 0 ingress pattern eth / ipv4 / {pattern} / end actions count / queue index {queue}");
        let said = testpmd.say(&format!("{rule} / end"))?;
        assert!(said.contains(" created"), "{pattern}: {said}");
    }
    rig.check(&format!("modprobe ip_gre; {TUNNEL}"))?;
    rig.check(&format!(
        "for each in $(seq {COUNT}); do ip netns exec a busybox ping -q -c 1 -W 1 10.0.0.9 & done; wait
        ip netns exec a bash -c 'for each in $(seq {COUNT}); do echo > /dev/udp/10.9.0.2/7; done'"
    ))?;
    testpmd.await_frames(2 * COUNT as u64)?;
    for (rule, hits) in [COUNT, COUNT, 0, 0].into_iter().enumerate() {
        let counted = testpmd.say(&format!("flow query 0 {rule} count"))?;
        assert!(counted.contains(&format!("hits: {hits}\n")), "rule {rule}: {counted}");
    }
    assert_eq!(testpmd.by_queue()?[1..], [COUNT as u64, COUNT as u64, 0]);
    rig.check("ip -n a link del gre7")?;
    testpmd.says(&["flow flush 0", "stop"])
}

/// A tunnel of `a`'s to the address that nobody has, with a key.
const TUNNEL: &str = "
ip -n a link add gre7 type gre local 10.0.0.1 remote 10.0.0.9 key 7
ip -n a addr add 10.9.0.1/24 dev gre7
ip -n a link set gre7 up
";

/// testpmd is a gateway between two tunnels: each port takes frames out of its own, and the other one puts them into
/// its peer's, whose number is another. `a`'s and `b`'s kernels are at the ends, and find contents unchanged.
fn joins_tunnels(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    rig.check(TUNNELS)?;
    testpmd.say("set raw_decap 0 eth / ipv4 / udp / vxlan / end_set")?;
    for (port, peer, address, number) in [(0, "a", 1, 7), (1, "b", 2, 8)] {
        testpmd.say(&format!(
            "set raw_encap {port} eth src is 02:00:00:00:00:09 dst is 02:00:00:00:00:0{peer} / \
             ipv4 src is 10.0.0.9 dst is 10.0.0.{address} / udp src is 50000 dst is 4789 / \
             vxlan vni is {number} / end_set"
        ))?;
        for rule in [
            format!(
                "ingress pattern eth / ipv4 / udp dst is 4789 / vxlan vni is {number} / end \
                 actions count / raw_decap index 0 / queue index 0 / end"
            ),
            format!(
                "egress pattern eth dst is 02:00:00:00:01:0{peer} / end \
                 actions count / raw_encap index {port} / end"
            ),
        ] {
            let said = testpmd.say(&format!("flow create {port} {rule}"))?;
            assert!(said.contains(" created"), "{rule}: {said}");
        }
    }
    testpmd.forward("io")?;
    rig.tcp(1, "10.8.0.2")?;
    testpmd.say("stop")?;
    let mut counted = [[0; 2]; 2];
    for (port, rule) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let said = testpmd.say(&format!("flow query {port} {rule} count"))?;
        let hits = said.lines().find_map(|line| line.trim().strip_prefix("hits: "));
        counted[port][rule] = hits.ok_or_else(|| format!("no count in:\n{said}"))?.parse::<u64>()?;
    }
    // What one port takes out, the other one puts in.
    let [[out_of_a, into_a], [out_of_b, into_b]] = counted;
    assert!(out_of_a > 0 && out_of_b > 0, "{counted:?}");
    assert_eq!([out_of_a, out_of_b], [into_b, into_a], "{counted:?}");
    rig.check("ip -n a link del vxlan7; ip -n b link del vxlan8")?;
    testpmd.says(&["flow flush 0", "flow flush 1"])
}

/// A tunnel of `a`'s to the address that nobody has, and one of `b`'s.
const TUNNELS: &str = "
set -e
modprobe vxlan
ip -n b neigh replace 10.0.0.9 lladdr 02:00:00:00:00:09 dev eth0
end() {
    ip -n $1 link add vxlan$3 type vxlan id $3 local 10.0.0.$2 remote 10.0.0.9 dstport 4789
    ip -n $1 link set vxlan$3 address 02:00:00:00:01:0$1
    ip -n $1 addr add 10.8.0.$2/24 dev vxlan$3
    ip -n $1 link set vxlan$3 up
    ip -n $1 neigh replace 10.8.0.$5 lladdr 02:00:00:00:01:0$4 dev vxlan$3
}
end a 1 7 b 2
end b 2 8 a 1
";

/// `a` hears its own datagrams back, with addresses and ports swapped, and finds their contents unchanged.
fn swaps(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    testpmd.say("set portlist 0")?;
    testpmd.forward("5tswap")?;
    rig.check(&format!("ip netns exec a bash -c '{ECHO}'"))?;
    testpmd.say("stop")?;
    assert_eq!(testpmd.counts(0)?, [50; 2]);
    testpmd.says(&["set portlist 0,1"])
}

/// What port 1 makes itself, `b`'s kernel takes for datagrams of that length, each of them or counted for want of room.
fn sends(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    rig.check("ip -n b addr add 198.18.0.2/24 dev eth0")?;
    let before = rig.taken_by_b()?;
    testpmd.says(&["set portlist 1", "set txpkts 164"])?;
    testpmd.forward("txonly")?;
    testpmd.says(&["stop", "set txpkts 64", "set portlist 0,1"])?;
    let [_, sent] = testpmd.counts(1)?;
    assert!(sent > 0);
    let deadline = Instant::now() + SOON;
    loop {
        let now = rig.taken_by_b()?;
        let [datagrams, octets, lost] = std::array::from_fn(|each| now[each] - before[each]);
        if datagrams + lost == sent {
            // Without the Ethernet header.
            assert_eq!(octets, datagrams * (164 - 14));
            break;
        }
        if Instant::now() > deadline {
            return Err(rig.lab.explain(format!("{sent} sent, {datagrams} taken, {lost} without room")));
        }
    }
    rig.check("ip -n b addr del 198.18.0.2/24 dev eth0")?;
    Ok(())
}

/// Rules count what is sent with their metadata, which testpmd's driver writes into work requests, and nothing else.
fn sends_metadata(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    // Its driver writes it where it was registered before the port's start.
    testpmd.says(&["port stop all", "port config 1 tx_metadata 4660", "port start all", "set portlist 1"])?;
    for value in [4660, 4661] {
        let rule = format!("flow create 1 egress pattern meta data is {value} / end actions count / end");
        let said = testpmd.say(&rule)?;
        assert!(said.contains(" created"), "{rule}: {said}");
    }
    testpmd.forward("txonly")?;
    testpmd.say("stop")?;
    let [_, sent] = testpmd.counts(1)?;
    assert!(sent > 0);
    let mut hits = |rule: u32| -> Result<u64, Report> {
        let said = testpmd.say(&format!("flow query 1 {rule} count"))?;
        let hits = said.lines().find_map(|line| line.trim().strip_prefix("hits: "));
        Ok(hits.ok_or_else(|| format!("no count in:\n{said}"))?.parse()?)
    };
    let deadline = Instant::now() + SOON;
    while hits(0)? != sent {
        if Instant::now() > deadline {
            return Err(rig.lab.explain(format!("{} counted of {sent} that were sent", hits(0)?)));
        }
    }
    assert_eq!(hits(1)?, 0);
    testpmd.says(&["flow flush 1", "port config 1 tx_metadata 0", "set portlist 0,1"])
}

/// Datagrams are spread over the queues by the hash of testpmd's key, and where its table says: all to one, once that
/// is changed.
fn spreads(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    const COUNT: u64 = 64;
    let said = testpmd.say("show port 0 rss-hash key")?;
    let is_key = |line: &&str| line.len() == 80 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = said.lines().map(str::trim).find(is_key).ok_or_else(|| format!("no key of 40 bytes in:\n{said}"))?;
    let key = (0..40).map(|at| u8::from_str_radix(&digits[2 * at..][..2], 16)).collect::<Result<Vec<_>, _>>()?;
    // The kernel chooses the source ports. A hash must be that of one: by chance one in 60 000 is.
    let hashes: HashSet<u32> = (1024..=u16::MAX).map(|source| toeplitz(&key, source, 7100)).collect();

    for (table, queues) in [("", [0, 1, 2, 3]), ("port config 0 rss reta (0,1),(1,1),(2,1),(3,1)", [1; 4])] {
        if !table.is_empty() {
            testpmd.say(table)?;
        }
        testpmd.say("set verbose 1")?;
        testpmd.forward("rxonly")?;
        let start = testpmd.heard;
        rig.datagrams(COUNT, 7100)?;
        testpmd.await_printed(COUNT)?;
        testpmd.await_frames(COUNT)?;
        testpmd.says(&["stop", "set verbose 0"])?;
        let said = testpmd.since(start);
        let mut of_queues = [0; 4];
        for frame in said.split("RSS hash=0x").skip(1) {
            let hash = u32::from_str_radix(frame.split_whitespace().next().unwrap_or_default(), 16)?;
            let queue = frame.split_once("RSS queue=0x").and_then(|(_, rest)| rest.split_whitespace().next());
            let queue = usize::from_str_radix(queue.unwrap_or_default(), 16)?;
            assert!(hashes.contains(&hash) && queue == queues[hash as usize % 4], "{hash:#x} in {queue}:\n{said}");
            of_queues[queue] += 1;
        }
        assert_eq!((testpmd.by_queue()?, of_queues.iter().sum()), (of_queues.to_vec(), COUNT), "{table}");
        assert!(queues.iter().all(|&queue| of_queues[queue] > 0), "{of_queues:?}");
    }
    Ok(())
}

/// Microsoft's hash of a datagram from `a`'s address to the one that nobody has.
fn toeplitz(key: &[u8], source: u16, destination: u16) -> u32 {
    let mut input = vec![10, 0, 0, 1, 10, 0, 0, 9];
    input.extend(source.to_be_bytes());
    input.extend(destination.to_be_bytes());
    let bit = |bytes: &[u8], at: usize| u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let window = |from: usize| (from..from + 32).fold(0, |window, at| window << 1 | bit(key, at));
    (0..8 * input.len()).filter(|&at| bit(&input, at) == 1).fold(0, |hash, at| hash ^ window(at))
}

/// Frames have the time of the card's real-time clock, which the kernel sets. The driver finds that clock by a
/// register, and prints nanoseconds; of the other clock, or without that register, the numbers would be others.
fn times(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    testpmd.says(&["port stop all", "port config 0 rx_offload timestamp on", "port start all", "set verbose 1"])?;
    testpmd.forward("rxonly")?;
    let start = testpmd.heard;
    let before = rig.port_clock("set 1700000000")?;
    rig.stream(20, 9)?;
    testpmd.await_printed(20)?;
    testpmd.await_frames(20)?;
    testpmd.says(&["stop", "set verbose 0"])?;
    let said = testpmd.since(start);
    let stamps = said.split("timestamp ").skip(1).filter_map(|rest| rest.split_whitespace().next()?.parse().ok());
    let stamps: Vec<u64> = stamps.collect();
    assert!(stamps.len() == 20 && stamps.is_sorted() && stamps[0] < stamps[19], "{stamps:?} in:\n{said}");
    let after = rig.port_clock("get")?;
    assert!(before <= stamps[0] && stamps[19] <= after, "{stamps:?} not from {before} to {after}");
    Ok(())
}

/// Port 0 sends our own frames back, of random sizes, headers and offloads, many by one work request: each is counted
/// and has its contents unchanged. So are those that we then send once more from where they were received.
fn returns_ours(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    let port = rig.check(&format!("{FUNCTIONS}\ncat /sys/bus/pci/devices/$2/net/*/address"))?;
    testpmd.say("set portlist 0")?;
    for (open, count) in ends() {
        let mut ours = open(&rig.lab.model.sockets()[2], port.trim())?;
        testpmd.forward("macswap")?;
        ours.exchange(count).map_err(|error| rig.lab.explain(format!("{error:?}")))?;
        testpmd.say("stop")?;
        assert_eq!(testpmd.counts(0)?, [ours.times() * count; 2]);
    }
    testpmd.says(&["set portlist 0,1"])
}

/// Port 0 sends bursts that are to leave at times of its real-time clock, which testpmd also writes into the frames:
/// its driver has the card wait (wait_on_time). The kernel at the other end stamps them by its own function's clock.
fn send_times(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    // Nanoseconds between bursts of four, and between the frames of one.
    const GAPS: &str = "4000000,500000";
    const COUNT: usize = 400;
    testpmd.says(&["port stop all", "port config 0 tx_offload send_on_timestamp on", "port start all"])?;
    testpmd.says(&["set portlist 0", "set txpkts 128", "set burst 4", &format!("set txtimes {GAPS}")])?;
    let before = rig.counter("a", "rx_packets_phy")?;
    let receiver = rig.timed_frames(COUNT)?;
    testpmd.forward("txonly")?;
    let said = rig.lab.ended(receiver)?;
    testpmd.say("stop")?;
    let (frames, ahead) = said.split_once("ahead from ").ok_or_else(|| format!("no clock in:\n{said}"))?;
    let (least, most) = ahead.trim().split_once(" to ").ok_or_else(|| format!("no clock in:\n{said}"))?;
    assert_punctual(frames, [least.parse()?, most.parse()?])?;
    // What is posted leaves at its times.
    let [_, sent] = testpmd.counts(0)?;
    let deadline = Instant::now() + SOON;
    while rig.counter("a", "rx_packets_phy")? - before < sent {
        assert!(Instant::now() < deadline, "not all of {sent} frames came");
    }
    testpmd.says(&["set txtimes 0,0", "set burst 32", "set txpkts 64", "set portlist 0,1"])?;
    testpmd.says(&["port stop all", "port config 0 tx_offload send_on_timestamp off", "port start all"])
}

/// Our queues send frames that are to leave at times of our function's clock, in the form of testpmd's. The kernel at
/// the other end stamps them by its own function's.
fn ours_send_times(rig: &Rig) -> TestResult {
    // Of each queue, and milliseconds between them.
    const COUNT: u64 = 20;
    const GAP: u64 = 100;
    let device = mlx5_open::open(&format!("vfio-user:{}", rig.lab.model.sockets()[2].display()))?;
    let options = EthernetOptions::default().inline_bytes(128).real_time();
    let mut queues = EthernetQueue::several(&Pd::alloc(&device)?, 4, &options)?;
    let receiver = rig.timed_frames(4 * COUNT as usize)?;
    let begin = device.real_time()?;
    for (number, queue) in (0..).zip(&mut queues) {
        let mut batch = queue.batch();
        for each in 1..=COUNT {
            let time = begin.after(Duration::from_millis(GAP * each + 25 * u64::from(number)));
            let nanoseconds = time.since_1970().as_nanos() as u64;
            let mark = [&0xbeef_c0de_u32.to_be_bytes()[..], &[0, 0], &u16::to_be_bytes(number)].concat();
            let mut frame = Vec::new();
            PacketBuilder::ethernet2(device.mac().0, [2, 0, 0, 0, 0, 0xa])
                .ipv4([10, 0, 0, 7], [10, 0, 0, 1], 64)
                .udp(7, 9)
                .write(&mut frame, &[&mark[..], &nanoseconds.to_be_bytes()].concat())?;
            batch.wait_until(time.into())?;
            batch.send_inline(&frame, FrameFlags::empty())?;
        }
    }
    let said = rig.lab.ended(receiver)?;
    let ours = || Ok::<_, Report>(device.real_time()?.since_1970().as_nanos() as i64);
    let deadline = Instant::now() + TRAFFIC;
    let limits = loop {
        let (before, theirs, after) = (ours()?, rig.clock(1, "get")? as i64, ours()?);
        // Known better than by the time that all frames take, or nothing is judged.
        if after - before < Duration::from_millis(GAP * COUNT / 2).as_nanos() as i64 {
            break [theirs - after, theirs - before];
        }
        assert!(Instant::now() < deadline, "the clocks are not read near each other: {before} to {after}");
    };
    assert_punctual(said.split("ahead").next().unwrap_or_default(), limits)
}

/// Frames as `timed_frames` prints them, by a clock that is ahead by nanoseconds between two limits: none has left
/// before its time, those of a queue came in order, and some in time.
fn assert_punctual(said: &str, [least, most]: [i64; 2]) -> TestResult {
    let numbers = |line: &str| line.split(' ').map(|number| number.parse().ok()).collect::<Option<Vec<i64>>>();
    let frames: Vec<_> = said.lines().filter_map(numbers).collect();
    let mut last = [0; 4];
    let mut late = Vec::new();
    for frame in &frames {
        let [queue, time, came] = frame[..] else { return Err(format!("no frame in:\n{said}").into()) };
        assert!(time > last[queue as usize], "queue {queue} in:\n{said}");
        last[queue as usize] = time;
        assert!(came - time >= least, "{} ns before its time, in:\n{said}", least - (came - time));
        late.push(came - time - most);
    }
    assert!(last.iter().all(|time| *time > 0), "all four queues: {last:?}");
    late.sort_unstable();
    let (median, worst) = (late[late.len() / 2], late[late.len() - 1]);
    println!("{} frames, late by {median} ns, {worst} at most; clocks are known to {} ns", late.len(), most - least);
    // A busy machine may be late. Without a wait, the last would be early by more than that.
    const LATE: i64 = 1_000_000_000;
    assert!(late[0] < LATE, "the first late by {} ns in:\n{said}", late[0]);
    Ok(())
}

/// VLAN tags are taken off and put in, checksums filled in, and large packets cut: by testpmd's ports.
fn offloads(rig: &Rig, testpmd: &mut Testpmd<'_>) -> TestResult {
    for (end, far, id, address) in [("a", "b", 100, 1), ("b", "a", 200, 2)] {
        let other = 3 - address;
        rig.check(&format!(
            "set -e\nip -n {end} link add link eth0 name vlan type vlan id {id}\n\
             ip -n {end} addr add 10.0.1.{address}/24 dev vlan\nip -n {end} link set vlan up\n\
             ip -n {end} neigh replace 10.0.1.{other} lladdr 02:00:00:00:00:0{far} dev vlan"
        ))?;
    }
    testpmd.says(&["port stop all", "tx_vlan set 0 100", "tx_vlan set 1 200", "vlan set strip on 0"])?;
    testpmd.says(&["vlan set strip on 1", "port start all"])?;
    testpmd.forward("mac")?;
    rig.tcp(1, "10.0.1.2")?;
    testpmd.says(&["stop", "port stop all", "tx_vlan reset 0", "tx_vlan reset 1", "vlan set strip off 0"])?;
    testpmd.says(&["vlan set strip off 1"])?;
    for port in ["0", "1"] {
        for layer in ["ip", "tcp", "udp"] {
            testpmd.say(&format!("csum set {layer} hw {port}"))?;
        }
        testpmd.say(&format!("tso set 700 {port}"))?;
    }
    testpmd.say("port start all")?;
    testpmd.forward("csum")?;
    let before = rig.counter("b", "rx_packets_phy")?;
    rig.tcp(1, "10.0.0.2")?;
    testpmd.say("stop")?;
    let (received, heard) = (testpmd.counts(0)?[0], rig.counter("b", "rx_packets_phy")? - before);
    assert!(heard > received * 3 / 2, "{received} frames of up to 1448 bytes of data, {heard} of up to 700");
    Ok(())
}

/// What is tried on one run of testpmd.
type Step = fn(&Rig, &mut Testpmd<'_>) -> TestResult;

/// Forms of queues, by arguments of testpmd's driver, and what the driver says of each.
const FORMS: [(&str, &[&str]); 6] = [
    (
        "mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=1,txq_mpw_en=1,txqs_min_inline=0",
        &["selected vectorized MPRQ Rx", "compression is enabled, format 1", "(Enhanced MPW)", "(inline data)"],
    ),
    (
        "mprq_en=1,rxqs_min_mprq=1,rx_vec_en=0,rxq_cqe_comp_en=3,txq_inline_mpw=0",
        &["selected MPRQ Rx", "compression is enabled, format 3", "(Enhanced MPW)"],
    ),
    ("mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=2", &["selected vectorized MPRQ", "compression is enabled, format 2"]),
    ("rxq_cqe_comp_en=4,txq_mpw_en=0", &["selected vectorized SPRQ Rx", "compression is enabled, format 4"]),
    ("rx_vec_en=0,rxq_cqe_comp_en=1,txq_inline_max=0", &["selected SPRQ Rx", "compression is enabled, format 1"]),
    ("rxq_cqe_comp_en=0,txq_inline_max=512,txqs_min_inline=0", &["selected vectorized SPRQ Rx", "(inline data)"]),
];

/// Each form of queue forwards TCP, and every frame is counted at both ends: each port has another form, of which one
/// has the segments, the other one their acknowledgements. In the long form each has either.
fn forms(rig: &Rig) -> TestResult {
    const PAIRS: usize = FORMS.len() / 2;
    for number in 0..rounds(PAIRS, FORMS.len()) {
        let ports = [FORMS[number], FORMS[(number + PAIRS) % FORMS.len()]];
        let devices = ports.map(|(device, _)| device);
        let mut testpmd = rig.start(devices, "--log-level=pmd.net.mlx5,debug", "--rxq=2 --txq=2")?;
        let said = testpmd.job.so_far();
        for words in ports.iter().flat_map(|(_, expected)| *expected) {
            assert!(said.contains(words), "no {words:?} with {devices:?} in:\n{said}");
        }
        let heard = || Ok::<_, Report>([rig.counter("a", "rx_packets_phy")?, rig.counter("b", "rx_packets_phy")?]);
        let before = heard()?;
        testpmd.forward("io")?;
        rig.tcp(1, "10.0.0.2")?;
        testpmd.say("stop")?;
        let ([received, returned], [acknowledged, sent]) = (testpmd.counts(0)?, testpmd.counts(1)?);
        let after = heard()?;
        let [back, there] = [after[0] - before[0], after[1] - before[1]];
        assert_eq!([received, sent, acknowledged, returned], [there, there, back, back], "{devices:?}");
        testpmd.quit()?;
    }
    Ok(())
}

/// Port 0 joins TCP segments, and port 1 cuts what was joined. `b` finds the contents unchanged. Of the segments that
/// `a` sent nothing is missing but the headers of those that were joined to others. testpmd's driver keeps the largest
/// size that it was first told, so this is a run of its own.
fn joins(rig: &Rig) -> TestResult {
    // Of Ethernet, IPv4, and TCP with a timestamp; and the check sequence, which the physical port counts.
    const HEADERS: u64 = 14 + 20 + 32;
    const CHECK_SEQUENCE: u64 = 4;
    let options = "--rxq=2 --txq=2 --enable-lro --enable-scatter --max-lro-pkt-size=16384";
    let mut testpmd = rig.testpmd("dv_flow_en=1", options)?;
    testpmd.says(&PEERS)?;
    testpmd.say("port stop all")?;
    for port in ["0", "1"] {
        testpmd.says(&[&format!("csum set ip hw {port}"), &format!("csum set tcp hw {port}")])?;
        testpmd.say(&format!("tso set 1448 {port}"))?;
    }
    testpmd.say("port start all")?;
    let sent = || Ok::<_, Report>([rig.counter("a", "tx_packets_phy")?, rig.counter("a", "tx_bytes_phy")?]);
    testpmd.forward("csum")?;
    let (before, heard) = (sent()?, rig.counter("b", "rx_packets_phy")?);
    rig.tcp(2, "10.0.0.2")?;
    testpmd.say("stop")?;
    let after = sent()?;
    let [segments, bytes] = [after[0] - before[0], after[1] - before[1]];
    let heard = rig.counter("b", "rx_packets_phy")? - heard;
    let [packets, received, missed] = testpmd.received()?;
    println!("{segments} segments received as {packets} packets, {missed} missed, sent as {heard}");
    // How many are joined depends on how fast they come.
    assert!(packets < segments && packets < heard, "{segments}, {packets}, {heard}");
    // Each that found no room is sent again.
    if missed == 0 {
        assert_eq!(bytes - CHECK_SEQUENCE * segments - received, HEADERS * (segments - packets));
    }
    testpmd.quit()
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn testpmd_forwards_between_two_kernels() -> TestResult {
    let rig = Rig::boot("testpmd")?;
    // The last steps change the ports, and leave them so.
    let steps: [(&str, &[Step]); 2] = [
        ("dv_flow_en=0", &[forwards, rules]),
        (
            "dv_flow_en=1",
            &[
                forwards,
                swaps,
                returns_ours,
                sends,
                rules,
                rules_of_headers,
                joins_tunnels,
                spreads,
                times,
                send_times,
                sends_metadata,
                offloads,
            ],
        ),
    ];
    for (flows, steps) in steps {
        let mut testpmd = rig.testpmd(flows, "--rxq=4 --txq=4 --rss-udp")?;
        testpmd.says(&PEERS)?;
        steps.iter().try_for_each(|step| step(&rig, &mut testpmd))?;
        testpmd.quit()?;
    }
    ours_send_times(&rig)?;
    forms(&rig)?;
    joins(&rig)?;
    let Rig { lab, far, .. } = rig;
    assert_quiet(&lab.guest.dmesg()?, "mlx5", &lab.model);
    lab.guest.power_off()?;
    assert_lawful(&lab.model);
    assert_lawful(&far);
    Ok(())
}
