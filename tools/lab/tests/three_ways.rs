//! Three ways to one card at once: vfio-user, DevX and vfio-pci. A process on the host has function 0, the guest's
//! kernel shares function 1 over DevX, and a process in the guest has function 2 over real vfio-pci.

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Lab, PROBE, Report, TRAFFIC, TestResult, assert_lawful, build, free_port, functions, host_card};
use mlx5_lab::{Build, Guest, Model};
use serde_json::Value;

/// Gives the second function to vfio-pci, the first to the kernel, and the guest its address on the host's network.
const SET_UP: &str = "
set -e
modprobe vfio-pci
echo vfio-pci > /sys/bus/pci/devices/$SECOND/driver_override
echo $SECOND > /sys/bus/pci/drivers_probe
modprobe mlx5_ib
modprobe ib_uverbs
for wait in $(seq 200); do [ -e /dev/infiniband/uverbs0 ] && break; sleep 0.1; done
ip link set $(ls /sys/class/infiniband/mlx5_0/device/net) up
for wait in $(seq 100); do grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state && break; sleep 0.1; done
grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state
modprobe virtio_net
for wait in $(seq 100); do [ -d /sys/bus/virtio/drivers/virtio_net/virtio*/net ] && break; sleep 0.1; done
lan=$(ls /sys/bus/virtio/drivers/virtio_net/virtio*/net)
ip addr add 10.0.2.15/24 dev $lan
ip link set $lan up
";

struct ThreeWays {
    build: Build,
    lab: Lab,
    /// The host's port that leads to the guest's 18515.
    port: u16,
}

impl ThreeWays {
    fn boot() -> Result<Self, Report> {
        let build = build()?;
        let model = Model::start(&build, 3, &[])?;
        let port = free_port()?;
        let guest = Guest::builder("three-ways")
            .iommu()
            .huge_pages_2m(64)
            .module("vfio_iommu_type1")
            .module("vfio-pci")
            .nic(&model.sockets()[1])
            .nic(&model.sockets()[2])
            .qemu_args(host_card(port, "52:54:00:00:00:02"))
            .programs(&build)
            .boot()?;
        Ok(ThreeWays { build, lab: Lab { guest, model }, port })
    }

    /// The host's process, on function 0, calls `server` of the guest's.
    fn call_from_the_host(&self, server: &str) -> TestResult {
        let server = self.lab.serve_tcp("", server)?;
        let socket = self.lab.model.sockets()[0].display();
        let client = Command::new(self.build.program("rc_pingpong")?)
            .args(["-c", "-n", "200", "-p", &self.port.to_string(), "-d", &format!("vfio-user:{socket}"), "127.0.0.1"])
            .output()?;
        if !client.status.success() {
            let said = String::from_utf8_lossy(&client.stderr).into_owned();
            let error = format!("the host's process: {said}\nthe server said:\n{}", server.so_far());
            return Err(self.lab.explain(error));
        }
        self.lab.ended(server)?;
        Ok(())
    }

    /// `client` of the guest's calls `server` of the guest's.
    fn call_within_the_guest(&self, server: &str, client: &str) -> TestResult {
        let server = self.lab.serve_tcp("", server)?;
        self.lab.call(server, &format!("{client} 127.0.0.1"))?;
        Ok(())
    }
}

/// Frames that the kernel's function sends to an owned one, and their length in bytes.
const FRAMES: u64 = 64;
const FRAME: u64 = 14 + 20 + 8 + 1000;

/// Numbers by name.
type Counters = BTreeMap<String, u64>;

/// How much a counter grew from `before` to `after`.
fn grown((before, after): &(Counters, Counters), name: &str) -> u64 {
    let value = |counters: &Counters| *counters.get(name).unwrap_or_else(|| panic!("no {name} in {counters:?}"));
    value(after) - value(before)
}

