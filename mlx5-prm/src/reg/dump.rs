//! Registers that dump state: `CORE_DUMP`, and `RESOURCE_DUMP` with the segments it writes.

use crate::layout::Be32;

layout! {
    /// Asks for a core dump: register `CORE_DUMP`. PRM `core_dump_reg`.
    pub struct CoreDumpReg: 0x40, "mlx5_ifc_core_dump_reg_bits" {
        0x00 [7:0] core_dump_type: u8,
        0x08 [15:0] vhca_id: u16,
        0x0c [23:0] qpn: u32,
    }

    /// Dumps a resource into memory: register `RESOURCE_DUMP`. PRM `resource_dump`.
    pub struct ResourceDump: 0x100, "mlx5_ifc_resource_dump_bits" {
        0x00 [31] more_dump: bool,
        0x00 [30] inline_dump: bool,
        0x00 [19:16] seq_num: u8,
        0x00 [15:0] segment_type: u16,
        0x04 [15:0] vhca_id: u16,
        0x08 [31:0] index1: u32,
        0x0c [31:0] index2: u32,
        0x10 [31:16] num_of_obj1: u16,
        0x10 [15:0] num_of_obj2: u16,
        0x18 [63:0] device_opaque: u64,
        0x20 [31:0] mkey: u32,
        0x24 [31:0] size: u32,
        0x28 [63:0] address: u64,
        0x30 inline_data: [Be32; 52],
    }

    /// Starts each segment of a dump. PRM `resource_dump_segment_header`.
    pub struct ResourceDumpSegmentHeader: 0x4, "mlx5_ifc_resource_dump_segment_header_bits" {
        0x00 [31:16] length_dw: u16,
        0x00 [15:0] segment_type: u16,
    }

    /// Segment: what was asked. PRM `resource_dump_command_segment`.
    pub struct ResourceDumpCommandSegment: 0x14, "mlx5_ifc_resource_dump_command_segment_bits" {
        0x00 segment_header: ResourceDumpSegmentHeader,
        0x04 [31:16] segment_called: u16,
        0x04 [15:0] vhca_id: u16,
        0x08 [31:0] index1: u32,
        0x0c [31:0] index2: u32,
        0x10 [31:16] num_of_obj1: u16,
        0x10 [15:0] num_of_obj2: u16,
    }

    /// Segment: why there is no dump. PRM `resource_dump_error_segment`.
    pub struct ResourceDumpErrorSegment: 0x30, "mlx5_ifc_resource_dump_error_segment_bits" {
        0x00 segment_header: ResourceDumpSegmentHeader,
        0x04 [15:0] syndrome_id: u16,
        0x10 error: [Be32; 8],
    }

    /// Segment: versions. PRM `resource_dump_info_segment`.
    pub struct ResourceDumpInfoSegment: 0x10, "mlx5_ifc_resource_dump_info_segment_bits" {
        0x00 segment_header: ResourceDumpSegmentHeader,
        0x04 [7:0] dump_version: u8,
        0x08 [31:0] hw_version: u32,
        0x0c [31:0] fw_version: u32,
    }

    /// Segment: how many resources can be dumped. PRM `resource_dump_menu_segment`.
    pub struct ResourceDumpMenuSegment: 0x8, "mlx5_ifc_resource_dump_menu_segment_bits" {
        0x00 segment_header: ResourceDumpSegmentHeader,
        0x04 [15:0] num_of_records: u16,
        .. record: [ResourceDumpMenuRecord],
    }

    /// One resource that can be dumped. PRM `resource_dump_menu_record`.
    pub struct ResourceDumpMenuRecord: 0x34, "mlx5_ifc_resource_dump_menu_record_bits" {
        0x00 [27] num_of_obj2_supports_active: bool,
        0x00 [26] num_of_obj2_supports_all: bool,
        0x00 [25] must_have_num_of_obj2: bool,
        0x00 [24] support_num_of_obj2: bool,
        0x00 [23] num_of_obj1_supports_active: bool,
        0x00 [22] num_of_obj1_supports_all: bool,
        0x00 [21] must_have_num_of_obj1: bool,
        0x00 [20] support_num_of_obj1: bool,
        0x00 [19] must_have_index2: bool,
        0x00 [18] support_index2: bool,
        0x00 [17] must_have_index1: bool,
        0x00 [16] support_index1: bool,
        0x00 [15:0] segment_type: u16,
        0x04 segment_name: [Be32; 4],
        0x14 index1_name: [Be32; 4],
        0x24 index2_name: [Be32; 4],
    }

    /// Segment: the resource. PRM `resource_dump_resource_segment`.
    pub struct ResourceDumpResourceSegment: 0x10, "mlx5_ifc_resource_dump_resource_segment_bits" {
        0x00 segment_header: ResourceDumpSegmentHeader,
        0x08 [31:0] index1: u32,
        0x0c [31:0] index2: u32,
        .. payload: [Be32],
    }

    /// Segment: the end. PRM `resource_dump_terminate_segment`.
    pub struct ResourceDumpTerminateSegment: 0x4, "mlx5_ifc_resource_dump_terminate_segment_bits" {
        0x00 segment_header: ResourceDumpSegmentHeader,
    }
}
