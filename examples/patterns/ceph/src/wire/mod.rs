//! What the two ends exchange, as bytes. Each format names the file of Ceph (18.2) that it is from.

mod address;
mod codec;
mod control;
mod crc;
mod data;
mod error;
mod exchange;
mod frame;
mod osd;

pub use address::{EntityAddress, EntityKind, EntityName, addresses};
pub use codec::{Reader, Truncated, Writer};
pub use control::{
    AuthDone, AuthRequest, BANNER_BYTES, Banner, ClientIdent, FEATURES, Hello, Reconnect, ServerIdent, Stamp, missing,
    required,
};
pub use data::Data;
pub use error::ControlError;
pub use exchange::{BadLine, Line};
pub use frame::{Frame, FrameError, FrameReader, Limits, SEGMENTS, Tag, encode_frame, encode_message};
pub use osd::{MessageHeader, OSD_OP, OSD_OP_REPLY, OsdOp, OsdReply};
