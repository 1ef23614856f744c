//! Registers of a function: timeouts, memory, limits.

layout! {
    /// Default timeouts that a driver should keep: register `DTOR`. PRM `dtor_reg`.
    pub struct DtorReg: 0x40, "mlx5_ifc_dtor_reg_bits" {
        0x04 pcie_toggle_to: DefaultTimeout,
        0x14 health_poll_to: DefaultTimeout,
        0x18 full_crdump_to: DefaultTimeout,
        0x1c fw_reset_to: DefaultTimeout,
        0x20 flush_on_err_to: DefaultTimeout,
        0x24 pci_sync_update_to: DefaultTimeout,
        0x28 tear_down_to: DefaultTimeout,
        0x2c fsm_reactivate_to: DefaultTimeout,
        0x30 reclaim_pages_to: DefaultTimeout,
        0x34 reclaim_vfs_pages_to: DefaultTimeout,
        0x38 reset_unload_to: DefaultTimeout,
    }

    /// One timeout of `DTOR`. PRM `default_timeout`.
    pub struct DefaultTimeout: 0x4, "mlx5_ifc_default_timeout_bits" {
        /// Unit of `to_value`: 0 milliseconds, 1 seconds, 2 minutes, 3 hours.
        0x00 [31:29] to_multiplier: u8,
        0x00 [19:0] to_value: u32,
    }

    /// Which registers of a function there are: register `NIC_CAP`. PRM `nic_cap_reg`.
    pub struct NicCapReg: 0x10, "mlx5_ifc_nic_cap_reg_bits" {
        0x00 [5] vhca_icm_ctrl: bool,
    }

    /// Memory that firmware took for a function (ICM): register `VHCA_ICM_CTRL`. PRM `vhca_icm_ctrl_reg`.
    pub struct VhcaIcmCtrlReg: 0x40, "mlx5_ifc_vhca_icm_ctrl_reg_bits" {
        0x00 [31] vhca_id_valid: bool,
        0x00 [15:0] vhca_id: u16,
        0x18 [31:0] cur_alloc_icm: u32,
    }
}
