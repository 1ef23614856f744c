//! Completion queues: the object. What polls it is [`CompletionQueue`](crate::queue::CompletionQueue).

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{CmdStatus, CreateCqIn, DestroyCqIn, ModifyCqIn, ModifyCqOpMod, QueryCqIn, QueryCqOut};
use mlx5_prm::cqe::{Cqe, CqeFormat, CqeOpcode, MiniCqeFormat};
use mlx5_prm::ctx::{CqPeriodMode, Cqc};
use mlx5_prm::layout::Layout;
use uar::Arm;

use super::check::{NO_USER_INDEX, one_device, within};
use super::doorbell;
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use super::ring::RingMemory;
use super::uar::Uar;
use crate::access::{KernelCq, KernelObjectKind, KernelVerbs, ObjectHandle};
use crate::caps::{CapPage, Caps};
use crate::clock::Clock;
use crate::device::Device;
use crate::error::{CommandError, CommandErrorKind, CqStatus, Error, Invalid};
use crate::lock::lock;
use crate::setters::setters;

/// Size of a CQE. PRM `cqc.cqe_sz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CqeSize {
    /// 64 bytes.
    #[default]
    B64,
    /// 128 bytes, with room for data scattered to the CQE.
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

/// Moderation of a completion queue's events, so that one event serves many completions: an armed queue raises its
/// event after [`count`](Self::count) completions or after [`period`](Self::period). If either is 0, at once. PRM
/// `cqc.cq_max_count`, `cqc.cq_period`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CqModeration {
    /// Number of completions. Default: 0.
    pub count: u16,
    /// Period in microseconds, rounded up: at most 4095. Default: 0.
    pub period: Duration,
    /// Start of the period. Default: the last event.
    pub period_mode: CqPeriodMode,
}

impl Default for CqModeration {
    fn default() -> Self {
        CqModeration { count: 0, period: Duration::ZERO, period_mode: CqPeriodMode::StartFromEqe }
    }
}

/// The largest value of `cq_period`.
const MOST_MICROSECONDS: u64 = 0xfff;

impl CqModeration {
    /// Moderation by `count` completions or by `period`, counted from the last event.
    pub fn new(count: u16, period: Duration) -> Self {
        CqModeration { count, period, ..CqModeration::default() }
    }

    /// The period in microseconds, if the card supports this moderation.
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

/// What each completion of a compressed block has of its own, beside its length. PRM `cqc.mini_cqe_res_format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// The RSS hash.
    Hash,
    /// The checksum.
    Checksum,
    /// The flow tag, and the stride or WQE; needs `mini_cqe_resp_flow_tag`.
    FlowTag,
    /// The checksum, and the stride or WQE; needs `mini_cqe_resp_stride_index`.
    ChecksumStride,
    /// The types of its headers, and the stride or WQE; needs `mini_cqe_resp_l3_l4_tag`.
    HeaderType,
}

impl Compression {
    /// `mini_cqe_res_format` and its extension, if the card has this form.
    fn numbers(self, general: &CmdHcaCap, size: CqeSize) -> Result<(u8, u8), Error> {
        let (is_there, capability, numbers) = match self {
            Compression::Hash => (true, "", (MiniCqeFormat::Hash, 0)),
            Compression::Checksum => (true, "", (MiniCqeFormat::Checksum, 0)),
            Compression::FlowTag => {
                (general.mini_cqe_resp_flow_tag(), "mini_cqe_resp_flow_tag", (MiniCqeFormat::FlowTag, 0))
            }
            Compression::ChecksumStride => {
                (general.mini_cqe_resp_stride_index(), "mini_cqe_resp_stride_index", (MiniCqeFormat::ChecksumStride, 0))
            }
            Compression::HeaderType => {
                (general.mini_cqe_resp_l3_l4_tag(), "mini_cqe_resp_l3_l4_tag", (MiniCqeFormat::Hash, 1))
            }
        };
        let lacks = |what: &str, capability| Err(Error::Unsupported { what: what.into(), capability });
        if !general.cqe_compression() {
            return lacks("compressed completions", "cqe_compression");
        }
        if size == CqeSize::B128 && !general.cqe_compression_128() {
            return lacks("compressed completions of 128 bytes", "cqe_compression_128");
        }
        if !is_there {
            return lacks("completions compressed in this form", capability);
        }
        Ok((numbers.0.number() as u8, numbers.1))
    }
}

