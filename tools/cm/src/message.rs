//! Messages: management datagrams of class CM.

use std::fmt;
use std::net::IpAddr;

use mlx5_prm::ib::{
    CM_CLASS_VERSION, CmAttribute, CmDrep, CmDreq, CmMra, CmRej, CmRep, CmReq, CmRtu, CmSidrRep, CmSidrReq, MAD,
    MadHdr, MadMethod, MgmtClass, RdmaCmHdr, RdmaPortSpace,
};
use mlx5_prm::layout::{Layout, Value};

pub use mlx5_dv::{address_of, gid_of};

/// A global identifier: an IPv6 address, or a mapped IPv4 address.
pub type Gid = [u8; 16];

/// A port of the RDMA connection manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Service {
    /// Its port space.
    pub space: RdmaPortSpace,
    /// The port.
    pub port: u16,
}

impl Service {
    /// Port `port` for connections.
    pub fn tcp(port: u16) -> Self {
        Service { space: RdmaPortSpace::Tcp, port }
    }

    /// Port `port` for datagrams.
    pub fn udp(port: u16) -> Self {
        Service { space: RdmaPortSpace::Udp, port }
    }

    /// Its number in a message. IBTA A11.2.2.
    pub fn id(self) -> u64 {
        u64::from(self.space.number()) << 16 | u64::from(self.port)
    }

    /// The service of port space `space` with this number in a message; `None` if the number belongs to another space.
    pub fn from_id(space: RdmaPortSpace, id: u64) -> Option<Self> {
        let service = Service { space, port: id as u16 };
        (service.id() == id).then_some(service)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} of port space {}", self.port, self.space)
    }
}

/// A message.
#[derive(Debug, Clone)]
pub enum Message {
    /// Request for a connection.
    Req(CmReq),
    /// Message receipt acknowledgement.
    Mra(CmMra),
    /// Rejection.
    Rej(CmRej),
    /// Reply: accepted.
    Rep(CmRep),
    /// Ready to use.
    Rtu(CmRtu),
    /// Request to end a connection.
    Dreq(CmDreq),
    /// Reply to that request.
    Drep(CmDrep),
    /// Request for the queue pair of a service.
    SidrReq(CmSidrReq),
    /// Reply to that request.
    SidrRep(CmSidrRep),
}

/// Why a datagram is not a supported message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Management datagrams have 256 bytes.
    #[error("a management datagram of {0} bytes: they have {MAD}")]
    Length(usize),
    /// Another management class.
    #[error("management class {0}, not CM")]
    Class(MgmtClass),
    /// An unsupported version.
    #[error("base version {base}, class version {class}: 1 and {CM_CLASS_VERSION} are understood")]
    Version {
        /// Of management datagrams.
        base: u8,
        /// Of the class.
        class: u8,
    },
    /// Not SEND.
    #[error("method {0}, not SEND")]
    Method(MadMethod),
    /// An unsupported message.
    #[error("message {0} is not supported")]
    Attribute(CmAttribute),
}

fn read<L: Layout>(bytes: &[u8]) -> Result<L, Malformed> {
    L::read(bytes).ok_or(Malformed::Length(bytes.len()))
}

impl Message {
    /// Reads a management datagram.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        if bytes.len() != MAD {
            return Err(Malformed::Length(bytes.len()));
        }
        let header: MadHdr = read(&bytes[..MadHdr::SIZE])?;
        if header.mgmt_class() != MgmtClass::Cm {
            return Err(Malformed::Class(header.mgmt_class()));
        }
        let (base, class) = (header.base_version(), header.class_version());
        if (base, class) != (1, CM_CLASS_VERSION) {
            return Err(Malformed::Version { base, class });
        }
        if header.method() != MadMethod::Send {
            return Err(Malformed::Method(header.method()));
        }
        match <CmAttribute as Value>::from_number(header.attribute_id().into()) {
            CmAttribute::ConnectRequest => read(bytes).map(Message::Req),
            CmAttribute::MsgRcptAck => read(bytes).map(Message::Mra),
            CmAttribute::ConnectReject => read(bytes).map(Message::Rej),
            CmAttribute::ConnectReply => read(bytes).map(Message::Rep),
            CmAttribute::ReadyToUse => read(bytes).map(Message::Rtu),
            CmAttribute::DisconnectRequest => read(bytes).map(Message::Dreq),
            CmAttribute::DisconnectReply => read(bytes).map(Message::Drep),
            CmAttribute::ServiceIdResReq => read(bytes).map(Message::SidrReq),
            CmAttribute::ServiceIdResReqResp => read(bytes).map(Message::SidrRep),
            other => Err(Malformed::Attribute(other)),
        }
    }
}

