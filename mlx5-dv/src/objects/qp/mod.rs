//! Queue pairs: reliable connections and datagrams.

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use mlx5_prm::caps::RoceCap;
use mlx5_prm::cmd::{
    CmdStatus, CreateQpIn, DestroyQpIn, Init2rtrQpIn, Qp2errIn, Qp2rstIn, QueryQpIn, Rst2initQpIn, Rtr2rtsQpIn,
};
use mlx5_prm::ctx::{Ads, AtomicMode, Qpc, TimestampFormat};
use mlx5_prm::values::{PathMigration, PathMtu, QpState, ServiceType};

use super::outlet::{LetsReceiveRing, LetsSendRing, Outlet};
use super::ring::RingMemory;
use super::{
    AccessFlags, Cq, DestroyError, NO_USER_INDEX, Object, Pd, Uar, check_access, destroy_sole, fits, timestamps,
};
use crate::Device;
use crate::caps::{CapPage, Caps};
use crate::error::{CommandError, Error, StateError};
use crate::lock::lock;
use crate::net::PATH_HEADERS;
use crate::queue::{DoorbellMode, Leased, Messages, ReceiveQueue, SendLimits, SendQueue};

mod datagram;
mod options;
mod path;

pub use datagram::{AddressHandle, DatagramAttributes};
pub use options::QpOptions;
pub use path::AddressPath;

use options::Layout;

/// What RST to INIT needs.
#[derive(Debug, Clone, Copy)]
pub struct InitAttributes {
    /// Our port, from 1.
    pub port: u8,
    /// What the remote may do: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC. Each key must allow it too.
    pub remote_access: AccessFlags,
}

impl Default for InitAttributes {
    /// Port 1; the remote may write and read.
    fn default() -> Self {
        InitAttributes { port: 1, remote_access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ }
    }
}

/// What INIT to RTR needs.
#[derive(Debug, Clone, Copy)]
pub struct RtrAttributes {
    /// The remote queue pair, 24 bits.
    pub remote_qpn: u32,
    /// First packet sequence number the remote sends, 24 bits.
    pub rq_psn: u32,
    /// Where it is.
    pub path: AddressPath,
    /// Payload of a full packet. Default of [`new`](Self::new): 1024 bytes.
    pub path_mtu: PathMtu,
    /// RDMA READs and atomics of the remote that may be under way at once, rounded up to a power of two. Default: 16, or
    /// what the card can.
    pub max_dest_rd_atomic: u8,
    /// What the remote is told to wait when no receive is posted: a code of 5 bits. Default: 12 (0.64 ms).
    pub min_rnr_timer: u8,
}

impl RtrAttributes {
    /// To queue pair `remote_qpn`, which starts at `rq_psn`; all else default.
    pub fn new(remote_qpn: u32, rq_psn: u32, path: AddressPath) -> Self {
        RtrAttributes {
            remote_qpn,
            rq_psn,
            path,
            path_mtu: PathMtu::Mtu1024,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
        }
    }
}

/// What RTR to RTS needs.
#[derive(Debug, Clone, Copy)]
pub struct RtsAttributes {
    /// First packet sequence number we send, 24 bits.
    pub sq_psn: u32,
    /// How long to wait for an acknowledgement: 4.096 us times two to this, 5 bits; 0 for ever. Default of
    /// [`new`](Self::new): 14 (67 ms).
    pub timeout: u8,
    /// How often to send again then, 0 to 7. Default: 7.
    pub retry_count: u8,
    /// How often to send again when the remote has no receive posted, 0 to 6; 7 for ever. Default: 7.
    pub rnr_retry: u8,
    /// RDMA READs and atomics of ours that may be under way at once, rounded up to a power of two. Default: 16, or what the
    /// card can.
    pub max_rd_atomic: u8,
}

impl RtsAttributes {
    /// We start at `sq_psn`; all else default.
    pub fn new(sq_psn: u32) -> Self {
        RtsAttributes { sq_psn, timeout: 14, retry_count: 7, rnr_retry: 7, max_rd_atomic: 16 }
    }
}

const INIT: &str = "init (port, remote_access)";
const RTR: &str = "ready_to_receive (remote_qpn, rq_psn, path)";
const RTS: &str = "ready_to_send (sq_psn)";
const RESET: &str = "reset";

