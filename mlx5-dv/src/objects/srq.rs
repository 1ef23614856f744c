//! Shared receive queues: the object. Its queue is [`SharedReceiveQueue`](crate::queue::SharedReceiveQueue).

use std::fmt;
use std::sync::Arc;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{
    ArmXrcSrqIn, ArmXrcSrqOpMod, CreateRmpIn, CreateXrcSrqIn, DestroyRmpIn, DestroyXrcSrqIn, ModifyRmpIn, QueryRmpIn,
    QueryXrcSrqIn, WithTail,
};
use mlx5_prm::ctx::{QueueState, RmpBitmask, Rmpc, SrqState, Wq, WqType, XrcSrqc};
use mlx5_prm::wqe::SEGMENT;

use super::check::{one_device, user_index, within};
use super::cq::Cq;
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use super::ring::RingMemory;
use super::ring_lease::{ReceivePermit, ReceiveRingOwner, ReceiveRingParts, RingLease};
use super::xrcd::Xrcd;
use crate::access::{KernelObjectKind, KernelSrq};
use crate::caps::{CapPage, Caps};
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};
use crate::setters::setters;

/// Options of a shared receive queue.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SrqOptions {
    /// Receives that it can hold; rounded up to a power of two minus one. Default: 127.
    pub wqes: u32,
    /// Maximum number of scatter elements per receive. Default: 1.
    pub sges: u16,
    /// Of a shared receive queue of an XRC domain: what its completions carry as
    /// [`Completion::user_index`](crate::queue::Completion::user_index), 24 bits, all ones excepted. Those of others
    /// carry their queue pair's. Default: none; on `devx:` 0.
    pub user_index: Option<u32>,
}

setters! {
    SrqOptions {
        wqes: u32;
        sges: u16;
        user_index: Some(u32);
    }
}

impl Default for SrqOptions {
    fn default() -> Self {
        SrqOptions { wqes: 127, sges: 1, user_index: None }
    }
}

impl SrqOptions {
    /// Logs of the ring's number of WQEs and of a WQE's size.
    fn layout(&self, caps: &Caps) -> Result<(u32, u32), Invalid> {
        let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or(CmdHcaCap::ZERO);
        // The link to the next WQE, followed by the elements.
        let stride = SEGMENT as u64 * (1 + u64::from(self.sges.max(1)));
        let stride = stride.next_power_of_two();
        if stride > u64::from(caps.max_wqe_sz_rq) {
            return Err(Invalid::WqeTooLong {
                what: "sges",
                sges: self.sges,
                inline_bytes: None,
                needed: stride,
                most: caps.max_wqe_sz_rq.into(),
                capability: "max_wqe_sz_rq",
            });
        }
        // One WQE is never posted, since the last posted one links to it. Two WQEs of 32 bytes make a WQEBB.
        let wqes = (u64::from(self.wqes.max(1)) + 1).next_power_of_two();
        within("wqes", wqes, "log_max_srq_sz", general.log_max_srq_sz().min(15))?;
        Ok((wqes.trailing_zeros(), stride.trailing_zeros()))
    }
}

/// Status of a shared receive queue, from the card. PRM "QUERY_RMP".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SrqStatus {
    /// The state: RDY or ERR.
    pub state: QueueState,
    /// The limit event is sent when fewer receives are left; 0 if it is not armed, or was sent.
    pub limit: u16,
    /// Receives taken by queue pairs, modulo 2^16.
    pub hw_counter: u32,
    /// Receives posted according to the doorbell record, modulo 2^16.
    pub sw_counter: u32,
}

