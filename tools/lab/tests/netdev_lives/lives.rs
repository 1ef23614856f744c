//! Unload, load, reset, reload.

use crate::common::{PROBE, SOON, TestResult};
use crate::net::Net;

/// Pings both functions from all namespaces, without end.
const TRAFFIC: &str = r#"
for from in a b c; do
    for to in 1 2; do
        (ip netns exec $from busybox ping -A -q -s 1400 10.0.0.$to > /dev/null 2>&1 & echo $! >> /tmp/traffic)
    done
done
sleep 0.5
"#;

fn begin_traffic(net: &Net) -> TestResult {
    net.check(TRAFFIC, SOON)?;
    Ok(())
}

/// Ends the pings, and checks that all devices reach each other. A device that has just come up loses frames until the
/// kernel has set its addresses and rules, so it may take a while.
fn assert_alive(net: &Net) -> TestResult {
    net.check("kill $(cat /tmp/traffic) || true; rm /tmp/traffic", SOON)?;
    net.await_ping("10.0.0.2")?;
    net.await_ping("10.0.0.3")?;
    net.await_ping("fd00::2")
}

/// The driver is unloaded under traffic, and loaded again.
pub fn unload(net: &mut Net) -> TestResult {
    begin_traffic(net)?;
    net.check("rmmod mlx5_ib 2>/dev/null; rmmod mlx5_core", PROBE)?;
    assert!(net.lab.model.runs(), "the model died:\n{}", net.lab.model.stderr());
    net.load()?;
    assert_alive(net)
}

/// A function is reset (FLR) while no driver is bound. With the driver bound it cannot be: Linux 6.12's mlx5_core is
/// not told of the reset, and would wait for commands that are lost.
pub fn function_level_reset(net: &Net) -> TestResult {
    begin_traffic(net)?;
    let function = &net.functions[0];
    net.check(&format!("grep -q flr /sys/bus/pci/devices/{function}/reset_method"), SOON)?;
    let driver = "/sys/bus/pci/drivers/mlx5_core";
    let reset = format!(
        "set -e\necho {function} > {driver}/unbind\necho 1 > /sys/bus/pci/devices/{function}/reset\necho {function} > {driver}/bind"
    );
    net.check(&reset, PROBE)?;
    net.bring_up(0)?;
    assert_alive(net)
}

/// `devlink dev reload` under traffic.
pub fn reload(net: &Net) -> TestResult {
    begin_traffic(net)?;
    net.check(&format!("devlink dev reload pci/{}", net.functions[0]), PROBE)?;
    net.bring_up(0)?;
    assert_alive(net)
}