/// Options of a completion queue.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CqOptions {
    /// Completions that it can hold; rounded up to a power of two minus one. It must hold the completions of all
    /// outstanding work requests: if it overruns, its queue pairs fail. Default: 1023.
    pub entries: u32,
    /// CQE size. Default: 64 bytes.
    pub cqe_size: CqeSize,
    /// Whether waits can sleep on its events. Default: no.
    pub events: bool,
    /// The completion vector whose EQ serves its events. Default: 0.
    pub vector: u32,
    /// Moderation of its events. Default: none.
    pub moderation: CqModeration,
    /// Parent domain in whose memory its rings lie: see [`Pd::alloc_parent`]. Default: none, or that of the queue that
    /// creates it.
    pub parent_domain: Option<Arc<Pd>>,
    /// Whether it is for shared receive queues of XRC domains, which on `devx:` complete into queues of the kernel's
    /// alone. Default: no.
    pub for_xrc: bool,
    /// Compression of its receives; set by the queue that decodes it.
    compression: Option<Compression>,
}

setters! {
    CqOptions {
        entries: u32;
        cqe_size: CqeSize;
        events = true;
        vector: u32;
        moderation: CqModeration;
        for_xrc = true;
    }
}

impl Default for CqOptions {
    fn default() -> Self {
        let moderation = CqModeration::default();
        CqOptions {
            entries: 1023,
            cqe_size: CqeSize::B64,
            events: false,
            vector: 0,
            moderation,
            parent_domain: None,
            for_xrc: false,
            compression: None,
        }
    }
}

impl CqOptions {
    /// Only for [`CompressedCompletionQueue`](crate::queue::CompressedCompletionQueue).
    pub(crate) fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Sets [`parent_domain`](Self::parent_domain).
    pub fn parent_domain(mut self, pd: &Arc<Pd>) -> Self {
        self.parent_domain = Some(Arc::clone(pd));
        self
    }

    /// For a completion queue of a queue in `pd`: its rings lie where that one's do, unless the options say another
    /// place.
    pub(crate) fn beside(self, pd: &Arc<Pd>) -> Self {
        if self.parent_domain.is_none() && pd.has_rings() { self.parent_domain(pd) } else { self }
    }
}

/// Log of the number of entries for `completions`, limited by `log_max_cq_sz`.
fn log_entries(completions: u32, caps: &Caps) -> Result<u32, Invalid> {
    // One entry stays unused, so that a full ring differs from an overrun one.
    let size = (u64::from(completions.max(1)) + 1).next_power_of_two();
    within("entries", size, "log_max_cq_sz", caps.log_max_cq_sz)?;
    Ok(size.trailing_zeros())
}

/// Location of a completion queue's ring, mapped as long as its [`Cq`] lives. `log_size` and `shift` state its size.
pub(crate) struct CqRingParts {
    pub(crate) ring: NonNull<u8>,
    pub(crate) record: NonNull<u8>,
    pub(crate) log_size: u32,
    pub(crate) shift: u32,
}

/// A completion queue as an object: a parent of queue pairs. PRM "Completion Queue Context".
#[derive(Debug)]
pub struct Cq {
    cqn: u32,
    options: CqOptions,
    subscribed: AtomicBool,
    /// Whether there are stale completions. Polling checks only this.
    has_former: AtomicBool,
    /// How many receive queues of frames were created with it, and how many of them there are.
    receive_queues: AtomicU32,
    present_receive_queues: AtomicU32,
    /// Whether no other queue may complete here.
    is_closed: AtomicBool,
    unread: Mutex<Unread>,
    /// The channel of its events, of a queue of the kernel's.
    channel: Option<OwnedFd>,
    object: Object,
    /// The doorbell record, and the ring until the first resize.
    memory: RingMemory,
    uar: Arc<Uar>,
}

/// State of completions that are not polled yet.
#[derive(Debug)]
struct Unread {
    former: Vec<Former>,
    log_size: u32,
    /// The ring after a resize.
    resized: Option<RingMemory>,
}

