//! Event queue entries. PRM "Event Queue Entry Format".

use crate::layout::{Info, Layout};

layout! {
    /// An event. `event_type` selects the layout of `event_data`, see [`EventType::layout`]. PRM `eqe`.
    pub struct Eqe: 0x40, "mlx5_eqe" {
        0x00 [23:16] event_type: EventType,
        0x00 [7:0] event_sub_type: u8,
        0x20 event_data: [u8; 28] where data,
        0x3c [15:8] signature: u8,
        0x3c [0] owner: bool,
    }

    /// Data of a completion event. PRM `comp_event`.
    pub struct CompletionEvent: 0x1c, "mlx5_eqe_comp" {
        0x18 [23:0] cqn: u32,
    }

    /// Data of a queue pair's, send, receive or shared receive queue's event. PRM `qp_events`.
    pub struct QpEvent: 0x1c, "mlx5_eqe_qp_srq" {
        /// Which of them.
        0x14 [31:24] r#type: u8 as EventQueueType,
        0x18 [23:0] qp_srq_n: u32,
    }

    /// Data of a completion queue error. PRM `cq_error`.
    pub struct CqErrorEvent: 0x1c, "mlx5_ifc_cq_error_bits" {
        0x00 [23:0] cqn: u32,
        0x08 [7:0] syndrome: u8 as CqErrorSyndrome,
    }

    /// Data of an error of a shared receive queue with tag matching. PRM `xrq_error`.
    pub struct XrqErrorEvent: 0x1c, "mlx5_eqe_xrq_err" {
        0x14 [31:24] r#type: u8,
        0x14 [23:0] xrqn: u32,
    }

    /// Data of an event of a dynamically connected target. PRM `dct_events`.
    pub struct DctEvent: 0x1c, "mlx5_ifc_dct_events_bits" {
        0x18 [23:0] dct_number: u32,
    }

    /// Data of a port state change; the sub type is a [`PortChange`]. PRM `port_state_change_event`.
    pub struct PortStateEvent: 0x1c, "mlx5_eqe_port_state" {
        0x08 [31:28] port: u8,
    }

    /// Data of a general purpose input. PRM `gpio_event`.
    pub struct GpioEvent: 0x1c, "mlx5_ifc_gpio_event_bits" {
        0x0c [31:0] gpio_event_hi: u32,
        0x10 [31:0] gpio_event_lo: u32,
    }

    /// Data of doorbell congestion. PRM `db_bf_congestion_event`.
    pub struct CongestionEvent: 0x18, "mlx5_ifc_db_bf_congestion_event_bits" {
        0x00 [31:24] event_subtype: u8,
        0x00 [15:8] congestion_level: u8,
    }

    /// Data of a stalled virtual lane. PRM `stall_vl_event`.
    pub struct StallEvent: 0x18, "mlx5_ifc_stall_vl_event_bits" {
        0x00 [7] port_num: bool,
        0x00 [3:0] vl: u8,
    }

    /// Data of a command completion: which slots are done. PRM `cmd_inter_comp_event`.
    pub struct CommandEvent: 0x1c, "mlx5_eqe_cmd" {
        0x00 [31:0] vector: u32,
    }

    /// Data of a page request. PRM `pages_req_event`.
    pub struct PageRequestEvent: 0x1c, "mlx5_eqe_page_req" {
        0x00 [31:16] ec_function: u16,
        0x00 [15:0] func_id: u16,
        /// Pages wanted; negative for pages to take back.
        0x04 [31:0] num_pages: u32,
    }

    /// Data of a page fault of a WQE; the sub type is a [`PageFault`]. PRM `wqe_associated_page_fault_event`.
    pub struct WqePageFaultEvent: 0x1c, "mlx5_ifc_wqe_associated_page_fault_event_bits" {
        0x00 [31:0] bytes_committed: u32,
        0x04 [15:0] wqe_index: u16,
        #[allow(clippy::len_without_is_empty, reason = "the PRM's name")]
        0x08 [15:0] len: u16,
        /// What its answer repeats. In the kernel's header, not in the PRM's.
        0x0c [31:0] token: u32,
        0x18 [26] rdma: bool,
        0x18 [25] write_read: bool,
        0x18 [24] requestor: bool,
        0x18 [23:0] qpn: u32,
    }

    /// Data of a page fault of a remote access. PRM `rdma_page_fault_event`.
    pub struct RdmaPageFaultEvent: 0x1c, "mlx5_ifc_rdma_page_fault_event_bits" {
        0x00 [31:0] bytes_committed: u32,
        0x04 [31:0] r_key: u32,
        0x08 [15:0] packet_len: u16,
        0x0c [31:0] rdma_op_len: u32,
        0x10 [63:0] rdma_va: u64,
        0x18 [26] rdma: bool,
        0x18 [25] write: bool,
        0x18 [24] requestor: bool,
        0x18 [23:0] qp_number: u32,
    }

    /// Data of a page fault of the memory scheme. PRM `memory_page_fault_event`.
    pub struct MemoryPageFaultEvent: 0x1c, "mlx5_eqe_page_fault" {
        0x00 [31:24] flags: u8,
        0x00 [15:0] post_demand_fault_pages: u16,
        0x04 [31:16] pre_demand_fault_pages: u16,
        0x04 [15:0] token47_32: u16,
        0x08 [31:0] token31_0: u32,
        /// In bits 31:12 pages of 4096 bytes.
        0x0c [31:0] demand_fault_pages: u32,
        0x10 [31:0] mkey: u32,
        0x14 va: [u8; 8],
    }

    /// Data of a change of a NIC vport's context. PRM `nic_vport_change_event`.
    pub struct VportChangeEvent: 0x1c, "mlx5_eqe_vport_change" {
        0x00 [15:0] vport_num: u16,
    }

    /// Data of a module's event. PRM `port_module_event`.
    pub struct PortModuleEvent: 0x1c, "mlx5_eqe_port_module" {
        0x00 [23:16] module: u8,
        0x00 [3:0] module_status: u8 as ModuleStatus,
        0x04 [11:8] error_type: u8 as ModuleError,
    }

    /// Data of a pulse per second. PRM `pps_event`.
    pub struct PpsEvent: 0x1c, "mlx5_eqe_pps" {
        0x00 [7:0] pin: u8,
        /// The free-running counter; with a real-time clock seconds over nanoseconds.
        0x08 [63:0] time_stamp: u64,
    }

    /// Data of a temperature warning: which sensors. PRM `temperature_warning_event`.
    pub struct TemperatureWarningEvent: 0x10, "mlx5_eqe_temp_warning" {
        0x00 [63:0] sensor_warning_msb: u64,
        0x08 [63:0] sensor_warning_lsb: u64,
    }

    /// Data of a change of a general object. PRM `affiliated_event_header`.
    pub struct ObjectChangeEvent: 0x8, "mlx5_ifc_affiliated_event_header_bits" {
        0x00 [15:0] obj_type: u16,
        0x04 [31:0] obj_id: u32,
    }

    /// Data of a [`GeneralEvent::PciSyncForFwUpdate`]. PRM `sync_fw_update_event`.
    pub struct SyncFwUpdateEvent: 0x4, "mlx5_eqe_sync_fw_update" {
        0x00 [3:0] sync_rst_state: u8 as SyncResetState,
    }

    /// Data of a state change of a virtual function. PRM `vhca_state_change_event`.
    pub struct VhcaStateEvent: 0x4, "mlx5_eqe_vhca_state" {
        0x00 [31:16] ec_function: u16,
        0x00 [15:0] function_id: u16,
    }

    /// Data of an FPGA error. PRM `fpga_error_event`.
    pub struct FpgaErrorEvent: 0x1c, "mlx5_ifc_fpga_error_event_bits" {
        0x08 [7:0] syndrome: u8 as FpgaErrorSyndrome,
    }

    /// Data of an FPGA queue pair error. PRM `fpga_qp_error_event`.
    pub struct FpgaQpErrorEvent: 0x1c, "mlx5_ifc_fpga_qp_error_event_bits" {
        0x08 [7:0] syndrome: u8 as FpgaQpErrorSyndrome,
        0x18 [23:0] fpga_qpn: u32,
    }
}

