//! What is wrong with what came.

/// What was received is no message of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Fewer bytes than the message says it has, or than its type needs.
    #[error("{given} bytes of a message of {wanted}")]
    Short {
        /// Bytes that there are.
        given: usize,
        /// Bytes that there should be.
        wanted: usize,
    },
    /// Not o2iblnd's magic number, in neither byte order.
    #[error("magic number {0:#x}, which is not o2iblnd's")]
    Magic(u32),
    /// Neither version 0x11 nor 0x12.
    #[error("version {0:#x}: only 0x11 and 0x12 are known")]
    Version(u16),
    /// No type of message.
    #[error("message of type {0:#x}, which does not exist")]
    Type(u8),
    /// No type of LNet's messages that is sent over o2iblnd.
    #[error("LNet message of type {0}, which does not exist here")]
    LnetType(u32),
    /// The checksum is another.
    #[error("checksum {given:#x}, but {computed:#x} of what came")]
    Checksum {
        /// The message's.
        given: u32,
        /// That of its bytes.
        computed: u32,
    },
    /// A number of fragments that no descriptor may have.
    #[error("a descriptor of {0} fragments: 1 to 257 are allowed")]
    Fragments(u32),
    /// From the address that stands for any.
    #[error("a message from no node")]
    NoSource,
}
