//! A device served at a socket by the vfio-user protocol: a model in another process, ours or another's.
//!
//! The protocol's client waits for each reply without a limit. It therefore runs on a thread of its own, and callers
//! wait for that thread with a deadline. A server that hangs counts as dead.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
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

/// Longest wait for a reply. A live server replies to every message of the protocol at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses that a model accepts: all of 48 bits but the last page, and nothing below 1 MiB.
const ADDRESSES: (u64, u64) = (1 << 20, (1 << 48) - (1 << 12) - 1);

/// Opens the function served at `socket`.
///
/// # Errors
/// [`Error::Refused`] if there is no server, or what it serves is not a PCI device.
pub fn open(socket: &Path) -> Result<Function, Error> {
    open_within(socket, PATIENCE)
}

/// As [`open`], from a server each of whose replies is waited for `patience`.
fn open_within(socket: &Path, patience: Duration) -> Result<Function, Error> {
    let name = format!("vfio-user:{}", socket.display());
    let (server, info) = Server::connect(socket, patience).map_err(|failure| refused(&name, socket, failure))?;
    let server = Arc::new(server);
    let bar = ServedBar { server: Arc::clone(&server), size: info.bar_size, areas: info.areas, file: info.file };
    let dma = Box::new(ServedDma(Arc::clone(&server)));
    let irq = Box::new(ServedIrq { server, vectors: info.vectors });
    // SAFETY: all three belong to the connection just made, and a server has one client at a time.
    Ok(unsafe { Function::new(name, Box::new(bar), dma, irq) })
}

fn refused(device: &str, socket: &Path, source: io::Error) -> Error {
    let serve = format!("mlx5 sim --socket {}", socket.display());
    let is_socket = std::fs::metadata(socket).map_or(true, |found| found.file_type().is_socket());
    let (reason, fix) = match source.kind() {
        _ if !is_socket => ("it is not a socket".into(), None),
        // The length of `sun_path`, with its final zero.
        io::ErrorKind::InvalidInput => ("the path of a socket has at most 107 bytes".into(), None),
        io::ErrorKind::NotFound => ("it does not exist".into(), Some(serve)),
        io::ErrorKind::ConnectionRefused => ("its server has ended".into(), Some(serve)),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            ("its server closed the connection; it may have just ended".into(), Some(serve))
        }
        io::ErrorKind::PermissionDenied => {
            ("this user may not connect to it".into(), Some(format!("sudo chown $USER {}", socket.display())))
        }
        io::ErrorKind::TimedOut => {
            ("its server does not answer: it may be serving another client, or hang".into(), None)
        }
        _ => ("it does not speak this driver's version of vfio-user".into(), None),
    };
    Error::Refused { device: device.into(), reason, fix, source: Some(source) }
}

/// What the server reports of its device.
struct DeviceInfo {
    bar_size: u64,
    /// Mappable parts of BAR 0: offset and length.
    areas: Vec<(u64, u64)>,
    /// The file that backs them, and the offset of the BAR in it.
    file: Option<(Arc<File>, u64)>,
    vectors: u32,
}

type Work = Box<dyn FnOnce(&mut Client) + Send>;

/// Handle of the client's thread.
struct Server {
    socket: PathBuf,
    work: mpsc::Sender<Work>,
    /// How the connection was lost.
    lost: OnceLock<io::ErrorKind>,
    patience: Duration,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.socket.display())
    }
}

impl Server {
    fn connect(socket: &Path, patience: Duration) -> io::Result<(Self, DeviceInfo)> {
        let (work, queue) = mpsc::channel::<Work>();
        let (ready, connected) = mpsc::sync_channel(1);
        let path = socket.to_path_buf();
        std::thread::Builder::new().name("mlx5 vfio-user".into()).spawn(move || {
            let mut client = match Client::new(&path).map_err(client_error).and_then(query_info) {
                Ok((client, info)) => {
                    let _ = ready.send(Ok(info));
                    client
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                    return;
                }
            };
            // Ends when all senders are dropped.
            for work in queue {
                work(&mut client);
            }
            let _ = client.shutdown();
        })?;
        let info = connected.recv_timeout(patience).map_err(|_| timed_out(patience))??;
        Ok((Server { socket: socket.into(), work, lost: OnceLock::new(), patience }, info))
    }

    /// Runs `work` on the client's thread. After a failure no more requests are sent: the stream may be out of step.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Client) -> Result<T, vfio_user::Error> + Send + 'static,
    ) -> io::Result<T> {
        if let Some(how) = self.lost.get() {
            // A server that did not answer in time is still there, and may go on.
            let kind = if *how == io::ErrorKind::TimedOut { *how } else { io::ErrorKind::NotConnected };
            return Err(io::Error::new(kind, "the connection to the device's server is lost"));
        }
        let (reply, answer) = mpsc::sync_channel(1);
        let work: Work = Box::new(move |client| {
            let _ = reply.send(work(client));
        });
        let result = match self.work.send(work) {
            Ok(()) => match answer.recv_timeout(self.patience) {
                Ok(result) => result.map_err(client_error),
                Err(_) => Err(timed_out(self.patience)),
            },
            Err(_) => Err(io::Error::other("the client's thread ended")),
        };
        if let Err(error) = &result {
            let _ = self.lost.set(error.kind());
        }
        result
    }
}

fn timed_out(patience: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the device's server did not answer for {patience:?}"))
}

/// The system error inside the client's error.
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

