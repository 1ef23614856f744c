//! HCA capability pages: the `capability` of `QUERY_HCA_CAP` and `SET_HCA_CAP`, one layout a page.

use crate::layout::{Info, Layout};
use crate::registry::files;

files! {
    debug: layouts;
    device_mem: layouts;
    ethernet: layouts;
    general: layouts values;
    odp: layouts;
    qos: layouts;
    roce: layouts;
    #[allow(non_snake_case, reason = "the PRM writes 8B")]
    atomic: layouts;
}

values! {
    /// A capability page: bits 15:1 of the `op_mod` of `QUERY_HCA_CAP` and `SET_HCA_CAP`.
    pub enum CapPage: 15 {
        /// General device capabilities, [`CmdHcaCap`].
        General = 0x00 "GENERAL",
        /// Ethernet offloads, [`PerProtocolNetworkingOffloadCaps`].
        Ethernet = 0x01 "ETHERNET_OFFLOADS",
        /// On-demand paging, [`OdpCap`].
        Odp = 0x02 "ODP",
        /// Atomics, [`AtomicCaps`].
        Atomic = 0x03 "ATOMIC",
        /// RoCE, [`RoceCap`].
        Roce = 0x04 "ROCE",
        /// IPoIB offloads.
        Ipoib = 0x05 "IPOIB_OFFLOADS",
        /// Enhanced IPoIB offloads.
        IpoibEnhanced = 0x06 "IPOIB_ENHANCED_OFFLOADS",
        /// Flow tables of the NIC.
        FlowTable = 0x07 "FLOW_TABLE",
        /// Flow tables of the e-switch.
        EswitchFlowTable = 0x08 "ESWITCH_FLOW_TABLE",
        /// The e-switch.
        Eswitch = 0x09 "ESWITCH",
        /// Quality of service, [`QosCap`].
        Qos = 0x0c "QOS",
        /// Debugging, [`DebugCap`].
        Debug = 0x0d "DEBUG",
        /// Device memory, [`DeviceMemCap`].
        DeviceMemory = 0x0f "DEV_MEM",
        /// TLS offload.
        Tls = 0x11 "TLS",
        /// vDPA emulation.
        VdpaEmulation = 0x13 "VDPA_EMULATION",
        /// Device events.
        DeviceEvent = 0x14 "DEV_EVENT",
        /// IPsec offload.
        Ipsec = 0x15 "IPSEC",
        /// Cryptography.
        Crypto = 0x1a "CRYPTO",
        /// MACsec offload.
        Macsec = 0x1f "MACSEC",
        /// General device capabilities, second page, [`CmdHcaCap2`].
        General2 = 0x20 "GENERAL_2",
        /// Port selection.
        PortSelection = 0x25 "PORT_SELECTION",
        /// Advanced virtualisation.
        AdvancedVirtualization = 0x26 "ADV_VIRTUALIZATION",
    }
}

impl CapPage {
    /// The page an `op_mod` asks for.
    pub const fn from_op_mod(op_mod: u16) -> Self {
        CapPage::from_number(op_mod as u32 >> 1)
    }

    /// The `op_mod` that asks for the page: what is in force if `current`, else the most the card can.
    pub const fn op_mod(self, current: bool) -> u16 {
        (self.number() as u16) << 1 | current as u16
    }

    /// The page's layout, where this crate has it.
    pub const fn layout(self) -> Option<&'static Info> {
        match self {
            CapPage::General => Some(&CmdHcaCap::INFO),
            CapPage::Ethernet => Some(&PerProtocolNetworkingOffloadCaps::INFO),
            CapPage::Odp => Some(&OdpCap::INFO),
            CapPage::Atomic => Some(&AtomicCaps::INFO),
            CapPage::Roce => Some(&RoceCap::INFO),
            CapPage::Qos => Some(&QosCap::INFO),
            CapPage::Debug => Some(&DebugCap::INFO),
            CapPage::DeviceMemory => Some(&DeviceMemCap::INFO),
            CapPage::General2 => Some(&CmdHcaCap2::INFO),
            _ => None,
        }
    }
}
