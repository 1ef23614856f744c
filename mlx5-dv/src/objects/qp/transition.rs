//! State transitions of queue pairs.

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{
    CmdStatus, Init2initQpIn, Init2rtrQpIn, Qp2errIn, Qp2rstIn, Rst2initQpIn, Rtr2rtsQpIn, Rts2rtsQpIn, Sqerr2rtsQpIn,
};
use mlx5_prm::ctx::{Ads, Qpc};
use mlx5_prm::values::{PathMigration, PathMtu, QpState, ServiceType};
use tracing::field::{Empty, display};

use super::attributes::{CONNECTED, InitAttributes, QpChanges, RtrAttributes, RtsAttributes, log_outstanding};
use super::{QueuePair, ece};
use crate::caps::CapPage;
use crate::device::Device;
use crate::error::{CommandError, CommandErrorKind, Error, Invalid};
use crate::objects::check::{fits, pkey_exists, port_exists};
use crate::objects::mkey::{AccessFlags, check_access};
use crate::objects::object::Transition;

/// An ACK is requested at least every `1 << 8` packets, as on Linux.
pub(super) const LOG_ACK_REQ_FREQ: u8 = 8;

/// Services of which an error of the sender stops the send queue alone. IBTA 10.3.1.
const UNRELIABLE: &[ServiceType] = &[ServiceType::Uc, ServiceType::Ud, ServiceType::Qp1];

/// Optional fields that a transition changes: `opt_param_mask`. Linux `MLX5_QP_OPTPAR_*`.
mod select {
    pub(super) const RRE: u32 = 1 << 1;
    pub(super) const RAE: u32 = 1 << 2;
    pub(super) const RWE: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const Q_KEY: u32 = 1 << 5;
    pub(super) const RNR_TIMEOUT: u32 = 1 << 6;
    pub(super) const LAG_TX_AFF: u32 = 1 << 15;
}

impl QueuePair {
    /// `counter_set_id` of the context; 0 counts nothing.
    pub(super) fn counter_set_id(&self) -> u8 {
        self.options.counter.as_ref().map_or(0, |counter| counter.id())
    }

    /// Whether the service is reliable: with ACKs, READs and atomics.
    fn is_reliable(&self) -> bool {
        self.options.service != ServiceType::Uc
    }

    /// Executes `command`, which moves the queue pair from `state` to `to`, in a span: level DEBUG, target
    /// `mlx5_dv::qp`, name `transition`, fields `qpn`, `service`, `from`, `to` and, after a failure, `error`. Returns
    /// the reply.
    pub(super) fn step<C: Transition>(
        &self,
        state: &mut QpState,
        to: QpState,
        command: &C,
    ) -> Result<C::Out, CommandError> {
        let span = tracing::debug_span!(
            target: "mlx5_dv::qp",
            "transition",
            qpn = self.qpn,
            service = %self.options.service,
            from = %state,
            %to,
            error = Empty,
        );
        let result = span.in_scope(|| self.object.modify_and_tell(command));
        match &result {
            Ok(_) => *state = to,
            Err(error) => {
                span.record("error", display(error));
            }
        }
        result
    }

    /// RST to INIT. Receives may be posted afterwards. An unreliable connection never gets READs or atomics, whatever
    /// its rights.
    ///
    /// # Errors
    /// [`Error::State`], [`Error::Invalid`] for a value out of range, [`Error::Unsupported`] for REMOTE_ATOMIC on a
    /// card without atomics, [`Error::Command`].
    pub fn init(&self, attributes: &InitAttributes) -> Result<(), Error> {
        self.must_be(CONNECTED, "init", "activate")?;
        let mut state = self.lock();
        if *state != QpState::Rst {
            return Err(self.forbidden(*state, "init", "RST", QpState::Rst));
        }
        port_exists(attributes.port, self.device().caps())?;
        pkey_exists(attributes.pkey_index, self.device().caps())?;
        check_access(attributes.remote_access, self.device().caps())?;
        let (mut command, mut context, mut path) = (Rst2initQpIn::default(), Qpc::default(), Ads::default());
        path.w().vhca_port_num(attributes.port).pkey_index(attributes.pkey_index);
        context.w().pm_state(PathMigration::Migrated).primary_address_path(&path).counter_set_id(self.counter_set_id());
        self.allow(attributes.remote_access, &mut context);
        command.w().qpn(self.qpn).qpc(&context);
        self.step(&mut state, QpState::Init, &command)?;
        Ok(())
    }

