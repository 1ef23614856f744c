//! How a function is reached. The upper seam, [`Access`], is what every object above needs; [`owned`] (a function that
//! is ours alone) and [`devx`] (the kernel keeps it, and creates objects for us) implement it. `liveness.rs` (whether
//! the card lives) and `subscribers.rs` (who is told of its events) serve both.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;

use mlx5_prm::cmd::{CmdStatus, OutputHeader, Reply};
use mlx5_prm::eqe::Eqe;
use mlx5_prm::layout::Layout;

use crate::clock::Clock;
use crate::error::{CommandError, CommandErrorKind, Error, Invalid};
use crate::memory::{DmaBuffer, HostMemory};

pub mod devx;
pub(crate) mod hca_cap;
mod liveness;
mod options;
pub mod owned;
pub mod pci;
mod safe;
mod subscribers;
pub mod trace;
mod transport;

pub use options::Options;
pub use safe::SafeCommand;
pub use transport::{Bar, BarMapping, DmaSpace, Function, FunctionParts, Irq};

pub use crate::memory::HostRange;

/// One firmware command as bytes. Built by [`RawCommand::new`] from a typed one.
#[derive(Debug, Clone)]
pub struct RawCommand {
    /// Fixed part and tail, as they go over the wire.
    pub input: Vec<u8>,
    /// Bytes of output to make room for.
    pub out_len: usize,
    /// What the command is about, for messages, such as `CQ 0x43`; empty where there is nothing to name.
    pub object: String,
}

impl RawCommand {
    /// The bytes of `command`.
    pub fn new<C: mlx5_prm::cmd::Command>(command: &C, object: impl Into<String>) -> Self {
        let mut input = command.head().to_vec();
        input.extend_from_slice(command.tail());
        RawCommand { input, out_len: command.out_len(), object: object.into() }
    }

    /// The bytes of a command that is [safe](SafeCommand). Its opcode is its type's, whatever its bytes say: they can
    /// be made of anything.
    pub(crate) fn safe<C: SafeCommand>(command: &C, object: impl Into<String>) -> Self {
        let mut raw = RawCommand::new(command, object);
        if let Some(opcode) = raw.input.get_mut(..2) {
            opcode.copy_from_slice(&(C::OPCODE.number() as u16).to_be_bytes());
        }
        raw
    }

    /// `opcode` of the input.
    pub fn opcode(&self) -> mlx5_prm::cmd::Opcode {
        mlx5_prm::cmd::Opcode::from_number(self.be16(0).into())
    }

    /// `op_mod` of the input.
    pub fn op_mod(&self) -> u16 {
        self.be16(6)
    }

    /// The fixed part and the tail of `output`, which firmware gave to this command.
    pub(crate) fn reply<R: Reply>(&self, output: &[u8]) -> Result<R, CommandError> {
        let too_short = || CommandErrorKind::Length(format!("its reply has only {} bytes", output.len()));
        R::from_output(output).ok_or_else(|| self.failed(too_short()))
    }

    /// The error that it failed in this way.
    pub(crate) fn failed(&self, kind: CommandErrorKind) -> CommandError {
        CommandError { opcode: self.opcode(), op_mod: self.op_mod(), object: self.object.clone(), kind }
    }

    fn be16(&self, at: usize) -> u16 {
        self.input.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
    }
}

/// Error if `output`, which firmware gave, says that it refused.
pub(crate) fn check_status(output: &[u8]) -> Result<(), CommandErrorKind> {
    // The shortest output, of 12 bytes, has a status too: read it padded.
    let mut header = [0; OutputHeader::SIZE];
    let len = output.len().min(header.len());
    header[..len].copy_from_slice(&output[..len]);
    let header = OutputHeader::read(&header).unwrap_or(OutputHeader::ZERO);
    match header.status() {
        CmdStatus::Ok => Ok(()),
        status => Err(CommandErrorKind::Status { status, syndrome: header.syndrome(), reason: String::new() }),
    }
}

