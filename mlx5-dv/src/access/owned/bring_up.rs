//! Bring-up: one sequence, in the PRM's order. PRM "Driver Start-up".
//!
//! Each step that must be undone is recorded once it is done. When a bring-up fails, or a card is closed,
//! `tear_down.rs` undoes the recorded steps in reverse order.

use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use mlx5_prm::caps::{CapPage, CmdHcaCap};
use mlx5_prm::cmd::*;
use mlx5_prm::eqe::EventType;
use mlx5_prm::layout::Layout;
use mlx5_prm::reg::{HostEndianness, RegisterId};

use super::caps::{check_caps, set_hca_cap};
use super::command::CommandQueue;
use super::event_loop::{MOST_PAGES, Shared};
use super::event_queue::{EventQueue, EventRing};
use super::events::Events;
use super::lending::{Idle, Interrupt};
use super::pages::{BATCH, FirmwarePages, PageOwner, Phase};
use super::registers::Registers;
use super::space::Space;
use super::steps::Step;
use super::{Owned, port};
use crate::access::hca_cap::query_all;
use crate::access::liveness::{Liveness, StopDma, Wake};
use crate::access::subscribers::Subscribers;
use crate::access::{Access, Function, FunctionParts, Notices, ObjectHandle, Options, UarHandle, UarMapping};
use crate::caps::Caps;
use crate::error::{Death, Error, Invalid};
use crate::lock::lock;
use crate::memory::DmaPool;
use crate::net::Mac;

/// The interface step sequence ID that this driver uses: 1 means ConnectX-4 and later.
const ISSI: u16 = 1;
/// Interval for polling firmware's start: an eighth of the time spent so far, within these bounds.
const READY_POLL: RangeInclusive<Duration> = Duration::from_micros(10)..=Duration::from_millis(2);
/// Pages that firmware may ask for: a signed number, which is none if it is negative.
const PAGES: RangeInclusive<u64> = 0..=MOST_PAGES as u64;
/// Log of the entries of the EQ for commands and page requests: more than can be outstanding at once.
const LOG_COMMAND_EQ: u8 = 8;
/// Log of the entries of the asynchronous EQ, as on Linux. An overrun is fatal to the function, and each queue pair may
/// cause an event at once. PRM "Health Buffer", ASYNC_EQ_BUF_OVERRUN.
const LOG_ASYNC_EQ: u8 = 12;
/// Log of the entries of each completion EQ.
const LOG_COMPLETION_EQ: u8 = 11;

/// Events of an EQ of their own: no burst of others delays or drops them.
const COMMAND_EVENTS: [EventType; 2] = [EventType::Command, EventType::PageRequest];

/// Events of the asynchronous EQ. Every card supports these.
const ASYNC_EVENTS: [EventType; 12] = [
    EventType::PortChange,
    EventType::CqError,
    EventType::PathMigrated,
    EventType::PathMigrationFailed,
    EventType::CommunicationEstablished,
    EventType::SendQueueDrained,
    EventType::WqCatastrophic,
    EventType::WqInvalidRequest,
    EventType::WqAccessError,
    EventType::SrqCatastrophic,
    EventType::SrqLastWqe,
    EventType::SrqLimit,
];

/// Further ones, of cards with dynamically connected targets.
const DCT_EVENTS: [EventType; 2] = [EventType::DctDrained, EventType::DctKeyViolation];

/// A function after bring-up.
pub struct BroughtUp {
    /// Access to the function.
    pub card: Arc<Owned>,
    /// Its capabilities.
    pub caps: Caps,
    /// Its MAC address; all zero on InfiniBand.
    pub mac: Mac,
}

