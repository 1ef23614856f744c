//! Management datagrams, which queue pair 1 carries: connection management, and what subnet managers ask.

layout! {
    /// What each management datagram starts with. IBTA 13.4.2 "Management Datagram Format".
    pub struct MadHdr: 0x18, "ib_mad_hdr" {
        0x00 [31:24] base_version: u8 = 1,
        0x00 [23:16] mgmt_class: MgmtClass,
        0x00 [15:8] class_version: u8,
        /// What is asked, see [`MadMethod`].
        0x00 [7:0] method: MadMethod,
        0x04 [31:16] status: u16,
        0x04 [15:0] class_specific: u16,
        /// The sender's number for this exchange.
        0x08 [63:0] transaction_id: u64,
        0x10 [31:16] attribute_id: u16,
        0x14 [31:0] attribute_modifier: u32,
    }
}

values! {
    /// Management class. IBTA 13.4.4 "Management Classes".
    pub enum MgmtClass: 8 {
        /// Subnet management by LID.
        SubnLidRouted = 0x01 "SUBN_LID_ROUTED",
        /// Subnet administration.
        SubnAdm = 0x03 "SUBN_ADM",
        /// Performance management.
        Perf = 0x04 "PERF_MGMT",
        /// Baseboard management.
        Bm = 0x05 "BM",
        /// Device management.
        Device = 0x06 "DEVICE_MGMT",
        /// Communication management.
        Cm = 0x07 "CM",
        /// SNMP tunnelling.
        Snmp = 0x08 "SNMP",
        /// Device administration.
        DeviceAdm = 0x10 "DEVICE_ADM",
        /// Boot management.
        Boot = 0x11 "BOOT_MGMT",
        /// I/O device identification.
        Bis = 0x12 "BIS",
        /// Congestion management.
        Congestion = 0x21 "CONG_MGMT",
        /// Subnet management by a directed route.
        SubnDirectedRoute = 0x81 "SUBN_DIRECTED_ROUTE",
    }

    /// Method of a management datagram. IBTA 13.4.5 "Management Class Methods".
    pub enum MadMethod: 8 {
        /// Read an attribute.
        Get = 0x01 "GET",
        /// Write an attribute.
        Set = 0x02 "SET",
        /// A message without an answer of this layer.
        Send = 0x03 "SEND",
        /// Something happened.
        Trap = 0x05 "TRAP",
        /// An event, forwarded to who subscribed.
        Report = 0x06 "REPORT",
        /// Stop sending a trap.
        TrapRepress = 0x07 "TRAP_REPRESS",
        /// Answer to `GET` and `SET`.
        GetResp = 0x81 "GET_RESP",
        /// Answer to `REPORT`.
        ReportResp = 0x86 "REPORT_RESP",
    }
}

/// Bytes of a management datagram.
pub const MAD: usize = 256;
/// The queue key of queue pair 1. IBTA 10.2.5.
pub const GSI_QKEY: u32 = 0x8001_0000;
