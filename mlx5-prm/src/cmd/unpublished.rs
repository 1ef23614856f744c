//! Commands whose opcodes are public, but whose layouts are in no public header: neither the kernel's, nor rdma-core's,
//! DPDK's or UCX's. What they share with all commands is here; the rest is shown as plain dwords.
//!
//! * `QUERY_XRQ_DC_PARAMS_ENTRY`: UCX publishes the command that sets what this one reads.
//! * `QUERY_XRQ_ERROR_PARAMS`, `RELEASE_XRQ_ERROR`, `MODIFY_XRQ`: of the NVMe-oF target offload, whose driver is not
//!   public.
//! * `QUERY_RATE_LIMIT`: nobody reads back what `SET_PP_RATE_LIMIT` sets.
//! * `CREATE_QOS_PARA_VPORT`, `DESTROY_QOS_PARA_VPORT`: no public driver uses them.

use super::{CmdStatus, Opcode, commands};
use crate::layout::Be32;

layout! {
    /// Input of `QUERY_XRQ_DC_PARAMS_ENTRY`, as far as all inputs agree.
    pub struct QueryXrqDcParamsEntryIn: 0x8, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryXrqDcParamsEntry,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        .. unpublished: [Be32],
    }

    /// Output of `QUERY_XRQ_DC_PARAMS_ENTRY`, as far as all outputs agree.
    pub struct QueryXrqDcParamsEntryOut: 0x8, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. unpublished: [Be32],
    }

    /// Input of `QUERY_XRQ_ERROR_PARAMS`, as far as all inputs agree.
    pub struct QueryXrqErrorParamsIn: 0x8, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryXrqErrorParams,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        .. unpublished: [Be32],
    }

    /// Output of `QUERY_XRQ_ERROR_PARAMS`, as far as all outputs agree.
    pub struct QueryXrqErrorParamsOut: 0x8, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. unpublished: [Be32],
    }

    /// Input of `RELEASE_XRQ_ERROR`, as far as all inputs agree.
    pub struct ReleaseXrqErrorIn: 0x8, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::ReleaseXrqError,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        .. unpublished: [Be32],
    }

    /// Output of `RELEASE_XRQ_ERROR`, as far as all outputs agree.
    pub struct ReleaseXrqErrorOut: 0x8, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. unpublished: [Be32],
    }

    /// Input of `MODIFY_XRQ`, as far as all inputs agree.
    pub struct ModifyXrqIn: 0x8, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyXrq,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        .. unpublished: [Be32],
    }

    /// Output of `MODIFY_XRQ`, as far as all outputs agree.
    pub struct ModifyXrqOut: 0x8, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. unpublished: [Be32],
    }

    /// Input of `QUERY_RATE_LIMIT`, as far as all inputs agree.
    pub struct QueryRateLimitIn: 0x8, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryRateLimit,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        .. unpublished: [Be32],
    }

    /// Output of `QUERY_RATE_LIMIT`, as far as all outputs agree.
    pub struct QueryRateLimitOut: 0x8, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. unpublished: [Be32],
    }

    /// Input of `CREATE_QOS_PARA_VPORT`, as far as all inputs agree.
    pub struct CreateQosParaVportIn: 0x8, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateQosParaVport,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        .. unpublished: [Be32],
    }

    /// Output of `CREATE_QOS_PARA_VPORT`, as far as all outputs agree.
    pub struct CreateQosParaVportOut: 0x8, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. unpublished: [Be32],
    }

    /// Input of `DESTROY_QOS_PARA_VPORT`, as far as all inputs agree.
    pub struct DestroyQosParaVportIn: 0x8, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyQosParaVport,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        .. unpublished: [Be32],
    }

    /// Output of `DESTROY_QOS_PARA_VPORT`, as far as all outputs agree.
    pub struct DestroyQosParaVportOut: 0x8, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. unpublished: [Be32],
    }
}

commands! {

    QueryXrqDcParamsEntry: QueryXrqDcParamsEntryIn => QueryXrqDcParamsEntryOut,
    QueryXrqErrorParams: QueryXrqErrorParamsIn => QueryXrqErrorParamsOut,
    ReleaseXrqError: ReleaseXrqErrorIn => ReleaseXrqErrorOut,
    ModifyXrq: ModifyXrqIn => ModifyXrqOut,
    QueryRateLimit: QueryRateLimitIn => QueryRateLimitOut,
    CreateQosParaVport: CreateQosParaVportIn => CreateQosParaVportOut,
    DestroyQosParaVport: DestroyQosParaVportIn => DestroyQosParaVportOut,
}
