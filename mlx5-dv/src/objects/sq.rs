//! Send queues for Ethernet frames: the object. Its queue is
//! [`EthernetSendQueue`](crate::queue::ethernet::EthernetSendQueue).

use std::fmt;
use std::sync::{Arc, Mutex};

use mlx5_prm::caps::{CmdHcaCap, PerProtocolNetworkingOffloadCaps};
use mlx5_prm::cmd::{CreateSqIn, DestroySqIn, ModifySqIn, QueryNicVportContextIn, QuerySqIn};
use mlx5_prm::ctx::{InlineMode, QueueState, Sqc, TimestampFormat};
use mlx5_prm::wqe::{SEGMENT, WQEBB};

use super::check::{NO_USER_INDEX, chosen_timestamps, fits, one_device};
use super::cq::{Cq, Whose};
use super::doorbell::{DoorbellMode, Leased};
use super::inline_headers::most_headers;
use super::memory_region::MemoryRegion;
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use super::rate_limit::RateLimit;
use super::raw_queue::{Commands, QueueStatus, RawQueue, cyclic, ethernet_caps};
use super::ring::{RingMemory, WantedSendRing};
use super::ring_lease::{RingPermit, SendRingOwner};
use super::tis::Tis;
use super::tunnel::TunnelOffloads;
use super::uar::Uar;
use crate::caps::Caps;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::lock::lock;
use crate::setters::setters;

/// Options of a send queue for frames.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqOptions {
    /// Frames of the largest kind that it can hold. Default: 128.
    pub wqes: u32,
    /// Maximum number of gather elements per frame. Default: 1.
    pub sges: u16,
    /// Bytes of a frame that can be inlined in the WQE; raised if the card requires more for headers. Default: 18, an
    /// Ethernet header with a VLAN tag. A frame that is inlined as a whole needs no registered memory.
    pub inline_bytes: u16,
    /// Whether its completions bear the time of the card's real-time clock
    /// ([`RealTime::of`](crate::RealTime::of)), not that of the free-running one. Default: no.
    pub real_time: bool,
    /// Whether it sends no frames, but writes objects of steering. Its TIS is not the card's.
    pub(crate) of_objects: bool,
}

setters! {
    SqOptions {
        wqes: u32;
        sges: u16;
        inline_bytes: u16;
        real_time = true;
    }
}

impl Default for SqOptions {
    fn default() -> Self {
        SqOptions { wqes: 128, sges: 1, inline_bytes: 18, real_time: false, of_objects: false }
    }
}

impl SqOptions {
    /// Adds room for the headers that the card requires in the WQE.
    fn with_room_for(mut self, mode: InlineMode) -> Self {
        self.inline_bytes = self.inline_bytes.max(most_headers(mode) as u16);
        self
    }

    /// Most bytes of a frame that a WQE of the card holds beside `sges` gather elements, and at least one.
    pub(crate) fn most_inline(caps: &Caps, sges: u16) -> u16 {
        let segments = (caps.max_wqe_sz_sq / SEGMENT as u16).min(MAX_SEGMENTS);
        segments.saturating_sub(2).saturating_sub(sges.max(1)) * SEGMENT as u16 + 2
    }

    /// Log of the ring's number of WQEBBs.
    fn log_size(&self, caps: &Caps, general: &CmdHcaCap) -> Result<u32, Invalid> {
        fits("inline_bytes", self.inline_bytes.into(), 10)?;
        // Control and Ethernet segment. The latter holds two inline bytes.
        let inline = u64::from(self.inline_bytes.min(MAX_INLINE).saturating_sub(2)).div_ceil(SEGMENT as u64);
        let ring = WantedSendRing {
            wqes_name: "wqes (in WQEBBs of 64 bytes)",
            wqes: self.wqes.max(1),
            segments: 2 + inline + u64::from(self.sges),
            sges_name: "sges",
            sges: self.sges,
            inline_bytes: self.inline_bytes,
        };
        ring.log_size(caps, "log_max_wq_sz", general.log_max_wq_sz())
    }
}

