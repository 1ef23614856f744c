//! Registers of a physical port: state, speed, size of packets.

use crate::layout::Be32;

layout! {
    /// Port type and speed: register `PTYS`. PRM `ptys_reg`.
    pub struct PtysReg: 0x40, "mlx5_ifc_ptys_reg_bits" {
        0x00 [30] an_disable_admin: bool,
        0x00 [29] an_disable_cap: bool,
        0x00 [23:16] local_port: u8,
        0x00 [7:4] plane_ind: u8,
        0x00 [2:0] proto_mask: u8,
        0x04 [31:28] an_status: u8 as AnStatus,
        0x04 [15:0] data_rate_oper: u16,
        0x08 [31:0] ext_eth_proto_capability: u32,
        0x0c [31:0] eth_proto_capability: u32,
        0x10 [31:16] ib_link_width_capability: u16,
        0x10 [15:0] ib_proto_capability: u16,
        0x14 [31:0] ext_eth_proto_admin: u32,
        0x18 [31:0] eth_proto_admin: u32,
        0x1c [31:16] ib_link_width_admin: u16,
        0x1c [15:0] ib_proto_admin: u16,
        0x20 [31:0] ext_eth_proto_oper: u32,
        0x24 [31:0] eth_proto_oper: u32,
        0x28 [31:16] ib_link_width_oper: u16,
        0x28 [15:0] ib_proto_oper: u16,
        0x2c [23:4] lane_rate_oper: u32,
        0x2c [3:0] connector_type: u8 as ConnectorType,
        0x30 [31:0] eth_proto_lp_advertise: u32,
    }

    /// Port administrative and operational status: register `PAOS`. PRM `paos_reg`.
    pub struct PaosReg: 0x10, "mlx5_ifc_paos_reg_bits" {
        0x00 [31:24] swid: u8,
        0x00 [23:16] local_port: u8,
        0x00 [11:8] admin_status: u8 as PortStatus,
        0x00 [3:0] oper_status: u8 as PortStatus,
        0x04 [31] ase: bool,
        0x04 [30] ee: bool,
        0x04 [1:0] e: u8,
    }

    /// Port MTU: register `PMTU`. PRM `pmtu_reg`.
    pub struct PmtuReg: 0x10, "mlx5_ifc_pmtu_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 [31:16] max_mtu: u16,
        0x08 [31:16] admin_mtu: u16,
        0x0c [31:16] oper_mtu: u16,
    }

    /// InfiniBand capability mask of a port: register `PCAP`. PRM `pcap_reg`.
    pub struct PcapReg: 0x14, "mlx5_ifc_pcap_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 port_capability_mask: [Be32; 4],
    }

    /// Port went up or down: register `PUDE`, delivered as an event. PRM `pude_reg`.
    pub struct PudeReg: 0x10, "mlx5_ifc_pude_reg_bits" {
        0x00 [31:24] swid: u8,
        0x00 [23:16] local_port: u8,
        0x00 [11:8] admin_status: u8 as PortStatus,
        0x00 [3:0] oper_status: u8 as PortStatus,
    }

    /// Virtual lanes of an InfiniBand port: register `PVLC`. PRM `pvlc_reg`.
    pub struct PvlcReg: 0x10, "mlx5_ifc_pvlc_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 [3:0] vl_hw_cap: u8,
        0x08 [3:0] vl_admin: u8,
        0x0c [3:0] vl_operational: u8,
    }

    /// Port check masks: which checks of received packets are on: register `PCMR`. PRM `pcmr_reg`.
    pub struct PcmrReg: 0xc, "mlx5_ifc_pcmr_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 [31] entropy_force_cap: bool,
        0x04 [30] entropy_calc_cap: bool,
        0x04 [29] entropy_gre_calc_cap: bool,
        0x04 [13] rx_ts_over_crc_cap: bool,
        0x04 [1] fcs_cap: bool,
        0x08 [31] entropy_force: bool,
        0x08 [30] entropy_calc: bool,
        0x08 [29] entropy_gre_calc: bool,
        0x08 [13] rx_ts_over_crc: bool,
        0x08 [1] fcs_chk: bool,
    }

    /// Port extended link capabilities, as negotiated: register `PELC`. PRM `pelc_reg`.
    pub struct PelcReg: 0x38, "mlx5_ifc_pelc_reg_bits" {
        0x00 [31:28] op: u8,
        0x00 [23:16] local_port: u8,
        0x04 [31:24] op_admin: u8,
        0x04 [23:16] op_capability: u8,
        0x04 [15:8] op_request: u8,
        0x04 [7:0] op_active: u8,
        0x08 [63:0] admin: u64,
        0x10 [63:0] capability: u64,
        0x18 [63:0] request: u64,
        0x20 [63:0] active: u64,
    }

    /// Local port to InfiniBand port: register `PLIB`. PRM `plib_reg`.
    pub struct PlibReg: 0x10, "mlx5_ifc_plib_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x00 [7:0] ib_port: u8,
    }

    /// Port loopback filter: register `PLBF`. PRM `plbf_reg`.
    pub struct PlbfReg: 0x8, "mlx5_ifc_plbf_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x00 [2:0] lbf_mode: u8,
    }

    /// Port's switch partition: register `PSPA`. PRM `pspa_reg`.
    pub struct PspaReg: 0x8, "mlx5_ifc_pspa_reg_bits" {
        0x00 [31:24] swid: u8,
        0x00 [23:16] local_port: u8,
        0x00 [15:8] sub_port: u8,
    }

    /// Port's physical address: register `PPAD`. PRM `ppad_reg`.
    pub struct PpadReg: 0x10, "mlx5_ifc_ppad_reg_bits" {
        0x00 [28] single_mac: bool,
        0x00 [23:16] local_port: u8,
        0x00 [15:0] mac_47_32: u16,
        0x04 [31:0] mac_31_0: u32,
    }

    /// Port's isolation filter: register `PIFR`. PRM `pifr_reg`.
    pub struct PifrReg: 0x60, "mlx5_ifc_pifr_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x20 port_filter: [Be32; 8],
        0x40 port_filter_update_en: [Be32; 8],
    }

    /// Inter-packet gap of a port: register `PIPG`. PRM `pipg_reg`.
    pub struct PipgReg: 0x8, "mlx5_ifc_pipg_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 [31] dic: bool,
        0x04 [5:2] ipg: u8,
    }

    /// Whether packets of the port's own are looped back: register `REGISTER_LOOPBACK_CONTROL`. PRM
    /// `register_loopback_control`.
    pub struct RegisterLoopbackControl: 0x10, "mlx5_ifc_register_loopback_control_bits" {
        0x00 [31] no_lb: bool,
        0x00 [23:16] port: u8,
    }
}

