//! Capability pages of a function: maximum and current values. PRM "SET_HCA_CAP".

use mlx5_prm::caps::{
    AtomicCaps, CmdHcaCap, CmdHcaCap2, DeviceMemCap, FlowTableNicCap, OdpCap, OdpSchemeCap,
    PerProtocolNetworkingOffloadCaps, QosCap, RoceCap,
};

use crate::profile::Profile;

/// The capability pages of a function.
#[derive(Debug, Clone)]
pub struct Capabilities {
    pub(crate) general: Page<CmdHcaCap>,
    pub(crate) roce: Page<RoceCap>,
    pub(crate) atomic: Page<AtomicCaps>,
    pub(crate) odp: Page<OdpCap>,
    /// These pages cannot be set: the announced values are in force.
    pub(crate) ethernet: PerProtocolNetworkingOffloadCaps,
    pub(crate) flow_table: FlowTableNicCap,
    pub(crate) qos: QosCap,
    pub(crate) general_2: CmdHcaCap2,
    pub(crate) device_memory: DeviceMemCap,
}

/// One page.
#[derive(Debug, Clone)]
pub(crate) struct Page<L> {
    pub max: L,
    pub current: L,
}

impl Capabilities {
    /// The state after `ENABLE_HCA`.
    pub(crate) fn new(profile: &Profile) -> Self {
        Capabilities {
            general: Page { max: profile.general_max, current: profile.general_current },
            roce: Page { max: profile.roce_max, current: profile.roce_current },
            atomic: Page { max: profile.atomic_max, current: profile.atomic_current },
            odp: Page { max: profile.odp_max, current: profile.odp_current },
            ethernet: profile.ethernet,
            flow_table: profile.flow_table,
            qos: profile.qos,
            general_2: profile.general_2,
            device_memory: profile.device_memory,
        }
    }

    /// Current general capabilities.
    pub fn general(&self) -> &CmdHcaCap {
        &self.general.current
    }

    /// Current RoCE capabilities.
    pub fn roce(&self) -> &RoceCap {
        &self.roce.current
    }

    /// Current atomic capabilities.
    pub fn atomic(&self) -> &AtomicCaps {
        &self.atomic.current
    }

    /// Current on-demand paging capabilities.
    pub fn odp(&self) -> &OdpCap {
        &self.odp.current
    }

    /// The scheme by which page faults are told and resumed.
    pub fn odp_scheme(&self) -> &OdpSchemeCap {
        let odp = &self.odp.current;
        match odp.mem_page_fault() {
            true => odp.memory_page_fault_scheme_cap(),
            false => odp.transport_page_fault_scheme_cap(),
        }
    }

    /// Ethernet offload capabilities.
    pub fn ethernet(&self) -> &PerProtocolNetworkingOffloadCaps {
        &self.ethernet
    }

    /// Flow table capabilities.
    pub fn flow_table(&self) -> &FlowTableNicCap {
        &self.flow_table
    }

    /// Quality of service capabilities.
    pub fn qos(&self) -> &QosCap {
        &self.qos
    }

    /// The second page of general capabilities.
    pub fn general_2(&self) -> &CmdHcaCap2 {
        &self.general_2
    }

    /// Device memory capabilities, if there is any.
    pub fn device_memory(&self) -> Option<&DeviceMemCap> {
        (self.general.current.device_memory() && self.device_memory.memic()).then_some(&self.device_memory)
    }
}
