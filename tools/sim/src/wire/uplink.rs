//! Links to other processes.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

/// A link for Ethernet frames to other processes. Never blocks.
pub trait Uplink: Send + fmt::Debug {
    /// Sends a frame. A frame that cannot be sent is lost, as on any wire.
    fn send(&mut self, frame: &[u8]);
    /// Reads the next frame into `buffer`; returns its length. `None` if there is none.
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize>;
}

/// Maximum number of frames that wait for the other end. A UNIX socket holds only a few datagrams; without this, most
/// of each burst would be lost and retransmitted.
const BACKLOG: usize = 4096;

/// UNIX datagram socket with one Ethernet frame in each datagram: to another card's process, or to QEMU's `-netdev
/// dgram`.
#[derive(Debug)]
pub struct SocketUplink {
    socket: UnixDatagram,
    /// Destination of frames. They are lost while nobody listens there.
    peer: PathBuf,
    /// Whether the destination is the sender of the last datagram received.
    learns: bool,
    waiting: VecDeque<Vec<u8>>,
    local: PathBuf,
}

impl SocketUplink {
    /// One end of the wire named `path`. The first process listens there; the second uses `path.peer`, and announces
    /// itself. Until the first has received anything, it assumes the other at `path.peer`.
    pub fn join(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let mut other = path.as_os_str().to_owned();
        other.push(".peer");
        match bind(path) {
            Ok(socket) => Self::made(socket, path, PathBuf::from(other), true),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Self::between(Path::new(&other), path),
            Err(error) => Err(error),
        }
    }

    /// The end at `local` of a wire whose other end is at `remote`, which need not exist yet.
    pub fn between(local: impl AsRef<Path>, remote: impl AsRef<Path>) -> io::Result<Self> {
        let local = local.as_ref();
        let mut uplink = Self::made(bind(local)?, local, remote.as_ref().to_owned(), false)?;
        uplink.send(&[]); // an empty datagram announces our address; it is not a frame
        Ok(uplink)
    }

    fn made(socket: UnixDatagram, local: &Path, peer: PathBuf, learns: bool) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(SocketUplink { socket, peer, learns, waiting: VecDeque::new(), local: local.to_owned() })
    }

    fn learn(&mut self, from: &SocketAddr) {
        if let Some(path) = from.as_pathname()
            && self.learns
            && path != self.peer
        {
            self.peer = path.to_owned();
        }
    }

    /// Sends waiting frames. Returns false if the other end has no room.
    fn flush(&mut self) -> bool {
        while let Some(frame) = self.waiting.front() {
            if !self.send_now(frame) {
                return false;
            }
            self.waiting.pop_front();
        }
        true
    }

    /// Returns false if the other end has no room now; any other failure loses the frame.
    fn send_now(&self, frame: &[u8]) -> bool {
        match self.socket.send_to(frame, &self.peer) {
            Err(error) => error.kind() != ErrorKind::WouldBlock,
            Ok(_) => true,
        }
    }
}

impl Uplink for SocketUplink {
    fn send(&mut self, frame: &[u8]) {
        if self.flush() && self.send_now(frame) {
            return;
        }
        if self.waiting.len() < BACKLOG {
            self.waiting.push_back(frame.to_vec());
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.flush();
        loop {
            let (len, from) = self.socket.recv_from(buffer).ok()?;
            self.learn(&from);
            if len > 0 {
                return Some(len);
            }
        }
    }
}

impl Drop for SocketUplink {
    fn drop(&mut self) {
        // A name left behind is harmless: the next process that binds it finds no peer, and removes it.
        let _ = std::fs::remove_file(&self.local);
    }
}

/// Binds to `path`, also where a process that is gone has left its socket.
fn bind(path: &Path) -> io::Result<UnixDatagram> {
    match UnixDatagram::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(path) => {
            std::fs::remove_file(path)?;
            UnixDatagram::bind(path)
        }
        bound => bound,
    }
}

fn is_abandoned(path: &Path) -> bool {
    UnixDatagram::unbound()
        .and_then(|probe| probe.connect(path))
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}
