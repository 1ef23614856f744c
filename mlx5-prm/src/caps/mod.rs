//! HCA capability pages: the `capability` of `QUERY_HCA_CAP` and `SET_HCA_CAP`, one layout a page.

use crate::layout::files::files;
use crate::layout::{Info, Layout};

files! {
    debug: layouts;
    device_mem: layouts;
    eswitch: layouts;
    ethernet: layouts values;
    flow_table: layouts;
    general: layouts values;
    odp: layouts;
    qos: layouts;
    receive: layouts;
    roce: layouts;
    security: layouts;
    virtualization: layouts;
    #[allow(non_snake_case, reason = "the PRM writes 8B")]
    atomic: layouts;
}

mod op_mod;

pub use op_mod::HcaCapOpMod;

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
        /// IPoIB offloads, [`PerProtocolNetworkingOffloadCaps`].
        Ipoib = 0x05 "IPOIB_OFFLOADS",
        /// Enhanced IPoIB offloads, [`PerProtocolNetworkingOffloadCaps`].
        IpoibEnhanced = 0x06 "IPOIB_ENHANCED_OFFLOADS",
        /// Flow tables of the NIC, [`FlowTableNicCap`].
        FlowTable = 0x07 "FLOW_TABLE",
        /// Flow tables of the e-switch, [`FlowTableEswitchCap`].
        EswitchFlowTable = 0x08 "ESWITCH_FLOW_TABLE",
        /// The e-switch, [`ESwitchCap`].
        Eswitch = 0x09 "ESWITCH",
        /// Quality of service, [`QosCap`].
        Qos = 0x0c "QOS",
        /// Debugging, [`DebugCap`].
        Debug = 0x0d "DEBUG",
        /// Device memory, [`DeviceMemCap`].
        DeviceMemory = 0x0f "DEV_MEM",
        /// TLS offload, [`TlsCap`].
        Tls = 0x11 "TLS",
        /// vDPA emulation, [`VirtioEmulationCap`].
        VdpaEmulation = 0x13 "VDPA_EMULATION",
        /// Device events, [`DeviceEventCap`].
        DeviceEvent = 0x14 "DEV_EVENT",
        /// IPsec offload, [`IpsecCap`].
        Ipsec = 0x15 "IPSEC",
        /// Cryptography, [`CryptoCap`].
        Crypto = 0x1a "CRYPTO",
        /// Split of headers from data, [`ShampoCap`].
        Shampo = 0x1d "SHAMPO",
        /// PSP offload, [`PspCap`].
        Psp = 0x1e "PSP",
        /// MACsec offload, [`MacsecCap`].
        Macsec = 0x1f "MACSEC",
        /// General device capabilities, second page, [`CmdHcaCap2`].
        General2 = 0x20 "GENERAL_2",
        /// Port selection, [`PortSelectionCap`].
        PortSelection = 0x25 "PORT_SELECTION",
        /// Advanced virtualisation, [`AdvVirtualizationCap`].
        AdvancedVirtualization = 0x26 "ADV_VIRTUALIZATION",
        /// Advanced RDMA, [`AdvRdmaCap`].
        AdvancedRdma = 0x28 "ADV_RDMA",
        /// Emulation of devices by transactions, [`TlpDevEmuCapabilities`].
        TlpEmulation = 0x2a "TLP_EMULATION",
    }
}

impl CapPage {
    /// The page an `op_mod` asks for.
    pub const fn from_op_mod(op_mod: u16) -> Self {
        CapPage::from_number(op_mod as u32 >> 1)
    }

    /// The `op_mod` that asks for the page: current values if `current`, else maximum values.
    pub const fn op_mod(self, current: bool) -> u16 {
        (self.number() as u16) << 1 | current as u16
    }

    /// The page's layout, if this crate has one.
    pub const fn layout(self) -> Option<&'static Info> {
        Some(match self {
            CapPage::General => &CmdHcaCap::INFO,
            CapPage::Ethernet | CapPage::Ipoib | CapPage::IpoibEnhanced => &PerProtocolNetworkingOffloadCaps::INFO,
            CapPage::Odp => &OdpCap::INFO,
            CapPage::Atomic => &AtomicCaps::INFO,
            CapPage::Roce => &RoceCap::INFO,
            CapPage::FlowTable => &FlowTableNicCap::INFO,
            CapPage::EswitchFlowTable => &FlowTableEswitchCap::INFO,
            CapPage::Eswitch => &ESwitchCap::INFO,
            CapPage::Qos => &QosCap::INFO,
            CapPage::Debug => &DebugCap::INFO,
            CapPage::DeviceMemory => &DeviceMemCap::INFO,
            CapPage::Tls => &TlsCap::INFO,
            CapPage::VdpaEmulation => &VirtioEmulationCap::INFO,
            CapPage::DeviceEvent => &DeviceEventCap::INFO,
            CapPage::Ipsec => &IpsecCap::INFO,
            CapPage::Crypto => &CryptoCap::INFO,
            CapPage::Shampo => &ShampoCap::INFO,
            CapPage::Psp => &PspCap::INFO,
            CapPage::Macsec => &MacsecCap::INFO,
            CapPage::General2 => &CmdHcaCap2::INFO,
            CapPage::PortSelection => &PortSelectionCap::INFO,
            CapPage::AdvancedVirtualization => &AdvVirtualizationCap::INFO,
            CapPage::AdvancedRdma => &AdvRdmaCap::INFO,
            CapPage::TlpEmulation => &TlpDevEmuCapabilities::INFO,
            CapPage::Unknown(_) => return None,
        })
    }
}
