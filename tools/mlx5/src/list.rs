//! `mlx5 list`: the cards of this machine, the ways to open each, and what prevents it.

use std::collections::BTreeMap;
use std::fmt;

use mlx5_dv::discovery::{Card, RdmaDevice, RdmaGid, RdmaLink, RdmaPort, Sysfs};
use serde::Serialize;

use crate::output::{Failure, print, print_json};

/// No arguments of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    mlx5 list                                cards, ways to open each, RDMA devices, ports, GIDs\n  \
    mlx5 list --json | jq -r '.cards[].ways[] | select(.usable).device'\n\n\
    A machine without cards has the software card alone; that is no error.")]
pub struct Arguments {}

/// One way to open a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Way {
    /// The device string.
    device: String,
    /// Whether it can be opened now.
    usable: bool,
    /// What prevents it, and the commands that fix it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    obstacles: Vec<Obstacle>,
}

/// What prevents opening a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Obstacle {
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// One card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Listed {
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iommu_group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    numa_node: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<String>,
    ways: Vec<Way>,
    /// The kernel's RDMA devices on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rdma: Vec<Rdma>,
}

/// A kernel RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Rdma {
    name: String,
    firmware: String,
    node_guid: String,
    ports: Vec<Port>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Port {
    number: u8,
    state: String,
    physical_state: String,
    link_layer: String,
    rate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    gids: Vec<Gid>,
    counters: BTreeMap<String, u64>,
}

/// An entry of the kernel's GID table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Gid {
    index: u16,
    address: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
}

/// Prints the cards.
pub fn run(json: bool) -> Result<(), Failure> {
    let sysfs = Sysfs::at("/");
    let links = links(&sysfs);
    let mut cards: Vec<Listed> = sysfs.cards().iter().map(|card| listed(&sysfs, &links, card)).collect();
    cards.push(software_card());
    if json {
        return print_json(&serde_json::json!({ "cards": cards }));
    }
    print(&cards.iter().map(Listed::to_string).collect::<String>())
}

/// RDMA links over netlink; empty if netlink fails, in which case sysfs is used alone. Without RDMA devices the kernel
/// is not asked, as the request would load modules.
fn links(sysfs: &Sysfs) -> Vec<RdmaLink> {
    match sysfs.rdma_names()[..] {
        [] => Vec::new(),
        _ => RdmaLink::all().unwrap_or_default(),
    }
}

fn listed(sysfs: &Sysfs, links: &[RdmaLink], card: &Card) -> Listed {
    let obstacles: Vec<Obstacle> = sysfs
        .obstacles(card)
        .into_iter()
        .map(|obstacle| Obstacle { reason: obstacle.reason, fix: Some(obstacle.fix) })
        .collect();
    let vfio = Way { device: format!("vfio:{}", card.address), usable: obstacles.is_empty(), obstacles };
    let mut devices = sysfs.rdma_devices(card);
    devices.iter_mut().for_each(|device| device.refine(links));
    let devx = devices.iter().map(|device| devx(sysfs, device));
    Listed {
        model: card.model.clone(),
        address: Some(card.address.to_string()),
        driver: card.driver.clone(),
        iommu_group: card.iommu_group,
        numa_node: card.numa_node,
        interfaces: card.interfaces.clone(),
        ways: std::iter::once(vfio).chain(devx).collect(),
        rdma: devices.iter().map(|device| rdma(sysfs, device)).collect(),
    }
}

/// The way through the kernel's RDMA device.
fn devx(sysfs: &Sysfs, device: &RdmaDevice) -> Way {
    let obstacle = sysfs.devx_obstacle(device);
    let obstacles = obstacle.into_iter().map(|obstacle| Obstacle { reason: obstacle.reason, fix: Some(obstacle.fix) });
    let obstacles: Vec<_> = obstacles.collect();
    Way { device: format!("devx:{}", device.name), usable: obstacles.is_empty(), obstacles }
}

fn rdma(sysfs: &Sysfs, device: &RdmaDevice) -> Rdma {
    let port = |port: &RdmaPort| Port {
        number: port.number,
        state: port.state.clone(),
        physical_state: port.physical_state.clone(),
        link_layer: port.link_layer.clone(),
        rate: port.rate.clone(),
        interface: port.interface.clone(),
        gids: port.gids.iter().map(gid).collect(),
        counters: sysfs.counters(&device.name, port.number).into_iter().collect(),
    };
    Rdma {
        name: device.name.clone(),
        firmware: device.firmware.clone(),
        node_guid: device.node_guid.clone(),
        ports: device.ports.iter().map(port).collect(),
    }
}

fn gid(gid: &RdmaGid) -> Gid {
    let (address, kind, interface) = (gid.address.to_string(), gid.kind.clone(), gid.interface.clone());
    Gid { index: gid.index, address, kind, interface }
}

fn software_card() -> Listed {
    Listed {
        model: "software ConnectX".into(),
        address: None,
        driver: None,
        iommu_group: None,
        numa_node: None,
        interfaces: Vec::new(),
        ways: vec![Way { device: "sim".into(), usable: true, obstacles: Vec::new() }],
        rdma: Vec::new(),
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut facts = Vec::new();
        facts.extend(self.driver.as_ref().map(|driver| format!("driver {driver}")));
        facts.extend(self.iommu_group.map(|group| format!("IOMMU group {group}")));
        facts.extend(self.numa_node.map(|node| format!("NUMA node {node}")));
        facts.extend(self.interfaces.iter().cloned());
        let place = self.address.as_deref().unwrap_or("in process");
        writeln!(f, "{}", format!("{place:<14} {:<20} {}", self.model, facts.join(", ")).trim_end())?;
        for way in &self.ways {
            writeln!(f, "    {:<26} {}", way.device, if way.usable { "can be opened" } else { "cannot be opened:" })?;
            for obstacle in &way.obstacles {
                writeln!(f, "        {}", obstacle.reason)?;
                if let Some(fix) = &obstacle.fix {
                    writeln!(f, "        to fix it: {fix}")?;
                }
            }
        }
        self.rdma.iter().try_for_each(|device| write!(f, "{device}"))
    }
}

impl fmt::Display for Rdma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "    {}: firmware {}, node GUID {}", self.name, self.firmware, self.node_guid)?;
        self.ports.iter().try_for_each(|port| write!(f, "{port}"))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interface = self.interface.as_ref().map_or_else(String::new, |name| format!(", {name}"));
        let (number, state, layer, rate) = (self.number, &self.state, &self.link_layer, &self.rate);
        let physical = &self.physical_state;
        writeln!(f, "        port {number}: {state} ({physical}), {layer}, {rate}{interface}")?;
        for gid in &self.gids {
            writeln!(f, "            GID {:<3} {:<40} {}", gid.index, gid.address, gid.kind)?;
        }
        let mut counted = self.counters.iter().filter(|(_, count)| **count != 0);
        counted.try_for_each(|(name, count)| writeln!(f, "            {name} {count}"))
    }
}