/// The numbers of `ethtool -S`.
fn ethtool(text: &str) -> Counters {
    let lines = text.lines().filter_map(|line| line.trim().rsplit_once(": "));
    lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// The numbers of a report of `mlx5 counters --json`, of port and vport.
fn counted(report: &str) -> Result<Counters, Report> {
    let report: Value = serde_json::from_str(report)?;
    let of = |group: &'static str| report["groups"][group]["counters"].as_object().cloned().unwrap_or_default();
    let all = ["port", "vport"].into_iter().flat_map(of);
    Ok(all.filter_map(|(name, counter)| Some((name, counter["value"].as_u64()?))).collect())
}

/// Prints the counters that are compared once a second, until the file `stop` is there. The program is then not killed
/// amid a command: its reader is gone when it prints.
fn watch(program: &str, device: &str, stop: &str) -> String {
    let counted = r"port\.rx_(packets|bytes|1024_to_1518_bytes)_phy|vport\.rx_vport_unicast";
    format!(
        "{program} counters --json -w 1 -n 1000000 -d {device} '{counted}' |
            while read -r line && [ ! -e {stop} ]; do echo \"$line\"; done"
    )
}

impl ThreeWays {
    /// What `mlx5 COMMAND --json` of the host's says of function 0.
    fn said_on_the_host(&self, command: &str) -> Result<String, Report> {
        let socket = self.lab.model.sockets()[0].display();
        let output = Command::new(self.build.program("mlx5")?)
            .args([command, "--json", "-d", &format!("vfio-user:{socket}")])
            .output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into()),
            false => Err(String::from_utf8_lossy(&output.stderr).into()),
        }
    }

    /// What the kernel says of its function.
    fn counters_of_the_kernel(&self) -> Result<Counters, Report> {
        let script = "ethtool -S $(ls /sys/class/infiniband/mlx5_0/device/net)";
        Ok(ethtool(&self.lab.check(script, TRAFFIC)?))
    }

    /// The kernel sends frames to the function of the address `mac`. Returns its counters before and after.
    fn send_to(&self, mac: &str) -> Result<(Counters, Counters), Report> {
        let script = format!(
            "set -e
            device=$(ls /sys/class/infiniband/mlx5_0/device/net)
            ip route replace 10.9.0.9/32 dev $device
            ip neigh replace 10.9.0.9 lladdr {mac} nud permanent dev $device
            payload=$(printf '%01000d' 0)
            ethtool -S $device; echo ==
            for frame in $(seq {FRAMES}); do echo -n $payload > /dev/udp/10.9.0.9/9; done
            sleep 1
            ethtool -S $device
            ip neigh del 10.9.0.9 dev $device
            ip route del 10.9.0.9/32 dev $device"
        );
        let text = self.lab.check(&script, TRAFFIC)?;
        let (before, after) = text.split_once("==\n").ok_or_else(|| text.clone())?;
        Ok((ethtool(before), ethtool(after)))
    }
}

