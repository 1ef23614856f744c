//! Files beside the queues of a card: a [`FileQueue`] takes a registered [`Buffer`], lets the kernel read or write it
//! by io_uring while the thread goes on, and returns it with its completion, as a connection does.
//!
//! ```no_run
//! # fn f(pd: &std::sync::Arc<mlx5_dv::objects::Pd>) -> Result<(), Box<dyn std::error::Error>> {
//! use mlx5_dv::objects::ExclusiveRegion;
//! use mlx5_files::FileQueue;
//!
//! let mut queue = FileQueue::new(std::fs::File::open("/tmp/disk")?, 64)?;
//! let mut buffers = ExclusiveRegion::allocate(pd, 1 << 20)?.buffers(4096)?;
//! queue.read(0, buffers.pop().ok_or("a buffer")?, 7)?;
//! let done = loop {
//!     if let Some(done) = queue.poll()? {
//!         break done;
//!     }
//! };
//! done.result?;
//! # Ok(())
//! # }
//! ```

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use mlx5_dv::objects::Buffer;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Most operations of a queue at once: half of what the kernel takes.
const DEEPEST: u32 = 16384;

/// The `user_data` of a request that cancels others: no operation has it.
const CANCEL: u64 = u64::MAX;

/// What is written where zeros are: from a page on, as direct I/O wants it.
#[repr(align(4096))]
struct Zeros([u8; 1 << 18]);

static ZEROS: Zeros = Zeros([0; 1 << 18]);

/// How long a queue that is dropped waits for operations, if not told otherwise, and for those that it then cancels.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why an operation was not started. It changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedReason {
    /// As many operations as the queue has room for are under way.
    #[error("the file's queue is full: poll, and try again")]
    Full,
    /// A buffer that others reach, whose bytes the kernel must not touch.
    #[error("the buffer is not of an ExclusiveRegion")]
    Shared,
    /// Bytes that no file can have.
    #[error("the operation ends beyond byte 2^63 - 1, the last of the longest file")]
    Offset,
}

/// An operation that was not started, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// The buffer; `None` where there was none.
    pub buffer: Option<Buffer>,
    /// The cause.
    pub reason: RefusedReason,
}

/// An operation that is done.
#[derive(Debug)]
pub struct Done {
    /// The number that the caller gave it.
    pub user: u64,
    /// Its buffer.
    pub buffer: Option<Buffer>,
    /// What became of it: all of it was done, or an error.
    pub result: io::Result<()>,
}

/// What an operation does.
#[derive(Debug, Clone, Copy)]
enum Work {
    Read,
    Write,
    /// Gives the blocks of this many bytes back to the file system.
    Zero {
        len: u64,
    },
    /// Writes [`ZEROS`] over this many bytes, whose blocks the file system does not take back.
    WriteZeros {
        len: u64,
    },
    Flush,
}

/// An operation under way.
#[derive(Debug)]
struct Entry {
    user: u64,
    work: Work,
    offset: u64,
    buffer: Option<Buffer>,
    /// Bytes that are read or written: the kernel may do fewer than all at once.
    done: u64,
}

impl Entry {
    /// Bytes that are still to be read or written.
    fn left(&self) -> u64 {
        let len = match self.work {
            Work::Read | Work::Write => self.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64),
            Work::WriteZeros { len } => len,
            Work::Zero { .. } | Work::Flush => 0,
        };
        len - self.done
    }
}

/// A file, and operations on it that the kernel does while the thread goes on. For one thread at a time.
///
/// Starting and polling make one system call for all operations that were started since the last.
pub struct FileQueue {
    ring: IoUring,
    file: File,
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    /// Whether the kernel has not been told of all operations.
    untold: bool,
    patience: Duration,
    /// Whether it was asked to end what is under way: nothing goes on.
    cancelled: bool,
}

impl std::fmt::Debug for FileQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileQueue({:?}, {} under way)", self.file, self.under_way())
    }
}

