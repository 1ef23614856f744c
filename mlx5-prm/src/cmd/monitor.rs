//! What can be counted besides: a port's environment, counters that raise events.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::VnicDiagnosticStatistics;

layout! {
    /// Input of `QUERY_VNIC_ENV`: reads what went wrong at a port: drops, overruns, refused commands.
    pub struct QueryVnicEnvIn: 0x10, "mlx5_ifc_query_vnic_env_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryVnicEnv,
        0x04 [15:0] op_mod: u16 as VnicEnvOpMod,
        0x08 [31] other_vport: bool,
        0x08 [15:0] vport_number: u16,
    }

    /// Output of `QUERY_VNIC_ENV`.
    pub struct QueryVnicEnvOut: 0x210, "mlx5_ifc_query_vnic_env_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 vport_env: VnicDiagnosticStatistics,
    }

    /// Input of `SET_MONITOR_COUNTER`: chooses counters whose change raises an event.
    pub struct SetMonitorCounterIn: 0x48, "mlx5_ifc_set_monitor_counter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SetMonitorCounter,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] num_of_counters: u16,
        0x10 monitor_counter: [MonitorCounterOutput; 7],
    }

    /// Output of `SET_MONITOR_COUNTER`.
    pub struct SetMonitorCounterOut: 0x10, "mlx5_ifc_set_monitor_counter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `ARM_MONITOR_COUNTER`: asks for the next such event.
    pub struct ArmMonitorCounterIn: 0x10, "mlx5_ifc_arm_monitor_counter_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ArmMonitorCounter,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `ARM_MONITOR_COUNTER`.
    pub struct ArmMonitorCounterOut: 0x10, "mlx5_ifc_arm_monitor_counter_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `GET_DROPPED_PACKET_LOG`: reads the headers of the last packet dropped, and why.
    pub struct GetDroppedPacketLogIn: 0x10, "mlx5_ifc_get_dropped_packet_log_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::GetDroppedPacketLog,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `GET_DROPPED_PACKET_LOG`.
    pub struct GetDroppedPacketLogOut: 0xd0, "mlx5_ifc_get_dropped_packet_log_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 packet_headers_log: [u8; 128],
        0x90 packet_syndrome: [u8; 64],
    }

    /// A counter that is watched. PRM `monitor_counter_output`.
    pub struct MonitorCounterOutput: 0x8, "mlx5_ifc_monitor_counter_output_bits" {
        0x00 [27:24] r#type: MonitorCounterType,
        0x00 [15:0] counter: u16,
        0x04 [31:0] counter_group_id: u32,
    }
}

commands! {
    QueryVnicEnv: QueryVnicEnvIn => QueryVnicEnvOut,
    SetMonitorCounter: SetMonitorCounterIn => SetMonitorCounterOut,
    ArmMonitorCounter: ArmMonitorCounterIn => ArmMonitorCounterOut,
    GetDroppedPacketLog: GetDroppedPacketLogIn => GetDroppedPacketLogOut,
}

values! {
    /// What is asked for, `op_mod` of `QUERY_VNIC_ENV`.
    pub enum VnicEnvOpMod: 16 {
        /// Statistics for diagnosis.
        Diag = 0 "VPORT_DIAG_STATISTICS",
    }

    /// Which counters are watched. PRM `monitor_counter_output.type`.
    pub enum MonitorCounterType: 4 {
        /// Those of the register PPCNT.
        Ppcnt = 0 "PPCNT",
        /// Queue counters.
        QCounter = 1 "Q_COUNTER",
    }
}
