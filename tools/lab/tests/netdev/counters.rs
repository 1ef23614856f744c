//! Compares the counters of `ethtool -S` with the traffic.

use std::collections::HashMap;

use crate::common::{Report, SOON, TestResult};
use crate::net::Net;
use crate::traffic;

/// All counters of a device.
pub struct Counters(HashMap<String, u64>);

impl Counters {
    pub fn of(net: &Net, namespace: &str) -> Result<Self, Report> {
        let said = net.run(namespace, "ethtool -S eth0")?;
        let pairs = said.lines().filter_map(|line| line.trim().split_once(": "));
        Ok(Self(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()))
    }

    /// How much a counter has grown since `before`.
    pub fn since(&self, before: &Self, name: &str) -> u64 {
        let value = |counters: &Self| *counters.0.get(name).unwrap_or_else(|| panic!("there is no counter {name}"));
        value(self) - value(before)
    }
}

/// Makes `a` and `b` permanent neighbours, so that no resolution is counted.
fn fix_neighbours(net: &Net) -> TestResult {
    for (namespace, number) in [("a", 2), ("b", 1)] {
        for address in ["10.0.0.", "fd00::"] {
            let neighbour = format!("{address}{number} lladdr 02:00:c5:00:00:0{number}");
            net.run(namespace, &format!("ip neigh replace {neighbour} nud permanent dev eth0"))?;
        }
    }
    Ok(())
}

/// Frames of 1042 bytes there, and as many back.
pub fn exact(net: &Net) -> TestResult {
    const FRAMES: u64 = 24;
    const BYTES: u64 = 14 + 20 + 8 + 1000;
    fix_neighbours(net)?;
    let before = [Counters::of(net, "a")?, Counters::of(net, "b")?];
    net.pings(FRAMES, "10.0.0.2", 1000)?;
    let after = [Counters::of(net, "a")?, Counters::of(net, "b")?];
    for (before, after) in before.iter().zip(&after) {
        for (name, grown) in [
            ("tx_vport_unicast_packets", FRAMES),
            ("rx_vport_unicast_packets", FRAMES),
            ("tx_vport_unicast_bytes", FRAMES * BYTES),
            ("rx_vport_unicast_bytes", FRAMES * BYTES),
            ("rx_1024_to_1518_bytes_phy", FRAMES),
        ] {
            assert_eq!(after.since(before, name), grown, "{name}");
        }
        for (all, rings) in
            [("rx_packets", ["rx0_packets", "rx1_packets"]), ("tx_packets", ["tx0_packets", "tx1_packets"])]
        {
            let sum: u64 = rings.iter().map(|ring| after.since(before, ring)).sum();
            assert!(sum >= FRAMES && sum == after.since(before, all), "{all}");
        }
        for never in ERRORS {
            assert_eq!(after.since(before, never), 0, "{never}");
        }
    }
    Ok(())
}

/// Counters that stay at zero on this wire.
const ERRORS: [&str; 8] = [
    "rx_out_of_buffer",
    "rx_wqe_err",
    "rx_crc_errors_phy",
    "rx_discards_phy",
    "tx_errors_phy",
    "tx_discards_phy",
    "tx_cqe_err",
    "rx_buff_alloc_err",
];

/// Counters of `a` as sender and of `b` as receiver, one of each kind: frames and bytes of the port, frames of the
/// vport.
const BOTH_ENDS: [(&str, &str); 3] = [
    ("tx_packets_phy", "rx_packets_phy"),
    ("tx_bytes_phy", "rx_bytes_phy"),
    ("tx_vport_unicast_packets", "rx_vport_unicast_packets"),
];

/// The counters of `a` and `b` while the devices are quiet.
fn at_rest(net: &Net) -> Result<[Counters; 2], Report> {
    let mut last: Option<[Counters; 2]> = None;
    for _ in 0..20 {
        let now = [Counters::of(net, "a")?, Counters::of(net, "b")?];
        let moved = |last: &[Counters; 2]| {
            BOTH_ENDS.iter().any(|(sent, received)| now[0].since(&last[0], sent) + now[1].since(&last[1], received) > 0)
        };
        if last.as_ref().is_some_and(|last| !moved(last)) {
            return Ok(now);
        }
        last = Some(now);
    }
    Err("the devices are never quiet".into())
}

