//! Transport interface send context.

layout! {
    /// Transport interface send context: priority, port and domain of the send queues behind it. PRM `tisc`.
    pub struct Tisc: 0xa0, "mlx5_ifc_tisc_bits" {
        0x00 [31] strict_lag_tx_port_affinity: bool,
        0x00 [30] tls_en: bool,
        0x00 [27:24] lag_tx_port_affinity: u8,
        0x00 [19:16] prio: u8,
        0x24 [23:0] transport_domain: u32,
        0x28 [23:0] underlay_qpn: u32,
        0x2c [23:0] pd: u32,
    }

    /// Which fields of the context `MODIFY_TIS` changes. PRM `modify_tis_bitmask`.
    pub struct ModifyTisBitmask: 0x8, "mlx5_ifc_modify_tis_bitmask_bits" {
        0x04 [2] lag_tx_port_affinity: bool,
        0x04 [1] strict_lag_tx_port_affinity: bool,
        0x04 [0] prio: bool,
    }
}
