//! Signatures over data (T10-DIF and the like), and encryption of it: protection signature values (PSVs) and byte
//! stream formats (BSFs).

use crate::layout::Be32;

layout! {
    /// Sets a protection signature value. PRM "Set PSV Segment".
    pub struct SetPsvSeg: 0x10, "mlx5_seg_set_psv" {
        0x00 [23:0] psv_num: u32,
        0x04 [31:16] syndrome: u16,
        0x04 [15:0] status: u16,
        /// Guard and application tag, or the upper half of a wider signature.
        0x08 [31:0] transient_sig: u32,
        0x0c [31:0] ref_tag: u32,
    }

    /// Reads protection signature values into memory. PRM "Get PSV Segment".
    pub struct GetPsvSeg: 0x30, "mlx5_seg_get_psv" {
        0x10 [7:0] num_psv: u8,
        0x14 [31:0] l_key: u32,
        0x18 [63:0] va: u64,
        0x20 psv_index: [Be32; 4],
    }

    /// Checks protection signature values. PRM "Check PSV Segment".
    pub struct CheckPsvSeg: 0x30, "mlx5_seg_check_psv" {
        0x00 [15:0] err_coalescing_op: u16,
        0x04 [15:0] xport_err_op: u16,
        0x08 [15:0] xport_err_mask: u16,
        0x10 [7:0] num_psv: u8,
        0x14 [31:0] l_key: u32,
        0x18 [63:0] va: u64,
        0x20 psv_index: [Be32; 4],
    }

    /// Signature of a receive WQE, where the queue's WQEs are signed. PRM "RQ WQE Signature".
    pub struct SignatureSeg: 0x10, "mlx5_wqe_signature_seg" {
        0x04 [31:24] signature: u8,
    }

    /// Byte stream format: how data is signed in memory and on the wire. PRM "BSF". A basic one is [`BsfBasic`] alone,
    /// an extended one ends with [`BsfExtended`].
    pub struct Bsf: 0x40, "mlx5_bsf" {
        0x00 basic: BsfBasic,
        0x10 ext: BsfExtended,
        0x20 w_inl: BsfInline,
        0x30 m_inl: BsfInline,
    }

    /// First part of a [`Bsf`]. PRM "BSF", basic.
    pub struct BsfBasic: 0x10, "mlx5_bsf_basic" {
        0x00 [31:30] bsf_size: u8 as BsfSize,
        /// Memory and wire have the same block structure: `wire_selector` selects the copied bytes.
        0x00 [28] sbs: bool,
        0x00 [25:24] p_type: u8 as BsfType,
        0x00 [23:16] check_byte_mask: u8,
        /// Block size on the wire, see [`BlockSize`], or the copy mask.
        0x00 [15:8] wire_selector: u8,
        /// Block size in memory, see [`BlockSize`].
        0x00 [7:0] mem_selector: u8 as BlockSize,
        0x04 [31:0] raw_data_size: u32,
        /// Block format on the wire.
        0x08 [31:24] w_bfs: u8,
        0x08 [23:0] w_psv: u32,
        /// Block format in memory.
        0x0c [31:24] m_bfs: u8,
        0x0c [23:0] m_psv: u32,
    }

    /// Second part of a [`Bsf`]: transactions. PRM "BSF", extended.
    pub struct BsfExtended: 0x10, "mlx5_bsf_ext" {
        0x00 [31:0] t_init_gen_pro_size: u32,
        0x04 [31:0] rsvd_epi_size: u32,
        0x08 [31:0] w_tfs_psv: u32,
        0x0c [31:0] m_tfs_psv: u32,
    }

    /// T10-DIF parameters of a [`Bsf`], in place of a PSV. PRM "BSF", inline.
    pub struct BsfInline: 0x10, "mlx5_bsf_inl" {
        0x00 [31] vld: bool,
        /// The fields below replace those of the PSV.
        0x00 [30] refresh: bool,
        0x00 [15:0] dif_apptag: u16,
        0x04 [31:0] dif_reftag: u32,
        0x08 [31:24] sig_type: u8 as SignatureType,
        /// The signature stands after each block.
        0x08 [23] repeat_block: bool,
        /// The guard starts from all ones.
        0x08 [19] seed: bool,
        /// The reference tag counts up.
        0x0c [22] inc_ref_tag: bool,
        /// Blocks whose application and reference tags are all ones are not checked.
        0x0c [17] appref_escape: bool,
        /// Blocks whose application tag is all ones are not checked.
        0x0c [16] apptag_escape: bool,
        0x0c [15:0] dif_app_bitmask_check: u16,
    }

    /// A [`Bsf`] that encrypts. PRM "Crypto BSF".
    pub struct CryptoBsf: 0x40, "none" {
        0x00 [31:30] bsf_size: u8 as BsfSize,
        0x00 [25:24] p_type: u8 as BsfType,
        0x00 [19:16] encryption_order: u8 as EncryptionOrder,
        /// 0: AES-XTS.
        0x00 [3:0] encryption_standard: u8,
        0x04 [31:0] raw_data_size: u32,
        0x08 [31:24] crypto_block_size_pointer: u8 as BlockSize,
        0x10 xts_initial_tweak: [u8; 16],
        /// The data encryption key.
        0x20 [23:0] dek_pointer: u32,
        0x28 [63:0] keytag: u64,
    }
}