values! {
    /// What happened. PRM "Event Types".
    pub enum EventType: 8 {
        /// Completion.
        Completion = 0x00 "COMPLETION",
        /// Path migrated.
        PathMigrated = 0x01 "PATH_MIGRATED",
        /// Communication established.
        CommunicationEstablished = 0x02 "COMM_ESTABLISHED",
        /// Send queue drained.
        SendQueueDrained = 0x03 "SQ_DRAINED",
        /// Completion queue error.
        CqError = 0x04 "CQ_ERROR",
        /// Work queue catastrophic error.
        WqCatastrophic = 0x05 "WQ_CATAS_ERROR",
        /// Path migration failed.
        PathMigrationFailed = 0x07 "PATH_MIG_FAILED",
        /// Internal error.
        InternalError = 0x08 "INTERNAL_ERROR",
        /// Port state change.
        PortChange = 0x09 "PORT_CHANGE",
        /// Command interface completion.
        Command = 0x0a "CMD",
        /// Page request.
        PageRequest = 0x0b "PAGE_REQUEST",
        /// Page fault.
        PageFault = 0x0c "PAGE_FAULT",
        /// NIC vport context changed.
        NicVportChange = 0x0d "NIC_VPORT_CHANGE",
        /// E-switch functions changed.
        EswFunctionsChanged = 0x0e "ESW_FUNCTIONS_CHANGED",
        /// A virtual host adapter changed state.
        VhcaStateChange = 0x0f "VHCA_STATE_CHANGE",
        /// Work queue invalid request.
        WqInvalidRequest = 0x10 "WQ_INVAL_REQ_ERROR",
        /// Work queue local access error.
        WqAccessError = 0x11 "WQ_ACCESS_ERROR",
        /// Shared receive queue catastrophic error.
        SrqCatastrophic = 0x12 "SRQ_CATAS_ERROR",
        /// Last WQE reached.
        SrqLastWqe = 0x13 "SRQ_LAST_WQE",
        /// Receive queue limit reached.
        SrqLimit = 0x14 "SRQ_RQ_LIMIT",
        /// General purpose input.
        Gpio = 0x15 "GPIO_EVENT",
        /// Port module.
        PortModule = 0x16 "PORT_MODULE_EVENT",
        /// Temperature warning.
        TemperatureWarning = 0x17 "TEMP_WARN_EVENT",
        /// XRQ error.
        XrqError = 0x18 "XRQ_ERROR",
        /// Remote configuration.
        RemoteConfig = 0x19 "REMOTE_CONFIG",
        /// Doorbell congestion.
        DoorbellCongestion = 0x1a "DB_BF_CONGESTION",
        /// Stall.
        Stall = 0x1b "STALL_EVENT",
        /// Dynamically connected target drained.
        DctDrained = 0x1c "DCT_DRAINED",
        /// Dynamically connected target: wrong access key.
        DctKeyViolation = 0x1d "DCT_KEY_VIOLATION",
        /// A dropped packet was logged.
        DroppedPacketLogged = 0x1f "DROPPED_PACKET_LOGGED",
        /// FPGA error.
        FpgaError = 0x20 "FPGA_ERROR",
        /// FPGA queue pair error.
        FpgaQpError = 0x21 "FPGA_QP_ERROR",
        /// General event.
        General = 0x22 "GENERAL_EVENT",
        /// Counter monitor.
        MonitorCounter = 0x24 "MONITOR_COUNTER",
        /// Pulse per second.
        Pps = 0x25 "PPS_EVENT",
        /// Firmware tracer.
        DeviceTracer = 0x26 "DEVICE_TRACER",
        /// A general object changed.
        ObjectChange = 0x27 "OBJECT_CHANGE",
    }

    /// Why a completion queue failed. PRM `cq_error.syndrome`.
    pub enum CqErrorSyndrome: 8 {
        /// A completion found no room.
        Overrun = 0x1 "CQ_OVERRUN",
        /// The ring could not be written.
        AccessViolation = 0x2 "CQ_ACCESS_VIOLATION_ERROR",
    }

    /// Which kind of queue an event is of. PRM `qp_events.type`.
    pub enum EventQueueType: 8 {
        /// A queue pair.
        Qp = 0 "QP",
        /// A receive queue.
        Rq = 1 "RQ",
        /// A send queue.
        Sq = 2 "SQ",
        /// A dynamically connected target.
        Dct = 6 "DCT",
    }

    /// What became of a port: sub type of [`EventType::PortChange`].
    pub enum PortChange: 8 {
        /// Down.
        Down = 1 "DOWN",
        /// Up.
        Active = 4 "ACTIVE",
        /// Initialized.
        Initialized = 5 "INITIALIZED",
        /// It has another LID.
        Lid = 6 "LID",
        /// It has other P_Keys.
        Pkey = 7 "PKEY",
        /// It has another GUID.
        Guid = 8 "GUID",
        /// Its clients shall register again.
        ClientReregister = 9 "CLIENT_REREG",
    }

    /// What a page fault met: sub type of [`EventType::PageFault`].
    pub enum PageFault: 8 {
        /// A WQE, [`WqePageFaultEvent`].
        Wqe = 0 "WQE",
        /// A remote access, [`RdmaPageFaultEvent`].
        Rdma = 1 "RDMA",
        /// Any access, [`MemoryPageFaultEvent`].
        Memory = 2 "MEMORY",
    }

    /// Sub type of [`EventType::General`].
    pub enum GeneralEvent: 8 {
        /// Packets waited too long for a receive.
        DelayDropTimeout = 0x1 "DELAY_DROP_TIMEOUT",
        /// PCIe has another power budget.
        PciPowerChange = 0x5 "PCI_POWER_CHANGE_EVENT",
        /// Firmware was patched as it ran.
        FwLivePatch = 0x7 "FW_LIVE_PATCH_EVENT",
        /// Firmware will be reset, [`SyncFwUpdateEvent`].
        PciSyncForFwUpdate = 0x8 "PCI_SYNC_FOR_FW_UPDATE_EVENT",
    }

    /// Sub type of [`EventType::DeviceTracer`].
    pub enum TracerEvent: 8 {
        /// The tracer has another owner.
        OwnershipChange = 0x0 "OWNERSHIP_CHANGE",
        /// There are traces.
        TracesAvailable = 0x1 "TRACES_AVAILABLE",
        /// The strings have changed.
        StringsDbUpdate = 0x2 "STRINGS_DB_UPDATE",
    }

    /// Step of a reset of firmware. PRM `sync_fw_update_event.sync_rst_state`.
    pub enum SyncResetState: 4 {
        /// May it be reset?
        Request = 0x0 "RESET_REQUEST",
        /// It is reset now.
        Now = 0x1 "RESET_NOW",
        /// It will not be reset.
        Abort = 0x2 "RESET_ABORT",
        /// The driver shall unload.
        Unload = 0x3 "RESET_UNLOAD",
    }

    /// State of a module. PRM `port_module_event.module_status`.
    pub enum ModuleStatus: 4 {
        /// Plugged and enabled.
        Plugged = 0x1 "PLUGGED",
        /// Unplugged.
        Unplugged = 0x2 "UNPLUGGED",
        /// In error, see [`ModuleError`].
        Error = 0x3 "ERROR",
        /// Plugged and disabled.
        Disabled = 0x4 "DISABLED",
    }

    /// Why a module is in error. PRM `port_module_event.error_type`.
    pub enum ModuleError: 4 {
        /// It needs too much power.
        PowerBudgetExceeded = 0x0 "POWER_BUDGET_EXCEEDED",
        /// Too long a range for this cable.
        LongRange = 0x1 "LONG_RANGE_FOR_NON_MLNX",
        /// Its bus is stuck.
        BusStuck = 0x2 "BUS_STUCK",
        /// Its EEPROM does not answer.
        NoEeprom = 0x3 "NO_EEPROM_RETRY_TIMEOUT",
        /// It is not on the list.
        EnforcePartNumberList = 0x4 "ENFORCE_PART_NUMBER_LIST",
        /// It says nothing that is known.
        UnknownIdentifier = 0x5 "UNKNOWN_IDENTIFIER",
        /// Too hot.
        HighTemperature = 0x6 "HIGH_TEMPERATURE",
        /// The cable is bad or shorted.
        BadCable = 0x7 "BAD_CABLE",
        /// It needs more power than the slot has.
        PcieSystemPowerSlotExceeded = 0xc "PCIE_POWER_SLOT_EXCEEDED",
    }

    /// Why the FPGA failed. PRM `fpga_error_event.syndrome`.
    pub enum FpgaErrorSyndrome: 8 {
        /// Its memory is corrupt.
        CorruptedDdr = 0x1 "CORRUPTED_DDR",
        /// Its flash does not answer.
        FlashTimeout = 0x2 "FLASH_TIMEOUT",
        /// The link to it failed.
        InternalLink = 0x3 "INTERNAL_LINK_ERROR",
        /// Its watchdog barked.
        Watchdog = 0x4 "WATCHDOG_FAILURE",
        /// Its I2C bus failed.
        I2c = 0x5 "I2C_FAILURE",
        /// It has another image.
        ImageChanged = 0x6 "IMAGE_CHANGED",
        /// Too hot.
        TemperatureCritical = 0x7 "TEMPERATURE_CRITICAL",
    }

    /// Why an FPGA's queue pair failed. PRM `fpga_qp_error_event.syndrome`.
    pub enum FpgaQpErrorSyndrome: 8 {
        /// No answer within all retries.
        RetryExpired = 0x1 "RETRY_COUNTER_EXPIRED",
        /// No receive was posted, all retries long.
        RnrExpired = 0x2 "RNR_EXPIRED",
    }
}

