//! Event queue context.

layout! {
    /// PRM `eqc`.
    pub struct Eqc: 0x40, "mlx5_ifc_eqc_bits" {
        0x00 [31:28] status: u8,
        0x00 [18] ec: bool,
        0x00 [17] oi: bool,
        0x00 [11:8] st: u8,
        0x08 [11:6] page_offset: u8,
        0x0c [28:24] log_eq_size: u8,
        0x0c [23:0] uar_page: u32,
        0x14 [11:0] intr: u16,
        0x18 [28:24] log_page_size: u8,
        0x28 [23:0] consumer_counter: u32,
        0x2c [23:0] producer_counter: u32,
    }
}
