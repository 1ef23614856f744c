//! Queue pairs: reliable connections and datagrams.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_prm::caps::RoceCap;
use mlx5_prm::cmd::{
    CmdStatus, CreateQpIn, DestroyQpIn, Init2rtrQpIn, Qp2errIn, Qp2rstIn, QueryQpIn, Rst2initQpIn, Rtr2rtsQpIn,
};
use mlx5_prm::ctx::{Ads, AtomicMode, Qpc, TimestampFormat};
use mlx5_prm::values::{PathMigration, PathMtu, QpState, ServiceType};

use super::check::{NO_USER_INDEX, fits, timestamps};
use super::cq::Cq;
use super::doorbell::{DoorbellMode, Leased};
use super::mkey::{AccessFlags, check_access};
use super::object::{DestroyError, Object, destroy_sole};
use super::pd::Pd;
use super::ring::RingMemory;
use super::ring_lease::{
    ReceivePermit, ReceiveRingOwner, ReceiveRingParts, RingLease, SendLimits, SendPermit, SendRingOwner, SendRingParts,
};
use super::uar::Uar;
use crate::caps::{CapPage, Caps};
use crate::device::Device;
use crate::error::{CommandError, Error, StateError};
use crate::lock::lock;
use crate::net::PATH_HEADERS;

pub(super) mod attributes;
pub(super) mod datagram;
pub(super) mod options;
pub(super) mod path;
mod state;

use attributes::{InitAttributes, RtrAttributes, RtsAttributes, log_outstanding};
use options::{Layout, QpOptions};
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
}

/// A queue pair, of a reliable connection or of datagrams ([`QpOptions::service`]). PRM "Queue Pair Context".
///
/// States, and what leads from one to the next:
///
/// ```text
/// RST --init--> INIT --ready_to_receive--> RTR --ready_to_send--> RTS
///  ^             |  receive_queue from here  |   send_queue from here |
///  +---reset-----+------------<--------------+-----------<------------+   to_error: any but RST --> ERR
/// ```
///
/// One of datagrams goes from RST to RTS by [`activate`](Self::activate), and its send queue is had by
/// [`datagram_send_queue`](Self::datagram_send_queue).
///
/// Forbidden, with a [`StateError`] before firmware is asked: a step that skips one; a send queue before RTS (the card
/// would ignore its doorbells in silence); a receive queue before INIT; to_error from RST (there is nothing to flush);
/// reset while a queue is out (its indices would no longer be the card's).
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

/// `rq_type` of a queue pair without a receive queue.
const NO_RECEIVE_QUEUE: u8 = 3;
/// An acknowledgement is asked for at least every `1 << 8` packets, as Linux does.
const LOG_ACK_REQ_FREQ: u8 = 8;

/// What the timestamps of a queue pair's completions are.
fn clock(caps: &Caps) -> TimestampFormat {
    timestamps(caps.current::<RoceCap>(CapPage::Roce).map_or(0, |roce| roce.qp_ts_format()))
}

