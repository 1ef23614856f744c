//! Identification of the adapter.

layout! {
    /// Vendor and board. PRM `query_adapter_param_block`.
    pub struct QueryAdapterParamBlock: 0x100, "mlx5_ifc_query_adapter_param_block_bits" {
        0x18 [23:0] ieee_vendor_id: u32,
        0x1c [15:0] vsd_vendor_id: u16,
        0x20 vsd: [u8; 208],
        0xf0 vsd_contd_psid: [u8; 16],
    }
}
