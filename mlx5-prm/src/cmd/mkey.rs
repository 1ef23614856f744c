//! Memory keys.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::ctx::{AccessMode, Klm, Mkc, Mtt};
use crate::layout::{Be32, Info, Layout};

layout! {
    /// Input of `CREATE_MKEY`: makes a memory key; what it translates by follows.
    pub struct CreateMkeyIn: 0x110, "mlx5_ifc_create_mkey_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::CreateMkey,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x0c [31] pg_access: bool,
        0x0c [30] mkey_umem_valid: bool,
        0x0c [29] data_direct: bool,
        0x10 memory_key_mkey_entry: Mkc,
        0x60 [31:0] translations_octword_actual_size: u32,
        /// The umem that the key covers, instead of a list. In the PRM, not in the kernel's header.
        0x64 [31:0] mkey_umem_id: u32,
        /// Where in the umem the key starts. In the PRM, not in the kernel's header.
        0x68 [63:0] mkey_umem_offset: u64,
        .. klm_pas_mtt: [Be32] where translation_layout,
    }

    /// Output of `CREATE_MKEY`.
    pub struct CreateMkeyOut: 0x10, "mlx5_ifc_create_mkey_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [23:0] mkey_index: u32,
    }

    /// Input of `QUERY_MKEY`: reads a memory key's context.
    pub struct QueryMkeyIn: 0x10, "mlx5_ifc_query_mkey_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::QueryMkey,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] mkey_index: u32,
        0x0c [31] pg_access: bool,
    }

    /// Output of `QUERY_MKEY`.
    pub struct QueryMkeyOut: 0x130, "mlx5_ifc_query_mkey_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x10 memory_key_mkey_entry: Mkc,
        0x110 bsf0_klm0_pas_mtt0_1: [u8; 16],
        0x120 bsf1_klm1_pas_mtt2_3: [u8; 16],
    }

    /// Input of `DESTROY_MKEY`: ends a memory key.
    pub struct DestroyMkeyIn: 0x10, "mlx5_ifc_destroy_mkey_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::DestroyMkey,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x08 [23:0] mkey_index: u32,
    }

    /// Output of `DESTROY_MKEY`.
    pub struct DestroyMkeyOut: 0x10, "mlx5_ifc_destroy_mkey_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }
}

commands! {
    CreateMkey: CreateMkeyIn => CreateMkeyOut,
    QueryMkey: QueryMkeyIn => QueryMkeyOut,
    DestroyMkey: DestroyMkeyIn => DestroyMkeyOut,
}

impl CreateMkeyIn {
    fn translation_layout(bytes: &[u8], _entry: usize) -> Option<&'static Info> {
        match CreateMkeyIn::read(bytes)?.memory_key_mkey_entry().access_mode() {
            AccessMode::Mtt => Some(&Mtt::INFO),
            AccessMode::Klms | AccessMode::Ksm => Some(&Klm::INFO),
            _ => None,
        }
    }
}
