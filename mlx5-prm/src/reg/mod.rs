//! Registers: the `register_data` of [`AccessRegisterIn`](crate::cmd::AccessRegisterIn), one layout a register.
//! [`RegisterId::layout`] maps them. Registers without a number here are in the headers, but no driver uses them.

use crate::layout::files::files;
use crate::layout::{Info, Layout};

files! {
    buffer: layouts values;
    clock: layouts values;
    configuration: layouts;
    counter: layouts values;
    counter_physical: layouts values;
    diagnosis: layouts values;
    dump: layouts;
    firmware: layouts values;
    fpga: layouts values;
    host: layouts;
    link: layouts;
    link_mode: values;
    module: layouts;
    pci: layouts;
    port: layouts values;
    qos: layouts values;
    sync_ethernet: layouts values;
    temperature: layouts;
    tracer: layouts;
    #[allow(clippy::wrong_self_convention, reason = "the PRM writes to_value")]
    function: layouts;
    #[allow(non_snake_case, reason = "the PRM writes 100G")]
    capability_mask: layouts values;
}

values! {
    /// `register_id` of `ACCESS_REGISTER`.
    pub enum RegisterId: 16 {
        /// Whether a port trusts a packet's PCP or DSCP.
        Qpts = 0x4002 "QPTS",
        /// Enhanced transmission selection.
        Qetcr = 0x4005 "QETCR",
        /// Traffic class of a priority.
        Qtct = 0x400a "QTCT",
        /// Priority of each DSCP.
        Qpdpm = 0x4013 "QPDPM",
        /// Which quality of service registers there are.
        Qcam = 0x4019 "QCAM",
        /// Parameters of DCBX.
        DcbxParam = 0x4020 "DCBX_PARAM",
        /// Application priorities of DCBX.
        DcbxApp = 0x4021 "DCBX_APP",
        /// What the FPGA is.
        FpgaCap = 0x4022 "FPGA_CAP",
        /// Loads and resets the FPGA.
        FpgaCtrl = 0x4023 "FPGA_CTRL",
        /// Access to the FPGA's memory.
        FpgaAccessReg = 0x4024 "FPGA_ACCESS_REG",
        /// Core dump.
        CoreDump = 0x402e "CORE_DUMP",
        /// InfiniBand capability mask of a port.
        Pcap = 0x5001 "PCAP",
        /// Which lanes of which module a port uses.
        Pmlp = 0x5002 "PMLP",
        /// Port MTU.
        Pmtu = 0x5003 "PMTU",
        /// Port type and speed.
        Ptys = 0x5004 "PTYS",
        /// Port administrative and operational status.
        Paos = 0x5006 "PAOS",
        /// Port flow control.
        Pfcc = 0x5007 "PFCC",
        /// Counters of a port.
        Ppcnt = 0x5008 "PPCNT",
        /// Port went up or down.
        Pude = 0x5009 "PUDE",
        /// Buffer of each priority.
        Pptb = 0x500b "PPTB",
        /// Sizes and thresholds of a port's buffers.
        Pbmc = 0x500c "PBMC",
        /// Port extended link capabilities.
        Pelc = 0x500e "PELC",
        /// Virtual lanes of a port.
        Pvlc = 0x500f "PVLC",
        /// Module was plugged or unplugged.
        Pmpe = 0x5010 "PMPE",
        /// Module administrative and operational status.
        Pmaos = 0x5012 "PMAOS",
        /// Port's physical layer mode.
        Pplm = 0x5023 "PPLM",
        /// Port diagnostics database.
        Pddr = 0x5031 "PDDR",
        /// Bins of the histogram of errors of a port.
        Pphcr = 0x503e "PPHCR",
        /// Port check masks.
        Pcmr = 0x5041 "PCMR",
        /// Which port registers there are.
        Pcam = 0x507f "PCAM",
        /// Name of the node.
        NodeDesc = 0x6001 "NODE_DESC",
        /// Host endianness.
        HostEndianness = 0x7004 "HOST_ENDIANNESS",
        /// Which temperature sensors there are.
        Mtcap = 0x9009 "MTCAP",
        /// Temperature of a sensor.
        Mtmp = 0x900a "MTMP",
        /// Access to a cable's EEPROM.
        Mcia = 0x9014 "MCIA",
        /// Access to non-volatile configuration.
        Mnvda = 0x9024 "MNVDA",
        /// Firmware reset level.
        Mfrl = 0x9028 "MFRL",
        /// Blinking of a port's LED.
        Mlcr = 0x902b "MLCR",
        /// Real-time clock of firmware.
        Mrtc = 0x902d "MRTC",
        /// What the firmware tracer can do.
        MtrcCap = 0x9040 "MTRC_CAP",
        /// Where traces go.
        MtrcConf = 0x9041 "MTRC_CONF",
        /// The firmware tracer's strings.
        MtrcStdb = 0x9042 "MTRC_STDB",
        /// Starts and stops the firmware tracer.
        MtrcCtrl = 0x9043 "MTRC_CTRL",
        /// PCIe link.
        Mpein = 0x9050 "MPEIN",
        /// Counters of PCIe.
        Mpcnt = 0x9051 "MPCNT",
        /// Pulse per second pins.
        Mtpps = 0x9053 "MTPPS",
        /// Events of a pulse per second pin.
        Mtppse = 0x9054 "MTPPSE",
        /// Real-time clock.
        Mtutc = 0x9055 "MTUTC",
        /// Overflow of data towards PCIe.
        Mpegc = 0x9056 "MPEGC",
        /// PCIe buses of several hosts.
        Mpir = 0x9059 "MPIR",
        /// State of a firmware component.
        Mcqs = 0x9060 "MCQS",
        /// Facts of a firmware component.
        Mcqi = 0x9061 "MCQI",
        /// Steps of a component's update.
        Mcc = 0x9062 "MCC",
        /// Data of a component.
        Mcda = 0x9063 "MCDA",
        /// Which management registers there are.
        Mcam = 0x907f "MCAM",
        /// Quality of the local clock.
        Msecq = 0x9155 "MSECQ",
        /// State of synchronous Ethernet on a port.
        Msees = 0x9156 "MSEES",
        /// Image reactivation.
        Mirc = 0x9162 "MIRC",
        /// Precision time measurement.
        Mtptm = 0x9180 "MTPTM",
        /// Two clocks read at one time.
        Mtctr = 0x9181 "MTCTR",
        /// Identity of the real-time clock.
        Mrtcq = 0x9182 "MRTCQ",
        /// A pool of the shared buffer.
        Sbpr = 0xb001 "SBPR",
        /// Which pool a port's buffer draws from, and how much.
        Sbcm = 0xb002 "SBCM",
        /// What the shared buffer can do.
        Sbcam = 0xb01f "SBCAM",
        /// Dumps a resource into memory.
        ResourceDump = 0xc000 "RESOURCE_DUMP",
        /// Which registers of a function there are.
        NicCap = 0xc00d "NIC_CAP",
        /// Default timeouts.
        Dtor = 0xc00e "DTOR",
        /// Memory that firmware took for a function.
        VhcaIcmCtrl = 0xc010 "VHCA_ICM_CTRL",
    }
}