    /// INIT to RTR: sets the remote, and starts to process its requests.
    ///
    /// # Errors
    /// As for [`init`](Self::init).
    pub fn ready_to_receive(&self, attributes: &RtrAttributes) -> Result<(), Error> {
        self.must_be(CONNECTED, "ready_to_receive", "activate")?;
        let mut state = self.lock();
        if *state != QpState::Init {
            return Err(self.forbidden(*state, "ready_to_receive", "INIT", QpState::Init));
        }
        let caps = self.device().caps();
        fits("remote_qpn", attributes.remote_qpn, 24)?;
        fits("rq_psn", attributes.rq_psn, 24)?;
        fits("min_rnr_timer", attributes.min_rnr_timer.into(), 5)?;
        attributes.path.check(caps)?;
        let path_mtu = path_mtu(self.device(), attributes.path_mtu)?;
        let mut path = attributes.path.ads(self.qpn, attributes.remote_qpn);
        let other_pkey = match attributes.pkey_index {
            Some(index) => {
                pkey_exists(index, caps)?;
                path.w().pkey_index(index);
                select::PKEY_INDEX
            }
            None => 0,
        };
        let (mut command, mut context) = (Init2rtrQpIn::default(), Qpc::default());
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .mtu(path_mtu)
            .log_msg_max(caps.log_max_msg.min(30))
            .remote_qpn(attributes.remote_qpn)
            .primary_address_path(&path)
            .next_rcv_psn(attributes.rq_psn);
        if self.is_reliable() {
            let log_rra_max = attributes.log_max_dest_rd_atomic(caps)?;
            context.w().log_rra_max(log_rra_max).min_rnr_nak(attributes.min_rnr_timer);
        }
        let lag_port = attributes.lag_affinity(caps)?;
        context.w().lag_tx_port_affinity(lag_port);
        let select = other_pkey | if lag_port == 0 { 0 } else { select::LAG_TX_AFF };
        command.w().qpn(self.qpn).opt_param_mask(select).ece(ece::wanted(attributes.ece, caps)?).qpc(&context);
        let moved = self.step(&mut state, QpState::Rtr, &command);
        let reply = moved.map_err(|error| self.explain_mtu(error, path_mtu))?;
        self.ece.in_use(if attributes.ece.is_some() { reply.ece() } else { 0 });
        Ok(())
    }

    /// Firmware's BAD_PARAM does not name the parameter; most often it is a path MTU that exceeds the port's.
    pub(super) fn explain_mtu(&self, error: CommandError, path_mtu: PathMtu) -> Error {
        let CommandErrorKind::Status { status: CmdStatus::BadParameter, syndrome, .. } = error.kind else {
            return error.into();
        };
        match (path_mtu.bytes(), self.device().port()) {
            (Some(payload), Ok(port)) if payload + port.headers() > u32::from(port.mtu) => Invalid::PortMtu {
                what: "path_mtu",
                payload,
                headers: port.headers(),
                mtu: port.mtu,
                max_mtu: Some(port.max_mtu),
                syndrome: Some(syndrome),
            }
            .into(),
            _ => error.into(),
        }
    }

