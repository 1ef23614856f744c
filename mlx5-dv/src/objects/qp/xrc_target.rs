//! Targets of extended reliable connections.

use std::fmt;
use std::sync::Arc;

use mlx5_prm::values::{PathMtu, QpState};

use super::attributes::{InitAttributes, RtrAttributes, RtsAttributes};
use super::options::QpOptions;
use super::path::{AddressPath, InfinibandRoute};
use super::state::way;
use super::transition::path_mtu;
use super::{QpStatus, QueuePair};
use crate::access::{KernelObjectKind, KernelXrc};
use crate::device::Device;
use crate::error::{CommandError, Error, Invalid, StateError};
use crate::kernel::abi::shared::{ModifyQp, QpDest, QueryQpResp, qp_attributes};
use crate::kernel::abi::{IB_UVERBS_ACCESS_REMOTE_ATOMIC, IB_UVERBS_ACCESS_REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_WRITE};
use crate::net::Mac;
use crate::objects::check::{fits, one_device, pkey_exists, port_exists};
use crate::objects::cq::Cq;
use crate::objects::kernel_object::{KernelObject, not_shared};
use crate::objects::mkey::{AccessFlags, check_access};
use crate::objects::object::{DestroyError, destroy_sole};
use crate::objects::pd::Pd;
use crate::objects::uar::Uar;
use crate::objects::xrcd::Xrcd;

/// The receiving end (TGT) of an extended reliable connection, a queue pair without queues: its messages go to shared
/// receive queues of its domain, those that they name. It works from RTR on. IBTA A14.
///
/// States and transitions are those of a [`QueuePair`]. On `devx:` the kernel makes them, so that the other processes
/// of a [domain](Xrcd::open) can [take part](Self::open): a target works until the last of them has destroyed it. The
/// kernel asks for the remote's MAC address itself, and ignores that of the path.
pub struct XrcTarget {
    qpn: u32,
    made: Made,
}

/// Who has made the target.
enum Made {
    Firmware(Arc<QueuePair>),
    Kernel { object: KernelObject, domain: Arc<Xrcd> },
}

impl fmt::Debug for XrcTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XrcTarget({:#x})", self.qpn)
    }
}

/// `IB_UVERBS_ACCESS_...` of each right.
const RIGHTS: [(AccessFlags, u32); 3] = [
    (AccessFlags::REMOTE_WRITE, IB_UVERBS_ACCESS_REMOTE_WRITE),
    (AccessFlags::REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_READ),
    (AccessFlags::REMOTE_ATOMIC, IB_UVERBS_ACCESS_REMOTE_ATOMIC),
];

/// The kernel's number of `state`: `enum ib_qp_state`. Those of the card differ.
fn number(state: QpState) -> u8 {
    STATES.iter().position(|known| *known == state).unwrap_or(0) as u8
}

/// The states in the kernel's order.
const STATES: [QpState; 7] =
    [QpState::Rst, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqer, QpState::Err];

impl XrcTarget {
    /// Creates a target of `domain`, in RST. The card wants `pd`, `uar` and `cq` in its context and does not use them;
    /// memory is that of the shared receive queues' protection domains.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the parents belong to different cards; [`Error::Command`], [`Error::Io`].
    pub fn create(pd: &Arc<Pd>, uar: &Arc<Uar>, cq: &Arc<Cq>, domain: &Arc<Xrcd>) -> Result<Arc<Self>, Error> {
        let device = domain.device();
        let (Some(kernel), Some(xrcd)) = (device.access().kernel_verbs(), domain.kernel_handle()) else {
            let qp = QueuePair::create(pd, uar, cq, cq, QpOptions::default().xrc_target(domain))?;
            return Ok(Arc::new(XrcTarget { qpn: qp.qpn(), made: Made::Firmware(qp) }));
        };
        one_device("a target's PD, UAR, CQ and XRC domain", device, [pd.device(), uar.device(), cq.device()])?;
        let (handle, qpn) = kernel.xrc().create_target(xrcd)?;
        let object = KernelObject::made(device, KernelObjectKind::QueuePair, handle);
        Ok(Arc::new(XrcTarget { qpn, made: Made::Kernel { object, domain: Arc::clone(domain) } }))
    }

    /// Opens the target `qpn`, which another process of `domain` has created. It can do all that its maker can, and
    /// keeps the target alive when that one ends. (`ibv_open_qp`.)
    ///
    /// # Errors
    /// [`Error::Invalid`] if the domain has no such target, or on a function that this process owns.
    pub fn open(domain: &Arc<Xrcd>, qpn: u32) -> Result<Arc<Self>, Error> {
        let device = domain.device();
        let (Some(kernel), Some(xrcd)) = (device.access().kernel_verbs(), domain.kernel_handle()) else {
            return Err(not_shared(device, "a target of several processes"));
        };
        fits("qpn", qpn, 24)?;
        let handle = kernel.xrc().open_target(xrcd, qpn)?;
        let object = KernelObject::made(device, KernelObjectKind::QueuePair, handle);
        Ok(Arc::new(XrcTarget { qpn, made: Made::Kernel { object, domain: Arc::clone(domain) } }))
    }

