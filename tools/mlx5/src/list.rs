//! `mlx5 list`: cards here, how each can be reached, what stands in the way.

use std::fmt;

use mlx5_dv::discovery::{Card, Sysfs};
use serde::Serialize;

use crate::{Failure, print, print_json};

/// One way to a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Way {
    /// The device string.
    device: String,
    /// Whether it would open now.
    usable: bool,
    /// What stands in the way, and the line that removes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    obstacles: Vec<Obstacle>,
}

/// What stands in the way.
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
}

/// Prints the cards.
pub fn run(json: bool) -> Result<(), Failure> {
    let sysfs = Sysfs::at("/");
    let mut cards: Vec<Listed> = sysfs.cards().iter().map(|card| listed(&sysfs, card)).collect();
    cards.push(software_card());
    if json {
        return print_json(&serde_json::json!({ "cards": cards }));
    }
    print(&cards.iter().map(Listed::to_string).collect::<String>())
}

fn listed(sysfs: &Sysfs, card: &Card) -> Listed {
    let obstacles: Vec<Obstacle> = sysfs
        .obstacles(card)
        .into_iter()
        .map(|obstacle| Obstacle { reason: obstacle.reason, fix: Some(obstacle.fix) })
        .collect();
    let vfio = Way { device: format!("vfio:{}", card.address), usable: obstacles.is_empty(), obstacles };
    let devx = card.rdma_devices.iter().map(|name| Way {
        device: format!("devx:{name}"),
        usable: false,
        obstacles: vec![Obstacle { reason: "devx is not built yet".into(), fix: None }],
    });
    Listed {
        model: card.model.clone(),
        address: Some(card.address.to_string()),
        driver: card.driver.clone(),
        iommu_group: card.iommu_group,
        numa_node: card.numa_node,
        interfaces: card.interfaces.clone(),
        ways: std::iter::once(vfio).chain(devx).collect(),
    }
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
        Ok(())
    }
}
