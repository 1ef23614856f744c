//! Serving over the vfio-user protocol, with the `vfio_user` crate: to QEMU, cloud-hypervisor, or our own driver in
//! another process.
//!
//! One socket serves one function to one client at a time; the next client waits. When a client disconnects for any
//! reason, its mappings and eventfds are dropped and the function is reset, as VFIO does when a device file is closed.
//! Its mapping of the UAR pages cannot be revoked, so the next client gets new memory for them.
//!
//! Clients are trusted not to shorten the files of their memory, which [`dma`](crate::dma) prevents where it can.
//!
//! Memory that a client maps without a file descriptor (ROMs, BARs of other devices) is recorded but cannot be
//! accessed: the crate does not implement the messages for it. Further limits of the crate: it allocates what a
//! client announces as message length, up to gigabytes; a connected client cannot be disconnected; and what is
//! refused, such as a mapping or an interrupt, has the flag of an error in its reply, but 0 as error number. The log
//! says why.

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

/// Delay before retrying after a lack of system resources.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a function cannot be served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Another server listens there.
    #[error("{}: another server already listens there", .path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path is too long for a socket.
    #[error("{}: the path of a socket has at most 107 bytes", .path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The path exists and is not a socket.
    #[error("{}: exists and is not a socket", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The socket cannot be created.
    #[error("{}: {source}", .path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No thread.
    #[error("cannot start the server thread: {0}")]
    Thread(#[source] io::Error),
}

/// A function served at a socket, by its own thread. Dropping it stops listening and removes the socket; a connected
/// client stays connected until it disconnects or the card is powered off.
#[derive(Debug)]
pub struct Service {
    path: PathBuf,
    /// A second descriptor of the listening socket, to end the server's wait.
    listener: Option<UnixListener>,
    stop: Arc<AtomicBool>,
    connected: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Serves `function` at a new socket at `path`, until the returned value is dropped. Replaces a socket left by a dead
/// server. Clients can connect when this returns.
///
/// # Errors
/// Another server listens there, the socket cannot be created, or the process is out of file descriptors or threads.
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

    /// Whether a client is connected.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    /// Whether the server has ended, because listening failed.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the server ends, because listening fails.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The name is still ours: it is removed before a successor could be told that it is free.
        let _ = std::fs::remove_file(&self.path);
        // Shutting down a listening socket ends the wait in `accept`.
        if let Some(listener) = self.listener.take() {
            let _ = UnixStream::from(OwnedFd::from(listener)).shutdown(std::net::Shutdown::Both);
        }
        let busy = self.is_connected();
        if let Some(thread) = self.thread.take().filter(|_| !busy) {
            let _ = thread.join();
        }
    }
}

/// State of the server's thread.
struct Worker {
    listener: UnixListener,
    function: FunctionHandle,
    stop: Arc<AtomicBool>,
    connected: Arc<AtomicBool>,
}

/// Why serving a client failed.
#[derive(Debug, Error)]
enum ClientError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("no descriptor for the socket: {0}")]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Server(#[from] vfio_user::Error),
    /// The crate panics on some invalid message lengths.
    #[error("the client sent an invalid message")]
    Panic,
}

impl Worker {
    /// Serves clients one after the other.
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

    /// Waits for a client, and serves it until it disconnects.
    fn serve_one(&self) -> Result<(), ClientError> {
        let memory = self.function.new_uar_file()?;
        let server = server(&self.function, self.listener.try_clone()?, &memory);
        let mut backend = Backend::new(self.function.clone(), self.connected.clone());
        // A panic must end the client only, not the card.
        let end = catch_unwind(AssertUnwindSafe(|| server.run(&mut backend)));
        if self.connected.swap(false, Ordering::AcqRel) {
            self.function.abandon();
        }
        Ok(end.map_err(|_| ClientError::Panic)??)
    }
}

impl ClientError {
    /// Whether a retry may succeed: the system lacks descriptors or memory, or waiting timed out.
    fn may_pass(&self) -> bool {
        let error = match self {
            ClientError::Memory(error) => return !matches!(error, MemoryError::NoPower),
            ClientError::Socket(error) | ClientError::Server(vfio_user::Error::SocketAccept(error)) => error,
            _ => return false,
        };
        let passing = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::ECONNABORTED];
        error.raw_os_error().is_some_and(|number| passing.contains(&number))
    }

    /// Whether no other client can be served either.
    fn is_final(&self) -> bool {
        use ClientError::{Memory, Server, Socket};
        matches!(self, Memory(_) | Socket(_) | Server(vfio_user::Error::SocketAccept(_)))
    }
}

/// Bytes of a socket's path: those of `sun_path`, less its final zero.
const MOST_PATH: usize = 107;

fn listen(path: &Path) -> Result<UnixListener, ServeError> {
    let io = |source| ServeError::Listen { path: path.to_owned(), source };
    if path.as_os_str().len() > MOST_PATH {
        return Err(ServeError::PathTooLong { path: path.to_owned() });
    }
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

/// A region accessed by messages only; absent if it is empty.
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