/// Limits of a send queue for frames, from its options and its port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameLimits {
    /// Gather elements per frame.
    pub sges: u16,
    /// Inline bytes per frame.
    pub inline_bytes: u16,
    /// Headers that must be inlined.
    pub inline_mode: InlineMode,
    /// Whether the card can compute checksums.
    pub checksums: bool,
    /// Whether the card inserts VLAN tags, which needs that no headers are inlined.
    pub vlan_insertion: bool,
    /// Longest frame in bytes.
    pub longest: usize,
    /// Segments of a multi-packet WQE; 0 if the card has none, or must find headers inlined.
    pub multi_packet_segments: u16,
    /// Most bytes of a packet that the card divides into frames, without its headers; 0 if it divides none.
    pub large_send: u32,
    /// Where the clock of its completions wraps for frames that wait for a time: all ones below; 0 if none can.
    pub wait_mask: u64,
    /// What the card can do inside of tunnels.
    pub tunnels: TunnelOffloads,
}

/// The largest value of `ds`: segments of a WQE.
const MAX_SEGMENTS: u16 = 63;

/// The largest value of `inline_hdr_sz`.
const MAX_INLINE: u16 = 1023;
/// Log of the WQEBB size, the stride of a send ring.
const LOG_STRIDE: u32 = WQEBB.trailing_zeros();
/// `wqe_inline_mode`: the vport context sets the mode.
const INLINE_BY_VPORT: u8 = 1;
/// `wqe_inline_mode`: inlining is not required.
const INLINE_NOT_REQUIRED: u8 = 2;
/// Bytes of an Ethernet FCS: included in the port's MTU, not in frames of software.
const CHECK_SEQUENCE: u16 = 4;

/// A send queue of Ethernet frames. PRM "Send Queue Context".
///
/// ```text
/// RST --ready--> RDY   send_queue from here   to_error: RDY --> ERR   reset: any --> RST
/// ```
///
/// Refused before firmware is asked: a send queue before RDY (the card would ignore its doorbells silently); a reset
/// while the queue is leased. A frame that fails moves the queue to ERR, and all later ones complete with flush errors:
/// drop the queue, then call [`reset`](Self::reset) and [`ready`](Self::ready).
pub struct Sq {
    queue: RawQueue,
    log_size: u32,
    limits: FrameLimits,
    /// Outlives the queue, which names it.
    rate_limit: Mutex<Option<Arc<RateLimit>>>,
    uar: Arc<Uar>,
    tis: Arc<Tis>,
    pd: Arc<Pd>,
}

impl fmt::Debug for Sq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sq({:?})", self.queue)
    }
}

impl Sq {
    /// Creates a send queue in RST that sends through `tis`, rings on `uar` and completes into `cq`, for memory of
    /// `pd`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without Ethernet; [`Error::Invalid`] if the options exceed a capability, which
    /// it names, or the parents are of different cards; [`Error::Memory`], [`Error::Command`].
    pub fn create(
        pd: &Arc<Pd>,
        uar: &Arc<Uar>,
        tis: &Arc<Tis>,
        cq: &Arc<Cq>,
        options: SqOptions,
    ) -> Result<Arc<Self>, Error> {
        let device = pd.device();
        one_device("a send queue's PD, UAR, TIS and CQ", device, [uar.device(), tis.device(), cq.device()])?;
        cq.admit()?;
        let (general, ethernet) = ethernet_caps(device.caps())?;
        let ts_format = chosen_timestamps(options.real_time, general.sq_ts_format(), "sq_ts_format")?;
        let inline_mode = inline_mode(device, &ethernet)?;
        let options = options.with_room_for(inline_mode);
        let log_size = options.log_size(device.caps(), &general)?;
        let memory = RingMemory::new(pd, WQEBB << log_size, 0)?;
        let mut wq = cyclic(pd, &memory, log_size, LOG_STRIDE);
        wq.w().uar_page(uar.index());
        // A multi-packet WQE has no room for inlined headers.
        let is_multi_packet = ethernet.enhanced_multi_pkt_send_wqe() && inline_mode == InlineMode::None;
        let longest_wqe = general.max_wqe_sz_sq() / SEGMENT as u16;
        let mut context = Sqc::default();
        context
            .w()
            .flush_in_error_en(true)
            .user_index(NO_USER_INDEX)
            .cqn(cq.cqn())
            .ts_format(ts_format)
            .tis_lst_sz((!options.of_objects).into())
            .tis_num_0(if options.of_objects { 0 } else { tis.tisn() })
            .allow_multi_pkt_send_wqe(is_multi_packet)
            .allow_swp(ethernet.swp())
            .wq(&wq);
        // Only if the card lets the driver choose.
        if ethernet.wqe_inline_mode() == INLINE_BY_VPORT {
            context.w().min_wqe_inline_mode(inline_mode);
        }
        let mut create = CreateSqIn::default();
        create.w().ctx(&context);
        // SAFETY: names only the umem of `memory`, which belongs to this queue. It is kept beside the object, destroyed
        // after it, and leaked if that fails; firmware does not destroy a umem in use.
        let created = unsafe {
            Object::create_over_memory(device, &create, "an SQ", |out| {
                let mut end = DestroySqIn::default();
                end.w().sqn(out.sqn());
                (end, format!("SQ {:#x}", out.sqn()))
            })
        };
        let (object, out) = created?;
        let limits = FrameLimits {
            sges: options.sges,
            inline_bytes: options.inline_bytes,
            inline_mode,
            checksums: ethernet.csum_cap(),
            vlan_insertion: ethernet.wqe_vlan_insert() && inline_mode == InlineMode::None,
            longest: longest_frame(device)?,
            multi_packet_segments: if is_multi_packet { longest_wqe.min(MAX_SEGMENTS) } else { 0 },
            wait_mask: wait_mask(&general, ts_format),
            large_send: match ethernet.max_lso_cap() {
                0 => 0,
                log => 1u32.checked_shl(log.into()).unwrap_or(u32::MAX),
            },
            tunnels: TunnelOffloads::of(&ethernet),
        };
        let commands = Commands { modify, query };
        let completions = Whose::Number { number: out.sqn(), receives: false };
        Ok(Arc::new(Sq {
            queue: RawQueue::new(out.sqn(), commands, object, memory, (cq, completions)),
            log_size,
            limits,
            rate_limit: Mutex::default(),
            uar: Arc::clone(uar),
            tis: Arc::clone(tis),
            pd: Arc::clone(pd),
        }))
    }