    /// `qpn`, 24 bits, for the remote.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        match &self.made {
            Made::Firmware(qp) => qp.device(),
            Made::Kernel { domain, .. } => domain.device(),
        }
    }

    /// RST to INIT.
    ///
    /// # Errors
    /// As for [`QueuePair::init`].
    pub fn init(&self, attributes: &InitAttributes) -> Result<(), Error> {
        use qp_attributes::*;
        let object = match &self.made {
            Made::Firmware(qp) => return qp.init(attributes),
            Made::Kernel { object, .. } => object,
        };
        let caps = self.device().caps();
        port_exists(attributes.port, caps)?;
        pkey_exists(attributes.pkey_index, caps)?;
        check_access(attributes.remote_access, caps)?;
        let rights = RIGHTS.iter().filter(|(right, _)| attributes.remote_access.contains(*right));
        let changes = ModifyQp {
            attr_mask: STATE | PKEY_INDEX | PORT | ACCESS_FLAGS,
            port_num: attributes.port,
            pkey_index: attributes.pkey_index,
            qp_access_flags: rights.fold(0, |all, (_, right)| all | right),
            ..ModifyQp::default()
        };
        self.step(object, "init", ("RST", QpState::Rst), QpState::Init, changes)
    }

    /// INIT to RTR: sets the remote, and starts to process its requests.
    ///
    /// # Errors
    /// As for [`QueuePair::ready_to_receive`]; on `devx:` [`Error::NotImplemented`] for options of the connection
    /// (ECE).
    pub fn ready_to_receive(&self, attributes: &RtrAttributes) -> Result<(), Error> {
        use qp_attributes::*;
        let object = match &self.made {
            Made::Firmware(qp) => return qp.ready_to_receive(attributes),
            Made::Kernel { object, .. } => object,
        };
        if attributes.ece.is_some() {
            let (what, instead) =
                ("ECE of an XRC target of the kernel's".into(), "leave RtrAttributes::ece out".into());
            return Err(Error::NotImplemented { what, instead });
        }
        let device = self.device();
        fits("remote_qpn", attributes.remote_qpn, 24)?;
        fits("rq_psn", attributes.rq_psn, 24)?;
        fits("min_rnr_timer", attributes.min_rnr_timer.into(), 5)?;
        attributes.path.check(device.caps())?;
        pkey_exists(attributes.pkey_index.unwrap_or(0), device.caps())?;
        let other_pkey = attributes.pkey_index.map_or(0, |_| PKEY_INDEX);
        let changes = ModifyQp {
            dest: destination(&attributes.path)?,
            attr_mask: STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER | other_pkey,
            pkey_index: attributes.pkey_index.unwrap_or(0),
            rq_psn: attributes.rq_psn,
            dest_qp_num: attributes.remote_qpn,
            path_mtu: path_mtu(device, attributes.path_mtu)?.number() as u8,
            max_dest_rd_atomic: 1 << attributes.log_max_dest_rd_atomic(device.caps())?,
            min_rnr_timer: attributes.min_rnr_timer,
            ..ModifyQp::default()
        };
        self.step(object, "ready_to_receive", ("INIT", QpState::Init), QpState::Rtr, changes)
    }

    /// RTR to RTS, which changes nothing for a target.
    ///
    /// # Errors
    /// As for [`QueuePair::ready_to_send`].
    pub fn ready_to_send(&self, attributes: &RtsAttributes) -> Result<(), Error> {
        use qp_attributes::*;
        let object = match &self.made {
            Made::Firmware(qp) => return qp.ready_to_send(attributes),
            Made::Kernel { object, .. } => object,
        };
        attributes.check()?;
        let changes = ModifyQp {
            attr_mask: STATE | SQ_PSN | TIMEOUT,
            sq_psn: attributes.sq_psn,
            timeout: attributes.timeout,
            ..ModifyQp::default()
        };
        self.step(object, "ready_to_send", ("RTR", QpState::Rtr), QpState::Rts, changes)
    }

    /// To ERR: the remote's requests are not answered any more.
    ///
    /// # Errors
    /// As for [`QueuePair::to_error`].
    pub fn to_error(&self) -> Result<(), Error> {
        let object = match &self.made {
            Made::Firmware(qp) => return qp.to_error(),
            Made::Kernel { object, .. } => object,
        };
        let changes = ModifyQp { attr_mask: qp_attributes::STATE, ..ModifyQp::default() };
        self.step(object, "to_error", ("INIT, RTR or RTS", QpState::Init), QpState::Err, changes)
    }

    /// To RST.
    ///
    /// # Errors
    /// As for [`QueuePair::reset`].
    pub fn reset(&self) -> Result<(), Error> {
        let object = match &self.made {
            Made::Firmware(qp) => return qp.reset(),
            Made::Kernel { object, .. } => object,
        };
        let changes = ModifyQp { attr_mask: qp_attributes::STATE, ..ModifyQp::default() };
        self.step(object, "reset", ("any state", QpState::Rst), QpState::Rst, changes)
    }

    /// Queries the status. What Linux does not tell is zero: MAC address and UDP source port of the path, the last PSN
    /// that was acknowledged, and the counters of queues, which a target does not have. Errors: [`Error::Command`],
    /// [`Error::Io`].
    pub fn query(&self) -> Result<QpStatus, Error> {
        match &self.made {
            Made::Firmware(qp) => qp.query(),
            Made::Kernel { object, .. } => Ok(status(&self.kernel()?.query_target(object.handle())?)),
        }
    }

    fn kernel(&self) -> Result<&dyn KernelXrc, Error> {
        let kernel = self.device().access().kernel_verbs();
        Ok(kernel.ok_or_else(|| not_shared(self.device(), "a target of the kernel's"))?.xrc())
    }

    /// Makes the kernel move the target to state `to`. `call` starts `from` its state, in words and as the state that
    /// missing calls lead to.
    fn step(
        &self,
        object: &KernelObject,
        call: &'static str,
        from: (&'static str, QpState),
        to: QpState,
        changes: ModifyQp,
    ) -> Result<(), Error> {
        let kernel = self.kernel()?;
        let changes = ModifyQp { qp_handle: object.handle().0, qp_state: number(to), ..changes };
        let Err(error) = kernel.modify_target(&changes) else { return Ok(()) };
        // Other processes may have moved it, too: the kernel alone knows its state.
        let state = kernel.query_target(object.handle()).map(|now| status(&now).state);
        match state {
            Ok(state) if !may_leave(state, from.1, to) => {
                let missing_calls = way(state, from.1);
                Err(StateError { qpn: self.qpn, state, call, wanted: from.0, missing_calls }.into())
            }
            _ => Err(error),
        }
    }

    fn end(&mut self) -> Result<(), CommandError> {
        match &mut self.made {
            Made::Kernel { object, .. } => object.destroy(),
            // Nobody else holds it.
            Made::Firmware(qp) => Arc::get_mut(qp).map_or(Ok(()), QueuePair::end),
        }
    }

    /// Destroys the target; one that other processes have open, too, for this process. Errors: the target, which stays
    /// alive, and the reason.
    pub fn destroy(self: Arc<Self>) -> Result<(), DestroyError<Self>> {
        destroy_sole(self, XrcTarget::end)
    }
}

