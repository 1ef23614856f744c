//! Access to a function through the kernel's DevX ioctls, while the kernel's mlx5_ib driver owns it.
//!
//! The kernel brought the function up and configures its port, addresses and GIDs; nothing of that is done here.
//! Objects are created in a user context, beside the kernel's own, by the same commands as on an owned function. The
//! kernel inserts the context's uid into each command, and destroys whatever is left when this process ends. Memory is
//! named by umems alone, since only the kernel knows its DMA addresses.
//!
//! Protection domains, memory regions and device memory are the kernel's own objects: other processes may import them.
//!
//! `open.rs` finds and opens the device, `call.rs` is one ioctl, `events.rs` and `queries.rs` read what the kernel
//! delivers later, `flows.rs` steers frames, `clock.rs` reads the card's clock, `verbs.rs` has what the kernel makes by
//! its own verbs, `xrc.rs` what processes share by a file.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use mlx5_prm::eqe::EventType;
use zerocopy::IntoBytes;

use super::hca_cap::query_all;
use super::liveness::{Liveness, Wake};
use super::sealed::Sealed;
use super::subscribers::Subscribers;
use super::trace::{CommandSpan, Traced};
use super::{
    Access, AsyncEvents, BarMapping, CardMemory, KernelSteering, KernelVerbs, LentEvents, ObjectHandle, Options,
    RawCommand, UarHandle, UarMapping, UmemHandle, check_status, no_vector,
};
use crate::caps::Caps;
use crate::discovery::{RdmaDevice, RdmaGid, Sysfs};
use crate::error::{CommandError, CommandErrorKind, Death, Error, Invalid, MappingKind};
use crate::lock::lock;
use crate::memory::{DmaBuffer, DmaPool, HostMemory, Iova, Translation};
use crate::net::Gid;

mod call;
mod clock;
mod events;
mod flows;
mod open;
mod queries;
mod verbs;
mod xrc;

use crate::kernel::abi::*;
use call::{Call, Done, not_registered};
use clock::ClockPage;
use events::Events;
use queries::Queries;

/// Page sizes that the kernel may use for a umem, one bit per size. Without a limit it takes the largest that fits, and
/// then rejects memory that is one page of 4 GiB or more: it keeps the page size in 32 bits.
const UMEM_PAGES: u64 = (2 << Translation::LOG_LARGEST) - (1 << Translation::LOG_SMALLEST);
/// Port number. Only the first port is used.
const PORT: u8 = 1;

/// An opened function that the kernel owns.
pub(crate) struct Opened {
    /// Access to the function.
    pub access: Arc<dyn Access>,
    /// Its capabilities.
    pub caps: Caps,
    /// The GIDs that the kernel configured.
    pub gids: Vec<Gid>,
}

/// Opens the kernel's RDMA device `name`, such as `mlx5_0`. Those `options` that configure the function are ignored:
/// the kernel has configured it. An IPv4 address must be one that its network interface has.
///
/// # Errors
/// [`Error::Refused`] names the obstacle and, where known, the command that removes it.
pub(crate) fn open(name: &str, options: Options) -> Result<Opened, Error> {
    let sysfs = Sysfs::default();
    let device = open::find(&sysfs, name)?;
    let context = open::open(&device)?;
    start(&sysfs, &device, context, options)
}

/// Opens the device of `file`, a context that another process has created.
///
/// # Errors
/// [`Error::Refused`] for a file that is no context of an mlx5 device, or that its process has created without DevX.
pub(crate) fn import(file: OwnedFd, options: Options) -> Result<Opened, Error> {
    let sysfs = Sysfs::default();
    let (device, context) = open::import(&sysfs, file)?;
    start(&sysfs, &device, context, options)
}

fn start(sysfs: &Sysfs, device: &RdmaDevice, context: open::Context, options: Options) -> Result<Opened, Error> {
    open::check_address(device, options.ip)?;
    let access: Arc<dyn Access> = Arc::new(Devx::new(device, context, &options)?);
    let access = match options.observers.any() {
        true => Traced::new(access, options.observers.clone()),
        false => access,
    };
    let caps = query_all(&*access, firmware_version(&device.firmware))?;
    let gids = sysfs.gids(&device.name, PORT);
    let gid = |gid: RdmaGid| Some(Gid { vlan: gid.vlan, ..Gid::new(gid.index, gid.address, gid.mac?) });
    let gids = gids.into_iter().filter(RdmaGid::is_roce_v2).filter_map(gid);
    Ok(Opened { access, caps, gids: gids.collect() })
}

