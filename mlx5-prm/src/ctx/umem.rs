//! User memory and user contexts.
use super::Mtt;

layout! {
    /// User memory known by number. PRM `umem`.
    pub struct Umem: 0x20, "mlx5_ifc_umem_bits" {
        0x10 [31] ats: bool,
        0x10 [4:0] log_page_size: u8,
        0x14 [31:0] page_offset: u32,
        0x18 [63:0] num_of_mtt: u64,
        .. mtt: [Mtt],
    }

    /// User context. PRM `uctx`.
    pub struct Uctx: 0x30, "mlx5_ifc_uctx_bits" {
        0x00 [31:0] cap: u32,
    }
}