/// A receive queue that many queue pairs share, in the order in which messages arrive: set
/// [`QpOptions::srq`](super::QpOptions::srq). PRM "Receive Memory Pool Context": what Linux uses for ordinary shared
/// receive queues on every card with interface step 1, which this driver requires.
///
/// A receive completes in the receive CQ of the queue pair that took it. Before such a queue pair is reset or
/// destroyed, move it to ERR, wait for its event SRQ_LAST_WQE ([`Device::async_events`]), and poll: receives that it
/// has taken and not completed at its reset never complete, and their WQEs are lost until the shared receive queue is
/// destroyed.
///
/// One of an [XRC domain](Self::create_xrc) has a completion queue of its own, and takes messages that name it from all
/// target queue pairs of its domain. PRM "XRC SRQ Context".
pub struct Srq {
    srqn: u32,
    /// Of one of an XRC domain: the domain, and where its receives complete.
    xrc: Option<(Arc<Xrcd>, Arc<Cq>)>,
    options: SrqOptions,
    log_size: u32,
    log_stride: u32,
    lease: RingLease,
    object: Object,
    memory: RingMemory,
    pd: Arc<Pd>,
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Srq({:#x}, {} receives)", self.srqn, self.capacity())
    }
}

impl ReceiveRingOwner for Srq {
    fn release_receive_ring(&self) {
        self.lease.release();
    }
}

impl Srq {
    /// Creates a shared receive queue without posted receives, for memory of `pd`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the options exceed a capability, which it names; [`Error::Memory`], [`Error::Command`].
    pub fn create(pd: &Arc<Pd>, options: SrqOptions) -> Result<Arc<Self>, Error> {
        let device = pd.device();
        let (log_size, log_stride) = options.layout(device.caps())?;
        let memory = RingMemory::new(pd, 1 << (log_size + log_stride), 0)?;
        let mut context = Rmpc::default();
        context.w().state(QueueState::Rdy).wq(&memory.wq(WqType::LinkedList, pd.pdn(), log_size, log_stride));
        let mut create = CreateRmpIn::default();
        create.w().ctx(&context);
        // SAFETY: names only the umem of `memory`, which belongs to this queue. It is kept beside the object, destroyed
        // after it, and leaked if that fails; firmware does not destroy a umem in use.
        let created = unsafe {
            Object::create_over_memory(device, &create, "an SRQ", |out| {
                let mut end = DestroyRmpIn::default();
                end.w().rmpn(out.rmpn());
                (end, format!("SRQ {:#x}", out.rmpn()))
            })
        };
        let (object, out) = created?;
        let (srqn, lease, pd) = (out.rmpn(), RingLease::default(), Arc::clone(pd));
        Ok(Arc::new(Srq { srqn, xrc: None, options, log_size, log_stride, lease, object, memory, pd }))
    }

    /// A new shared receive queue of `domain`, with nothing posted, whose receives complete into `cq`. Its memory is of
    /// `pd`, and so must be what messages that name it write, read or change.
    ///
    /// # Errors
    /// As for [`create`](Self::create); [`Error::Invalid`] on `devx:` for a `cq` without
    /// [`CqOptions::for_xrc`](super::CqOptions::for_xrc).
    pub fn create_xrc(pd: &Arc<Pd>, domain: &Arc<Xrcd>, cq: &Arc<Cq>, options: SrqOptions) -> Result<Arc<Self>, Error> {
        let device = pd.device();
        one_device("an SRQ's PD, XRC domain and CQ", device, [domain.device(), cq.device()])?;
        cq.admit()?;
        let index = user_index(options.user_index, device.caps())?;
        let (log_size, log_stride) = options.layout(device.caps())?;
        let mut memory = RingMemory::new(pd, 1 << (log_size + log_stride), 0)?;
        let (object, srqn) = match (device.access().kernel_verbs(), domain.kernel_handle()) {
            (Some(kernel), Some(xrcd)) => {
                let sges = options.sges.max(1).into();
                let srq = KernelSrq {
                    pd: pd.kernel_handle(),
                    xrcd,
                    cq: cq.xrc_handle()?,
                    ring: memory.at(0)?.addr().get() as u64,
                    record: memory.record()?.addr().get() as u64,
                    wqes: 1 << log_size,
                    sges,
                    user_index: options.user_index,
                };
                // SAFETY: names only `memory`, which belongs to this queue. It is kept beside the object, destroyed
                // after it, and leaked if that fails.
                let (handle, srqn) = unsafe { kernel.xrc().create_srq(&srq) }?;
                let (kind, name) = (KernelObjectKind::SharedReceiveQueue, format!("SRQ {srqn:#x}"));
                (Object::of_kernel(device, kind, handle, name), srqn)
            }
            _ => {
                let mut context = XrcSrqc::default();
                context
                    .w()
                    .log_xrc_srq_size(log_size as u8)
                    .log_rq_stride((log_stride - 4) as u8)
                    .xrcd(domain.xrcd())
                    .cqn(cq.cqn())
                    .user_index(index)
                    .pd(pd.pdn());
                Self::create_xrc_object(device, &memory, context).inspect_err(|error| {
                    // The context lists pages, so firmware destroys the umem though the queue uses it.
                    if error.may_be_done() {
                        memory.leak();
                    }
                })?
            }
        };
        let xrc = Some((Arc::clone(domain), Arc::clone(cq)));
        let (lease, pd) = (RingLease::default(), Arc::clone(pd));
        Ok(Arc::new(Srq { srqn, xrc, options, log_size, log_stride, lease, object, memory, pd }))
    }