impl QueuePair {
    /// A new queue pair in RST, that rings through `uar` and completes into `send_cq` and `recv_cq` (which may be one).
    ///
    /// # Errors
    /// [`Error::Invalid`] where the options exceed a capability (it is named) or the parents are of different cards;
    /// [`Error::Memory`], [`Error::Command`].
    pub fn create(
        pd: &Arc<Pd>,
        uar: &Arc<Uar>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        options: QpOptions,
    ) -> Result<Arc<Self>, Error> {
        let device = pd.device();
        if [uar.device(), send_cq.device(), recv_cq.device()].iter().any(|other| !Arc::ptr_eq(device, other)) {
            return Err(Error::Invalid("a queue pair's PD, UAR and CQs must be of one device".into()));
        }
        let kind = match options.service {
            ServiceType::Rc => "an RC QP",
            ServiceType::Ud => "a UD QP",
            other => {
                let instead = "use ServiceType::Rc or ServiceType::Ud".into();
                return Err(Error::NotBuilt { what: format!("a queue pair of service {other}"), instead });
            }
        };
        let layout = Layout::of(&options, device.caps())?;
        if layout.len() == 0 {
            return Err(Error::Invalid("a queue pair with neither send_wqes nor recv_wqes".into()));
        }
        let memory = RingMemory::new(device, layout.len(), 0)?;
        let mut context = Qpc::default();
        context
            .w()
            .st(options.service)
            .pm_state(PathMigration::Migrated)
            .pd(pd.pdn())
            .uar_page(uar.index())
            .user_index(NO_USER_INDEX)
            .log_ack_req_freq(LOG_ACK_REQ_FREQ)
            .ts_format(clock(device.caps()).number() as u8)
            .cqn_snd(send_cq.cqn())
            .cqn_rcv(recv_cq.cqn())
            .dbr_umem_valid(true)
            .dbr_umem_id(memory.umem_id())
            .dbr_addr(memory.record_offset());
        match layout.log_rq_size {
            Some(log) => context.w().log_rq_size(log as u8).log_rq_stride((layout.log_rq_stride - 4) as u8),
            None => context.w().rq_type(NO_RECEIVE_QUEUE),
        };
        match layout.log_sq_size {
            Some(log) => context.w().log_sq_size(log as u8),
            None => context.w().no_sq(true),
        };
        let mut create = CreateQpIn::default();
        create.w().qpc(&context).wq_umem_valid(true).wq_umem_id(memory.umem_id());
        // SAFETY: names the umem of `memory` alone, which is this queue's. It is kept beside the object, destroyed
        // after it, and leaked where that fails; firmware gives up no umem that an object uses.
        let created = unsafe {
            Object::create_over_memory(device, &create, kind, |out| {
                let mut end = DestroyQpIn::default();
                end.w().qpn(out.qpn());
                (end, format!("QP {:#x}", out.qpn()))
            })
        };
        let (object, out) = created?;
        Ok(Arc::new(QueuePair {
            qpn: out.qpn(),
            options,
            layout,
            state: Mutex::new(QpState::Rst),
            send_lease: RingLease::default(),
            receive_lease: RingLease::default(),
            object,
            memory,
            send_cq: Arc::clone(send_cq),
            recv_cq: Arc::clone(recv_cq),
            uar: Arc::clone(uar),
            pd: Arc::clone(pd),
        }))
    }