impl FileQueue {
    /// For `depth` operations at once.
    ///
    /// # Errors
    /// The kernel's: without io_uring, or where a policy forbids it (seccomp, `kernel.io_uring_disabled`), it is
    /// [`io::ErrorKind::PermissionDenied`] or `ENOSYS`.
    pub fn new(file: File, depth: u32) -> io::Result<Self> {
        if !(1..=DEEPEST).contains(&depth) {
            let what = format!("a file's queue of {depth} operations: it must have 1 to {DEEPEST}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let entries = (0..depth).map(|_| None).collect();
        let free = (0..depth as usize).rev().collect();
        Ok(FileQueue {
            ring: IoUring::new(depth)?,
            file,
            entries,
            free,
            untold: false,
            patience: PATIENCE,
            cancelled: false,
        })
    }

    /// Sets how long dropping the queue waits for its operations, 30 seconds if not set. Then it cancels them, which
    /// ends reads of a pipe or a socket, and waits another 30 seconds at most for the kernel to let go of the buffers;
    /// those that it does not let go of are leaked.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Operations under way.
    pub fn under_way(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Reads from byte `offset` on into all of `buffer`. `user` comes back with it.
    ///
    /// # Errors
    /// [`Refused`], with the buffer.
    pub fn read(&mut self, offset: u64, buffer: Buffer, user: u64) -> Result<(), Refused> {
        self.start(Work::Read, offset, Some(buffer), user)
    }

    /// Writes all of `buffer` from byte `offset` on.
    ///
    /// # Errors
    /// [`Refused`], with the buffer.
    pub fn write(&mut self, offset: u64, buffer: Buffer, user: u64) -> Result<(), Refused> {
        self.start(Work::Write, offset, Some(buffer), user)
    }

    /// Makes `len` bytes from byte `offset` on zeros, by giving their blocks back to the file system, or by writing
    /// zeros where it takes none back.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn zero(&mut self, offset: u64, len: u64, user: u64) -> Result<(), Refused> {
        self.start(Work::Zero { len }, offset, None, user)
    }

    /// Makes durable what was written and reported before.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn flush(&mut self, user: u64) -> Result<(), Refused> {
        self.start(Work::Flush, 0, None, user)
    }

    fn start(&mut self, work: Work, offset: u64, buffer: Option<Buffer>, user: u64) -> Result<(), Refused> {
        if buffer.as_ref().is_some_and(|buffer| !buffer.is_exclusive()) {
            return Err(Refused { buffer, reason: RefusedReason::Shared });
        }
        let len = match work {
            Work::Zero { len } => len,
            _ => buffer.as_ref().map_or(0, |buffer| buffer.len() as u64),
        };
        if offset.checked_add(len).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(Refused { buffer, reason: RefusedReason::Offset });
        }
        let Some(slot) = self.free.pop() else { return Err(Refused { buffer, reason: RefusedReason::Full }) };
        let entry = self.entries[slot].insert(Entry { user, work, offset, buffer, done: 0 });
        let request = request(&self.file, slot, entry);
        if self.push(request) {
            return Ok(());
        }
        self.free.push(slot);
        let buffer = self.entries[slot].take().and_then(|entry| entry.buffer);
        Err(Refused { buffer, reason: RefusedReason::Full })
    }

    /// Whether there was room.
    fn push(&mut self, request: squeue::Entry) -> bool {
        // SAFETY: the request names this queue's file, which is open until the ring is gone, and `ZEROS`, which the
        // kernel reads, or the bytes of a buffer in `entries`: of an `ExclusiveRegion`, so nobody else reaches them,
        // and no card has a work request on them. The buffer leaves `entries` with its completion alone; `drop` waits
        // for that, or leaks it.
        let pushed = unsafe { self.ring.submission().push(&request) }.is_ok();
        self.untold |= pushed;
        pushed
    }

