//! A device served at a socket, over the vfio-user protocol: our model in another process, or anyone's.
//!
//! The protocol's client waits for each answer without a limit. It therefore lives on a thread of its own, and whoever
//! asks it something waits for a while only: a server that hangs is as gone as one that died.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use memmap2::MmapOptions;
use rustix::event::{EventfdFlags, eventfd};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::Client;

use crate::access::{Bar, BarMapping, DmaSpace, Function, HostRange, Irq, pci};
use crate::error::Error;
use crate::memory::Iova;

/// How long the server may take to answer. Every message of the protocol is answered at once by a server that lives.
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses a model takes: all but the last page of 48 bits, and nothing below 1 MiB.
const ADDRESSES: (u64, u64) = (1 << 20, (1 << 48) - (1 << 12) - 1);

/// Reaches the function served at `socket`.
///
/// # Errors
/// [`Error::Refused`] when nobody serves there, or what serves there is no PCI device.
pub fn open(socket: &Path) -> Result<Function, Error> {
    let name = format!("vfio-user:{}", socket.display());
    let (server, face) = Server::connect(socket).map_err(|failure| refused(&name, socket, failure))?;
    let server = Arc::new(server);
    let bar = ServedBar { server: Arc::clone(&server), size: face.bar_size, areas: face.areas, file: face.file };
    let dma = Box::new(ServedDma(Arc::clone(&server)));
    let irq = Box::new(ServedIrq { server, vectors: face.vectors });
    // SAFETY: all three are of the connection just made, and a server takes one client at a time.
    Ok(unsafe { Function::new(name, Box::new(bar), dma, irq) })
}

fn refused(device: &str, socket: &Path, source: io::Error) -> Error {
    let serve = format!("mlx5 sim --socket {}", socket.display());
    let is_socket = std::fs::metadata(socket).map_or(true, |found| found.file_type().is_socket());
    let (reason, fix) = match source.kind() {
        _ if !is_socket => ("it is no socket".into(), None),
        io::ErrorKind::NotFound => ("there is no such socket".into(), Some(serve)),
        io::ErrorKind::ConnectionRefused => ("nobody serves at this socket any more".into(), Some(serve)),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            ("its server hung up; perhaps it just ended".into(), Some(serve))
        }
        io::ErrorKind::PermissionDenied => {
            ("this user may not connect to it".into(), Some(format!("sudo chown $USER {}", socket.display())))
        }
        io::ErrorKind::TimedOut => {
            ("its server does not answer; perhaps it serves another client now, or hangs".into(), None)
        }
        _ => ("it does not speak vfio-user as this driver does".into(), None),
    };
    Error::Refused { device: device.into(), reason, fix, source: Some(source) }
}

/// What the server said of its device.
struct Face {
    bar_size: u64,
    /// Parts of BAR 0 that can be mapped: offset and length.
    areas: Vec<(u64, u64)>,
    /// The file behind them, and where in it the BAR begins.
    file: Option<(Arc<File>, u64)>,
    vectors: u32,
}

type Work = Box<dyn FnOnce(&mut Client) + Send>;

/// The client's thread, from outside.
struct Server {
    socket: PathBuf,
    work: mpsc::Sender<Work>,
    gone: AtomicBool,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.socket.display())
    }
}