/// Whether a target in `state` can take the step `from` a state `to` another.
fn may_leave(state: QpState, from: QpState, to: QpState) -> bool {
    match to {
        QpState::Rst => true,
        QpState::Err => state != QpState::Rst,
        _ => state == from,
    }
}

/// `path` in the kernel's words.
fn destination(path: &AddressPath) -> Result<QpDest, Invalid> {
    Ok(QpDest {
        dgid: path.gid,
        flow_label: path.label()?,
        sgid_index: path.gid_index,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.service_level,
        dlid: path.infiniband.map_or(0, |route| route.lid),
        src_path_bits: path.infiniband.map_or(0, |route| route.source_path_bits),
        is_global: path.infiniband.is_none_or(|route| route.global).into(),
        port_num: path.port,
        ..QpDest::default()
    })
}

/// The status in the kernel's answer.
fn status(now: &QueryQpResp) -> QpStatus {
    let rights = RIGHTS.iter().filter(|(_, right)| now.qp_access_flags & right != 0);
    let path = AddressPath {
        gid_index: now.dest.sgid_index,
        hop_limit: now.dest.hop_limit,
        traffic_class: now.dest.traffic_class,
        flow_label: now.dest.flow_label,
        service_level: now.dest.sl,
        port: now.port_num,
        infiniband: (now.dest.dlid != 0).then_some(InfinibandRoute {
            lid: now.dest.dlid,
            source_path_bits: now.dest.src_path_bits,
            global: now.dest.is_global != 0,
        }),
        ..AddressPath::new(now.dest.dgid, Mac([0; 6]))
    };
    QpStatus {
        state: STATES.get(usize::from(now.qp_state)).copied().unwrap_or(QpState::Unknown(now.qp_state.into())),
        remote_qpn: now.dest_qp_num,
        path_mtu: PathMtu::from_number(now.path_mtu.into()),
        next_send_psn: now.sq_psn,
        next_rcv_psn: now.rq_psn,
        last_acked_psn: 0,
        hw_sq_wqebb_counter: 0,
        sw_sq_wqebb_counter: 0,
        hw_rq_counter: 0,
        sw_rq_counter: 0,
        path,
        pkey_index: now.pkey_index,
        remote_access: rights.map(|(right, _)| *right).collect(),
        qkey: 0,
        min_rnr_timer: now.min_rnr_timer,
        timeout: now.timeout,
        retry_count: now.retry_cnt,
        rnr_retry: now.rnr_retry,
        max_rd_atomic: now.max_rd_atomic,
        max_dest_rd_atomic: now.max_dest_rd_atomic,
    }
}