/// TCP uses segmentation and checksum offload, and both ends count the same frames. `family` is 4 or 6.
pub fn tcp(net: &Net, mebibytes: u64, family: u8) -> TestResult {
    let (address, segment) = if family == 4 { ("10.0.0.2", 1448) } else { ("fd00::2", 1428) };
    // Rings that a slow guest does not exhaust.
    for end in ["a", "b"] {
        net.run(end, "ethtool -G eth0 rx 8192")?;
    }
    // Else the virtio card would get multicast and unknown unicast frames.
    net.run("c", "ip link set eth0 down")?;
    let before = at_rest(net)?;
    traffic::tcp(net, mebibytes, "a", "b", address)?;
    let after = at_rest(net)?;
    net.run("c", "ip link set eth0 up")?;
    let bytes = mebibytes << 20;
    let frames = bytes / segment;
    let [sender, receiver] = [0, 1].map(|end| move |name: &str| (end, name.to_owned()));
    let grown = |(end, name): (usize, String)| after[end].since(&before[end], &name);
    for (sent, received) in BOTH_ENDS {
        assert_eq!(grown(sender(sent)), grown(receiver(received)), "{sent} {received}");
        assert!(grown(sender(sent)) >= frames, "{sent}");
    }
    // Nearly all was sent by TSO with the card's checksums; the receiver computed none itself.
    assert!(grown(sender("tx_tso_bytes")) >= bytes / 2 && grown(sender("tx_tso_packets")) < frames);
    assert!(grown(sender("tx_csum_partial")) >= grown(sender("tx_tso_packets")));
    assert!(grown(receiver("rx_csum_complete")) + grown(receiver("rx_csum_unnecessary")) >= frames);
    for never in ERRORS {
        assert_eq!(grown(receiver(never)), 0, "{never}");
    }
    Ok(())
}

/// Datagrams from sixty-four ports, by the ring of `b` that they came to.
fn flows(net: &Net) -> Result<[u64; 2], Report> {
    let before = Counters::of(net, "b")?;
    net.check("ip netns exec a bash -c 'for flow in $(seq 64); do echo > /dev/udp/10.0.0.2/9; done' || true", SOON)?;
    let after = Counters::of(net, "b")?;
    Ok(["rx0_packets", "rx1_packets"].map(|ring| after.since(&before, ring)))
}

/// Flows are spread over the rings by their hash, or as `ethtool -X` and `-N` say.
pub fn rings(net: &Net) -> TestResult {
    const FLOWS: u64 = 64;
    /// How many other frames may arrive meanwhile.
    const NOISE: u64 = 16;
    fix_neighbours(net)?;
    let [first, second] = flows(net)?;
    assert!(first >= FLOWS / 8 && second >= FLOWS / 8, "{first} and {second} frames");
    assert!((FLOWS..=FLOWS + NOISE).contains(&(first + second)), "{first} and {second} frames");
    net.run("b", "ethtool -X eth0 equal 1")?;
    let [first, second] = flows(net)?;
    assert!(first >= FLOWS && second <= NOISE, "{first} and {second} frames");
    net.run("b", "ethtool -X eth0 weight 0 1")?;
    let [first, second] = flows(net)?;
    assert!(first <= NOISE && second >= FLOWS, "{first} and {second} frames");
    net.run("b", "ethtool -X eth0 default")?;
    net.run("b", "ethtool -K eth0 ntuple on")?;
    net.run("b", "ethtool -N eth0 flow-type udp4 dst-port 9 action 1 loc 3")?;
    let [first, second] = flows(net)?;
    assert!(first <= NOISE && second >= FLOWS, "{first} and {second} frames");
    net.run("b", "ethtool -N eth0 delete 3")?;
    net.run("b", "ethtool -N eth0 flow-type udp4 dst-port 9 action -1 loc 4")?;
    let [first, second] = flows(net)?;
    assert!(first + second <= NOISE, "{first} and {second} frames of those to be dropped");
    net.run("b", "ethtool -N eth0 delete 4")?;
    net.run("b", "ethtool -K eth0 ntuple off")?;
    let [first, second] = flows(net)?;
    assert!(first + second >= FLOWS, "{first} and {second} frames");
    Ok(())
}