values! {
    /// What a signature is made of. PRM "BSF", `sig_type`.
    pub enum SignatureType: 8 {
        /// The CRC of T10-DIF.
        Crc = 0x1 "DIF_CRC",
        /// The checksum of IP.
        IpChecksum = 0x2 "DIF_IPCS",
    }

    /// Size of a BSF. PRM "BSF", `bsf_size`.
    pub enum BsfSize: 2 {
        /// 16 bytes: basic.
        Basic = 0 "BASIC",
        /// 32 bytes: extended.
        Extended = 1 "EXTENDED",
        /// 64 bytes: with inline parts, or with encryption.
        WithInline = 2 "WITH_INLINE",
        /// 128 bytes: signature and encryption.
        SignatureAndCrypto = 3 "SIG_AND_CRYPTO",
    }

    /// Kind of a BSF. PRM "BSF", `p_type`.
    pub enum BsfType: 2 {
        /// Signature, [`Bsf`].
        Signature = 0 "SIGNATURE",
        /// Encryption, [`CryptoBsf`].
        Crypto = 1 "CRYPTO",
    }

    /// Size of a block of data. PRM "BSF", block size selector.
    pub enum BlockSize: 8 {
        /// 512 bytes.
        Bytes512 = 0x1 "512B",
        /// 520 bytes.
        Bytes520 = 0x2 "520B",
        /// 4096 bytes.
        Bytes4096 = 0x3 "4096B",
        /// 4160 bytes.
        Bytes4160 = 0x4 "4160B",
        /// 1 MiB.
        Mebibyte = 0x5 "1MB",
        /// 4048 bytes.
        Bytes4048 = 0x6 "4048B",
    }

    /// Where data is encrypted, and what the signature covers. PRM "Crypto BSF", `encryption_order`.
    pub enum EncryptionOrder: 4 {
        /// Encrypted on the wire; the signature there covers what is encrypted.
        WireSignature = 0x0 "ENCRYPTED_WIRE_SIGNATURE",
        /// Encrypted in memory; the signature there covers what is encrypted.
        MemorySignature = 0x1 "ENCRYPTED_MEMORY_SIGNATURE",
        /// Encrypted on the wire.
        RawWire = 0x2 "ENCRYPTED_RAW_WIRE",
        /// Encrypted in memory.
        RawMemory = 0x3 "ENCRYPTED_RAW_MEMORY",
    }
}
