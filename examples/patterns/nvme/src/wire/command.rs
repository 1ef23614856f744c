//! Commands and completions. NVMe base specification, "Commands" and "Queues"; NVM command set specification.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::declare::{constants, wire};

/// Bytes of a command in a capsule.
pub const COMMAND: usize = size_of::<Command>();
/// Bytes of a completion.
pub const COMPLETION: usize = size_of::<Completion>();

wire! {
    /// A command, with fields that all have.
    Command = "nvme_common_command" {
        /// What to do.
        opcode: u8 = "opcode",
        /// Bits 7 and 6: SGLs are used.
        flags: u8 = "flags",
        /// The host's number of the command.
        command_id: U16 = "command_id",
        /// Namespace.
        nsid: U32 = "nsid",
        /// Words 2 and 3.
        cdw2: [U32; 2] = "cdw2",
        /// Metadata, not used here.
        metadata: U64 = "metadata",
        /// Where the data is: one SGL descriptor.
        data: [u8; 16] = "dptr",
        /// Word 10.
        cdw10: U32 = "cdw10",
        /// Word 11.
        cdw11: U32 = "cdw11",
        /// Word 12.
        cdw12: U32 = "cdw12",
        /// Word 13.
        cdw13: U32 = "cdw13",
        /// Word 14.
        cdw14: U32 = "cdw14",
        /// Word 15.
        cdw15: U32 = "cdw15",
    }

    /// READ, WRITE and WRITE ZEROES.
    ReadWrite = "nvme_rw_command" {
        /// What to do.
        opcode: u8 = "opcode",
        /// Bits 7 and 6: SGLs are used.
        flags: u8 = "flags",
        /// The host's number of the command.
        command_id: U16 = "command_id",
        /// Namespace.
        nsid: U32 = "nsid",
        /// Words 2 and 3.
        cdw2: U32 = "cdw2",
        /// See `cdw2`.
        cdw3: U32 = "cdw3",
        /// Metadata, not used here.
        metadata: U64 = "metadata",
        /// Where the data is: one SGL descriptor.
        data: [u8; 16] = "dptr",
        /// First logical block.
        slba: U64 = "slba",
        /// Logical blocks, less one.
        length: U16 = "length",
        /// Force unit access and others.
        control: U16 = "control",
        /// Hints.
        dsmgmt: U32 = "dsmgmt",
        /// Protection information, not used here.
        reftag: U32 = "reftag",
        /// See `reftag`.
        lbat: U16 = "lbat",
        /// See `reftag`.
        lbatm: U16 = "lbatm",
    }

    /// IDENTIFY.
    Identify = "nvme_identify" {
        /// What to do.
        opcode: u8 = "opcode",
        /// Bits 7 and 6: SGLs are used.
        flags: u8 = "flags",
        /// The host's number of the command.
        command_id: U16 = "command_id",
        /// Namespace.
        nsid: U32 = "nsid",
        /// Reserved.
        reserved: [u8; 16] = "rsvd2",
        /// Where the data is: one SGL descriptor.
        data: [u8; 16] = "dptr",
        /// Which page: [`cns`](super::cns).
        cns: u8 = "cns",
        /// Reserved.
        reserved_3: u8 = "rsvd3",
        /// Controller.
        controller: U16 = "ctrlid",
        /// Reserved.
        reserved_11: [u8; 3] = "rsvd11",
        /// Command set.
        csi: u8 = "csi",
        /// Reserved.
        reserved_12: [u8; 16] = "rsvd12",
    }

    /// SET FEATURES and GET FEATURES.
    Features = "nvme_features" {
        /// What to do.
        opcode: u8 = "opcode",
        /// Bits 7 and 6: SGLs are used.
        flags: u8 = "flags",
        /// The host's number of the command.
        command_id: U16 = "command_id",
        /// Namespace.
        nsid: U32 = "nsid",
        /// Reserved.
        reserved: [u8; 16] = "rsvd2",
        /// Where the data is: one SGL descriptor.
        data: [u8; 16] = "dptr",
        /// Feature: [`feature`].
        fid: U32 = "fid",
        /// The feature's value.
        dword11: U32 = "dword11",
        /// More of it.
        dword12: U32 = "dword12",
        /// More of it.
        dword13: U32 = "dword13",
        /// More of it.
        dword14: U32 = "dword14",
        /// More of it.
        dword15: U32 = "dword15",
    }

    /// GET LOG PAGE.
    LogPage = "nvme_get_log_page_command" {
        /// What to do.
        opcode: u8 = "opcode",
        /// Bits 7 and 6: SGLs are used.
        flags: u8 = "flags",
        /// The host's number of the command.
        command_id: U16 = "command_id",
        /// Namespace.
        nsid: U32 = "nsid",
        /// Reserved.
        reserved: [u8; 16] = "rsvd2",
        /// Where the data is: one SGL descriptor.
        data: [u8; 16] = "dptr",
        /// Which page: [`log`].
        lid: u8 = "lid",
        /// The page's own.
        lsp: u8 = "lsp",
        /// Words to return, less one: the low half.
        numdl: U16 = "numdl",
        /// The high half.
        numdu: U16 = "numdu",
        /// Reserved.
        reserved_11: U16 = "rsvd11",
        /// First byte to return.
        offset: U64 = "lpo",
        /// Reserved.
        reserved_14: [u8; 3] = "rsvd14",
        /// Command set.
        csi: u8 = "csi",
        /// Reserved.
        reserved_15: U32 = "rsvd15",
    }

    /// The answer to a command.
    Completion = "nvme_completion" {
        /// What the command returns.
        result: U64 = "result",
        /// How far the target has taken commands.
        sq_head: U16 = "sq_head",
        /// The queue.
        sq_id: U16 = "sq_id",
        /// The host's number of the command.
        command_id: U16 = "command_id",
        /// [`Status`](crate::Status), from bit 1 on.
        status: U16 = "status",
    }

    /// SGL descriptor of memory of the host that a key of the host's opens.
    KeyedSgl = "nvme_keyed_sgl_desc" {
        /// First byte.
        address: U64 = "addr",
        /// Bytes: 24 bits.
        length: [u8; 3] = "length",
        /// Remote key.
        key: U32 = "key",
        /// [`sgl_type`].
        kind: u8 = "type",
    }

    /// SGL descriptor of data in the capsule.
    OffsetSgl = "nvme_sgl_desc" {
        /// From the end of the command, or of what the controller says by ICDOFF.
        offset: U64 = "addr",
        /// Bytes.
        length: U32 = "length",
        /// Reserved.
        reserved: [u8; 3] = "rsvd",
        /// [`sgl_type`].
        kind: u8 = "type",
    }
}

