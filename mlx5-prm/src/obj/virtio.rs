//! Queues of an emulated virtio network device.

layout! {
    /// A queue of an emulated virtio network device. PRM `virtio_net_q_object`.
    pub struct VirtioNetQObject: 0xc0, "mlx5_ifc_virtio_net_q_object_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x0c [31:16] vhca_id: u16,
        0x10 [31:22] queue_feature_bit_mask_12_3: u16,
        0x10 [21] dirty_bitmap_dump_enable: bool,
        0x10 [20:16] vhost_log_page: u8,
        0x10 [3:0] state: VirtioNetQState,
        0x14 [26:24] queue_feature_bit_mask_2_0: u8,
        0x14 [23:0] tisn_or_qpn: u32,
        0x18 [31:0] dirty_bitmap_mkey: u32,
        0x1c [31:0] dirty_bitmap_size: u32,
        0x20 [63:0] dirty_bitmap_addr: u64,
        0x28 [31:16] hw_available_index: u16,
        0x28 [15:0] hw_used_index: u16,
        0x40 virtio_q_context: VirtioQ,
    }

    /// A virtio queue: where its rings lie. PRM `virtio_q`.
    pub struct VirtioQ: 0x80, "mlx5_ifc_virtio_q_bits" {
        0x00 [31:24] virtio_q_type: u8,
        0x00 [18:16] event_mode: VirtioQEventMode,
        0x00 [15:0] queue_index: u16,
        0x04 [31] full_emulation: bool,
        0x04 [30] virtio_version_1_0: bool,
        0x04 [27:24] offload_type: u8,
        0x04 [23:0] event_qpn_or_msix: u32,
        0x08 [31:16] doorbell_stride_index: u16,
        0x08 [15:0] queue_size: u16,
        0x0c [31:0] device_emulation_id: u32,
        0x10 [63:0] desc_addr: u64,
        0x18 [63:0] used_addr: u64,
        0x20 [63:0] available_addr: u64,
        0x28 [31:0] virtio_q_mkey: u32,
        0x2c [31:16] max_tunnel_desc: u16,
        0x2c [7:0] error_type: u8,
        0x30 [31:0] umem_1_id: u32,
        0x34 [31:0] umem_1_size: u32,
        0x38 [63:0] umem_1_offset: u64,
        0x40 [31:0] umem_2_id: u32,
        0x44 [31:0] umem_2_size: u32,
        0x48 [63:0] umem_2_offset: u64,
        0x50 [31:0] umem_3_id: u32,
        0x54 [31:0] umem_3_size: u32,
        0x58 [63:0] umem_3_offset: u64,
        0x60 [31:0] counter_set_id: u32,
        0x64 [23:0] pd: u32,
        0x6c [31:0] desc_group_mkey: u32,
    }

    /// What a virtio queue has counted. PRM `virtio_q_counters`.
    pub struct VirtioQCounters: 0x80, "mlx5_ifc_virtio_q_counters_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x10 [63:0] received_desc: u64,
        0x18 [63:0] completed_desc: u64,
        0x20 [31:0] error_cqes: u32,
        0x24 [31:0] bad_desc_errors: u32,
        0x28 [31:0] exceed_max_chain: u32,
        0x2c [31:0] invalid_buffer: u32,
    }
}

values! {
    /// State of a virtio queue. PRM `virtio_net_q_object.state`.
    pub enum VirtioNetQState: 4 {
        /// Initialised.
        Init = 0 "INIT",
        /// At work.
        Rdy = 1 "RDY",
        /// Suspended.
        Suspend = 2 "SUSPEND",
        /// Error.
        Err = 3 "ERR",
    }

    /// How a virtio queue notifies its driver. PRM `virtio_q.event_mode`.
    pub enum VirtioQEventMode: 3 {
        /// Not at all.
        NoMsix = 0 "NO_MSIX_MODE",
        /// Through a queue pair.
        Qp = 1 "QP_MODE",
        /// By an interrupt.
        Msix = 2 "MSIX_MODE",
    }
}
