//! The steps of queue pairs from state to state.

use mlx5_prm::cmd::{CmdStatus, Init2rtrQpIn, Qp2errIn, Qp2rstIn, Rst2initQpIn, Rtr2rtsQpIn};
use mlx5_prm::ctx::{Ads, AtomicMode, Qpc};
use mlx5_prm::values::{PathMigration, PathMtu, QpState, ServiceType};
use tracing::field::{Empty, display};

use super::QueuePair;
use super::attributes::{InitAttributes, RtrAttributes, RtsAttributes, log_outstanding};
use crate::error::{CommandError, CommandErrorKind, Error, Invalid};
use crate::net::PATH_HEADERS;
use crate::objects::check::{fits, port_exists};
use crate::objects::mkey::{AccessFlags, check_access};
use crate::objects::object::Transition;

/// An acknowledgement is asked for at least every `1 << 8` packets, as Linux does.
pub(super) const LOG_ACK_REQ_FREQ: u8 = 8;

/// The services with a remote of their own.
const CONNECTED: &[ServiceType] = &[ServiceType::Rc, ServiceType::Uc];

impl QueuePair {
    /// Whether what is sent is acknowledged, and READs and atomics can be.
    fn is_reliable(&self) -> bool {
        self.options.service != ServiceType::Uc
    }

    /// Sends `command`, which leads from `state` to `to`, in a span: level DEBUG, target `mlx5_dv::qp`, name
    /// `transition`, fields `qpn`, `service`, `from`, `to` and, where it failed, `error`.
    pub(super) fn step<C: Transition>(
        &self,
        state: &mut QpState,
        to: QpState,
        command: &C,
    ) -> Result<(), CommandError> {
        let span = tracing::debug_span!(
            target: "mlx5_dv::qp",
            "transition",
            qpn = self.qpn,
            service = %self.options.service,
            from = %state,
            %to,
            error = Empty,
        );
        let result = span.in_scope(|| self.object.modify(command));
        match &result {
            Ok(()) => *state = to,
            Err(error) => {
                span.record("error", display(error));
            }
        }
        result
    }

    /// RST to INIT. Receives may be posted afterwards. No READ or atomic comes to an unreliable connection, whatever
    /// it allows.
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
        check_access(attributes.remote_access, self.device().caps())?;
        let allowed = |access| attributes.remote_access.contains(access);
        let (mut command, mut context, mut path) = (Rst2initQpIn::default(), Qpc::default(), Ads::default());
        path.w().vhca_port_num(attributes.port);
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .primary_address_path(&path)
            .rwe(allowed(AccessFlags::REMOTE_WRITE));
        if self.is_reliable() {
            let atomics = allowed(AccessFlags::REMOTE_ATOMIC);
            context.w().rre(allowed(AccessFlags::REMOTE_READ)).rae(atomics);
            if atomics {
                context.w().atomic_mode(AtomicMode::IbSpec);
            }
        }
        command.w().qpn(self.qpn).qpc(&context);
        Ok(self.step(&mut state, QpState::Init, &command)?)
    }

    /// INIT to RTR: the remote is known, and its requests are answered.
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
        fits("path_mtu", attributes.path_mtu.number(), 3)?;
        attributes.path.check(caps)?;
        let (mut command, mut context) = (Init2rtrQpIn::default(), Qpc::default());
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .mtu(attributes.path_mtu)
            .log_msg_max(caps.log_max_msg.min(30))
            .remote_qpn(attributes.remote_qpn)
            .primary_address_path(&attributes.path.ads())
            .next_rcv_psn(attributes.rq_psn);
        if self.is_reliable() {
            let log_rra_max = log_outstanding(attributes.max_dest_rd_atomic, caps.log_max_ra_res_qp);
            context.w().log_rra_max(log_rra_max).min_rnr_nak(attributes.min_rnr_timer);
        }
        command.w().qpn(self.qpn).qpc(&context);
        let moved = self.step(&mut state, QpState::Rtr, &command);
        moved.map_err(|error| self.explain_mtu(error, attributes.path_mtu))
    }

    /// Firmware's BAD_PARAM does not say which parameter: a path MTU that the port has no room for is the usual one.
    fn explain_mtu(&self, error: CommandError, path_mtu: PathMtu) -> Error {
        let CommandErrorKind::Status { status: CmdStatus::BadParameter, syndrome, .. } = error.kind else {
            return error.into();
        };
        match (path_mtu.bytes(), self.device().port()) {
            (Some(payload), Ok(port)) if payload + PATH_HEADERS > u32::from(port.mtu) => Invalid::PortMtu {
                what: "path_mtu",
                payload,
                headers: PATH_HEADERS,
                mtu: port.mtu,
                max_mtu: Some(port.max_mtu),
                syndrome: Some(syndrome),
            }
            .into(),
            _ => error.into(),
        }
    }

    /// RTR to RTS: work requests are carried out.
    ///
    /// # Errors
    /// As for [`init`](Self::init).
    pub fn ready_to_send(&self, attributes: &RtsAttributes) -> Result<(), Error> {
        self.must_be(CONNECTED, "ready_to_send", "activate")?;
        let mut state = self.lock();
        if *state != QpState::Rtr {
            return Err(self.forbidden(*state, "ready_to_send", "RTR", QpState::Rtr));
        }
        fits("sq_psn", attributes.sq_psn, 24)?;
        fits("timeout", attributes.timeout.into(), 5)?;
        fits("retry_count", attributes.retry_count.into(), 3)?;
        fits("rnr_retry", attributes.rnr_retry.into(), 3)?;
        let (mut command, mut context) = (Rtr2rtsQpIn::default(), Qpc::default());
        context.w().pm_state(PathMigration::Migrated).next_send_psn(attributes.sq_psn);
        if self.is_reliable() {
            let mut path = Ads::default();
            path.w().ack_timeout(attributes.timeout);
            context
                .w()
                .primary_address_path(&path)
                .log_ack_req_freq(LOG_ACK_REQ_FREQ)
                .log_sra_max(log_outstanding(attributes.max_rd_atomic, self.device().caps().log_max_ra_req_qp))
                .retry_count(attributes.retry_count)
                .rnr_retry(attributes.rnr_retry);
        }
        command.w().qpn(self.qpn).qpc(&context);
        Ok(self.step(&mut state, QpState::Rts, &command)?)
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
        Ok(self.step(&mut state, QpState::Err, &command)?)
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
        self.step(&mut state, QpState::Rst, &command)?;
        self.memory.clear();
        self.forget_completions();
        self.send_lease.renew();
        self.receive_lease.renew();
        Ok(())
    }
}
