//! Messages, and the two of them that Ceph's messenger benchmark sends: an operation and its answer.

use super::codec::{Reader, Truncated, Writer};
use super::error::ControlError;

/// Type of [`OsdOp`] (`src/include/ceph_fs.h`, CEPH_MSG_OSD_OP).
pub const OSD_OP: u16 = 42;
/// Type of [`OsdReply`] (CEPH_MSG_OSD_OPREPLY).
pub const OSD_OP_REPLY: u16 = 43;
/// Version of both in which they are encoded here (`src/messages/MOSDOp.h`, `MOSDOpReply.h`: HEAD_VERSION).
const VERSION: u16 = 8;
/// CEPH_MSG_PRIO_DEFAULT.
const PRIORITY: u16 = 127;

/// What stands before each message (`src/include/msgr.h`, `ceph_msg_header2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// Number of the message in its session, from 1.
    pub seq: u64,
    /// Transaction, for the sender.
    pub tid: u64,
    /// What it is.
    pub kind: u16,
    /// Higher goes first.
    pub priority: u16,
    /// Version of the front's encoding.
    pub version: u16,
    /// Oldest version whose readers can read it.
    pub compat_version: u16,
    /// The last message that the sender has received.
    pub ack_seq: u64,
}

impl MessageHeader {
    /// Bytes of a header.
    pub const BYTES: usize = 41;

    /// The header of a message of `kind`; the session numbers it.
    pub fn new(kind: u16, compat_version: u16) -> Self {
        MessageHeader { seq: 0, tid: 0, kind, priority: PRIORITY, version: VERSION, compat_version, ack_seq: 0 }
    }

    /// As a segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u64(self.seq).u64(self.tid).u16(self.kind).u16(self.priority).u16(self.version);
        // Padding before the data, and its offset in a page: none.
        writer.u32(0).u16(0).u64(self.ack_seq).u8(0).u16(self.compat_version).u16(0);
        writer.finish()
    }

    /// From a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        let (seq, tid, kind, priority, version) =
            (reader.u64()?, reader.u64()?, reader.u16()?, reader.u16()?, reader.u16()?);
        reader.bytes(6)?;
        let (ack_seq, _flags) = (reader.u64()?, reader.u8()?);
        Ok(MessageHeader { seq, tid, kind, priority, version, compat_version: reader.u16()?, ack_seq })
    }
}

/// A placement group: pool and seed (`src/osd/osd_types.h`, `pg_t`).
fn write_pg(writer: &mut Writer, pool: u64, seed: u32) {
    writer.u8(1).u64(pool).u32(seed).u32(u32::MAX);
}

/// Bytes of `ceph_osd_op` (`src/include/rados.h`): operation, flags, 28 bytes of what it needs, bytes of its data.
const OPERATION: usize = 38;
/// CEPH_OSD_OP_WRITE.
const WRITE: u16 = 0x2201;
/// CEPH_OSD_FLAG_WRITE.
const FLAG_WRITE: u32 = 0x20;
/// The snapshot of the present (`CEPH_NOSNAP`).
const NO_SNAP: u64 = u64::MAX - 1;
/// Operations that a message may have.
const MOST_OPERATIONS: u32 = 1024;

fn operation(writer: &mut Writer, bytes: u32) {
    // Offset, length, and truncation, of which there is none.
    writer.u16(WRITE).u32(0).u64(0).u64(bytes.into()).u64(0).u32(0).u32(bytes);
}

/// One write of one object: a message's front (`src/messages/MOSDOp.h`, `encode_payload`, version 8). Its data are the
/// message's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsdOp {
    /// The object.
    pub object: String,
    /// Its pool.
    pub pool: u64,
    /// The client's number for the operation.
    pub tid: u64,
    /// Bytes that it writes, from offset 0.
    pub bytes: u32,
}

impl OsdOp {
    /// Header of its message.
    pub fn header(&self) -> MessageHeader {
        MessageHeader { tid: self.tid, ..MessageHeader::new(OSD_OP, 3) }
    }

