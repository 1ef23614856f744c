//! Event queue context.

layout! {
    /// Event queue context. PRM `eqc`.
    pub struct Eqc: 0x40, "mlx5_ifc_eqc_bits" {
        0x00 [31:28] status: u8 as EqStatus,
        0x00 [18] ec: bool,
        0x00 [17] oi: bool,
        0x00 [11:8] st: u8 as EqState,
        0x08 [11:6] page_offset: u8,
        0x0c [28:24] log_eq_size: u8,
        0x0c [23:0] uar_page: u32,
        0x14 [11:0] intr: u16,
        0x18 [28:24] log_page_size: u8,
        0x28 [23:0] consumer_counter: u32,
        0x2c [23:0] producer_counter: u32,
    }
}

values! {
    /// Health of an event queue. PRM `eqc.status`.
    pub enum EqStatus: 4 {
        /// Healthy.
        Ok = 0x0 "OK",
        /// The ring could not be written.
        WriteFailure = 0xa "EQ_WRITE_FAILURE",
    }

    /// Whether an event queue will raise its interrupt. PRM `eqc.st`.
    pub enum EqState: 4 {
        /// Armed for the next event.
        Armed = 0x9 "ARMED",
        /// Has raised its interrupt and waits to be armed again.
        Fired = 0xa "FIRED",
    }
}
