//! `PPCNT`: counters of the physical port, one group for each read. PRM `ppcnt_reg`.

use mlx5_prm::layout::Layout;
use mlx5_prm::reg::{
    Eth2819CntrsGrpDataLayout, Eth2863CntrsGrpDataLayout, Eth3635CntrsGrpDataLayout, Eth8023CntrsGrpDataLayout,
    EthExtendedCntrsGrpDataLayout, EthPerPrioGrpDataLayout, IbPortCntrsGrpDataLayout, PhysLayerCntrs, PortCounterGroup,
    PpcntReg,
};

use super::link::own_port;
use super::syndromes::Syndrome;
use crate::function::Function;
use crate::wire::PhysicalCounters;

/// Bytes of a group's counters.
const SET: usize = 0xf8;

/// Reads a group. Clearing is not supported.
pub(super) fn ppcnt(f: &mut Function, given: &PpcntReg, write: bool) -> Result<PpcntReg, Syndrome> {
    own_port(given.local_port())?;
    if write || given.clr() {
        return Err(Syndrome::RegisterReadOnly);
    }
    let counters = &f.nic.port.counters.physical;
    let set = match PortCounterGroup::from_number(u32::from(given.grp())) {
        PortCounterGroup::Ieee8023 => ieee_802_3(counters),
        PortCounterGroup::Rfc2863 => rfc_2863(counters),
        PortCounterGroup::Rfc2819 => rfc_2819(counters),
        PortCounterGroup::Rfc3635 => {
            numbers::<Eth3635CntrsGrpDataLayout>(&[("dot3stats_frame_too_longs", counters.too_long)])
        }
        // The port has no queues or buffers that could fill up.
        PortCounterGroup::EthernetExtended => numbers::<EthExtendedCntrsGrpDataLayout>(&[]),
        PortCounterGroup::PerPriority => per_priority(counters, given.prio_tc()),
        PortCounterGroup::PhysicalLayer => physical(counters.link_downs),
        PortCounterGroup::InfinibandPort => infiniband(counters),
        _ => return Err(Syndrome::CounterGroup),
    };
    let mut register = *given;
    register.w().counter_set(&Layout::read(&set).unwrap_or_default());
    Ok(register)
}

/// A group with these counters, each a high and a low half; all others are zero.
fn numbers<L: Layout>(counters: &[(&str, u64)]) -> [u8; SET] {
    let mut set = [0; SET];
    for (name, number) in counters {
        let high = L::FIELDS.iter().find(|field| field.name.strip_suffix("_high") == Some(*name));
        debug_assert!(high.is_some(), "{} has no {name}", L::INFO.name);
        if let Some(place) = high.and_then(|field| set.get_mut(field.offset..field.offset + 8)) {
            place.copy_from_slice(&number.to_be_bytes());
        }
    }
    set
}

fn ieee_802_3(counters: &PhysicalCounters) -> [u8; SET] {
    let (received, sent) = (counters.received, counters.sent);
    numbers::<Eth8023CntrsGrpDataLayout>(&[
        ("a_frames_transmitted_ok", sent.all().packets),
        ("a_frames_received_ok", received.all().packets),
        ("a_octets_transmitted_ok", sent.all().octets),
        ("a_octets_received_ok", received.all().octets),
        ("a_multicast_frames_xmitted_ok", sent.multicast.packets),
        ("a_broadcast_frames_xmitted_ok", sent.broadcast.packets),
        ("a_multicast_frames_received_ok", received.multicast.packets),
        ("a_broadcast_frames_received_ok", received.broadcast.packets),
        ("a_frame_too_long_errors", counters.too_long),
    ])
}

fn rfc_2863(counters: &PhysicalCounters) -> [u8; SET] {
    let (received, sent) = (counters.received, counters.sent);
    numbers::<Eth2863CntrsGrpDataLayout>(&[
        ("if_in_octets", received.all().octets),
        ("if_in_ucast_pkts", received.unicast.packets),
        ("if_in_errors", counters.too_long),
        ("if_out_octets", sent.all().octets),
        ("if_out_ucast_pkts", sent.unicast.packets),
        ("if_out_discards", counters.unsendable),
        ("if_in_multicast_pkts", received.multicast.packets),
        ("if_in_broadcast_pkts", received.broadcast.packets),
        ("if_out_multicast_pkts", sent.multicast.packets),
        ("if_out_broadcast_pkts", sent.broadcast.packets),
    ])
}

fn rfc_2819(counters: &PhysicalCounters) -> [u8; SET] {
    let received = counters.received;
    let sizes = counters.received_sizes;
    numbers::<Eth2819CntrsGrpDataLayout>(&[
        ("ether_stats_octets", received.all().octets),
        ("ether_stats_pkts", received.all().packets),
        ("ether_stats_broadcast_pkts", received.broadcast.packets),
        ("ether_stats_multicast_pkts", received.multicast.packets),
        ("ether_stats_oversize_pkts", counters.too_long),
        ("ether_stats_pkts64octets", sizes[0]),
        ("ether_stats_pkts65to127octets", sizes[1]),
        ("ether_stats_pkts128to255octets", sizes[2]),
        ("ether_stats_pkts256to511octets", sizes[3]),
        ("ether_stats_pkts512to1023octets", sizes[4]),
        ("ether_stats_pkts1024to1518octets", sizes[5]),
        ("ether_stats_pkts1519to2047octets", sizes[6]),
        ("ether_stats_pkts2048to4095octets", sizes[7]),
        ("ether_stats_pkts4096to8191octets", sizes[8]),
        ("ether_stats_pkts8192to10239octets", sizes[9]),
    ])
}

/// No priorities are announced: everything counts as priority 0.
fn per_priority(counters: &PhysicalCounters, priority: u8) -> [u8; SET] {
    if priority != 0 {
        return [0; SET];
    }
    let (received, sent) = (counters.received.all(), counters.sent.all());
    numbers::<EthPerPrioGrpDataLayout>(&[
        ("rx_octets", received.octets),
        ("rx_frames", received.packets),
        ("tx_octets", sent.octets),
        ("tx_frames", sent.packets),
    ])
}

fn physical(link_downs: u32) -> [u8; SET] {
    let mut counters = PhysLayerCntrs::ZERO;
    counters.w().link_down_events(link_downs);
    let mut set = [0; SET];
    set.copy_from_slice(Layout::as_bytes(&counters));
    set
}

/// Counters of an InfiniBand port, as mlx5_ib reads them: only errors, which saturate. Packets and bytes are the
/// vport's.
fn infiniband(counters: &PhysicalCounters) -> [u8; SET] {
    let most = |count: u64, bits: u32| count.min((1 << bits) - 1);
    let mut errors = IbPortCntrsGrpDataLayout::ZERO;
    errors
        .w()
        .link_downed_counter(most(counters.link_downs.into(), 8) as u8)
        .port_rcv_errors(most(counters.too_long, 16) as u16)
        .port_xmit_discards(most(counters.unsendable, 16) as u16);
    let mut set = [0; SET];
    set[..IbPortCntrsGrpDataLayout::SIZE].copy_from_slice(Layout::as_bytes(&errors));
    set
}
