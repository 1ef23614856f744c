//! What memory keys translate by.

layout! {
    /// A page of memory. PRM `mtt`.
    pub struct Mtt: 0x8, "mlx5_ifc_mtt_bits" {
        0x00 [31:0] ptag_63_32: u32,
        0x04 [31:8] ptag_31_8: u32,
        0x04 [1] wr_en: bool,
        0x04 [0] rd_en: bool,
    }

    /// Memory behind another key: a piece of it (KLM), or a piece of the length all have (KSM). PRM `klm`.
    pub struct Klm: 0x10, "mlx5_klm" {
        0x00 [31:0] byte_count: u32,
        0x04 [31:0] mkey: u32,
        0x08 [63:0] address: u64,
    }
}
