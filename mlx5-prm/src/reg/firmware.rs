//! Registers of firmware: components and their update, reset, image.

use crate::layout::{Be32, Info, Layout};

layout! {
    /// State of a firmware component: register `MCQS`. PRM `mcqs_reg`.
    pub struct McqsReg: 0x10, "mlx5_ifc_mcqs_reg_bits" {
        0x00 [31] last_index_flag: bool,
        0x00 [23:16] fw_device: u8,
        0x00 [15:0] component_index: u16,
        0x04 [15:0] identifier: u16,
        0x08 [8:4] component_status: u8,
        0x08 [3:0] component_update_state: u8,
        0x0c [31:28] last_update_state_changer_type: u8,
        0x0c [27:24] last_update_state_changer_host_id: u8,
    }

    /// Information on a firmware component: register `MCQI`, selected by `info_type`. PRM `mcqi_reg`.
    pub struct McqiReg: 0x18, "mlx5_ifc_mcqi_reg_bits" {
        0x00 [31] read_pending_component: bool,
        0x00 [15:0] component_index: u16,
        0x08 [4:0] info_type: u8 as McqiInfo,
        0x0c [31:0] info_size: u32,
        0x10 [31:0] offset: u32,
        0x14 [15:0] data_size: u16,
        .. data: [McqiRegData] where info,
    }

    /// The kinds of facts. PRM `mcqi_reg_data`.
    pub union McqiRegData: 0x7c, "mlx5_ifc_mcqi_reg_data_bits" {
        0x00 mcqi_caps: McqiCap,
        0x00 mcqi_version: McqiVersion,
        0x00 mcqi_activation_mathod: McqiActivationMethod,
    }

    /// What a component's update can do. PRM `mcqi_cap`.
    pub struct McqiCap: 0x14, "mlx5_ifc_mcqi_cap_bits" {
        0x00 [31:0] supported_info_bitmask: u32,
        0x04 [31:0] component_size: u32,
        0x08 [31:0] max_component_size: u32,
        0x0c [31:28] log_mcda_word_size: u8,
        0x0c [15:0] mcda_max_write_size: u16,
        0x10 [31] rd_en: bool,
        0x10 [29] match_chip_id: bool,
        0x10 [28] match_psid: bool,
        0x10 [27] check_user_timestamp: bool,
        0x10 [26] match_base_guid_mac: bool,
    }

    /// A component's version. PRM `mcqi_version`.
    pub struct McqiVersion: 0x7c, "mlx5_ifc_mcqi_version_bits" {
        0x00 [29] build_time_valid: bool,
        0x00 [28] user_defined_time_valid: bool,
        0x00 [7:0] version_string_length: u8,
        0x04 [31:0] version: u32,
        0x08 [63:0] build_time: u64,
        0x10 [63:0] user_defined_time: u64,
        0x18 [31:0] build_tool_version: u32,
        0x20 version_string: [u8; 92],
    }

    /// How a new component comes into force. PRM `mcqi_activation_method`.
    pub struct McqiActivationMethod: 0x4, "mlx5_ifc_mcqi_activation_method_bits" {
        0x00 [31] pending_server_ac_power_cycle: bool,
        0x00 [30] pending_server_dc_power_cycle: bool,
        0x00 [29] pending_server_reboot: bool,
        0x00 [28] pending_fw_reset: bool,
        0x00 [27] auto_activate: bool,
        0x00 [26] all_hosts_sync: bool,
        0x00 [25] device_hw_reset: bool,
    }

    /// Steps of a component's update: register `MCC`. PRM `mcc_reg`.
    pub struct MccReg: 0x20, "mlx5_ifc_mcc_reg_bits" {
        0x00 [27:16] time_elapsed_since_last_cmd: u16,
        0x00 [7:0] instruction: u8,
        0x04 [15:0] component_index: u16,
        0x08 [23:0] update_handle: u32,
        0x0c [31:28] handle_owner_type: u8,
        0x0c [27:24] handle_owner_host_id: u8,
        0x0c [22:16] control_progress: u8,
        0x0c [15:8] error_code: u8,
        0x0c [3:0] control_state: u8,
        0x10 [31:0] component_size: u32,
    }

    /// Data of a component: register `MCDA`. PRM `mcda_reg`.
    pub struct McdaReg: 0x10, "mlx5_ifc_mcda_reg_bits" {
        0x00 [23:0] update_handle: u32,
        0x04 [31:0] offset: u32,
        0x08 [15:0] size: u16,
        .. data: [Be32],
    }

    /// Firmware reset level: register `MFRL`. PRM `mfrl_reg`.
    pub struct MfrlReg: 0x8, "mlx5_ifc_mfrl_reg_bits" {
        0x04 [29] pci_sync_for_fw_update_start: bool,
        0x04 [28:27] pci_sync_for_fw_update_resp: u8,
        0x04 [26:24] rst_type_sel: u8,
        0x04 [23:21] pci_reset_req_method: u8 as ResetMethod,
        0x04 [19:16] reset_state: u8 as ResetState,
        0x04 [15:8] reset_type: u8,
        0x04 [7:0] reset_level: u8,
    }

    /// Image reactivation: register `MIRC`. PRM `mirc_reg`.
    pub struct MircReg: 0x8, "mlx5_ifc_mirc_reg_bits" {
        0x00 [7:0] status_code: u8,
    }
}

values! {
    /// A kind of facts of a component. PRM `mcqi_reg.info_type`.
    pub enum McqiInfo: 5 {
        /// What its update can do, [`McqiCap`].
        Capabilities = 0x0 "CAPABILITIES",
        /// Its version, [`McqiVersion`].
        Version = 0x1 "VERSION",
        /// How it comes into force, [`McqiActivationMethod`].
        ActivationMethod = 0x5 "ACTIVATION_METHOD",
    }

    /// How PCIe is reset. PRM `mfrl_reg.pci_reset_req_method`.
    pub enum ResetMethod: 3 {
        /// The link is switched off and on.
        LinkToggle = 0 "LINK_TOGGLE",
        /// By a hot reset.
        HotReset = 1 "HOT_RESET",
    }

    /// How far a reset is. PRM `mfrl_reg.reset_state`.
    pub enum ResetState: 4 {
        /// None is under way.
        Idle = 0 "IDLE",
        /// The hosts are asked.
        InNegotiation = 1 "IN_NEGOTIATION",
        /// It is being done.
        InProgress = 2 "RESET_IN_PROGRESS",
        /// A host did not answer.
        NegotiationTimeout = 3 "NEG_TIMEOUT",
        /// A host refused.
        Nack = 4 "NACK",
        /// A host's driver did not unload.
        UnloadTimeout = 5 "UNLOAD_TIMEOUT",
    }
}

impl McqiReg {
    fn info(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        match McqiInfo::from_number(McqiReg::read(bytes)?.info_type().into()) {
            McqiInfo::Capabilities => Some(&McqiCap::INFO),
            McqiInfo::Version => Some(&McqiVersion::INFO),
            McqiInfo::ActivationMethod => Some(&McqiActivationMethod::INFO),
            McqiInfo::Unknown(_) => None,
        }
    }
}
