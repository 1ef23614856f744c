//! The initialization segment at the start of BAR 0, and the health buffer inside it.

layout! {
    /// The registers a function has before there is a command queue. PRM "Initialization Segment".
    pub struct InitSegment: 0x2010, "mlx5_init_seg" {
        0x0000 [31:16] fw_rev_minor: u16,
        0x0000 [15:0] fw_rev_major: u16,
        0x0004 [31:16] cmd_interface_rev: u16,
        0x0004 [15:0] fw_rev_subminor: u16,
        0x0010 [31:0] cmdq_phy_addr_63_32: u32,
        0x0014 [31:12] cmdq_phy_addr_31_12: u32,
        0x0014 [9:8] nic_interface: u8 as NicInterface,
        0x0014 [7:4] log_cmdq_size: u8,
        0x0014 [3:0] log_cmdq_stride: u8,
        /// Bit n rings slot n.
        0x0018 [31:0] command_doorbell_vector: u32,
        /// 1 while firmware starts up.
        0x01fc [31] initializing: bool,
        0x01fc [26:24] nic_interface_supported: u8,
        0x01fc [23] embedded_cpu: bool,
        0x0200 health_buffer: HealthBuffer,
        0x0240 [31:0] no_dram_nic_offset: u32,
        /// Maximum duration of a command in milliseconds, if the card specifies one.
        0x0ff8 [31:0] cmd_exec_to: u32,
        0x0ffc [31:0] cmd_q_init_to: u32,
        0x1000 [31:0] internal_timer_h: u32,
        0x1004 [31:0] internal_timer_l: u32,
        0x100c [0] clear_int: bool,
        0x1010 [31:24] health_syndrome: u8,
        /// Counts up as long as firmware lives.
        0x1010 [23:0] health_counter: u32,
        0x1040 [31:0] real_time_h: u32,
        0x1044 [31:0] real_time_l: u32,
        0x2000 [63:0] ieee1588_clk: u64,
        0x2008 [31:0] ieee1588_clk_type: u32,
        0x200c [31:0] clr_intx: u32,
    }

    /// What firmware leaves when it fails. PRM "Health Buffer".
    pub struct HealthBuffer: 0x40, "health_buffer" {
        0x00 assert_var: [crate::layout::Be32; 6],
        0x20 [31:0] assert_existptr: u32,
        0x24 [31:0] assert_callra: u32,
        0x2c [31:0] time: u32,
        0x30 [31:0] fw_version: u32,
        0x34 [31:0] hw_id: u32,
        0x38 [31] rfr: bool,
        0x38 [27] valid: bool,
        0x38 [26:24] severity: u8,
        0x3c [31:24] irisc_index: u8,
        0x3c [23:16] synd: HealthSyndrome,
        0x3c [15:0] ext_synd: u16,
    }
}

values! {
    /// Why firmware is not well. PRM "Health Buffer", `synd`.
    pub enum HealthSyndrome: 8 {
        /// Nothing is wrong.
        None = 0 "NO_ERROR",
        /// Firmware internal error.
        FwInternal = 1 "FW_INTERNAL_ERR",
        /// A dead internal processor.
        DeadIrisc = 7 "DEAD_IRISC",
        /// Hardware fatal error.
        HwFatal = 8 "HW_FATAL_ERR",
        /// Firmware CRC error.
        FwCrc = 9 "FW_CRC_ERR",
        /// ICM fetch PCI error.
        IcmFetchPci = 0xa "ICM_FETCH_PCI_ERR",
        /// ICM page error.
        IcmPage = 0xb "ICM_PAGE_ERR",
        /// Asynchronous EQ buffer overrun.
        AsyncEqOverrun = 0xc "ASYNC_EQ_BUF_OVERRUN",
        /// EQ in error.
        EqInError = 0xd "EQ_IN_ERR",
        /// EQ with an invalid doorbell.
        EqInvalid = 0xe "EQ_INV",
        /// FFSER error.
        Ffser = 0xf "FFSER_ERR",
        /// High temperature.
        HighTemperature = 0x10 "HIGH_TEMP_ERR",
        /// ICM page poisoned on PCI.
        IcmPciPoisoned = 0x12 "ICM_PCI_POISONED_ERR",
        /// Locked down for reasons of trust.
        TrustLockdown = 0x13 "TRUST_LOCKDOWN_ERR",
    }

    /// How much of the card its driver uses. PRM "Initialization Segment", `nic_interface`.
    pub enum NicInterface: 3 {
        /// All of it.
        FullDriver = 0x0 "FULL_DRIVER",
        /// Nothing: the function is off, as after a fatal error.
        Disabled = 0x1 "DISABLED",
        /// What works without memory of the host.
        NoDram = 0x2 "NO_DRAM_NIC",
        /// Software asks for a reset.
        SwReset = 0x7 "SW_RESET",
    }
}
