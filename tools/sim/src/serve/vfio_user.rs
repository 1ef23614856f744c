//! Over the vfio-user protocol, by the crate of that name: QEMU, cloud-hypervisor, our own driver in another process.
//!
//! One socket serves one function to one client at a time; the next one waits. When a client leaves, however it leaves,
//! its mappings and eventfds are dropped and the function is reset, as VFIO does when a device file is closed. Its
//! mapping of the UAR pages cannot be taken from it, so the next client gets other memory for them.
//!
//! Memory that a client maps without a descriptor (ROMs, BARs of other devices) is known but cannot be reached: the
//! server crate has no messages for that. Two more limits are the crate's: a client that announces a message of
//! gigabytes is believed until it is read, and a connected client cannot be thrown out.

mod backend;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info, vfio_region_sparse_mmap_area,
};
use vfio_user::{IrqInfo, Server, ServerRegion, SparseArea};

use crate::bar::{MemoryError, UarMemory};
use crate::card::FunctionHandle;
use crate::pci::CONFIG_SIZE;
use backend::Backend;

/// How long the server waits before it tries again what the system had nothing left for.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a function is not served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Somebody else serves there.
    #[error("{}: a server listens there already", .path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There is something else of that name.
    #[error("{}: exists and is no socket", .path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("{}: {source}", .path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No thread.
    #[error("cannot start the server thread: {0}")]
    Thread(#[source] io::Error),
}

/// A function served at a socket, by a thread of its own. Dropping it stops listening and removes the socket; a client
/// that is connected stays so until it leaves, or the card's power is off.
#[derive(Debug)]
pub struct Service {
    path: PathBuf,
    /// The listening socket once more, to end the server's wait.
    listener: Option<UnixListener>,
    stop: Arc<AtomicBool>,
    connected: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Serves `function` at a socket that it makes at `path`, until the answer is dropped. A socket that a dead server left
/// there is replaced. Clients can connect when this returns.
///
/// # Errors
/// Somebody listens there already, the socket cannot be made, or the process is out of descriptors or threads.
pub fn serve(function: FunctionHandle, path: impl Into<PathBuf>) -> Result<Service, ServeError> {
    let path = path.into();
    let listener = listen(&path)?;
    let io = |source| ServeError::Listen { path: path.clone(), source };
    let again = listener.try_clone().map_err(io)?;
    let (stop, connected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let worker = Worker { listener, function, stop: stop.clone(), connected: connected.clone() };
    let thread = std::thread::Builder::new()
        .name("mlx5-sim vfio-user".into())
        .spawn(move || worker.run())
        .map_err(ServeError::Thread)?;
    Ok(Service { path, listener: Some(again), stop, connected, thread: Some(thread) })
}

impl Service {
    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a client has the function now.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// Whether the server has ended, which it does when listening fails.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the server ends, which it does when listening fails.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Only a name that is still ours: after `stop` no successor can have been told that it is free.
        let _ = std::fs::remove_file(&self.path);
        // A listening socket that is shut down accepts nobody any more, and says so to who waits for that.
        if let Some(listener) = self.listener.take() {
            let _ = UnixStream::from(OwnedFd::from(listener)).shutdown(std::net::Shutdown::Both);
        }
        let busy = self.is_connected();
        if let Some(thread) = self.thread.take().filter(|_| !busy) {
            let _ = thread.join();
        }
    }
}

/// What the server's thread owns.
struct Worker {
    listener: UnixListener,
    function: FunctionHandle,
    stop: Arc<AtomicBool>,
    connected: Arc<AtomicBool>,
}

/// Why a client was not served to its end.
#[derive(Debug, Error)]
enum ClientError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("no descriptor for the socket: {0}")]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Server(#[from] vfio_user::Error),
    /// The crate trusts its client's message lengths in places.
    #[error("it sent what the protocol does not allow")]
    Panic,
}

