//! Counters of ports and functions.

use mlx5_prm::cmd::QueryVportCounterOut;
use mlx5_prm::ctx::TrafficCounter;
use mlx5_prm::layout::{Info, Layout};
use mlx5_prm::reg::{McamEnhancedFeatures, MpcntReg, PcieCounterGroup, PortCounterGroup, PpcntReg};

/// A group of counters of a physical port, over all its functions. PRM `PPCNT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortCounters {
    group: PortCounterGroup,
    counters: Vec<(&'static str, u64)>,
}

impl PortCounters {
    pub(crate) fn of(register: &PpcntReg) -> Self {
        let group = PortCounterGroup::from_number(register.grp().into());
        let counters = group.layout().map(|info| joined(info, register.counter_set().as_bytes()));
        PortCounters { group, counters: counters.unwrap_or_default() }
    }

    /// The group.
    pub fn group(&self) -> PortCounterGroup {
        self.group
    }

    /// All counters by PRM name. A counter of two halves has one name, without `_high` and `_low`.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counters.iter().copied()
    }

    /// The counter `name`; `None` if the group does not have it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(own, _)| *own == name).map(|(_, count)| count)
    }
}

/// Counters of the card's PCIe link, those that it announces. PRM `MPCNT`, "PCIe performance counters".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PcieCounters {
    counters: Vec<(&'static str, u64)>,
}

impl PcieCounters {
    pub(crate) fn of(features: &McamEnhancedFeatures, register: &MpcntReg) -> Self {
        let info = PcieCounterGroup::from_number(register.grp().into()).layout();
        let all = info.map(|info| joined(info, register.counter_set().as_bytes())).unwrap_or_default();
        let announced = |name: &str| match name {
            "tx_overflow_buffer_pkt" => features.tx_overflow_buffer_pkt(),
            name if name.starts_with("outbound_stalled_") => features.pcie_outbound_stalled(),
            _ => features.pcie_performance_group(),
        };
        PcieCounters { counters: all.into_iter().filter(|(name, _)| announced(name)).collect() }
    }

    /// All counters by PRM name. A counter of two halves has one name, without `_high` and `_low`.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counters.iter().copied()
    }

    /// The counter `name`; `None` if the card does not have it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(own, _)| *own == name).map(|(_, count)| count)
    }
}

/// The numbers of a layout by name, with `_high` and `_low` halves joined.
fn joined(info: &'static Info, bytes: &[u8]) -> Vec<(&'static str, u64)> {
    let number = |name: &str| info.field(name)?.number(bytes);
    let counter = |name: &'static str| match (name.strip_suffix("_high"), name.strip_suffix("_low")) {
        (Some(stem), _) => Some((stem, number(name)? << 32 | number(&format!("{stem}_low"))?)),
        (_, Some(stem)) if info.field(&format!("{stem}_high")).is_some() => None,
        _ => Some((name, number(name)?)),
    };
    info.fields.iter().filter_map(|field| counter(field.name)).collect()
}

/// A number of packets and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub octets: u64,
}

impl Traffic {
    fn of(counter: &TrafficCounter) -> Self {
        Traffic { packets: counter.packets(), octets: counter.octets() }
    }
}

/// Counters of a function's vport. PRM "QUERY_VPORT_COUNTER", with its names; `ib` counters are for RDMA packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct VportCounters {
    /// Received with an error, and dropped.
    pub received_errors: Traffic,
    /// Dropped because of an error when sending.
    pub transmit_errors: Traffic,
    /// Unicast RDMA packets received.
    pub received_ib_unicast: Traffic,
    /// Unicast RDMA packets sent.
    pub transmitted_ib_unicast: Traffic,
    /// Multicast RDMA packets received.
    pub received_ib_multicast: Traffic,
    /// Multicast RDMA packets sent.
    pub transmitted_ib_multicast: Traffic,
    /// Broadcast frames received.
    pub received_eth_broadcast: Traffic,
    /// Broadcast frames sent.
    pub transmitted_eth_broadcast: Traffic,
    /// Unicast frames received.
    pub received_eth_unicast: Traffic,
    /// Unicast frames sent.
    pub transmitted_eth_unicast: Traffic,
    /// Multicast frames received.
    pub received_eth_multicast: Traffic,
    /// Multicast frames sent.
    pub transmitted_eth_multicast: Traffic,
}

