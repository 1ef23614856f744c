//! How lines get from one end to the other: by TCP, as Ceph's do, or however a test wants.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Protocol, Socket, Type};

use crate::wire::Line;

/// A connection that carries lines.
pub type LinkId = u64;

/// What came over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Nothing yet.
    Nothing,
    /// A whole line, not checked.
    Line([u8; Line::BYTES]),
    /// The other end has closed it.
    Closed,
}

/// Carries lines. No call waits.
pub trait Lines: std::fmt::Debug {
    /// Accepts connections at `address` from now on. Returns where it listens.
    ///
    /// # Errors
    /// The address is in use, or not to be had.
    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr>;

    /// Starts to connect to `address`.
    ///
    /// # Errors
    /// No way there.
    fn dial(&mut self, address: SocketAddr) -> io::Result<LinkId>;

    /// A connection that another end has made, and where from.
    fn accept(&mut self) -> Option<(LinkId, SocketAddr)>;

    /// Sends a line. `false` if it has to be tried again: the connection is not made yet.
    ///
    /// # Errors
    /// There is no connection.
    fn send(&mut self, link: LinkId, line: &[u8; Line::BYTES]) -> io::Result<bool>;

    /// What came.
    ///
    /// # Errors
    /// There is no connection any more.
    fn receive(&mut self, link: LinkId) -> io::Result<Received>;

    /// Ends a connection.
    fn close(&mut self, link: LinkId);
}

/// Connections of which a line has partly come.
#[derive(Debug)]
struct Tcp {
    stream: TcpStream,
    line: [u8; Line::BYTES],
    has: usize,
}

/// Lines over TCP.
#[derive(Debug, Default)]
pub struct TcpLines {
    listener: Option<TcpListener>,
    links: HashMap<LinkId, Tcp>,
    next: LinkId,
}

impl TcpLines {
    /// Without connections.
    pub fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, stream: TcpStream) -> LinkId {
        self.next += 1;
        self.links.insert(self.next, Tcp { stream, line: [0; Line::BYTES], has: 0 });
        self.next
    }

    fn link(&mut self, link: LinkId) -> io::Result<&mut Tcp> {
        self.links.get_mut(&link).ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

/// Whether a call has to be tried again.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}

impl Lines for TcpLines {
    fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        self.listener = Some(listener);
        Ok(at)
    }

    fn dial(&mut self, address: SocketAddr) -> io::Result<LinkId> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(IN_PROGRESS) => return Err(error),
            _ => {}
        }
        Ok(self.add(socket.into()))
    }

    fn accept(&mut self) -> Option<(LinkId, SocketAddr)> {
        let (stream, from) = self.listener.as_ref()?.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some((self.add(stream), from))
    }

    fn send(&mut self, link: LinkId, line: &[u8; Line::BYTES]) -> io::Result<bool> {
        let tcp = self.link(link)?;
        if let Some(error) = tcp.stream.take_error()? {
            return Err(error);
        }
        match tcp.stream.write(line) {
            Ok(Line::BYTES) => Ok(true),
            // Nothing was ever sent on it: a kernel that has no room for 65 bytes has no connection.
            Ok(_) => Err(ErrorKind::WriteZero.into()),
            Err(error) if is_early(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn receive(&mut self, link: LinkId) -> io::Result<Received> {
        let tcp = self.link(link)?;
        match tcp.stream.read(&mut tcp.line[tcp.has..]) {
            Ok(0) => Ok(Received::Closed),
            Ok(bytes) => {
                tcp.has += bytes;
                if tcp.has < Line::BYTES {
                    return Ok(Received::Nothing);
                }
                tcp.has = 0;
                Ok(Received::Line(tcp.line))
            }
            Err(error) if is_early(&error) => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }

    fn close(&mut self, link: LinkId) {
        self.links.remove(&link);
    }
}

/// EINPROGRESS of Linux.
const IN_PROGRESS: i32 = 115;
