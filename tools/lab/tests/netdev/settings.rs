//! Identity and settings of a network device.

use crate::common::{SOON, TestResult};
use crate::net::Net;

/// Link, driver, firmware and offloads, as `ip`, `ethtool` and `devlink` show them.
pub fn identity(net: &Net) -> TestResult {
    let link = net.run("a", "ip link show eth0")?;
    assert!(link.contains("mtu 1500") && link.contains("link/ether 02:00:c5:00:00:01"), "{link}");
    let said = net.run("a", "ethtool eth0")?;
    assert!(said.contains("Speed: 100000Mb/s") && said.contains("Link detected: yes"), "{said}");
    let said = net.run("a", "ethtool -i eth0")?;
    assert!(
        said.contains("driver: mlx5_core") && said.contains("firmware-version: 16.35.4030 (SIM0000000005)"),
        "{said}"
    );
    let said = net.check(&format!("devlink dev info pci/{}", net.functions[0]), SOON)?;
    assert!(said.contains("driver mlx5_core") && said.contains("fw.psid SIM0000000005"), "{said}");
    // The running version and the stored one.
    assert_eq!(said.matches("fw.version 16.35.4030").count(), 2, "{said}");
    let said = net.run("a", "ethtool -k eth0")?;
    for feature in
        ["rx-checksumming", "tx-checksumming", "tcp-segmentation-offload", "rx-vlan-offload", "receive-hashing"]
    {
        assert!(said.contains(&format!("{feature}: on")), "{feature} in:\n{said}");
    }
    Ok(())
}

/// Channels, rings, offloads and the link are changed; frames pass after each.
pub fn changes(net: &Net) -> TestResult {
    for change in [
        "ethtool -L eth0 combined 1",
        "ethtool -L eth0 combined 2",
        "ethtool -G eth0 rx 512 tx 256",
        "ethtool -K eth0 tx off rx off tso off rxvlan off txvlan off",
        "ethtool -K eth0 tx on rx on tso on rxvlan on txvlan on",
        "ip link set eth0 down",
    ] {
        net.run("a", change)?;
        net.run("a", "ip link set eth0 up")?;
        net.await_link("a")?;
        net.ping("10.0.0.2", 1400).map_err(|error| format!("after {change}: {error:?}"))?;
    }
    Ok(())
}

/// Interrupt moderation can be set: by event or by completion, fixed or adaptive. Frames pass in each mode.
pub fn coalescing(net: &Net) -> TestResult {
    for (change, expected) in [
        ("adaptive-rx off adaptive-tx off rx-usecs 50 rx-frames 64 tx-usecs 20 tx-frames 16", "rx-usecs:\t50\n"),
        ("rx-usecs 0 rx-frames 32 tx-usecs 0 tx-frames 32", "rx-usecs:\t0\n"),
        ("cqe-mode-rx off cqe-mode-tx on", "CQE mode RX: off  TX: on"),
        ("cqe-mode-rx on cqe-mode-tx off", "CQE mode RX: on  TX: off"),
        ("adaptive-rx on adaptive-tx on", "Adaptive RX: on  TX: on"),
    ] {
        net.run("a", &format!("ethtool -C eth0 {change}"))?;
        let said = net.run("a", "ethtool -c eth0")?;
        assert!(said.contains(expected), "after {change}:\n{said}");
        net.ping("10.0.0.2", 1400).map_err(|error| format!("after {change}: {error:?}"))?;
    }
    Ok(())
}

/// The device timestamps packets by a readable clock.
pub fn timestamps(net: &Net) -> TestResult {
    let said = net.run("a", "ethtool -T eth0")?;
    for expected in ["hardware-transmit", "hardware-receive", "hardware-raw-clock", "PTP Hardware Clock: "] {
        assert!(said.contains(expected), "{expected} in:\n{said}");
    }
    assert!(!said.contains("PTP Hardware Clock: none"), "{said}");
    Ok(())
}
