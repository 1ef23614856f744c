//! Debian's unmodified mlx5e: network devices of two functions, and a virtio card on the same wire, each in a namespace
//! of its own.

#[path = "../common/mod.rs"]
mod common;
mod counters;
mod iperf;
mod lro;
mod net;
#[path = "../common/our_end.rs"]
mod our_end;
mod packet_plane;
mod settings;
#[path = "../common/tcp.rs"]
mod tcp;
mod traffic;
mod tunnels;

use common::{TestResult, assert_lawful};
use mlx5_lab::rounds;
use net::Net;

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn network_devices_talk() -> TestResult {
    let net = Net::boot("netdev")?;
    // First, while there is no IPv6 neighbour discovery.
    counters::exact(&net)?;
    net.ping("10.0.0.2", 56)?;
    net.ping("fd00::2", 1400)?;
    settings::identity(&net)?;
    counters::rings(&net)?;
    settings::changes(&net)?;
    settings::coalescing(&net)?;
    settings::timestamps(&net)?;
    net.lab.assert_quiet()?;
    // Linux refuses it below VLAN devices, which come next.
    lro::joins(&net)?;
    traffic::vlan(&net)?;
    // Larger than the MTU: fragments.
    net.ping("10.0.0.2", 4000)?;
    traffic::groups(&net)?;
    traffic::listed_groups(&net)?;
    traffic::second_address(&net)?;
    traffic::bridge(&net)?;
    traffic::udp(&net, "a", "b", "10.0.0.2")?;
    net.lab.assert_quiet()?;
    counters::tcp(&net, rounds(6, 100) as u64, 4)?;
    counters::tcp(&net, rounds(4, 10) as u64, 6)?;
    net.lab.assert_quiet()?;
    packet_plane::each_form_of_queue(&net)?;
    net.lab.assert_quiet()?;
    tunnels::each(&net)?;
    packet_plane::our_frames_come_back(&net)?;
    iperf::tcp(&net, &common::build()?)?;
    virtio_card(&net)?;
    net.assert_healthy()?;
    jumbo_frames(&net)?;
    net.lab.guest.power_off()?;
    assert_lawful(&net.lab.model);
    Ok(())
}

/// The same with a virtio card at the other end.
fn virtio_card(net: &Net) -> TestResult {
    net.ping("10.0.0.3", 56)?;
    net.ping("10.0.0.3", 4000)?;
    net.ping("fd00::3", 1400)?;
    traffic::udp(net, "a", "c", "10.0.0.3")?;
    traffic::udp(net, "c", "a", "10.0.0.1")?;
    let mebibytes = rounds(6, 100) as u64;
    traffic::tcp(net, mebibytes, "a", "c", "10.0.0.3")?;
    traffic::tcp(net, mebibytes, "c", "b", "10.0.0.2")?;
    net.lab.assert_quiet()
}

/// Frames that take several receive buffers. The queues are replaced while frames arrive.
fn jumbo_frames(net: &Net) -> TestResult {
    for _ in 0..rounds(1, 3) {
        net.set_mtu(9000)?;
        let before = net.counter("a", "tx_vport_unicast_bytes")?;
        net.ping("10.0.0.2", 8000)?;
        net.ping("10.0.0.3", 8000)?;
        net.ping("fd00::2", 8900)?;
        assert!(net.counter("a", "tx_vport_unicast_bytes")? >= before + 6 * 8000 + 3 * 8900);
        traffic::tcp(net, 5, "a", "b", "10.0.0.2")?;
        traffic::tcp(net, 5, "c", "a", "10.0.0.1")?;
        net.set_mtu(1500)?;
        net.ping("10.0.0.2", 56)?;
    }
    net.lab.assert_quiet()
}
