//! The register of what firmware keeps of its configuration while the power is off. The kernel has its layouts in
//! `nv_param.c`.

use crate::layout::{Info, Layout};

layout! {
    /// An item of configuration: register `MNVDA`. PRM `mnvda_reg`.
    pub struct MnvdaReg: 0x10c, "mlx5_ifc_mnvda_reg_bits" {
        0x00 configuration_item_header: ConfigItem,
        0x0c configuration_item_data: [u8; 256] where item,
    }

    /// Which item, and how it may be used. PRM `config_item`.
    pub struct ConfigItem: 0xc, "mlx5_ifc_config_item_bits" {
        0x00 [31:30] valid: u8,
        0x00 [29:28] priority: u8,
        0x00 [27:26] header_type: u8,
        0x00 [25] ovr_en: bool,
        0x00 [24] rd_en: bool,
        0x00 [23:22] access_mode: u8,
        0x00 [20:16] writer_id: u8,
        0x00 [15:12] version: u8,
        0x00 [9] host_id_valid: bool,
        0x00 [8:0] length: u16,
        0x04 r#type: ConfigItemTypeAuto where class,
        0x08 [15:0] crc16: u16,
    }

    /// Where the item belongs, by its class. PRM `config_item_type_auto`.
    pub union ConfigItemTypeAuto: 0x4, "mlx5_ifc_config_item_type_auto_bits" {
        0x00 configuration_item_type_class_global: ConfigItemTypeGlobal,
        0x00 configuration_item_type_class_per_host_pf: ConfigItemTypePerHostPf,
    }

    /// An item of the whole card. PRM `configuration_item_type_class_global`.
    pub struct ConfigItemTypeGlobal: 0x4, "mlx5_ifc_configuration_item_type_class_global_bits" {
        0x00 [31:24] type_class: u8,
        0x00 [23:0] parameter_index: u32,
    }

    /// An item of one physical function. PRM `configuration_item_type_class_per_host_pf`.
    pub struct ConfigItemTypePerHostPf: 0x4, "mlx5_ifc_configuration_item_type_class_per_host_pf_bits" {
        0x00 [31:24] type_class: u8,
        0x00 [23:18] pf_index: u8,
        0x00 [17:10] pci_bus_index: u8,
        0x00 [9:0] parameter_index: u16,
    }

    /// SR-IOV of the whole card: class 0, item 0x80. PRM `nv_global_pci_conf`.
    pub struct NvGlobalPciConf: 0xc, "mlx5_ifc_nv_global_pci_conf_bits" {
        0x00 [31] sriov_valid: bool,
        0x00 [20] per_pf_num_sf: bool,
        0x00 [14] per_pf_total_vf: bool,
        0x04 [31] sriov_en: bool,
        0x04 [15:0] total_vfs: u16,
    }

    /// What of SR-IOV the card can: class 0, item 0x81. PRM `nv_global_pci_cap`.
    pub struct NvGlobalPciCap: 0x14, "mlx5_ifc_nv_global_pci_cap_bits" {
        0x00 [31] max_vfs_per_pf_valid: bool,
        0x00 [11] per_pf_total_vf_supported: bool,
        0x04 [31] sriov_support: bool,
        0x04 [15:0] max_vfs_per_pf: u16,
    }

    /// What software is offered: class 0, item 0x10a. PRM `nv_sw_offload_conf`.
    pub struct NvSwOffloadConf: 0x8, "mlx5_ifc_nv_sw_offload_conf_bits" {
        0x00 [31:16] ip_over_vxlan_port: u16,
        0x00 [15] tunnel_ecn_copy_offload_disable: bool,
        0x00 [14:12] pci_atomic_mode: u8,
        0x00 [11] sr_enable: bool,
        0x00 [10] ptp_cyc2realtime: bool,
        0x00 [9] vector_calc_disable: bool,
        0x00 [8] uctx_en: bool,
        0x00 [7] prio_tag_required_en: bool,
        0x00 [6] esw_fdb_ipv4_ttl_modify_enable: bool,
        0x00 [5] mkey_by_name: bool,
        0x00 [4] ip_over_vxlan_en: bool,
        0x00 [3] one_qp_per_recovery: bool,
        0x00 [2:0] cqe_compression: u8,
        0x04 [31] tunnel_udp_entropy_proto_disable: bool,
        0x04 [29] ar_enable: bool,
        0x04 [28:24] log_max_outstanding_wqe: u8,
        0x04 [23:22] vf_migration: u8,
        0x04 [21:16] log_tx_psn_win: u8,
        0x04 [15:12] lro_log_timeout3: u8,
        0x04 [11:8] lro_log_timeout2: u8,
        0x04 [7:4] lro_log_timeout1: u8,
        0x04 [3:0] lro_log_timeout0: u8,
    }

    /// What of that the card can: class 0, item 0x10b. PRM `nv_sw_offload_cap`.
    pub struct NvSwOffloadCap: 0x4, "mlx5_ifc_nv_sw_offload_cap_bits" {
        0x00 [6] swp_l4_csum_mode_l4_only: bool,
    }

    /// Acceleration of software's parsers: class 0, item 0x11d. PRM `nv_sw_accelerate_conf`.
    pub struct NvSwAccelerateConf: 0x8, "mlx5_ifc_nv_sw_accelerate_conf_bits" {
        0x00 [31:30] swp_l4_csum_mode: u8,
    }

    /// SR-IOV and subfunctions of one physical function: class 3, item 0x80. PRM `nv_pf_pci_conf`.
    pub struct NvPfPciConf: 0x10, "mlx5_ifc_nv_pf_pci_conf_bits" {
        0x00 [31:24] log_sf_bar_size: u8,
        0x00 [23] pf_total_sf_en: bool,
        0x00 [22] pf_total_vf_en: bool,
        0x00 [15:0] total_sf: u16,
        0x08 [15:0] total_vf: u16,
    }
}

/// The class of items of the whole card, and that of items of one physical function.
const GLOBAL: u8 = 0;
const PER_HOST_PF: u8 = 3;

impl ConfigItem {
    fn class(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        match ConfigItem::read(bytes)?.r#type().configuration_item_type_class_global().type_class() {
            GLOBAL => Some(&ConfigItemTypeGlobal::INFO),
            PER_HOST_PF => Some(&ConfigItemTypePerHostPf::INFO),
            _ => None,
        }
    }
}

impl MnvdaReg {
    fn item(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        let header = ConfigItem::read(bytes)?;
        let (global, of_pf) = (
            header.r#type().configuration_item_type_class_global(),
            header.r#type().configuration_item_type_class_per_host_pf(),
        );
        match (global.type_class(), global.parameter_index(), of_pf.parameter_index()) {
            (GLOBAL, 0x80, _) => Some(&NvGlobalPciConf::INFO),
            (GLOBAL, 0x81, _) => Some(&NvGlobalPciCap::INFO),
            (GLOBAL, 0x10a, _) => Some(&NvSwOffloadConf::INFO),
            (GLOBAL, 0x10b, _) => Some(&NvSwOffloadCap::INFO),
            (GLOBAL, 0x11d, _) => Some(&NvSwAccelerateConf::INFO),
            (PER_HOST_PF, _, 0x80) => Some(&NvPfPciConf::INFO),
            _ => None,
        }
    }
}
