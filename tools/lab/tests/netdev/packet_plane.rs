//! The forms of queues that mlx5e may choose: striding receive queues, compressed completions, multi-packet WQEs. Each
//! is switched on and off under traffic, whose contents are compared, and mlx5e's own counters say that it was used.

use crate::common::{SOON, TestResult};
use crate::counters;
use crate::net::Net;
use crate::our_end::ends;
use crate::traffic;

/// Private flags of both ends, each `on` or `off`: striding receive queues, compression, multi-packet WQEs.
fn set(net: &Net, striding: &str, compression: &str, multi_packet: &str) -> TestResult {
    let flags = [("rx_striding_rq", striding), ("rx_cqe_compress", compression), ("skb_tx_mpwqe", multi_packet)];
    for namespace in ["a", "b"] {
        for (flag, value) in flags {
            net.run(namespace, &format!("ethtool --set-priv-flags eth0 {flag} {value}"))?;
        }
        let shown = net.run(namespace, "ethtool --show-priv-flags eth0")?;
        for (flag, value) in flags {
            let is_set = |line: &str| line.starts_with(flag) && line.ends_with(&format!(": {value}"));
            assert!(shown.lines().map(str::trim).any(is_set), "{flag} is not {value}:\n{shown}");
        }
    }
    net.await_ping("10.0.0.2")
}

/// Every combination of striding and compression carries TCP and small frames; the counters of each form move where it
/// is on, and only there.
pub fn each_form_of_queue(net: &Net) -> TestResult {
    // mlx5e has no hash of compressed completions, and warns where it was on.
    hash(net, "off")?;
    for (striding, compression) in [("on", "off"), ("on", "on"), ("off", "on"), ("off", "off")] {
        // On where the other is on, so that both values occur with both.
        set(net, striding, compression, striding)?;
        let before = counters::Counters::of(net, "b")?;
        traffic::tcp(net, 5, "a", "b", "10.0.0.2")?;
        traffic::udp(net, "a", "b", "10.0.0.2")?;
        net.check(FLOOD, SOON)?;
        net.ping("10.0.0.2", 1400)?;
        let after = counters::Counters::of(net, "b")?;
        let blocks = after.since(&before, "rx_cqe_compress_blks");
        assert_eq!(blocks > 0, compression == "on", "{blocks} compressed blocks, compression {compression}");
        let packets = after.since(&before, "rx_cqe_compress_pkts");
        assert!(packets >= 2 * blocks, "{packets} packets in {blocks} blocks");
        let sent = after.since(&before, "tx_mpwqe_pkts");
        assert_eq!(sent > 0, striding == "on", "{sent} packets by multi-packet WQEs, which are {striding}");
        for never in ["rx_wqe_err", "rx_buff_alloc_err", "rx_oversize_pkts_sw_drop"] {
            assert_eq!(after.since(&before, never), 0, "{never}");
        }
    }
    // The default again.
    set(net, "on", "off", "on")?;
    hash(net, "on")
}

fn hash(net: &Net, value: &str) -> TestResult {
    for namespace in ["a", "b"] {
        net.run(namespace, &format!("ethtool -K eth0 rxhash {value}"))?;
    }
    Ok(())
}

/// Bursts of small datagrams, one after another.
const FLOOD: &str =
    "ip netns exec a bash -c 'for each in $(seq 300); do echo > /dev/udp/10.0.0.2/9; done' 2>/dev/null || true";

/// `a`, whose address is `$1`, sends back what reaches it from `$2`, with the addresses swapped: whole frames, as they
/// came.
const RETURN: &str = r#"
set -e
ip netns exec a ethtool -K eth0 gro off rx-vlan-filter off
tc -n a qdisc add dev eth0 clsact
tc -n a filter add dev eth0 ingress protocol all prio 1 flower skip_hw src_mac $2 \
    action pedit ex munge eth src set $1 munge eth dst set $2 pipe action mirred egress redirect dev eth0
"#;

const KEEP: &str = r#"
set -e
tc -n a qdisc del dev eth0 clsact
ip netns exec a ethtool -K eth0 gro on rx-vlan-filter on
"#;

/// Our own frames, of random sizes, headers and offloads, many by one work request, come back by mlx5e, each once and
/// with its contents unchanged. So do those that we then send once more from where they were received.
pub fn our_frames_come_back(net: &Net) -> TestResult {
    let theirs = net.run("a", "cat /sys/class/net/eth0/address")?;
    for (open, count) in ends() {
        let mut ours = open(&net.lab.model.sockets()[2], theirs.trim())?;
        net.check(&format!("set -- {} {}\n{RETURN}", theirs.trim(), ours.macs[0]), SOON)?;
        let before = [net.counter("a", "rx_packets_phy")?, net.counter("a", "tx_packets_phy")?];
        ours.exchange(count).map_err(|error| net.lab.explain(format!("{error:?}")))?;
        let after = [net.counter("a", "rx_packets_phy")?, net.counter("a", "tx_packets_phy")?];
        for way in 0..2 {
            assert!(after[way] - before[way] >= ours.times() * count, "{before:?}, {after:?}");
        }
        net.check(KEEP, SOON)?;
    }
    Ok(())
}
