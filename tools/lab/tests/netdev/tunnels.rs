//! TCP in tunnels. mlx5e leaves the inner checksums and the division of inner packets to the card, and takes its word
//! for those of received frames. The virtio card's kernel checks each checksum itself.

use crate::common::{Report, SOON, TestResult};
use crate::counters::Counters;
use crate::net::Net;
use crate::traffic;

/// Tunnels of Linux: arguments of `ip link add`, the inner family, and the ends that they are tried with, `b` of the
/// card and `c` of the virtio card.
const TUNNELS: [(&str, u8, &str); 6] = [
    ("vxlan id 42 dstport 4789 local", 4, "bc"),
    // Linux tells the card the port, and has the same UDP checksum in all frames that the card divides a packet into.
    ("vxlan id 43 dstport 8472 udpcsum local", 4, "bc"),
    // Linux tells the card where the headers are. GENEVE chooses its own address.
    ("geneve id 44", 4, "c"),
    ("gretap key 45 local", 4, "bc"),
    ("ipip local", 4, "c"),
    ("sit local", 6, "c"),
];

/// Makes the tunnel `arguments` between `eth0` of `a` and of a namespace, and pings through it.
fn make(net: &Net, far: &str, (arguments, family): (&str, u8)) -> TestResult {
    let (mut script, hosts) = ("set -e\n".to_owned(), [("a", 1, host(far)), (far, host(far), 1)]);
    for (name, own, other) in hosts {
        let local = if arguments.ends_with("local") { format!("10.0.0.{own}") } else { String::new() };
        let place = format!("ip -n {name}");
        let address = inner(own, family);
        let address = if family == 6 { format!("{address}/64 nodad") } else { format!("{address}/24") };
        script += &format!(
            "{place} link add tunnel type {arguments} {local} remote 10.0.0.{other}\n\
             {place} addr add {address} dev tunnel\n{place} link set tunnel up\n"
        );
    }
    script += &format!("ip netns exec a busybox ping -q -c 1 -W 20 {}\n", inner(host(far), family));
    if let Some(port) = arguments.split_once("dstport ").and_then(|(_, rest)| rest.split(' ').next()) {
        // mlx5e tells the card the port a while later. Until then the kernel divides packets itself.
        script += &format!(
            "for wait in $(seq 300); do\n\
             ip netns exec a ethtool --show-tunnels eth0 | grep -q 'port {port}, vxlan' && exit\nsleep 0.1\ndone\n\
             echo 'the card does not know port {port}'; exit 1"
        );
    }
    net.check(&script, SOON)?;
    Ok(())
}

/// The last number of a namespace's addresses.
fn host(name: &str) -> u8 {
    if name == "b" { 2 } else { 3 }
}

/// The address in the tunnel of a host.
fn inner(host: u8, family: u8) -> String {
    if family == 6 { format!("fd01::{host}") } else { format!("10.1.0.{host}") }
}

/// Sends TCP through each tunnel, whose packets the card divides.
pub fn each(net: &Net) -> TestResult {
    net.check("modprobe -a vxlan geneve ip_gre ipip sit", SOON)?;
    let said = net.run("a", "ethtool -k eth0")?;
    for feature in ["tx-udp_tnl-segmentation", "tx-gre-segmentation", "tx-ipxip4-segmentation"] {
        assert!(said.contains(&format!("{feature}: on")), "{feature} in:\n{said}");
    }
    for (arguments, family, ends) in TUNNELS {
        for far in ends.split("").filter(|far| !far.is_empty()) {
            make(net, far, (arguments, family))?;
            let (sent, heard) = (Counters::of(net, "a")?, Counters::of(net, "b")?);
            traffic::tcp(net, 1, "a", far, &inner(host(far), family))?;
            let divided = Counters::of(net, "a")?.since(&sent, "tx_tso_inner_packets");
            assert!(divided > 0, "{arguments} to {far}");
            let heard = |name| Ok::<_, Report>(Counters::of(net, "b")?.since(&heard, name));
            let trusted = heard("rx_csum_unnecessary_inner")? + heard("rx_csum_complete")?;
            assert!(trusted > 0 || far == "c", "{arguments}");
            net.check(&format!("ip -n a link del tunnel && ip -n {far} link del tunnel"), SOON)?;
        }
    }
    net.lab.assert_quiet()
}
