//! Queue pairs to the FPGA.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::FpgaQpc;

layout! {
    /// Input of `FPGA_CREATE_QP`: makes a queue pair to the FPGA.
    pub struct FpgaCreateQpIn: 0x70, "mlx5_ifc_fpga_create_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::FpgaCreateQp,
        0x04 [15:0] op_mod: u16,
        0x10 fpga_qpc: FpgaQpc,
    }

    /// Output of `FPGA_CREATE_QP`.
    pub struct FpgaCreateQpOut: 0x70, "mlx5_ifc_fpga_create_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] fpga_qpn: u32,
        0x10 fpga_qpc: FpgaQpc,
    }

    /// Input of `FPGA_MODIFY_QP`: changes the fields of a queue pair to the FPGA that `field_select` names.
    pub struct FpgaModifyQpIn: 0x70, "mlx5_ifc_fpga_modify_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::FpgaModifyQp,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] fpga_qpn: u32,
        0x0c [31:0] field_select: u32,
        0x10 fpga_qpc: FpgaQpc,
    }

    /// Output of `FPGA_MODIFY_QP`.
    pub struct FpgaModifyQpOut: 0x10, "mlx5_ifc_fpga_modify_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `FPGA_QUERY_QP`: reads a queue pair to the FPGA.
    pub struct FpgaQueryQpIn: 0x10, "mlx5_ifc_fpga_query_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::FpgaQueryQp,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] fpga_qpn: u32,
    }

    /// Output of `FPGA_QUERY_QP`.
    pub struct FpgaQueryQpOut: 0x70, "mlx5_ifc_fpga_query_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 fpga_qpc: FpgaQpc,
    }

    /// Input of `FPGA_DESTROY_QP`: ends a queue pair to the FPGA.
    pub struct FpgaDestroyQpIn: 0x10, "mlx5_ifc_fpga_destroy_qp_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::FpgaDestroyQp,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] fpga_qpn: u32,
    }

    /// Output of `FPGA_DESTROY_QP`.
    pub struct FpgaDestroyQpOut: 0x10, "mlx5_ifc_fpga_destroy_qp_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `FPGA_QUERY_QP_COUNTERS`: reads the counters of a queue pair to the FPGA, and clears them if asked.
    pub struct FpgaQueryQpCountersIn: 0x10, "mlx5_ifc_fpga_query_qp_counters_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::FpgaQueryQpCounters,
        0x04 [15:0] op_mod: u16,
        0x08 [31] clear: bool,
        0x08 [23:0] fpga_qpn: u32,
    }

    /// Output of `FPGA_QUERY_QP_COUNTERS`.
    pub struct FpgaQueryQpCountersOut: 0x70, "mlx5_ifc_fpga_query_qp_counters_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 [63:0] rx_ack_packets: u64,
        0x18 [63:0] rx_send_packets: u64,
        0x20 [63:0] tx_ack_packets: u64,
        0x28 [63:0] tx_send_packets: u64,
        0x30 [63:0] rx_total_drop: u64,
    }
}

commands! {
    FpgaCreateQp: FpgaCreateQpIn => FpgaCreateQpOut,
    FpgaModifyQp: FpgaModifyQpIn => FpgaModifyQpOut,
    FpgaQueryQp: FpgaQueryQpIn => FpgaQueryQpOut,
    FpgaDestroyQp: FpgaDestroyQpIn => FpgaDestroyQpOut,
    FpgaQueryQpCounters: FpgaQueryQpCountersIn => FpgaQueryQpCountersOut,
}
