//! On-demand paging capabilities.

layout! {
    /// On-demand paging. PRM `odp_cap`.
    pub struct OdpCap: 0x100, "mlx5_ifc_odp_cap_bits" {
        0x00 transport_page_fault_scheme_cap: OdpSchemeCap,
        0x40 memory_page_fault_scheme_cap: OdpSchemeCap,
        0xc0 [31] mem_page_fault: bool,
    }

    /// What one scheme of on-demand paging can do. PRM `odp_scheme_cap`.
    pub struct OdpSchemeCap: 0x40, "mlx5_ifc_odp_scheme_cap_bits" {
        0x08 [31] sig: bool,
        0x08 [26] page_prefetch: bool,
        0x10 rc_odp_caps: OdpPerTransportServiceCap,
        0x14 uc_odp_caps: OdpPerTransportServiceCap,
        0x18 ud_odp_caps: OdpPerTransportServiceCap,
        0x1c xrc_odp_caps: OdpPerTransportServiceCap,
        0x20 dc_odp_caps: OdpPerTransportServiceCap,
    }

    /// Which operations of a transport may fault. PRM `odp_per_transport_service_cap`.
    pub struct OdpPerTransportServiceCap: 0x4, "mlx5_ifc_odp_per_transport_service_cap_bits" {
        0x00 [31] send: bool,
        0x00 [30] receive: bool,
        0x00 [29] write: bool,
        0x00 [28] read: bool,
        0x00 [27] atomic: bool,
        0x00 [26] srq_receive: bool,
    }
}