    /// As a front.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        // Placement group and shard, hash, epoch of the map, flags.
        writer.structure(1, 1, |inner| {
            write_pg(inner, self.pool, 0);
            inner.u8(u8::MAX);
        });
        writer.u32(0).u32(0).u32(FLAG_WRITE);
        // Who asks: kind and number, transaction, incarnation.
        writer.structure(2, 2, |inner| {
            inner.u8(0).u64(0).u64(self.tid).u32(0);
        });
        // Trace, incarnation of the client, time.
        writer.bytes(&[0; 24]).u32(0).u64(0);
        // Locator: pool, preferred, key, name space, hash, of which there are none.
        writer.structure(6, 3, |inner| {
            inner.u64(self.pool).u32(u32::MAX).counted(b"").counted(b"").u64(u64::MAX);
        });
        writer.counted(self.object.as_bytes()).u16(1);
        operation(&mut writer, self.bytes);
        // Snapshot, the context of snapshots, retries, features.
        writer.u64(NO_SNAP).u64(0).u32(0).u32(u32::MAX).u64(0);
        writer.finish()
    }

    /// From a front of version 8.
    ///
    /// # Errors
    /// [`ControlError`]: too short, or not one write.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        let pool = {
            let (_, mut inner) = reader.structure()?;
            inner.u8()?;
            inner.u64()?
        };
        reader.bytes(12)?;
        let (_, mut request) = reader.structure()?;
        request.bytes(9)?;
        let tid = request.u64()?;
        reader.bytes(24 + 4 + 8)?;
        reader.structure()?;
        let object = String::from_utf8_lossy(reader.counted()?).into_owned();
        match reader.u16()? {
            1 => {}
            given => return Err(ControlError::Value { what: "number of operations", given: given.into() }),
        }
        let mut operation = Reader::new(reader.bytes(OPERATION)?);
        let what = operation.u16()?;
        if what != WRITE {
            return Err(ControlError::Value { what: "operation", given: what.into() });
        }
        operation.bytes(4 + 8)?;
        let length = operation.u64()?;
        let bytes =
            u32::try_from(length).map_err(|_| ControlError::Value { what: "bytes of a write", given: length })?;
        Ok(OsdOp { object, pool, tid, bytes })
    }
}

/// The answer to an operation: a message's front (`src/messages/MOSDOpReply.h`, `encode_payload`, version 8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsdReply {
    /// The object; a server that does not read all of an operation leaves it empty.
    pub object: String,
    /// 0, or a negative errno.
    pub result: i32,
}

impl OsdReply {
    /// Header of its message, for the operation of `tid`.
    pub fn header(&self, tid: u64) -> MessageHeader {
        MessageHeader { tid, ..MessageHeader::new(OSD_OP_REPLY, 2) }
    }

    /// As a front.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.counted(self.object.as_bytes());
        write_pg(&mut writer, 0, 0);
        // Flags, result, a version for replays, the map's epoch, no operations, retries.
        writer.u64(0).u32(self.result as u32).bytes(&[0; 12]).u32(0).u32(0).u32(u32::MAX);
        // Versions, no redirection, trace.
        writer.bytes(&[0; 12]).u64(0).u8(0).bytes(&[0; 24]);
        writer.finish()
    }

    /// From a front of version 8.
    ///
    /// # Errors
    /// [`ControlError`]: too short.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        let object = String::from_utf8_lossy(reader.counted()?).into_owned();
        reader.bytes(17 + 8)?;
        let result = reader.i32()?;
        reader.bytes(12 + 4)?;
        let count = reader.u32()?;
        if count > MOST_OPERATIONS {
            return Err(ControlError::Value { what: "number of operations", given: count.into() });
        }
        // Each is there, and its own result.
        let all: Result<_, Truncated> = reader.bytes(count as usize * (OPERATION + 4) + 4 + 12 + 8 + 1);
        all?;
        Ok(OsdReply { object, result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_answers_are_read_back() {
        let op = OsdOp { object: "object-name".into(), pool: 1, tid: 9, bytes: 4096 };
        assert_eq!(OsdOp::decode(&op.encode()), Ok(op.clone()));
        let reply = OsdReply { object: "object-name".into(), result: -5 };
        assert_eq!(OsdReply::decode(&reply.encode()), Ok(reply.clone()));
        let header = MessageHeader { seq: 1, ack_seq: 2, ..op.header() };
        assert_eq!(header.encode().len(), MessageHeader::BYTES);
        assert_eq!(MessageHeader::decode(&header.encode()), Ok(header));
        for bytes in [op.encode(), reply.encode()] {
            for len in 0..bytes.len() - 24 {
                assert!(OsdOp::decode(&bytes[..len]).is_err() || OsdReply::decode(&bytes[..len]).is_err());
            }
        }
    }
}
