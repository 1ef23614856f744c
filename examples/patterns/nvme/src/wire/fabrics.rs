//! Commands that only fabrics have: connect, properties and discovery. NVMe base specification, "Fabrics Command Set".

use zerocopy::little_endian::{U16, U32, U64};

use super::declare::{constants, wire};

/// The name of every discovery subsystem.
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

wire! {
    /// CONNECT: makes a queue of a connection. Its data is a [`ConnectData`].
    Connect = "nvmf_connect_command" {
        /// [`fabric::COMMAND`].
        opcode: u8 = "opcode",
        /// Bits 7 and 6: SGLs are used.
        flags: u8 = "resv1",
        /// The host's number of the command.
        command_id: U16 = "command_id",
        /// [`fabric::CONNECT`].
        fctype: u8 = "fctype",
        /// Reserved.
        reserved: [u8; 19] = "resv2",
        /// Where the data is: one SGL descriptor.
        data: [u8; 16] = "dptr",
        /// Format of the data: 0.
        recfmt: U16 = "recfmt",
        /// Queue: 0 is the admin queue.
        qid: U16 = "qid",
        /// Commands under way at once, less one.
        sqsize: U16 = "sqsize",
        /// Attributes.
        cattr: u8 = "cattr",
        /// Reserved.
        reserved_3: u8 = "resv3",
        /// Keep-alive timeout in milliseconds; 0 is none.
        kato: U32 = "kato",
        /// Reserved.
        reserved_4: [u8; 12] = "resv4",
    }

    /// Data of a [`Connect`].
    ConnectData = "nvmf_connect_data" {
        /// The host's own number.
        host_id: [u8; 16] = "hostid",
        /// Controller: 0xffff asks for a new one.
        cntlid: U16 = "cntlid",
        /// Reserved.
        reserved: [u8; 238] = "resv4",
        /// The subsystem's name.
        subsystem: [u8; 256] = "subsysnqn",
        /// The host's name.
        host: [u8; 256] = "hostnqn",
        /// Reserved.
        reserved_5: [u8; 256] = "resv5",
    }

    /// PROPERTY SET.
    PropertySet = "nvmf_property_set_command" {
        /// [`fabric::COMMAND`].
        opcode: u8 = "opcode",
        /// Bits 7 and 6: SGLs are used.
        flags: u8 = "resv1",
        /// The host's number of the command.
        command_id: U16 = "command_id",
        /// [`fabric::PROPERTY_SET`].
        fctype: u8 = "fctype",
        /// Reserved.
        reserved: [u8; 35] = "resv2",
        /// Size: 0 is four bytes, 1 eight.
        attrib: u8 = "attrib",
        /// Reserved.
        reserved_3: [u8; 3] = "resv3",
        /// [`property`].
        offset: U32 = "offset",
        /// The new value.
        value: U64 = "value",
        /// Reserved.
        reserved_4: [u8; 8] = "resv4",
    }

    /// PROPERTY GET. The completion's result is the value.
    PropertyGet = "nvmf_property_get_command" {
        /// [`fabric::COMMAND`].
        opcode: u8 = "opcode",
        /// Bits 7 and 6: SGLs are used.
        flags: u8 = "resv1",
        /// The host's number of the command.
        command_id: U16 = "command_id",
        /// [`fabric::PROPERTY_GET`].
        fctype: u8 = "fctype",
        /// Reserved.
        reserved: [u8; 35] = "resv2",
        /// Size: 0 is four bytes, 1 eight.
        attrib: u8 = "attrib",
        /// Reserved.
        reserved_3: [u8; 3] = "resv3",
        /// [`property`].
        offset: U32 = "offset",
        /// Reserved.
        reserved_4: [u8; 16] = "resv4",
    }

    /// Head of the discovery log page.
    DiscoveryHeader = "nvmf_disc_rsp_page_hdr" {
        /// Changes with the page.
        generation: U64 = "genctr",
        /// Number of entries.
        records: U64 = "numrec",
        /// Format: 0.
        recfmt: U16 = "recfmt",
        /// Reserved.
        reserved: [u8; 1006] = "resv14",
    }

    /// Entry of the discovery log page.
    DiscoveryEntry = "nvmf_disc_rsp_page_entry" {
        /// Transport: [`fabric::RDMA`].
        trtype: u8 = "trtype",
        /// Address family: [`fabric::IPV4`], [`fabric::IPV6`].
        adrfam: u8 = "adrfam",
        /// [`fabric::NVME_SUBSYSTEM`].
        subtype: u8 = "subtype",
        /// Whether the channel must be secure.
        treq: u8 = "treq",
        /// Port.
        portid: U16 = "portid",
        /// Controller: 0xffff is any.
        cntlid: U16 = "cntlid",
        /// Entries of the admin queue.
        asqsz: U16 = "asqsz",
        /// Flags.
        eflags: U16 = "eflags",
        /// Reserved.
        reserved_10: [u8; 20] = "resv10",
        /// The port's number as text.
        trsvcid: [u8; 32] = "trsvcid",
        /// Reserved.
        reserved_64: [u8; 192] = "resv64",
        /// The subsystem's name.
        subnqn: [u8; 256] = "subnqn",
        /// The address as text.
        traddr: [u8; 256] = "traddr",
        /// RDMA: kind of queue pair.
        qptype: u8 = "tsas.rdma.qptype",
        /// RDMA: provider.
        prtype: u8 = "tsas.rdma.prtype",
        /// RDMA: connection manager.
        cms: u8 = "tsas.rdma.cms",
        /// Reserved.
        reserved_rdma: [u8; 253] = "tsas.common[3]",
    }
}

