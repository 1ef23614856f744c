//! TLS offload: the parameters that `UMR` and `SET_PSV` WQEs set, of a transport interface receive or send (TIR, TIS).

layout! {
    /// What does not change while a connection lives: version, key, initial vector. PRM `tls_static_params`.
    pub struct TlsStaticParams: 0x40, "mlx5_ifc_tls_static_params_bits" {
        /// 2.
        0x00 [31:30] const_2: u8,
        0x00 [29:26] tls_version: u8 as TlsVersion,
        /// 1.
        0x00 [25:24] const_1: u8,
        0x00 [3:0] encryption_standard: u8,
        0x08 [63:0] initial_record_number: u64,
        0x10 [31:0] resync_tcp_sn: u32,
        0x14 [31:0] gcm_iv: u32,
        0x18 [63:0] implicit_iv: u64,
        0x20 [23:0] dek_index: u32,
    }

    /// Where in the stream the connection is. PRM `tls_progress_params`.
    pub struct TlsProgressParams: 0xc, "mlx5_ifc_tls_progress_params_bits" {
        0x00 [31:0] next_record_tcp_sn: u32,
        0x04 [31:0] hw_resync_tcp_sn: u32,
        0x08 [31:30] record_tracker_state: u8 as TlsRecordTracker,
        0x08 [29:28] auth_state: u8 as TlsAuthState,
        0x08 [23:0] hw_offset_record_number: u32,
    }

    /// Segment of a `SET_PSV` WQE that sets, or of a `GET_PSV` WQE that reads, the progress. PRM "TLS Progress Params".
    pub struct TlsProgressSeg: 0x10, "mlx5_wqe_tls_progress_params_seg" {
        0x00 [31:0] tis_tir_num: u32,
        0x04 ctx: TlsProgressParams,
    }
}

values! {
    /// Version of TLS. PRM `tls_static_params.tls_version`.
    pub enum TlsVersion: 4 {
        /// 1.2.
        Tls12 = 0x2 "TLS_1_2",
        /// 1.3.
        Tls13 = 0x3 "TLS_1_3",
    }

    /// Whether the card knows where records start. PRM `tls_progress_params.record_tracker_state`.
    pub enum TlsRecordTracker: 2 {
        /// Not begun.
        Start = 0 "START",
        /// It does.
        Tracking = 1 "TRACKING",
        /// It looks for a header.
        Searching = 2 "SEARCHING",
    }

    /// Whether the card decrypts. PRM `tls_progress_params.auth_state`.
    pub enum TlsAuthState: 2 {
        /// No.
        NoOffload = 0 "NO_OFFLOAD",
        /// Yes.
        Offload = 1 "OFFLOAD",
        /// Authentication failed.
        Authentication = 2 "AUTHENTICATION",
    }
}
