//! Queue pairs for reliable and unreliable connections, and for datagrams.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::QueryQpIn;
use mlx5_prm::ctx::Qpc;
use mlx5_prm::values::{PathMtu, QpState, ServiceType};

use super::cq::{Cq, Whose};
use super::doorbell::{DoorbellMode, Leased};
use super::mkey::AccessFlags;
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use super::ring::RingMemory;
use super::ring_lease::{
    ReceivePermit, ReceiveRingOwner, ReceiveRingParts, RingLease, SendLimits, SendPermit, SendRingOwner, SendRingParts,
};
use super::uar::Uar;
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid, StateError};
use crate::lock::lock;

pub(super) mod attributes;
mod create;
pub(super) mod datagram;
pub(super) mod ece;
pub(super) mod initiator;
pub(super) mod options;
pub(super) mod path;
mod state;
pub(super) mod transition;
pub(super) mod xrc_target;

use ece::{Ece, EceOptions};
use options::{Layout, QpOptions};
use path::AddressPath;
use state::{datagram_way, initiator_way, way};

/// Whether processors of this host see memory in the order in which the card writes it: libibverbs knows it of x86's.
const LOADS_IN_ORDER: bool = cfg!(any(target_arch = "x86", target_arch = "x86_64"));

/// A queue pair's status, as the card reports it. PRM "QUERY_QP".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpStatus {
    /// State.
    pub state: QpState,
    /// The remote queue pair.
    pub remote_qpn: u32,
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
    /// Next PSN to send.
    pub next_send_psn: u32,
    /// Next PSN expected.
    pub next_rcv_psn: u32,
    /// Last PSN of ours that the remote acknowledged.
    pub last_acked_psn: u32,
    /// Number of WQEBBs that the card has started to execute, modulo 2^16.
    pub hw_sq_wqebb_counter: u16,
    /// Number of WQEBBs posted according to the doorbell record, modulo 2^16.
    pub sw_sq_wqebb_counter: u16,
    /// Number of receives that the card has consumed.
    pub hw_rq_counter: u32,
    /// Number of receives posted according to the doorbell record.
    pub sw_rq_counter: u32,
    /// Path of its packets; for connections.
    pub path: AddressPath,
    /// Index of the P_Key of its packets.
    pub pkey_index: u16,
    /// Access rights of the remote; for connections.
    pub remote_access: AccessFlags,
    /// Q_Key that received datagrams must carry; for datagrams.
    pub qkey: u32,
    /// RNR NAK timer code sent to the remote if no receive is posted, 5 bits.
    pub min_rnr_timer: u8,
    /// Local ACK timeout: 4.096 us * 2^timeout; 0 means none.
    pub timeout: u8,
    /// Number of retries after a timeout.
    pub retry_count: u8,
    /// Number of retries after an RNR NAK; 7 means no limit.
    pub rnr_retry: u8,
    /// Maximum number of our outstanding RDMA READs and atomics.
    pub max_rd_atomic: u8,
    /// Maximum number of outstanding RDMA READs and atomics of the remote.
    pub max_dest_rd_atomic: u8,
}

/// A queue pair for a reliable or unreliable connection, or for datagrams ([`QpOptions::service`]). PRM "Queue Pair
/// Context".
///
/// States and transitions:
///
/// ```text
/// RST --init--> INIT --ready_to_receive--> RTR --ready_to_send--> RTS
///  ^             |  receive_queue from here  |   send_queue from here |
///  +---reset-----+------------<--------------+-----------<------------+   to_error: any but RST --> ERR
/// ```
///
/// An unreliable connection takes the same steps and ignores some of their attributes.
/// [`unreliable_send_queue`](Self::unreliable_send_queue) returns its send queue.
///
/// Each direction of an extended reliable connection has two queue pairs. The initiator sends
/// ([`QpOptions::xrc_initiator`]); [`xrc_send_queue`](Self::xrc_send_queue) returns its send queue. What receives is an
/// [`XrcTarget`](super::XrcTarget).
///
/// A queue pair for datagrams goes from RST to RTS by [`activate`](Self::activate).
/// [`datagram_send_queue`](Self::datagram_send_queue) returns its send queue.
///
/// A dynamically connected initiator ([`QpOptions::dc_initiator`]) does so by
/// [`activate_initiator`](Self::activate_initiator); [`dc_send_queue`](Self::dc_send_queue) returns its send queue.
/// What it sends to is a [`Dct`](super::Dct).
///
/// The following calls fail with a [`StateError`] before firmware is asked: a transition that skips a state; a send
/// queue before RTS (the card would silently ignore its doorbells); a receive queue before INIT; `to_error` in RST
/// (there is nothing to flush). `reset` fails while a queue is leased, whose indices would no longer match the card's.
///
/// [`modify`](Self::modify) changes access rights, RNR timer and Q_Key in INIT or RTS.
pub struct QueuePair {
    qpn: u32,
    layout: Layout,
    state: Mutex<QpState>,
    send_lease: RingLease,
    receive_lease: RingLease,
    ece: Ece,
    object: Object,
    memory: RingMemory,
    /// After the object, which names its shared receive queue, domain and counter.
    options: QpOptions,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    uar: Arc<Uar>,
    pd: Arc<Pd>,
}

