//! Registers of the firmware tracer.

layout! {
    /// What the tracer can do: register `MTRC_CAP`. PRM `mtrc_cap`.
    pub struct MtrcCap: 0x80, "mlx5_ifc_mtrc_cap_bits" {
        0x00 [31] trace_owner: bool,
        0x00 [30] trace_to_memory: bool,
        0x00 [25:24] trc_ver: u8,
        0x00 [3:0] num_string_db: u8,
        0x04 [31:24] first_string_trace: u8,
        0x04 [23:16] num_string_trace: u8,
        0x08 [7:0] log_max_trace_buffer_size: u8,
        0x10 string_db_param: [MtrcStringDbParam; 8],
    }

    /// One section of the tracer's strings. PRM `mtrc_string_db_param`.
    pub struct MtrcStringDbParam: 0x8, "mlx5_ifc_mtrc_string_db_param_bits" {
        0x00 [31:0] string_db_base_address: u32,
        0x04 [23:0] string_db_size: u32,
    }

    /// Where traces go: register `MTRC_CONF`. PRM `mtrc_conf`.
    pub struct MtrcConf: 0x80, "mlx5_ifc_mtrc_conf_bits" {
        0x00 [3:0] trace_mode: u8,
        0x04 [7:0] log_trace_buffer_size: u8,
        0x08 [31:0] trace_mkey: u32,
    }

    /// Reads the tracer's strings: register `MTRC_STDB`. PRM `mtrc_stdb`.
    pub struct MtrcStdb: 0x8, "mlx5_ifc_mtrc_stdb_bits" {
        0x00 [31:28] string_db_index: u8,
        0x00 [23:0] read_size: u32,
        0x04 [31:0] start_offset: u32,
        .. string_db_data: [u8],
    }

    /// Starts, stops and arms the tracer: register `MTRC_CTRL`. PRM `mtrc_ctrl`.
    pub struct MtrcCtrl: 0x40, "mlx5_ifc_mtrc_ctrl_bits" {
        0x00 [31:30] trace_status: u8,
        0x00 [27] arm_event: bool,
        0x00 [15:0] modify_field_select: u16,
        0x08 [20:0] current_timestamp52_32: u32,
        0x0c [31:0] current_timestamp31_0: u32,
    }

    /// An event in the tracer's buffer, as far as all agree. PRM `tracer_event`.
    pub struct TracerEvent: 0x8, "mlx5_ifc_tracer_event_bits" {
        0x00 [31] lost: bool,
        0x00 [30:24] timestamp: u8,
        0x00 [23:16] event_id: u8,
        0x02 event_data: [u8; 6],
    }

    /// A string of the tracer's sections, or one of its parameters. PRM `tracer_string_event`.
    pub struct TracerStringEvent: 0x8, "mlx5_ifc_tracer_string_event_bits" {
        0x00 [31] lost: bool,
        0x00 [30:24] timestamp: u8,
        0x00 [23:16] event_id: u8,
        0x00 [15:3] tmsn: u16,
        0x00 [2:0] tdsn: u8,
        0x04 [31:0] string_param: u32,
    }

    /// The time, of which other events have the lowest bits. PRM `tracer_timestamp_event`.
    pub struct TracerTimestampEvent: 0x8, "mlx5_ifc_tracer_timestamp_event_bits" {
        0x00 [31:24] timestamp7_0: u8,
        0x00 [23:16] event_id: u8,
        0x00 [15:13] urts: u8,
        0x00 [12:0] timestamp52_40: u16,
        0x04 [31:0] timestamp39_8: u32,
    }
}
