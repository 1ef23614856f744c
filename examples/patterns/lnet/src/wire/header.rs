//! LNet's header: `struct _lnet_hdr_nid4` of `include/uapi/linux/lnet/lnet-idl.h`, 72 bytes.

use super::bytes::{ByteOrder, Reader, Writer};
use super::error::WireError;
use crate::nid::Nid;

/// `enum lnet_msg_type` of `lnet-idl.h`.
mod kind {
    pub(super) const ACK: u32 = 0;
    pub(super) const PUT: u32 = 1;
    pub(super) const GET: u32 = 2;
    pub(super) const REPLY: u32 = 3;
}

/// `LNET_PID_LUSTRE` of `include/uapi/linux/lnet/lnet-types.h`.
const PID_LUSTRE: u32 = 12345;

/// Names something of the node that made it: `struct lnet_handle_wire`. Nobody else looks into it, so its bytes have no
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The node's incarnation.
    pub interface: [u8; 8],
    /// The thing.
    pub object: [u8; 8],
}

impl Handle {
    /// `LNET_WIRE_HANDLE_COOKIE_NONE` of `lnet-types.h`, twice: no acknowledgement is asked for.
    pub const NONE: Handle = Handle { interface: [0xff; 8], object: [0xff; 8] };
}

/// What a PUT is for: `struct lnet_put`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put {
    /// What an acknowledgement names; [`Handle::NONE`] where none is asked for.
    pub ack: Handle,
    /// Match bits.
    pub match_bits: u64,
    /// 64 bits for the program there.
    pub hdr_data: u64,
    /// Portal.
    pub portal: u32,
    /// Offset in the memory that matches.
    pub offset: u32,
}

/// What a GET is for: `struct lnet_get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Get {
    /// What the reply names.
    pub reply: Handle,
    /// Match bits.
    pub match_bits: u64,
    /// Portal.
    pub portal: u32,
    /// Offset in the memory that matches.
    pub offset: u32,
    /// Bytes that are wanted.
    pub sink_length: u32,
}

/// A message of LNet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LnetMessage {
    /// A PUT has arrived: `struct lnet_ack`.
    Ack {
        /// What the PUT named.
        handle: Handle,
        /// Its match bits.
        match_bits: u64,
        /// Bytes that were taken.
        length: u32,
    },
    /// Data.
    Put(Put),
    /// A request for data.
    Get(Get),
    /// Data that was requested: `struct lnet_reply`.
    Reply {
        /// What the GET named.
        handle: Handle,
    },
}

/// LNet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Where to.
    pub destination: Nid,
    /// Where from.
    pub source: Nid,
    /// Process at the destination.
    pub destination_pid: u32,
    /// Process at the source.
    pub source_pid: u32,
    /// Bytes of data.
    pub payload_length: u32,
    /// What it is.
    pub message: LnetMessage,
}

impl Header {
    /// Bytes of a header.
    pub const BYTES: usize = 72;

    /// A header between Lustre's processes.
    pub fn new(source: Nid, destination: Nid, payload_length: u32, message: LnetMessage) -> Self {
        let (destination_pid, source_pid) = (PID_LUSTRE, PID_LUSTRE);
        Header { destination, source, destination_pid, source_pid, payload_length, message }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`WireError::LnetType`].
    pub fn decode(bytes: &[u8; Header::BYTES]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes, ByteOrder::Little);
        let (destination, source) = (Nid(reader.u64()?), Nid(reader.u64()?));
        let (destination_pid, source_pid) = (reader.u32()?, reader.u32()?);
        let (kind, payload_length) = (reader.u32()?, reader.u32()?);
        let message = match kind {
            kind::ACK => {
                LnetMessage::Ack { handle: handle(&mut reader)?, match_bits: reader.u64()?, length: reader.u32()? }
            }
            kind::PUT => LnetMessage::Put(Put {
                ack: handle(&mut reader)?,
                match_bits: reader.u64()?,
                hdr_data: reader.u64()?,
                portal: reader.u32()?,
                offset: reader.u32()?,
            }),
            kind::GET => LnetMessage::Get(Get {
                reply: handle(&mut reader)?,
                match_bits: reader.u64()?,
                portal: reader.u32()?,
                offset: reader.u32()?,
                sink_length: reader.u32()?,
            }),
            kind::REPLY => LnetMessage::Reply { handle: handle(&mut reader)? },
            other => return Err(WireError::LnetType(other)),
        };
        Ok(Header { destination, source, destination_pid, source_pid, payload_length, message })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; Header::BYTES] {
        let mut bytes = [0; Header::BYTES];
        let mut writer = Writer::new(&mut bytes, ByteOrder::Little);
        writer.u64(self.destination.0);
        writer.u64(self.source.0);
        writer.u32(self.destination_pid);
        writer.u32(self.source_pid);
        let (number, named) = match &self.message {
            LnetMessage::Ack { handle, .. } => (kind::ACK, handle),
            LnetMessage::Put(put) => (kind::PUT, &put.ack),
            LnetMessage::Get(get) => (kind::GET, &get.reply),
            LnetMessage::Reply { handle } => (kind::REPLY, handle),
        };
        writer.u32(number);
        writer.u32(self.payload_length);
        writer.bytes(&named.interface);
        writer.bytes(&named.object);
        match &self.message {
            LnetMessage::Ack { match_bits, length, .. } => {
                writer.u64(*match_bits);
                writer.u32(*length);
            }
            LnetMessage::Put(put) => {
                writer.u64(put.match_bits);
                writer.u64(put.hdr_data);
                writer.u32(put.portal);
                writer.u32(put.offset);
            }
            LnetMessage::Get(get) => {
                writer.u64(get.match_bits);
                writer.u32(get.portal);
                writer.u32(get.offset);
                writer.u32(get.sink_length);
            }
            LnetMessage::Reply { .. } => {}
        }
        bytes
    }
}

fn handle(reader: &mut Reader<'_>) -> Result<Handle, WireError> {
    Ok(Handle { interface: reader.array()?, object: reader.array()? })
}
