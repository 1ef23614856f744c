//! How a function is reached. [`Access`] is the interface that all objects use. Two implementations: [`owned`], for a
//! function that this process owns, and [`devx`], for one that the kernel owns. Both use `liveness.rs` (whether the
//! card is alive) and `subscribers.rs` (delivery of events).

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::Arc;

use mlx5_prm::cmd::{CmdStatus, OutputHeader, Reply};
use mlx5_prm::eqe::Eqe;
use mlx5_prm::layout::Layout;

use crate::clock::Clock;
use crate::error::{CommandError, CommandErrorKind, Error, Invalid};
use crate::memory::{DmaBuffer, HostMemory};

mod device_memory;
pub mod devx;
mod handle;
pub(crate) mod hca_cap;
mod kernel_verbs;
mod kernel_xrc;
mod lent_events;
mod liveness;
mod options;
pub mod owned;
pub mod pci;
mod safe;
mod subscribers;
pub mod trace;
mod transport;

pub use device_memory::{CardMemory, MemicHandle};
pub use handle::{ObjectHandle, UmemHandle};
pub use kernel_verbs::{Advice, KernelObjectKind, KernelRegion, KernelVerbs};
pub use kernel_xrc::{KernelCq, KernelCqMade, KernelSrq, KernelXrc};
pub use lent_events::LentEvents;
pub use options::Options;
pub use safe::SafeCommand;
pub use transport::{Bar, BarMapping, DmaSpace, Function, FunctionParts, Irq, Notices};

pub use crate::memory::HostRange;

/// A firmware command as bytes. [`RawCommand::new`] builds it from a typed one.
#[derive(Debug, Clone)]
pub struct RawCommand {
    /// Fixed part and tail, as sent to firmware.
    pub input: Vec<u8>,
    /// Size of the output buffer in bytes.
    pub out_len: usize,
    /// The object that the command concerns, for messages, such as `CQ 0x43`; may be empty.
    pub object: String,
}

impl RawCommand {
    /// Serializes `command`.
    pub fn new<C: mlx5_prm::cmd::Command>(command: &C, object: impl Into<String>) -> Self {
        let mut input = command.head().to_vec();
        input.extend_from_slice(command.tail());
        RawCommand { input, out_len: command.out_len(), object: object.into() }
    }

    /// Serializes a [safe](SafeCommand) command. The opcode is taken from its type, not from its bytes, which the
    /// caller may have filled with anything.
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

    /// Parses `output`, fixed part and tail, as the reply to this command.
    pub(crate) fn reply<R: Reply>(&self, output: &[u8]) -> Result<R, CommandError> {
        let too_short = || CommandErrorKind::Length(format!("its reply has only {} bytes", output.len()));
        R::from_output(output).ok_or_else(|| self.failed(too_short()))
    }

    /// The error for this command with the given cause.
    pub(crate) fn failed(&self, kind: CommandErrorKind) -> CommandError {
        CommandError { opcode: self.opcode(), op_mod: self.op_mod(), object: self.object.clone(), kind }
    }

    fn be16(&self, at: usize) -> u16 {
        self.input.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
    }
}

/// Reads a clock whose halves `read` returns: the upper one for `true`. PRM "Initialization Segment", `internal_timer`.
fn read_timer<E>(mut read: impl FnMut(bool) -> Result<u32, E>) -> Result<u64, E> {
    let (high, low, again) = (read(true)?, read(false)?, read(true)?);
    // The lower half has overflowed between the reads.
    let low = if high == again { low } else { read(false)? };
    Ok(u64::from(again) << 32 | u64::from(low))
}

/// Error if `output` reports a failure status.
pub(crate) fn check_status(output: &[u8]) -> Result<(), CommandErrorKind> {
    // The shortest output has 12 bytes; pad it to read the status.
    let mut header = [0; OutputHeader::SIZE];
    let len = output.len().min(header.len());
    header[..len].copy_from_slice(&output[..len]);
    let header = OutputHeader::read(&header).unwrap_or(OutputHeader::ZERO);
    match header.status() {
        CmdStatus::Ok => Ok(()),
        status => Err(CommandErrorKind::Status { status, syndrome: header.syndrome(), reason: String::new() }),
    }
}

