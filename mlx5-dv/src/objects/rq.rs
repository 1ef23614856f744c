//! Receive queues for Ethernet frames: the object. Its queue is
//! [`EthernetReceiveQueue`](crate::queue::ethernet::EthernetReceiveQueue).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_prm::caps::{CmdHcaCap, CmdHcaCap2};
use mlx5_prm::cmd::{CreateRqIn, DestroyRqIn, ModifyRqIn, QueryRqIn};
use mlx5_prm::ctx::{QueueState, Rqc, Wq, WqType};
use mlx5_prm::wqe::{SEGMENT, WQEBB};

use super::check::{NO_USER_INDEX, chosen_timestamps, one_device, within};
use super::cq::{Cq, ReceiveQueueOf, Whose};
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use super::queue_counter::QueueCounter;
use super::raw_queue::{Commands, QueueStatus, RawQueue, cyclic, ethernet_caps};
use super::ring::RingMemory;
use super::ring_lease::{ReceiveRingOwner, RingPermit};
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::setters::setters;

/// Options of a receive queue for frames.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RqOptions {
    /// Receives that it can hold. Default: 128.
    pub wqes: u32,
    /// Maximum number of scatter elements per receive. Default: 1. A striding queue has one.
    pub sges: u16,
    /// Whether the card strips the VLAN tag of frames, and tells it by their completions
    /// ([`FrameCompletion::stripped_vlan`](crate::queue::ethernet::FrameCompletion::stripped_vlan)). PRM `vsd`, "VLAN
    /// strip disable". Default: no.
    pub strip_vlan: bool,
    /// Counts frames that found no receive posted. Default: none.
    pub counter: Option<Arc<QueueCounter>>,
    /// Makes it a striding queue, whose receives take several packets each. Default: no.
    pub strides: Option<Strides>,
    /// Whether its completions bear the time of the card's real-time clock
    /// ([`RealTime::of`](crate::RealTime::of)), not that of the free-running one. Default: no.
    pub real_time: bool,
}

setters! {
    RqOptions {
        wqes: u32;
        sges: u16;
        strides: Some(Strides);
        real_time = true;
    }
}

/// How the buffer of each receive of a striding queue is cut. A packet takes whole strides. PRM "Striding RQ".
///
/// A buffer has at least 2 to the power of `log_min_stride_wqe_sz` bytes; 16 KiB on a card that does not announce it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Strides {
    /// Bytes of a stride: a power of two from 64 to 8192.
    pub bytes: u32,
    /// Strides of a buffer: a power of two from 512 to 32768, or from 8 on if the card has `ext_stride_num_range`.
    pub count: u32,
    /// Packets start two bytes into a stride, which aligns the header behind that of Ethernet. PRM `two_byte_shift_en`.
    pub two_byte_shift: bool,
}

impl Strides {
    /// `count` strides of `bytes` bytes.
    pub const fn new(bytes: u32, count: u32) -> Self {
        Strides { bytes, count, two_byte_shift: false }
    }

    /// Sets [`two_byte_shift`](Self::two_byte_shift).
    pub const fn two_byte_shift(mut self) -> Self {
        self.two_byte_shift = true;
        self
    }

    /// Bytes of a buffer.
    pub const fn buffer(&self) -> usize {
        self.bytes as usize * self.count as usize
    }

    /// Bytes before a packet in its first stride.
    pub(crate) const fn shift(&self) -> usize {
        if self.two_byte_shift { 2 } else { 0 }
    }

    fn check(&self, general: &CmdHcaCap, general_2: Option<CmdHcaCap2>) -> Result<(), Error> {
        if !general.striding_rq() {
            let what = "striding receive queues".into();
            return Err(Error::Unsupported { what, capability: "striding_rq" });
        }
        let (least, capability) =
            if general.ext_stride_num_range() { (8, "log_wqe_num_of_strides") } else { (512, "ext_stride_num_range") };
        power_of_two("bytes of a stride", self.bytes, 64, 8192, "log_wqe_stride_size")?;
        power_of_two("strides of a buffer", self.count, least, 1 << 15, capability)?;
        let log_least = match general_2.map_or(0, |caps| caps.log_min_stride_wqe_sz()) {
            0 => LOG_LEAST_BUFFER,
            announced => announced.into(),
        };
        let (given, limit) = (self.buffer() as u64, 1 << log_least..=MOST_BUFFER);
        if !limit.contains(&given) {
            let invalid = Invalid::out_of_range("bytes of a buffer", given, limit, "log_min_stride_wqe_sz");
            return Err(invalid.mend("use more strides, or longer ones").into());
        }
        Ok(())
    }