/// What an [`Access`] knows an object by: nothing for a function of our own (its commands name the object), the
/// kernel's handle on DevX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectHandle(pub u32);

/// Something the card reported on its own account. PRM "Event Queue Entry Format".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub event_type: mlx5_prm::eqe::EventType,
    /// More precisely; its meaning depends on the type.
    pub sub_type: u8,
    /// What about; its layout depends on the type.
    pub data: [u8; 28],
}

impl AsyncEvent {
    /// What `entry` of an event queue reports.
    pub(crate) fn of(entry: &Eqe) -> Self {
        AsyncEvent { event_type: entry.event_type(), sub_type: entry.event_sub_type(), data: *entry.event_data() }
    }
}

/// Memory the card knows by number. It holds the memory, which is free once [`Access::destroy_umem`] gave it back;
/// dropped without that, the memory is leaked, as the card may still use it.
///
/// ```compile_fail,E0451
/// fn forge(memory: std::sync::Arc<mlx5_dv::memory::DmaBuffer>) -> mlx5_dv::access::UmemHandle {
///     let handle = mlx5_dv::access::ObjectHandle(0);
///     mlx5_dv::access::UmemHandle { umem_id: 7, handle, memory: Some(memory) } // fields are private
/// }
/// ```
#[derive(Debug)]
pub struct UmemHandle {
    umem_id: u32,
    handle: ObjectHandle,
    /// `None` once it was given back.
    memory: Option<Arc<DmaBuffer>>,
}

impl UmemHandle {
    pub(crate) fn new(umem_id: u32, handle: ObjectHandle, memory: Arc<DmaBuffer>) -> Self {
        UmemHandle { umem_id, handle, memory: Some(memory) }
    }

    /// `umem_id` for contexts.
    pub fn umem_id(&self) -> u32 {
        self.umem_id
    }

    /// The access' own handle.
    pub fn handle(&self) -> ObjectHandle {
        self.handle
    }

    /// Its memory, which the card has forgotten.
    pub(crate) fn into_memory(mut self) -> Option<Arc<DmaBuffer>> {
        self.memory.take()
    }
}

impl UmemHandle {
    /// Never frees the memory: the card may use it for good.
    pub(crate) fn leak(mut self) {
        std::mem::forget(self.memory.take());
    }
}

impl Drop for UmemHandle {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let (umem_id, bytes) = (self.umem_id, memory.len());
            tracing::error!(umem_id, bytes, "a umem was dropped and not destroyed; its memory is leaked");
            std::mem::forget(memory);
        }
    }
}

/// How the processor treats stores to a UAR page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UarMapping {
    /// Each store goes out at once: for doorbells of eight bytes.
    Uncached,
    /// Stores are gathered until a barrier: for BlueFlame.
    WriteCombining,
}

/// One user access region page. Its fields are private: a page of anybody's choice would be a register of anybody's
/// choice.
#[derive(Debug)]
pub struct UarHandle {
    uar_page: u32,
    mapping: Option<BarMapping>,
    cached: UarMapping,
    handle: ObjectHandle,
}

impl UarHandle {
    pub(crate) fn new(uar_page: u32, cached: UarMapping, handle: ObjectHandle) -> Self {
        UarHandle { uar_page, mapping: None, cached, handle }
    }

    pub(crate) fn mapped(self, mapping: Option<BarMapping>) -> Self {
        UarHandle { mapping, ..self }
    }

    /// `uar_page` for contexts.
    pub fn uar_page(&self) -> u32 {
        self.uar_page
    }

    /// The page for direct stores; `None` where stores are trapped and go through [`Access::write_uar`].
    pub fn mapping(&self) -> Option<&BarMapping> {
        self.mapping.as_ref()
    }

    /// How it is mapped.
    pub fn cached(&self) -> UarMapping {
        self.cached
    }

    /// The access' own handle.
    pub fn handle(&self) -> ObjectHandle {
        self.handle
    }
}

pub(crate) mod sealed {
    /// Keeps [`Access`](super::Access) to this crate: the objects above believe what an access says.
    pub trait Sealed {}
}