constants! {
    /// Numbers of fabrics.
    pub mod fabric: u8 {
        /// The opcode of all commands of fabrics.
        COMMAND = 0x7f, "nvme_fabrics_command";
        /// PROPERTY SET.
        PROPERTY_SET = 0x00, "nvme_fabrics_type_property_set";
        /// CONNECT.
        CONNECT = 0x01, "nvme_fabrics_type_connect";
        /// PROPERTY GET.
        PROPERTY_GET = 0x04, "nvme_fabrics_type_property_get";
        /// Transport: RDMA.
        RDMA = 1, "NVMF_TRTYPE_RDMA";
        /// Address family: IPv4.
        IPV4 = 1, "NVMF_ADDR_FAMILY_IP4";
        /// Address family: IPv6.
        IPV6 = 2, "NVMF_ADDR_FAMILY_IP6";
        /// A subsystem with namespaces.
        NVME_SUBSYSTEM = 2, "NVME_NQN_NVME";
        /// Queue pairs are connected.
        CONNECTED = 1, "NVMF_RDMA_QPTYPE_CONNECTED";
        /// Provider: RoCE v2.
        ROCE_V2 = 4, "NVMF_RDMA_PRTYPE_ROCEV2";
        /// Connection manager: rdma_cm.
        RDMA_CM = 1, "NVMF_RDMA_CMS_RDMA_CM";
    }

    /// Registers of a controller, which fabrics call properties.
    pub mod property: u32 {
        /// Capabilities, 8 bytes.
        CAP = 0x00, "NVME_REG_CAP";
        /// Version.
        VS = 0x08, "NVME_REG_VS";
        /// Configuration.
        CC = 0x14, "NVME_REG_CC";
        /// Status.
        CSTS = 0x1c, "NVME_REG_CSTS";
        /// CC: the controller is enabled.
        CC_ENABLE = 1 << 0, "NVME_CC_ENABLE";
        /// CC: entries of submission queues have 64 bytes.
        CC_IOSQES = 6 << 16, "NVME_CC_IOSQES";
        /// CC: entries of completion queues have 16 bytes.
        CC_IOCQES = 4 << 20, "NVME_CC_IOCQES";
        /// CC: the mask of shutdown requests.
        CC_SHN_MASK = 3 << 14, "NVME_CC_SHN_MASK";
        /// CC: shut down.
        CC_SHN_NORMAL = 1 << 14, "NVME_CC_SHN_NORMAL";
        /// CSTS: ready.
        CSTS_READY = 1 << 0, "NVME_CSTS_RDY";
        /// CSTS: failed.
        CSTS_FAILED = 1 << 1, "NVME_CSTS_CFS";
        /// CSTS: the mask of the shutdown's state.
        CSTS_SHUTDOWN_MASK = 3 << 2, "NVME_CSTS_SHST_MASK";
        /// CSTS: shut down.
        CSTS_SHUTDOWN_DONE = 2 << 2, "NVME_CSTS_SHST_CMPLT";
    }
}