/// Brings `function` up. On an error every completed step is undone.
pub fn bring_up(function: Function, options: &Options) -> Result<BroughtUp, Error> {
    let card = new_card(function, options);

    reset_function(&card)?;
    wait_for_firmware(&card)?;
    start_command_queue(&card)?;
    wait_for_firmware(&card)?;

    enable_hca(&card)?;
    set_issi(&card)?;
    give_pages(&card, Phase::Boot)?;
    set_host_endianness(&card);
    set_hca_cap(&card)?;
    give_pages(&card, Phase::Init)?;
    init_hca(&card)?;
    let caps = query_all(&card, card.registers.identity()?.fw_version)?;
    check_caps(&caps)?;
    set_driver_version(&card, &caps)?;

    // An InfiniBand port has no NIC vport context; a subnet manager configures it, and not its driver.
    if caps.is_infiniband() {
        create_event_queues(&card, &caps)?;
        return Ok(BroughtUp { card: Arc::new(card), caps, mac: Mac([0; 6]) });
    }
    port::enable_roce(&card, &caps)?;
    create_event_queues(&card, &caps)?;
    let mac = port::address(&card)?;
    port::set_unicast_address(&card, &caps, mac)?;
    port::set_mtu(&card)?;
    port::bring_up(&card)?;
    Ok(BroughtUp { card: Arc::new(card), caps, mac })
}

/// Builds the driver's state. Does not touch the device.
fn new_card(function: Function, options: &Options) -> Owned {
    let FunctionParts { name, bar, dma, irq } = function.into_parts();
    let liveness = Liveness::new();
    let space = Arc::new(Space::new(dma, Arc::clone(&liveness)));
    let source = Arc::clone(&space);
    let pool = DmaPool::new(move |len| source.allocate(len));
    let subscribers = Arc::new(Subscribers::default());
    let waiter: Arc<dyn Wake> = Arc::clone(&subscribers) as _;
    liveness.watch(Arc::downgrade(&waiter));
    let registers = Arc::new(Registers::new(bar, Arc::clone(&liveness)));
    let stop: Arc<dyn StopDma> = Arc::clone(&registers) as _;
    liveness.stop_with(Arc::downgrade(&stop));
    Owned {
        name,
        registers,
        irq,
        pages: Arc::new(FirmwarePages::new(Arc::clone(&space))),
        space,
        pool,
        subscribers,
        liveness,
        commands: OnceLock::new(),
        done: Mutex::default(),
        l2_entries: Mutex::default(),
        events: Mutex::default(),
        completion_eqs: OnceLock::new(),
        shelf: Arc::default(),
        log_uar_page: AtomicU32::new(12),
        kept: Mutex::default(),
        card_memory: OnceLock::new(),
        options: options.clone(),
    }
}

/// Resets the function to discard its previous state, then enables bus mastering.
fn reset_function(card: &Owned) -> Result<(), Error> {
    let bar = card.registers.bar();
    if card.options.reset {
        bar.reset().or_else(reset_refused)?;
    }
    match bar.set_bus_master(true) {
        // After a reset the config space must answer. If it does not, the function is gone.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => card.liveness.end(Death::Vanished),
        other => other.map_err(|error| Error::of_device("starting bus mastering", error))?,
    }
    card.liveness.check()?;
    card.done(Step::BusMaster);
    Ok(())
}

/// A function without reset support is used as it is: ENABLE_HCA fails if that is not possible.
fn reset_refused(error: io::Error) -> Result<(), Error> {
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => {
            tracing::warn!(%error, "the function cannot be reset: state of its last driver remains");
            Ok(())
        }
        _ => Err(Error::of_device("resetting the function (Options::reset)", error)),
    }
}

/// Waits until firmware has started. PRM "Initialization Segment", `initializing`.
///
/// After a reset the registers may read as all ones for a while. That counts as not ready; only the timeout makes it a
/// death.
fn wait_for_firmware(card: &Owned) -> Result<(), Error> {
    let limit = card.options.firmware_timeout;
    let clock = &card.options.clock;
    let begin = clock.now();
    while card.registers.initializing()? {
        let elapsed = clock.now().saturating_sub(begin);
        if elapsed >= limit {
            card.registers.check_presence()?;
            return Err(Error::Timeout { what: "firmware's start (its initializing bit)".into(), limit });
        }
        clock.pause((elapsed / 8).clamp(*READY_POLL.start(), *READY_POLL.end()));
    }
    Ok(())
}

fn start_command_queue(card: &Owned) -> Result<(), Error> {
    let commands = CommandQueue::start(
        Arc::clone(&card.registers),
        Arc::clone(&card.pool),
        Arc::clone(&card.liveness),
        card.options.command_timeout,
        card.options.clock.clone(),
        card.options.observers.clone(),
    )?;
    let _ = card.commands.set(commands);
    Ok(())
}

