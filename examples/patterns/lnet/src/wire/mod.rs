//! What nodes say to each other: o2iblnd's messages, and LNet's header in them.
//!
//! Each number names the file of Lustre that it is from, and the symbol there. No package has these headers, so tests
//! cannot compile them: sizes and offsets were compared once, by a C compiler, with those of `o2iblnd-idl.h` and
//! `lnet-idl.h` as of the commit of `tests::LAYOUTS`, which holds them.
//!
//! o2iblnd's fields are in the byte order of the sender, which the magic number shows (`kiblnd_unpack_msg`,
//! `lnet/klnds/o2iblnd/o2iblnd.c`); LNet's header is always little-endian (`lnet_hdr_to_nid4`,
//! `include/linux/lnet/lib-lnet.h`).

mod bytes;
mod error;
mod header;
mod message;
mod reject;
#[cfg(test)]
mod tests;

pub use bytes::ByteOrder;
pub use error::WireError;
pub use header::{Get, Handle, Header, LnetMessage, Put};
pub use message::{
    Body, ConnectionParameters, Fragment, IMMEDIATE_BYTES, MAGIC, MAX_FRAGMENTS, MESSAGE_BYTES, Message,
    RdmaDescriptor, VERSION_1, VERSION_2, checksum,
};
pub use reject::{Reject, RejectReason};