/// Parses a version as sysfs prints it: `16.35.4030`.
fn firmware_version(text: &str) -> (u16, u16, u16) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    (part(), part(), part())
}

/// A function that the kernel owns. Dropping it closes the device file, which destroys everything created through it.
#[derive(Debug)]
pub struct Devx {
    name: String,
    liveness: Arc<Liveness>,
    subscribers: Arc<Subscribers>,
    /// Event channel of each CQ with a completion subscription. Closing a channel ends its subscription.
    completions: Mutex<HashMap<u32, OwnedFd>>,
    queries: Queries,
    events: Events,
    pool: Arc<DmaPool>,
    /// The page of the card's clock, mapped when it is first read.
    clock_page: Mutex<Option<Arc<ClockPage>>>,
    context: open::Context,
}

impl Devx {
    fn new(device: &RdmaDevice, mut context: open::Context, options: &Options) -> Result<Self, Error> {
        let liveness = Liveness::new();
        let subscribers = Arc::new(Subscribers::default());
        let waiters: Arc<dyn Wake> = Arc::clone(&subscribers) as _;
        liveness.watch(Arc::downgrade(&waiters));
        let of_kernel = context.events.take();
        let events = Events::start(context.file.as_fd(), of_kernel, Arc::clone(&liveness), Arc::clone(&subscribers))?;
        Ok(Devx {
            name: format!("devx:{}", device.name),
            liveness,
            subscribers,
            completions: Mutex::default(),
            queries: Queries::new(options.command_timeout),
            events,
            pool: DmaPool::new(|len| Ok(wrap(HostMemory::allocate_private(len)?))),
            clock_page: Mutex::default(),
            context,
        })
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.context.file.as_fd()
    }

    /// Runs one command in a tracing span.
    fn in_span<T>(
        &self,
        command: &RawCommand,
        run: impl FnOnce() -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let (span, begin) = (CommandSpan::begin(command), self.clock().now());
        let result = run();
        span.end(&result, self.clock().now().saturating_sub(begin));
        result
    }

    /// Turns the result of an ioctl that carried `command`, and its `output`, into a command result.
    fn check_call(&self, command: &RawCommand, called: io::Result<()>, output: &[u8]) -> Result<(), CommandError> {
        let kind = match called {
            Ok(()) => return Ok(()),
            // The kernel passes the firmware's status on.
            Err(error) if error.raw_os_error() == Some(libc::EREMOTEIO) => match check_status(output) {
                Err(status) => status,
                Ok(()) => CommandErrorKind::Io { doing: "sending it to firmware".into(), source: error },
            },
            Err(error) => self.failed(error),
        };
        Err(command.failed(kind))
    }

    /// Queries by the kernel's blocking call, which tells an object whose numbers are all 0, such as a counter, from a
    /// command that the kernel gave up on. It ends by the kernel's own timeout: it is for an object that has just been
    /// queried.
    fn query_and_wait(&self, object: ObjectHandle, command: &RawCommand) -> Result<Vec<u8>, CommandError> {
        let mut output = vec![0; command.out_len];
        let called = Call::new(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY)
            .handle(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, object)
            .and_then(|call| call.input(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, &command.input))
            .and_then(|call| call.output(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, &mut output))
            .and_then(|call| call.run(self.file()));
        self.check_call(command, called.map(drop), &output)?;
        Ok(output)
    }

    /// The error kind for an ioctl that failed with `error`.
    fn failed(&self, error: io::Error) -> CommandErrorKind {
        match error.raw_os_error() {
            _ if self.is_released(&error) => {
                self.liveness.end(Death::Released);
                CommandErrorKind::Dead(self.liveness.death().unwrap_or(Death::Released))
            }
            Some(libc::EIO) => CommandErrorKind::Io {
                doing: "sending it through the kernel, which says no more of some refusals of firmware,".into(),
                source: error,
            },
            Some(libc::EINVAL | libc::EOPNOTSUPP) => CommandErrorKind::Io {
                doing:
                    "sending it through the kernel, which accepts only queries and commands on this process's objects,"
                        .into(),
                source: error,
            },
            _ => CommandErrorKind::Io { doing: "sending it through the kernel".into(), source: error },
        }
    }

