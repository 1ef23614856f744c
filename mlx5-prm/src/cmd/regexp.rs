//! The engine for regular expressions. DPDK has its layouts.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `QUERY_REGEXP_PARAMS`: reads how an engine is set up.
    pub struct QueryRegexpParamsIn: 0x10, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryRegexpParams,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [7:0] engine_id: u8,
    }

    /// Output of `QUERY_REGEXP_PARAMS`.
    pub struct QueryRegexpParamsOut: 0x40, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 regexp_params: RegexpParams,
    }

    /// Whether an engine runs, and where its rules lie. PRM `regexp_params`.
    pub struct RegexpParams: 0x30, "none" {
        0x00 [0] stop_engine: bool,
        0x10 [31:0] rof_mkey: u32,
        0x14 [31:0] rof_size: u32,
        0x18 [63:0] rof_mkey_va: u64,
    }

    /// Input of `QUERY_REGEXP_REGISTER`: reads a register of an engine.
    pub struct QueryRegexpRegisterIn: 0x10, "none" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryRegexpRegister,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [7:0] engine_id: u8,
        0x0c [31:0] register_address: u32,
    }

    /// Output of `QUERY_REGEXP_REGISTER`.
    pub struct QueryRegexpRegisterOut: 0x10, "none" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:0] register_data: u32,
    }
}

commands! {
    QueryRegexpParams: QueryRegexpParamsIn => QueryRegexpParamsOut,
    QueryRegexpRegister: QueryRegexpRegisterIn => QueryRegexpRegisterOut,
}
