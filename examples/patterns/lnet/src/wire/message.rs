//! o2iblnd's messages: `struct kib_msg` of `lnet/klnds/o2iblnd/o2iblnd-idl.h`.

use super::bytes::{ByteOrder, Reader, Writer};
use super::error::WireError;
use super::header::Header;
use crate::nid::Nid;

/// `LNET_PROTO_IB_MAGIC` of `include/uapi/linux/lnet/lnet-idl.h`.
pub const MAGIC: u32 = 0x0be9_1b91;
/// `IBLND_MSG_VERSION_1`.
pub const VERSION_1: u16 = 0x11;
/// `IBLND_MSG_VERSION_2`.
pub const VERSION_2: u16 = 0x12;
/// `IBLND_MSG_SIZE` of `o2iblnd.h`: bytes of the longest message.
pub const MESSAGE_BYTES: usize = 4096;
/// `IBLND_MAX_RDMA_FRAGS` of `o2iblnd.h`: `LNET_MAX_IOV` (`include/linux/lnet/lib-types.h`) and one more.
pub const MAX_FRAGMENTS: u16 = 257;
/// `offsetof(struct kib_msg, ibm_u)`.
pub(super) const HEAD: usize = 48;
/// Where the length of a message is in it: `ibm_nob`.
const NOB_AT: usize = 8;
/// Where its checksum is: `ibm_cksum`.
const CHECKSUM_AT: usize = 12;
/// Bytes of data that an IMMEDIATE message has room for.
pub const IMMEDIATE_BYTES: usize = MESSAGE_BYTES - HEAD - Header::BYTES;

/// `IBLND_MSG_*`.
mod kind {
    pub(super) const CONNREQ: u8 = 0xc0;
    pub(super) const CONNACK: u8 = 0xc1;
    pub(super) const NOOP: u8 = 0xd0;
    pub(super) const IMMEDIATE: u8 = 0xd1;
    pub(super) const PUT_REQ: u8 = 0xd2;
    pub(super) const PUT_NAK: u8 = 0xd3;
    pub(super) const PUT_ACK: u8 = 0xd4;
    pub(super) const PUT_DONE: u8 = 0xd5;
    pub(super) const GET_REQ: u8 = 0xd6;
    pub(super) const GET_DONE: u8 = 0xd7;
}

/// `struct kib_connparams`: what a connection is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// Messages under way in each direction, without those that answer.
    pub queue_depth: u16,
    /// Fragments of a transfer at most.
    pub max_fragments: u16,
    /// Bytes of a message at most.
    pub max_message_size: u32,
}

/// `struct kib_rdma_frag`: bytes of remote memory that lie behind each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Bytes.
    pub len: u32,
    /// Address of the first, by the descriptor's key.
    pub addr: u64,
}

/// `struct kib_rdma_desc`: memory for RDMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaDescriptor {
    /// Its key.
    pub key: u32,
    /// Its parts.
    pub fragments: Vec<Fragment>,
}

impl RdmaDescriptor {
    /// Bytes of all fragments.
    pub fn len(&self) -> u64 {
        self.fragments.iter().map(|fragment| u64::from(fragment.len)).sum()
    }

    /// Whether they are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body<'a> {
    /// A connection is requested.
    ConnReq(ConnectionParameters),
    /// A connection is accepted.
    ConnAck(ConnectionParameters),
    /// Nothing but credits.
    Noop,
    /// A message of LNet with its data.
    Immediate {
        /// LNet's header.
        header: Header,
        /// The data.
        payload: &'a [u8],
    },
    /// The sender has data to write.
    PutReq {
        /// LNet's header.
        header: Header,
        /// What the answer names.
        cookie: u64,
    },
    /// There is no memory for a PUT_REQ: the end of it.
    PutNak {
        /// The PUT_REQ's.
        cookie: u64,
        /// An error number, negative, or 0: the data is not wanted.
        status: i32,
    },
    /// Where the data of a PUT_REQ goes.
    PutAck {
        /// The PUT_REQ's.
        source_cookie: u64,
        /// What PUT_DONE names.
        sink_cookie: u64,
        /// The memory.
        descriptor: RdmaDescriptor,
    },
    /// The data of a PUT has been written.
    PutDone {
        /// The PUT_ACK's.
        cookie: u64,
        /// Bytes, or an error number, negative.
        status: i32,
    },
    /// The sender wants data written to its memory.
    GetReq {
        /// LNet's header.
        header: Header,
        /// What GET_DONE names.
        cookie: u64,
        /// The memory.
        descriptor: RdmaDescriptor,
    },
    /// The data of a GET has been written.
    GetDone {
        /// The GET_REQ's.
        cookie: u64,
        /// Bytes, or an error number, negative.
        status: i32,
    },
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// [`VERSION_1`] or [`VERSION_2`].
    pub version: u16,
    /// Receives that were posted again: the receiver of this may send as many more.
    pub credits: u8,
    /// Where from.
    pub source: Nid,
    /// Incarnation of the source.
    pub source_stamp: u64,
    /// Where to.
    pub destination: Nid,
    /// Incarnation of the destination; 0 where it is not known yet.
    pub destination_stamp: u64,
    /// What it says.
    pub body: Body<'a>,
}

