//! Three network devices on one wire, each the `eth0` of a namespace of its own: two functions of the software card and
//! a virtio card.

use std::time::Duration;

use mlx5_lab::{Guest, Model, Software};
use tempfile::TempDir;

use crate::common::{Lab, PROBE, Report, SOON, TRAFFIC, TestResult, build, functions};

/// Moves the function `$1`'s network device to the namespace `$2`, with 10.0.0.`$3` and fd00::`$3`, and waits for its
/// link.
const BRING_UP: &str = r#"
set -e
for wait in $(seq 300); do
    device=$(ls /sys/bus/pci/devices/$1/net 2>/dev/null || true)
    [ -n "$device" ] && break
    sleep 0.1
done
ip link set $device netns $2 name eth0
ip -n $2 addr add 10.0.0.$3/24 dev eth0
ip -n $2 addr add fd00::$3/64 dev eth0 nodad
ip -n $2 link set eth0 up
for wait in $(seq 100); do ip -n $2 link show eth0 | grep -q LOWER_UP && break; sleep 0.1; done
ip -n $2 link show eth0 | grep -q LOWER_UP
"#;

/// Makes the namespaces, and gives the virtio card `c`, 10.0.0.3 and fd00::3.
const FIRST: &str = r#"
set -e
for name in a b c; do
    ip netns add $name
    ip -n $name link set lo up
    # Changing a device takes it down.
    for conf in all default; do ip netns exec $name sysctl -q -w net.ipv6.conf.$conf.keep_addr_on_down=1; done
done
modprobe virtio_net
ip link set $(ls /sys/bus/virtio/drivers/virtio_net/virtio*/net) netns c name eth0
ip -n c addr add 10.0.0.3/24 dev eth0
ip -n c addr add fd00::3/64 dev eth0 nodad
ip -n c link set eth0 up
"#;

/// A guest, its card, and their wire.
pub struct Net {
    pub lab: Lab,
    /// The PCI addresses of the functions.
    pub functions: Vec<String>,
    // Where the wire's sockets are.
    _dir: TempDir,
}

/// A script that pings `to` from `a`, `count` times, and fails at the first that gets no answer. Each ping is a run of
/// its own: busybox uses the given timeout for the first answer only, and one second for others, too short on a busy
/// host.
fn pings(count: u64, to: &str, size: usize) -> String {
    format!("for each in $(seq {count}); do ip netns exec a busybox ping -q -c 1 -W 20 -s {size} {to} || exit 1; done")
}

impl Net {
    /// Boots a guest called `name` and brings the three devices up.
    pub fn boot(name: &str) -> Result<Self, Report> {
        let dir = tempfile::Builder::new().prefix("mlx5-wire-").tempdir()?;
        let wire = dir.path().join("wire");
        let iperf = Software::iperf()?;
        let model =
            Model::start(&build()?, 3, &["--wire", wire.to_str().ok_or("a path in UTF-8")?, "--watch-receives"])?;
        // The third is for a process on the host.
        let [first, second, _] = model.sockets() else { return Err("three sockets".into()) };
        let guest =
            Guest::builder(name).nic(first).nic(second).wire(&wire).share(iperf.folder(), iperf.place()).boot()?;
        let functions = functions(&guest)?;
        assert_eq!(functions.len(), 2);
        let net = Net { lab: Lab { guest, model }, functions, _dir: dir };
        net.check(FIRST, SOON)?;
        net.load()?;
        net.lab.assert_quiet()?;
        Ok(net)
    }

    /// Loads the driver, and brings both devices up.
    pub fn load(&self) -> TestResult {
        self.check("modprobe mlx5_core", PROBE)?;
        self.bring_up(0)?;
        self.bring_up(1)
    }

    /// Brings a function's new network device up: function 0 in `a`, 10.0.0.1 and fd00::1, function 1 in `b`.
    pub fn bring_up(&self, index: usize) -> TestResult {
        let (function, namespace) = (&self.functions[index], ["a", "b"][index]);
        self.check(&format!("set -- {function} {namespace} {}\n{BRING_UP}", index + 1), PROBE)?;
        Ok(())
    }

    /// Runs a script that has to succeed.
    pub fn check(&self, script: &str, patience: Duration) -> Result<String, Report> {
        self.lab.check(script, patience)
    }

    /// Runs a command in a namespace.
    pub fn run(&self, namespace: &str, command: &str) -> Result<String, Report> {
        self.check(&format!("ip netns exec {namespace} {command}"), SOON)
    }

    /// Pings from `a`, with packets of `size` bytes of data; every one must come back.
    pub fn ping(&self, to: &str, size: usize) -> TestResult {
        self.pings(3, to, size)
    }

    /// As [`ping`](Self::ping), `count` times.
    pub fn pings(&self, count: u64, to: &str, size: usize) -> TestResult {
        self.check(&pings(count, to, size), TRAFFIC)?;
        Ok(())
    }

    /// Pings from `a`, with full packets, until five in a row have come back.
    pub fn await_ping(&self, to: &str) -> TestResult {
        let clean = pings(5, to, 1400);
        self.check(&format!("for wait in $(seq 20); do ({clean}) && exit 0; sleep 0.5; done; exit 1"), PROBE)?;
        Ok(())
    }

    /// Waits until a device has its link.
    pub fn await_link(&self, namespace: &str) -> TestResult {
        let up = format!("ip -n {namespace} link show eth0 | grep -q LOWER_UP");
        self.check(&format!("for wait in $(seq 100); do {up} && exit 0; sleep 0.1; done; exit 1"), SOON)?;
        Ok(())
    }

    /// Sets the MTU of all three.
    pub fn set_mtu(&self, mtu: u32) -> TestResult {
        for namespace in ["a", "b", "c"] {
            self.run(namespace, &format!("ip link set eth0 mtu {mtu}"))?;
            self.await_link(namespace)?;
        }
        Ok(())
    }

    /// A counter of `ethtool -S`.
    pub fn counter(&self, namespace: &str, name: &str) -> Result<u64, Report> {
        let said = self.run(namespace, "ethtool -S eth0")?;
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        Ok(line.ok_or_else(|| format!("no counter {name} in:\n{said}"))?.parse()?)
    }

    /// Every health reporter is healthy and has never reported.
    pub fn assert_healthy(&self) -> TestResult {
        let said = self.check("devlink health", SOON)?;
        let states: Vec<&str> = said.lines().filter(|line| line.contains("state ")).collect();
        for reporter in ["fw", "fw_fatal", "tx", "rx"] {
            assert!(said.lines().any(|line| line.trim() == format!("reporter {reporter}")), "{reporter} in:\n{said}");
        }
        assert!(states.iter().all(|line| line.contains("state healthy error 0 ")), "{said}");
        Ok(())
    }
}
