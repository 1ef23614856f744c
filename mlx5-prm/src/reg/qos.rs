//! Registers of quality of service: trust, priorities, traffic classes, DCBX.

use crate::layout::Be16;

layout! {
    /// Whether a port trusts a packet's PCP or DSCP: register `QPTS`. PRM `qpts_reg`.
    pub struct QptsReg: 0x8, "mlx5_ifc_qpts_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 [2:0] trust_state: u8 as TrustState,
    }

    /// Priority of each DSCP: register `QPDPM`. `dscp` holds one number of 16 bits for each: bit 15 updates it (`e`),
    /// bits 3:0 are its priority (`prio`). PRM `qpdpm_reg`.
    pub struct QpdpmReg: 0x84, "mlx5_ifc_qpdpm_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 dscp: [Be16; 64],
    }

    /// Enhanced transmission selection of a port: register `QETCR`. PRM `qetc_reg`.
    pub struct QetcReg: 0x50, "mlx5_ifc_qetc_reg_bits" {
        0x00 [23:16] port_number: u8,
        0x08 tc_configuration: [EtsTcnConfigReg; 8],
        0x48 global_configuration: EtsGlobalConfigReg,
    }

    /// One traffic class of `QETCR`. PRM `ets_tcn_config_reg`.
    pub struct EtsTcnConfigReg: 0x8, "mlx5_ifc_ets_tcn_config_reg_bits" {
        0x00 [31] g: bool,
        0x00 [30] b: bool,
        0x00 [29] r: bool,
        0x00 [19:16] group: u8,
        0x00 [6:0] bw_allocation: u8,
        0x04 [19:16] max_bw_units: u8,
        0x04 [15:0] max_bw_value: u16,
    }

    /// The port's limit over all traffic classes, in `QETCR`. PRM `ets_global_config_reg`.
    pub struct EtsGlobalConfigReg: 0x8, "mlx5_ifc_ets_global_config_reg_bits" {
        0x00 [29] r: bool,
        0x04 [19:16] max_bw_units: u8,
        0x04 [7:0] max_bw_value: u8,
    }

    /// Traffic class of a priority: register `QTCT`. PRM `qtct_reg`.
    pub struct QtctReg: 0x8, "mlx5_ifc_qtct_reg_bits" {
        0x00 [23:16] port_number: u8,
        0x00 [2:0] prio: u8,
        0x04 [2:0] tclass: u8,
    }

    /// Parameters of DCBX as firmware runs it: register `DCBX_PARAM`. PRM `dcbx_param`.
    pub struct DcbxParam: 0x40, "mlx5_ifc_dcbx_param_bits" {
        0x00 [31] dcbx_cee_cap: bool,
        0x00 [30] dcbx_ieee_cap: bool,
        0x00 [29] dcbx_standby_cap: bool,
        0x00 [23:16] port_number: u8,
        0x00 [5:0] max_application_table_size: u8,
        0x04 [10:8] version_oper: u8,
        0x04 [2:0] version_admin: u8,
        0x08 [31] willing_admin: bool,
        0x08 [27:24] pfc_cap_oper: u8,
        0x08 [19:16] pfc_cap_admin: u8,
        0x08 [11:8] num_of_tc_oper: u8,
        0x08 [3:0] num_of_tc_admin: u8,
        0x0c [31] remote_willing: bool,
        0x0c [27:24] remote_pfc_cap: u8,
        0x0c [3:0] remote_num_of_tc: u8,
        0x10 [7:0] error: u8,
    }
}

values! {
    /// Which mark of a packet its priority comes from. PRM `qpts_reg.trust_state`.
    pub enum TrustState: 3 {
        /// The VLAN tag's priority.
        Pcp = 1 "PCP",
        /// The IP header's DSCP.
        Dscp = 2 "DSCP",
    }
}