values! {
    /// Administrative or operational status of a port. PRM `paos_reg`.
    pub enum PortStatus: 4 {
        /// Up.
        Up = 1 "UP",
        /// Down.
        Down = 2 "DOWN",
    }

    /// Status of the auto-negotiation. PRM `ptys_reg.an_status`.
    pub enum AnStatus: 4 {
        /// There is none.
        Unavailable = 0 "UNAVAILABLE",
        /// Done.
        Complete = 1 "COMPLETE",
        /// Failed.
        Failed = 2 "FAILED",
        /// Not done, but the link is up.
        LinkUp = 3 "LINK_UP",
        /// Off.
        LinkDown = 4 "LINK_DOWN",
    }

    /// Connector of a port. PRM `ptys_reg.connector_type`.
    pub enum ConnectorType: 4 {
        /// None that is known.
        NotKnown = 0 "UNKNOWN",
        /// None.
        None = 1 "NONE",
        /// Twisted pair.
        Tp = 2 "TP",
        /// AUI.
        Aui = 3 "AUI",
        /// BNC.
        Bnc = 4 "BNC",
        /// MII.
        Mii = 5 "MII",
        /// Fibre.
        Fibre = 6 "FIBRE",
        /// Direct attached copper.
        Da = 7 "DA",
        /// Another.
        Other = 8 "OTHER",
    }
}