/// The upper seam: execute a command, keep firmware objects, umems, UARs and EQ numbers. Sealed: implemented here
/// alone.
///
/// A command can direct the card at any memory that it sees, and it sees more than what keys name: whole pages of the
/// heap around a user's vector, rings, firmware's own pages. So the methods that take a [`RawCommand`] are `unsafe`.
/// Safe are `run`, for [commands that name no memory](SafeCommand), and the types of [`objects`](crate::objects), which
/// keep the memory that theirs name.
///
/// # Safety of raw commands
/// The caller of [`execute`](Self::execute), [`create`](Self::create), [`modify`](Self::modify), [`query`](Self::query)
/// and [`destroy`](Self::destroy) promises of the card, for as long as what the command makes or changes exists:
/// * It writes only memory that was shown to it ([`DmaBuffer`]) and that this process accesses by the buffer's methods,
///   or not at all; of a buffer of the user's memory the data alone, not what else lies in its pages.
/// * The buffer outlives it: until the object is destroyed, with an answer that says so, or the card's DMA has stopped.
/// * No object of somebody else's is changed or destroyed, nor what the driver's own commands rest on.
///
/// ```compile_fail,E0133
/// fn send(access: &dyn mlx5_dv::access::Access, command: mlx5_dv::access::RawCommand) {
///     let _ = access.execute(command); // only in an unsafe block
/// }
/// ```
///
/// All methods block until firmware answered or the command's deadline passed; any thread may call, and commands of
/// several threads are in flight together.
pub trait Access: sealed::Sealed + Send + Sync + Debug {
    /// The device string, for messages.
    fn name(&self) -> &str;
    /// Executes a command that creates nothing. The reply's status is checked: `Ok` holds the output of a success.
    ///
    /// # Safety
    /// [As said above](Self#safety-of-raw-commands).
    unsafe fn execute(&self, command: RawCommand) -> Result<Vec<u8>, CommandError>;
    /// Creates a firmware object.
    ///
    /// # Safety
    /// [As said above](Self#safety-of-raw-commands).
    unsafe fn create(&self, command: RawCommand) -> Result<(ObjectHandle, Vec<u8>), CommandError>;
    /// Modifies an object.
    ///
    /// # Safety
    /// [As said above](Self#safety-of-raw-commands).
    unsafe fn modify(&self, object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError>;
    /// Queries an object.
    ///
    /// # Safety
    /// [As said above](Self#safety-of-raw-commands).
    unsafe fn query(&self, object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError>;
    /// Destroys an object. On a dead card this is a success that does nothing: the object went with it.
    ///
    /// # Safety
    /// [As said above](Self#safety-of-raw-commands).
    unsafe fn destroy(&self, object: ObjectHandle, command: RawCommand) -> Result<(), CommandError>;
    /// Makes memory known to the card, by whole pages. The handle keeps the memory.
    fn register_umem(&self, memory: Arc<DmaBuffer>, writable: bool) -> Result<UmemHandle, Error>;
    /// Forgets a umem, and gives its memory back. Errors: the umem, which the card still has, and why.
    fn destroy_umem(&self, umem: UmemHandle) -> Result<(), (UmemHandle, CommandError)>;
    /// Allocates a UAR page of its own, mapped as wanted, or uncached where that cannot be had.
    fn alloc_uar(&self, wanted: UarMapping) -> Result<UarHandle, Error>;
    /// Gives a UAR page back.
    fn free_uar(&self, uar: &UarHandle) -> Result<(), CommandError>;
    /// Stores a big-endian quadword at `offset` of a UAR page that could not be mapped.
    fn write_uar(&self, uar: &UarHandle, offset: usize, value: u64) -> Result<(), Error>;
    /// Allocates memory that the card may use: huge pages where there are any, shown to the device.
    fn alloc_dma(self: Arc<Self>, len: usize) -> Result<DmaBuffer, Error>;
    /// Shows memory, ours or the user's, to the card until the buffer is dropped.
    fn show(self: Arc<Self>, memory: HostMemory) -> Result<DmaBuffer, Error>;
    /// Whether a [`DmaBuffer`]'s address is the one that the card uses, so that commands can list pages. If not, only
    /// the kernel knows where memory is, and it is named by umems alone.
    fn knows_addresses(&self) -> bool;
    /// Number of the EQ that serves completion vector `vector`.
    fn eqn(&self, vector: u32) -> Result<u32, Error>;
    /// How many completion vectors there are.
    fn completion_vectors(&self) -> u32;
    /// Subscribes to the completion events of a CQ: the returned eventfd is signalled at each.
    fn completion_eventfd(&self, cq: ObjectHandle, cqn: u32, vector: u32) -> Result<std::os::fd::OwnedFd, Error>;
    /// Ends what [`completion_eventfd`](Self::completion_eventfd) began.
    fn forget_completion_eventfd(&self, cqn: u32);
    /// Events from now on that are neither completions nor the driver's own (commands, page requests): port changes, CQ
    /// and queue pair errors. The channel closes when the card dies.
    fn async_events(&self) -> std::sync::mpsc::Receiver<AsyncEvent>;
    /// Whether the card is known to be dead or gone, and why.
    fn death(&self) -> Option<Error>;
    /// The clock that waits for the card go by.
    fn clock(&self) -> &Clock {
        Clock::SYSTEM
    }
    /// How frames are steered where the kernel keeps the function; `None` where it is ours, and steering is commands.
    fn kernel_steering(&self) -> Option<&dyn KernelSteering> {
        None
    }
}

impl dyn Access + '_ {
    /// Executes a [safe](SafeCommand) command; `object` is what it is about, for messages. What it creates has no
    /// handle.
    pub fn run<C: SafeCommand>(&self, command: &C, object: &str) -> Result<C::Out, CommandError> {
        let raw = RawCommand::safe(command, object);
        // SAFETY: `C` names no memory and touches nobody's object, as `SafeCommand` says, and the opcode is `C`'s.
        raw.reply(&unsafe { self.execute(raw.clone()) }?)
    }
}

/// Steering by the kernel, which has flow tables of its own: it places rules before those of its network device. A
/// frame that no rule takes goes on to that.
pub trait KernelSteering {
    /// Says which bits rules look at.
    fn create_matcher(&self, matcher: &Matcher<'_>) -> Result<ObjectHandle, Error>;
    /// Forgets a matcher. Its rules must be gone.
    fn destroy_matcher(&self, matcher: ObjectHandle) -> Result<(), Error>;
    /// Makes a rule, in force at once.
    fn create_flow(&self, flow: &Flow<'_>) -> Result<ObjectHandle, Error>;
    /// Ends a rule.
    fn destroy_flow(&self, flow: ObjectHandle) -> Result<(), Error>;
}

/// Which bits of a frame rules look at.
#[derive(Debug, Clone, Copy)]
pub struct Matcher<'a> {
    /// The lower, the more urgent.
    pub priority: u16,
    /// Which parts of `criteria` count, as in a flow group.
    pub match_criteria_enable: u8,
    /// `fte_match_param`, or its first part.
    pub criteria: &'a [u8],
}

/// A rule to be.
#[derive(Debug, Clone, Copy)]
pub struct Flow<'a> {
    /// Which bits it looks at.
    pub matcher: ObjectHandle,
    /// What they must be: as long as the matcher's.
    pub value: &'a [u8],
    /// The TIR that its frames go to.
    pub tir: ObjectHandle,
    /// What completions of its frames carry, 24 bits.
    pub tag: u32,
}

/// The error that there is no completion vector `vector`, of `count`.
fn no_vector(vector: u32, count: u32) -> Invalid {
    let refused = |limit| Invalid::out_of_range("completion vector", vector.into(), limit, "this device");
    // An empty range where there is none.
    count.checked_sub(1).map_or_else(|| refused(RangeInclusive::new(1, 0)), |last| refused(0..=last.into()))
}
