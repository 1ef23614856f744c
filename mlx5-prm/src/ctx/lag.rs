//! Link aggregation context.

layout! {
    /// Link aggregation context: which port each of the two affinities uses. PRM `lagc`.
    pub struct Lagc: 0x8, "mlx5_ifc_lagc_bits" {
        0x00 [31] fdb_selection_mode: bool,
        0x00 [10:8] port_select_mode: LagPortSelectMode,
        0x00 [2:0] lag_state: u8,
        0x04 [19:16] active_port: u8,
        0x04 [11:8] tx_remap_affinity_2: u8,
        0x04 [3:0] tx_remap_affinity_1: u8,
    }
}

values! {
    /// How a bond chooses the port. PRM `lagc.port_select_mode`.
    pub enum LagPortSelectMode: 3 {
        /// By the affinity of the queue.
        QueueAffinity = 0 "QUEUE_AFFINITY",
        /// By flow tables.
        PortSelectFt = 1 "PORT_SELECT_FT",
        /// By the e-switch that both ports share.
        PortSelectMpesw = 2 "PORT_SELECT_MPESW",
    }
}