/// Waits until `reports` has more than `lines` whole lines, and returns them.
fn await_reports(reports: &dyn Fn() -> String, lines: usize) -> Result<Vec<String>, Report> {
    let begin = Instant::now();
    loop {
        let text = reports();
        let whole: Vec<String> =
            text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(Into::into).collect();
        if whole.len() > lines {
            return Ok(whole);
        }
        if begin.elapsed() > TRAFFIC {
            return Err(format!("no report of `mlx5 counters` after {lines}:\n{text}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An owned function of the address `mac` counts what Linux counts as sent to it, by Linux's names. `reports` is what
/// `mlx5 counters -w 1` has said of it so far.
fn counts_what_linux_sends(ways: &ThreeWays, mac: &str, reports: &dyn Fn() -> String) -> TestResult {
    let before = await_reports(reports, 0)?.pop().ok_or("no report")?;
    let theirs = ways.send_to(mac)?;
    // The next report but one was begun after the frames.
    let seen = await_reports(reports, 0)?.len();
    let after = await_reports(reports, seen + 1)?.pop().ok_or("no report")?;
    let ours = (counted(&before)?, counted(&after)?);
    assert_eq!(grown(&theirs, "tx_vport_unicast_packets"), FRAMES, "the kernel sent something else meanwhile");
    for what in ["unicast_packets", "unicast_bytes"] {
        let [received, sent] = ["rx", "tx"].map(|way| format!("{way}_vport_{what}"));
        assert_eq!(grown(&ours, &received), grown(&theirs, &sent), "{received}");
    }
    assert_eq!(grown(&ours, "rx_vport_unicast_bytes"), FRAMES * FRAME);
    assert_eq!(grown(&ours, "rx_1024_to_1518_bytes_phy"), FRAMES);
    // Other frames of the kernel's, to groups, count for the port, too.
    assert!(grown(&ours, "rx_packets_phy") >= FRAMES && grown(&theirs, "tx_packets_phy") >= FRAMES);
    assert!(grown(&ours, "rx_bytes_phy") >= FRAMES * (FRAME + 4));
    Ok(())
}

/// What `traffic` sends and receives by RDMA is the same by our counters and by the kernel's at the other end.
fn rdma_counts_as_linux_counts(
    ways: &ThreeWays,
    ours: &dyn Fn() -> Result<Counters, Report>,
    traffic: &dyn Fn() -> TestResult,
) -> TestResult {
    let (our_start, their_start) = (ours()?, ways.counters_of_the_kernel()?);
    traffic()?;
    let (ours, theirs) = ((our_start, ours()?), (their_start, ways.counters_of_the_kernel()?));
    for what in ["packets", "bytes"] {
        let [received, sent] = ["rx", "tx"].map(|way| format!("{way}_vport_rdma_unicast_{what}"));
        assert!(grown(&theirs, &received) > 0, "{received}");
        assert_eq!(grown(&ours, &sent), grown(&theirs, &received), "{sent} of ours");
        assert_eq!(grown(&ours, &received), grown(&theirs, &sent), "{received} of ours");
    }
    Ok(())
}

/// `mlx5 info` of functions that no kernel drives tells of the card what Linux shows of its own function of that card.
fn info_of_owned_functions_is_that_of_their_card(ways: &ThreeWays, second: &str) -> TestResult {
    let theirs = ways.lab.check(
        "device=$(ls /sys/class/infiniband/mlx5_0/device/net)
        ethtool -i $device && ethtool $device && ibv_devinfo -v -d mlx5_0",
        TRAFFIC,
    )?;
    let word = |name: &str| {
        let found = theirs.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
        found.map(|word| word.trim().to_owned()).ok_or_else(|| format!("no {name}:\n{theirs}"))
    };
    let in_guest = ways.lab.check(&format!("mlx5 info --json -d vfio:{second}"), TRAFFIC)?;
    let on_host = ways.said_on_the_host("info")?;
    for (text, mac) in [(&in_guest, "02:00:c5:00:00:03"), (&on_host, "02:00:c5:00:00:01")] {
        let info: Value = serde_json::from_str(text)?;
        let ours = |path: &str| info.pointer(path).map_or(String::new(), |value| value.to_string().replace('"', ""));
        assert_eq!(word("firmware-version")?, format!("{} ({})", ours("/firmware"), ours("/psid")), "{text}");
        assert_eq!(word("Speed")?, format!("{}Mb/s", ours("/port/speed_mbps")), "{text}");
        assert!(word("active_width")?.starts_with(&format!("{}X ", ours("/port/lanes"))), "{text}{theirs}");
        assert_eq!(ours("/port/mac"), mac, "{text}");
        // Not queue pairs: the kernel's driver asks for fewer or more than a function starts with.
        for (capability, name) in [("log_max_cq", "max_cq"), ("log_max_mkey", "max_mr"), ("log_max_pd", "max_pd")] {
            let mut limits = info["limits"].as_array().into_iter().flatten();
            let own = limits.find(|limit| limit["capability"] == capability).map(|limit| limit["limit"].to_string());
            assert_eq!(own, Some(word(name)?), "{name}: {text}");
        }
    }
    let info: Value = serde_json::from_str(&in_guest)?;
    assert_eq!((&info["pci_address"], &info["driver"]), (&second.into(), &"vfio-pci".into()), "{in_guest}");
    Ok(())
}

/// `mlx5 counters` of functions that no kernel drives, over vfio-user and over vfio-pci, beside `ethtool -S` of the
/// function at the other end of the wire.
fn owned_functions_count_as_linux_counts(ways: &ThreeWays, second: &str) -> TestResult {
    let kernel = "rc_pingpong -d devx:mlx5_0 -c -n 200";
    rdma_counts_as_linux_counts(ways, &|| counted(&ways.said_on_the_host("counters")?), &|| {
        ways.call_from_the_host(&format!("{kernel} --listen"))
    })?;
    let in_guest = || counted(&ways.lab.check(&format!("mlx5 counters --json -d vfio:{second}"), TRAFFIC)?);
    rdma_counts_as_linux_counts(ways, &in_guest, &|| {
        ways.call_within_the_guest(&format!("rc_pingpong -d vfio:{second} -c -n 200 --listen"), kernel)
    })?;

    let folder = tempfile::tempdir()?;
    let [said, stop] = ["said", "stop"].map(|name| folder.path().join(name));
    let socket = format!("vfio-user:{}", ways.lab.model.sockets()[0].display());
    let program = ways.build.program("mlx5")?.display().to_string();
    let script = watch(&program, &socket, &stop.display().to_string());
    let mut on_host = Command::new("sh").args(["-c", &script]).stdout(File::create(&said)?).spawn()?;
    let done =
        counts_what_linux_sends(ways, "02:00:c5:00:00:01", &|| std::fs::read_to_string(&said).unwrap_or_default());
    File::create(&stop)?;
    on_host.wait()?;
    done?;

    let in_guest = ways.lab.guest.start(&watch("mlx5", &format!("vfio:{second}"), "/tmp/stop"))?;
    let done = counts_what_linux_sends(ways, "02:00:c5:00:00:03", &|| in_guest.so_far());
    ways.lab.check("touch /tmp/stop", TRAFFIC)?;
    ways.lab.ended(in_guest)?;
    done
}

/// Extended reliable connections between `ibv_xsrq_pingpong` on the kernel's function and ours on function `second`.
fn messages_name_shared_queues_of_libmlx5_and_of_ours(ways: &ThreeWays, second: &str) -> TestResult {
    let theirs = "ibv_xsrq_pingpong -d mlx5_0 -g 0 -n 50";
    let ours = format!("xsrq_pingpong -d vfio:{second} -n 50");
    for (server, client) in [(theirs, ours.as_str()), (&format!("{ours} --listen"), theirs)] {
        let server = ways.lab.serve_tcp("", server)?;
        let said = ways.lab.call(server, &format!("{client} 127.0.0.1"))?;
        assert_eq!(said.matches("success").count(), 2, "{said}");
    }
    Ok(())
}

/// Messages between `ibv_rc_pingpong` on the kernel's function and function `second`, whose end sleeps on an event
/// queue that its thread owns, and on its interrupt.
fn threads_have_event_queues_of_their_own(ways: &ThreeWays, second: &str) -> TestResult {
    let theirs = "ibv_rc_pingpong -d mlx5_0 -g 0 -c -n 200";
    let ours = format!("rc_pingpong -d vfio:{second} -c -n 200 --own-events");
    for (server, client) in [(theirs, ours.as_str()), (&format!("{ours} --listen"), theirs)] {
        let server = ways.lab.serve_tcp("", server)?;
        ways.lab.call(server, &format!("{client} 127.0.0.1"))?;
    }
    ways.lab.check(&ours, TRAFFIC)?;
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn host_guest_kernel_and_guest_process_talk_to_each_other() -> TestResult {
    let ways = ThreeWays::boot()?;
    let second = functions(&ways.lab.guest)?.pop().ok_or("the guest sees no ConnectX")?;
    ways.lab.check(&format!("SECOND={second}{SET_UP}"), PROBE)?;

    let kernel = "rc_pingpong -d devx:mlx5_0 -c -n 200";
    let process = format!("rc_pingpong -d vfio:{second} -c -n 200");
    ways.call_within_the_guest(&format!("{process} --listen"), kernel)?;
    ways.call_within_the_guest(&format!("{kernel} --listen"), &process)?;
    ways.call_from_the_host(&format!("{kernel} --listen"))?;
    ways.call_from_the_host(&format!("{process} --listen"))?;

    messages_name_shared_queues_of_libmlx5_and_of_ours(&ways, &second)?;
    threads_have_event_queues_of_their_own(&ways, &second)?;
    info_of_owned_functions_is_that_of_their_card(&ways, &second)?;
    owned_functions_count_as_linux_counts(&ways, &second)?;

    // Strict mode reports objects left at TEARDOWN_HCA.
    ways.lab.check("modprobe -r mlx5_ib && modprobe -r mlx5_core", PROBE)?;
    ways.lab.assert_quiet()?;
    ways.lab.guest.power_off()?;
    assert_lawful(&ways.lab.model);
    Ok(())
}