impl RegisterId {
    /// The register's layout; `None` where the headers have none.
    pub const fn layout(self) -> Option<&'static Info> {
        Some(match self {
            RegisterId::Qpts => &QptsReg::INFO,
            RegisterId::Qetcr => &QetcReg::INFO,
            RegisterId::Qtct => &QtctReg::INFO,
            RegisterId::Qpdpm => &QpdpmReg::INFO,
            RegisterId::Qcam => &QcamReg::INFO,
            RegisterId::DcbxParam => &DcbxParam::INFO,
            RegisterId::FpgaCap => &FpgaCap::INFO,
            RegisterId::FpgaCtrl => &FpgaCtrl::INFO,
            RegisterId::FpgaAccessReg => &FpgaAccessReg::INFO,
            RegisterId::CoreDump => &CoreDumpReg::INFO,
            RegisterId::Pcap => &PcapReg::INFO,
            RegisterId::Pmlp => &PmlpReg::INFO,
            RegisterId::Pmtu => &PmtuReg::INFO,
            RegisterId::Ptys => &PtysReg::INFO,
            RegisterId::Paos => &PaosReg::INFO,
            RegisterId::Pfcc => &PfccReg::INFO,
            RegisterId::Ppcnt => &PpcntReg::INFO,
            RegisterId::Pude => &PudeReg::INFO,
            RegisterId::Pptb => &PptbReg::INFO,
            RegisterId::Pbmc => &PbmcReg::INFO,
            RegisterId::Pelc => &PelcReg::INFO,
            RegisterId::Pvlc => &PvlcReg::INFO,
            RegisterId::Pmpe => &PmpeReg::INFO,
            RegisterId::Pmaos => &PmaosReg::INFO,
            RegisterId::Pplm => &PplmReg::INFO,
            RegisterId::Pddr => &PddrReg::INFO,
            RegisterId::Pphcr => &PphcrReg::INFO,
            RegisterId::Pcmr => &PcmrReg::INFO,
            RegisterId::Pcam => &PcamReg::INFO,
            RegisterId::NodeDesc => &NodeDesc::INFO,
            RegisterId::HostEndianness => &HostEndianness::INFO,
            RegisterId::Mtcap => &MtcapReg::INFO,
            RegisterId::Mtmp => &MtmpReg::INFO,
            RegisterId::Mcia => &MciaReg::INFO,
            RegisterId::Mnvda => &MnvdaReg::INFO,
            RegisterId::Mfrl => &MfrlReg::INFO,
            RegisterId::Mlcr => &MlcrReg::INFO,
            RegisterId::Mrtc => &MrtcReg::INFO,
            RegisterId::MtrcCap => &MtrcCap::INFO,
            RegisterId::MtrcConf => &MtrcConf::INFO,
            RegisterId::MtrcStdb => &MtrcStdb::INFO,
            RegisterId::MtrcCtrl => &MtrcCtrl::INFO,
            RegisterId::Mpein => &MpeinReg::INFO,
            RegisterId::Mpcnt => &MpcntReg::INFO,
            RegisterId::Mtpps => &MtppsReg::INFO,
            RegisterId::Mtppse => &MtppseReg::INFO,
            RegisterId::Mtutc => &MtutcReg::INFO,
            RegisterId::Mpegc => &MpegcReg::INFO,
            RegisterId::Mpir => &MpirReg::INFO,
            RegisterId::Mcqs => &McqsReg::INFO,
            RegisterId::Mcqi => &McqiReg::INFO,
            RegisterId::Mcc => &MccReg::INFO,
            RegisterId::Mcda => &McdaReg::INFO,
            RegisterId::Mcam => &McamReg::INFO,
            RegisterId::Msecq => &MsecqReg::INFO,
            RegisterId::Msees => &MseesReg::INFO,
            RegisterId::Mirc => &MircReg::INFO,
            RegisterId::Mtptm => &MtptmReg::INFO,
            RegisterId::Mtctr => &MtctrReg::INFO,
            RegisterId::Mrtcq => &MrtcqReg::INFO,
            RegisterId::Sbpr => &SbprReg::INFO,
            RegisterId::Sbcm => &SbcmReg::INFO,
            RegisterId::Sbcam => &SbcamReg::INFO,
            RegisterId::ResourceDump => &ResourceDump::INFO,
            RegisterId::NicCap => &NicCapReg::INFO,
            RegisterId::Dtor => &DtorReg::INFO,
            RegisterId::VhcaIcmCtrl => &VhcaIcmCtrlReg::INFO,
            // The headers give DCBX_APP a number and no fields, and no driver asks for it.
            RegisterId::DcbxApp | RegisterId::Unknown(_) => return None,
        })
    }
}