impl SendRingOwner for QueuePair {
    fn release_send_ring(&self) {
        self.send_lease.release();
    }
}

impl ReceiveRingOwner for QueuePair {
    fn release_receive_ring(&self) {
        self.receive_lease.release();
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:#x} in {})", self.qpn, self.state())
    }
}

impl QueuePair {
    /// `qpn`, 24 bits, for the remote. A queue pair for general services is always queue pair 1 to others, whatever
    /// this number is.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The state after our own calls. Only [`query`](Self::query) shows a transition that the card made itself, after
    /// an error.
    pub fn state(&self) -> QpState {
        *self.lock()
    }

    /// The options that it was created with.
    pub fn options(&self) -> &QpOptions {
        &self.options
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        self.pd.device()
    }

    /// The protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The connection's options (ECE): before RTR those that firmware offers for it, afterwards those in use. `None` on
    /// a card without `ece_support`.
    pub fn ece(&self) -> Option<EceOptions> {
        ece::is_supported(self.device().caps()).then(|| self.ece.now())
    }

    /// The completion queue of sends.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.send_cq
    }

    /// The completion queue of receives.
    pub fn recv_cq(&self) -> &Arc<Cq> {
        &self.recv_cq
    }

    fn lock(&self) -> MutexGuard<'_, QpState> {
        lock(&self.state)
    }

    /// The error that `call` needs state `wanted`. `reach` is the state that the missing calls lead to.
    fn forbidden(&self, state: QpState, call: &'static str, wanted: &'static str, reach: QpState) -> Error {
        let missing_calls = match self.options.service {
            ServiceType::Ud | ServiceType::Qp1 => datagram_way(state),
            ServiceType::Dci => initiator_way(state),
            _ => way(state, reach),
        };
        StateError { qpn: self.qpn, state, call, wanted, missing_calls }.into()
    }

    /// `Ok` if the service is one of `wanted`, which `call` is for. `instead` names the call for other services.
    pub(crate) fn must_be(
        &self,
        wanted: &'static [ServiceType],
        call: &'static str,
        instead: &'static str,
    ) -> Result<(), Invalid> {
        match self.options.service {
            service if wanted.contains(&service) => Ok(()),
            service => Err(Invalid::WrongService { object: self.object.name(), service, call, wanted, instead }),
        }
    }

    fn context(&self) -> Result<Qpc, CommandError> {
        let mut query = QueryQpIn::default();
        query.w().qpn(self.qpn);
        Ok(*self.object.query(&query)?.qpc())
    }

    /// Queries the status. Errors: [`Error::Command`].
    pub fn query(&self) -> Result<QpStatus, Error> {
        let context = &self.context()?;
        Ok(QpStatus {
            state: context.state(),
            remote_qpn: context.remote_qpn(),
            path_mtu: context.mtu(),
            next_send_psn: context.next_send_psn(),
            next_rcv_psn: context.next_rcv_psn(),
            last_acked_psn: context.last_acked_psn(),
            hw_sq_wqebb_counter: context.hw_sq_wqebb_counter(),
            sw_sq_wqebb_counter: context.sw_sq_wqebb_counter(),
            hw_rq_counter: context.hw_rq_counter(),
            sw_rq_counter: context.sw_rq_counter(),
            path: AddressPath::of(context.primary_address_path()),
            pkey_index: context.primary_address_path().pkey_index(),
            remote_access: remote_access(context),
            qkey: context.q_key(),
            min_rnr_timer: context.min_rnr_nak(),
            timeout: context.primary_address_path().ack_timeout(),
            retry_count: context.retry_count(),
            rnr_retry: context.rnr_retry(),
            max_rd_atomic: 1 << context.log_sra_max(),
            max_dest_rd_atomic: 1 << context.log_rra_max(),
        })
    }

    /// Whether the bytes of each message reach memory in order, those of sends and RDMA writes that it receives, and of
    /// its own RDMA reads: a program that sees the last byte of a message, by a load with acquire ordering, sees all of
    /// it, and need not wait for a completion. This says nothing of several messages, nor of memory with relaxed
    /// ordering.
    ///
    /// False before RTS, on a card that does not tell (`qp_data_in_order`), and where this host's processors, unlike
    /// x86's, reorder what they load. As libibverbs' `ibv_query_qp_data_in_order`.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn data_in_order(&self) -> Result<bool, Error> {
        Ok(LOADS_IN_ORDER && self.card_data_in_order()?)
    }

    /// As [`data_in_order`](Self::data_in_order), for the card alone: for memory that another device reads, or after a
    /// study of the host's processors.
    ///
    /// # Errors
    /// [`Error::Command`].
    pub fn card_data_in_order(&self) -> Result<bool, Error> {
        let general: Option<CmdHcaCap> = self.device().caps().current(CapPage::General);
        let tells = general.is_some_and(|general| general.qp_data_in_order());
        Ok(tells && self.state() == QpState::Rts && self.context()?.data_in_order())
    }

    /// The error that `call` needs the option `requires`.
    fn lacks(&self, call: &str, requires: &'static str) -> Error {
        Invalid::Requires { what: format!("{call} of {}", self.object.name()), requires }.into()
    }

    /// Leases the send ring for `call`.
    pub(crate) fn lease_send_ring<D: DoorbellMode>(
        &self,
        call: &'static str,
        limits: SendLimits,
    ) -> Result<(SendPermit, Leased<D>), Error> {
        let state = self.lock();
        if *state != QpState::Rts {
            return Err(self.forbidden(*state, call, "RTS", QpState::Rts));
        }
        let log_size = self.layout.log_sq_size.ok_or_else(|| self.lacks(call, "QpOptions::send_wqes above 0"))?;
        let doorbell = D::of(&self.uar)?;
        let (name, offset) = (self.object.name(), self.layout.receive_len());
        let (ring, record) = self.send_lease.take(&self.memory, offset, &name, "SendQueue")?.into_parts();
        Ok((SendPermit(SendRingParts { ring, record, log_size, limits }), doorbell))
    }

    /// Leases the receive ring for `call`.
    pub(crate) fn lease_receive_ring(&self, call: &'static str) -> Result<ReceivePermit, Error> {
        let state = self.lock();
        if !matches!(*state, QpState::Init | QpState::Rtr | QpState::Rts) {
            return Err(self.forbidden(*state, call, "INIT, RTR or RTS", QpState::Init));
        }
        if let Some(srq) = &self.options.srq {
            let (what, by) = (format!("the ReceiveQueue of {}", self.object.name()), format!("SRQ {:#x}", srq.srqn()));
            return Err(Invalid::Taken { what, by, mend: "post its receives there" }.into());
        }
        let log_size = self.layout.log_rq_size.ok_or_else(|| self.lacks(call, "QpOptions::recv_wqes above 0"))?;
        let name = self.object.name();
        let (ring, record) = self.receive_lease.take(&self.memory, 0, &name, "ReceiveQueue")?.into_parts();
        let (log_stride, sges) = (self.layout.log_rq_stride, self.options.recv_sges.max(1));
        Ok(ReceivePermit(ReceiveRingParts { ring, record, log_size, log_stride, sges }))
    }

    fn end(&mut self) -> Result<(), CommandError> {
        self.object.destroy()?;
        self.forget_completions();
        self.memory.destroy()
    }

    /// Discards completions not polled yet. They must not be mistaken for those after a reset, or for those of another
    /// queue pair that gets the same number.
    ///
    /// Keeps those of a shared receive queue: its WQEs are not reused before they are retired.
    fn forget_completions(&self) {
        let has_own_receives = self.options.srq.is_none() && self.options.xrcd.is_none();
        let completions = Whose::Number { number: self.qpn, receives: has_own_receives };
        self.send_cq.forget(completions);
        if has_own_receives && !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.forget(completions);
        }
    }

    /// Destroys the queue pair: nothing posted is executed any more. Its queues must have been dropped. Errors: the
    /// queue pair, which stays alive, and the reason.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, QueuePair::end)
    }
}

/// Access rights of the remote in `context`.
fn remote_access(context: &Qpc) -> AccessFlags {
    let rights = [
        (context.rwe(), AccessFlags::REMOTE_WRITE),
        (context.rre(), AccessFlags::REMOTE_READ),
        (context.rae(), AccessFlags::REMOTE_ATOMIC),
    ];
    rights.into_iter().filter(|(allowed, _)| *allowed).map(|(_, right)| right).collect()
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a QP was not destroyed; its memory is leaked");
            self.memory.leak();
        }
    }
}