    /// Whether an ioctl failed with `error` because the kernel's driver has released the device. The kernel says `EIO`
    /// then, and also for some statuses of firmware, after which the device still works. It answers for an event queue
    /// by itself.
    fn is_released(&self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::ENODEV) => true,
            Some(libc::EIO) => matches!(self.query_eqn(0), Err(again) if again.raw_os_error() == Some(libc::EIO)),
            _ => false,
        }
    }

    /// The number of completion vector `vector`'s event queue.
    fn query_eqn(&self, vector: u32) -> io::Result<u32> {
        let mut eqn = 0u32;
        Call::new(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN)
            .input(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, vector.as_bytes())
            .and_then(|call| call.output(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, eqn.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))?;
        Ok(eqn)
    }

    fn check(&self, command: &RawCommand) -> Result<(), CommandError> {
        self.liveness.check().map_err(|death| command.failed(CommandErrorKind::Dead(death)))
    }

    /// Destroys a kernel object: a UAR page, a umem, or a firmware object.
    fn end(&self, object: u16, method: u16, attribute: u16, handle: ObjectHandle) -> Result<(), CommandErrorKind> {
        self.ended(self.call_to_end(object, method, attribute, handle)).map_err(|error| self.failed(error))
    }

    fn call_to_end(&self, object: u16, method: u16, attribute: u16, handle: ObjectHandle) -> io::Result<Done> {
        Call::new(object, method).handle(attribute, handle).and_then(|call| call.run(self.file()))
    }

    /// Whether a call that destroys an object has ended it.
    fn ended(&self, called: io::Result<Done>) -> io::Result<()> {
        match called {
            Ok(_) => Ok(()),
            // The device is gone, and the object with it.
            Err(error) if self.is_released(&error) => {
                self.liveness.end(Death::Released);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Allocates a UAR page in the kernel: returns the mmap offset, the length, and the page.
    fn request_uar(&self, kind: u64) -> io::Result<(u64, u32, UarHandle)> {
        let (mut offset, mut len, mut uar_page) = (0u64, 0u32, 0u32);
        let done = Call::new(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
            .fresh(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)?
            .number(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, kind)?
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset.as_mut_bytes())?
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, len.as_mut_bytes())?
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, uar_page.as_mut_bytes())?
            .run(self.file())?;
        let handle = done.handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)?;
        let cached = match kind {
            MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF => UarMapping::WriteCombining,
            _ => UarMapping::Uncached,
        };
        Ok((offset, len, UarHandle::new(uar_page, cached, handle)))
    }

    /// The page of the card's clock.
    fn clock_page(&self) -> Result<Arc<ClockPage>, Error> {
        let mut page = lock(&self.clock_page);
        if let Some(page) = &*page {
            return Ok(Arc::clone(page));
        }
        let offset = self.context.clock_offset.ok_or_else(|| {
            let what = "the card's clock".into();
            Invalid::Requires { what, requires: "a kernel with pages of 4 KiB, which alone shows it" }
        })?;
        let mapped = ClockPage::map(&self.context.file, offset);
        let mapped = Arc::new(mapped.map_err(|error| Error::io("mapping the card's clock", error))?);
        *page = Some(Arc::clone(&mapped));
        Ok(mapped)
    }

    /// Maps `len` bytes of the device file. The mapping keeps the file open.
    fn map(&self, offset: u64, len: u32) -> io::Result<BarMapping> {
        let mapping = memmap2::MmapOptions::new().offset(offset).len(len as usize).map_raw(&self.context.file)?;
        BarMapping::of_map(mapping, ())
    }
}

/// Wraps `memory`. Its address in this process stands in for its IOVA, which only the kernel knows.
fn wrap(memory: HostMemory) -> DmaBuffer {
    let address = Iova(memory.address().as_ptr() as u64);
    DmaBuffer::new(memory, address, Box::new(|memory, _| Some(memory)))
}

impl Sealed for Devx {}

impl Access for Devx {
    fn name(&self) -> &str {
        &self.name
    }

