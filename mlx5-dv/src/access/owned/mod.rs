//! A function that this process owns: brought up, driven and torn down by our own firmware commands.
//!
//! `bring_up.rs` runs the sequence; `tear_down.rs` undoes the steps that `steps.rs` records; `caps.rs` selects
//! capabilities; `port.rs` configures the port. Parts: `command/` (the command queue) with `mailbox.rs`; `pages.rs`
//! (firmware's memory); `device_memory.rs` (the card's); `event_queue.rs`, `event_loop.rs` and `events.rs` (the EQs,
//! their handling, and what drives it: `event_thread.rs` with `inbox.rs`, or virtual time); `health.rs` (firmware's
//! health); `space.rs` (the device's address space); `registers.rs` (the init segment). [`vfio`] and [`vfio_user`] are
//! two ways to reach a function; a device model in this process is a third.

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, OnceLock};

use mlx5_prm::cmd::{AllocUarIn, AllocUarOut, Command, CreateUmemIn, DeallocUarIn, DestroyUmemIn, WithTail};
use mlx5_prm::layout::Be64;

use crate::access::liveness::Liveness;
use crate::access::sealed::Sealed;
use crate::access::subscribers::Subscribers;
use crate::access::{
    Access, AsyncEvents, BarMapping, CardMemory, Irq, LentEvents, ObjectHandle, Options, RawCommand, SafeCommand,
    UarHandle, UarMapping, UmemHandle, no_vector,
};
use crate::clock::Clock;
use crate::error::{CommandError, CommandErrorKind, Error, Invalid};
use crate::lock::lock;
use crate::memory::{DmaBuffer, DmaPool, HostMemory, IovaAllocator, Translation};

mod bring_up;
mod caps;
mod command;
mod device_memory;
mod event_loop;
mod event_queue;
mod event_thread;
mod events;
mod health;
mod inbox;
mod lending;
mod mailbox;
mod pages;
pub(crate) mod port;
mod registers;
mod space;
mod steps;
mod tear_down;
pub mod vfio;
pub mod vfio_user;

pub(crate) use bring_up::{BroughtUp, bring_up};

use command::CommandQueue;
use events::Events;
use lending::{LentEventQueue, Shelf};
use pages::FirmwarePages;
use registers::Registers;
use space::Space;
use steps::Step;

/// Bytes of a UAR page as firmware counts them, if the host's page is no larger.
const UAR_PAGE: u64 = 4096;
/// Access rights of a umem translation entry: its two lowest bits.
const MTT_READ: u64 = 1;
const MTT_WRITE: u64 = 2;

/// A function that this process owns. Dropping it tears it down.
#[derive(Debug)]
pub struct Owned {
    name: String,
    liveness: Arc<Liveness>,
    registers: Arc<Registers>,
    irq: Box<dyn Irq>,
    space: Arc<Space>,
    /// Small DMA buffers, cut from large ones.
    pool: Arc<DmaPool>,
    pages: Arc<FirmwarePages>,
    subscribers: Arc<Subscribers>,
    /// The command queue, once firmware has its address.
    commands: OnceLock<Arc<CommandQueue>>,
    /// Completed bring-up steps that must be undone.
    done: Mutex<Vec<Step>>,
    /// Entries of the L2 table with other addresses than the own.
    l2_entries: Mutex<Vec<u32>>,
    events: Mutex<Option<Events>>,
    /// Completion EQ numbers, by vector.
    completion_eqs: OnceLock<Vec<u8>>,
    /// Event queues for threads of the user's own.
    shelf: Arc<Shelf>,
    /// Log of a UAR page's size in the BAR.
    log_uar_page: AtomicU32,
    /// Rings that firmware may still write because it did not release them. Freed once bus mastering is off.
    kept: Mutex<Vec<DmaBuffer>>,
    /// Free pages of the card's memory in BAR 0, once somebody has asked for any.
    card_memory: OnceLock<Mutex<IovaAllocator>>,
    options: Options,
}

impl Owned {
    /// Records that `step` is done.
    fn done(&self, step: Step) {
        lock(&self.done).push(step);
    }

    /// Executes a safe command; `object` is what it concerns, for messages.
    fn run<C: SafeCommand>(&self, command: &C, object: &str) -> Result<C::Out, CommandError> {
        let access: &dyn Access = self;
        access.run(command, object)
    }

    /// Executes any typed command; `object` is what it concerns, for messages.
    ///
    /// # Safety
    /// As for [`Access::execute`].
    unsafe fn run_raw<C: Command>(&self, command: &C, object: &str) -> Result<C::Out, CommandError> {
        let raw = RawCommand::new(command, object);
        // SAFETY: by this function's contract.
        raw.reply(&unsafe { self.execute(raw.clone()) }?)
    }

