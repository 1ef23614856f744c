//! The names that Linux gives to the counters of a port and a vport.

use std::sync::LazyLock;

use mlx5_dv::{Traffic, VportCounters};
use mlx5_prm::reg::PortCounterGroup;

/// A counter of the physical port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortName {
    /// As `ethtool -S` prints it.
    pub name: String,
    /// The group that has it.
    pub group: PortCounterGroup,
    /// Of which priority.
    pub priority: u8,
    /// Its name in the PRM, without `_high` and `_low`.
    pub prm: &'static str,
}

/// All counters of the physical port, in Linux's order; those of one group and priority side by side.
pub static PORT: LazyLock<Vec<PortName>> = LazyLock::new(|| {
    let mut names: Vec<PortName> = rows().filter_map(parse).flatten().collect();
    names.sort_by_key(|name| name.priority);
    names
});

/// The counters of PCIe: the names that `ethtool -S` prints, and those of the PRM.
pub static PCIE: LazyLock<Vec<(&'static str, &'static str)>> = LazyLock::new(|| {
    let of_pcie = |row| split(row).and_then(|[name, group, prm]| (group == "PCIE").then_some((name, prm)));
    rows().filter_map(of_pcie).collect()
});

fn rows() -> impl Iterator<Item = &'static str> {
    include_str!("names.txt").lines().filter(|line| !line.starts_with('#'))
}

fn split(row: &'static str) -> Option<[&'static str; 3]> {
    row.split(" | ").collect::<Vec<_>>().try_into().ok()
}

/// A row of the table that is of the port: a counter, or one for each priority.
fn parse(row: &'static str) -> Option<Vec<PortName>> {
    let [name, group, prm] = split(row)?;
    let group = *PortCounterGroup::ALL.iter().find(|known| known.prm_name() == Some(group))?;
    let of = |priority: u8| PortName { name: name.replace('%', &priority.to_string()), group, priority, prm };
    Some(if name.contains('%') { (0..8).map(of).collect() } else { vec![of(0)] })
}

/// The vport's counters, as `ethtool -S` names them; the two of errors as its versions before Linux 4.12 did.
pub fn of_vport(counters: &VportCounters) -> Vec<(String, u64)> {
    let all: [(&str, Traffic); 12] = [
        ("rx_vport_error", counters.received_errors),
        ("tx_vport_error", counters.transmit_errors),
        ("rx_vport_unicast", counters.received_eth_unicast),
        ("tx_vport_unicast", counters.transmitted_eth_unicast),
        ("rx_vport_multicast", counters.received_eth_multicast),
        ("tx_vport_multicast", counters.transmitted_eth_multicast),
        ("rx_vport_broadcast", counters.received_eth_broadcast),
        ("tx_vport_broadcast", counters.transmitted_eth_broadcast),
        ("rx_vport_rdma_unicast", counters.received_ib_unicast),
        ("tx_vport_rdma_unicast", counters.transmitted_ib_unicast),
        ("rx_vport_rdma_multicast", counters.received_ib_multicast),
        ("tx_vport_rdma_multicast", counters.transmitted_ib_multicast),
    ];
    let both = |(name, traffic): (&str, Traffic)| {
        [(format!("{name}_packets"), traffic.packets), (format!("{name}_bytes"), traffic.octets)]
    };
    all.into_iter().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use mlx5_prm::reg::PcieCounterGroup;

    use super::*;

    #[test]
    fn every_row_names_a_field_of_its_group_and_no_name_comes_twice() {
        let of_pcie = PcieCounterGroup::Performance.layout().expect("a layout");
        for row in rows() {
            match split(row) {
                Some([_, "PCIE", prm]) => {
                    assert!(of_pcie.field(prm).or(of_pcie.field(&format!("{prm}_high"))).is_some(), "{row}");
                }
                _ => assert!(parse(row).is_some(), "{row}"),
            }
        }
        assert_eq!(PCIE.len(), 7);
        for name in PORT.iter() {
            let layout = name.group.layout().expect("a layout");
            let fields = [name.prm.to_owned(), format!("{}_high", name.prm)];
            assert!(fields.iter().any(|field| layout.field(field).is_some()), "{name:?}");
        }
        let mut names: Vec<&str> = PORT.iter().map(|name| name.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PORT.len());
        assert_eq!(PORT.len(), 45 + 13 * 8);
    }
}
