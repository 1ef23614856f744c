//! The banner, and the frames that make a session (`src/msg/async/frames_v2.h`, the structures over `ControlFrame`;
//! `src/msg/async/ProtocolV2.cc`).

use super::address::{EntityAddress, EntityKind, addresses};
use super::codec::{Reader, Writer};
use super::error::ControlError;

/// What the first bytes of each side are (`src/include/msgr.h`, `CEPH_BANNER_V2_PREFIX`).
const PREFIX: &[u8; 8] = b"ceph v2\n";
/// Bytes of the banner: the prefix, the length of what follows, features that are supported and that are required.
pub const BANNER_BYTES: usize = PREFIX.len() + 2 + 16;
/// Features of msgr2 itself: revision 1 of the frames (`CEPH_MSGR2_FEATURE_REVISION_1`). Compression is not offered.
const REVISION_1: u64 = 1;

/// Bits of `src/include/ceph_features.h` that this side has: what it needs to encode operations as it does.
///
/// SERVER_NAUTILUS 2, RECONNECT_SEQ 6, OBJECTLOCATOR 8, PGID64 9, SERVER_LUMINOUS (RESEND_ON_SPLIT) 21, SERVER_MIMIC
/// 28, MSGR_KEEPALIVE2 42, NEW_OSDOP_ENCODING 56, SERVER_JEWEL 57, NEW_OSDOPREPLY_ENCODING 58, MSG_ADDR2 59.
pub const FEATURES: u64 = {
    let bits = [2, 6, 8, 9, 21, 28, 42, 56, 57, 58, 59];
    let (mut mask, mut at) = (0, 0);
    while at < bits.len() {
        mask |= 1 << bits[at];
        at += 1;
    }
    mask
};

/// Features that every peer must have: addresses in their present form (`msgr2_required`), and operations as they are
/// encoded here.
pub fn required() -> u64 {
    FEATURES & !(1 << 6 | 1 << 42)
}

/// What of [`required`] a peer with `features` lacks.
pub fn missing(features: u64) -> u64 {
    required() & !features
}

/// CEPH_MSG_CONNECT_LOSSY: messages may be dropped when the connection breaks.
const LOSSY: u64 = 1;

/// What each side says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Banner {
    /// Features of msgr2 that it has.
    pub supported: u64,
    /// Features of msgr2 that it wants.
    pub required: u64,
}

impl Banner {
    /// This side's.
    pub const OURS: Banner = Banner { supported: REVISION_1, required: REVISION_1 };

    /// As bytes.
    pub fn to_bytes(self) -> [u8; BANNER_BYTES] {
        let mut bytes = [0; BANNER_BYTES];
        bytes[..8].copy_from_slice(PREFIX);
        bytes[8..10].copy_from_slice(&16u16.to_le_bytes());
        bytes[10..18].copy_from_slice(&self.supported.to_le_bytes());
        bytes[18..].copy_from_slice(&self.required.to_le_bytes());
        bytes
    }

    /// The banner of [`to_bytes`](Self::to_bytes), whose features suit this side.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn from_bytes(bytes: &[u8; BANNER_BYTES]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        if reader.bytes(8)? != PREFIX {
            return Err(ControlError::Banner);
        }
        // A later version may have more; none has.
        let length = reader.u16()?;
        if length != 16 {
            return Err(ControlError::Value { what: "length of the banner", given: length.into() });
        }
        let banner = Banner { supported: reader.u64()?, required: reader.u64()? };
        if banner.supported & REVISION_1 == 0 {
            return Err(ControlError::Value { what: "features of msgr2 without revision 1", given: banner.supported });
        }
        match banner.required & !Self::OURS.supported {
            0 => Ok(banner),
            given => Err(ControlError::Value { what: "required features of msgr2", given }),
        }
    }
}

/// What each side is, and where it sees the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// What the sender is.
    pub kind: EntityKind,
    /// The receiver's address as the sender sees it.
    pub peer: EntityAddress,
}

