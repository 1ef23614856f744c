//! Virtual host adapters: state, migration, access to each other's objects.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{VhcaStateContext, VhcaStateFieldSelect};

layout! {
    /// Input of `SUSPEND_VHCA`: stops a virtual host adapter.
    pub struct SuspendVhcaIn: 0x10, "mlx5_ifc_suspend_vhca_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SuspendVhca,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16 as SuspendVhcaOpMod,
        0x08 [15:0] vhca_id: u16,
    }

    /// Output of `SUSPEND_VHCA`.
    pub struct SuspendVhcaOut: 0x10, "mlx5_ifc_suspend_vhca_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `RESUME_VHCA`: lets a virtual host adapter go on.
    pub struct ResumeVhcaIn: 0x10, "mlx5_ifc_resume_vhca_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ResumeVhca,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16 as ResumeVhcaOpMod,
        0x08 [15:0] vhca_id: u16,
    }

    /// Output of `RESUME_VHCA`.
    pub struct ResumeVhcaOut: 0x10, "mlx5_ifc_resume_vhca_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_VHCA_MIGRATION_STATE`: asks how large the state of a virtual host adapter is.
    pub struct QueryVhcaMigrationStateIn: 0x10, "mlx5_ifc_query_vhca_migration_state_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryVhcaMigrationState,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31] incremental: bool,
        0x08 [30] chunk: bool,
        0x08 [15:0] vhca_id: u16,
    }

    /// Output of `QUERY_VHCA_MIGRATION_STATE`.
    pub struct QueryVhcaMigrationStateOut: 0x40, "mlx5_ifc_query_vhca_migration_state_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x0c [31:28] migration_state: MigrationState,
        0x10 [31:0] required_umem_size: u32,
        0x18 [63:0] remaining_total_size: u64,
    }

    /// Input of `SAVE_VHCA_STATE`: writes the state of a virtual host adapter to memory.
    pub struct SaveVhcaStateIn: 0x20, "mlx5_ifc_save_vhca_state_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SaveVhcaState,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31] incremental: bool,
        0x08 [30] set_track: bool,
        0x08 [15:0] vhca_id: u16,
        0x10 [63:0] va: u64,
        0x18 [31:0] mkey: u32,
        0x1c [31:0] size: u32,
    }

    /// Output of `SAVE_VHCA_STATE`.
    pub struct SaveVhcaStateOut: 0x10, "mlx5_ifc_save_vhca_state_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [31:0] actual_image_size: u32,
        0x0c [31:0] next_required_umem_size: u32,
    }

    /// Input of `LOAD_VHCA_STATE`: reads the state of a virtual host adapter from memory.
    pub struct LoadVhcaStateIn: 0x20, "mlx5_ifc_load_vhca_state_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::LoadVhcaState,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [15:0] vhca_id: u16,
        0x10 [63:0] va: u64,
        0x18 [31:0] mkey: u32,
        0x1c [31:0] size: u32,
    }

    /// Output of `LOAD_VHCA_STATE`.
    pub struct LoadVhcaStateOut: 0x10, "mlx5_ifc_load_vhca_state_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `QUERY_VHCA_STATE`: reads whether a virtual host adapter may be used, and is. In a header of the
    /// kernel's driver.
    pub struct QueryVhcaStateIn: 0x10, "mlx5_ifc_query_vhca_state_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryVhcaState,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
    }

    /// Output of `QUERY_VHCA_STATE`.
    pub struct QueryVhcaStateOut: 0x20, "mlx5_ifc_query_vhca_state_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 vhca_state_context: VhcaStateContext,
    }

    /// Input of `MODIFY_VHCA_STATE`: changes that, and asks for an event when it changes again. In a header of the
    /// kernel's driver.
    pub struct ModifyVhcaStateIn: 0x20, "mlx5_ifc_modify_vhca_state_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::ModifyVhcaState,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [31] embedded_cpu_function: bool,
        0x08 [15:0] function_id: u16,
        0x0c vhca_state_field_select: VhcaStateFieldSelect,
        0x10 vhca_state_context: VhcaStateContext,
    }

    /// Output of `MODIFY_VHCA_STATE`.
    pub struct ModifyVhcaStateOut: 0x10, "mlx5_ifc_modify_vhca_state_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `ALLOW_OTHER_VHCA_ACCESS`: lets another virtual host adapter use an object, if it knows the key.
    pub struct AllowOtherVhcaAccessIn: 0x40, "mlx5_ifc_allow_other_vhca_access_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::AllowOtherVhcaAccess,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x10 [15:0] object_type_to_be_accessed: u16,
        0x14 [31:0] object_id_to_be_accessed: u32,
        0x20 access_key: [u8; 32],
    }

    /// Output of `ALLOW_OTHER_VHCA_ACCESS`.
    pub struct AllowOtherVhcaAccessOut: 0x10, "mlx5_ifc_allow_other_vhca_access_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    SuspendVhca: SuspendVhcaIn => SuspendVhcaOut,
    ResumeVhca: ResumeVhcaIn => ResumeVhcaOut,
    QueryVhcaMigrationState: QueryVhcaMigrationStateIn => QueryVhcaMigrationStateOut,
    SaveVhcaState: SaveVhcaStateIn => SaveVhcaStateOut,
    LoadVhcaState: LoadVhcaStateIn => LoadVhcaStateOut,
    QueryVhcaState: QueryVhcaStateIn => QueryVhcaStateOut,
    ModifyVhcaState: ModifyVhcaStateIn => ModifyVhcaStateOut,
    AllowOtherVhcaAccess: AllowOtherVhcaAccessIn => AllowOtherVhcaAccessOut,
}

values! {
    /// Which side is stopped, `op_mod` of `SUSPEND_VHCA`.
    pub enum SuspendVhcaOpMod: 16 {
        /// What the function starts itself.
        Initiator = 0 "SUSPEND_INITIATOR",
        /// What it answers.
        Responder = 1 "SUSPEND_RESPONDER",
    }

    /// Which side goes on, `op_mod` of `RESUME_VHCA`.
    pub enum ResumeVhcaOpMod: 16 {
        /// What the function answers.
        Responder = 0 "RESUME_RESPONDER",
        /// What it starts itself.
        Initiator = 1 "RESUME_INITIATOR",
    }

    /// How far a migration is. PRM `query_vhca_migration_state_out.migration_state`.
    pub enum MigrationState: 4 {
        /// Not begun.
        Uninitialized = 0 "UNINITIALIZED",
        /// Idle.
        Idle = 1 "OPER_MIGRATION_IDLE",
        /// Ready.
        Ready = 2 "OPER_MIGRATION_READY",
        /// The state has changed since it was saved.
        Dirty = 3 "OPER_MIGRATION_DIRTY",
        /// Begins.
        Init = 4 "OPER_MIGRATION_INIT",
    }
}
