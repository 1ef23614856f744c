//! Registers of flow control and of packet buffers.

use crate::layout::Be32;

layout! {
    /// Port flow control: pause and priority flow control: register `PFCC`. PRM `pfcc_reg`.
    pub struct PfccReg: 0x20, "mlx5_ifc_pfcc_reg_bits" {
        0x00 [27:26] buf_ownership: u8 as BufferOwnership,
        0x00 [23:16] local_port: u8,
        0x00 [5] cable_length_mask: bool,
        0x00 [4] ppan_mask_n: bool,
        0x00 [3] minor_stall_mask: bool,
        0x00 [2] critical_stall_mask: bool,
        0x04 [31:28] ppan: u8,
        0x04 [23:16] prio_mask_tx: u8,
        0x04 [7:0] prio_mask_rx: u8,
        0x08 [31] pptx: bool,
        0x08 [30] aptx: bool,
        0x08 [29] pptx_mask_n: bool,
        0x08 [23:16] pfctx: u8,
        0x0c [31] pprx: bool,
        0x0c [30] aprx: bool,
        0x0c [29] pprx_mask_n: bool,
        0x0c [23:16] pfcrx: u8,
        0x10 [31:16] device_stall_minor_watermark: u16,
        0x10 [15:0] device_stall_critical_watermark: u16,
        0x14 [7:0] cable_length: u8,
    }

    /// Which buffer a priority's packets go to: register `PPTB`. PRM `pptb_reg`.
    pub struct PptbReg: 0xc, "mlx5_ifc_pptb_reg_bits" {
        0x00 [29:28] mm: u8,
        0x00 [23:16] local_port: u8,
        0x00 [9] cm: bool,
        0x00 [8] um: bool,
        0x00 [7:0] pm: u8,
        0x04 [31:0] prio_x_buff: u32,
        0x08 [31:24] pm_msb: u8,
        0x08 [7:4] ctrl_buff: u8,
        0x08 [3:0] untagged_buff: u8,
    }

    /// Sizes and thresholds of a port's buffers: register `PBMC`. PRM `pbmc_reg`.
    pub struct PbmcReg: 0x6c, "mlx5_ifc_pbmc_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x04 [31:16] xoff_timer_value: u16,
        0x04 [15:0] xoff_refresh: u16,
        0x08 [22:16] fullness_threshold: u8,
        0x08 [15:0] port_buffer_size: u16,
        0x0c buffer: [BufferxReg; 10],
        0x5c shared_headroom_pool: BufferxReg,
    }

    /// One buffer of `PBMC`. PRM `bufferx_reg`.
    pub struct BufferxReg: 0x8, "mlx5_ifc_bufferx_reg_bits" {
        0x00 [25] lossy: bool,
        0x00 [24] epsb: bool,
        0x00 [15:0] size: u16,
        0x04 [31:16] xoff_threshold: u16,
        0x04 [15:0] xon_threshold: u16,
    }

    /// A pool of the shared buffer: register `SBPR`. PRM `sbpr_reg`.
    pub struct SbprReg: 0x18, "mlx5_ifc_sbpr_reg_bits" {
        0x00 [31] desc: bool,
        0x00 [30] snap: bool,
        0x00 [25:24] dir: u8,
        0x00 [3:0] pool: u8,
        0x04 [31] infi_size: bool,
        0x04 [23:0] size: u32,
        0x08 [3:0] mode: u8,
        0x0c [23:0] buff_occupancy: u32,
        0x10 [31] clr: bool,
        0x10 [23:0] max_buff_occupancy: u32,
        0x14 [23:0] ext_buff_occupancy: u32,
    }

    /// Which pool a port's buffer draws from, and how much: register `SBCM`. PRM `sbcm_reg`.
    pub struct SbcmReg: 0x28, "mlx5_ifc_sbcm_reg_bits" {
        0x00 [31] desc: bool,
        0x00 [30] snap: bool,
        0x00 [23:16] local_port: u8,
        0x00 [15:14] pnat: u8,
        0x00 [13:8] pg_buff: u8,
        0x00 [1:0] dir: u8,
        0x04 [0] exc: bool,
        0x10 [23:0] buff_occupancy: u32,
        0x14 [31] clr: bool,
        0x14 [23:0] max_buff_occupancy: u32,
        0x18 [23:0] min_buff: u32,
        0x1c [31] infi_max: bool,
        0x1c [23:0] max_buff: u32,
        0x24 [3:0] pool: u8,
    }

    /// What the shared buffer can do: register `SBCAM`. PRM `sbcam_reg`.
    pub struct SbcamReg: 0x4c, "mlx5_ifc_sbcam_reg_bits" {
        0x00 [23:16] feature_group: u8,
        0x00 [7:0] access_reg_group: u8,
        0x08 sb_access_reg_cap_mask: [Be32; 4],
        0x28 sb_feature_cap_mask: [Be32; 4],
        0x40 [31:0] cap_total_buffer_size: u32,
        0x44 [31:16] cap_cell_size: u16,
        0x44 [15:8] cap_max_pg_buffers: u8,
        0x44 [7:0] cap_num_pool_supported: u8,
        0x48 [23:16] cap_sbsr_stat_size: u8,
        0x48 [15:8] cap_max_tclass_data: u8,
        0x48 [7:0] cap_max_cpu_ingress_tclass_sb: u8,
    }

    /// Random early discard on a port: register `PQDR`. PRM `pqdr_reg`.
    pub struct PqdrReg: 0x20, "mlx5_ifc_pqdr_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x00 [10:8] prio: u8,
        0x00 [1:0] mode: u8,
        0x08 [15:0] min_threshold: u16,
        0x0c [15:0] max_threshold: u16,
        0x10 [15:0] mark_probability_denominator: u16,
    }
}

values! {
    /// Who sizes a port's buffers. PRM `pfcc_reg.buf_ownership`.
    pub enum BufferOwnership: 2 {
        /// Not known.
        NotKnown = 0x0 "UNKNOWN",
        /// Firmware.
        Firmware = 0x1 "FW_OWNED",
        /// Software.
        Software = 0x2 "SW_OWNED",
    }
}
