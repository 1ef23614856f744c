//! Objects of encryption: keys, IPsec, MACsec.

use crate::layout::{Be32, Info, Layout};

layout! {
    /// A key that data is encrypted with. PRM `encryption_key_obj`.
    pub struct EncryptionKeyObj: 0x200, "mlx5_ifc_encryption_key_obj_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [31:24] state: u8,
        0x08 [23] sw_wrapped: bool,
        0x08 [11:8] key_size: EncryptionKeySize,
        0x08 [3:0] key_purpose: EncryptionKeyPurpose,
        0x0c [23:0] pd: u32,
        0x30 [63:0] opaque: u64,
        0x40 key: [u8; 128],
        0xc0 sw_wrapped_dek: [u8; 128] where wrapped_layout,
    }

    /// A key as software wraps it: encrypted by another key. PRM `wrapped_dek`.
    pub struct WrappedDek: 0x80, "mlx5_ifc_wrapped_dek_bits" {
        0x00 gcm_iv: [Be32; 3],
        0x10 [31] const0: bool,
        0x10 [30] key_size: bool,
        0x10 [27] key2_invalid: bool,
        0x10 [23:0] pd: u32,
        0x14 [31:27] key_purpose: u8,
        0x14 [7:0] kek_id: u8,
        0x20 key1: [Be32; 8],
        0x40 key2: [Be32; 8],
        0x68 [31] const1: bool,
        0x70 auth_tag: [Be32; 4],
    }

    /// A key that other keys are encrypted with. PRM `int_kek_obj`.
    pub struct IntKekObj: 0x100, "mlx5_ifc_int_kek_obj_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [31:24] state: u8,
        0x08 [23] auto_gen: bool,
        0x08 [11:8] key_size: EncryptionKeySize,
        0x0c [23:0] pd: u32,
        0x40 key: [u8; 128],
    }

    /// A login by a credential, for as long as which keys may be used. PRM `crypto_login_obj`.
    pub struct CryptoLoginObj: 0x100, "mlx5_ifc_crypto_login_obj_bits" {
        0x00 [63:0] modify_field_select: u64,
        /// 0: valid.
        0x10 [27:24] state: u8,
        0x10 [23:0] credential_pointer: u32,
        0x14 [23:0] session_import_kek_ptr: u32,
        0x40 credential: [Be32; 12],
    }

    /// An IPsec security association. PRM `ipsec_obj`.
    pub struct IpsecObj: 0x80, "mlx5_ifc_ipsec_obj_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [31] full_offload: bool,
        0x08 [29] esn_en: bool,
        0x08 [28] esn_overlap: bool,
        0x08 [25:24] icv_length: u8,
        0x08 [19:16] aso_return_reg: u8 as AsoReturnReg,
        0x0c [31:0] esn_msb: u32,
        0x10 [23:0] dekn: u32,
        0x14 [31:0] salt: u32,
        0x18 [63:0] implicit_iv: u64,
        0x20 [23:0] ipsec_aso_access_pd: u32,
        0x40 ipsec_aso: IpsecAso,
    }

    /// What packets update in it. PRM `ipsec_aso`.
    pub struct IpsecAso: 0x40, "mlx5_ifc_ipsec_aso_bits" {
        0x00 [31] valid: bool,
        0x00 [29:28] mode: IpsecAsoMode,
        0x00 [27:26] window_sz: AsoReplayWindow,
        0x00 [25] soft_lft_arm: bool,
        0x00 [24] hard_lft_arm: bool,
        0x00 [23] remove_flow_enable: bool,
        0x00 [22] esn_event_arm: bool,
        0x04 [31:0] remove_flow_pkt_cnt: u32,
        0x08 [31:0] remove_flow_soft_lft: u32,
        0x1c [31:0] mode_parameter: u32,
        0x20 replay_protection_window: [Be32; 8],
    }

    /// A MACsec security association. PRM `macsec_offload_obj`.
    pub struct MacsecOffloadObj: 0x80, "mlx5_ifc_macsec_offload_obj_bits" {
        0x00 [63:0] modify_field_select: u64,
        0x08 [31] confidentiality_en: bool,
        0x08 [29] epn_en: bool,
        0x08 [28] epn_overlap: bool,
        0x08 [25:24] confidentiality_offset: u8,
        0x08 [19:16] aso_return_reg: u8 as AsoReturnReg,
        0x0c [31:0] epn_msb: u32,
        0x10 [23:0] dekn: u32,
        0x18 [63:0] sci: u64,
        0x20 [23:0] macsec_aso_access_pd: u32,
        0x30 salt: [Be32; 3],
        0x40 macsec_aso: MacsecAso,
    }

    /// What packets update in it. PRM `macsec_aso`.
    pub struct MacsecAso: 0x40, "mlx5_ifc_macsec_aso_bits" {
        0x00 [31] valid: bool,
        0x00 [29:28] mode: u8,
        0x00 [27:26] window_size: AsoReplayWindow,
        0x00 [25] soft_lifetime_arm: bool,
        0x00 [24] hard_lifetime_arm: bool,
        0x00 [23] remove_flow_enable: bool,
        0x00 [22] epn_event_arm: bool,
        0x04 [31:0] remove_flow_packet_count: u32,
        0x08 [31:0] remove_flow_soft_lifetime: u32,
        0x1c [31:0] mode_parameter: u32,
        0x20 replay_protection_window: [Be32; 8],
    }
}

values! {
    /// Size of a key. PRM `encryption_key_obj.key_size`.
    pub enum EncryptionKeySize: 4 {
        /// 128 bits.
        Bits128 = 0 "128",
        /// 256 bits.
        Bits256 = 1 "256",
    }

    /// What a key is for. PRM `encryption_key_obj.key_purpose`.
    pub enum EncryptionKeyPurpose: 4 {
        /// TLS.
        Tls = 1 "TLS",
        /// IPsec.
        Ipsec = 2 "IPSEC",
        /// MACsec.
        Macsec = 4 "MACSEC",
        /// PSP.
        Psp = 6 "PSP",
    }

    /// What packets do to an IPsec security association. PRM `ipsec_aso.mode`.
    pub enum IpsecAsoMode: 2 {
        /// Nothing more.
        Plain = 0 "MODE",
        /// They are checked for replays.
        ReplayProtection = 1 "REPLAY_PROTECTION",
        /// They take the next sequence number.
        IncSn = 2 "INC_SN",
    }

    /// Which pair of metadata registers receives what the association answers. PRM `ipsec_obj.aso_return_reg`.
    pub enum AsoReturnReg: 4 {
        /// 0 and 1.
        C0C1 = 0 "0_1",
        /// 2 and 3.
        C2C3 = 1 "2_3",
        /// 4 and 5.
        C4C5 = 2 "4_5",
        /// 6 and 7.
        C6C7 = 3 "6_7",
    }

    /// How many packets late a packet may be. PRM `ipsec_aso.window_sz`, `macsec_aso.window_size`.
    pub enum AsoReplayWindow: 2 {
        /// 32.
        Bits32 = 0 "32BIT",
        /// 64.
        Bits64 = 1 "64BIT",
        /// 128.
        Bits128 = 2 "128BIT",
        /// 256.
        Bits256 = 3 "256BIT",
    }
}

impl EncryptionKeyObj {
    fn wrapped_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        EncryptionKeyObj::read(bytes)?.sw_wrapped().then_some(&WrappedDek::INFO)
    }
}