    /// Offset of a UAR page in BAR 0.
    fn uar_offset(&self, uar_page: u32) -> u64 {
        u64::from(uar_page) << self.log_uar_page.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Offset of a UAR page in BAR 0. The card chose the page: outside of the BAR is an error.
    fn checked_uar_offset(&self, uar_page: u32) -> Result<u64, Error> {
        let offset = self.uar_offset(uar_page);
        if offset + UAR_PAGE > self.registers.bar().size() {
            return Err(Error::response("uar", uar_page.into(), None, "the UAR page lies outside of BAR 0"));
        }
        Ok(offset)
    }

    /// Maps the UAR page at `offset` of BAR 0, if possible. If the host's pages are larger than the card's, the page is
    /// a part of the mapping.
    fn map_uar(&self, offset: u64) -> Result<Option<BarMapping>, Error> {
        let page = rustix::param::page_size() as u64;
        let start = offset / page * page;
        let mapping = self.registers.bar().map(start, page as usize);
        let mapping = mapping.map_err(|error| Error::of_device(format!("mapping BAR 0 at {start:#x}"), error))?;
        Ok(mapping.and_then(|whole| whole.part((offset - start) as usize, UAR_PAGE as usize)))
    }

    /// Number of pages that firmware holds.
    pub fn pages_held(&self) -> usize {
        self.pages.held()
    }

    /// Number of command slots, and how many of them are quarantined.
    pub fn command_slots(&self) -> (usize, usize) {
        self.commands.get().map_or((0, 0), |commands| commands.slots())
    }
}

impl Sealed for Owned {}

impl Access for Owned {
    fn name(&self) -> &str {
        &self.name
    }

    unsafe fn execute(&self, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        if let Err(death) = self.liveness.check() {
            return Err(command.failed(CommandErrorKind::Dead(death)));
        }
        match self.commands.get() {
            // SAFETY: by this function's contract.
            Some(commands) => unsafe { commands.execute(command) },
            None => Err(command.failed(CommandErrorKind::Length("there is no command queue yet".into()))),
        }
    }

    unsafe fn create(&self, command: RawCommand) -> Result<(ObjectHandle, Vec<u8>), CommandError> {
        // SAFETY: by this function's contract, here and below.
        Ok((ObjectHandle(0), unsafe { self.execute(command) }?))
    }

    unsafe fn modify(&self, _object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        // SAFETY: as above.
        unsafe { self.execute(command) }
    }

    unsafe fn query(&self, _object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        // SAFETY: as above.
        unsafe { self.execute(command) }
    }

