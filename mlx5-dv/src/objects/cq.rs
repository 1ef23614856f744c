//! Completion queues: the object. What polls it is [`CompletionQueue`](crate::queue::CompletionQueue).

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{CmdStatus, CreateCqIn, DestroyCqIn, ModifyCqIn, ModifyCqOpMod, QueryCqIn, QueryCqOut};
use mlx5_prm::cqe::{Cqe, CqeOpcode};
use mlx5_prm::ctx::{CqPeriodMode, Cqc};
use mlx5_prm::layout::Layout;
use uar::Arm;

use super::check::within;
use super::doorbell;
use super::object::{DestroyError, Object, destroy_sole};
use super::ring::RingMemory;
use super::uar::Uar;
use crate::caps::{CapPage, Caps};
use crate::clock::Clock;
use crate::device::Device;
use crate::error::{CommandError, CommandErrorKind, CqStatus, Error, Invalid};
use crate::lock::lock;

/// Bytes of a completion queue entry. PRM `cqc.cqe_sz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CqeSize {
    /// 64.
    #[default]
    B64,
    /// 128: room for data scattered to the completion.
    B128,
}

impl CqeSize {
    fn shift(self) -> u32 {
        match self {
            CqeSize::B64 => 6,
            CqeSize::B128 => 7,
        }
    }
}

/// How events of a completion queue are held back, so that one serves many completions: an armed queue raises its event
/// once [`count`](Self::count) completions have come, or [`period`](Self::period) has passed. With either 0, it comes
/// at once. PRM `cqc.cq_max_count`, `cqc.cq_period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqModeration {
    /// Completions. Default: 0.
    pub count: u16,
    /// In microseconds, rounded up: at most 4095. Default: 0.
    pub period: Duration,
    /// What the period counts from. Default: the last event.
    pub period_mode: CqPeriodMode,
}

impl Default for CqModeration {
    fn default() -> Self {
        CqModeration { count: 0, period: Duration::ZERO, period_mode: CqPeriodMode::StartFromEqe }
    }
}

/// The longest period that `cq_period` can say.
const MOST_MICROSECONDS: u64 = 0xfff;

impl CqModeration {
    /// After `count` completions or `period`, counted from the last event.
    pub fn new(count: u16, period: Duration) -> Self {
        CqModeration { count, period, ..CqModeration::default() }
    }

    /// The period in microseconds, where the card can moderate so.
    fn microseconds(&self, caps: &Caps) -> Result<u16, Error> {
        let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
        let lacks = |what: &str, capability| Err(Error::Unsupported { what: what.into(), capability });
        if *self != CqModeration::default() && !general.cq_moderation() {
            return lacks("moderation of completion events", "cq_moderation");
        }
        match self.period_mode {
            CqPeriodMode::StartFromEqe => {}
            CqPeriodMode::StartFromCqe if general.cq_period_start_from_cqe() => {}
            CqPeriodMode::StartFromCqe => {
                return lacks("moderation that counts from a completion", "cq_period_start_from_cqe");
            }
            CqPeriodMode::Unknown(_) => {
                let (given, mend) = (self.period_mode.to_string(), Some("use StartFromEqe or StartFromCqe"));
                return Err(Invalid::NotA { what: "period_mode", given, mend }.into());
            }
        }
        let given = self.period.as_nanos().div_ceil(1000).min(u64::MAX.into()) as u64;
        let limit = 0..=MOST_MICROSECONDS;
        match limit.contains(&given) {
            true => Ok(given as u16),
            false => Err(Invalid::out_of_range("period in microseconds", given, limit, "cq_period").into()),
        }
    }
}

/// What a completion queue is to be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CqOptions {
    /// Completions it must hold at once; rounded up to a power of two less one. It must be as many as all work requests
    /// that can complete into it, or it overruns and its queue pairs fail. Default: 1023.
    pub entries: u32,
    /// Bytes of an entry. Default: 64.
    pub cqe_size: CqeSize,
    /// Whether it can be slept on. Default: no.
    pub events: bool,
    /// The completion vector whose EQ serves its events. Default: 0.
    pub vector: u32,
    /// How its events are held back. Default: not at all.
    pub moderation: CqModeration,
}

