//! Large receive offload, which Linux turns on where `ethtool` asks for it: the card joins segments, and mlx5e writes
//! their headers by what the completions say.

use crate::common::TestResult;
use crate::counters::Counters;
use crate::net::Net;
use crate::traffic;

/// Turns it on or off at `b`.
fn set(net: &Net, value: &str) -> TestResult {
    net.run("b", &format!("ethtool -K eth0 lro {value}"))?;
    let said = net.run("b", "ethtool -k eth0")?;
    assert!(said.contains(&format!("large-receive-offload: {value}\n")), "{said}");
    net.await_ping("10.0.0.2")
}

/// TCP over IPv4 and IPv6, from the card and from a virtio card: contents are compared, and mlx5e counts what was
/// joined, only while it asks for it. Other packets pass as before.
pub fn joins(net: &Net) -> TestResult {
    let before = Counters::of(net, "b")?;
    traffic::tcp(net, 2, "a", "b", "10.0.0.2")?;
    let off = Counters::of(net, "b")?;
    assert_eq!(off.since(&before, "rx_lro_packets"), 0);
    set(net, "on")?;
    for (from, address) in [("a", "10.0.0.2"), ("a", "fd00::2"), ("c", "10.0.0.2")] {
        let before = Counters::of(net, "b")?;
        traffic::tcp(net, 4, from, "b", address)?;
        let after = Counters::of(net, "b")?;
        let (packets, bytes) = (after.since(&before, "rx_lro_packets"), after.since(&before, "rx_lro_bytes"));
        println!("from {from} to {address}: {packets} joined packets, {bytes} bytes");
        assert!(
            packets > 0 && bytes / packets > 2 * 1348,
            "{packets} packets, {bytes} bytes, from {from} to {address}"
        );
        for never in ["rx_wqe_err", "rx_buff_alloc_err", "rx_oversize_pkts_sw_drop"] {
            assert_eq!(after.since(&before, never), 0, "{never}");
        }
    }
    traffic::udp(net, "a", "b", "10.0.0.2")?;
    net.ping("10.0.0.2", 4000)?;
    set(net, "off")?;
    net.lab.assert_quiet()
}