impl Hello {
    /// As a segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(self.kind.0);
        self.peer.write(&mut writer);
        writer.finish()
    }

    /// From a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        Ok(Hello { kind: EntityKind(reader.u8()?), peer: EntityAddress::read(&mut reader)? })
    }
}

/// How the client wants to be authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthRequest {
    /// The method: 1 is none (`src/include/ceph_fs.h`, CEPH_AUTH_NONE).
    pub method: u32,
    /// Modes of the connection that it takes: 1 is crc (CEPH_CON_MODE_CRC).
    pub modes: Vec<u32>,
}

impl AuthRequest {
    /// No authentication.
    pub const NONE: u32 = 1;
    /// CRCs, no encryption.
    pub const CRC: u32 = 1;

    /// As a segment. No payload: the method none has none between such programs (`src/auth/DummyAuth.h`).
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u32(self.method).u32(self.modes.len() as u32);
        self.modes.iter().for_each(|mode| _ = writer.u32(*mode));
        writer.counted(b"");
        writer.finish()
    }

    /// From a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        let request = AuthRequest { method: reader.u32()?, modes: reader.list()? };
        reader.counted()?;
        Ok(request)
    }
}

/// The client is who it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthDone {
    /// The client's number, if the server gives it one.
    pub global_id: u64,
    /// The mode of the connection.
    pub mode: u32,
}

impl AuthDone {
    /// As a segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u64(self.global_id).u32(self.mode).counted(b"");
        writer.finish()
    }

    /// From a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        let done = AuthDone { global_id: reader.u64()?, mode: reader.u32()? };
        reader.counted()?;
        Ok(done)
    }
}

/// Who the client is, and which session it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdent {
    /// Its addresses.
    pub addresses: Vec<EntityAddress>,
    /// Whom it wants to talk to.
    pub target: EntityAddress,
    /// Its number, of its kind.
    pub number: u64,
    /// Counts its connections.
    pub global_seq: u64,
    /// Features that it has ([`FEATURES`]).
    pub supported: u64,
    /// Features that it wants.
    pub required: u64,
    /// Whether its messages may be dropped when the connection breaks.
    pub is_lossy: bool,
    /// Its session; 0 for one that is lossy.
    pub cookie: u64,
}

impl ClientIdent {
    /// As a segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        addresses::write(&self.addresses, &mut writer);
        self.target.write(&mut writer);
        let flags = if self.is_lossy { LOSSY } else { 0 };
        writer.u64(self.number).u64(self.global_seq).u64(self.supported).u64(self.required).u64(flags);
        writer.u64(self.cookie);
        writer.finish()
    }

    /// From a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        Ok(ClientIdent {
            addresses: addresses::read(&mut reader)?,
            target: EntityAddress::read(&mut reader)?,
            number: reader.u64()?,
            global_seq: reader.u64()?,
            supported: reader.u64()?,
            required: reader.u64()?,
            is_lossy: reader.u64()? & LOSSY != 0,
            cookie: reader.u64()?,
        })
    }
}

/// Who the server is: the session begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdent {
    /// Its addresses.
    pub addresses: Vec<EntityAddress>,
    /// Its number, of its kind.
    pub number: u64,
    /// Counts its connections.
    pub global_seq: u64,
    /// Features that it has.
    pub supported: u64,
    /// Features that it wants.
    pub required: u64,
    /// Whether messages may be dropped when the connection breaks: then there is no session to come back to.
    pub is_lossy: bool,
    /// Its session; 0 for one that is lossy.
    pub cookie: u64,
}

impl ServerIdent {
    /// As a segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        addresses::write(&self.addresses, &mut writer);
        let flags = if self.is_lossy { LOSSY } else { 0 };
        writer.u64(self.number).u64(self.global_seq).u64(self.supported).u64(self.required).u64(flags);
        writer.u64(self.cookie);
        writer.finish()
    }

    /// From a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        Ok(ServerIdent {
            addresses: addresses::read(&mut reader)?,
            number: reader.u64()?,
            global_seq: reader.u64()?,
            supported: reader.u64()?,
            required: reader.u64()?,
            is_lossy: reader.u64()? & LOSSY != 0,
            cookie: reader.u64()?,
        })
    }
}