impl<'a> Message<'a> {
    /// Reads a message of `bytes`, of which there may be more than it has. Returns its byte order, too.
    ///
    /// # Errors
    /// [`WireError`], for whatever `kiblnd_unpack_msg` (`o2iblnd.c`) refuses.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, ByteOrder), WireError> {
        let order = order_of(bytes)?;
        let mut reader = Reader::new(bytes, order);
        reader.u32()?;
        let version = reader.u16()?;
        if version != VERSION_1 && version != VERSION_2 {
            return Err(WireError::Version(version));
        }
        let (kind, credits) = (reader.u8()?, reader.u8()?);
        let (nob, sum) = (reader.u32()?, reader.u32()?);
        let whole = whole(bytes, nob)?;
        check_sum(whole, sum)?;
        let (source, source_stamp) = (Nid(reader.u64()?), reader.u64()?);
        let (destination, destination_stamp) = (Nid(reader.u64()?), reader.u64()?);
        if source == Nid::ANY {
            return Err(WireError::NoSource);
        }
        let body = Body::decode(kind, Reader::new(&whole[HEAD..], order))?;
        Ok((Message { version, credits, source, source_stamp, destination, destination_stamp, body }, order))
    }

    /// Writes the message to the front of `bytes`; returns its length. With `sums`, it gets a checksum.
    ///
    /// Panics unless it fits: a message of at most [`MESSAGE_BYTES`] into as many bytes.
    pub fn encode(&self, order: ByteOrder, sums: bool, bytes: &mut [u8]) -> usize {
        let mut writer = Writer::new(bytes, order);
        writer.u32(MAGIC);
        writer.u16(self.version);
        writer.u8(self.body.kind());
        writer.u8(self.credits);
        writer.u64(0);
        writer.u64(self.source.0);
        writer.u64(self.source_stamp);
        writer.u64(self.destination.0);
        writer.u64(self.destination_stamp);
        self.body.encode(&mut writer);
        let len = writer.at();
        Writer::new(&mut bytes[NOB_AT..], order).u32(len as u32);
        if sums {
            let sum = checksum(&bytes[..len]);
            Writer::new(&mut bytes[CHECKSUM_AT..], order).u32(sum);
        }
        len
    }

    /// As [`encode`](Self::encode), into bytes of their own.
    pub fn to_vec(&self, order: ByteOrder, sums: bool) -> Vec<u8> {
        let mut bytes = vec![0; MESSAGE_BYTES];
        let len = self.encode(order, sums, &mut bytes);
        bytes.truncate(len);
        bytes
    }
}

/// The byte order that the magic number shows.
pub(super) fn order_of(bytes: &[u8]) -> Result<ByteOrder, WireError> {
    let magic = Reader::new(bytes, ByteOrder::Little).u32()?;
    match magic {
        MAGIC => Ok(ByteOrder::Little),
        swapped if swapped == MAGIC.swap_bytes() => Ok(ByteOrder::Big),
        other => Err(WireError::Magic(other)),
    }
}

/// The `nob` bytes of a message.
fn whole(bytes: &[u8], nob: u32) -> Result<&[u8], WireError> {
    let wanted = usize::try_from(nob).unwrap_or(usize::MAX);
    let whole = bytes.get(..wanted).ok_or(WireError::Short { given: bytes.len(), wanted })?;
    if wanted < HEAD { Err(WireError::Short { given: wanted, wanted: HEAD }) } else { Ok(whole) }
}

fn check_sum(whole: &[u8], given: u32) -> Result<(), WireError> {
    if given == 0 {
        return Ok(());
    }
    // It was computed with zeros in its place.
    let (before, after) = (&whole[..CHECKSUM_AT], &whole[CHECKSUM_AT + 4..]);
    let computed = nonzero(before.iter().chain(&[0; 4]).chain(after).fold(0, add_to_sum));
    if computed == given { Ok(()) } else { Err(WireError::Checksum { given, computed }) }
}

/// The checksum of `bytes`, which have zeros in its place. `kiblnd_cksum` of `o2iblnd.c`, where `char` is signed, as on
/// x86.
pub fn checksum(bytes: &[u8]) -> u32 {
    nonzero(bytes.iter().fold(0, add_to_sum))
}

