//! What IDENTIFY and GET LOG PAGE return. NVMe base specification, "Identify command".

use zerocopy::little_endian::{U16, U32, U64};

use super::declare::{constants, wire};

wire! {
    /// What a controller is.
    ControllerData = "nvme_id_ctrl" {
        /// PCI vendor.
        vid: U16 = "vid",
        /// PCI subsystem vendor.
        ssvid: U16 = "ssvid",
        /// Serial number.
        serial: [u8; 20] = "sn",
        /// Model.
        model: [u8; 40] = "mn",
        /// Firmware revision.
        firmware: [u8; 8] = "fr",
        /// Recommended burst.
        rab: u8 = "rab",
        /// IEEE's number of the vendor.
        ieee: [u8; 3] = "ieee",
        /// Several ports or controllers.
        cmic: u8 = "cmic",
        /// Longest transfer: 4 KiB times two to this; 0 is without limit.
        mdts: u8 = "mdts",
        /// Controller.
        cntlid: U16 = "cntlid",
        /// Version.
        version: U32 = "ver",
        /// Times, events and attributes.
        reserved_84: [u8; 27] = "rtd3r",
        /// 1: with I/O queues; 2: discovery.
        cntrltype: u8 = "cntrltype",
        /// More attributes.
        reserved_112: [u8; 144] = "fguid",
        /// Optional admin commands.
        oacs: U16 = "oacs",
        /// Aborts under way at once, less one.
        acl: u8 = "acl",
        /// Asynchronous event requests under way at once, less one.
        aerl: u8 = "aerl",
        /// Firmware slots.
        frmw: u8 = "frmw",
        /// Attributes of log pages.
        lpa: u8 = "lpa",
        /// Entries of the error log, less one.
        elpe: u8 = "elpe",
        /// Power, temperature, sizes.
        reserved_263: [u8; 57] = "npss",
        /// Granularity of the keep-alive timeout, in 100 ms.
        kas: U16 = "kas",
        /// Sanitizing, host memory, groups.
        reserved_322: [u8; 190] = "hctma",
        /// Size of submission queue entries: two to this, smallest in the low half.
        sqes: u8 = "sqes",
        /// Size of completion queue entries.
        cqes: u8 = "cqes",
        /// Commands under way at once in a queue.
        maxcmd: U16 = "maxcmd",
        /// Namespaces.
        nn: U32 = "nn",
        /// Optional I/O commands.
        oncs: U16 = "oncs",
        /// Fused commands.
        fuses: U16 = "fuses",
        /// Formatting.
        fna: u8 = "fna",
        /// Whether there is a volatile write cache.
        vwc: u8 = "vwc",
        /// Atomicity.
        reserved_526: [u8; 10] = "awun",
        /// Bits: 2, keyed data blocks; 20, offsets.
        sgls: U32 = "sgls",
        /// Most namespaces.
        mnan: U32 = "mnan",
        /// Reserved.
        reserved_544: [u8; 224] = "rsvd544",
        /// The subsystem's name.
        subnqn: [u8; 256] = "subnqn",
        /// Reserved.
        reserved_1024: [u8; 768] = "rsvd1024",
        /// Largest command capsule of an I/O queue, in 16 bytes.
        ioccsz: U32 = "ioccsz",
        /// Largest completion capsule, in 16 bytes.
        iorcsz: U32 = "iorcsz",
        /// Where data starts in a capsule, behind the command, in 16 bytes.
        icdoff: U16 = "icdoff",
        /// Attributes of fabrics.
        ctrattr: u8 = "ctrattr",
        /// Most SGL descriptors of a command.
        msdbd: u8 = "msdbd",
        /// Reserved, power states, vendor's.
        reserved_1804: [u8; 2292] = "rsvd1804",
    }

    /// A size of logical blocks.
    LbaFormat = "nvme_lbaf" {
        /// Metadata bytes of a block.
        metadata: U16 = "ms",
        /// Bytes of a block: two to this.
        log_size: u8 = "ds",
        /// Relative performance.
        performance: u8 = "rp",
    }

    /// What a namespace is.
    NamespaceData = "nvme_id_ns" {
        /// Logical blocks.
        size: U64 = "nsze",
        /// Blocks that can be in use.
        capacity: U64 = "ncap",
        /// Blocks in use.
        used: U64 = "nuse",
        /// Features.
        nsfeat: u8 = "nsfeat",
        /// Number of formats, less one.
        nlbaf: u8 = "nlbaf",
        /// The present format.
        flbas: u8 = "flbas",
        /// Metadata, protection.
        reserved_27: [u8; 3] = "mc",
        /// Shared with other controllers.
        nmic: u8 = "nmic",
        /// Reservations and more.
        reserved_31: [u8; 73] = "rescap",
        /// Globally unique number.
        nguid: [u8; 16] = "nguid",
        /// Unique number of 8 bytes.
        eui64: [u8; 8] = "eui64",
        /// Formats.
        formats: [LbaFormat; 64] = "lbaf",
        /// Vendor's.
        vendor: [u8; 3712] = "vs",
    }

    /// Head of a namespace's name; its bytes come behind it.
    NamespaceDescriptor = "nvme_ns_id_desc" {
        /// Kind of name: [`cns::NAME_UUID`].
        kind: u8 = "nidt",
        /// Its length.
        length: u8 = "nidl",
        /// Reserved.
        reserved: U16 = "reserved",
    }

    /// Log page "SMART / Health Information".
    SmartLog = "nvme_smart_log" {
        /// Warnings.
        critical_warning: u8 = "critical_warning",
        /// Kelvin.
        temperature: [u8; 2] = "temperature",
        /// Spare blocks in percent.
        available_spare: u8 = "avail_spare",
        /// Below that there is a warning.
        spare_threshold: u8 = "spare_thresh",
        /// Wear in percent.
        percentage_used: u8 = "percent_used",
        /// Reserved.
        reserved_6: [u8; 26] = "endu_grp_crit_warn_sumry",
        /// Thousands of 512 bytes read.
        units_read: [u8; 16] = "data_units_read",
        /// Thousands of 512 bytes written.
        units_written: [u8; 16] = "data_units_written",
        /// READs.
        reads: [u8; 16] = "host_reads",
        /// WRITEs.
        writes: [u8; 16] = "host_writes",
        /// Times, errors, temperatures.
        reserved_96: [u8; 416] = "ctrl_busy_time",
    }
}