/// A client that comes back to its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconnect {
    /// Its addresses.
    pub addresses: Vec<EntityAddress>,
    /// The session's two cookies.
    pub client_cookie: u64,
    /// The server's.
    pub server_cookie: u64,
    /// Counts the client's connections.
    pub global_seq: u64,
    /// Counts the connections of this session.
    pub connect_seq: u64,
    /// The last message that the client has received.
    pub message_seq: u64,
}

impl Reconnect {
    /// As a segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        addresses::write(&self.addresses, &mut writer);
        writer.u64(self.client_cookie).u64(self.server_cookie).u64(self.global_seq).u64(self.connect_seq);
        writer.u64(self.message_seq);
        writer.finish()
    }

    /// From a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        Ok(Reconnect {
            addresses: addresses::read(&mut reader)?,
            client_cookie: reader.u64()?,
            server_cookie: reader.u64()?,
            global_seq: reader.u64()?,
            connect_seq: reader.u64()?,
            message_seq: reader.u64()?,
        })
    }
}

/// A time (`utime_t`): of keep-alives, which come back with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Seconds.
    pub seconds: u32,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

impl Stamp {
    /// As a segment.
    pub fn encode(self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u32(self.seconds).u32(self.nanoseconds);
        writer.finish()
    }

    /// From a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let mut reader = Reader::new(bytes);
        Ok(Stamp { seconds: reader.u32()?, nanoseconds: reader.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address() -> EntityAddress {
        EntityAddress::msgr2("10.0.0.1:6800".parse().unwrap(), 3)
    }

    #[test]
    fn control_frames_are_read_back() {
        let hello = Hello { kind: EntityKind::OSD, peer: address() };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        let request = AuthRequest { method: 1, modes: vec![1, 2] };
        assert_eq!(AuthRequest::decode(&request.encode()), Ok(request));
        let done = AuthDone { global_id: 5, mode: 1 };
        assert_eq!(AuthDone::decode(&done.encode()), Ok(done));
        let client = ClientIdent {
            addresses: vec![address()],
            target: address(),
            number: 1,
            global_seq: 2,
            supported: FEATURES,
            required: required(),
            is_lossy: true,
            cookie: 7,
        };
        assert_eq!(ClientIdent::decode(&client.encode()), Ok(client));
        let server = ServerIdent {
            addresses: vec![address()],
            number: 1,
            global_seq: 2,
            supported: FEATURES,
            required: 0,
            is_lossy: false,
            cookie: 7,
        };
        assert_eq!(ServerIdent::decode(&server.encode()), Ok(server));
        let back = Reconnect {
            addresses: vec![],
            client_cookie: 1,
            server_cookie: 2,
            global_seq: 3,
            connect_seq: 4,
            message_seq: 5,
        };
        assert_eq!(Reconnect::decode(&back.encode()), Ok(back));
    }

    #[test]
    fn a_banner_of_another_protocol_is_refused() {
        let ours = Banner::OURS.to_bytes();
        assert_eq!(Banner::from_bytes(&ours), Ok(Banner::OURS));
        let mut first = ours;
        first[..8].copy_from_slice(b"ceph v02");
        assert_eq!(Banner::from_bytes(&first), Err(ControlError::Banner));
        let old = Banner { supported: 0, required: 0 };
        assert!(matches!(Banner::from_bytes(&old.to_bytes()), Err(ControlError::Value { .. })));
        let newer = Banner { supported: 7, required: 4 };
        assert!(matches!(Banner::from_bytes(&newer.to_bytes()), Err(ControlError::Value { given: 4, .. })));
        assert!(
            Banner::from_bytes(&Banner { supported: 3, required: 0 }.to_bytes()).is_ok(),
            "compression is its choice"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Hello::decode(&bytes), AuthRequest::decode(&bytes), AuthDone::decode(&bytes));
            let _ = (ClientIdent::decode(&bytes), ServerIdent::decode(&bytes), Reconnect::decode(&bytes));
        }
    }
}