impl Eqe {
    fn data(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        let event = Eqe::read(bytes)?;
        event.event_type().layout_with(event.event_sub_type())
    }
}

impl EventType {
    /// The layout of the event's data with this sub type.
    pub const fn layout_with(self, sub_type: u8) -> Option<&'static Info> {
        match (self, PageFault::from_number(sub_type as u32), GeneralEvent::from_number(sub_type as u32)) {
            (EventType::PageFault, PageFault::Wqe, _) => Some(&WqePageFaultEvent::INFO),
            (EventType::PageFault, PageFault::Rdma, _) => Some(&RdmaPageFaultEvent::INFO),
            (EventType::PageFault, PageFault::Memory, _) => Some(&MemoryPageFaultEvent::INFO),
            (EventType::General, _, GeneralEvent::PciSyncForFwUpdate) => Some(&SyncFwUpdateEvent::INFO),
            _ => self.layout(),
        }
    }

    /// The layout of the event's data, where the sub type does not matter and there are any.
    pub const fn layout(self) -> Option<&'static Info> {
        Some(match self {
            EventType::Completion => &CompletionEvent::INFO,
            EventType::PathMigrated
            | EventType::CommunicationEstablished
            | EventType::SendQueueDrained
            | EventType::WqCatastrophic
            | EventType::PathMigrationFailed
            | EventType::WqInvalidRequest
            | EventType::WqAccessError
            | EventType::SrqCatastrophic
            | EventType::SrqLastWqe
            | EventType::SrqLimit => &QpEvent::INFO,
            EventType::CqError => &CqErrorEvent::INFO,
            EventType::XrqError => &XrqErrorEvent::INFO,
            EventType::DctDrained | EventType::DctKeyViolation => &DctEvent::INFO,
            EventType::PortChange => &PortStateEvent::INFO,
            EventType::Gpio => &GpioEvent::INFO,
            EventType::DoorbellCongestion => &CongestionEvent::INFO,
            EventType::Stall => &StallEvent::INFO,
            EventType::Command => &CommandEvent::INFO,
            EventType::PageRequest => &PageRequestEvent::INFO,
            EventType::NicVportChange => &VportChangeEvent::INFO,
            EventType::PortModule => &PortModuleEvent::INFO,
            EventType::Pps => &PpsEvent::INFO,
            EventType::TemperatureWarning => &TemperatureWarningEvent::INFO,
            EventType::ObjectChange => &ObjectChangeEvent::INFO,
            EventType::VhcaStateChange => &VhcaStateEvent::INFO,
            EventType::FpgaError => &FpgaErrorEvent::INFO,
            EventType::FpgaQpError => &FpgaQpErrorEvent::INFO,
            // Events without data: type and sub type are all.
            EventType::InternalError
            | EventType::PageFault
            | EventType::EswFunctionsChanged
            | EventType::RemoteConfig
            | EventType::General
            | EventType::MonitorCounter
            | EventType::DroppedPacketLogged
            | EventType::DeviceTracer
            | EventType::Unknown(_) => return None,
        })
    }
}