    unsafe fn execute(&self, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        self.in_span(&command, || {
            self.check(&command)?;
            let mut output = vec![0; command.out_len];
            let called = Call::new(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER)
                .input(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, &command.input)
                .and_then(|call| call.output(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, &mut output))
                .and_then(|call| call.run(self.file()));
            self.check_call(&command, called.map(drop), &output)?;
            Ok(output)
        })
    }

    unsafe fn create(&self, command: RawCommand) -> Result<(ObjectHandle, Vec<u8>), CommandError> {
        self.in_span(&command, || {
            self.check(&command)?;
            let mut output = vec![0; command.out_len];
            let called = Call::new(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE)
                .fresh(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE)
                .and_then(|call| call.input(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, &command.input))
                .and_then(|call| call.output(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, &mut output))
                .and_then(|call| call.run(self.file()))
                .and_then(|done| done.handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE));
            let mut handle = ObjectHandle(0);
            let called = called.map(|made| handle = made);
            self.check_call(&command, called, &output)?;
            self.events.watch(self.file(), command.opcode(), handle);
            Ok((handle, output))
        })
    }

    unsafe fn modify(&self, object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        self.in_span(&command, || {
            self.check(&command)?;
            let mut output = vec![0; command.out_len];
            let called = Call::new(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY)
                .handle(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, object)
                .and_then(|call| call.input(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, &command.input))
                .and_then(|call| call.output(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, &mut output))
                .and_then(|call| call.run(self.file()));
            self.check_call(&command, called.map(drop), &output)?;
            Ok(output)
        })
    }

    unsafe fn query(&self, object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        self.in_span(&command, || {
            self.check(&command)?;
            let output = self.queries.run(self.file(), object, &command).map_err(|kind| match kind {
                CommandErrorKind::Io { source, .. } => self.failed(source),
                kind => kind,
            });
            let output = output.map_err(|kind| command.failed(kind))?;
            if output.iter().all(|byte| *byte == 0) {
                return self.query_and_wait(object, &command);
            }
            check_status(&output).map_err(|kind| command.failed(kind))?;
            Ok(output)
        })
    }

    unsafe fn destroy(&self, object: ObjectHandle, command: RawCommand) -> Result<(), CommandError> {
        self.in_span(&command, || {
            let (kind, method) = (MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY);
            self.end(kind, method, MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, object).map_err(|kind| command.failed(kind))
        })
    }

    fn register_umem(&self, memory: Arc<DmaBuffer>, writable: bool) -> Result<UmemHandle, Error> {
        self.liveness.check()?;
        let host = memory.memory().ok_or(Invalid::Empty { what: "a umem", lacks: "memory" })?;
        let rights = if writable { IB_UVERBS_ACCESS_LOCAL_WRITE } else { 0 };
        let mut umem_id = 0u32;
        let called = Call::new(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG)
            .fresh(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE)
            .and_then(|call| call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, host.address().as_ptr() as u64))
            .and_then(|call| call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, host.len() as u64))
            .and_then(|call| call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, rights.into()))
            .and_then(|call| call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, UMEM_PAGES))
            .map(Call::optional)
            .and_then(|call| call.output(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, umem_id.as_mut_bytes()))
            .and_then(|call| call.run(self.file()))
            .and_then(|done| done.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE));
        let handle = called.map_err(|source| not_registered(format!("{} bytes of memory", host.len()), source))?;
        Ok(UmemHandle::new(umem_id, handle, memory))
    }

    fn destroy_umem(&self, umem: UmemHandle) -> Result<(), (UmemHandle, CommandError)> {
        let (object, method) = (MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG);
        match self.end(object, method, MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, umem.handle()) {
            Ok(()) => {
                drop(umem.into_memory());
                Ok(())
            }
            Err(kind) => {
                let object = format!("umem {:#x}", umem.umem_id());
                let opcode = mlx5_prm::cmd::Opcode::DestroyUmem;
                Err((umem, CommandError { opcode, op_mod: 0, object, kind }))
            }
        }
    }

    fn alloc_uar(&self, wanted: UarMapping) -> Result<UarHandle, Error> {
        self.liveness.check()?;
        let asked = match wanted {
            UarMapping::WriteCombining => match self.request_uar(MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF) {
                // This CPU or platform has no write combining.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    self.request_uar(MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
                }
                asked => asked,
            },
            UarMapping::Uncached => self.request_uar(MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC),
        };
        let (offset, len, uar) = asked.map_err(|error| Error::io("allocating a UAR page in the kernel", error))?;
        match self.map(offset, len) {
            Ok(mapping) => Ok(uar.mapped(Some(mapping))),
            Err(error) => {
                if let Err(failed) = self.free_uar(uar) {
                    tracing::warn!(error = %failed.1, "UAR page lost");
                }
                Err(Error::io("mapping a UAR page", error))
            }
        }
    }

    fn free_uar(&self, uar: UarHandle) -> Result<(), Box<(UarHandle, CommandError)>> {
        let (object, method) = (MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY);
        let ended = self.end(object, method, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, uar.handle());
        let object = format!("UAR {:#x}", uar.uar_page());
        let opcode = mlx5_prm::cmd::Opcode::DeallocUar;
        ended.map_err(|kind| Box::new((uar, CommandError { opcode, op_mod: 0, object, kind })))
    }

    fn write_uar(&self, uar: &UarHandle, _offset: usize, _value: u64) -> Result<(), Error> {
        let (page, mend) = (uar.uar_page(), "write its doorbells through the mapping");
        Err(Invalid::UarMapping { page, mapping: MappingKind::Mapped, mend }.into())
    }

    fn alloc_dma(self: Arc<Self>, len: usize) -> Result<DmaBuffer, Error> {
        self.pool.allocate(len)
    }

    fn show(self: Arc<Self>, memory: HostMemory) -> Result<DmaBuffer, Error> {
        Ok(wrap(memory))
    }

    fn knows_addresses(&self) -> bool {
        false
    }

    fn eqn(&self, vector: u32) -> Result<u32, Error> {
        self.liveness.check()?;
        if vector >= self.context.vectors {
            return Err(no_vector(vector, self.context.vectors).into());
        }
        self.query_eqn(vector)
            .map_err(|error| Error::io(format!("querying the kernel for the EQ of completion vector {vector}"), error))
    }

    fn completion_vectors(&self) -> u32 {
        self.context.vectors
    }

    fn clock_ticks(&self) -> Result<u64, Error> {
        self.liveness.check()?;
        Ok(self.clock_page()?.ticks())
    }

    fn real_time(&self) -> Result<u64, Error> {
        self.liveness.check()?;
        Ok(self.clock_page()?.real_time())
    }

    fn null_key(&self) -> Option<u32> {
        self.context.null_key
    }

    fn completion_eventfd(&self, cq: ObjectHandle, cqn: u32, vector: u32) -> Result<OwnedFd, Error> {
        self.eqn(vector)?;
        let failed = |error| Error::io(format!("subscribing to the completion events of CQ {cqn:#x}"), error);
        let channel = events::open_channel(self.file()).map_err(failed)?;
        let completion = EventType::Completion.number() as u16;
        let fd = self.subscribers.subscribe(cqn, &self.liveness)?;
        events::subscribe(self.file(), channel.as_fd(), Some(cq), completion, Some(fd.as_fd()))
            .map_err(failed)
            .inspect_err(|_| self.subscribers.forget(cqn))?;
        lock(&self.completions).insert(cqn, channel);
        Ok(fd)
    }

    fn lend_event_queue(self: Arc<Self>, _vector: u32) -> Result<Box<dyn LentEvents>, Error> {
        let (what, mend) = ("an event queue of a thread's own", "use CqOptions::events, and CompletionQueue::fd");
        Err(Invalid::WrongAccess { what, device: self.name().to_owned(), kernel: true, mend }.into())
    }

    fn forget_completion_eventfd(&self, cqn: u32) {
        lock(&self.completions).remove(&cqn);
        self.subscribers.forget(cqn);
    }

    fn async_events(&self, count: Option<OwnedFd>) -> AsyncEvents {
        self.subscribers.listen(&self.liveness, count)
    }

    fn death(&self) -> Option<Error> {
        self.liveness.death().map(Error::Dead)
    }

    fn card_memory(&self) -> &dyn CardMemory {
        self
    }

    fn kernel_verbs(&self) -> Option<&dyn KernelVerbs> {
        Some(self)
    }

    fn kernel_steering(&self) -> Option<&dyn KernelSteering> {
        Some(self)
    }
}