constants! {
    /// What IDENTIFY is asked for.
    pub mod cns: u8 {
        /// A namespace.
        NAMESPACE = 0x00, "NVME_ID_CNS_NS";
        /// The controller.
        CONTROLLER = 0x01, "NVME_ID_CNS_CTRL";
        /// Numbers of active namespaces.
        ACTIVE_LIST = 0x02, "NVME_ID_CNS_NS_ACTIVE_LIST";
        /// Names of a namespace.
        DESCRIPTORS = 0x03, "NVME_ID_CNS_NS_DESC_LIST";
        /// Kind of a name: UUID.
        NAME_UUID = 3, "NVME_NIDT_UUID";
    }

    /// Bits of [`ControllerData`].
    pub mod controller: u32 {
        /// `cmic`: several controllers, of several hosts or of one.
        CMIC_SEVERAL_CONTROLLERS = 1 << 1, "NVME_CTRL_CMIC_MULTI_CTRL";
        /// `sgls`: data blocks with keys.
        SGLS_KEYED = 1 << 2, "-";
        /// `sgls`: offsets into the capsule.
        SGLS_OFFSET = 1 << 20, "-";
        /// `oncs`: WRITE ZEROES.
        ONCS_WRITE_ZEROES = 1 << 3, "NVME_CTRL_ONCS_WRITE_ZEROES";
        /// `vwc`: there is a volatile write cache.
        VWC_PRESENT = 1 << 0, "NVME_CTRL_VWC_PRESENT";
        /// `cntrltype`: with I/O queues.
        TYPE_IO = 1, "NVME_CTRL_IO";
        /// `cntrltype`: discovery.
        TYPE_DISCOVERY = 2, "NVME_CTRL_DISC";
    }

    /// Bits of [`NamespaceData`].
    pub mod namespace: u32 {
        /// `nmic`: several controllers may have it at once.
        NMIC_SHARED = 1 << 0, "NVME_NS_NMIC_SHARED";
    }
}