impl Worker {
    /// One client after the other.
    fn run(self) {
        let mut is_short = false;
        while !self.stop.load(Ordering::Acquire) {
            let end = self.serve_one();
            let was_short = std::mem::replace(&mut is_short, false);
            match end {
                Ok(()) => tracing::info!("client left"),
                Err(_) if self.stop.load(Ordering::Acquire) => {}
                Err(error) if error.may_pass() => {
                    is_short = true;
                    if !was_short {
                        tracing::warn!("the next client has to wait: {error}");
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) if error.is_final() => return tracing::error!("no more clients: {error}"),
                Err(error) => tracing::warn!("client dropped: {error}"),
            }
        }
    }

    /// Waits for a client and serves it until it leaves.
    fn serve_one(&self) -> Result<(), ClientError> {
        let memory = self.function.new_uar_file()?;
        let server = server(&self.function, self.listener.try_clone()?, &memory);
        let mut backend = Backend::new(self.function.clone(), self.connected.clone());
        // A panic must end the client, not the card.
        let end = catch_unwind(AssertUnwindSafe(|| server.run(&mut backend)));
        if self.connected.swap(false, Ordering::AcqRel) {
            self.function.abandon();
        }
        Ok(end.map_err(|_| ClientError::Panic)??)
    }
}

impl ClientError {
    /// Whether the client can still be had later: the system has no descriptors or memory left, or it gave up waiting.
    fn may_pass(&self) -> bool {
        let error = match self {
            ClientError::Memory(error) => return !matches!(error, MemoryError::NoPower),
            ClientError::Socket(error) | ClientError::Server(vfio_user::Error::SocketAccept(error)) => error,
            _ => return false,
        };
        let passing = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::ECONNABORTED];
        error.raw_os_error().is_some_and(|number| passing.contains(&number))
    }

    /// Whether no other client can be had either.
    fn is_final(&self) -> bool {
        use ClientError::{Memory, Server, Socket};
        matches!(self, Memory(_) | Socket(_) | Server(vfio_user::Error::SocketAccept(_)))
    }
}

fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    let io = |source| ServeError::Listen { path: path.to_owned(), source };
    if let Ok(meta) = std::fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(ServeError::NotASocket { path: path.to_owned() });
        }
        if UnixStream::connect(path).is_ok() {
            return Err(ServeError::InUse { path: path.to_owned() });
        }
        std::fs::remove_file(path).map_err(io)?;
    }
    UnixListener::bind(path).map_err(io)
}

fn server(function: &FunctionHandle, listener: UnixListener, memory: &UarMemory) -> Server {
    let irqs = (0..VFIO_PCI_NUM_IRQS).map(|index| match index {
        VFIO_PCI_MSIX_IRQ_INDEX => IrqInfo { index, flags: VFIO_IRQ_INFO_EVENTFD, count: function.vectors().into() },
        _ => IrqInfo { index, flags: 0, count: 0 },
    });
    let regions = (0..VFIO_PCI_NUM_REGIONS).map(|index| match index {
        VFIO_PCI_BAR0_REGION_INDEX => bar_region(function, memory),
        VFIO_PCI_CONFIG_REGION_INDEX => region(index, CONFIG_SIZE as u64),
        _ => region(index, 0),
    });
    Server::from_owned_fd(listener.into(), true, irqs.collect(), regions.collect())
}

/// A region that can be reached by messages only; absent if it is empty.
fn region(index: u32, size: u64) -> ServerRegion {
    let flags = if size > 0 { VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE } else { 0 };
    let argsz = size_of::<vfio_region_info>() as u32;
    let region_info = vfio_region_info { argsz, index, size, flags, ..Default::default() };
    ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
}

fn bar_region(function: &FunctionHandle, memory: &UarMemory) -> ServerRegion {
    let mut region = region(VFIO_PCI_BAR0_REGION_INDEX, function.bar_size());
    if let Some(file) = &memory.file {
        region.region_info.flags |= VFIO_REGION_INFO_FLAG_MMAP;
        region.mmap_fd = Some(file.as_raw_fd());
        let area = |area: &crate::bar::UarArea| vfio_region_sparse_mmap_area { offset: area.offset, size: area.len };
        region.sparse_areas = memory.areas.iter().map(|each| SparseArea { area: area(each) }).collect();
    }
    region
}

#[cfg(test)]
mod tests;
