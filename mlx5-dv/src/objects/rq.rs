//! Receive queues for Ethernet frames: the object. Its queue is
//! [`EthernetReceiveQueue`](crate::queue::ethernet::EthernetReceiveQueue).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{CreateRqIn, DestroyRqIn, ModifyRqIn, QueryRqIn};
use mlx5_prm::ctx::{QueueState, Rqc};
use mlx5_prm::wqe::{SEGMENT, WQEBB};

use super::check::{NO_USER_INDEX, one_device, timestamps, within};
use super::cq::Cq;
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use super::raw_queue::{Commands, QueueStatus, RawQueue, cyclic, ethernet_caps};
use super::ring::RingMemory;
use super::ring_lease::{ReceiveRingOwner, RingPermit};
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid};

/// Options of a receive queue for frames.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RqOptions {
    /// Receives that it can hold. Default: 128.
    pub wqes: u32,
    /// Maximum number of scatter elements per receive. Default: 1.
    pub sges: u16,
}

impl Default for RqOptions {
    fn default() -> Self {
        RqOptions { wqes: 128, sges: 1 }
    }
}

impl RqOptions {
    /// Sets [`wqes`](Self::wqes).
    pub fn wqes(mut self, wqes: u32) -> Self {
        self.wqes = wqes;
        self
    }

    /// Sets [`sges`](Self::sges).
    pub fn sges(mut self, sges: u16) -> Self {
        self.sges = sges;
        self
    }

    /// Logs of the ring's number of WQEs and of a WQE's size.
    fn layout(&self, general: &CmdHcaCap) -> Result<(u32, u32), Invalid> {
        let stride = (SEGMENT as u64 * u64::from(self.sges.max(1))).next_power_of_two();
        let most = 1u64 << general.log_max_stride_sz_rq().min(63);
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
        // A ring consists of whole WQEBBs.
        let least = (WQEBB as u64) >> log_stride;
        let wqes = u64::from(self.wqes.max(1)).max(least).next_power_of_two();
        within("wqes", wqes, "log_max_wq_sz", general.log_max_wq_sz().min(15))?;
        Ok((wqes.trailing_zeros(), log_stride))
    }
}

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
    /// Whether it has been in an RQ table.
    is_spread: AtomicBool,
    pd: Arc<Pd>,
}

impl fmt::Debug for Rq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rq({:?})", self.queue)
    }
}

impl Rq {
    /// Creates a receive queue in RST that completes into `cq`, for memory of `pd`. VLAN tags are not stripped.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a card without Ethernet; [`Error::Invalid`] if the options exceed a capability, which
    /// it names, or the parents are of different cards; [`Error::Memory`], [`Error::Command`].
    pub fn create(pd: &Arc<Pd>, cq: &Arc<Cq>, options: RqOptions) -> Result<Arc<Self>, Error> {
        let device = pd.device();
        one_device("a receive queue's PD and CQ", device, [cq.device()])?;
        let (general, _) = ethernet_caps(device.caps())?;
        let (log_size, log_stride) = options.layout(&general)?;
        let memory = RingMemory::new(device, 1 << (log_size + log_stride), 0)?;
        let mut context = Rqc::default();
        context
            .w()
            .vsd(true)
            .flush_in_error_en(true)
            .user_index(NO_USER_INDEX)
            .cqn(cq.cqn())
            .ts_format(timestamps(general.rq_ts_format()))
            .wq(&cyclic(pd, &memory, log_size, log_stride));
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
        Ok(Arc::new(Rq {
            queue: RawQueue::new(out.rqn(), Commands { modify, query }, object, memory, cq),
            log_size,
            log_stride,
            sges: options.sges.max(1),
            is_spread: AtomicBool::new(false),
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

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Its completion queue.
    pub fn cq(&self) -> &Arc<Cq> {
        self.queue.cq()
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

    /// It gets into an RQ table: from now on, its completions may carry the flow tag of a TIR that spreads frames.
    pub(super) fn mark_spread(&self) {
        self.is_spread.store(true, Ordering::Relaxed);
    }

    /// Leases the ring for `call`.
    pub(crate) fn lease_receive_ring(&self, call: &'static str) -> Result<RingPermit, Error> {
        let wanted = [QueueState::Rst, QueueState::Rdy];
        let (permit, ()) = self.queue.lease_ring(call, &wanted, "reset", || Ok(()))?;
        Ok(permit)
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

    fn is_tagged(&self) -> bool {
        self.is_spread.load(Ordering::Relaxed)
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