    unsafe fn destroy(&self, _object: ObjectHandle, command: RawCommand) -> Result<(), CommandError> {
        // SAFETY: as above.
        match unsafe { self.execute(command) } {
            Ok(_) => Ok(()),
            Err(error) if error.frees_memory() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn register_umem(&self, memory: Arc<DmaBuffer>, writable: bool) -> Result<UmemHandle, Error> {
        let host = memory.memory().ok_or(Invalid::Empty { what: "a umem", lacks: "memory" })?;
        let iova = memory.iova();
        let pages = Translation::of(iova.0, iova, host.len());
        let skipped = (iova.0 - pages.first) as usize + host.data_offset();
        let rights = if writable { MTT_READ | MTT_WRITE } else { MTT_READ };
        let mut create = CreateUmemIn::default();
        let mut umem = *create.umem();
        umem.w().log_page_size((pages.log_size - 12) as u8).num_of_mtt(pages.count).page_offset(skipped as u32);
        create.w().umem(&umem);
        let list = pages.addresses().map(|page| Be64::new(page | rights)).collect();
        let about = format!("umem of {} bytes", host.len());
        // SAFETY: lists the pages at which `memory` is mapped. The handle keeps it until the umem is destroyed; without
        // a reply it is leaked below. What the card writes there depends on the objects made of the umem.
        match unsafe { self.run_raw(&WithTail::new(create, list), &about) } {
            Ok(out) => Ok(UmemHandle::new(out.reply.umem_id(), ObjectHandle(0), memory)),
            Err(error) => {
                // Without a reply, the card may still create the umem.
                if error.may_be_done() {
                    std::mem::forget(memory);
                }
                Err(error.into())
            }
        }
    }

    fn destroy_umem(&self, umem: UmemHandle) -> Result<(), (UmemHandle, CommandError)> {
        let mut destroy = DestroyUmemIn::default();
        destroy.w().umem_id(umem.umem_id());
        let command = RawCommand::new(&destroy, format!("umem {:#x}", umem.umem_id()));
        // SAFETY: names only the umem, which the handle owns; firmware refuses while an object uses it.
        match unsafe { self.destroy(umem.handle(), command) } {
            Ok(()) => {
                drop(umem.into_memory());
                Ok(())
            }
            Err(error) => Err((umem, error)),
        }
    }

    fn alloc_uar(&self, _wanted: UarMapping) -> Result<UarHandle, Error> {
        let out: AllocUarOut = self.run(&AllocUarIn::default(), "")?;
        // Always uncached: VFIO offers no other mapping.
        let handle = UarHandle::new(out.uar(), UarMapping::Uncached, ObjectHandle(0));
        let mapping = self.checked_uar_offset(out.uar()).and_then(|offset| self.map_uar(offset));
        match mapping {
            Ok(mapping) => Ok(handle.mapped(mapping)),
            Err(error) => {
                if let Err(failed) = self.free_uar(handle) {
                    tracing::warn!(error = %failed.1, "UAR page lost");
                }
                Err(error)
            }
        }
    }

    fn free_uar(&self, uar: UarHandle) -> Result<(), Box<(UarHandle, CommandError)>> {
        let mut dealloc = DeallocUarIn::default();
        dealloc.w().uar(uar.uar_page());
        let command = RawCommand::new(&dealloc, format!("UAR {:#x}", uar.uar_page()));
        // SAFETY: names no memory but the register page that the handle owns.
        unsafe { self.destroy(uar.handle(), command) }.map_err(|error| Box::new((uar, error)))
    }

    fn write_uar(&self, uar: &UarHandle, offset: usize, value: u64) -> Result<(), Error> {
        let (what, given) = ("the offset of a doorbell", offset as u64);
        if given > UAR_PAGE - 8 {
            return Err(Invalid::out_of_range(what, given, 0..=UAR_PAGE - 8, "a UAR page").into());
        }
        if !offset.is_multiple_of(8) {
            return Err(Invalid::Misaligned { what, given, multiple_of: 8 }.into());
        }
        self.liveness.check()?;
        let at = self.uar_offset(uar.uar_page()) + offset as u64;
        // SAFETY: the page comes from the card, since handles are made of nothing else, and the offset was checked:
        // this is a doorbell. It makes the card read rings that it was given for that.
        unsafe { self.registers.bar().write64(at, value) }.map_err(|error| Error::Dead(self.liveness.broken(&error)))
    }

    fn clock_ticks(&self) -> Result<u64, Error> {
        Ok(self.registers.internal_timer()?)
    }

    fn real_time(&self) -> Result<u64, Error> {
        Ok(self.registers.real_time()?)
    }

    fn card_memory(&self) -> &dyn CardMemory {
        self
    }

    fn alloc_dma(self: Arc<Self>, len: usize) -> Result<DmaBuffer, Error> {
        self.pool.allocate(len)
    }

    fn show(self: Arc<Self>, memory: HostMemory) -> Result<DmaBuffer, Error> {
        self.space.map_buffer(memory)
    }

    fn eqn(&self, vector: u32) -> Result<u32, Error> {
        let eqs = self.completion_eqs.get().map_or(&[][..], Vec::as_slice);
        let eqn = eqs.get(vector as usize).map(|eqn| u32::from(*eqn));
        eqn.ok_or_else(|| no_vector(vector, eqs.len() as u32).mend("see Options::completion_vectors").into())
    }

    fn completion_vectors(&self) -> u32 {
        self.completion_eqs.get().map_or(0, |eqs| eqs.len() as u32)
    }

    fn lend_event_queue(self: Arc<Self>, vector: u32) -> Result<Box<dyn LentEvents>, Error> {
        let mut idle = self.shelf.take(vector)?;
        match self.map_uar(idle.queue.uar_offset()) {
            Ok(page) => idle.queue.map_doorbells(page),
            Err(error) => {
                self.shelf.put(idle);
                return Err(error);
            }
        }
        let (shelf, liveness) = (Arc::clone(&self.shelf), Arc::clone(&self.liveness));
        Ok(Box::new(LentEventQueue::new(idle, &shelf, &liveness, self)))
    }

    fn knows_addresses(&self) -> bool {
        true
    }

    fn completion_eventfd(&self, _cq: ObjectHandle, cqn: u32, vector: u32) -> Result<OwnedFd, Error> {
        self.eqn(vector)?;
        if self.shelf.vectors().contains(&vector) {
            let what = format!("a completion queue with events on vector {vector}");
            return Err(Invalid::Requires { what, requires: "a vector whose event queue is not a thread's own" }.into());
        }
        self.subscribers.subscribe(cqn, &self.liveness)
    }

    fn forget_completion_eventfd(&self, cqn: u32) {
        self.subscribers.forget(cqn);
    }

    fn async_events(&self, count: Option<OwnedFd>) -> AsyncEvents {
        self.subscribers.listen(&self.liveness, count)
    }

    fn is_wanted_back(&self) -> bool {
        self.subscribers.is_wanted_back()
    }

    fn death(&self) -> Option<Error> {
        self.liveness.death().map(Error::Dead)
    }

    fn clock(&self) -> &Clock {
        &self.options.clock
    }
}