    /// Sets the fields of a queue's context. PRM `wq`: 0 means strides of 64 bytes, and 512 strides; 10 to 15 mean
    /// fewer.
    fn write(&self, wq: &mut Wq) {
        let (bytes, count) = (self.bytes.trailing_zeros() as u8, self.count.trailing_zeros() as u8);
        let count = if count >= 9 { count - 9 } else { count + 7 };
        wq.w().log_wqe_stride_size(bytes.saturating_sub(6)).log_wqe_num_of_strides(count);
        wq.w().two_byte_shift_en(self.two_byte_shift);
    }
}

/// log2 of the least bytes of all strides on a card without `log_min_stride_wqe_sz`, as DPDK takes it; and the most.
const LOG_LEAST_BUFFER: u32 = 14;
const MOST_BUFFER: u64 = 8192 << 15;

/// `Ok` for a power of two from `least` to `most`.
fn power_of_two(
    what: &'static str,
    given: u32,
    least: u32,
    most: u32,
    capability: &'static str,
) -> Result<(), Invalid> {
    let limit = u64::from(least)..=u64::from(most);
    match given.is_power_of_two() && limit.contains(&given.into()) {
        true => Ok(()),
        false => Err(Invalid::out_of_range(what, given.into(), limit, capability).mend("use a power of two")),
    }
}

impl Default for RqOptions {
    fn default() -> Self {
        RqOptions { wqes: 128, sges: 1, strip_vlan: false, counter: None, strides: None, real_time: false }
    }
}

impl RqOptions {
    /// Sets [`strip_vlan`](Self::strip_vlan).
    pub fn strip_vlan(mut self, strip: bool) -> Self {
        self.strip_vlan = strip;
        self
    }

    /// Sets [`counter`](Self::counter).
    pub fn counter(mut self, counter: &Arc<QueueCounter>) -> Self {
        self.counter = Some(Arc::clone(counter));
        self
    }

    /// Logs of the ring's number of WQEs and of a WQE's size.
    fn layout(&self, general: &CmdHcaCap) -> Result<(u32, u32), Invalid> {
        // A WQE of a striding queue is a link and one element.
        let segments = if self.strides.is_some() { 2 } else { self.sges.max(1) };
        let stride = (SEGMENT as u64 * u64::from(segments)).next_power_of_two();
        let most = 1u64 << general.log_max_stride_sz_rq().min(LOG_MOST_STRIDE);
        if stride > most {
            return Err(Invalid::WqeTooLong {
                what: "sges",
                sges: self.sges,
                inline_bytes: None,
                needed: stride,
                most,
                capability: "log_max_stride_sz_rq",
            });
        }
        let log_stride = stride.trailing_zeros().max(general.log_min_stride_sz_rq().into());
        if 1 << log_stride > most {
            // Only a faulty card has such a limit.
            let (given, limit) = (general.log_min_stride_sz_rq().into(), 0..=most.ilog2().into());
            return Err(Invalid::out_of_range("log_min_stride_sz_rq", given, limit, "log_max_stride_sz_rq"));
        }
        // A ring consists of whole WQEBBs.
        let least = (WQEBB as u64) >> log_stride;
        let wqes = u64::from(self.wqes.max(1)).max(least).next_power_of_two();
        within("wqes", wqes, "log_max_wq_sz", general.log_max_wq_sz().min(15))?;
        Ok((wqes.trailing_zeros(), log_stride))
    }
}

/// Most that `log_wq_stride`, which has four bits, can say.
const LOG_MOST_STRIDE: u8 = 15;

