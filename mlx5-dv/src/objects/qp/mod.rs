//! Queue pairs: connections, reliable or not, and datagrams.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_prm::cmd::QueryQpIn;
use mlx5_prm::ctx::Qpc;
use mlx5_prm::values::{PathMtu, QpState, ServiceType};

use super::cq::Cq;
use super::doorbell::{DoorbellMode, Leased};
use super::mkey::AccessFlags;
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use super::ring::RingMemory;
use super::ring_lease::{
    ReceivePermit, ReceiveRingOwner, ReceiveRingParts, RingLease, SendLimits, SendPermit, SendRingOwner, SendRingParts,
};
use super::uar::Uar;
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid, StateError};
use crate::lock::lock;

pub(super) mod attributes;
mod create;
pub(super) mod datagram;
pub(super) mod options;
pub(super) mod path;
mod state;
mod transition;

use options::{Layout, QpOptions};
use path::AddressPath;
use state::{datagram_way, way};

/// What the card says of a queue pair. PRM "QUERY_QP".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpStatus {
    /// The state it is in.
    pub state: QpState,
    /// The remote queue pair.
    pub remote_qpn: u32,
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
    /// The packet sequence number sent next.
    pub next_send_psn: u32,
    /// The packet sequence number expected next.
    pub next_rcv_psn: u32,
    /// The last of ours that was acknowledged.
    pub last_acked_psn: u32,
    /// WQEBBs that the card has begun, modulo 2^16.
    pub hw_sq_wqebb_counter: u16,
    /// WQEBBs that the doorbell record says were posted, modulo 2^16.
    pub sw_sq_wqebb_counter: u16,
    /// Receives that the card has consumed.
    pub hw_rq_counter: u32,
    /// Receives that the doorbell record says were posted.
    pub sw_rq_counter: u32,
    /// Where its packets go, of a connection.
    pub path: AddressPath,
    /// What the remote may do, of a connection.
    pub remote_access: AccessFlags,
    /// What a datagram must carry to be received, of a queue pair of datagrams.
    pub qkey: u32,
    /// What the remote is told to wait when no receive is posted: a code of 5 bits.
    pub min_rnr_timer: u8,
    /// How long an acknowledgement is waited for: 4.096 us times two to this; 0 for ever.
    pub timeout: u8,
    /// How often to send again then.
    pub retry_count: u8,
    /// How often to send again when the remote has no receive posted; 7 for ever.
    pub rnr_retry: u8,
    /// RDMA READs and atomics of ours that may be under way at once.
    pub max_rd_atomic: u8,
    /// RDMA READs and atomics of the remote that may be.
    pub max_dest_rd_atomic: u8,
}

/// A queue pair, of a connection, reliable or not, or of datagrams ([`QpOptions::service`]). PRM "Queue Pair Context".
///
/// States, and what leads from one to the next:
///
/// ```text
/// RST --init--> INIT --ready_to_receive--> RTR --ready_to_send--> RTS
///  ^             |  receive_queue from here  |   send_queue from here |
///  +---reset-----+------------<--------------+-----------<------------+   to_error: any but RST --> ERR
/// ```
///
/// One of an unreliable connection takes the same steps; some of their attributes mean nothing to it. Its send queue is
/// had by [`unreliable_send_queue`](Self::unreliable_send_queue).
///
/// Of an extended reliable connection each direction has two: one that sends ([`QpOptions::xrc_initiator`]), whose send
/// queue is had by [`xrc_send_queue`](Self::xrc_send_queue), and one that receives ([`QpOptions::xrc_target`]), which
/// has no queue and works from RTR on.
///
/// One of datagrams goes from RST to RTS by [`activate`](Self::activate), and its send queue is had by
/// [`datagram_send_queue`](Self::datagram_send_queue).
///
/// Forbidden, with a [`StateError`] before firmware is asked: a step that skips one; a send queue before RTS (the card
/// would ignore its doorbells in silence); a receive queue before INIT; to_error from RST (there is nothing to flush);
/// reset while a queue is out (its indices would no longer be the card's).
///
/// While it works, [`modify`](Self::modify) changes rights, RNR timer and Q_Key.
pub struct QueuePair {
    qpn: u32,
    options: QpOptions,
    layout: Layout,
    state: Mutex<QpState>,
    send_lease: RingLease,
    receive_lease: RingLease,
    object: Object,
    memory: RingMemory,
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
    /// `qpn`, 24 bits: to tell the remote. One of general services is queue pair 1 to others, whatever this number.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The state that our own calls led to. What the card did on its own account (an error) only
    /// [`query`](Self::query) knows.
    pub fn state(&self) -> QpState {
        *self.lock()
    }

    /// What it was made with.
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

    /// Where sends complete.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.send_cq
    }

    /// Where receives complete.
    pub fn recv_cq(&self) -> &Arc<Cq> {
        &self.recv_cq
    }

    fn lock(&self) -> MutexGuard<'_, QpState> {
        lock(&self.state)
    }

    /// The error of `call`, which needs `wanted`, the state that `reach` is.
    fn forbidden(&self, state: QpState, call: &'static str, wanted: &'static str, reach: QpState) -> Error {
        let missing_calls = match self.options.service {
            ServiceType::Ud | ServiceType::Qp1 => datagram_way(state),
            _ => way(state, reach),
        };
        StateError { qpn: self.qpn, state, call, wanted, missing_calls }.into()
    }

    /// `Ok` for a queue pair of a service of `wanted`, which `call` is for; others have `instead`.
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

    /// What the card says of it. Errors: [`Error::Command`].
    pub fn query(&self) -> Result<QpStatus, Error> {
        let mut query = QueryQpIn::default();
        query.w().qpn(self.qpn);
        let reply = self.object.query(&query)?;
        let context = reply.qpc();
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

    /// The error of `call` of a queue pair that was made without `requires`.
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

    /// The completions of this life that nobody has polled are not to be taken for those of the next, or of another
    /// queue pair that gets this one's number.
    ///
    /// Receives of a shared queue are: their WQEs are not used again before they are retired.
    fn forget_completions(&self) {
        let has_own_receives = self.options.srq.is_none() && self.options.xrcd.is_none();
        self.send_cq.forget(self.qpn, has_own_receives);
        if has_own_receives && !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.forget(self.qpn, true);
        }
    }

    /// Destroys it: nothing posted is carried out any more. Its queues must be gone. Errors: the queue pair, kept
    /// alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, QueuePair::end)
    }
}

/// What `context` allows the remote.
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
