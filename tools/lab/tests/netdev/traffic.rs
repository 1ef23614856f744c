//! Traffic between devices.

use std::time::Duration;

use crate::common::{Report, SOON, TestResult};
use crate::net::Net;
use crate::tcp;

/// For traffic: emulated processors are slow.
const TRAFFIC: Duration = Duration::from_secs(400);

/// Sends `mebibytes` over TCP, and compares them.
pub fn tcp(net: &Net, mebibytes: u64, from: &str, to: &str, address: &str) -> TestResult {
    net.check(&tcp::script(mebibytes, from, to, address), TRAFFIC)?;
    Ok(())
}

/// VLAN devices on `a` and `b`. The card inserts and strips the tags.
pub fn vlan(net: &Net) -> TestResult {
    for (name, address) in [("a", "10.0.5.1"), ("b", "10.0.5.2")] {
        net.run(name, "ip link add link eth0 name eth0.5 type vlan id 5")?;
        net.run(name, &format!("ip addr add {address}/24 dev eth0.5"))?;
        net.run(name, "ip link set eth0.5 up")?;
    }
    let before = net.counter("a", "tx_added_vlan_packets")?;
    net.ping("10.0.5.2", 56)?;
    assert!(net.counter("a", "tx_added_vlan_packets")? >= before + 3);
    assert!(net.counter("b", "rx_removed_vlan_packets")? >= 3);
    Ok(())
}

/// Datagrams to closed ports. The receiving kernel verifies their checksums before it answers.
pub fn udp(net: &Net, from: &str, to: &str, address: &str) -> TestResult {
    let before = datagrams(net, to)?;
    let said = net.run(from, &format!("busybox traceroute -n -q 3 -m 1 {address} 1000"))?;
    assert!(said.contains(&format!("1  {address} ")), "{said}");
    let after = datagrams(net, to)?;
    assert_eq!(after, [before[0] + 3, before[1]], "datagrams that arrived, checksums that were wrong:\n{said}");
    Ok(())
}

/// Datagrams for ports without a listener, and with a wrong checksum.
fn datagrams(net: &Net, namespace: &str) -> Result<[u64; 2], Report> {
    counted(net, namespace, "Udp", ["NoPorts", "InCsumErrors"])
}

/// What the kernel of a namespace has counted of a protocol.
fn counted<const N: usize>(net: &Net, namespace: &str, of: &str, names: [&str; N]) -> Result<[u64; N], Report> {
    let said = net.run(namespace, &format!("grep ^{of}: /proc/net/snmp"))?;
    let mut lines = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (head, numbers) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut counts = [0; N];
    for (name, count) in names.iter().zip(&mut counts) {
        let at = head.iter().position(|other| other == name);
        *count = at.and_then(|at| numbers.get(at)).ok_or_else(|| format!("no {name} in:\n{said}"))?.parse()?;
    }
    Ok(counts)
}

/// Multicast: nobody answers before `b` joins the group.
pub fn groups(net: &Net) -> TestResult {
    net.run("b", "sysctl -q -w net.ipv4.icmp_echo_ignore_broadcasts=0")?;
    net.run("a", "ip route add 239.0.0.0/8 dev eth0")?;
    let before = net.counter("b", "rx_vport_multicast_packets")?;
    let [echoes] = counted(net, "b", "Icmp", ["InEchos"])?;
    let said = net.lab.guest.run("ip netns exec a busybox ping -c 1 -W 1 239.1.2.3", SOON)?.text();
    assert!(said.contains(" 100% packet loss"), "{said}");
    // What comes after it has come.
    net.pings(1, "10.0.0.2", 56)?;
    assert_eq!(counted(net, "b", "Icmp", ["InEchos"])?, [echoes + 1]);
    net.run("b", "ip addr add 239.1.2.3/32 dev eth0 autojoin")?;
    net.ping("239.1.2.3", 56)?;
    assert!(net.counter("b", "rx_vport_multicast_packets")? >= before + 3);
    net.run("b", "ip addr del 239.1.2.3/32 dev eth0")?;
    // IPv6 neighbours are found by multicast, too.
    net.run("a", "ip neigh flush dev eth0 nud all")?;
    net.ping("fd00::2", 56)?;
    Ok(())
}

/// The vport of `b` gets a group's frames only if it lists the address or is in all-multicast mode.
pub fn listed_groups(net: &Net) -> TestResult {
    const FRAMES: u64 = 20;
    let send = format!("ip netns exec a bash -c 'for i in $(seq {FRAMES}); do echo x > /dev/udp/239.127.0.9/9; done'");
    for (change, is_heard) in [
        ("true", false),
        ("ip maddr add 01:00:5e:7f:00:09 dev eth0", true),
        ("ip maddr del 01:00:5e:7f:00:09 dev eth0", false),
        ("ip link set eth0 allmulticast on", true),
        ("ip link set eth0 allmulticast off", false),
    ] {
        net.run("b", change)?;
        let before = net.counter("b", "rx_vport_multicast_packets")?;
        net.check(&send, SOON)?;
        net.ping("10.0.0.2", 56)?;
        // Neighbour discovery adds a few multicast frames.
        let heard = net.counter("b", "rx_vport_multicast_packets")? - before;
        assert_eq!(heard >= FRAMES, is_heard, "{heard} after {change}");
    }
    Ok(())
}

/// A bridge on `b` forwards frames for another address: promiscuous mode.
pub fn bridge(net: &Net) -> TestResult {
    let make = r#"
        set -e
        # Linux warns of promiscuous mode with it.
        ip netns exec b ethtool -K eth0 rxvlan off
        ip netns add d
        ip -n b link add d0 type veth peer name eth0 netns d
        ip -n b link add br0 type bridge
        ip -n b link set d0 master br0
        ip -n b link set eth0 master br0
        for name in d0 br0; do ip -n b link set $name up; done
        ip -n d addr add 10.0.0.5/24 dev eth0
        ip -n d link set eth0 up
    "#;
    net.check(make, SOON)?;
    net.ping("10.0.0.5", 56)?;
    let end = r#"
        set -e
        ip -n b link del br0
        ip -n b link del d0
        ip netns exec b ethtool -K eth0 rxvlan on
        ip netns del d
    "#;
    net.check(end, SOON)?;
    net.ping("10.0.0.2", 56)
}

/// A second unicast address on `b`, of a MACVLAN device, without promiscuous mode.
pub fn second_address(net: &Net) -> TestResult {
    net.run("b", "ip link add link eth0 name mv0 type macvlan mode private")?;
    net.check("ip netns add d && ip -n b link set mv0 netns d name eth0", SOON)?;
    net.run("d", "ip addr add 10.0.0.4/24 dev eth0")?;
    net.run("d", "ip link set eth0 up")?;
    net.ping("10.0.0.4", 56)?;
    assert!(!net.run("b", "ip -d link show eth0")?.contains("promiscuity 1"));
    net.check("ip netns del d", SOON)?;
    Ok(())
}