impl Default for CqOptions {
    fn default() -> Self {
        let moderation = CqModeration::default();
        CqOptions { entries: 1023, cqe_size: CqeSize::B64, events: false, vector: 0, moderation }
    }
}

impl CqOptions {
    /// Sets [`entries`](Self::entries).
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Sets [`cqe_size`](Self::cqe_size).
    pub fn cqe_size(mut self, cqe_size: CqeSize) -> Self {
        self.cqe_size = cqe_size;
        self
    }

    /// Makes it one that can be slept on.
    pub fn events(mut self) -> Self {
        self.events = true;
        self
    }

    /// Sets [`vector`](Self::vector).
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// Sets [`moderation`](Self::moderation).
    pub fn moderation(mut self, moderation: CqModeration) -> Self {
        self.moderation = moderation;
        self
    }
}

/// log2 of the entries of a ring that holds `completions`, as many as `log_max_cq_sz` allows.
fn log_entries(completions: u32, caps: &Caps) -> Result<u32, Invalid> {
    // One entry stays free, so that a full ring is not one that overran.
    let size = (u64::from(completions.max(1)) + 1).next_power_of_two();
    within("entries", size, "log_max_cq_sz", caps.log_max_cq_sz)?;
    Ok(size.trailing_zeros())
}

/// Where a completion queue's ring is: mapped as long as its [`Cq`] lives, and as large as `log_size` and `shift` say.
pub(crate) struct CqRingParts {
    pub(crate) ring: NonNull<u8>,
    pub(crate) record: NonNull<u8>,
    pub(crate) log_size: u32,
    pub(crate) shift: u32,
}

/// A completion queue as an object: parent of queue pairs. PRM "Completion Queue Context".
#[derive(Debug)]
pub struct Cq {
    cqn: u32,
    options: CqOptions,
    subscribed: AtomicBool,
    /// Whether there are former completions: all that polling looks at.
    has_former: AtomicBool,
    unread: Mutex<Unread>,
    object: Object,
    /// The doorbell record, and the ring as long as it has its first size.
    memory: RingMemory,
    uar: Arc<Uar>,
}

/// What is known of completions that nobody has polled yet.
#[derive(Debug)]
struct Unread {
    former: Vec<Former>,
    log_size: u32,
    /// The ring, once it has been resized.
    resized: Option<RingMemory>,
}

/// Completions that a queue pair left behind when it was reset or destroyed: those of `qpn` before position `end`,
/// modulo 2^24. Its number, and its indices from 0 on, are used again.
#[derive(Debug)]
struct Former {
    qpn: u32,
    end: u32,
    /// Those of receives too: the queue pair had a receive queue of its own.
    receives: bool,
}

/// How far `to` is behind `from`, of positions modulo 2^24. A queue holds far fewer: more than half is before it.
fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & 0xff_ffff
}

/// Whether `position` comes before `end`.
fn is_before(position: u32, end: u32) -> bool {
    (1..1 << 23).contains(&distance(position, end))
}

/// What a new ring is filled with: opcode "never written" and the wrong owner bit, so that nothing in it counts as a
/// completion.
const UNWRITTEN: u8 = 0xff;

/// Gives the entries of a new ring, filled with [`UNWRITTEN`], whose first completion is `first`, the owner bit that
/// the lap before has: polling looks at nothing else.
fn set_unwritten(memory: &RingMemory, log_size: u32, shift: u32, first: u32) {
    for position in (0..1u32 << log_size).map(|at| first.wrapping_add(at)).filter(|at| at >> log_size & 1 == 1) {
        let index = (position & ((1 << log_size) - 1)) as usize;
        memory.copy_in(((index + 1) << shift) - 1, &[UNWRITTEN & !1]);
    }
}

