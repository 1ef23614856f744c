//! Objects that watch: pages that are written, congestion of PCI Express.

layout! {
    /// Tells which pages a function writes; their ranges follow. PRM `page_track`.
    pub struct PageTrack: 0x30, "mlx5_ifc_page_track_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [15:0] vhca_id: u16,
        0x10 [31:28] state: PageTrackState,
        0x10 [27:24] track_type: u8,
        0x10 [23:16] log_addr_space_size: u8,
        0x10 [12:8] log_page_size: u8,
        0x10 [4:0] log_msg_size: u8,
        0x14 [23:0] reporting_qpn: u32,
        0x18 [7:0] num_ranges: u8,
        0x20 [63:0] range_start_address: u64,
        0x28 [63:0] length: u64,
        .. track_range: [PageTrackRange],
    }

    /// A range of addresses. PRM `page_track_range`.
    pub struct PageTrackRange: 0x10, "mlx5_ifc_page_track_range_bits" {
        0x00 [63:0] start_address: u64,
        0x08 [63:0] length: u64,
    }

    /// A page that was written. PRM `page_track_report_entry`.
    pub struct PageTrackReportEntry: 0x8, "mlx5_ifc_page_track_report_entry_bits" {
        0x00 [31:0] dirty_address_high: u32,
        0x04 [31:0] dirty_address_low: u32,
    }

    /// Raises an event when PCI Express is congested. PRM `pcie_cong_event_obj`.
    pub struct PcieCongEventObj: 0x80, "mlx5_ifc_pcie_cong_event_obj_bits" {
        0x00 [63:0] modify_select_field: u64,
        0x08 [31] inbound_event_en: bool,
        0x08 [30] outbound_event_en: bool,
        0x0c [30:28] inbound_cong_state: u8,
        0x0c [26:24] outbound_cong_state: u8,
        0x10 [31:16] inbound_cong_low_threshold: u16,
        0x10 [15:0] inbound_cong_high_threshold: u16,
        0x14 [31:16] outbound_cong_low_threshold: u16,
        0x14 [15:0] outbound_cong_high_threshold: u16,
    }
}

values! {
    /// What a page tracker does. PRM `page_track.state`.
    pub enum PageTrackState: 4 {
        /// Tracks.
        Tracking = 0 "TRACKING",
        /// Reports.
        Reporting = 1 "REPORTING",
        /// Has failed.
        Error = 2 "ERROR",
    }
}