    /// `sqn`, 24 bits: completions carry it in place of a QP number.
    pub fn sqn(&self) -> u32 {
        self.queue.number()
    }

    /// Most bytes, beside its headers, of a packet that the card divides into frames; 0 if it divides none. PRM
    /// `max_lso_cap`.
    pub fn largest_packet(&self) -> usize {
        self.limits.large_send as usize
    }

    /// Longest frame of the port in bytes, without FCS, as of the queue's creation.
    pub fn longest_frame(&self) -> usize {
        self.limits.longest
    }

    /// Most frames of one work request ([`SendBatch::send_several`](crate::queue::SendBatch::send_several)); 0 if the
    /// card has no multi-packet work requests (`enhanced_multi_pkt_send_wqe`).
    pub fn most_packets(&self) -> usize {
        usize::from(self.limits.multi_packet_segments).saturating_sub(2)
    }

    /// Whether the card computes checksums of frames (`csum_cap`).
    pub fn has_checksums(&self) -> bool {
        self.limits.checksums
    }

    /// Whether frames can be held back until a time ([`SendBatch::wait_until`](crate::queue::SendBatch::wait_until);
    /// `wait_on_time`).
    pub fn waits_for_times(&self) -> bool {
        self.limits.wait_mask != 0
    }

    /// Whether the card inserts VLAN tags into frames (`wqe_vlan_insert`).
    pub fn inserts_vlan(&self) -> bool {
        self.limits.vlan_insertion
    }

    /// Headers that must be inlined in the WQE.
    pub fn inline_mode(&self) -> InlineMode {
        self.limits.inline_mode
    }

    /// Makes `region`'s memory a source of frames that this queue sends in place, by
    /// [`SendBatch::pointers`](crate::queue::SendBatch::pointers). The queue keeps the region until it is destroyed:
    /// one source for a pool of frames, not for each frame.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a region of another protection domain.
    pub fn source(self: &Arc<Self>, region: &Arc<MemoryRegion>) -> Result<FrameSource, Error> {
        if !Arc::ptr_eq(region.pd(), &self.pd) {
            let what = format!("a source of {:?}", self.queue);
            let requires = "a memory region of the send queue's protection domain";
            return Err(Invalid::Requires { what, requires }.into());
        }
        self.queue.keep(region);
        let bytes = SourceBytes { addr: region.addr(), len: region.len(), lkey: region.lkey() };
        Ok(FrameSource { sq: Arc::clone(self), bytes })
    }

