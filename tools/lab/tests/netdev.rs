//! Debian's unmodified mlx5e: the network devices of two functions of one software card.

mod common;

use std::time::Duration;

use common::{SOON, TestResult, assert_lawful, assert_quiet, build, functions};
use mlx5_lab::{Guest, Model, skipped};

/// A probe takes a second; a command that the model loses costs the driver a minute.
const PROBE: Duration = Duration::from_secs(150);
/// For traffic: emulated processors are slow.
const TRAFFIC: Duration = Duration::from_secs(240);

/// The guest's side: loads the driver, and gives each function a namespace of its own, `a` and `b`, with an address.
const SET_UP: &str = r#"
set -e
modprobe mlx5_core
for name in a b; do ip netns add $name; done
names=(a b)
index=0
for function in $(ls -d /sys/bus/pci/drivers/mlx5_core/0000:*); do
    for wait in $(seq 100); do [ -d $function/net ] && break; sleep 0.1; done
    device=$(ls $function/net)
    name=${names[$index]}
    index=$((index + 1))
    ip link set $device netns $name name eth0
    ip -n $name link set lo up
    ip -n $name addr add 10.0.0.$index/24 dev eth0
    ip -n $name link set eth0 up
done
for name in a b; do
    for wait in $(seq 100); do ip -n $name link show eth0 | grep -q LOWER_UP && break; sleep 0.1; done
done
"#;

struct Pair {
    guest: Guest,
    model: Model,
}

impl Pair {
    fn boot(name: &str, arguments: &[&str]) -> Result<Self, common::Report> {
        let build = build()?;
        let model = Model::start(&build, 2, arguments)?;
        let [first, second] = model.sockets() else { return Err("two sockets".into()) };
        let guest = Guest::builder(name).nic(first).nic(second).boot()?;
        assert_eq!(functions(&guest)?.len(), 2);
        let pair = Pair { guest, model };
        pair.guest.check(SET_UP, PROBE).map_err(|error| pair.explain(error))?;
        pair.assert_quiet()?;
        Ok(pair)
    }

    fn explain(&self, error: mlx5_lab::GuestError) -> common::Report {
        let log =
            self.guest.dmesg().map(|log| log.matching("mlx5").iter().map(|r| format!("{r}\n")).collect::<String>());
        format!("{error}\nthe kernel said:\n{}\nthe model said:\n{}", log.unwrap_or_default(), self.model.stderr())
            .into()
    }

    /// Runs a script in a namespace.
    fn run(&self, namespace: &str, script: &str, patience: Duration) -> Result<String, common::Report> {
        let script = script.replace('\'', r"'\''");
        self.guest
            .check(&format!("ip netns exec {namespace} bash -c '{script}'"), patience)
            .map_err(|error| self.explain(error))
    }

    fn assert_quiet(&self) -> TestResult {
        assert_quiet(&self.guest.dmesg()?, "mlx5", &self.model);
        Ok(())
    }
}

#[test]
fn two_network_devices_talk() -> TestResult {
    if skipped("two_network_devices_talk") {
        return Ok(());
    }
    let pair = Pair::boot("netdev", &[])?;
    let state =
        pair.run("a", "ip -s link show eth0; ethtool -i eth0; ethtool eth0; ethtool -l eth0; ethtool -g eth0", SOON)?;
    println!("{state}");
    println!("{}", pair.run("a", "busybox ping -c 3 -W 5 10.0.0.2", SOON)?);
    pair.assert_quiet()?;
    println!("{}", pair.run("a", "ethtool -S eth0", SOON)?);
    pair.assert_quiet()?;
    pair.guest.power_off()?;
    assert_lawful(&pair.model);
    let _ = TRAFFIC;
    Ok(())
}