fn enable_hca(card: &Owned) -> Result<(), Error> {
    let mut enable = EnableHcaIn::default();
    enable.w().embedded_cpu_function(card.registers.is_embedded_cpu()?);
    // SAFETY: names no memory; this module alone controls the function's life cycle.
    unsafe { card.run_raw(&enable, "") }?;
    card.done(Step::EnableHca);
    Ok(())
}

/// Negotiates the interface step sequence ID: which commands and fields both sides support.
fn set_issi(card: &Owned) -> Result<(), Error> {
    let out = card.run(&QueryIssiIn::default(), "")?;
    if out.supported_issi_dw0() & 1 << ISSI == 0 {
        let detail = format!("this driver needs interface step {ISSI}; update the firmware");
        return Err(Error::response("supported_issi_dw0", out.supported_issi_dw0().into(), None, detail));
    }
    let mut set = SetIssiIn::default();
    set.w().current_issi(ISSI);
    // SAFETY: names no memory; this module alone controls the function's life cycle.
    unsafe { card.run_raw(&set, "") }?;
    Ok(())
}

/// Gives firmware the pages it needs for `phase`. PRM "QUERY_PAGES", "MANAGE_PAGES".
fn give_pages(card: &Owned, phase: Phase) -> Result<(), Error> {
    let embedded = card.registers.is_embedded_cpu()?;
    let out = card.run(&FirmwarePages::query_command(phase, embedded), "")?;
    let (owner, wanted) = (PageOwner { function: out.function_id(), embedded }, out.num_pages() as i32);
    let mut left = usize::try_from(wanted)
        .ok()
        .filter(|wanted| wanted + card.pages.held() <= MOST_PAGES)
        .ok_or_else(|| Error::response("num_pages", out.num_pages().into(), PAGES, format!("for phase {phase:?}")))?;
    if phase == Phase::Boot {
        card.done(Step::Pages);
    }
    while left > 0 {
        let (command, pages) = card.pages.give_command(owner, left.min(BATCH))?;
        // SAFETY: `card.pages` reserves the pages for firmware until firmware returns them or its DMA has stopped.
        if let Err(error) = unsafe { card.execute(command) } {
            if error.status().is_some() {
                card.pages.not_taken(&pages);
            }
            return Err(error.into());
        }
        left -= pages.len();
    }
    Ok(())
}

/// Tells the card that this host is little-endian. Only physical functions have the register; other functions need no
/// setting.
fn set_host_endianness(card: &Owned) {
    if let Err(error) = port::register(card, RegisterId::HostEndianness, true, &HostEndianness::default()) {
        tracing::debug!(%error, "host endianness stays unchanged");
    }
}

fn init_hca(card: &Owned) -> Result<(), Error> {
    // SAFETY: names no memory; this module alone controls the function's life cycle.
    unsafe { card.run_raw(&InitHcaIn::default(), "") }?;
    card.done(Step::InitHca);
    Ok(())
}

fn set_driver_version(card: &Owned, caps: &Caps) -> Result<(), Error> {
    if !caps.driver_version {
        return Ok(());
    }
    let version = format!("{},mlx5-dv,{}", std::env::consts::OS, env!("CARGO_PKG_VERSION"));
    let mut bytes = [0; 64];
    // The string must end in a zero byte.
    let len = version.len().min(bytes.len() - 1);
    bytes[..len].copy_from_slice(&version.as_bytes()[..len]);
    let mut set = SetDriverVersionIn::default();
    set.w().driver_version(&bytes);
    card.run(&set, &version)?;
    Ok(())
}