    /// Creates the object in `memory`, with the rest of `context`: its number, too.
    fn create_xrc_object(
        device: &Arc<Device>,
        memory: &RingMemory,
        mut context: XrcSrqc,
    ) -> Result<(Object, u32), Error> {
        let (pages, record) = memory.pages();
        context.w().db_record_addr_h((record >> 32) as u32).db_record_addr_l(record as u32 >> 2);
        let mut create = CreateXrcSrqIn::default();
        create.w().xrc_srq_context_entry(&context);
        // SAFETY: names pages and record of `memory` alone, which is the queue's, registered as a umem meanwhile. It
        // is kept beside the object, destroyed after it, and leaked where that fails, or where there is no reply.
        let created = unsafe {
            Object::create_over_memory(device, &WithTail::new(create, pages), "an XRC SRQ", |out| {
                let mut end = DestroyXrcSrqIn::default();
                end.w().xrc_srqn(out.reply.xrc_srqn());
                (end, format!("SRQ {:#x}", out.reply.xrc_srqn()))
            })
        };
        let (object, out) = created?;
        Ok((object, out.reply.xrc_srqn()))
    }

    /// Its XRC domain, if it has one.
    pub fn xrcd(&self) -> Option<&Arc<Xrcd>> {
        self.xrc.as_ref().map(|(domain, _)| domain)
    }

    /// `srqn`, 24 bits.
    pub fn srqn(&self) -> u32 {
        self.srqn
    }