impl Server {
    fn connect(socket: &Path) -> io::Result<(Self, Face)> {
        let (work, queue) = mpsc::channel::<Work>();
        let (ready, connected) = mpsc::sync_channel(1);
        let path = socket.to_path_buf();
        std::thread::Builder::new().name("mlx5 vfio-user".into()).spawn(move || {
            let mut client = match Client::new(&path).map_err(client_error).and_then(face) {
                Ok((client, face)) => {
                    let _ = ready.send(Ok(face));
                    client
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            // Ends when all that could send work is dropped.
            for work in queue {
                work(&mut client);
            }
            let _ = client.shutdown();
        })?;
        let face = connected.recv_timeout(PATIENCE).map_err(|_| silent())??;
        Ok((Server { socket: socket.into(), work, gone: AtomicBool::new(false) }, face))
    }

    /// Has the client's thread do `work`. A server that failed once is not asked again: its stream may be out of step.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Client) -> Result<T, vfio_user::Error> + Send + 'static,
    ) -> io::Result<T> {
        if self.gone.load(Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the connection to the device's server is lost"));
        }
        let (reply, answer) = mpsc::sync_channel(1);
        let work: Work = Box::new(move |client| {
            let _ = reply.send(work(client));
        });
        let result = match self.work.send(work) {
            Ok(()) => match answer.recv_timeout(PATIENCE) {
                Ok(result) => result.map_err(client_error),
                Err(_) => Err(silent()),
            },
            Err(_) => Err(io::Error::other("the client's thread ended")),
        };
        if result.is_err() {
            self.gone.store(true, Ordering::Release);
        }
        result
    }
}

fn silent() -> io::Error {
    let seconds = PATIENCE.as_secs();
    io::Error::new(io::ErrorKind::TimedOut, format!("the device's server did not answer for {seconds} s"))
}

/// The system's error inside of the client's.
fn client_error(error: vfio_user::Error) -> io::Error {
    use vfio_user::Error as E;
    match error {
        E::Connect(source) | E::StreamRead(source) | E::StreamWrite(source) => {
            if source.kind() == io::ErrorKind::UnexpectedEof {
                io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")
            } else {
                source
            }
        }
        E::SendWithFd(source) | E::ReceiveWithFd(source) => io::Error::from_raw_os_error(source.errno()),
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}

/// Asks the device what it has.
fn face(mut client: Client) -> io::Result<(Client, Face)> {
    let no_bar = || io::Error::new(io::ErrorKind::InvalidData, "the device has no BAR 0");
    let bar = client.region(VFIO_PCI_BAR0_REGION_INDEX).filter(|region| region.size > 0).ok_or_else(no_bar)?;
    let bar_size = bar.size;
    let areas = bar.sparse_areas.iter().map(|area| (area.offset, area.size)).collect();
    let file = match &bar.file_offset {
        Some(at) => Some((Arc::new(at.file().try_clone()?), at.start())),
        None => None,
    };
    let vectors = client.get_irq_info(VFIO_PCI_MSIX_IRQ_INDEX).map_err(client_error)?.count;
    Ok((client, Face { bar_size, areas, file, vectors }))
}

#[derive(Debug)]
struct ServedBar {
    server: Arc<Server>,
    size: u64,
    areas: Vec<(u64, u64)>,
    file: Option<(Arc<File>, u64)>,
}

impl ServedBar {
    fn read<const N: usize>(&self, region: u32, offset: u64) -> io::Result<[u8; N]> {
        self.server.ask(move |client| {
            let mut bytes = [0xff; N];
            client.region_read(region, offset, &mut bytes)?;
            Ok(bytes)
        })
    }

    fn write<const N: usize>(&self, region: u32, offset: u64, bytes: [u8; N]) -> io::Result<()> {
        self.server.ask(move |client| client.region_write(region, offset, &bytes))
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        let inside = offset.is_multiple_of(len) && offset.checked_add(len).is_some_and(|end| end <= self.size);
        if inside { Ok(()) } else { Err(io::Error::from(io::ErrorKind::InvalidInput)) }
    }
}

// SAFETY: the server's file is mapped where it says that the part lies. That it stops DMA when it says so is the
// protocol's promise: it is the device, and believed like one.
unsafe impl Bar for ServedBar {
    fn size(&self) -> u64 {
        self.size
    }

    fn read32(&self, offset: u64) -> io::Result<u32> {
        self.check(offset, 4)?;
        Ok(u32::from_be_bytes(self.read(VFIO_PCI_BAR0_REGION_INDEX, offset)?))
    }

    unsafe fn write32(&self, offset: u64, value: u32) -> io::Result<()> {
        self.check(offset, 4)?;
        self.write(VFIO_PCI_BAR0_REGION_INDEX, offset, value.to_be_bytes())
    }

    unsafe fn write64(&self, offset: u64, value: u64) -> io::Result<()> {
        self.check(offset, 8)?;
        self.write(VFIO_PCI_BAR0_REGION_INDEX, offset, value.to_be_bytes())
    }

    fn map(&self, offset: u64, len: usize) -> io::Result<Option<BarMapping>> {
        let end = offset.saturating_add(len as u64);
        let inside = |(start, size): &(u64, u64)| *start <= offset && end <= start.saturating_add(*size);
        let Some((file, base)) = self.file.as_ref().filter(|_| self.areas.iter().any(inside)) else {
            return Ok(None);
        };
        map_file(file, base + offset, len).map(Some)
    }

    fn reset(&self) -> io::Result<()> {
        self.server.ask(Client::reset)
    }

    fn set_bus_master(&self, enabled: bool) -> io::Result<()> {
        let read = || self.read(VFIO_PCI_CONFIG_REGION_INDEX, pci::COMMAND);
        pci::set_bus_master(enabled, read, |bytes| self.write(VFIO_PCI_CONFIG_REGION_INDEX, pci::COMMAND, bytes))
    }
}

/// Maps a piece of a file that stands for a piece of the BAR.
fn map_file(file: &File, offset: u64, len: usize) -> io::Result<BarMapping> {
    let mapping = MmapOptions::new().offset(offset).len(len).map_raw(file)?;
    BarMapping::of_map(mapping, ())
}

#[derive(Debug)]
struct ServedDma(Arc<Server>);

// SAFETY: the server is given the files of what is mapped, and knows no other memory of this process. That it lets go
// of them when it says so is the protocol's promise.
unsafe impl DmaSpace for ServedDma {
    unsafe fn map(&self, range: HostRange<'_>, iova: Iova) -> io::Result<()> {
        let Some((file, offset)) = range.file() else { return Err(io::Error::from(io::ErrorKind::InvalidInput)) };
        // Sent from another thread: the descriptor has to live until it is.
        let file = file.try_clone_to_owned()?;
        let len = range.len() as u64;
        self.0.ask(move |client| client.dma_map(offset, iova.0, len, file.as_raw_fd()))
    }

    fn unmap(&self, iova: Iova, len: usize) -> io::Result<()> {
        self.0.ask(move |client| client.dma_unmap(iova.0, len as u64))
    }

    fn iova_ranges(&self) -> Vec<(u64, u64)> {
        vec![ADDRESSES]
    }

    fn takes_anonymous_memory(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct ServedIrq {
    server: Arc<Server>,
    vectors: u32,
}

impl Irq for ServedIrq {
    fn vectors(&self) -> u32 {
        self.vectors
    }

    fn enable(&self, count: u32) -> io::Result<Vec<OwnedFd>> {
        let new = |_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
        let fds: Vec<OwnedFd> = (0..count).map(new).collect::<io::Result<_>>()?;
        // Sent from another thread: the descriptors have to live until they are.
        let theirs: Vec<OwnedFd> = fds.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        self.server.ask(move |client| {
            let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
            // One vector a message: that is how many descriptors a server is bound to take at once.
            for (vector, fd) in theirs.iter().enumerate() {
                client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, flags, vector as u32, 1, &[fd.as_raw_fd()])?;
            }
            Ok(())
        })?;
        Ok(fds)
    }

    fn disable(&self) -> io::Result<()> {
        let flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
        self.server.ask(move |client| client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, flags, 0, 0, &[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_socket_says_how_to_serve_one() {
        let error = open(Path::new("/nonexistent/nic.sock")).expect_err("nobody serves there");
        let text = error.to_string();
        assert!(text.contains("vfio-user:/nonexistent/nic.sock: there is no such socket"), "{text}");
        assert!(text.contains("mlx5 sim --socket /nonexistent/nic.sock"), "{text}");
    }

    #[test]
    fn a_socket_nobody_listens_at_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nic.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
        let error = open(&path).expect_err("its listener is gone").to_string();
        assert!(error.contains("nobody serves at this socket any more"), "{error}");
    }

    #[test]
    fn a_server_that_never_answers_is_given_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nic.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let begin = std::time::Instant::now();
        let error = open(&path).expect_err("it never answers").to_string();
        assert!(error.contains("does not answer"), "{error}");
        assert!(begin.elapsed() < PATIENCE * 2);
    }
}
