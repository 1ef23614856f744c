//! Event queue entries. PRM "Event Queue Entry Format".

use crate::layout::{Info, Layout};

layout! {
    /// An event. What `event_data` is depends on `event_type`, see [`EventType::layout`]. PRM `eqe`.
    pub struct Eqe: 0x40, "mlx5_eqe" {
        0x00 [23:16] event_type: EventType,
        0x00 [7:0] event_sub_type: u8,
        0x20 event_data: [u8; 28] where data_layout,
        0x3c [15:8] signature: u8,
        0x3c [0] owner: bool,
    }

    /// Data of a completion event. PRM `comp_event`.
    pub struct CompletionEvent: 0x1c, "mlx5_eqe_comp" {
        0x18 [23:0] cqn: u32,
    }

    /// Data of a queue pair's or shared receive queue's event. PRM `qp_events`.
    pub struct QpEvent: 0x1c, "mlx5_eqe_qp_srq" {
        0x14 [31:24] r#type: u8,
        0x18 [23:0] qp_srq_n: u32,
    }

    /// Data of a completion queue error. PRM `cq_error`.
    pub struct CqErrorEvent: 0x1c, "mlx5_ifc_cq_error_bits" {
        0x00 [23:0] cqn: u32,
        0x08 [7:0] syndrome: u8 as CqErrorSyndrome,
    }

    /// Data of a port state change; the sub type tells up from down. PRM `port_state_change_event`.
    pub struct PortStateEvent: 0x1c, "mlx5_eqe_port_state" {
        0x08 [31:28] port: u8,
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
}

impl EventType {
    /// The layout of the event's data, where this crate has it.
    pub const fn layout(self) -> Option<&'static Info> {
        match self {
            EventType::Completion => Some(&CompletionEvent::INFO),
            EventType::PathMigrated
            | EventType::CommunicationEstablished
            | EventType::SendQueueDrained
            | EventType::WqCatastrophic
            | EventType::PathMigrationFailed
            | EventType::WqInvalidRequest
            | EventType::WqAccessError
            | EventType::SrqCatastrophic
            | EventType::SrqLastWqe
            | EventType::SrqLimit => Some(&QpEvent::INFO),
            EventType::CqError => Some(&CqErrorEvent::INFO),
            EventType::PortChange => Some(&PortStateEvent::INFO),
            EventType::Command => Some(&CommandEvent::INFO),
            EventType::PageRequest => Some(&PageRequestEvent::INFO),
            _ => None,
        }
    }
}

impl Eqe {
    fn data_layout(bytes: &[u8], _index: usize) -> Option<&'static Info> {
        Eqe::read(bytes)?.event_type().layout()
    }
}