/// The header of a message of transaction `tid`.
pub(crate) fn header(attribute: CmAttribute, tid: u64) -> MadHdr {
    let mut header = MadHdr::default();
    header
        .w()
        .mgmt_class(MgmtClass::Cm)
        .class_version(CM_CLASS_VERSION)
        .method(MadMethod::Send)
        .attribute_id(attribute.number() as u16)
        .transaction_id(tid);
    header
}

/// The bytes of a message.
pub(crate) fn mad(message: &impl Layout) -> [u8; MAD] {
    let mut mad = [0; MAD];
    mad.copy_from_slice(Layout::as_bytes(message));
    mad
}

/// `data` at the start of `N` bytes of private data. Callers check its length; longer data is cut.
pub(crate) fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    let len = data.len().min(N);
    padded[..len].copy_from_slice(&data[..len]);
    padded
}

/// `data` after the addresses of both ends, as private data of a request.
pub(crate) fn with_addresses<const N: usize>(port: u16, source: Gid, destination: Gid, data: &[u8]) -> [u8; N] {
    let plain = |gid| match address_of(gid) {
        IpAddr::V4(address) => (4, padded_front(address.octets())),
        IpAddr::V6(address) => (6, address.octets()),
    };
    let ((version, source), (_, destination)) = (plain(source), plain(destination));
    let mut header = RdmaCmHdr::default();
    header.w().ip_version(version).port(port).src_addr(&source).dst_addr(&destination);
    padded(&[Layout::as_bytes(&header), data].concat())
}

fn padded_front(address: [u8; 4]) -> Gid {
    let mut gid = [0; 16];
    gid[12..].copy_from_slice(&address);
    gid
}

/// The requester's port and the program's private data; `None` if the header of the RDMA connection manager is missing
/// or has another version.
pub(crate) fn addresses(private_data: &[u8]) -> Option<(u16, &[u8])> {
    let (header, data) = private_data.split_at_checked(RdmaCmHdr::SIZE)?;
    let header = RdmaCmHdr::read(header)?;
    (header.cma_version() == 0 && matches!(header.ip_version(), 4 | 6)).then_some((header.port(), data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_ids_are_those_of_the_rdma_connection_manager() {
        assert_eq!((Service::tcp(4791).id(), Service::udp(7).id()), (0x0106_12b7, 0x0111_0007));
        assert_eq!(Service::from_id(RdmaPortSpace::Tcp, 0x0106_12b7), Some(Service::tcp(4791)));
        assert_eq!(Service::from_id(RdmaPortSpace::Udp, 0x0106_12b7), None);
        assert_eq!(Service::from_id(RdmaPortSpace::Tcp, 0x1_0106_12b7), None);
    }

    #[test]
    fn what_is_not_ours_is_named() {
        let good = mad(&{
            let mut rtu = CmRtu::default();
            rtu.w().hdr(&header(CmAttribute::ReadyToUse, 7));
            rtu
        });
        assert!(matches!(Message::parse(&good), Ok(Message::Rtu(_))));
        let refused = |at: usize, value: u8| {
            let mut bad = good;
            bad[at] = value;
            Message::parse(&bad).map(drop)
        };
        assert_eq!(Message::parse(&good[..255]).map(drop), Err(Malformed::Length(255)));
        assert_eq!(refused(0, 2), Err(Malformed::Version { base: 2, class: 2 }));
        assert_eq!(refused(1, 4), Err(Malformed::Class(MgmtClass::Perf)));
        assert_eq!(refused(2, 1), Err(Malformed::Version { base: 1, class: 1 }));
        assert_eq!(refused(3, 1), Err(Malformed::Method(MadMethod::Get)));
        assert_eq!(refused(17, 0x19), Err(Malformed::Attribute(CmAttribute::LoadAlternatePath)));
    }

    #[test]
    fn addresses_stand_before_private_data_as_linux_puts_them() {
        let (near, far) = (gid_of([10, 0, 0, 1].into()), gid_of([10, 0, 0, 2].into()));
        let data: [u8; 92] = with_addresses(0x1234, near, far, b"hello");
        assert_eq!(data[..4], [0, 0x40, 0x12, 0x34]);
        assert_eq!((&data[4..20], &data[32..36]), (&[&[0; 12][..], &[10, 0, 0, 1]].concat()[..], &[10, 0, 0, 2][..]));
        let (port, own) = addresses(&data).unwrap();
        assert_eq!((port, &own[..6]), (0x1234, &b"hello\0"[..]));
        let mut other = data;
        other[1] = 0x50;
        assert!(addresses(&other).is_none() && addresses(&data[..35]).is_none());
    }
}
