//! What NVMe over RDMA has in its messages: capsules, connect data, identify pages and the connection manager's private
//! data. All numbers are little endian. The C compiler checks each structure on the kernel's headers (`nvme.h`,
//! `nvme-rdma.h`).

mod command;
mod declare;
mod fabrics;
mod identify;
mod private;
mod text;

pub use command::{
    COMMAND, COMPLETION, Command, Completion, Features, Identify, KeyedSgl, LogPage, OffsetSgl, Opcode, ReadWrite,
    admin, control, feature, flags, io, log, sgl, sgl_type,
};
pub use declare::{Layout, Member};
pub use fabrics::{
    Connect, ConnectData, DISCOVERY, DiscoveryEntry, DiscoveryHeader, PropertyGet, PropertySet, fabric, property,
};
pub use identify::{
    ControllerData, LbaFormat, NamespaceData, NamespaceDescriptor, SmartLog, cns, controller as identify_bits,
    namespace as namespace_bits,
};
pub use private::{CmReject, CmReply, CmRequest, CmStatus, port, reason};
pub use text::{put_ascii, put_text, text};

/// All structures.
pub const LAYOUTS: &[Layout] = &[
    Command::LAYOUT,
    ReadWrite::LAYOUT,
    Identify::LAYOUT,
    Features::LAYOUT,
    LogPage::LAYOUT,
    Completion::LAYOUT,
    KeyedSgl::LAYOUT,
    OffsetSgl::LAYOUT,
    Connect::LAYOUT,
    ConnectData::LAYOUT,
    PropertySet::LAYOUT,
    PropertyGet::LAYOUT,
    DiscoveryHeader::LAYOUT,
    DiscoveryEntry::LAYOUT,
    ControllerData::LAYOUT,
    NamespaceData::LAYOUT,
    NamespaceDescriptor::LAYOUT,
    LbaFormat::LAYOUT,
    SmartLog::LAYOUT,
    CmRequest::LAYOUT,
    CmReply::LAYOUT,
    CmReject::LAYOUT,
];

/// Numbers with a name in the kernel's headers, for their judge: name in C, or "-" where it has none, and number.
pub const CONSTANTS: &[&[(&str, u64)]] =
    &[command::CONSTANTS, fabrics::CONSTANTS, identify::CONSTANTS, private::CONSTANTS, crate::status::CONSTANTS];