/// A subscription to asynchronous events.
#[derive(Debug)]
pub struct AsyncEvents {
    /// The events; closed when the card dies.
    pub events: std::sync::mpsc::Receiver<AsyncEvent>,
    /// How many events were dropped since this was last zero, because the channel was full.
    pub lost: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl AsyncEvents {
    /// How many events were dropped since this was last asked: they are behind those that the channel has now.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, std::sync::atomic::Ordering::AcqRel)
    }
}

/// An asynchronous event. PRM "Event Queue Entry Format".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The event type.
    pub event_type: mlx5_prm::eqe::EventType,
    /// Subtype; its meaning depends on the type.
    pub sub_type: u8,
    /// The object concerned; its layout depends on the type.
    pub data: [u8; 28],
}

impl AsyncEvent {
    /// Converts an entry of an event queue.
    pub(crate) fn of(entry: &Eqe) -> Self {
        AsyncEvent { event_type: entry.event_type(), sub_type: entry.event_sub_type(), data: *entry.event_data() }
    }
}

/// CPU mapping of a UAR page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UarMapping {
    /// Uncached: each store goes out at once. For 8-byte doorbells.
    Uncached,
    /// Write combining: stores are merged until a barrier. For BlueFlame.
    WriteCombining,
}

/// A user access region page. Its fields are private: a forged page number would give access to another owner's
/// registers.
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

    /// The mapping for direct stores; `None` where stores are trapped and must use [`Access::write_uar`].
    pub fn mapping(&self) -> Option<&BarMapping> {
        self.mapping.as_ref()
    }

    /// The mapping's memory type.
    pub fn cached(&self) -> UarMapping {
        self.cached
    }

    /// The access' own handle.
    pub fn handle(&self) -> ObjectHandle {
        self.handle
    }
}

pub(crate) mod sealed {
    /// Limits [`Access`](super::Access) to this crate: objects trust what an access returns.
    pub trait Sealed {}
}