/// A receive queue of Ethernet frames. PRM "Receive Queue Context".
///
/// ```text
/// RST --ready--> RDY   receive_queue from RST on   to_error: RDY --> ERR   reset: any --> RST
/// ```
///
/// A frame that arrives without a posted receive is lost. A frame that does not fit, or whose buffer the card may not
/// write, moves the queue to ERR, and everything posted completes with flush errors: drop the queue, then call
/// [`reset`](Self::reset) and [`ready`](Self::ready).
pub struct Rq {
    queue: RawQueue,
    log_size: u32,
    log_stride: u32,
    sges: u16,
    strides: Option<Strides>,
    /// Whether it has been in an RQ table.
    is_tagged: AtomicBool,
    of_cq: ReceiveQueueOf,
    /// Outlives the queue, which names it.
    counter: Option<Arc<QueueCounter>>,
    pd: Arc<Pd>,
}

impl fmt::Debug for Rq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rq({:?})", self.queue)
    }
}

impl Rq {
    /// Creates a receive queue in RST that completes into `cq`, for memory of `pd`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without Ethernet; [`Error::Invalid`] if the options exceed a capability, which
    /// it names, or the parents are of different cards; [`Error::Memory`], [`Error::Command`].
    pub fn create(pd: &Arc<Pd>, cq: &Arc<Cq>, options: RqOptions) -> Result<Arc<Self>, Error> {
        let device = pd.device();
        one_device("a receive queue's PD and CQ", device, [cq.device()])?;
        cq.admit()?;
        let (general, ethernet) = ethernet_caps(device.caps())?;
        let ts_format = chosen_timestamps(options.real_time, general.rq_ts_format(), "rq_ts_format")?;
        if options.strip_vlan && !ethernet.vlan_cap() {
            return Err(Error::Unsupported { what: "stripping VLAN tags".into(), capability: "vlan_cap" });
        }
        if let Some(counter) = &options.counter {
            one_device("a receive queue and its counter", device, [counter.device()])?;
        }
        if let Some(strides) = options.strides {
            strides.check(&general, device.caps().general_2())?;
        }
        let (log_size, log_stride) = options.layout(&general)?;
        let memory = RingMemory::new(pd, 1 << (log_size + log_stride), 0)?;
        let mut wq = match options.strides {
            Some(_) => memory.wq(WqType::CyclicStridingRq, pd.pdn(), log_size, log_stride),
            None => cyclic(pd, &memory, log_size, log_stride),
        };
        if let Some(strides) = options.strides {
            strides.write(&mut wq);
        }
        let of_cq = cq.add_receive_queue();
        let user_index = of_cq.user_index;
        let mut context = Rqc::default();
        context
            .w()
            .vsd(!options.strip_vlan)
            .counter_set_id(options.counter.as_ref().map_or(0, |counter| counter.id()))
            .flush_in_error_en(true)
            .user_index(user_index.unwrap_or(NO_USER_INDEX))
            .cqn(cq.cqn())
            .ts_format(ts_format)
            .wq(&wq);
        let mut create = CreateRqIn::default();
        create.w().ctx(&context);
        // SAFETY: names only the umem of `memory`, which belongs to this queue. It is kept beside the object, destroyed
        // after it, and leaked if that fails; firmware does not destroy a umem in use.
        let created = unsafe {
            Object::create_over_memory(device, &create, "an RQ", |out| {
                let mut end = DestroyRqIn::default();
                end.w().rqn(out.rqn());
                (end, format!("RQ {:#x}", out.rqn()))
            })
        };
        let (object, out) = created?;
        let commands = Commands { modify, query };
        Ok(Arc::new(Rq {
            queue: RawQueue::new(out.rqn(), commands, object, memory, (cq, Whose::Receives { user_index })),
            log_size,
            log_stride,
            sges: if options.strides.is_some() { 1 } else { options.sges.max(1) },
            strides: options.strides,
            is_tagged: AtomicBool::new(false),
            of_cq,
            counter: options.counter,
            pd: Arc::clone(pd),
        }))
    }

    /// `rqn`, 24 bits.
    pub fn rqn(&self) -> u32 {
        self.queue.number()
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.pd.device()
    }