    /// RTR to RTS: starts to execute work requests.
    ///
    /// # Errors
    /// As for [`init`](Self::init).
    pub fn ready_to_send(&self, attributes: &RtsAttributes) -> Result<(), Error> {
        self.must_be(CONNECTED, "ready_to_send", "activate")?;
        let mut state = self.lock();
        if *state != QpState::Rtr {
            return Err(self.forbidden(*state, "ready_to_send", "RTR", QpState::Rtr));
        }
        attributes.check()?;
        let (mut command, mut context) = (Rtr2rtsQpIn::default(), Qpc::default());
        context.w().pm_state(PathMigration::Migrated).next_send_psn(attributes.sq_psn);
        if self.is_reliable() {
            let most = self.device().caps().log_max_ra_req_qp;
            let log_sra_max = log_outstanding("max_rd_atomic", attributes.max_rd_atomic, "log_max_ra_req_qp", most)?;
            let mut path = Ads::default();
            path.w().ack_timeout(attributes.timeout);
            context
                .w()
                .primary_address_path(&path)
                .log_ack_req_freq(LOG_ACK_REQ_FREQ)
                .log_sra_max(log_sra_max)
                .retry_count(attributes.retry_count)
                .rnr_retry(attributes.rnr_retry);
        }
        command.w().qpn(self.qpn).qpc(&context);
        self.step(&mut state, QpState::Rts, &command)?;
        Ok(())
    }

    /// Applies `changes` while the queue pair works: a connection in INIT (only its access rights) or RTS, a queue pair
    /// for datagrams in RTS. Outstanding work is not disturbed. PRM "INIT2INIT_QP", "RTS2RTS_QP".
    ///
    /// # Errors
    /// [`Error::State`]; [`Error::Invalid`] for a value that is out of range or that the service does not use;
    /// [`Error::Unsupported`] for what the card has not; [`Error::Command`].
    pub fn modify(&self, changes: &QpChanges) -> Result<(), Error> {
        let mut state = self.lock();
        let (select, context) = self.changed(changes)?;
        let needs_rts = changes.min_rnr_timer.is_some() || changes.qkey.is_some() || changes.udp_sport.is_some();
        match *state {
            _ if *changes == QpChanges::default() => Ok(()),
            QpState::Init if !needs_rts => {
                let mut command = Init2initQpIn::default();
                command.w().qpn(self.qpn).opt_param_mask(select).qpc(&context);
                self.step(&mut state, QpState::Init, &command)?;
                Ok(())
            }
            QpState::Rts => {
                let further = if changes.udp_sport.is_some() { Rts2rtsQpIn::UDP_SPORT } else { 0 };
                let mut command = Rts2rtsQpIn::default();
                command.w().qpn(self.qpn).opt_param_mask(select).opt_param_mask_95_32(further).qpc(&context);
                self.step(&mut state, QpState::Rts, &command)?;
                Ok(())
            }
            now if needs_rts => Err(self.forbidden(now, "modify", "RTS", QpState::Rts)),
            now => Err(self.forbidden(now, "modify", "INIT or RTS", QpState::Init)),
        }
    }

    /// `opt_param_mask` and context of `changes`.
    fn changed(&self, changes: &QpChanges) -> Result<(u32, Qpc), Error> {
        let (mut select, mut context) = (0, Qpc::default());
        context.w().pm_state(PathMigration::Migrated);
        if let Some(access) = changes.remote_access {
            self.must_be(CONNECTED, "QpChanges::remote_access", "QpChanges::qkey")?;
            check_access(access, self.device().caps())?;
            self.allow(access, &mut context);
            select |= if self.is_reliable() { select::RRE | select::RAE | select::RWE } else { select::RWE };
        }
        if let Some(timer) = changes.min_rnr_timer {
            self.must_be(
                &[ServiceType::Rc, ServiceType::Xrc],
                "QpChanges::min_rnr_timer",
                "nothing: it answers no sender",
            )?;
            fits("min_rnr_timer", timer.into(), 5)?;
            context.w().min_rnr_nak(timer);
            select |= select::RNR_TIMEOUT;
        }
        if let Some(qkey) = changes.qkey {
            self.must_be(&[ServiceType::Ud], "QpChanges::qkey", "QpChanges::remote_access")?;
            context.w().q_key(qkey);
            select |= select::Q_KEY;
        }
        if let Some(port) = changes.udp_sport {
            self.must_be(&[ServiceType::Rc, ServiceType::Uc], "QpChanges::udp_sport", "a path for each message")?;
            let general: CmdHcaCap = self.device().caps().current(CapPage::General).unwrap_or_default();
            if !general.rts2rts_qp_udp_sport() {
                let what = "to change the source port of a connection in RTS".into();
                return Err(Error::Unsupported { what, capability: "rts2rts_qp_udp_sport" });
            }
            let mut path = Ads::default();
            path.w().udp_sport(port);
            context.w().primary_address_path(&path);
        }
        Ok((select, context))
    }