/// The interface to a function: executes commands; manages firmware objects, umems, UARs and EQ numbers. Sealed.
///
/// A command can point the card at any memory that is mapped for DMA. That is more than keys name: whole pages around a
/// user's buffer, rings, firmware's own pages. Methods that take a [`RawCommand`] are therefore `unsafe`. Safe are
/// `run`, for [commands that name no memory](SafeCommand), and the types of [`objects`](crate::objects), which keep the
/// memory that their commands name.
///
/// # Safety of raw commands
/// The caller of [`execute`](Self::execute), [`create`](Self::create), [`modify`](Self::modify), [`query`](Self::query)
/// and [`destroy`](Self::destroy) guarantees, for as long as what the command makes or changes exists:
/// * The card writes only memory that was registered for it ([`DmaBuffer`]) and that this process accesses by the
///   buffer's methods or not at all. Of a user's buffer it writes the data alone, not the rest of its pages.
/// * The buffer outlives the object: it is kept until a reply confirms the destruction, or until the card's DMA has
///   stopped.
/// * The command changes or destroys no object of another owner, nor anything the driver's own commands depend on.
///
/// ```compile_fail,E0133
/// fn send(access: &dyn mlx5_dv::access::Access, command: mlx5_dv::access::RawCommand) {
///     let _ = access.execute(command); // only in an unsafe block
/// }
/// ```
///
/// All methods block until firmware replies or the command's deadline passes. Any thread may call; commands of several
/// threads run concurrently.
pub trait Access: sealed::Sealed + Send + Sync + Debug {
    /// The device string, for messages.
    fn name(&self) -> &str;
    /// Executes a command that creates no object. The reply's status is checked: `Ok` holds a successful output.
    ///
    /// # Safety
    /// [See above](Self#safety-of-raw-commands).
    unsafe fn execute(&self, command: RawCommand) -> Result<Vec<u8>, CommandError>;
    /// Creates a firmware object.
    ///
    /// # Safety
    /// [See above](Self#safety-of-raw-commands).
    unsafe fn create(&self, command: RawCommand) -> Result<(ObjectHandle, Vec<u8>), CommandError>;
    /// Modifies an object.
    ///
    /// # Safety
    /// [See above](Self#safety-of-raw-commands).
    unsafe fn modify(&self, object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError>;
    /// Queries an object.
    ///
    /// # Safety
    /// [See above](Self#safety-of-raw-commands).
    unsafe fn query(&self, object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError>;
    /// Destroys an object. On a dead card this succeeds without a command, as the object is gone with the card, unless
    /// the card's DMA could not be stopped ([`Death::NotStopped`]).
    ///
    /// [`Death::NotStopped`]: crate::error::Death::NotStopped
    ///
    /// # Safety
    /// [See above](Self#safety-of-raw-commands).
    unsafe fn destroy(&self, object: ObjectHandle, command: RawCommand) -> Result<(), CommandError>;
    /// Registers whole pages of memory with the card. The handle keeps the memory.
    fn register_umem(&self, memory: Arc<DmaBuffer>, writable: bool) -> Result<UmemHandle, Error>;
    /// Destroys a umem and releases its memory. On an error the card still has the umem, which is returned with the
    /// cause.
    fn destroy_umem(&self, umem: UmemHandle) -> Result<(), (UmemHandle, CommandError)>;
    /// Allocates a UAR page, mapped as `wanted`, or uncached where that is not available.
    fn alloc_uar(&self, wanted: UarMapping) -> Result<UarHandle, Error>;
    /// Frees a UAR page. On an error the card still has it, which is returned with the cause.
    fn free_uar(&self, uar: UarHandle) -> Result<(), Box<(UarHandle, CommandError)>>;
    /// Stores a big-endian quadword at `offset` of a UAR page that could not be mapped.
    fn write_uar(&self, uar: &UarHandle, offset: usize, value: u64) -> Result<(), Error>;
    /// Allocates DMA memory, with huge pages where available, and maps it for the device.
    fn alloc_dma(self: Arc<Self>, len: usize) -> Result<DmaBuffer, Error>;
    /// Maps memory, the driver's or the user's, for the device until the buffer is dropped.
    fn show(self: Arc<Self>, memory: HostMemory) -> Result<DmaBuffer, Error>;
    /// Whether a [`DmaBuffer`]'s address is the one the card uses, so that commands can list pages. If not, only the
    /// kernel knows the DMA address, and commands must name memory by umem.
    fn knows_addresses(&self) -> bool;
    /// Number of the EQ that serves completion vector `vector`.
    fn eqn(&self, vector: u32) -> Result<u32, Error>;
    /// Number of completion vectors.
    fn completion_vectors(&self) -> u32;
    /// Subscribes to the completion events of a CQ: each event signals the returned eventfd.
    fn completion_eventfd(&self, cq: ObjectHandle, cqn: u32, vector: u32) -> Result<std::os::fd::OwnedFd, Error>;
    /// Lends the event queue of completion vector `vector`, which nobody else reads until it is dropped. Errors:
    /// [`Error::Invalid`] if it is not for this, or lent already.
    fn lend_event_queue(self: Arc<Self>, vector: u32) -> Result<Box<dyn LentEvents>, Error>;
    /// Ends the subscription of [`completion_eventfd`](Self::completion_eventfd).
    fn forget_completion_eventfd(&self, cqn: u32);
    /// Subscribes to asynchronous events: port changes, CQ and queue pair errors. Completions and the driver's own
    /// events (commands, page requests) are not delivered. The channel closes when the card dies. Each event, the first
    /// that is lost, and then the death, adds one to the eventfd `count`.
    fn async_events(&self, count: Option<std::os::fd::OwnedFd>) -> AsyncEvents;
    /// Whether the system wants the function back: somebody waits until it is closed. Each who listens to asynchronous
    /// events is counted one more for it.
    fn is_wanted_back(&self) -> bool {
        false
    }
    /// Why the card is dead; `None` while it is alive.
    fn death(&self) -> Option<Error>;
    /// The clock that all waits use.
    fn clock(&self) -> &Clock {
        Clock::SYSTEM
    }
    /// The card's free-running clock now, in ticks.
    fn clock_ticks(&self) -> Result<u64, Error>;
    /// The card's real-time clock now: seconds, and nanoseconds in the lower half.
    fn real_time(&self) -> Result<u64, Error>;
    /// Key of the null memory region, where the kernel has the function and tells it.
    fn null_key(&self) -> Option<u32> {
        None
    }
    /// Memory on the card.
    fn card_memory(&self) -> &dyn CardMemory;
    /// The kernel's own objects; `None` where this process owns the function.
    fn kernel_verbs(&self) -> Option<&dyn KernelVerbs> {
        None
    }
    /// The kernel's steering interface; `None` on an owned function, where steering is done by commands.
    fn kernel_steering(&self) -> Option<&dyn KernelSteering> {
        None
    }
}

impl dyn Access + '_ {
    /// Executes a [safe](SafeCommand) command; `object` is what it concerns, for messages. An object that it creates
    /// has no handle.
    pub fn run<C: SafeCommand>(&self, command: &C, object: &str) -> Result<C::Out, CommandError> {
        let raw = RawCommand::safe(command, object);
        // SAFETY: by the contract of `SafeCommand`, `C` names no memory and affects no other owner's object; the opcode
        // is `C`'s.
        raw.reply(&unsafe { self.execute(raw.clone()) }?)
    }
}

/// Steering in the kernel's flow tables. Rules for received frames are placed before those of the kernel's network
/// device, which receives the frames that no rule matches.
pub trait KernelSteering {
    /// Creates a matcher: which bits its rules compare.
    fn create_matcher(&self, matcher: &Matcher<'_>) -> Result<ObjectHandle, Error>;
    /// Destroys a matcher. Its rules must be destroyed first.
    fn destroy_matcher(&self, matcher: ObjectHandle) -> Result<(), Error>;
    /// Creates a rule, effective at once.
    fn create_flow(&self, flow: &Flow<'_>) -> Result<ObjectHandle, Error>;
    /// Destroys a rule.
    fn destroy_flow(&self, flow: ObjectHandle) -> Result<(), Error>;
}

/// Which bits of a frame rules compare.
#[derive(Debug, Clone, Copy)]
pub struct Matcher<'a> {
    /// Lower values are matched first.
    pub priority: u16,
    /// Whether it is for frames that are sent.
    pub sent: bool,
    /// Which parts of `criteria` are used, as in a flow group.
    pub match_criteria_enable: u8,
    /// `fte_match_param`, or its first part.
    pub criteria: &'a [u8],
}

/// A rule to create.
#[derive(Debug, Clone, Copy)]
pub struct Flow<'a> {
    /// The matcher.
    pub matcher: ObjectHandle,
    /// The values to match, as long as the matcher's criteria.
    pub value: &'a [u8],
    /// What becomes of the frames.
    pub fate: FlowFate,
    /// Flow counters, and the index of one among them, that counts the frames.
    pub counter: Option<(ObjectHandle, u32)>,
    /// Flow tag in the completions of matching frames, 24 bits.
    pub tag: u32,
}

/// What becomes of the frames of a [`Flow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowFate {
    /// They go to a TIR or to a flow table.
    Forward(ObjectHandle),
    /// They are dropped.
    Drop,
    /// They are sent: for frames that are.
    Send,
    /// They go on to the kernel, as without the rule: for frames that are received.
    Kernel,
}

/// The error for completion vector `vector`, of `count`.
fn no_vector(vector: u32, count: u32) -> Invalid {
    let refused = |limit| Invalid::out_of_range("completion vector", vector.into(), limit, "this device");
    // An empty range where there is none.
    count.checked_sub(1).map_or_else(|| refused(RangeInclusive::new(1, 0)), |last| refused(0..=last.into()))
}