    /// The [`user_index`](crate::queue::Completion::user_index) of its completions, which no other receive queue of its
    /// completion queue has: by it, a completion with a flow tag is known to be of this queue. `None` on a card whose
    /// completions have none (`cqe_version` 0).
    pub fn user_index(&self) -> Option<u32> {
        self.of_cq.user_index
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Its completion queue.
    pub fn cq(&self) -> &Arc<Cq> {
        self.queue.cq()
    }

    /// The counter of frames that found no receive posted.
    pub fn counter(&self) -> Option<&Arc<QueueCounter>> {
        self.counter.as_ref()
    }

    /// RST to RDY: starts to receive frames. Errors: [`Error::Invalid`] in another state, [`Error::Command`].
    pub fn ready(&self) -> Result<(), Error> {
        self.queue.ready()
    }

    /// RDY to ERR: everything posted completes with a flush error. Errors: [`Error::Invalid`] in RST,
    /// [`Error::Command`].
    pub fn to_error(&self) -> Result<(), Error> {
        self.queue.to_error()
    }

    /// To RST: everything posted is discarded without completions, as are completions not polled yet. Drop the queue
    /// first. Errors: [`Error::Invalid`] while the queue is leased, [`Error::Command`].
    pub fn reset(&self) -> Result<(), Error> {
        self.queue.reset()
    }

    /// Queries the card. Errors: [`Error::Command`].
    pub fn query(&self) -> Result<QueueStatus, Error> {
        self.queue.query()
    }

    /// It gets into an RQ table, or a flow rule has a tag of its own: from now on, its completions may carry a flow tag
    /// other than its number.
    pub(super) fn mark_tagged(&self) {
        self.is_tagged.store(true, Ordering::Relaxed);
    }

    /// Leases the ring for `call`.
    pub(crate) fn lease_receive_ring(&self, call: &'static str) -> Result<RingPermit, Error> {
        let wanted = [QueueState::Rst, QueueState::Rdy];
        let (permit, ()) = self.queue.lease_ring(call, &wanted, "reset", || Ok(()))?;
        Ok(permit)
    }

    /// How its receives are cut, if it is a striding queue.
    pub fn strides(&self) -> Option<Strides> {
        self.strides
    }

    /// Logs of the ring's number of WQEs and of a WQE's size, and the maximum number of elements of a WQE.
    pub(crate) fn shape(&self) -> (u32, u32, u16) {
        (self.log_size, self.log_stride, self.sges)
    }

    /// Destroys it. Its queue and TIRs must be dropped first. On an error the object stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |rq| rq.queue.end())
    }
}

impl ReceiveRingOwner for Rq {
    fn release_receive_ring(&self) {
        self.queue.release();
    }

    fn takes_tags(&self) -> bool {
        self.is_tagged.load(Ordering::Relaxed) && self.cq().has_one_receive_queue()
    }
}

fn modify(object: &Object, rqn: u32, from: QueueState, to: QueueState) -> Result<(), CommandError> {
    let (mut command, mut context) = (ModifyRqIn::default(), Rqc::default());
    context.w().state(to);
    command.w().rqn(rqn).rq_state(from).ctx(&context);
    object.modify(&command)
}

fn query(object: &Object, rqn: u32) -> Result<QueueStatus, CommandError> {
    let mut query = QueryRqIn::default();
    query.w().rqn(rqn);
    let reply = object.query(&query)?;
    let context = reply.rq_context();
    Ok(QueueStatus::of(context.state(), context.wq()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_whole_wqebbs_of_strides_that_the_card_takes() {
        let mut general = CmdHcaCap::ZERO;
        general.w().log_max_wq_sz(15).log_min_stride_sz_rq(4).log_max_stride_sz_rq(9);
        assert_eq!(RqOptions::default().wqes(1).layout(&general).unwrap(), (2, 4));
        assert_eq!(RqOptions::default().wqes(100).sges(3).layout(&general).unwrap(), (7, 6));
        general.w().log_min_stride_sz_rq(6);
        assert_eq!(RqOptions::default().wqes(1).layout(&general).unwrap(), (0, 6));
        for (options, names) in [
            (RqOptions::default().wqes(32769), ["wqes", "log_max_wq_sz"]),
            (RqOptions::default().sges(33), ["sges", "log_max_stride_sz_rq"]),
        ] {
            let text = options.layout(&general).unwrap_err().to_string();
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
        }
    }
}