/// Creates the EQ for commands, switches them to completion by event, then creates the asynchronous and completion EQs.
fn create_event_queues(card: &Owned, caps: &Caps) -> Result<(), Error> {
    let Some(commands) = card.commands.get() else { return Ok(()) };
    let vectors = card.irq.vectors();
    if vectors == 0 {
        return Err(Error::response("the number of MSI-X vectors", 0, 1..=u64::MAX, ""));
    }
    // Vector 0 is for commands and asynchronous events. If it is the only one, completions share it.
    let own = card.options.own_event_queues;
    // One for asynchronous events, and one for completions.
    let most = vectors.saturating_sub(2);
    if own > most {
        return Err(Invalid::out_of_range("own_event_queues", own.into(), 0..=most.into(), "MSI-X vectors").into());
    }
    let completion = card.options.completion_vectors.clamp(1, (vectors - own).saturating_sub(1).max(1));
    let enable = (1 + completion + own).min(vectors);
    let fds = card.irq.enable(enable).map_err(|error| Error::of_device("enabling interrupts", error))?;
    card.done(Step::Interrupts);
    let mut fds = fds.into_iter();

    let out = card.run(&AllocUarIn::default(), "for event queues")?;
    let uar_offset = card.checked_uar_offset(out.uar())?;
    card.done(Step::EventUar(UarHandle::new(out.uar(), UarMapping::Uncached, ObjectHandle(0))));

    let create = |log_size: u8, vector: u16, types: &[EventType]| -> Result<EventQueue, Error> {
        let ring = EventRing::allocate(&card.pool, log_size.min(caps.log_max_eq_sz.max(6)))?;
        // SAFETY: names the ring's memory. The `EventQueue` keeps it until the EQ is destroyed; without a reply, `kept`
        // does, until DMA has stopped.
        let reply = match unsafe { card.execute(ring.create_command(out.uar(), vector, types)) } {
            Ok(reply) => reply,
            Err(error) => {
                // Without a reply, firmware may still create an EQ in this memory.
                if error.may_be_done() {
                    lock(&card.kept).push(ring.into_memory());
                }
                return Err(error.into());
            }
        };
        let eqn = CreateEqOut::read(&reply).map_or(0, |out| out.eq_number());
        Ok(ring.created(eqn, Arc::clone(&card.registers), uar_offset))
    };
    let general: Option<CmdHcaCap> = caps.current(CapPage::General);
    let has_targets = general.is_some_and(|general| general.dct());
    let of_targets = if has_targets { &DCT_EVENTS[..] } else { &[] };
    // First what fails without a command: an EQ that exists keeps its memory.
    let events = start_events(card, commands)?;
    let command_eq = create(LOG_COMMAND_EQ, 0, &COMMAND_EVENTS)?;
    events.adopt(command_eq, fds.next());
    *lock(&card.events) = Some(events);
    card.done(Step::EventQueues);
    commands.set_by_event(true);

    let async_eq = create(LOG_ASYNC_EQ, 0, &[&ASYNC_EVENTS, of_targets].concat())?;
    if let Some(events) = &*lock(&card.events) {
        events.adopt(async_eq, None);
    }
    let mut eqns = vec![];
    for vector in 0..completion {
        let queue = create(LOG_COMPLETION_EQ, (vector + 1).min(vectors - 1) as u16, &[])?;
        eqns.push(queue.eqn);
        if let Some(events) = &*lock(&card.events) {
            events.adopt(queue, fds.next());
        }
    }
    let own = completion..completion + own;
    for (vector, fd) in own.clone().zip(fds) {
        let queue = create(LOG_COMPLETION_EQ, (vector + 1) as u16, &[])?;
        eqns.push(queue.eqn);
        card.shelf.put(Idle { vector, queue, interrupt: Arc::new(Interrupt(fd)) });
    }
    card.shelf.is_for(own);
    let _ = card.completion_eqs.set(eqns);
    Ok(())
}

fn start_events(card: &Owned, commands: &Arc<CommandQueue>) -> Result<Events, Error> {
    let notices = card.irq.notices().unwrap_or_else(|error| {
        tracing::warn!(%error, "the system will not say when it wants the function back, nor of errors of its bus");
        Notices::default()
    });
    let shared = Shared {
        liveness: Arc::clone(&card.liveness),
        registers: Arc::clone(&card.registers),
        commands: Arc::clone(commands),
        pages: Arc::clone(&card.pages),
        subscribers: Arc::clone(&card.subscribers),
        health_interval: card.options.health_interval,
        health_patience: card.options.health_patience,
    };
    Events::start(shared, notices, &card.name, &card.options.clock)
}
