//! Registers of the clocks: pulse per second, time of day, precision time measurement.

layout! {
    /// Pulse per second pins: register `MTPPS`. PRM `mtpps_reg`.
    pub struct MtppsReg: 0x3c, "mlx5_ifc_mtpps_reg_bits" {
        0x00 [19:16] cap_number_of_pps_pins: u8,
        0x00 [11:8] cap_max_num_of_pps_in_pins: u8,
        0x00 [3:0] cap_max_num_of_pps_out_pins: u8,
        0x04 [12:8] cap_log_min_npps_period: u8,
        0x04 [4:0] cap_log_min_out_pulse_duration_ns: u8,
        0x08 [27:24] cap_pin_3_mode: u8,
        0x08 [19:16] cap_pin_2_mode: u8,
        0x08 [11:8] cap_pin_1_mode: u8,
        0x08 [3:0] cap_pin_0_mode: u8,
        0x0c [27:24] cap_pin_7_mode: u8,
        0x0c [19:16] cap_pin_6_mode: u8,
        0x0c [11:8] cap_pin_5_mode: u8,
        0x0c [3:0] cap_pin_4_mode: u8,
        0x10 [31:0] field_select: u32,
        0x18 [63:0] npps_period: u64,
        0x20 [31] enable: bool,
        0x20 [19:16] pattern: u8,
        0x20 [11:8] pin_mode: u8,
        0x20 [7:0] pin: u8,
        0x24 [29:0] out_pulse_duration_ns: u32,
        0x28 [63:0] time_stamp: u64,
        0x30 [31:16] out_pulse_duration: u16,
        0x30 [15:0] out_periodic_adjustment: u16,
        0x34 [31:0] enhanced_out_periodic_adjustment: u32,
    }

    /// Events of a pulse per second pin: register `MTPPSE`. PRM `mtppse_reg`.
    pub struct MtppseReg: 0x10, "mlx5_ifc_mtppse_reg_bits" {
        0x00 [7:0] pin: u8,
        0x04 [31] event_arm: bool,
        0x04 [3:0] event_generation_mode: u8,
    }

    /// Sets and steers the real-time clock: register `MTUTC`. PRM `mtutc_reg`.
    pub struct MtutcReg: 0x1c, "mlx5_ifc_mtutc_reg_bits" {
        0x00 [31:30] time_stamp_mode: u8 as TimestampMode,
        0x00 [29:28] time_stamp_state: u8,
        0x00 [26:24] freq_adj_units: u8 as FrequencyUnits,
        0x00 [20:16] log_max_freq_adjustment: u8,
        0x00 [3:0] operation: u8 as ClockOperation,
        0x04 [31:0] freq_adjustment: u32,
        0x10 [31:0] utc_sec: u32,
        0x14 [29:0] utc_nsec: u32,
        0x18 [31:0] time_adjustment: u32,
    }

    /// Precision time measurement over PCIe: register `MTPTM`. PRM `mtptm_reg`.
    pub struct MtptmReg: 0x10, "mlx5_ifc_mtptm_reg_bits" {
        0x00 [15] psta: bool,
    }

    /// Two clocks read at one time: register `MTCTR`. PRM `mtctr_reg`.
    pub struct MtctrReg: 0x18, "mlx5_ifc_mtctr_reg_bits" {
        0x00 [31:24] first_clock_timestamp_request: u8 as ClockRequest,
        0x00 [23:16] second_clock_timestamp_request: u8 as ClockRequest,
        0x04 [31] first_clock_valid: bool,
        0x04 [30] second_clock_valid: bool,
        0x08 [63:0] first_clock_timestamp: u64,
        0x10 [63:0] second_clock_timestamp: u64,
    }

    /// Real-time clock of firmware: register `MRTC`. PRM `mrtc_reg`.
    pub struct MrtcReg: 0x10, "mlx5_ifc_mrtc_reg_bits" {
        0x00 [31] time_synced: bool,
        0x08 [31:0] time_h: u32,
        0x0c [31:0] time_l: u32,
    }

    /// Identity of the real-time clock: register `MRTCQ`. PRM `mrtcq_reg`.
    pub struct MrtcqReg: 0x40, "mlx5_ifc_mrtcq_reg_bits" {
        0x08 [63:0] rt_clock_identity: u64,
    }
}

values! {
    /// What clock the times of completions are of where their queue leaves that to the card. DPDK has its numbers. PRM
    /// `mtutc_reg.time_stamp_mode`.
    pub enum TimestampMode: 2 {
        /// The free-running counter.
        InternalTimer = 0x0 "INTERNAL_TIMER",
        /// The real-time clock.
        RealTime = 0x1 "REAL_TIME",
    }

    /// Unit of a frequency adjustment. PRM `mtutc_reg.freq_adj_units`.
    pub enum FrequencyUnits: 3 {
        /// Parts per billion.
        Ppb = 0x0 "PPB",
        /// Parts per million, over 2^16.
        ScaledPpm = 0x1 "SCALED_PPM",
    }

    /// What to do to the real-time clock. PRM `mtutc_reg.operation`.
    pub enum ClockOperation: 4 {
        /// Set it.
        SetTime = 0x1 "SET_TIME_IMMEDIATE",
        /// Move it.
        AdjustTime = 0x2 "ADJUST_TIME",
        /// Make it faster or slower.
        AdjustFrequency = 0x3 "ADJUST_FREQ_UTC",
    }

    /// Which clock to read. PRM `mtctr_reg`.
    pub enum ClockRequest: 8 {
        /// None.
        Nop = 0x0 "NOP",
        /// The PCIe root's.
        PtmRoot = 0x1 "PTM_ROOT_CLOCK",
        /// The free-running counter.
        FreeRunning = 0x2 "FREE_RUNNING_COUNTER",
        /// The real-time clock.
        RealTime = 0x3 "REAL_TIME_CLOCK",
    }
}