/// Whose completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A queue pair's, or a send queue's; with `receives` those of its own receive queue, too.
    Number {
        /// `qpn` or `sqn`.
        number: u32,
        /// Whether it has its own receive queue.
        receives: bool,
    },
    /// A receive queue's of frames, by the [`user_index`](ReceiveQueueOf::user_index) that it was created with: in the
    /// place of its number, its completions may have a flow tag, or the number of a TIR.
    Receives {
        /// `None` on a card whose completions have none (`cqe_version` 0): then all receives.
        user_index: Option<u32>,
    },
}

/// A receive queue of frames, which its completion queue counts as long as this lives.
pub(super) struct ReceiveQueueOf {
    /// From the highest down; `None` if completions have none.
    pub(super) user_index: Option<u32>,
    cq: Arc<Cq>,
}

impl Drop for ReceiveQueueOf {
    fn drop(&mut self) {
        self.cq.present_receive_queues.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Whose {
    fn has(self, cqe: &Cqe) -> bool {
        let is_send = matches!(cqe.opcode(), CqeOpcode::Requester | CqeOpcode::RequesterError);
        match self {
            Whose::Number { number, receives } => number == cqe.qpn() && (is_send || receives),
            Whose::Receives { user_index } => !is_send && user_index.is_none_or(|index| index == cqe.srqn()),
        }
    }
}

/// Stale completions of a queue that was reset or destroyed: those before position `end`, modulo 2^24. Its number, and
/// its indices from 0 on, are reused.
#[derive(Debug)]
struct Former {
    whose: Whose,
    end: u32,
}

/// Distance of two positions modulo 2^24. Since a queue holds far fewer entries, more than half means that `to` is
/// before `from`.
fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & 0xff_ffff
}

/// Whether `position` is before `end`.
fn is_before(position: u32, end: u32) -> bool {
    (1..1 << 23).contains(&distance(position, end))
}

/// Initial content of a ring: opcode "invalid" and the wrong owner bit, so that no entry counts as a completion.
const UNWRITTEN: u8 = 0xff;

/// Sets the owner bits of a new ring, filled with [`UNWRITTEN`], to those of the lap before `first`, the first
/// completion. Polling checks nothing else.
fn set_unwritten(memory: &RingMemory, log_size: u32, shift: u32, first: u32) {
    for position in (0..1u32 << log_size).map(|at| first.wrapping_add(at)).filter(|at| at >> log_size & 1 == 1) {
        let index = (position & ((1 << log_size) - 1)) as usize;
        memory.copy_in(((index + 1) << shift) - 1, &[UNWRITTEN & !1]);
    }
}

impl Cq {
    /// Only for [`CompletionQueue::create`](crate::queue::CompletionQueue::create), which polls it.
    pub(crate) fn create(uar: &Arc<Uar>, options: CqOptions) -> Result<Arc<Self>, Error> {
        let device = uar.device();
        let log_size = log_entries(options.entries, device.caps())?;
        let microseconds = options.moderation.microseconds(device.caps())?;
        let general: CmdHcaCap = device.caps().current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
        let compression = options.compression.map(|form| form.numbers(&general, options.cqe_size)).transpose()?;
        let eqn = device.access().eqn(options.vector)?;
        let domain = options.parent_domain.as_ref();
        if let Some(pd) = domain {
            one_device("a completion queue's UAR and parent domain", device, [pd.device()])?;
        }
        let ring_len = 1 << (log_size + options.cqe_size.shift());
        let memory = RingMemory::in_domain(device, domain, ring_len, UNWRITTEN)?;

        if let (true, Some(kernel)) = (options.for_xrc, device.access().kernel_verbs()) {
            return Self::create_in_kernel(kernel, uar, options, log_size, memory);
        }
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
        if let Some((format, extension)) = compression {
            context.w().cqe_comp_en(true).mini_cqe_res_format(format).mini_cqe_res_format_ext(extension);
        }
        let mut create = CreateCqIn::default();
        create.w().cq_context(&context).cq_umem_valid(true).cq_umem_id(memory.umem_id());
        let what = format!("a CQ of {} entries", 1u64 << log_size);
        // SAFETY: names only the umem of `memory`, which belongs to this queue. It is kept beside the object, destroyed
        // after it, and leaked if that fails; firmware does not destroy a umem in use.
        let created = unsafe {
            Object::create_over_memory(device, &create, &what, |out| {
                let mut end = DestroyCqIn::default();
                end.w().cqn(out.cqn());
                (end, format!("CQ {:#x}", out.cqn()))
            })
        };
        let (object, out) = created?;
        Ok(Arc::new(Cq::of(out.cqn(), options, log_size, object, memory, uar)))
    }

