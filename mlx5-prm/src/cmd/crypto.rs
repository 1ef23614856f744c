//! Keys of encryption.

use super::command::commands;
use super::{CmdStatus, Opcode};
use crate::layout::Be32;

layout! {
    /// Input of `SYNC_CRYPTO`: waits until no packet uses keys that have ended.
    pub struct SyncCryptoIn: 0x20, "mlx5_ifc_sync_crypto_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::SyncCrypto,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x0c [15:0] crypto_type: u16,
    }

    /// Output of `SYNC_CRYPTO`.
    pub struct SyncCryptoOut: 0x10, "mlx5_ifc_sync_crypto_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// Input of `PSP_GEN_SPI`: makes keys of PSP, and the numbers that packets name them by; they follow.
    pub struct PspGenSpiIn: 0x10, "mlx5_ifc_psp_gen_spi_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::PspGenSpi,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
        0x0c [31:30] key_size: PspKeySize,
        0x0c [15:0] num_of_spi: u16,
    }

    /// Output of `PSP_GEN_SPI`.
    pub struct PspGenSpiOut: 0x10, "mlx5_ifc_psp_gen_spi_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
        0x08 [15:0] num_of_spi: u16,
        .. key_spi: [KeySpi],
    }

    /// Input of `PSP_ROTATE_KEY`: makes a new master key of PSP.
    pub struct PspRotateKeyIn: 0x10, "mlx5_ifc_psp_rotate_key_in_bits" {
        0x00 [31:16] opcode: Opcode = Opcode::PspRotateKey,
        0x00 [15:0] uid: u16,
        0x04 [15:0] op_mod: u16,
    }

    /// Output of `PSP_ROTATE_KEY`.
    pub struct PspRotateKeyOut: 0x10, "mlx5_ifc_psp_rotate_key_out_bits" {
        0x00 [31:24] status: CmdStatus,
        0x04 [31:0] syndrome: u32,
    }

    /// A key of PSP, and its number. PRM `key_spi`.
    pub struct KeySpi: 0x30, "mlx5_ifc_key_spi_bits" {
        0x00 [31:0] spi: u32,
        0x10 key: [Be32; 8],
    }
}

commands! {
    SyncCrypto: SyncCryptoIn => SyncCryptoOut,
    PspGenSpi: PspGenSpiIn => PspGenSpiOut,
    PspRotateKey: PspRotateKeyIn => PspRotateKeyOut,
}

values! {
    /// Size of a key of PSP. PRM `psp_gen_spi_in.key_size`.
    pub enum PspKeySize: 2 {
        /// 128 bits.
        Bits128 = 0 "128",
        /// 256 bits.
        Bits256 = 1 "256",
    }
}
