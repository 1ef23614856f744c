//! Capabilities for virtual machines: emulated devices, tracking of written pages, events handed to users.

use crate::layout::Be64;

layout! {
    /// Emulation of virtio devices for vDPA. PRM `virtio_emulation_cap`.
    pub struct VirtioEmulationCap: 0x100, "mlx5_ifc_virtio_emulation_cap_bits" {
        0x00 [31] desc_tunnel_offload_type: bool,
        0x00 [30] eth_frame_offload_type: bool,
        0x00 [29] virtio_version_1_0: bool,
        0x00 [28:16] device_features_bits_mask: u16,
        0x00 [15:8] event_mode: u8,
        0x00 [7:0] virtio_queue_type: u8,
        0x04 [31:16] max_tunnel_desc: u16,
        0x04 [12:8] log_doorbell_stride: u8,
        0x04 [4:0] log_doorbell_bar_size: u8,
        0x08 [63:0] doorbell_bar_offset: u64,
        0x10 [31:24] max_emulated_devices: u8,
        0x10 [23:0] max_num_virtio_queues: u32,
        0x18 [12] desc_group_mkey_supported: bool,
        0x18 [11] freeze_to_rdy_supported: bool,
        0x20 [31:0] umem_1_buffer_param_a: u32,
        0x24 [31:0] umem_1_buffer_param_b: u32,
        0x28 [31:0] umem_2_buffer_param_a: u32,
        0x2c [31:0] umem_2_buffer_param_b: u32,
        0x30 [31:0] umem_3_buffer_param_a: u32,
        0x34 [31:0] umem_3_buffer_param_b: u32,
    }

    /// Tracking of the pages that a virtual machine's function writes. PRM `adv_virtualization_cap`.
    pub struct AdvVirtualizationCap: 0x100, "mlx5_ifc_adv_virtualization_cap_bits" {
        0x00 [28:24] pg_track_log_max_num: u8,
        0x00 [23:16] pg_track_max_num_range: u8,
        0x00 [15:8] pg_track_log_min_addr_space: u8,
        0x00 [7:0] pg_track_log_max_addr_space: u8,
        0x04 [28:24] pg_track_log_min_msg_size: u8,
        0x04 [20:16] pg_track_log_max_msg_size: u8,
        0x04 [12:8] pg_track_log_min_page_size: u8,
        0x04 [4:0] pg_track_log_max_page_size: u8,
    }

    /// Which events a user context may subscribe to. PRM `device_event_cap`.
    pub struct DeviceEventCap: 0x40, "mlx5_ifc_device_event_cap_bits" {
        0x00 user_affiliated_events: [Be64; 4],
        0x20 user_unaffiliated_events: [Be64; 4],
    }

    /// Emulation of devices whose transactions software answers. PRM `tlp_dev_emu_capabilities`.
    pub struct TlpDevEmuCapabilities: 0x100, "mlx5_ifc_tlp_dev_emu_capabilities_bits" {
        0x04 [12:8] log_tlp_rsp_gw_page_stride: u8,
        0x20 [19:16] tlp_rsp_gw_num_pages: u8,
        0x38 [63:0] tlp_rsp_gw_pages_bar_offset: u64,
    }
}
