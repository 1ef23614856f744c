//! What a port and a function count.

use mlx5_prm::cmd::QueryVportCounterOut;
use mlx5_prm::ctx::TrafficCounter;
use mlx5_prm::layout::{Info, Layout};
use mlx5_prm::reg::{PortCounterGroup, PpcntReg};

/// One group of a physical port's counters, of all its functions together. PRM `PPCNT`.
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

    /// Which group.
    pub fn group(&self) -> PortCounterGroup {
        self.group
    }

    /// Every counter by its PRM name, without the `_high` and `_low` of its halves.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counters.iter().copied()
    }

    /// The counter `name`; `None` if the group has none of that name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(own, _)| *own == name).map(|(_, count)| count)
    }
}

/// The numbers of a layout by name, halves joined.
fn joined(info: &'static Info, bytes: &[u8]) -> Vec<(&'static str, u64)> {
    let number = |name: &str| info.field(name)?.number(bytes);
    let counter = |name: &'static str| match (name.strip_suffix("_high"), name.strip_suffix("_low")) {
        (Some(stem), _) => Some((stem, number(name)? << 32 | number(&format!("{stem}_low"))?)),
        (_, Some(stem)) if info.field(&format!("{stem}_high")).is_some() => None,
        _ => Some((name, number(name)?)),
    };
    info.fields.iter().filter_map(|field| counter(field.name)).collect()
}

/// Packets, and the bytes in them.
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

/// What passed a function's vport. PRM "QUERY_VPORT_COUNTER"; names are its. RDMA packets are the `ib` ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct VportCounters {
    /// Received, and dropped for an error.
    pub received_errors: Traffic,
    /// Dropped for an error instead of sent.
    pub transmit_errors: Traffic,
    /// RDMA packets received.
    pub received_ib_unicast: Traffic,
    /// RDMA packets sent.
    pub transmitted_ib_unicast: Traffic,
    /// RDMA packets received, to groups.
    pub received_ib_multicast: Traffic,
    /// RDMA packets sent to groups.
    pub transmitted_ib_multicast: Traffic,
    /// Frames received, to everybody.
    pub received_eth_broadcast: Traffic,
    /// Frames sent to everybody.
    pub transmitted_eth_broadcast: Traffic,
    /// Frames received.
    pub received_eth_unicast: Traffic,
    /// Frames sent.
    pub transmitted_eth_unicast: Traffic,
    /// Frames received, to groups.
    pub received_eth_multicast: Traffic,
    /// Frames sent to groups.
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