    /// As [`create`](Self::create), by the kernel's verbs, in `memory`.
    fn create_in_kernel(
        kernel: &dyn KernelVerbs,
        uar: &Arc<Uar>,
        options: CqOptions,
        log_size: u32,
        memory: RingMemory,
    ) -> Result<Arc<Self>, Error> {
        if options.compression.is_some() {
            let what = "a completion queue with CqOptions::for_xrc".into();
            return Err(
                Invalid::Requires { what, requires: "a queue that does not decode compressed completions" }.into()
            );
        }
        let spec = KernelCq {
            ring: memory.at(0)?.addr().get() as u64,
            record: memory.record()?.addr().get() as u64,
            entries: 1 << log_size,
            entry_size: 1 << options.cqe_size.shift(),
            uar_page: uar.index(),
            vector: options.vector,
            events: options.events,
        };
        // SAFETY: names only `memory`, which belongs to this queue. It is kept beside the object, destroyed after it,
        // and leaked if that fails.
        let made = unsafe { kernel.xrc().create_cq(&spec) }?;
        let name = format!("CQ {:#x}", made.cqn);
        let object = Object::of_kernel(uar.device(), KernelObjectKind::CompletionQueue, made.handle, name);
        let (moderation, mut cq) = (options.moderation, Cq::of(made.cqn, options, log_size, object, memory, uar));
        cq.channel = made.events;
        if moderation != CqModeration::default() {
            cq.moderate(&moderation)?;
        }
        Ok(Arc::new(cq))
    }

    fn of(cqn: u32, options: CqOptions, log_size: u32, object: Object, memory: RingMemory, uar: &Arc<Uar>) -> Self {
        Cq {
            cqn,
            options,
            subscribed: AtomicBool::new(false),
            has_former: AtomicBool::new(false),
            receive_queues: AtomicU32::new(0),
            present_receive_queues: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            unread: Mutex::new(Unread { former: vec![], log_size, resized: None }),
            channel: None,
            object,
            memory,
            uar: Arc::clone(uar),
        }
    }

    /// The kernel's handle, for a shared receive queue of an XRC domain. Errors: it is not the kernel's.
    pub(super) fn xrc_handle(&self) -> Result<ObjectHandle, Invalid> {
        match self.options.for_xrc {
            true => Ok(self.object.handle()),
            false => {
                let what = format!("{} of an XRC domain's shared receive queue", self.object.name());
                Err(Invalid::Requires { what, requires: "CqOptions::for_xrc" })
            }
        }
    }

    /// `cqn`, 24 bits.
    pub fn cqn(&self) -> u32 {
        self.cqn
    }

    /// Completions that it can hold.
    pub fn capacity(&self) -> u32 {
        (1 << lock(&self.unread).log_size) - 1
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.object.device()
    }

    /// Location of its ring, for the one queue that polls it.
    pub(crate) fn ring_parts(&self) -> Result<CqRingParts, Error> {
        let unread = lock(&self.unread);
        let (ring, record) = (self.ring(&unread).at(0)?, self.memory.record()?);
        Ok(CqRingParts { ring, record, log_size: unread.log_size, shift: self.options.cqe_size.shift() })
    }

    /// The memory of the ring.
    fn ring<'a>(&'a self, unread: &'a Unread) -> &'a RingMemory {
        unread.resized.as_ref().unwrap_or(&self.memory)
    }

    /// Changes the moderation of events. Any thread may call this while another polls.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the card does not support moderation, or cannot change the start of the period
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
                let (what, capability) = ("changing period_mode".into(), "cq_period_mode_modify");
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

    /// Queries the moderation of events. Errors: [`Error::Command`].
    pub fn moderation(&self) -> Result<CqModeration, Error> {
        let context = self.query()?;
        Ok(CqModeration {
            count: context.cq_max_count(),
            period: Duration::from_micros(context.cq_period().into()),
            period_mode: CqPeriodMode::from_number(context.cq_period_mode().into()),
        })
    }

