//! Registers of a physical port.

layout! {
    /// Port type and speed: register `PTYS`. PRM `ptys_reg`.
    pub struct PtysReg: 0x40, "mlx5_ifc_ptys_reg_bits" {
        0x00 [30] an_disable_admin: bool,
        0x00 [29] an_disable_cap: bool,
        0x00 [23:16] local_port: u8,
        0x00 [7:4] plane_ind: u8,
        0x00 [2:0] proto_mask: u8,
        0x04 [31:28] an_status: u8,
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
        0x2c [3:0] connector_type: u8,
        0x30 [31:0] eth_proto_lp_advertise: u32,
    }

    /// Port administrative and operational status: register `PAOS`. PRM `paos_reg`.
    pub struct PaosReg: 0x10, "mlx5_ifc_paos_reg_bits" {
        0x00 [31:24] swid: u8,
        0x00 [23:16] local_port: u8,
        0x00 [11:8] admin_status: u8,
        0x00 [3:0] oper_status: u8,
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
}
