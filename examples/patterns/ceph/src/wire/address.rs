//! Names and addresses of entities (`src/msg/msg_types.h`: `entity_name_t`, `entity_addr_t`, `entity_addrvec_t`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::codec::{Reader, Truncated, Writer};
use super::error::ControlError;

/// What an entity is (`src/include/msgr.h`, `CEPH_ENTITY_TYPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityKind(pub u8);

impl EntityKind {
    /// An object storage daemon.
    pub const OSD: EntityKind = EntityKind(0x04);
    /// A client.
    pub const CLIENT: EntityKind = EntityKind(0x08);
}

/// Name of an entity: what it is, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityName {
    /// What it is.
    pub kind: EntityKind,
    /// Which of its kind.
    pub number: u64,
}

/// The address of an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityAddress {
    /// The protocol: 2 for msgr2 (`TYPE_MSGR2`), 0 for none.
    pub kind: u32,
    /// Tells entities apart that have had the same address.
    pub nonce: u32,
    /// Where it listens, or from where it speaks. `None` if it has none.
    pub socket: Option<SocketAddr>,
}

/// Address families on the wire: Linux's, on all systems.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Bytes of `sockaddr_in` and `sockaddr_in6`.
const SOCKADDR_IN: u32 = 16;
const SOCKADDR_IN6: u32 = 28;
/// Marks an address in the encoding of peers with the feature MSG_ADDR2.
const MARKER: u8 = 1;
/// Marks a list of addresses in it.
const LIST_MARKER: u8 = 2;
/// Addresses that an entity may have: more than any has.
const MOST_ADDRESSES: u32 = 16;

impl EntityAddress {
    /// `TYPE_MSGR2`.
    pub const MSGR2: u32 = 2;

    /// The address of an entity that speaks msgr2 at `socket`.
    pub fn msgr2(socket: SocketAddr, nonce: u32) -> Self {
        EntityAddress { kind: Self::MSGR2, nonce, socket: Some(socket) }
    }

    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.u8(MARKER).structure(1, 1, |inner| {
            inner.u32(self.kind).u32(self.nonce);
            match self.socket {
                None => _ = inner.u32(0),
                Some(SocketAddr::V4(at)) => {
                    inner.u32(SOCKADDR_IN).u16(AF_INET).bytes(&at.port().to_be_bytes());
                    inner.bytes(&at.ip().octets()).bytes(&[0; 8]);
                }
                Some(SocketAddr::V6(at)) => {
                    inner.u32(SOCKADDR_IN6).u16(AF_INET6).bytes(&at.port().to_be_bytes());
                    inner.bytes(&at.flowinfo().to_be_bytes()).bytes(&at.ip().octets()).u32(at.scope_id());
                }
            }
        });
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        match reader.u8()? {
            MARKER => Self::read_marked(reader),
            given => Err(ControlError::Value { what: "marker of an address", given: given.into() }),
        }
    }

    fn read_marked(reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        let (_, mut inner) = reader.structure()?;
        let (kind, nonce) = (inner.u32()?, inner.u32()?);
        Ok(EntityAddress { kind, nonce, socket: socket(inner.counted()?)? })
    }
}

/// A `sockaddr`; one of another family than IP counts as none.
fn socket(bytes: &[u8]) -> Result<Option<SocketAddr>, Truncated> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut reader = Reader::new(bytes);
    let (family, port) = (reader.u16()?, reader.u16()?.swap_bytes());
    let ip = match family {
        AF_INET => IpAddr::V4(Ipv4Addr::from_bits(reader.u32()?.swap_bytes())),
        AF_INET6 => {
            reader.u32()?;
            let mut octets = [0; 16];
            octets.copy_from_slice(reader.bytes(16)?);
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return Ok(None),
    };
    Ok(Some(SocketAddr::new(ip, port)))
}

/// Lists of addresses.
pub mod addresses {
    use super::*;

    pub(crate) fn write(list: &[EntityAddress], writer: &mut Writer) {
        writer.u8(LIST_MARKER).u32(list.len() as u32);
        list.iter().for_each(|address| address.write(writer));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Vec<EntityAddress>, ControlError> {
        match reader.u8()? {
            MARKER => Ok(vec![EntityAddress::read_marked(reader)?]),
            LIST_MARKER => {
                let count = reader.u32()?;
                if count > MOST_ADDRESSES {
                    return Err(ControlError::Value { what: "number of addresses", given: count.into() });
                }
                (0..count).map(|_| EntityAddress::read(reader)).collect()
            }
            given => Err(ControlError::Value { what: "marker of a list of addresses", given: given.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_back() {
        let all = [
            EntityAddress::msgr2("10.0.0.1:6800".parse().unwrap(), 7),
            EntityAddress::msgr2("[fe80::1]:6801".parse().unwrap(), 0),
            EntityAddress { kind: 0, nonce: 0, socket: None },
        ];
        let mut writer = Writer::new();
        addresses::write(&all, &mut writer);
        let bytes = writer.finish();
        assert_eq!(addresses::read(&mut Reader::new(&bytes)).unwrap(), all);
        for len in 0..bytes.len() {
            assert!(addresses::read(&mut Reader::new(&bytes[..len])).is_err(), "the first {len} bytes");
        }
        assert!(addresses::read(&mut Reader::new(&[2, 255, 0, 0, 0])).is_err());
    }

    /// As `encode` of `entity_addr_t` for a peer with MSG_ADDR2 and SERVER_NAUTILUS.
    #[test]
    fn an_ipv4_address_is_ceph_s() {
        let mut writer = Writer::new();
        EntityAddress::msgr2("10.0.0.1:6800".parse().unwrap(), 5).write(&mut writer);
        let wanted: &[u8] = &[
            1, 1, 1, 28, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0x1a, 0x90, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0,
            0, 0,
        ];
        assert_eq!(writer.finish(), wanted);
    }
}
