//! Access to registers by command.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::layout::{Be32, Info, Layout};
use crate::reg::RegisterId;

layout! {
    /// Input of `ACCESS_REGISTER`: reads (`op_mod` 1) or writes (0) a register, see [`reg`](crate::reg).
    pub struct AccessRegisterIn: 0x10, "mlx5_ifc_access_register_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AccessReg,
        0x04 [15:0] op_mod: u16 as AccessRegisterOpMod,
        0x08 [15:0] register_id: u16 as RegisterId,
        0x0c [31:0] argument: u32,
        .. register_data: [u8] where register,
    }

    /// Output of `ACCESS_REGISTER`. The input selects the register in `register_data`.
    pub struct AccessRegisterOut: 0x10, "mlx5_ifc_access_register_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        .. register_data: [Be32],
    }

    /// Input of `ACCESS_REGISTER_USER`, for users other than the kernel: same layout as `ACCESS_REGISTER`.
    pub struct AccessRegisterUserIn: 0x10, "mlx5_ifc_access_register_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AccessRegisterUser,
        0x04 [15:0] op_mod: u16 as AccessRegisterOpMod,
        0x08 [15:0] register_id: u16 as RegisterId,
        0x0c [31:0] argument: u32,
        .. register_data: [u8] where register,
    }
}

impl AccessRegisterUserIn {
    fn register(bytes: &[u8], index: usize) -> Option<&'static Info> {
        AccessRegisterIn::register(bytes, index)
    }
}

impl AccessRegisterIn {
    fn register(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        RegisterId::from_number(AccessRegisterIn::read(bytes)?.register_id().into()).layout()
    }
}

commands! {
    AccessReg: AccessRegisterIn => AccessRegisterOut { register_data: AccessRegisterIn::register },
    AccessRegisterUser: AccessRegisterUserIn => AccessRegisterOut { register_data: AccessRegisterIn::register },
}

values! {
    /// `op_mod` of `ACCESS_REGISTER`.
    pub enum AccessRegisterOpMod: 16 {
        /// Write.
        Write = 0 "WRITE",
        /// Read.
        Read = 1 "READ",
    }
}