    /// Which queue it is, as long as somebody holds it.
    pub(crate) fn identity(self: &Arc<Self>) -> SqIdentity {
        SqIdentity(Arc::as_ptr(self) as usize)
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.pd.device()
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Its transport interface.
    pub fn tis(&self) -> &Arc<Tis> {
        &self.tis
    }

    /// Its completion queue.
    pub fn cq(&self) -> &Arc<Cq> {
        self.queue.cq()
    }

    /// RST to RDY: starts to send. Errors: [`Error::Invalid`] in another state, [`Error::Command`].
    pub fn ready(&self) -> Result<(), Error> {
        self.queue.ready()?;
        let limit = lock(&self.rate_limit);
        match limit.as_ref() {
            Some(limit) => self.queue.change("ready", |object, sqn| hold(object, sqn, limit.index())),
            None => Ok(()),
        }
    }

    /// Holds the queue to a rate from now on, or with `None` to none; its frames go out at the port's rate then. It
    /// stays through a reset. PRM "MODIFY_SQ", `packet_pacing_rate_limit_index`.
    ///
    /// # Errors
    /// [`Error::Invalid`] before RDY, or for another card's rate; [`Error::Command`].
    pub fn set_rate_limit(&self, limit: Option<&Arc<RateLimit>>) -> Result<(), Error> {
        if let Some(limit) = limit {
            one_device("a send queue and its rate limit", self.device(), [limit.device()])?;
        }
        let mut held = lock(&self.rate_limit);
        let index = limit.map_or(0, |limit| limit.index());
        self.queue.change("set_rate_limit", |object, sqn| hold(object, sqn, index))?;
        *held = limit.cloned();
        Ok(())
    }

    /// The rate that it is held to.
    pub fn rate_limit(&self) -> Option<Arc<RateLimit>> {
        lock(&self.rate_limit).clone()
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

    /// Leases the ring for `call`.
    pub(crate) fn lease_send_ring<D: DoorbellMode>(
        &self,
        call: &'static str,
    ) -> Result<(RingPermit, Leased<D>), Error> {
        self.queue.lease_ring(call, &[QueueState::Rdy], "ready", || D::of(&self.uar))
    }

    /// Log of the ring's number of WQEBBs.
    pub(crate) fn log_size(&self) -> u32 {
        self.log_size
    }

    pub(crate) fn limits(&self) -> FrameLimits {
        self.limits
    }

    /// Destroys it. Its queue must be dropped first. On an error the object stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, |sq| sq.queue.end())
    }
}

/// Memory whose bytes are sent as frames by one send queue: see [`Sq::source`].
#[derive(Debug)]
pub struct FrameSource {
    sq: Arc<Sq>,
    bytes: SourceBytes,
}

impl FrameSource {
    /// The bytes, for a queue of `sq`; `None` if the source is another queue's.
    #[inline(always)]
    pub(crate) fn bytes_for(&self, sq: SqIdentity) -> Option<SourceBytes> {
        (self.sq.identity() == sq).then_some(self.bytes)
    }

    /// The bytes, for who knows which queue it is for.
    pub(crate) fn bytes(&self) -> SourceBytes {
        self.bytes
    }

    /// The send queue.
    pub fn sq(&self) -> &Arc<Sq> {
        &self.sq
    }
}

/// Address, length and key of a source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceBytes {
    pub addr: u64,
    pub len: usize,
    pub lkey: u32,
}

/// Tells send queues apart that somebody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SqIdentity(usize);

impl SendRingOwner for Sq {
    fn release_send_ring(&self) {
        self.queue.release();
    }
}

/// `modify_bitmask` of MODIFY_SQ: `packet_pacing_rate_limit_index`.
const SELECT_RATE_LIMIT: u64 = 1;

/// Holds a queue in RDY to the rate limit `index`.
fn hold(object: &Object, sqn: u32, index: u16) -> Result<(), CommandError> {
    let (mut command, mut context) = (ModifySqIn::default(), Sqc::default());
    context.w().state(QueueState::Rdy).packet_pacing_rate_limit_index(index);
    command.w().sqn(sqn).sq_state(QueueState::Rdy).modify_bitmask(SELECT_RATE_LIMIT).ctx(&context);
    object.modify(&command)
}

