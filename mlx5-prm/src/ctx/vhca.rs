//! Virtual host adapters: their state, and what an embedded CPU is told of them.

use crate::layout::Be32;

layout! {
    /// State of a virtual host adapter. PRM `vhca_state_context`. In a header of the kernel's driver.
    pub struct VhcaStateContext: 0x10, "mlx5_ifc_vhca_state_context_bits" {
        0x00 [31] arm_change_event: bool,
        0x00 [19:16] vhca_state: VhcaState,
        0x04 [31:0] sw_function_id: u32,
    }

    /// Which fields of the context `MODIFY_VHCA_STATE` changes. PRM `vhca_state_field_select`. In a header of the
    /// kernel's driver.
    pub struct VhcaStateFieldSelect: 0x4, "mlx5_ifc_vhca_state_field_select_bits" {
        0x00 [1] sw_function_id: bool,
        0x00 [0] arm_change_event: bool,
    }

    /// What a function is. PRM `net_function_params`.
    pub union NetFunctionParams: 0x40, "mlx5_ifc_net_function_params_bits" {
        0x00 host_params_context: HostParamsContext,
        0x00 network_function_params: NetworkFunctionParams,
    }

    /// A host's physical function. PRM `host_params_context`.
    pub struct HostParamsContext: 0x40, "mlx5_ifc_host_params_context_bits" {
        0x00 [31:24] host_number: u8,
        0x00 [18] host_pf_not_exist: bool,
        0x00 [16] host_pf_disabled: bool,
        0x00 [15:0] host_num_of_vfs: u16,
        0x04 [31:16] host_total_vfs: u16,
        0x04 [15:0] host_pci_bus: u16,
        0x08 [15:0] host_pci_device: u16,
        0x0c [15:0] host_pci_function: u16,
    }

    /// A physical function, and the virtual ones behind it. PRM `network_function_params`.
    pub struct NetworkFunctionParams: 0x40, "mlx5_ifc_network_function_params_bits" {
        0x00 [31:24] host_number: u8,
        0x00 [23:20] pci_pf_type: PciPfType,
        0x00 [15:0] pci_num_vfs: u16,
        0x04 [31:16] pci_total_vfs: u16,
        0x04 [15:8] pci_bus: u8,
        0x04 [7:0] pci_device_function: u8,
        0x08 [31:16] vhca_id: u16,
        0x08 [15:12] vhca_state: VhcaState,
        0x0c [21] esw_vport_manual: bool,
        0x0c [20] pci_bus_assigned: bool,
        0x0c [19] pci_vf_info_valid: bool,
        0x10 [31:16] pci_vf_stride: u16,
        0x10 [15:0] pci_first_vf_offset: u16,
    }

    /// How many scalable functions of one size there are. PRM `sf_partition`.
    pub struct SfPartition: 0x4, "mlx5_ifc_sf_partition_bits" {
        0x00 [15:8] log_num_sf: u8,
        0x00 [7:0] log_sf_bar_size: u8,
    }

    /// Where a function is on its bus, and its virtual host adapter. PRM `function_vhca_rid_info_reg`.
    pub struct FunctionVhcaRidInfoReg: 0x10, "mlx5_ifc_function_vhca_rid_info_reg_bits" {
        0x00 [31:24] host_number: u8,
        0x00 [23:16] host_pci_device_function: u8,
        0x00 [15:8] host_pci_bus: u8,
        0x00 [4] pci_bus_assigned: bool,
        0x00 [3:0] function_type: u8,
        0x04 [31:24] parent_pci_device_function: u8,
        0x04 [23:16] parent_pci_bus: u8,
        0x04 [15:0] vhca_id: u16,
        0x08 [15:0] function_id: u16,
    }

    /// A function that is managed from here. PRM `delegated_function_vhca_rid_info`.
    pub struct DelegatedFunctionVhcaRidInfo: 0x20, "mlx5_ifc_delegated_function_vhca_rid_info_bits" {
        0x00 function_vhca_rid_info: FunctionVhcaRidInfoReg,
        0x10 [7:0] manage_profile: u8,
    }

    /// A vendor's unique identifier, as text. PRM `array1024_auto`.
    pub struct Array1024Auto: 0x80, "mlx5_ifc_array1024_auto_bits" {
        0x00 array1024_auto: [Be32; 32],
    }

    /// An object of another function, seen as one's own. PRM `alias_context`.
    pub struct AliasContext: 0x40, "mlx5_ifc_alias_context_bits" {
        0x00 [31:16] vhca_id_to_be_accessed: u16,
        0x00 [4] vhca_id_type: bool,
        0x00 [2:0] status: u8,
        0x04 [31:0] object_id_to_be_accessed: u32,
        0x10 access_key: [u8; 32],
        0x30 metadata: [Be32; 4],
    }
}

values! {
    /// State of a virtual host adapter. PRM `vhca_state`.
    pub enum VhcaState: 4 {
        /// Not there.
        Invalid = 0 "INVALID",
        /// There, but not yet to be used.
        Allocated = 1 "ALLOCATED",
        /// May be used.
        Active = 2 "ACTIVE",
        /// Its driver is at work.
        InUse = 3 "IN_USE",
        /// Its driver is asked to end.
        TeardownRequest = 4 "TEARDOWN_REQUEST",
    }

    /// Where a physical function is. PRM `network_function_params.pci_pf_type`.
    pub enum PciPfType: 4 {
        /// In the host.
        ExternalHostPf = 0 "EXTERNAL_HOST_PF",
        /// In a satellite.
        SatellitePf = 1 "SATELLITE_PF",
    }
}
