//! Capabilities of encryption on the way: keys, TLS, IPsec, MACsec, PSP.

layout! {
    /// Data encryption keys. PRM `crypto_cap`.
    pub struct CryptoCap: 0x100, "mlx5_ifc_crypto_cap_bits" {
        0x00 [28] synchronize_dek: bool,
        0x00 [27] int_kek_manual: bool,
        0x00 [26] int_kek_auto: bool,
        0x04 [28:24] log_dek_max_alloc: u8,
        0x04 [20:16] log_max_num_deks: u8,
        0x0c [28:24] log_dek_granularity: u8,
        0x0c [20:16] log_max_num_int_kek: u8,
        0x0c [15:0] sw_wrapped_dek: u16,
    }

    /// TLS offload. PRM `tls_cap`.
    pub struct TlsCap: 0x100, "mlx5_ifc_tls_cap_bits" {
        0x00 [31] tls_1_2_aes_gcm_128: bool,
        0x00 [30] tls_1_3_aes_gcm_128: bool,
        0x00 [29] tls_1_2_aes_gcm_256: bool,
        0x00 [28] tls_1_3_aes_gcm_256: bool,
    }

    /// IPsec offload. PRM `ipsec_cap`.
    pub struct IpsecCap: 0x100, "mlx5_ifc_ipsec_cap_bits" {
        0x00 [31] ipsec_full_offload: bool,
        0x00 [30] ipsec_crypto_offload: bool,
        0x00 [29] ipsec_esn: bool,
        0x00 [28] ipsec_crypto_esp_aes_gcm_256_encrypt: bool,
        0x00 [27] ipsec_crypto_esp_aes_gcm_128_encrypt: bool,
        0x00 [26] ipsec_crypto_esp_aes_gcm_256_decrypt: bool,
        0x00 [25] ipsec_crypto_esp_aes_gcm_128_decrypt: bool,
        0x00 [20:16] log_max_ipsec_offload: u8,
        0x04 [31:24] min_log_ipsec_full_replay_window: u8,
        0x04 [23:16] max_log_ipsec_full_replay_window: u8,
    }

    /// MACsec offload. PRM `macsec_cap`.
    pub struct MacsecCap: 0x100, "mlx5_ifc_macsec_cap_bits" {
        0x00 [31] macsec_epn: bool,
        0x00 [28] macsec_crypto_esp_aes_gcm_256_encrypt: bool,
        0x00 [27] macsec_crypto_esp_aes_gcm_128_encrypt: bool,
        0x00 [26] macsec_crypto_esp_aes_gcm_256_decrypt: bool,
        0x00 [25] macsec_crypto_esp_aes_gcm_128_decrypt: bool,
        0x00 [20:16] log_max_macsec_offload: u8,
        0x04 [31:24] min_log_macsec_full_replay_window: u8,
        0x04 [23:16] max_log_macsec_full_replay_window: u8,
    }

    /// PSP offload. PRM `psp_cap`.
    pub struct PspCap: 0x100, "mlx5_ifc_psp_cap_bits" {
        0x00 [30] psp_crypto_offload: bool,
        0x00 [28] psp_crypto_esp_aes_gcm_256_encrypt: bool,
        0x00 [27] psp_crypto_esp_aes_gcm_128_encrypt: bool,
        0x00 [26] psp_crypto_esp_aes_gcm_256_decrypt: bool,
        0x00 [25] psp_crypto_esp_aes_gcm_128_decrypt: bool,
        0x00 [20:16] log_max_num_of_psp_spi: u8,
    }
}