    /// Sets the access rights of the remote in `context`.
    fn allow(&self, access: AccessFlags, context: &mut Qpc) {
        context.w().rwe(access.contains(AccessFlags::REMOTE_WRITE));
        if !self.is_reliable() {
            return;
        }
        let atomics = access.contains(AccessFlags::REMOTE_ATOMIC);
        context.w().rre(access.contains(AccessFlags::REMOTE_READ)).rae(atomics);
        if atomics {
            context.w().atomic_mode(self.device().caps().atomic_mode());
        }
    }

    /// SQER to RTS, for datagrams and unreliable connections: after a work request failed, and the ones behind it were
    /// flushed, later ones are executed again. The card moved the queue pair to SQER by itself; receives went on. PRM
    /// "SQERR2RTS_QP".
    ///
    /// # Errors
    /// [`Error::Invalid`] for another service, [`Error::State`] before RTS, [`Error::Command`], also if no work request
    /// failed.
    pub fn restart_send_queue(&self) -> Result<(), Error> {
        self.must_be(UNRELIABLE, "restart_send_queue", "reset")?;
        let mut state = self.lock();
        if *state != QpState::Rts {
            return Err(self.forbidden(*state, "restart_send_queue", "RTS", QpState::Rts));
        }
        let (mut command, mut context) = (Sqerr2rtsQpIn::default(), Qpc::default());
        context.w().pm_state(PathMigration::Migrated);
        command.w().qpn(self.qpn).qpc(&context);
        self.step(&mut state, QpState::Rts, &command)?;
        Ok(())
    }

    /// To ERR: everything posted, now or later, completes with a flush error.
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
        self.step(&mut state, QpState::Err, &command)?;
        Ok(())
    }

    /// To RST: everything posted is discarded without completions, as are completions not polled yet. Drop the queues
    /// first, and every [`Work`](crate::queue::Work) of them that was not retired.
    ///
    /// # Errors
    /// [`Error::Invalid`] while a queue is leased, [`Error::Command`].
    pub fn reset(&self) -> Result<(), Error> {
        let mut state = self.lock();
        self.send_lease.check_released(&self.object.name(), "SendQueue")?;
        self.receive_lease.check_released(&self.object.name(), "ReceiveQueue")?;
        let mut command = Qp2rstIn::default();
        command.w().qpn(self.qpn);
        self.step(&mut state, QpState::Rst, &command)?;
        self.ece.renew();
        self.memory.clear();
        self.forget_completions();
        self.send_lease.renew();
        self.receive_lease.renew();
        Ok(())
    }
}

/// `wanted`, or the largest path MTU that the port of `device` has room for.
pub(crate) fn path_mtu(device: &Device, wanted: Option<PathMtu>) -> Result<PathMtu, Error> {
    if let Some(path_mtu) = wanted {
        fits("path_mtu", path_mtu.number(), 3)?;
        return Ok(path_mtu);
    }
    let port = device.port()?;
    port.path_mtu().and_then(|bytes| PathMtu::from_bytes(bytes.into())).ok_or_else(|| {
        let (headers, mtu, max_mtu) = (port.headers(), port.mtu, Some(port.max_mtu));
        Invalid::PortMtu { what: "path_mtu", payload: 256, headers, mtu, max_mtu, syndrome: None }.into()
    })
}