fn modify(object: &Object, sqn: u32, from: QueueState, to: QueueState) -> Result<(), CommandError> {
    let (mut command, mut context) = (ModifySqIn::default(), Sqc::default());
    context.w().state(to);
    command.w().sqn(sqn).sq_state(from).ctx(&context);
    object.modify(&command)
}

fn query(object: &Object, sqn: u32) -> Result<QueueStatus, CommandError> {
    let mut query = QuerySqIn::default();
    query.w().sqn(sqn);
    let reply = object.query(&query)?;
    let context = reply.sq_context();
    Ok(QueueStatus::of(context.state(), context.wq()))
}

/// The inline mode, determined as Linux does.
fn inline_mode(device: &Device, ethernet: &PerProtocolNetworkingOffloadCaps) -> Result<InlineMode, Error> {
    match ethernet.wqe_inline_mode() {
        INLINE_NOT_REQUIRED => Ok(InlineMode::None),
        INLINE_BY_VPORT => {
            let reply = device.execute(&QueryNicVportContextIn::default(), "least inline mode")?;
            Ok(InlineMode::from_number(reply.nic_vport_context().min_wqe_inline_mode().into()))
        }
        _ => Ok(InlineMode::L2),
    }
}

/// The clock's bits that are compared with a time to wait for: eight seconds or the next power of two of ticks, as DPDK
/// has it. 0 on a card that waits for no time.
fn wait_mask(general: &CmdHcaCap, format: TimestampFormat) -> u64 {
    const SECONDS: u64 = 8;
    let khz = u64::from(general.device_frequency_khz());
    let range = match format {
        _ if !general.wait_on_time() => 1,
        TimestampFormat::FreeRunning if khz != 0 => (SECONDS * 1000 * khz).next_power_of_two(),
        _ => SECONDS << 32,
    };
    range - 1
}

/// Longest frame of the port in bytes, without FCS. The port silently drops longer ones.
fn longest_frame(device: &Device) -> Result<usize, Error> {
    Ok(device.port()?.mtu.saturating_sub(CHECK_SEQUENCE).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_size(options: SqOptions) -> Result<u32, Invalid> {
        let mut general = CmdHcaCap::ZERO;
        general.w().log_max_wq_sz(15);
        options.log_size(&Caps { max_wqe_sz_sq: 512, ..Caps::default() }, &general)
    }

    #[test]
    fn a_frame_with_an_inlined_header_and_one_element_takes_one_wqebb() {
        assert_eq!(log_size(SqOptions::default().wqes(16)).unwrap(), 4);
        assert_eq!(log_size(SqOptions::default().wqes(16).inline_bytes(19)).unwrap(), 5);
        assert_eq!(log_size(SqOptions::default().wqes(16).inline_bytes(0).sges(2)).unwrap(), 4);
    }

    #[test]
    fn times_to_wait_for_are_compared_in_half_of_at_least_eight_seconds() {
        let mut general = CmdHcaCap::ZERO;
        general.w().device_frequency_khz(1_000_000);
        let mask = |general: &CmdHcaCap, format| wait_mask(general, format);
        assert_eq!(mask(&general, TimestampFormat::FreeRunning), 0, "not announced");
        general.w().wait_on_time(true);
        assert_eq!(mask(&general, TimestampFormat::FreeRunning), (1 << 33) - 1);
        for format in [TimestampFormat::RealTime, TimestampFormat::Default] {
            assert_eq!(mask(&general, format), (1 << 35) - 1);
        }
        general.w().device_frequency_khz(156_250);
        assert_eq!(mask(&general, TimestampFormat::FreeRunning), (1 << 31) - 1);
    }

    #[test]
    fn what_the_card_cannot_do_is_refused_by_name() {
        for (options, names) in [
            (SqOptions::default().wqes(32769), ["wqes", "log_max_wq_sz"]),
            (SqOptions::default().sges(30), ["sges", "max_wqe_sz_sq"]),
            (SqOptions::default().inline_bytes(600), ["inline_bytes", "max_wqe_sz_sq"]),
        ] {
            let text = log_size(options).unwrap_err().to_string();
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
        }
        let too_wide = Invalid::TooWide { what: "inline_bytes", given: 1024, bits: 10 };
        assert_eq!(log_size(SqOptions::default().inline_bytes(1024)), Err(too_wide));
    }
}