impl Cq {
    /// For [`CompletionQueue::create`](crate::queue::CompletionQueue::create) alone, which polls it.
    pub(crate) fn create(uar: &Arc<Uar>, options: CqOptions) -> Result<Arc<Self>, Error> {
        let device = uar.device();
        let log_size = log_entries(options.entries, device.caps())?;
        let microseconds = options.moderation.microseconds(device.caps())?;
        let eqn = device.access().eqn(options.vector)?;
        let memory = RingMemory::new(device, 1 << (log_size + options.cqe_size.shift()), UNWRITTEN)?;

        let mut context = Cqc::default();
        context
            .w()
            .cqe_sz((options.cqe_size.shift() - 6) as u8)
            .log_cq_size(log_size as u8)
            .uar_page(uar.index())
            .c_eqn_or_apu_element(eqn)
            .cq_max_count(options.moderation.count)
            .cq_period(microseconds)
            .cq_period_mode(options.moderation.period_mode.number() as u8)
            .dbr_umem_valid(true)
            .dbr_umem_id(memory.umem_id())
            .dbr_addr(memory.record_offset());
        let mut create = CreateCqIn::default();
        create.w().cq_context(&context).cq_umem_valid(true).cq_umem_id(memory.umem_id());
        let what = format!("a CQ of {} entries", 1u64 << log_size);
        // SAFETY: names the umem of `memory` alone, which is this queue's. It is kept beside the object, destroyed
        // after it, and leaked where that fails; firmware gives up no umem that an object uses.
        let created = unsafe {
            Object::create_over_memory(device, &create, &what, |out| {
                let mut end = DestroyCqIn::default();
                end.w().cqn(out.cqn());
                (end, format!("CQ {:#x}", out.cqn()))
            })
        };
        let (object, out) = created?;
        Ok(Arc::new(Cq {
            cqn: out.cqn(),
            options,
            subscribed: AtomicBool::new(false),
            has_former: AtomicBool::new(false),
            unread: Mutex::new(Unread { former: vec![], log_size, resized: None }),
            object,
            memory,
            uar: Arc::clone(uar),
        }))
    }

