//! The kernel's connection manager, `/dev/infiniband/rdma_cm`: one file, its IDs and their events.
//!
//! An ID is a listener, a connection or a request; what becomes of it comes as an event. Nothing here waits: a file
//! without events says so, and its descriptor is readable when there is one. Closing the file destroys its IDs.

use std::fs::OpenOptions;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use super::abi::rdma_cm::*;

/// The device file.
pub const FILE: &str = "/dev/infiniband/rdma_cm";

/// A file of the kernel's connection manager.
#[derive(Debug)]
pub struct RdmaCm {
    file: OwnedFd,
}

impl AsFd for RdmaCm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl RdmaCm {
    /// Opens it.
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(FILE)?;
        Ok(RdmaCm { file: file.into() })
    }

    /// Creates an ID in a port space, for queue pairs of a type. Its events say `uid`, which is not 0.
    pub fn create_id(&self, uid: u64, ps: u16, qp_type: u8) -> io::Result<u32> {
        let mut output = CreateIdResp::default();
        let input = |response| CreateId { uid, response, ps, qp_type, reserved: [0; 5] };
        self.ask(RDMA_USER_CM_CMD_CREATE_ID, input, &mut output)?;
        Ok(output.id)
    }

    /// Destroys an ID: ends its connection, and forgets its events.
    pub fn destroy_id(&self, id: u32) -> io::Result<()> {
        let input = |response| DestroyId { response, id, reserved: 0 };
        self.ask(RDMA_USER_CM_CMD_DESTROY_ID, input, &mut DestroyIdResp::default())
    }

    /// Binds an ID to a local address, and so to its device.
    pub fn bind(&self, id: u32, address: SocketAddr) -> io::Result<()> {
        let (addr, addr_size) = sockaddr(address);
        self.tell(RDMA_USER_CM_CMD_BIND, Bind { id, addr_size, reserved: 0, addr })
    }

    /// Resolves the address `to`, from `from` and its device, in the time `limit`: an event follows.
    pub fn resolve_addr(&self, id: u32, from: SocketAddr, to: SocketAddr, limit: Duration) -> io::Result<()> {
        let ((src_addr, src_size), (dst_addr, dst_size)) = (sockaddr(from), sockaddr(to));
        let timeout_ms = milliseconds(limit);
        let input = ResolveAddr { id, timeout_ms, src_size, dst_size, reserved: 0, src_addr, dst_addr };
        self.tell(RDMA_USER_CM_CMD_RESOLVE_ADDR, input)
    }

    /// Finds the route to the resolved address: an event follows.
    pub fn resolve_route(&self, id: u32, limit: Duration) -> io::Result<()> {
        self.tell(RDMA_USER_CM_CMD_RESOLVE_ROUTE, ResolveRoute { id, timeout_ms: milliseconds(limit) })
    }

    /// The local and the remote address of an ID; `None` for one that it has not.
    pub fn addresses(&self, id: u32) -> io::Result<[Option<SocketAddr>; 2]> {
        let mut output = QueryAddrResp::default();
        let input = |response| Query { response, id, option: RDMA_USER_CM_QUERY_ADDR };
        self.ask(RDMA_USER_CM_CMD_QUERY, input, &mut output)?;
        Ok([output.src_addr, output.dst_addr].map(|address| address_in(&address)))
    }

    /// Sets an option of an ID that is a byte.
    pub fn set_option(&self, id: u32, optname: u32, value: u8) -> io::Result<()> {
        let value = [value];
        // Read, not written: the kernel copies the value during the call.
        let optval = value.as_ptr() as u64;
        let input = SetOption { optval, id, level: RDMA_OPTION_ID, optname, optlen: 1 };
        self.tell(RDMA_USER_CM_CMD_SET_OPTION, input)
    }

    /// Listens on the address that an ID is bound to. `backlog` requests may wait for [`next_event`](Self::next_event).
    pub fn listen(&self, id: u32, backlog: u32) -> io::Result<()> {
        self.tell(RDMA_USER_CM_CMD_LISTEN, Listen { id, backlog })
    }

    /// Requests a connection, or a datagram service's queue pair: an event follows.
    pub fn connect(&self, id: u32, conn_param: ConnParam) -> io::Result<()> {
        let input = Connect { conn_param, id, reserved: 0, ece: Ece::default() };
        self.tell(RDMA_USER_CM_CMD_CONNECT, input)
    }

    /// Accepts a request. Its events say `uid` from now on.
    pub fn accept(&self, id: u32, uid: u64, conn_param: ConnParam) -> io::Result<()> {
        let input = Accept { uid, conn_param, id, reserved: 0, ece: Ece::default() };
        self.tell(RDMA_USER_CM_CMD_ACCEPT, input)
    }

    /// Tells the remote that the connection it accepted is ready.
    pub fn ready(&self, id: u32, uid: u64) -> io::Result<()> {
        self.accept(id, uid, ConnParam::default())
    }

    /// Rejects a request or a reply; reason 0 is the program's own.
    pub fn reject(&self, id: u32, reason: u8, data: &[u8]) -> io::Result<()> {
        let (private_data, private_data_len) = private(data)?;
        let input = Reject { id, private_data_len, reason, reserved: [0; 2], private_data };
        self.tell(RDMA_USER_CM_CMD_REJECT, input)
    }

    /// Ends a connection, or confirms that the remote has ended it.
    pub fn disconnect(&self, id: u32) -> io::Result<()> {
        self.tell(RDMA_USER_CM_CMD_DISCONNECT, Disconnect { id })
    }

    /// Tells that a message came before the connection was established.
    pub fn communication_established(&self, id: u32) -> io::Result<()> {
        self.tell(RDMA_USER_CM_CMD_NOTIFY, Notify { id, event: kind::EVENT_COMM_EST })
    }

    /// Attributes of the transition of an ID's queue pair to `qp_state`.
    pub fn queue_pair_attributes(&self, id: u32, qp_state: u32) -> io::Result<QpAttr> {
        let mut output = QpAttr::default();
        self.ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, |response| InitQpAttr { response, id, qp_state }, &mut output)?;
        Ok(output)
    }

    /// Joins a multicast group by the device of an ID: an event follows, which says `uid`. Returns the membership.
    pub fn join(&self, id: u32, uid: u64, group: SocketAddr) -> io::Result<u32> {
        let (addr, addr_size) = sockaddr(group);
        let mut output = CreateIdResp::default();
        let join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
        let input = |response| JoinMcast { response, uid, id, addr_size, join_flags, addr };
        self.ask(RDMA_USER_CM_CMD_JOIN_MCAST, input, &mut output)?;
        Ok(output.id)
    }

    /// Leaves a multicast group.
    pub fn leave(&self, membership: u32) -> io::Result<()> {
        let input = |response| DestroyId { response, id: membership, reserved: 0 };
        self.ask(RDMA_USER_CM_CMD_LEAVE_MCAST, input, &mut DestroyIdResp::default())
    }

    /// The next event; `None` if there is none.
    pub fn next_event(&self) -> io::Result<Option<EventResp>> {
        let mut output = EventResp::default();
        match self.ask(RDMA_USER_CM_CMD_GET_EVENT, |response| GetEvent { response }, &mut output) {
            Ok(()) => Ok(Some(output)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A command without output.
    fn tell(&self, cmd: u32, input: impl IntoBytes + zerocopy::Immutable) -> io::Result<()> {
        self.write(cmd, input.as_bytes(), 0)
    }

    /// A command with output: `input` takes its address.
    fn ask<I, O>(&self, cmd: u32, input: impl FnOnce(u64) -> I, output: &mut O) -> io::Result<()>
    where
        I: IntoBytes + zerocopy::Immutable,
        O: IntoBytes + FromBytes,
    {
        let bytes = output.as_mut_bytes();
        let (address, room) = (bytes.as_mut_ptr() as u64, bytes.len());
        self.write(cmd, input(address).as_bytes(), room)
    }

    /// Writes a command.
    fn write(&self, cmd: u32, input: &[u8], room: usize) -> io::Result<()> {
        let header = CmdHdr { cmd, r#in: input.len() as u16, out: room as u16 };
        let command = [header.as_bytes(), input].concat();
        // SAFETY: `command` is a whole command of rdma_user_cm.h. Those above make it: the only addresses in it are of
        // a value that the kernel reads during the call, and of an output that `ask` borrows exclusively until then,
        // of plain bytes; `room` is its size.
        let written = unsafe { libc::write(self.file.as_raw_fd(), command.as_ptr().cast(), command.len()) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl ConnParam {
    /// Of queue pair `qp_num`, with the program's private data; everything else is to be set.
    pub fn new(qp_num: u32, data: &[u8]) -> io::Result<Self> {
        let (private_data, private_data_len) = private(data)?;
        Ok(ConnParam { qp_num, private_data, private_data_len, valid: 1, ..ConnParam::default() })
    }

    /// The program's private data.
    pub fn data(&self) -> &[u8] {
        &self.private_data.as_bytes()[..usize::from(self.private_data_len)]
    }
}

impl UdParam {
    /// The program's private data.
    pub fn data(&self) -> &[u8] {
        &self.private_data.as_bytes()[..usize::from(self.private_data_len)]
    }
}

impl EventResp {
    /// What the remote tells, of a connection.
    pub fn connection(&self) -> ConnParam {
        ConnParam::read_from_prefix(self.param.as_bytes()).map_or_else(|_| ConnParam::default(), |(param, _)| param)
    }
}

/// `data` in its field. Errors: more than the field's length can say.
fn private(data: &[u8]) -> io::Result<(PrivateData, u8)> {
    let len = u8::try_from(data.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let mut field = PrivateData::default();
    field.as_mut_bytes()[..data.len()].copy_from_slice(data);
    Ok((field, len))
}

fn milliseconds(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis()).unwrap_or(u32::MAX)
}

/// Offsets in a `sockaddr_in`, and in a `sockaddr_in6`.
const PORT: usize = 2;
const ADDRESS: usize = 4;
const FLOW: usize = 4;
const ADDRESS6: usize = 8;
const SCOPE: usize = 24;

/// An address as a `sockaddr`, and its length.
fn sockaddr(address: SocketAddr) -> (SockaddrStorage, u16) {
    let mut storage = SockaddrStorage::default();
    let bytes = storage.as_mut_bytes();
    bytes[PORT..PORT + 2].copy_from_slice(&address.port().to_be_bytes());
    let (family, len) = match address {
        SocketAddr::V4(address) => {
            bytes[ADDRESS..ADDRESS + 4].copy_from_slice(&address.ip().octets());
            (libc::AF_INET, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(address) => {
            bytes[FLOW..FLOW + 4].copy_from_slice(&address.flowinfo().to_be_bytes());
            bytes[ADDRESS6..ADDRESS6 + 16].copy_from_slice(&address.ip().octets());
            bytes[SCOPE..SCOPE + 4].copy_from_slice(&address.scope_id().to_ne_bytes());
            (libc::AF_INET6, size_of::<libc::sockaddr_in6>())
        }
    };
    bytes[..PORT].copy_from_slice(&(family as u16).to_ne_bytes());
    (storage, len as u16)
}

/// The address in a `sockaddr`; `None` for one of another family.
fn address_in(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let bytes = storage.as_bytes();
    let at = |offset: usize| bytes[offset..].first_chunk().copied().unwrap_or_default();
    let port = u16::from_be_bytes([bytes[PORT], bytes[PORT + 1]]);
    match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET => Some(SocketAddr::new(IpAddr::from(at(ADDRESS)), port)),
        libc::AF_INET6 => {
            let address: [u8; 16] = bytes[ADDRESS6..].first_chunk().copied()?;
            let (flow, scope) = (u32::from_be_bytes(at(FLOW)), u32::from_ne_bytes(at(SCOPE)));
            Some(SocketAddrV6::new(Ipv6Addr::from(address), port, flow, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_from_their_sockaddr() {
        let link_local = SocketAddrV6::new("fe80::1".parse().unwrap(), 7174, 5, 3);
        for (address, len) in [("10.0.0.3:7174".parse().unwrap(), 16), (SocketAddr::V6(link_local), 28)] {
            let (storage, given) = sockaddr(address);
            assert_eq!((address_in(&storage), given), (Some(address), len));
        }
        let (storage, _) = sockaddr("10.0.0.3:7174".parse().unwrap());
        assert_eq!(storage.as_bytes()[2..8], [0x1c, 0x06, 10, 0, 0, 3]);
        assert_eq!(address_in(&SockaddrStorage::default()), None);
    }

    #[test]
    fn private_data_is_what_its_length_says() {
        let param = ConnParam::new(7, b"hello").unwrap();
        assert_eq!((param.data(), param.qp_num, param.valid), (&b"hello"[..], 7, 1));
        assert!(ConnParam::new(7, &[0; 256]).is_err());
        let mut event = EventResp::default();
        event.param.as_mut_bytes()[..size_of::<ConnParam>()].copy_from_slice(param.as_bytes());
        assert_eq!(event.connection().data(), b"hello");
    }

    #[test]
    fn a_file_that_is_no_connection_manager_refuses() {
        let null = OpenOptions::new().read(true).open("/dev/null").unwrap();
        let file = RdmaCm { file: null.into() };
        assert_eq!(file.disconnect(1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