    /// Moves the queue to a new ring for `entries` completions. Completions not polled yet are copied, one position
    /// further, because the old ring ends with an entry of the card. Returns the new ring; `None` if the size does not
    /// change.
    ///
    /// Only for [`CompletionQueue::resize`](crate::queue::CompletionQueue::resize), which has polled `consumed`
    /// completions and stops using the old ring if there is a new one.
    pub(crate) fn resize(&self, entries: u32, consumed: u32) -> Result<Option<CqRingParts>, Error> {
        let caps = self.device().caps();
        if !caps.current::<CmdHcaCap>(CapPage::General).is_some_and(|general| general.cq_resize()) {
            let (what, capability) = ("resizing completion queues".into(), "cq_resize");
            return Err(Error::Unsupported { what, capability });
        }
        let log_size = log_entries(entries, caps)?;
        // Held until the end: marking completions as stale reads the ring.
        let mut unread = lock(&self.unread);
        if log_size == unread.log_size {
            return Ok(None);
        }
        let shift = self.options.cqe_size.shift();
        let domain = self.options.parent_domain.as_ref();
        let mut memory = RingMemory::in_domain(self.device(), domain, 1 << (log_size + shift), UNWRITTEN)?;
        set_unwritten(&memory, log_size, shift, consumed.wrapping_add(1));
        let parts = CqRingParts { ring: memory.at(0)?, record: self.memory.record()?, log_size, shift };
        if let Err(error) = self.move_to(&memory, log_size) {
            // Without a reply the card may use either ring.
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

    /// Makes the card continue in `memory`, a ring of `1 << log_size` entries. PRM "MODIFY_CQ", RESIZE_CQ.
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
        // SAFETY: names only the umem of `memory`, which belongs to this queue. `resize` keeps it beside the object if
        // the card accepted it, drops it if the card refused it, and otherwise leaks it. The previous memory is dropped
        // once the card no longer uses it; firmware does not destroy a umem in use.
        unsafe { self.object.modify_over_memory(&command) }.map(drop)
    }

    /// Copies completions not polled yet to `memory`, up to the entry that ends the old ring, each one position
    /// further.
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

    /// Explains the failure of a resize to `entries`: most often more completions are not polled than the new ring
    /// holds.
    fn explain_resize(&self, unread: &Unread, error: CommandError, entries: u32) -> Error {
        let refused = matches!(error.kind, CommandErrorKind::Status { status: CmdStatus::BadResourceState, .. });
        let first = self.consumed();
        let waiting =
            (0..1 << unread.log_size).take_while(|at| self.written(unread, first.wrapping_add(*at)).is_some());
        let waiting = waiting.count() as u64;
        if !refused || waiting <= entries.into() {
            return error.into();
        }
        let most = 1u64.checked_shl(self.device().caps().log_max_cq_sz.into()).unwrap_or(0).wrapping_sub(1);
        let limit = waiting..=most;
        let invalid = Invalid::out_of_range("entries", entries.into(), limit, "a queue with completions in it");
        invalid.mend("poll first").into()
    }

    /// The eventfd of its events; `None` without [`CqOptions::events`].
    pub(crate) fn subscribe(&self) -> Result<Option<OwnedFd>, Error> {
        if !self.options.events {
            return Ok(None);
        }
        if let Some(channel) = &self.channel {
            let again = channel.try_clone();
            return again.map(Some).map_err(|error| Error::io("duplicating the channel of completion events", error));
        }
        let fd = self.device().access().completion_eventfd(self.object.handle(), self.cqn, self.options.vector)?;
        self.subscribed.store(true, Ordering::Relaxed);
        Ok(Some(fd))
    }

    /// Notifies the card of the arm request in the doorbell record.
    pub(crate) fn arm(&self, arm: Arm) -> Result<(), Error> {
        doorbell::arm_cq(&self.uar, self.cqn, arm)
    }

    /// Asks the card for its context, under PRM names: status, size, moderation, whether it may overrun, what it is
    /// armed for, both counters. PRM "QUERY_CQ". Errors: [`Error::Command`].
    pub fn query(&self) -> Result<Cqc, Error> {
        Ok(*self.context()?.cq_context())
    }

    /// Queries its status. Errors: [`Error::Command`].
    pub fn status(&self) -> Result<CqStatus, Error> {
        Ok(match self.context()?.cq_context().status() {
            0x0 => CqStatus::Ok,
            0x9 => CqStatus::Overflow,
            0xa => CqStatus::WriteFailure,
            other => CqStatus::Unknown(other),
        })
    }

    fn context(&self) -> Result<QueryCqOut, CommandError> {
        let mut query = QueryCqIn::default();
        query.w().cqn(self.cqn);
        self.object.query(&query)
    }

    /// Marks the completions of a queue that are not polled yet as stale: it was reset or destroyed, so no more follow.
    pub(crate) fn forget(&self, whose: Whose) {
        let mut unread = lock(&self.unread);
        unread.former.retain(|former| former.whose != whose);
        if let Some(end) = self.end_of_unread(&unread, whose) {
            unread.former.push(Former { whose, end });
        }
        self.has_former.store(!unread.former.is_empty(), Ordering::Relaxed);
    }

    /// Whether [`is_former`](Self::is_former) can be true.
    #[inline(always)]
    pub(crate) fn has_former(&self) -> bool {
        // Only says whether to take the lock, which provides the ordering.
        self.has_former.load(Ordering::Relaxed)
    }

    /// Whether the completion `cqe` at `position` is stale: from before its queue pair's last reset. Positions must not
    /// decrease between calls.
    pub(crate) fn is_former(&self, cqe: &Cqe, position: u32) -> bool {
        let former = &mut lock(&self.unread).former;
        former.retain(|former| is_before(position, former.end));
        self.has_former.store(!former.is_empty(), Ordering::Relaxed);
        former.iter().any(|former| former.whose.has(cqe))
    }

    /// No other queue may complete here from now on: its owner takes each completion for its own queue's, and gives the
    /// buffer back that it names.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Whether another queue may complete here.
    pub(super) fn admit(&self) -> Result<(), Invalid> {
        match self.is_closed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => {
                let (what, by) = (format!("CQ {:#x}", self.cqn), "the queue that owns it".into());
                Err(Invalid::Taken { what, by, mend: "create another completion queue" })
            }
        }
    }