    /// Receives that it can hold.
    pub fn capacity(&self) -> usize {
        (1 << self.log_size) - 1
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.pd.device()
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Requests one event SRQ_RQ_LIMIT ([`Device::async_events`]) for when fewer than `limit` receives are left; 0
    /// cancels it. The event is sent when a message takes a receive: if already fewer are left, with the next message.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a limit above the capacity, [`Error::Command`]; for a queue of an XRC domain on `devx:`
    /// also [`Error::Io`], and [`Error::NotImplemented`] where another process has created the context.
    pub fn arm_limit(&self, limit: u16) -> Result<(), Error> {
        if usize::from(limit) > self.capacity() {
            let limits = 0..=self.capacity() as u64;
            return Err(Invalid::out_of_range("limit", limit.into(), limits, "this SRQ").into());
        }
        if let (Some(_), Some(kernel)) = (&self.xrc, self.device().access().kernel_verbs()) {
            return kernel.xrc().set_limit(self.object.handle(), limit.into());
        }
        if self.xrc.is_some() {
            let mut command = ArmXrcSrqIn::default();
            command.w().op_mod(ArmXrcSrqOpMod::XrcSrq.number() as u16).xrc_srqn(self.srqn).lwm(limit);
            return Ok(self.object.modify(&command)?);
        }
        let (mut command, mut bitmask, mut context, mut wq) =
            (ModifyRmpIn::default(), RmpBitmask::default(), Rmpc::default(), Wq::default());
        wq.w().lwm(limit);
        context.w().state(QueueState::Rdy).wq(&wq);
        bitmask.w().lwm(true);
        command.w().rmpn(self.srqn).rmp_state(QueueState::Rdy).bitmask(&bitmask).ctx(&context);
        Ok(self.object.modify(&command)?)
    }

    /// Queries the card.
    ///
    /// # Errors
    /// [`Error::Command`]; [`Error::NotImplemented`] on `devx:` for a queue of an XRC domain.
    pub fn query(&self) -> Result<SrqStatus, Error> {
        if self.xrc.is_some() && !self.device().is_owned() {
            let what = format!("the status of {} on {}", self.object.name(), self.device().name());
            let instead = "Linux does not tell it: count what is posted and what completes".into();
            return Err(Error::NotImplemented { what, instead });
        }
        if self.xrc.is_some() {
            return self.query_xrc();
        }
        let mut query = QueryRmpIn::default();
        query.w().rmpn(self.srqn);
        let reply = self.object.query(&query)?;
        let context = reply.rmp_context();
        let wq = context.wq();
        Ok(SrqStatus {
            state: context.state(),
            limit: wq.lwm(),
            hw_counter: wq.hw_counter(),
            sw_counter: wq.sw_counter(),
        })
    }

    fn query_xrc(&self) -> Result<SrqStatus, Error> {
        let mut query = QueryXrcSrqIn::default();
        query.w().xrc_srqn(self.srqn);
        let reply = self.object.query(&query)?;
        let context = reply.xrc_srq_context_entry();
        let state = match context.state() {
            SrqState::Good => QueueState::Rdy,
            _ => QueueState::Err,
        };
        // The context has no counter of what was posted: the record has.
        let sw_counter = self.memory.posted();
        Ok(SrqStatus { state, limit: context.lwm(), hw_counter: context.wqe_cnt().into(), sw_counter })
    }

    /// Leases the ring.
    pub(crate) fn lease_receive_ring(&self) -> Result<ReceivePermit, Error> {
        let name = self.object.name();
        let (ring, record) = self.lease.take(&self.memory, 0, &name, "SharedReceiveQueue")?.into_parts();
        let (log_size, log_stride, sges) = (self.log_size, self.log_stride, self.options.sges.max(1));
        Ok(ReceivePermit(ReceiveRingParts { ring, record, log_size, log_stride, sges }))
    }

    /// Destroys it; after a success further calls do nothing.
    pub(crate) fn end(&mut self) -> Result<(), CommandError> {
        self.object.destroy()?;
        self.memory.destroy()
    }

    /// Destroys it: posted receives are discarded. Its queue and queue pairs must be dropped first. On an error the
    /// object stays alive and is returned.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, Srq::end)
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "an SRQ was not destroyed; its memory is leaked");
            self.memory.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::layout::Layout as _;

    fn layout(options: SrqOptions) -> Result<(u32, u32), Invalid> {
        let mut general = CmdHcaCap::ZERO;
        general.w().log_max_srq_sz(15);
        let (current, max) = (general.as_bytes().to_vec(), general.as_bytes().to_vec());
        let pages = vec![crate::caps::RawPage { page: CapPage::General, current, max }];
        options.layout(&Caps { pages, max_wqe_sz_rq: 512, ..Caps::default() })
    }

    #[test]
    fn a_wqe_has_room_for_its_link_and_a_ring_for_one_that_is_not_posted() {
        assert_eq!(layout(SrqOptions::default()).unwrap(), (7, 5));
        assert_eq!(layout(SrqOptions::default().wqes(128).sges(2)).unwrap(), (8, 6));
        assert_eq!(layout(SrqOptions::default().wqes(0).sges(0)).unwrap(), (1, 5));
    }

    #[test]
    fn what_the_card_cannot_do_is_refused_by_name() {
        for (options, names) in [
            (SrqOptions::default().wqes(1 << 15), ["wqes", "log_max_srq_sz"]),
            (SrqOptions::default().sges(32), ["sges", "max_wqe_sz_rq"]),
        ] {
            let text = layout(options).unwrap_err().to_string();
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
        }
    }
}