impl VportCounters {
    pub(crate) fn of(reply: &QueryVportCounterOut) -> Self {
        VportCounters {
            received_errors: Traffic::of(reply.received_errors()),
            transmit_errors: Traffic::of(reply.transmit_errors()),
            received_ib_unicast: Traffic::of(reply.received_ib_unicast()),
            transmitted_ib_unicast: Traffic::of(reply.transmitted_ib_unicast()),
            received_ib_multicast: Traffic::of(reply.received_ib_multicast()),
            transmitted_ib_multicast: Traffic::of(reply.transmitted_ib_multicast()),
            received_eth_broadcast: Traffic::of(reply.received_eth_broadcast()),
            transmitted_eth_broadcast: Traffic::of(reply.transmitted_eth_broadcast()),
            received_eth_unicast: Traffic::of(reply.received_eth_unicast()),
            transmitted_eth_unicast: Traffic::of(reply.transmitted_eth_unicast()),
            received_eth_multicast: Traffic::of(reply.received_eth_multicast()),
            transmitted_eth_multicast: Traffic::of(reply.transmitted_eth_multicast()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_the_counters_of_pcie_that_it_announces() {
        let mut features = McamEnhancedFeatures::ZERO;
        features.w().pcie_performance_group(true).pcie_outbound_stalled(true);
        let mut register = [0; MpcntReg::SIZE];
        // rx_errors, tx_overflow_buffer_pkt, outbound_stalled_reads: from byte 8 on is the set.
        for (offset, value) in [(0x08, 7), (0x2c, 5), (0x30, 99)] {
            register[8 + offset + 3] = value;
        }
        let counters = PcieCounters::of(&features, &MpcntReg::read(&register).unwrap());
        let of = |name| counters.get(name);
        assert_eq!((of("rx_errors"), of("tx_errors"), of("outbound_stalled_reads")), (Some(7), Some(0), Some(99)));
        assert_eq!((of("tx_overflow_buffer_pkt"), of("life_time_counter")), (None, Some(0)));
        assert_eq!(PcieCounters::of(&McamEnhancedFeatures::ZERO, &MpcntReg::ZERO), PcieCounters::default());
    }
    use mlx5_prm::reg::{EthCntrsGrpDataLayoutAuto, PhysLayerCntrs};

    fn register(group: PortCounterGroup, set: &[u8; 0xf8]) -> PpcntReg {
        let mut register = PpcntReg::default();
        register.w().grp(group.number() as u8);
        register.w().counter_set(&EthCntrsGrpDataLayoutAuto::read(set).unwrap());
        register
    }

    #[test]
    fn halves_are_joined_and_single_words_stand_for_themselves() {
        let mut set = [0; 0xf8];
        set[..8].copy_from_slice(&0x1_0000_0007u64.to_be_bytes());
        let counters = PortCounters::of(&register(PortCounterGroup::Ieee8023, &set));
        assert_eq!(counters.get("a_frames_transmitted_ok"), Some(0x1_0000_0007));
        assert_eq!((counters.get("a_frames_received_ok"), counters.get("a_frames")), (Some(0), None));
        assert!(counters.iter().all(|(name, _)| !name.ends_with("_high") && !name.ends_with("_low")));

        let mut physical = PhysLayerCntrs::default();
        physical.w().link_down_events(3);
        set.copy_from_slice(Layout::as_bytes(&physical));
        assert_eq!(PortCounters::of(&register(PortCounterGroup::PhysicalLayer, &set)).get("link_down_events"), Some(3));
    }

    #[test]
    fn a_group_without_a_layout_has_no_counters() {
        let counters = PortCounters::of(&register(PortCounterGroup::Unknown(0x3e), &[1; 0xf8]));
        assert_eq!(counters.iter().count(), 0);
    }
}