constants! {
    /// Opcodes of I/O queues.
    pub mod io: u8 {
        /// FLUSH.
        FLUSH = 0x00, "nvme_cmd_flush";
        /// WRITE.
        WRITE = 0x01, "nvme_cmd_write";
        /// READ.
        READ = 0x02, "nvme_cmd_read";
        /// WRITE ZEROES.
        WRITE_ZEROES = 0x08, "nvme_cmd_write_zeroes";
    }

    /// Opcodes of the admin queue.
    pub mod admin: u8 {
        /// GET LOG PAGE.
        GET_LOG_PAGE = 0x02, "nvme_admin_get_log_page";
        /// IDENTIFY.
        IDENTIFY = 0x06, "nvme_admin_identify";
        /// ABORT.
        ABORT = 0x08, "nvme_admin_abort_cmd";
        /// SET FEATURES.
        SET_FEATURES = 0x09, "nvme_admin_set_features";
        /// GET FEATURES.
        GET_FEATURES = 0x0a, "nvme_admin_get_features";
        /// ASYNCHRONOUS EVENT REQUEST.
        ASYNC_EVENT = 0x0c, "nvme_admin_async_event";
        /// KEEP ALIVE.
        KEEP_ALIVE = 0x18, "nvme_admin_keep_alive";
    }

    /// Features.
    pub mod feature: u32 {
        /// Volatile write cache.
        VOLATILE_WRITE_CACHE = 0x06, "NVME_FEAT_VOLATILE_WC";
        /// Number of I/O queues.
        NUMBER_OF_QUEUES = 0x07, "NVME_FEAT_NUM_QUEUES";
        /// Which asynchronous events there are.
        ASYNC_EVENTS = 0x0b, "NVME_FEAT_ASYNC_EVENT";
        /// Keep-alive timeout.
        KEEP_ALIVE = 0x0f, "NVME_FEAT_KATO";
    }

    /// Log pages.
    pub mod log: u8 {
        /// Errors.
        ERROR = 0x01, "NVME_LOG_ERROR";
        /// SMART: health and counters.
        SMART = 0x02, "NVME_LOG_SMART";
        /// Firmware slots.
        FIRMWARE_SLOT = 0x03, "NVME_LOG_FW_SLOT";
        /// Subsystems that a discovery controller knows.
        DISCOVERY = 0x70, "NVME_LOG_DISC";
    }

    /// Bits of [`Command::flags`].
    pub mod flags: u8 {
        /// The data pointer is an SGL descriptor.
        SGL = 0x40, "NVME_CMD_SGL_METABUF";
    }

    /// Bits of [`ReadWrite::control`].
    pub mod control: u16 {
        /// Force unit access: the data is durable before the answer.
        FUA = 1 << 14, "NVME_RW_FUA";
    }

    /// Fields of an SGL descriptor's type.
    pub mod sgl: u8 {
        /// Data block.
        DATA = 0x00, "NVME_SGL_FMT_DATA_DESC";
        /// Data block that a key opens.
        KEYED = 0x04, "NVME_KEY_SGL_FMT_DATA_DESC";
        /// An address.
        ADDRESS = 0x00, "NVME_SGL_FMT_ADDRESS";
        /// An offset into the capsule.
        OFFSET = 0x01, "NVME_SGL_FMT_OFFSET";
        /// An address whose key the target is to invalidate with its answer.
        INVALIDATE = 0x0f, "NVME_SGL_FMT_INVALIDATE";
    }
}