    /// Another receive queue of frames.
    pub(super) fn add_receive_queue(self: &Arc<Self>) -> ReceiveQueueOf {
        let made = self.receive_queues.fetch_add(1, Ordering::Relaxed) & (NO_USER_INDEX >> 1);
        self.present_receive_queues.fetch_add(1, Ordering::Relaxed);
        let user_index = (self.device().caps().cqe_version > 0).then_some(NO_USER_INDEX - 1 - made);
        ReceiveQueueOf { user_index, cq: Arc::clone(self) }
    }

    /// Whether there is one receive queue of frames, so that all frames are its.
    pub(super) fn has_one_receive_queue(&self) -> bool {
        self.present_receive_queues.load(Ordering::Relaxed) == 1
    }

    /// End of the written completions, if one of `whose` among them is not polled yet. Another thread may poll at the
    /// same time.
    fn end_of_unread(&self, unread: &Unread, whose: Whose) -> Option<u32> {
        let first = self.consumed();
        let (mut end, mut found) = (first, false);
        while distance(first, end) < 1 << unread.log_size {
            let consumed = match self.written(unread, end) {
                Some(cqe) => {
                    found |= whose.has(&cqe);
                    // A compressed block is read as a whole: not all its entries are written.
                    let is_title = cqe.cqe_format() == CqeFormat::Compressed.number() as u8;
                    let is_block = self.options.compression.is_some() && is_title;
                    let entries = if is_block { cqe.byte_cnt().clamp(1, 1 << unread.log_size) } else { 1 };
                    end = end.wrapping_add(entries);
                    continue;
                }
                None => self.consumed(),
            };
            if !is_before(end, consumed) {
                break;
            }
            // Polled in the meantime, and the entry reused.
            end = consumed;
        }
        found.then_some(end)
    }

    /// Consumer index, modulo 2^24.
    fn consumed(&self) -> u32 {
        self.memory.consumed()
    }

    /// The completion at `position`; `None` if it is not written yet.
    fn written(&self, unread: &Unread, position: u32) -> Option<Cqe> {
        let (ring, shift) = (self.ring(unread), self.options.cqe_size.shift());
        let index = (position & ((1 << unread.log_size) - 1)) as usize;
        let offset = ((index + 1) << shift) - Cqe::SIZE;
        let mut entry = [0; Cqe::SIZE];
        // The owner bit first: in the last dword.
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

    /// The error of a wait that timed out: because the queue failed, or because nothing completed.
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

    /// Destroys it. Its queue pairs and the queue that polls it must be dropped first. On an error the object stays
    /// alive and is returned.
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
