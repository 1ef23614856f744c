//! Moderation of interrupts.

use super::command::commands;
use super::{CmdStatus, Opcode};

layout! {
    /// Input of `CONFIG_INT_MODERATION`: reads, or sets, how long an interrupt is held back.
    pub struct ConfigIntModerationIn: 0x10, "mlx5_ifc_config_int_moderation_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ConfigIntModeration,
        0x04 [15:0] op_mod: u16 as IntModerationOpMod,
        0x08 [27:16] min_delay: u16,
        0x08 [15:0] int_vector: u16,
    }

    /// Output of `CONFIG_INT_MODERATION`.
    pub struct ConfigIntModerationOut: 0x10, "mlx5_ifc_config_int_moderation_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [27:16] min_delay: u16,
        0x08 [15:0] int_vector: u16,
    }
}

commands! {
    ConfigIntModeration: ConfigIntModerationIn => ConfigIntModerationOut,
}

values! {
    /// What is done, `op_mod` of `CONFIG_INT_MODERATION`.
    pub enum IntModerationOpMod: 16 {
        /// It is set.
        Write = 0 "WRITE",
        /// It is read.
        Read = 1 "READ",
    }
}
