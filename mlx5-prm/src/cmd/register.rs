//! Access to registers by command.

use super::{CmdStatus, Opcode, commands};
use crate::reg::RegisterId;

layout! {
    /// Input of `ACCESS_REGISTER`: reads (`op_mod` 1) or writes (0) a register, whose layout follows, see [`reg`](crate::reg).
    pub struct AccessRegisterIn: 0x10, "mlx5_ifc_access_register_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AccessReg,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] register_id: u16 as RegisterId,
        0x0c [31:0] argument: u32,
    }

    /// Output of `ACCESS_REGISTER`.
    pub struct AccessRegisterOut: 0x10, "mlx5_ifc_access_register_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    AccessReg: AccessRegisterIn => AccessRegisterOut,
}