/// Types of SGL descriptors: the descriptor's in the high half, its subtype in the low one.
pub mod sgl_type {
    use super::sgl;

    /// Data in the capsule.
    pub const IN_CAPSULE: u8 = sgl::DATA << 4 | sgl::OFFSET;
    /// Memory of the host, opened by a key.
    pub const KEYED: u8 = sgl::KEYED << 4 | sgl::ADDRESS;
    /// As [`KEYED`]; the target is to invalidate the key with its answer.
    pub const KEYED_INVALIDATE: u8 = sgl::KEYED << 4 | sgl::INVALIDATE;
}

/// What an I/O command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// Makes all that was written durable.
    Flush,
    /// Writes blocks.
    Write,
    /// Reads blocks.
    Read,
    /// Writes zeros, without data.
    WriteZeroes,
}

impl Opcode {
    /// The opcode.
    pub fn number(self) -> u8 {
        match self {
            Opcode::Flush => io::FLUSH,
            Opcode::Write => io::WRITE,
            Opcode::Read => io::READ,
            Opcode::WriteZeroes => io::WRITE_ZEROES,
        }
    }

    /// The command with this opcode; `None` for one that is not here.
    pub fn from_number(opcode: u8) -> Option<Self> {
        [Opcode::Flush, Opcode::Write, Opcode::Read, Opcode::WriteZeroes]
            .into_iter()
            .find(|this| this.number() == opcode)
    }
}

impl Command {
    /// A command with this opcode, and an SGL descriptor, as all have over fabrics.
    pub fn new(opcode: u8) -> Self {
        Command { opcode, flags: flags::SGL, ..Command::default() }
    }

    /// The same bytes, read as another form of command.
    pub fn form<T: FromBytes>(&self) -> T {
        const { assert!(size_of::<T>() == COMMAND) };
        // A form has the size of a command, so this reads all of it.
        T::read_from_bytes(self.as_bytes()).unwrap_or_else(|_| T::new_zeroed())
    }

    /// A command from one of its forms.
    pub fn of<T: IntoBytes + zerocopy::Immutable>(form: &T) -> Self {
        const { assert!(size_of::<T>() == COMMAND) };
        Command::read_from_bytes(form.as_bytes()).unwrap_or_default()
    }

    /// Without data.
    #[inline]
    pub fn without_data(self) -> Self {
        self.data(KeyedSgl { kind: sgl_type::KEYED, ..KeyedSgl::default() })
    }

    /// With the data that `sgl` describes.
    #[inline]
    pub fn data(self, sgl: impl Into<[u8; 16]>) -> Self {
        Command { data: sgl.into(), ..self }
    }
}

impl From<KeyedSgl> for [u8; 16] {
    #[inline]
    fn from(sgl: KeyedSgl) -> Self {
        zerocopy::transmute!(sgl)
    }
}

impl From<OffsetSgl> for [u8; 16] {
    #[inline]
    fn from(sgl: OffsetSgl) -> Self {
        zerocopy::transmute!(sgl)
    }
}

impl ReadWrite {
    /// A command on namespace `nsid`, and an SGL descriptor.
    #[inline]
    pub fn new(opcode: Opcode, nsid: u32) -> Self {
        ReadWrite { opcode: opcode.number(), flags: flags::SGL, nsid: nsid.into(), ..ReadWrite::default() }
    }
}

impl From<ReadWrite> for Command {
    #[inline]
    fn from(form: ReadWrite) -> Self {
        zerocopy::transmute!(form)
    }
}

/// Bits of a keyed descriptor's length, which is followed by the key.
const LENGTH_BITS: u32 = 24;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

impl KeyedSgl {
    /// `length` bytes at `address`, opened by `key`, of one of the types of [`sgl_type`].
    #[inline]
    pub fn new(address: u64, length: u32, key: u32, kind: u8) -> Self {
        let second = u64::from(length) & LENGTH_MASK | u64::from(key) << LENGTH_BITS | u64::from(kind) << 56;
        zerocopy::transmute!([address.to_le(), second.to_le()])
    }

    /// Bytes.
    pub fn len(&self) -> u32 {
        let [a, b, c] = self.length;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_command_has_its_size() {
        for layout in [Command::LAYOUT, ReadWrite::LAYOUT, Identify::LAYOUT, Features::LAYOUT, LogPage::LAYOUT] {
            assert_eq!(layout.size, 64, "{}", layout.c_name);
        }
        let rw = ReadWrite { opcode: io::READ, slba: 7.into(), ..ReadWrite::default() };
        assert_eq!(Command::of(&rw).form::<ReadWrite>(), rw);
        assert_eq!(Command::of(&rw).cdw10.get(), 7);
    }

    #[test]
    fn a_keyed_descriptor_has_a_length_of_24_bits() {
        let sgl = KeyedSgl::new(0x1122, 0xabcdef, 0x99, sgl_type::KEYED_INVALIDATE);
        assert_eq!((sgl.len(), sgl.key.get(), sgl.kind), (0xabcdef, 0x99, 0x4f));
        assert_eq!(sgl.as_bytes()[8..12], [0xef, 0xcd, 0xab, 0x99]);
    }
}
