//! The capability pages of a function: what can be set, what is in force.

use mlx5_prm::caps::{AtomicCaps, CmdHcaCap, DeviceMemCap, FlowTableNicCap, PerProtocolNetworkingOffloadCaps, RoceCap};

use crate::profile::Profile;

/// The capability pages of a function.
#[derive(Debug, Clone)]
pub struct Capabilities {
    pub(crate) general: Page<CmdHcaCap>,
    pub(crate) roce: Page<RoceCap>,
    pub(crate) atomic: Page<AtomicCaps>,
    /// These cannot be set: what is announced is in force.
    pub(crate) ethernet: PerProtocolNetworkingOffloadCaps,
    pub(crate) flow_table: FlowTableNicCap,
    pub(crate) device_memory: DeviceMemCap,
}

/// One page.
#[derive(Debug, Clone)]
pub(crate) struct Page<L> {
    pub max: L,
    pub current: L,
}

impl Capabilities {
    /// As after `ENABLE_HCA`.
    pub(crate) fn new(profile: &Profile) -> Self {
        Capabilities {
            general: Page { max: profile.general_max, current: profile.general_current },
            roce: Page { max: profile.roce_max, current: profile.roce_current },
            atomic: Page { max: profile.atomic_max, current: profile.atomic_current },
            ethernet: profile.ethernet,
            flow_table: profile.flow_table,
            device_memory: profile.device_memory,
        }
    }

    /// The general page in force.
    pub fn general(&self) -> &CmdHcaCap {
        &self.general.current
    }

    /// The RoCE page in force.
    pub fn roce(&self) -> &RoceCap {
        &self.roce.current
    }

    /// The atomic page in force.
    pub fn atomic(&self) -> &AtomicCaps {
        &self.atomic.current
    }

    /// The page of Ethernet offloads.
    pub fn ethernet(&self) -> &PerProtocolNetworkingOffloadCaps {
        &self.ethernet
    }

    /// The page of flow tables.
    pub fn flow_table(&self) -> &FlowTableNicCap {
        &self.flow_table
    }

    /// The page of memory on the card, where there is any.
    pub fn device_memory(&self) -> Option<&DeviceMemCap> {
        (self.general.current.device_memory() && self.device_memory.memic()).then_some(&self.device_memory)
    }
}