/// The calls that lead from `state` to the state that `last` ends in.
fn way(state: QpState, last: QpState) -> &'static [&'static str] {
    match (state, last) {
        (QpState::Rst, QpState::Init) => &[INIT],
        (QpState::Rst, QpState::Rtr) => &[INIT, RTR],
        (QpState::Rst, QpState::Rts) => &[INIT, RTR, RTS],
        (QpState::Init, QpState::Rtr) => &[RTR],
        (QpState::Init, QpState::Rts) => &[RTR, RTS],
        (QpState::Rtr, QpState::Rts) => &[RTS],
        (_, QpState::Rst) => &[RESET],
        (_, QpState::Init) => &[RESET, INIT],
        (_, QpState::Rtr) => &[RESET, INIT, RTR],
        _ => &[RESET, INIT, RTR, RTS],
    }
}

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
    send_outlet: Outlet,
    receive_outlet: Outlet,
    object: Object,
    memory: RingMemory,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    uar: Arc<Uar>,
    pd: Arc<Pd>,
}

impl LetsSendRing for QueuePair {
    fn send_queue_came_home(&self) {
        self.send_outlet.came_home();
    }
}

impl LetsReceiveRing for QueuePair {
    fn receive_queue_came_home(&self) {
        self.receive_outlet.came_home();
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePair({:#x} in {})", self.qpn, self.state())
    }
}

/// Where a send ring and the queue pair's record are, and that nobody else posts there: only [`QueuePair::send_queue`] makes
/// one, once between two resets. Mapped as long as the queue pair lives; `log_size` is at most 15.
pub(crate) struct SendPermit(SendPlace);

/// See [`SendPermit`].
pub(crate) struct SendPlace {
    pub(crate) ring: NonNull<u8>,
    pub(crate) record: NonNull<u8>,
    pub(crate) log_size: u32,
    pub(crate) limits: SendLimits,
}

impl SendPermit {
    pub(crate) fn use_up(self) -> SendPlace {
        self.0
    }
}

/// As [`SendPermit`], for the receive ring, from [`QueuePair::receive_queue`].
pub(crate) struct ReceivePermit(ReceivePlace);

/// See [`ReceivePermit`].
pub(crate) struct ReceivePlace {
    pub(crate) ring: NonNull<u8>,
    pub(crate) record: NonNull<u8>,
    pub(crate) log_size: u32,
    pub(crate) log_stride: u32,
    pub(crate) sges: u16,
}

impl ReceivePermit {
    pub(crate) fn use_up(self) -> ReceivePlace {
        self.0
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
        let (object, out) = Object::create(device, &create, kind, |out| {
            let mut end = DestroyQpIn::default();
            end.w().qpn(out.qpn());
            (end, format!("QP {:#x}", out.qpn()))
        })?;
        Ok(Arc::new(QueuePair {
            qpn: out.qpn(),
            options,
            layout,
            state: Mutex::new(QpState::Rst),
            send_outlet: Outlet::default(),
            receive_outlet: Outlet::default(),
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
            ServiceType::Ud => datagram::way(state),
            _ => way(state, reach),
        };
        StateError { qpn: self.qpn, state, call, wanted, missing_calls }.into()
    }

    /// `Ok` for a queue pair of `service`, which `call` is for; others have `instead`.
    fn must_be(&self, service: ServiceType, call: &str, instead: &str) -> Result<(), Error> {
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
    /// [`Error::State`], [`Error::Invalid`] for a value out of range, [`Error::Unsupported`] for REMOTE_ATOMIC on a card
    /// without atomics, [`Error::Command`].
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

    /// To RST: everything posted is forgotten, without completions; so is what has completed and was not polled yet. Drop
    /// the queues first, and with them each [`Work`](crate::queue::Work) of theirs that was not retired.
    ///
    /// # Errors
    /// [`Error::Invalid`] while a queue is out, [`Error::Command`].
    pub fn reset(&self) -> Result<(), Error> {
        let mut state = self.lock();
        self.send_outlet.is_home(&self.object.name(), "SendQueue")?;
        self.receive_outlet.is_home(&self.object.name(), "ReceiveQueue")?;
        let mut command = Qp2rstIn::default();
        command.w().qpn(self.qpn);
        self.object.modify(&command)?;
        *state = QpState::Rst;
        self.memory.clear();
        self.forget_completions();
        self.send_outlet.refresh();
        self.receive_outlet.refresh();
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

    /// The send queue, ringing by `D`. There is one; dropped, it can be had again after a [`reset`](Self::reset).
    ///
    /// # Errors
    /// [`Error::State`] before RTS; [`Error::Invalid`] where it is out already, there is none, or `D` cannot be had.
    pub fn send_queue<D: DoorbellMode>(self: &Arc<Self>) -> Result<SendQueue<D>, Error> {
        self.must_be(ServiceType::Rc, "send_queue", "datagram_send_queue")?;
        let limits = SendLimits {
            sges: self.options.send_sges,
            inline_bytes: self.options.inline_bytes,
            log_max_msg: self.device().caps().log_max_msg.min(30),
        };
        let (permit, doorbell) = self.let_send_queue_out("send_queue", limits)?;
        Ok(SendQueue::new(Messages::new(self.device().caps()), permit, doorbell, Arc::clone(self)))
    }

    /// Lets the send ring out for `call`.
    fn let_send_queue_out<D: DoorbellMode>(
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
        let (ring, record) = self.send_outlet.take(&self.memory, self.layout.receive_len(), &queue)?.use_up();
        Ok((SendPermit(SendPlace { ring, record, log_size, limits }), doorbell))
    }

    /// The receive queue. There is one; dropped, it can be had again after a [`reset`](Self::reset).
    ///
    /// # Errors
    /// [`Error::State`] before INIT; [`Error::Invalid`] where it is out already, or there is none.
    pub fn receive_queue(self: &Arc<Self>) -> Result<ReceiveQueue, Error> {
        let state = self.lock();
        if !matches!(*state, QpState::Init | QpState::Rtr | QpState::Rts) {
            return Err(self.forbidden(*state, "receive_queue", "INIT, RTR or RTS", QpState::Init));
        }
        let log_size = self.layout.log_rq_size.ok_or_else(|| Error::Invalid("made with recv_wqes 0".into()))?;
        let queue = format!("ReceiveQueue of {}", self.object.name());
        let (ring, record) = self.receive_outlet.take(&self.memory, 0, &queue)?.use_up();
        let (log_stride, sges) = (self.layout.log_rq_stride, self.options.recv_sges.max(1));
        let permit = ReceivePermit(ReceivePlace { ring, record, log_size, log_stride, sges });
        Ok(ReceiveQueue::new(permit, Arc::clone(self)))
    }

    fn end(&mut self) -> Result<(), CommandError> {
        self.object.destroy()?;
        self.forget_completions();
        self.memory.destroy()
    }

    /// The completions of this life that nobody has polled are not to be taken for those of the next, or of another queue
    /// pair that gets this one's number.
    fn forget_completions(&self) {
        self.send_cq.forget(self.qpn);
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.forget(self.qpn);
        }
    }

    /// Destroys it: nothing posted is carried out any more. Its queues must be gone. Errors: the queue pair, kept alive,
    /// and why.
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

/// log2 of `wanted` operations under way at once, no more than `log_most`.
fn log_outstanding(wanted: u8, log_most: u8) -> u8 {
    (u32::from(wanted.max(1)).next_power_of_two().trailing_zeros() as u8).min(log_most).min(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::layout::Layout as _;

    fn caps() -> Caps {
        Caps { log_max_qp_sz: 15, max_wqe_sz_sq: 1024, max_wqe_sz_rq: 512, ..Caps::default() }
    }

    #[test]
    fn a_state_error_names_the_state_the_wanted_one_and_the_way_there() {
        let error = StateError {
            qpn: 0x43,
            state: QpState::Init,
            call: "send_queue",
            wanted: "RTS",
            missing_calls: way(QpState::Init, QpState::Rts),
        };
        assert_eq!(
            error.to_string(),
            "QP 0x43 is in INIT, and send_queue needs RTS; first call ready_to_receive (remote_qpn, rq_psn, path), then \
             ready_to_send (sq_psn)"
        );
        assert_eq!(way(QpState::Err, QpState::Init), [RESET, INIT]);
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

    #[test]
    fn operations_under_way_are_a_power_of_two_within_the_card_s_limit() {
        assert_eq!(
            [log_outstanding(0, 4), log_outstanding(3, 4), log_outstanding(16, 4), log_outstanding(255, 4)],
            [0, 2, 4, 4]
        );
    }
}
