//! Objects of steering: memory, definers, actions, tables of rules.

use crate::flow::{FlowTableType, SetAddCopyActionInAuto};
use crate::layout::Info;

layout! {
    /// Steering memory that software writes. PRM `sw_icm`.
    pub struct SwIcm: 0x40, "mlx5_ifc_sw_icm_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [7:0] log_sw_icm_size: u8,
        0x10 [63:0] sw_icm_start_addr: u64,
    }

    /// A Geneve option that entries match by. PRM `geneve_tlv_option`.
    pub struct GeneveTlvOption: 0x40, "mlx5_ifc_geneve_tlv_option_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [7:0] geneve_option_fte_index: u8,
        0x0c [31:16] option_class: u16,
        0x0c [15:8] option_type: u8,
        0x0c [4:0] option_data_length: u8,
    }

    /// Arguments of actions, that work requests write. PRM `modify_header_arg`.
    pub struct ModifyHeaderArg: 0x14, "mlx5_ifc_modify_header_arg_bits" {
        0x10 [23:0] access_pd: u32,
    }

    /// Actions without their arguments. PRM `header_modify_pattern_in`. In a header of the kernel's driver.
    pub struct HeaderModifyPatternIn: 0x220, "mlx5_ifc_header_modify_pattern_in_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x10 [31:24] pattern_length: u8,
        0x20 pattern_data: [SetAddCopyActionInAuto; 64] where action_layout,
    }

    /// Sends a copy of every n-th packet to another table. PRM `sampler_obj`.
    pub struct SamplerObj: 0x3c, "mlx5_ifc_sampler_obj_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [31:24] table_type: FlowTableType,
        0x08 [23:16] level: u8,
        0x08 [0] ignore_flow_level: bool,
        0x0c [31:0] sample_ratio: u32,
        0x10 [23:0] sample_table_id: u32,
        0x14 [23:0] default_table_id: u32,
        0x18 [63:0] sw_steering_icm_address_rx: u64,
        0x20 [63:0] sw_steering_icm_address_tx: u64,
    }

    /// Two flow meters. PRM `flow_meter_aso_obj`.
    pub struct FlowMeterAsoObj: 0x80, "mlx5_ifc_flow_meter_aso_obj_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x10 [23:0] meter_aso_access_pd: u32,
        0x40 flow_meter_parameters: [FlowMeterParameters; 2],
    }

    /// A flow meter. PRM `flow_meter`.
    pub struct FlowMeter: 0x80, "mlx5_ifc_flow_meter_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [31] active: bool,
        0x08 [27:24] return_reg_id: u8,
        0x08 [23:16] table_type: FlowTableType,
        0x0c [23:0] destination_table_id: u32,
        0x20 flow_meter_params: FlowMeterParameters,
        0x70 [63:0] sw_steering_icm_address_rx: u64,
        0x78 [63:0] sw_steering_icm_address_tx: u64,
    }

    /// A flow meter: two token buckets. PRM `flow_meter_parameters`.
    pub struct FlowMeterParameters: 0x20, "mlx5_ifc_flow_meter_parameters_bits" {
        0x00 [31] valid: bool,
        0x00 [30] bucket_overflow: bool,
        0x00 [29:28] start_color: FlowMeterColor,
        0x00 [27] both_buckets_on_green: bool,
        0x00 [25:24] meter_mode: FlowMeterMode,
        0x08 [28:24] cbs_exponent: u8,
        0x08 [23:16] cbs_mantissa: u8,
        0x08 [12:8] cir_exponent: u8,
        0x08 [7:0] cir_mantissa: u8,
        0x10 [28:24] ebs_exponent: u8,
        0x10 [23:16] ebs_mantissa: u8,
        0x10 [12:8] eir_exponent: u8,
        0x10 [7:0] eir_mantissa: u8,
    }
}

values! {
    /// What a flow meter counts. PRM `flow_meter_parameters.meter_mode`.
    pub enum FlowMeterMode: 2 {
        /// Bytes of the network packet.
        IpLength = 0 "BYTES_IP_LENGTH",
        /// Bytes of the frame.
        WithL2 = 1 "BYTES_CALC_WITH_L2",
        /// Bytes of the frame and of the gap after it.
        WithL2Ipg = 2 "BYTES_CALC_WITH_L2_IPG",
        /// Packets.
        Packets = 3 "NUM_PACKETS",
    }

    /// Colour of a packet. PRM `flow_meter_parameters.start_color`.
    pub enum FlowMeterColor: 2 {
        /// Too much.
        Red = 0 "RED",
        /// More than agreed.
        Yellow = 1 "YELLOW",
        /// As agreed.
        Green = 2 "GREEN",
        /// None.
        Undefined = 3 "UNDEFINED",
    }
}

impl HeaderModifyPatternIn {
    fn action_layout(bytes: &[u8], i: usize) -> Option<&'static Info> {
        SetAddCopyActionInAuto::in_list(bytes, 0x20, i)
    }
}