    /// `cqn`, 24 bits.
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Completions it holds at once.
    pub fn capacity(&self) -> u32 {
        (1 << lock(&self.unread).log_size) - 1
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Where its ring is, for the one queue that polls it.
    pub(crate) fn ring_parts(&self) -> Result<CqRingParts, Error> {
        let unread = lock(&self.unread);
        let (ring, record) = (self.ring(&unread).at(0)?, self.memory.record()?);
        Ok(CqRingParts { ring, record, log_size: unread.log_size, shift: self.options.cqe_size.shift() })
    }

    /// The memory of the ring.
    fn ring<'a>(&'a self, unread: &'a Unread) -> &'a RingMemory {
        unread.resized.as_ref().unwrap_or(&self.memory)
    }

    /// Has events held back as `moderation` says, from now on. Any thread may do so while another polls.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the card has no moderation, or cannot change what its period counts from
    /// (`cq_period_mode_modify`); [`Error::Invalid`] for a period that is too long; [`Error::Command`].
    pub fn moderate(&self, moderation: &CqModeration) -> Result<(), Error> {
        const PERIOD_AND_COUNT: u8 = 1 << 0 | 1 << 1;
        const PERIOD_MODE: u8 = 1 << 4;
        let caps = self.device().caps();
        let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
        if !general.cq_moderation() {
            let (what, capability) = ("moderation of completion events".into(), "cq_moderation");
            return Err(Error::Unsupported { what, capability });
        }
        let (microseconds, mut select) = (moderation.microseconds(caps)?, PERIOD_AND_COUNT);
        if moderation.period_mode != self.moderation()?.period_mode {
            if !general.cq_period_mode_modify() {
                let (what, capability) = ("another period_mode than at creation".into(), "cq_period_mode_modify");
                return Err(Error::Unsupported { what, capability });
            }
            select |= PERIOD_MODE;
        }
        let (mut command, mut context) = (ModifyCqIn::default(), Cqc::default());
        let mode = moderation.period_mode.number() as u8;
        context.w().cq_max_count(moderation.count).cq_period(microseconds).cq_period_mode(mode);
        let select = [0, 0, 0, select];
        command.w().cqn(self.cqn).modify_field_select_resize_field_select(&select).cq_context(&context);
        Ok(self.object.modify(&command)?)
    }

    /// How the card holds its events back. Errors: [`Error::Command`].
    pub fn moderation(&self) -> Result<CqModeration, Error> {
        let context = *self.query()?.cq_context();
        Ok(CqModeration {
            count: context.cq_max_count(),
            period: Duration::from_micros(context.cq_period().into()),
            period_mode: CqPeriodMode::from_number(context.cq_period_mode().into()),
        })
    }

    /// Puts the queue into a new ring that holds `entries` completions. The completions in the old one that were not
    /// polled are moved; all of them are one position further then, as the old ring ends with an entry of the card's.
    /// Where the new ring is; `None` where it has that size already.
    ///
    /// For [`CompletionQueue::resize`](crate::queue::CompletionQueue::resize) alone, which has polled `consumed`
    /// completions, and accesses the old ring no more where there is a new one.
    pub(crate) fn resize(&self, entries: u32, consumed: u32) -> Result<Option<CqRingParts>, Error> {
        let caps = self.device().caps();
        if !caps.current::<CmdHcaCap>(CapPage::General).is_some_and(|general| general.cq_resize()) {
            let (what, capability) = ("a completion queue of another size".into(), "cq_resize");
            return Err(Error::Unsupported { what, capability });
        }
        let log_size = log_entries(entries, caps)?;
        // Until the end: who forgets completions looks for them in the ring.
        let mut unread = lock(&self.unread);
        if log_size == unread.log_size {
            return Ok(None);
        }
        let shift = self.options.cqe_size.shift();
        let mut memory = RingMemory::new(self.device(), 1 << (log_size + shift), UNWRITTEN)?;
        set_unwritten(&memory, log_size, shift, consumed.wrapping_add(1));
        let parts = CqRingParts { ring: memory.at(0)?, record: self.memory.record()?, log_size, shift };
        if let Err(error) = self.move_to(&memory, log_size) {
            // Where the card did not answer it may be in either ring.
            if !matches!(error.kind, CommandErrorKind::Status { .. }) {
                memory.leak();
            }
            return Err(self.explain_resize(&unread, error, entries));
        }
        if let Err(error) = self.move_unread(&unread, &memory, log_size) {
            memory.leak();
            return Err(error);
        }
        unread.former.iter_mut().for_each(|former| former.end = former.end.wrapping_add(1));
        (unread.log_size, unread.resized) = (log_size, Some(memory));
        Ok(Some(parts))
    }

    /// Tells the card to go on in `memory`, a ring of `1 << log_size` entries. PRM "MODIFY_CQ", RESIZE_CQ.
    fn move_to(&self, memory: &RingMemory, log_size: u32) -> Result<(), CommandError> {
        /// `log_cq_size`, `page_offset` and `log_page_size`, as Linux selects them.
        const SIZE_AND_PAGES: [u8; 4] = [0, 0, 0, 1 << 0 | 1 << 1 | 1 << 2];
        let (mut command, mut context) = (ModifyCqIn::default(), Cqc::default());
        context.w().log_cq_size(log_size as u8).cqe_sz((self.options.cqe_size.shift() - 6) as u8);
        command
            .w()
            .op_mod(ModifyCqOpMod::Resize.number() as u16)
            .cqn(self.cqn)
            .modify_field_select_resize_field_select(&SIZE_AND_PAGES)
            .cq_context(&context)
            .cq_umem_valid(true)
            .cq_umem_id(memory.umem_id());
        // SAFETY: names the umem of `memory` alone, which is this queue's. `resize` keeps it beside the object where
        // the card took it, drops it where the card refused it, and else leaks it; what it was in before is dropped
        // once the card has left it, and firmware gives up no umem that an object uses.
        unsafe { self.object.modify_over_memory(&command) }
    }

    /// Moves what was not polled into `memory`, up to the entry that ends the old ring, each one position further.
    fn move_unread(&self, unread: &Unread, memory: &RingMemory, log_size: u32) -> Result<(), Error> {
        let (ring, stride) = (self.ring(unread), 1usize << self.options.cqe_size.shift());
        let mut entry = vec![0; stride];
        let (mut position, mut moved) = (self.consumed(), 0u64);
        while let Some(cqe) = self.written(unread, position) {
            if cqe.opcode() == CqeOpcode::ResizeCq {
                return Ok(());
            }
            ring.copy_out((position & ((1 << unread.log_size) - 1)) as usize * stride, &mut entry);
            position = position.wrapping_add(1);
            let owner = (position >> log_size & 1) as u8;
            if let Some(op_own) = entry.last_mut() {
                *op_own = *op_own & !1 | owner;
            }
            memory.copy_in((position & ((1 << log_size) - 1)) as usize * stride, &entry);
            moved += 1;
        }
        let detail = format!("the old ring of CQ {:#x} does not end with RESIZE_CQ; destroy the queue", self.cqn);
        Err(Error::InvalidResponse { what: "completions before the end", given: moved, limit: None, detail })
    }

    /// Why `error` came of a resize to `entries`: most often because more was not polled than the new ring holds.
    fn explain_resize(&self, unread: &Unread, error: CommandError, entries: u32) -> Error {
        let refused = matches!(error.kind, CommandErrorKind::Status { status: CmdStatus::BadResourceState, .. });
        let first = self.consumed();
        let waiting =
            (0..1 << unread.log_size).take_while(|at| self.written(unread, first.wrapping_add(*at)).is_some());
        let waiting = waiting.count() as u64;
        if !refused || waiting <= entries.into() {
            return error.into();
        }
        let limit = waiting..=(1 << self.device().caps().log_max_cq_sz) - 1;
        let invalid = Invalid::out_of_range("entries", entries.into(), limit, "a queue with completions in it");
        invalid.mend("poll first").into()
    }

    /// The eventfd of its events, if it was made with them.
    pub(crate) fn subscribe(&self) -> Result<Option<OwnedFd>, Error> {
        if !self.options.events {
            return Ok(None);
        }
        let fd = self.device().access().completion_eventfd(self.object.handle(), self.cqn, self.options.vector)?;
        self.subscribed.store(true, Ordering::Relaxed);
        Ok(Some(fd))
    }

    /// Tells the card to look at the arm request in the record.
    pub(crate) fn arm(&self, arm: Arm) -> Result<(), Error> {
        doorbell::arm_cq(&self.uar, self.cqn, arm)
    }

    /// How the card says it is. Errors: [`Error::Command`].
    pub fn status(&self) -> Result<CqStatus, Error> {
        Ok(match self.query()?.cq_context().status() {
            0x0 => CqStatus::Ok,
            0x9 => CqStatus::Overflow,
            0xa => CqStatus::WriteFailure,
            other => CqStatus::Unknown(other),
        })
    }

    fn query(&self) -> Result<QueryCqOut, CommandError> {
        let mut query = QueryCqIn::default();
        query.w().cqn(self.cqn);
        self.object.query(&query)
    }

    /// What has completed of queue pair `qpn` and was not polled yet is nobody's: it has been reset or destroyed, so
    /// that no more comes of that life. `receives`: what has completed of its receives too.
    pub(crate) fn forget(&self, qpn: u32, receives: bool) {
        let mut unread = lock(&self.unread);
        unread.former.retain(|former| former.qpn != qpn);
        if let Some(end) = self.end_of_unread(&unread, qpn) {
            unread.former.push(Former { qpn, end, receives });
        }
        self.has_former.store(!unread.former.is_empty(), Ordering::Relaxed);
    }

    /// Whether [`is_former`](Self::is_former) may say yes.
    #[inline(always)]
    pub(crate) fn has_former(&self) -> bool {
        // It says only that the lock is to be taken, which orders all else.
        self.has_former.load(Ordering::Relaxed)
    }

    /// Whether the completion `cqe` at `position` is of a life before its queue pair's last reset. Positions only grow
    /// from call to call.
    pub(crate) fn is_former(&self, cqe: &Cqe, position: u32) -> bool {
        let former = &mut lock(&self.unread).former;
        former.retain(|former| is_before(position, former.end));
        self.has_former.store(!former.is_empty(), Ordering::Relaxed);
        let is_send = matches!(cqe.opcode(), CqeOpcode::Requester | CqeOpcode::RequesterError);
        former.iter().any(|former| former.qpn == cqe.qpn() && (is_send || former.receives))
    }

    /// Where the completions end that have been written, if one of those not polled yet is of `qpn`. Another thread may
    /// be polling.
    fn end_of_unread(&self, unread: &Unread, qpn: u32) -> Option<u32> {
        let first = self.consumed();
        let (mut end, mut found) = (first, false);
        while distance(first, end) < 1 << unread.log_size {
            let consumed = match self.written(unread, end) {
                Some(cqe) => {
                    found |= cqe.qpn() == qpn;
                    end = end.wrapping_add(1);
                    continue;
                }
                None => self.consumed(),
            };
            if !is_before(end, consumed) {
                break;
            }
            // Polled meanwhile, and its place used again.
            end = consumed;
        }
        found.then_some(end)
    }

    /// Completions polled, modulo 2^24.
    fn consumed(&self) -> u32 {
        self.memory.consumed()
    }

    /// The completion at `position`; `None` where there is none yet.
    fn written(&self, unread: &Unread, position: u32) -> Option<Cqe> {
        let (ring, shift) = (self.ring(unread), self.options.cqe_size.shift());
        let index = (position & ((1 << unread.log_size) - 1)) as usize;
        let offset = ((index + 1) << shift) - Cqe::SIZE;
        let mut entry = [0; Cqe::SIZE];
        // The owner bit first, in the last dword.
        let owner = ring.load(offset + Cqe::SIZE - 4) & 1;
        ring.copy_out(offset, &mut entry);
        let entry = Cqe::read(&entry)?;
        let ours = owner == position >> unread.log_size & 1 && entry.opcode() != CqeOpcode::Invalid;
        ours.then_some(entry)
    }

    pub(crate) fn death(&self) -> Option<Error> {
        self.device().death()
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.device().clock()
    }

    /// The error of a wait that ended after `timeout`: because the queue is broken, or because there was nothing.
    pub(crate) fn why_nothing_came(&self, timeout: Duration) -> Error {
        match self.status() {
            Ok(CqStatus::Ok) => Error::Timeout { what: format!("a completion on CQ {:#x}", self.cqn), limit: timeout },
            Ok(status) => Error::CompletionQueue { cqn: self.cqn, status },
            Err(error) => error,
        }
    }

    fn end(&mut self) -> Result<(), CommandError> {
        if self.subscribed.swap(false, Ordering::Relaxed) {
            self.device().access().forget_completion_eventfd(self.cqn);
        }
        self.object.destroy()?;
        if let Some(mut ring) = self.unread.get_mut().unwrap_or_else(PoisonError::into_inner).resized.take() {
            ring.destroy()?;
        }
        self.memory.destroy()
    }

    /// Destroys it. Its queue pairs and the queue that polls it must be gone. Errors: the object, kept alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, Cq::end)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a CQ was not destroyed; its memory is leaked");
            let unread = self.unread.get_mut().unwrap_or_else(PoisonError::into_inner);
            unread.resized.iter_mut().for_each(RingMemory::leak);
            self.memory.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_compared_across_the_wrap() {
        assert!(is_before(0, 1) && is_before(0xff_ffff, 0x100_0000) && is_before(0xff_fffe, 3));
        assert!(!is_before(1, 1) && !is_before(3, 0xff_fffe) && !is_before(1, 0));
    }
}