    /// The next operation that is done; `None` while there is none. Tells the kernel of those that were started.
    ///
    /// # Errors
    /// The kernel's, of io_uring itself.
    pub fn poll(&mut self) -> io::Result<Option<Done>> {
        if self.untold {
            match self.ring.submit() {
                Ok(_) => self.untold = !self.ring.submission().is_empty(),
                // Later: it is out of memory, or its completions wait to be taken.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
        while let Some(completion) = { self.ring.completion().next() } {
            if let Some(done) = self.completed(completion.user_data() as usize, completion.result()) {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }

    /// The operation of `slot` has returned `result`: it is done, or goes on.
    fn completed(&mut self, slot: usize, result: i32) -> Option<Done> {
        let entry = self.entries.get_mut(slot)?.as_mut()?;
        let result = match u64::try_from(result) {
            Err(_) => Err(io::Error::from_raw_os_error(result.saturating_neg())),
            Ok(some) if some >= entry.left() => Ok(()),
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(some) => {
                entry.done += some;
                Err(io::ErrorKind::Interrupted.into())
            }
        };
        let goes_on = match (entry.work, result.as_ref().err().map(io::Error::kind)) {
            (Work::Zero { len }, Some(io::ErrorKind::Unsupported)) => {
                entry.work = Work::WriteZeros { len };
                true
            }
            (_, error) => error == Some(io::ErrorKind::Interrupted),
        };
        if goes_on && !self.cancelled {
            let request = request(&self.file, slot, entry);
            if self.push(request) {
                return None;
            }
        }
        let entry = self.entries[slot].take()?;
        self.free.push(slot);
        Some(Done { user: entry.user, buffer: entry.buffer, result })
    }

    /// Waits until nothing is under way, at most for `limit`. Returns whether that is so.
    fn drain(&mut self, limit: Duration) -> bool {
        let end = Instant::now().checked_add(limit);
        while self.under_way() > 0 {
            let left = end.map_or(PATIENCE, |end| end.saturating_duration_since(Instant::now()));
            while let Ok(Some(_)) = self.poll() {}
            if self.under_way() == 0 || left.is_zero() || !self.wait_one(left) {
                break;
            }
        }
        self.under_way() == 0
    }

    /// Waits until a completion comes, for at most `limit`. Returns whether the kernel takes such calls.
    fn wait_one(&mut self, limit: Duration) -> bool {
        let timeout = types::Timespec::from(limit);
        let waited = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&timeout));
        match waited {
            Ok(_) => true,
            Err(error) => is_passing(&error) || error.raw_os_error() == Some(Errno::TIME.raw_os_error()),
        }
    }

    /// Asks the kernel to end what is under way. What it interrupts does not go on.
    fn cancel(&mut self) {
        self.cancelled = true;
        let slots = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_some()).map(|(slot, _)| slot as u64);
        for slot in slots.collect::<Vec<_>>() {
            self.push(opcode::AsyncCancel::new(slot).build().user_data(CANCEL));
            // The ring may have no room for more.
            let _ = self.ring.submit();
        }
    }
}

impl Drop for FileQueue {
    fn drop(&mut self) {
        if self.drain(self.patience) {
            return;
        }
        self.cancel();
        if !self.drain(PATIENCE) {
            tracing::error!(file = ?self.file, "operations did not end; their buffers are leaked");
            self.entries.drain(..).for_each(std::mem::forget);
        }
    }
}

/// Whether the kernel may take the same call later.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, ResourceBusy, WouldBlock};
    matches!(error.kind(), Interrupted | ResourceBusy | WouldBlock)
}

/// What the kernel is told of the operation in `slot`: of the bytes that are not done.
fn request(file: &File, slot: usize, entry: &mut Entry) -> squeue::Entry {
    let fd = types::Fd(file.as_raw_fd());
    let offset = entry.offset + entry.done;
    let left = entry.left();
    let bytes = entry.buffer.as_mut().map_or(&mut [][..], |buffer| &mut buffer.as_mut_slice()[entry.done as usize..]);
    // Longer ones go on when they have done this much.
    let len = u32::try_from(left).unwrap_or(1 << 30);
    let made = match entry.work {
        Work::Read => opcode::Read::new(fd, bytes.as_mut_ptr(), len).offset(offset).build(),
        Work::Write => opcode::Write::new(fd, bytes.as_ptr(), len).offset(offset).build(),
        Work::WriteZeros { .. } => {
            let zeros = &ZEROS.0;
            opcode::Write::new(fd, zeros.as_ptr(), len.min(zeros.len() as u32)).offset(offset).build()
        }
        Work::Zero { len } => {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            opcode::Fallocate::new(fd, len).offset(offset).mode(mode.bits() as i32).build()
        }
        Work::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
    };
    made.user_data(slot as u64)
}