fn add_to_sum(sum: u32, byte: &u8) -> u32 {
    sum.rotate_left(1).wrapping_add_signed((*byte as i8).into())
}

/// 0 says that there is no checksum.
fn nonzero(sum: u32) -> u32 {
    if sum == 0 { 1 } else { sum }
}

impl Body<'_> {
    fn kind(&self) -> u8 {
        match self {
            Body::ConnReq(_) => kind::CONNREQ,
            Body::ConnAck(_) => kind::CONNACK,
            Body::Noop => kind::NOOP,
            Body::Immediate { .. } => kind::IMMEDIATE,
            Body::PutReq { .. } => kind::PUT_REQ,
            Body::PutNak { .. } => kind::PUT_NAK,
            Body::PutAck { .. } => kind::PUT_ACK,
            Body::PutDone { .. } => kind::PUT_DONE,
            Body::GetReq { .. } => kind::GET_REQ,
            Body::GetDone { .. } => kind::GET_DONE,
        }
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Body::ConnReq(parameters) | Body::ConnAck(parameters) => parameters.encode(writer),
            Body::Noop => {}
            Body::Immediate { header, payload } => {
                writer.bytes(&header.encode());
                writer.bytes(payload);
            }
            Body::PutReq { header, cookie } => {
                writer.bytes(&header.encode());
                writer.u64(*cookie);
            }
            Body::PutAck { source_cookie, sink_cookie, descriptor } => {
                writer.u64(*source_cookie);
                writer.u64(*sink_cookie);
                descriptor.encode(writer);
            }
            Body::GetReq { header, cookie, descriptor } => {
                writer.bytes(&header.encode());
                writer.u64(*cookie);
                descriptor.encode(writer);
            }
            Body::PutNak { cookie, status } | Body::PutDone { cookie, status } | Body::GetDone { cookie, status } => {
                writer.u64(*cookie);
                writer.i32(*status);
            }
        }
    }
}

impl<'a> Body<'a> {
    fn decode(kind: u8, mut reader: Reader<'a>) -> Result<Self, WireError> {
        let header = |reader: &mut Reader<'a>| Header::decode(&reader.array()?);
        Ok(match kind {
            kind::CONNREQ => Body::ConnReq(ConnectionParameters::decode(&mut reader)?),
            kind::CONNACK => Body::ConnAck(ConnectionParameters::decode(&mut reader)?),
            kind::NOOP => Body::Noop,
            kind::IMMEDIATE => {
                let header = header(&mut reader)?;
                // `kiblnd_recv` of `o2iblnd_cb.c`: as many as LNet's header says, which must be there.
                let (wanted, rest) = (header.payload_length as usize, reader.rest());
                let payload = rest.get(..wanted).ok_or(WireError::Short { given: rest.len(), wanted })?;
                Body::Immediate { header, payload }
            }
            kind::PUT_REQ => Body::PutReq { header: header(&mut reader)?, cookie: reader.u64()? },
            kind::PUT_ACK => Body::PutAck {
                source_cookie: reader.u64()?,
                sink_cookie: reader.u64()?,
                descriptor: RdmaDescriptor::decode(&mut reader)?,
            },
            kind::GET_REQ => Body::GetReq {
                header: header(&mut reader)?,
                cookie: reader.u64()?,
                descriptor: RdmaDescriptor::decode(&mut reader)?,
            },
            kind::PUT_NAK => Body::PutNak { cookie: reader.u64()?, status: reader.i32()? },
            kind::PUT_DONE => Body::PutDone { cookie: reader.u64()?, status: reader.i32()? },
            kind::GET_DONE => Body::GetDone { cookie: reader.u64()?, status: reader.i32()? },
            other => return Err(WireError::Type(other)),
        })
    }
}

impl ConnectionParameters {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(ConnectionParameters {
            queue_depth: reader.u16()?,
            max_fragments: reader.u16()?,
            max_message_size: reader.u32()?,
        })
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        writer.u16(self.queue_depth);
        writer.u16(self.max_fragments);
        writer.u32(self.max_message_size);
    }
}

impl RdmaDescriptor {
    /// `kiblnd_unpack_rd` of `o2iblnd.c`.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let (key, count) = (reader.u32()?, reader.u32()?);
        if count == 0 || count > MAX_FRAGMENTS.into() {
            return Err(WireError::Fragments(count));
        }
        let fragment = |_| Ok(Fragment { len: reader.u32()?, addr: reader.u64()? });
        Ok(RdmaDescriptor { key, fragments: (0..count).map(fragment).collect::<Result<_, _>>()? })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.key);
        writer.u32(self.fragments.len() as u32);
        for fragment in &self.fragments {
            writer.u32(fragment.len);
            writer.u64(fragment.addr);
        }
    }
}