/// Reads the device's regions and interrupts.
fn query_info(mut client: Client) -> io::Result<(Client, DeviceInfo)> {
    let no_bar = || io::Error::new(io::ErrorKind::InvalidData, "the device has no BAR 0");
    let bar = client.region(VFIO_PCI_BAR0_REGION_INDEX).filter(|region| region.size > 0).ok_or_else(no_bar)?;
    let bar_size = bar.size;
    let areas = bar.sparse_areas.iter().map(|area| (area.offset, area.size)).collect();
    let file = match &bar.file_offset {
        Some(at) => Some((Arc::new(at.file().try_clone()?), at.start())),
        None => None,
    };
    let vectors = client.get_irq_info(VFIO_PCI_MSIX_IRQ_INDEX).map_err(client_error)?.count;
    Ok((client, DeviceInfo { bar_size, areas, file, vectors }))
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

// SAFETY: the server's file is mapped at the offset that it states for the part. That DMA stops when the server says so
// is its promise under the protocol: it is the device, and trusted like one.
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
        let at = base.checked_add(offset).ok_or(io::ErrorKind::InvalidData)?;
        map_file(file, at, len).map(Some)
    }

    fn reset(&self) -> io::Result<()> {
        self.server.ask(Client::reset)
    }

    fn set_bus_master(&self, enabled: bool) -> io::Result<()> {
        let read = || self.read(VFIO_PCI_CONFIG_REGION_INDEX, pci::COMMAND);
        pci::set_bus_master(enabled, read, |bytes| self.write(VFIO_PCI_CONFIG_REGION_INDEX, pci::COMMAND, bytes))
    }
}

/// Maps a part of a file that backs a part of the BAR.
fn map_file(file: &File, offset: u64, len: usize) -> io::Result<BarMapping> {
    let mapping = MmapOptions::new().offset(offset).len(len).map_raw(file)?;
    BarMapping::of_map(mapping, ())
}

#[derive(Debug)]
struct ServedDma(Arc<Server>);

// SAFETY: the server receives the files of what is mapped, and can reach no other memory of this process. That it
// unmaps them when it says so is its promise under the protocol.
unsafe impl DmaSpace for ServedDma {
    unsafe fn map(&self, range: HostRange<'_>, iova: Iova) -> io::Result<()> {
        let Some((file, offset)) = range.file() else { return Err(io::Error::from(io::ErrorKind::InvalidInput)) };
        // Sent by the other thread: the descriptor must stay open until then.
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
        // Sent by the other thread: the descriptors must stay open until then.
        let theirs: Vec<OwnedFd> = fds.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        self.server.ask(move |client| {
            let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
            // One vector per message: servers must accept at least that many descriptors.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Instant;

    use mlx5_prm::cmd::NopIn;
    use mlx5_sim::card::Card;
    use mlx5_sim::serve::vfio_user::serve;

    use super::*;
    use crate::objects::{AccessFlags, MemoryRegion, Pd};
    use crate::{Device, Options};

    #[test]
    fn no_socket_says_how_to_serve_one() {
        let error = open(Path::new("/nonexistent/nic.sock")).expect_err("nobody serves there");
        let text = error.to_string();
        assert!(text.contains("vfio-user:/nonexistent/nic.sock: it does not exist"), "{text}");
        assert!(text.contains("mlx5 sim --socket /nonexistent/nic.sock"), "{text}");
    }

    #[test]
    fn a_socket_nobody_listens_at_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nic.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
        let error = open(&path).expect_err("its listener is gone").to_string();
        assert!(error.contains("its server has ended"), "{error}");
    }

    #[test]
    fn a_server_s_file_has_no_part_behind_the_end_of_all_files() {
        let (work, _queue) = mpsc::channel();
        let server = Server { socket: PathBuf::new(), work, lost: OnceLock::new(), patience: PATIENCE };
        let file = Some((Arc::new(tempfile::tempfile().expect("a file")), u64::MAX - 4095));
        let bar = ServedBar { server: Arc::new(server), size: 1 << 20, areas: vec![(0, 1 << 20)], file };
        let error = bar.map(4096, 4096).expect_err("it would start at byte 2^64");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_server_that_never_answers_is_given_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nic.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let error = open_within(&path, Duration::from_millis(100)).expect_err("it never answers").to_string();
        assert!(error.contains("does not answer"), "{error}");
    }

    /// How long the driver takes to give up a card that stands still, and to end. `None` if the card does not come up
    /// within this `patience`.
    fn time_to_give_up(patience: Duration) -> Option<Duration> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nic.sock");
        let card = Card::builder().strict(true).build().expect("a card");
        let _service = serve(card.function(0), path.clone()).expect("a server");
        let device = Device::open(open_within(&path, patience).ok()?, Options::default()).ok()?;
        let pd = Pd::alloc(&device).expect("a protection domain");
        let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).expect("a region");

        let (release, released) = mpsc::channel::<()>();
        let (still, is_still) = mpsc::channel();
        let function = card.function(0);
        let held = std::thread::spawn(move || {
            function.with(move |_| {
                let _ = still.send(());
                let _ = released.recv();
            })
        });
        is_still.recv().expect("a card that stands still");
        let begin = Instant::now();
        let error = device.execute(&NopIn::default(), "").expect_err("nobody executes it");
        assert!(error.is_dead() && error.to_string().contains("did not answer"), "{error}");
        // It may go on, and write there.
        assert!(!error.frees_memory() && region.destroy().is_err());
        drop((pd, device));
        let took = begin.elapsed();
        drop(release);
        held.join().expect("a card that goes on");
        Some(took)
    }

    /// The longer ones are for busy machines.
    #[test]
    fn a_server_that_hangs_is_waited_for_once() {
        let mut patiences = (0..8).map(|doublings| Duration::from_millis(50) * 2_u32.pow(doublings));
        let is_short = |patience| time_to_give_up(patience).is_some_and(|took| took < 3 * patience);
        assert!(patiences.any(is_short), "it is waited for again and again");
    }
}
