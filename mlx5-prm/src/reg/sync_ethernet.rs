//! Registers of synchronous Ethernet.

layout! {
    /// Quality of the local clock: register `MSECQ`. PRM `msecq_reg`.
    pub struct MsecqReg: 0x40, "mlx5_ifc_msecq_reg_bits" {
        0x04 [13:12] network_option: u8,
        0x04 [11:8] local_ssm_code: u8,
        0x04 [7:0] local_enhanced_ssm_code: u8,
        0x08 [63:0] local_clock_identity: u64,
    }

    /// State of synchronous Ethernet on a port: register `MSEES`. PRM `msees_reg`.
    pub struct MseesReg: 0x40, "mlx5_ifc_msees_reg_bits" {
        0x00 [23:16] local_port: u8,
        0x00 [15:14] pnat: u8,
        0x00 [13:12] lp_msb: u8,
        0x04 [31:0] field_select: u32,
        0x08 [31:28] admin_status: u8 as SyncAdminStatus,
        0x08 [27:24] oper_status: u8 as SyncOperStatus,
        0x08 [23] ho_acq: bool,
        0x08 [10] admin_freq_measure: bool,
        0x08 [9] oper_freq_measure: bool,
        0x08 [8:0] failure_reason: u16 as SyncFailure,
        0x0c [31:0] frequency_diff: u32,
    }
}

values! {
    /// What a port's clock shall do. PRM `msees_reg.admin_status`.
    pub enum SyncAdminStatus: 4 {
        /// Run by itself.
        FreeRunning = 0x0 "FREE_RUNNING",
        /// Follow the port.
        Track = 0x1 "TRACK",
    }

    /// What a port's clock does. PRM `msees_reg.oper_status`.
    pub enum SyncOperStatus: 4 {
        /// It runs by itself.
        FreeRunning = 0x0 "FREE_RUNNING",
        /// It follows this port.
        SelfTrack = 0x1 "SELF_TRACK",
        /// It follows another port.
        OtherTrack = 0x2 "OTHER_TRACK",
        /// It goes on as it did.
        Holdover = 0x3 "HOLDOVER",
        /// It goes on as it did, for following failed.
        FailHoldover = 0x4 "FAIL_HOLDOVER",
        /// It runs by itself, for following failed.
        FailFreeRunning = 0x5 "FAIL_FREE_RUNNING",
    }

    /// Why a clock does not follow. PRM `msees_reg.failure_reason`.
    pub enum SyncFailure: 9 {
        /// Not said.
        Undefined = 0x0 "UNDEFINED_ERROR",
        /// The port is down.
        PortDown = 0x1 "PORT_DOWN",
        /// The frequencies are too far apart.
        FrequencyDifference = 0x2 "TOO_HIGH_FREQUENCY_DIFF",
        /// The synchronizer failed.
        SynchronizerError = 0x3 "NET_SYNCHRONIZER_DEVICE_ERROR",
        /// Something has run out.
        LackOfResources = 0x4 "LACK_OF_RESOURCES",
    }
}
