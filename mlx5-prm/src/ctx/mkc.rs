//! Memory key context.

layout! {
    /// Memory key context. PRM `mkc`.
    pub struct Mkc: 0x40, "mlx5_ifc_mkc_bits" {
        0x00 [30] free: bool,
        0x00 [28:26] access_mode_4_2: u8,
        0x00 [18] relaxed_ordering_write: bool,
        0x00 [16] small_fence_on_rdma_read_response: bool,
        0x00 [15] umr_en: bool,
        0x00 [14] a: bool,
        0x00 [13] rw: bool,
        0x00 [12] rr: bool,
        0x00 [11] lw: bool,
        0x00 [10] lr: bool,
        0x00 [9:8] access_mode_1_0: u8,
        0x00 [5:4] ma_translation_mode: u8,
        0x04 [31:8] qpn: u32,
        0x04 [7:0] mkey_7_0: u8,
        0x0c [31] length64: bool,
        0x0c [30] bsf_en: bool,
        0x0c [29] sync_umr: bool,
        0x0c [26] expected_sigerr_count: bool,
        0x0c [24] en_rinval: bool,
        0x0c [23:0] pd: u32,
        0x10 [63:0] start_addr: u64,
        #[allow(clippy::len_without_is_empty, reason = "the PRM's name")]
        0x18 [63:0] len: u64,
        0x20 [31:0] bsf_octword_size: u32,
        0x30 [31:16] crossing_target_vhca_id: u16,
        0x34 [31:0] translations_octword_size: u32,
        0x38 [6] relaxed_ordering_read: bool,
        0x38 [5:0] log_page_size: u8,
        0x3c [26] pcie_tph_en: bool,
        0x3c [25:24] pcie_tph_ph: u8,
        0x3c [23:16] pcie_tph_steering_tag_index: u8,
    }
}

impl Mkc {
    /// How the key translates: `access_mode_4_2` and `access_mode_1_0` together.
    pub fn access_mode(&self) -> AccessMode {
        AccessMode::from_number(u32::from(self.access_mode_4_2()) << 2 | u32::from(self.access_mode_1_0()))
    }

    /// Sets both halves of the access mode.
    pub fn set_access_mode(&mut self, mode: AccessMode) {
        let number = mode.number() as u8;
        self.w().access_mode_4_2(number >> 2).access_mode_1_0(number & 3);
    }
}

values! {
    /// How a memory key translates an address. PRM `mkc.access_mode`, whose five bits lie in two places.
    pub enum AccessMode: 5 {
        /// Not at all: the address is the bus address.
        Pa = 0x0 "PA",
        /// By a list of pages.
        Mtt = 0x1 "MTT",
        /// By a list of (length, key, address).
        Klms = 0x2 "KLMS",
        /// By a list of (key, address) of one length.
        Ksm = 0x3 "KSM",
        /// Memory of the steering engine.
        SwIcm = 0x4 "SW_ICM",
        /// Memory on the card.
        Memic = 0x5 "MEMIC",
        /// A key of another function.
        Crossing = 0x6 "CROSSING",
    }
}