    /// `qpn`, 24 bits: to tell the remote.
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
            ServiceType::Ud => datagram_way(state),
            _ => way(state, reach),
        };
        StateError { qpn: self.qpn, state, call, wanted, missing_calls }.into()
    }

    /// `Ok` for a queue pair of `service`, which `call` is for; others have `instead`.
    pub(crate) fn must_be(&self, service: ServiceType, call: &str, instead: &str) -> Result<(), Error> {
        match self.options.service {
            ours if ours == service => Ok(()),
            ours => Err(Error::Invalid(format!(
                "{} is of service {ours}, and {call} is for {service}: use {instead}",
                self.object.name()
            ))),
        }
    }

    fn check_port(&self, port: u8) -> Result<(), Error> {
        match self.device().caps().num_ports.max(1) {
            ports if port == 0 || port > ports => {
                Err(Error::Invalid(format!("port is {port}, and this card has 1 to {ports} (num_ports)")))
            }
            _ => Ok(()),
        }
    }

    /// RST to INIT. Receives may be posted afterwards.
    ///
    /// # Errors
    /// [`Error::State`], [`Error::Invalid`] for a value out of range, [`Error::Unsupported`] for REMOTE_ATOMIC on a
    /// card without atomics, [`Error::Command`].
    pub fn init(&self, attributes: &InitAttributes) -> Result<(), Error> {
        self.must_be(ServiceType::Rc, "init", "activate")?;
        let mut state = self.lock();
        if *state != QpState::Rst {
            return Err(self.forbidden(*state, "init", "RST", QpState::Rst));
        }
        self.check_port(attributes.port)?;
        check_access(attributes.remote_access, self.device().caps())?;
        let allowed = |access| attributes.remote_access.contains(access);
        let (mut command, mut context, mut path) = (Rst2initQpIn::default(), Qpc::default(), Ads::default());
        path.w().vhca_port_num(attributes.port);
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .primary_address_path(&path)
            .rwe(allowed(AccessFlags::REMOTE_WRITE))
            .rre(allowed(AccessFlags::REMOTE_READ))
            .rae(allowed(AccessFlags::REMOTE_ATOMIC));
        if allowed(AccessFlags::REMOTE_ATOMIC) {
            context.w().atomic_mode(AtomicMode::IbSpec);
        }
        command.w().qpn(self.qpn).qpc(&context);
        self.object.modify(&command)?;
        *state = QpState::Init;
        Ok(())
    }

    /// INIT to RTR: the remote is known, and its requests are answered.
    ///
    /// # Errors
    /// As for [`init`](Self::init).
    pub fn ready_to_receive(&self, attributes: &RtrAttributes) -> Result<(), Error> {
        self.must_be(ServiceType::Rc, "ready_to_receive", "activate")?;
        let mut state = self.lock();
        if *state != QpState::Init {
            return Err(self.forbidden(*state, "ready_to_receive", "INIT", QpState::Init));
        }
        let caps = self.device().caps();
        fits("remote_qpn", attributes.remote_qpn, 24)?;
        fits("rq_psn", attributes.rq_psn, 24)?;
        fits("min_rnr_timer", attributes.min_rnr_timer.into(), 5)?;
        fits("path_mtu", attributes.path_mtu.number(), 3)?;
        attributes.path.check(caps)?;
        let log_rra_max = log_outstanding(attributes.max_dest_rd_atomic, caps.log_max_ra_res_qp);
        let (mut command, mut context) = (Init2rtrQpIn::default(), Qpc::default());
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .mtu(attributes.path_mtu)
            .log_msg_max(caps.log_max_msg.min(30))
            .remote_qpn(attributes.remote_qpn)
            .primary_address_path(&attributes.path.ads())
            .log_rra_max(log_rra_max)
            .min_rnr_nak(attributes.min_rnr_timer)
            .next_rcv_psn(attributes.rq_psn);
        command.w().qpn(self.qpn).qpc(&context);
        self.object.modify(&command).map_err(|error| self.explain_mtu(error.into(), attributes.path_mtu))?;
        *state = QpState::Rtr;
        Ok(())
    }

    /// Firmware's BAD_PARAM does not say which parameter: a path MTU that the port has no room for is the usual one.
    fn explain_mtu(&self, error: Error, path_mtu: PathMtu) -> Error {
        let refused = matches!(&error, Error::Command(error) if error.status() == Some(CmdStatus::BadParameter));
        let (Some(path), true) = (path_mtu.bytes(), refused) else { return error };
        match self.device().port() {
            Ok(port) if path + PATH_HEADERS > u32::from(port.mtu) => Error::Invalid(format!(
                "path_mtu is {path}, and the port's MTU of {} leaves no room for it and {PATH_HEADERS} bytes of headers; \
                 use a smaller path MTU, or open the card with a larger Options::mtu, at most {} ({error})",
                port.mtu, port.max_mtu
            )),
            _ => error,
        }
    }

    /// RTR to RTS: work requests are carried out.
    ///
    /// # Errors
    /// As for [`init`](Self::init).
    pub fn ready_to_send(&self, attributes: &RtsAttributes) -> Result<(), Error> {
        self.must_be(ServiceType::Rc, "ready_to_send", "activate")?;
        let mut state = self.lock();
        if *state != QpState::Rtr {
            return Err(self.forbidden(*state, "ready_to_send", "RTR", QpState::Rtr));
        }
        fits("sq_psn", attributes.sq_psn, 24)?;
        fits("timeout", attributes.timeout.into(), 5)?;
        fits("retry_count", attributes.retry_count.into(), 3)?;
        fits("rnr_retry", attributes.rnr_retry.into(), 3)?;
        let log_sra_max = log_outstanding(attributes.max_rd_atomic, self.device().caps().log_max_ra_req_qp);
        let (mut command, mut context, mut path) = (Rtr2rtsQpIn::default(), Qpc::default(), Ads::default());
        path.w().ack_timeout(attributes.timeout);
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .primary_address_path(&path)
            .log_ack_req_freq(LOG_ACK_REQ_FREQ)
            .log_sra_max(log_sra_max)
            .retry_count(attributes.retry_count)
            .rnr_retry(attributes.rnr_retry)
            .next_send_psn(attributes.sq_psn);
        command.w().qpn(self.qpn).qpc(&context);
        self.object.modify(&command)?;
        *state = QpState::Rts;
        Ok(())
    }

    /// To ERR: everything posted completes with a flush error, and so does all that is posted from now on.
    ///
    /// # Errors
    /// [`Error::State`] in RST, [`Error::Command`].
    pub fn to_error(&self) -> Result<(), Error> {
        let mut state = self.lock();
        if *state == QpState::Rst {
            return Err(self.forbidden(*state, "to_error", "INIT, RTR or RTS", QpState::Init));
        }
        let mut command = Qp2errIn::default();
        command.w().qpn(self.qpn);
        self.object.modify(&command)?;
        *state = QpState::Err;
        Ok(())
    }

    /// To RST: everything posted is forgotten, without completions; so is what has completed and was not polled yet.
    /// Drop the queues first, and with them each [`Work`](crate::queue::Work) of theirs that was not retired.
    ///
    /// # Errors
    /// [`Error::Invalid`] while a queue is out, [`Error::Command`].
    pub fn reset(&self) -> Result<(), Error> {
        let mut state = self.lock();
        self.send_lease.check_released(&self.object.name(), "SendQueue")?;
        self.receive_lease.check_released(&self.object.name(), "ReceiveQueue")?;
        let mut command = Qp2rstIn::default();
        command.w().qpn(self.qpn);
        self.object.modify(&command)?;
        *state = QpState::Rst;
        self.memory.clear();
        self.forget_completions();
        self.send_lease.renew();
        self.receive_lease.renew();
        Ok(())
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
        })
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
        let log_size = self.layout.log_sq_size.ok_or_else(|| Error::Invalid("made with send_wqes 0".into()))?;
        let doorbell = D::of(&self.uar)?;
        let queue = format!("SendQueue of {}", self.object.name());
        let (ring, record) = self.send_lease.take(&self.memory, self.layout.receive_len(), &queue)?.into_parts();
        Ok((SendPermit(SendRingParts { ring, record, log_size, limits }), doorbell))
    }

    /// Leases the receive ring for `call`.
    pub(crate) fn lease_receive_ring(&self, call: &'static str) -> Result<ReceivePermit, Error> {
        let state = self.lock();
        if !matches!(*state, QpState::Init | QpState::Rtr | QpState::Rts) {
            return Err(self.forbidden(*state, call, "INIT, RTR or RTS", QpState::Init));
        }
        let log_size = self.layout.log_rq_size.ok_or_else(|| Error::Invalid("made with recv_wqes 0".into()))?;
        let queue = format!("ReceiveQueue of {}", self.object.name());
        let (ring, record) = self.receive_lease.take(&self.memory, 0, &queue)?.into_parts();
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
    fn forget_completions(&self) {
        self.send_cq.forget(self.qpn);
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.forget(self.qpn);
        }
    }

    /// Destroys it: nothing posted is carried out any more. Its queues must be gone. Errors: the queue pair, kept
    /// alive, and why.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, QueuePair::end)
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "a QP was not destroyed; its memory is leaked");
            self.memory.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::layout::Layout as _;

    fn caps() -> Caps {
        Caps { log_max_qp_sz: 15, max_wqe_sz_sq: 1024, max_wqe_sz_rq: 512, ..Caps::default() }
    }

    #[test]
    fn timestamps_are_free_running_where_the_card_can() {
        use mlx5_prm::ctx::TimestampFormat::{Default, FreeRunning};
        let with = |qp_ts_format| {
            let mut roce = RoceCap::default();
            roce.w().qp_ts_format(qp_ts_format);
            let (current, max) = (roce.as_bytes().to_vec(), roce.as_bytes().to_vec());
            Caps { pages: vec![crate::caps::RawPage { page: CapPage::Roce, current, max }], ..caps() }
        };
        assert_eq!([0, 1, 2].map(|format| clock(&with(format))), [FreeRunning, Default, FreeRunning]);
        assert_eq!(clock(&caps()), FreeRunning, "no RoCE page");
    }
}
