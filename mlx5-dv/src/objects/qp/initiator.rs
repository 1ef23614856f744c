//! Dynamically connected initiators.

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::{Init2rtrQpIn, QpContextExtension, Rst2initQpIn, Rtr2rtsQpIn, Rts2rtsQpIn, WithTail};
use mlx5_prm::ctx::{Ads, Qpc};
use mlx5_prm::values::{PathMigration, PathMtu, QpState, ServiceType};

use super::QueuePair;
use super::attributes::{RtsAttributes, log_outstanding};
use super::transition::{LOG_ACK_REQ_FREQ, path_mtu};
use crate::caps::CapPage;
use crate::error::{Error, Invalid};
use crate::objects::check::{pkey_exists, port_exists};

/// Attributes of a dynamically connected initiator.
#[derive(Debug, Clone, Copy)]
pub struct InitiatorAttributes {
    /// Local port number, from 1. Default: 1.
    pub port: u8,
    /// Path MTU, the same as its targets'. Default: the largest that fits the port's MTU.
    pub path_mtu: Option<PathMtu>,
    /// First PSN, timeout, retries, and depth of reads and atomics.
    pub rts: RtsAttributes,
    /// Index of the P_Key of its packets, as [`InitAttributes::pkey_index`](super::attributes::InitAttributes).
    /// Default: 0.
    pub pkey_index: u16,
}

impl Default for InitiatorAttributes {
    fn default() -> Self {
        InitiatorAttributes { port: 1, path_mtu: None, rts: RtsAttributes::new(0), pkey_index: 0 }
    }
}

impl QueuePair {
    /// Takes a dynamically connected initiator from RST to RTS. If firmware refuses a step, call
    /// [`reset`](Self::reset) before the next try.
    ///
    /// # Errors
    /// [`Error::State`] in any state but RST, [`Error::Invalid`] for a value out of range or a queue pair of another
    /// service, [`Error::Command`].
    pub fn activate_initiator(&self, attributes: &InitiatorAttributes) -> Result<(), Error> {
        self.must_be(&[ServiceType::Dci], "activate_initiator", "init or activate")?;
        let mut state = self.lock();
        if *state != QpState::Rst {
            return Err(self.forbidden(*state, "activate_initiator", "RST", QpState::Rst));
        }
        let caps = self.device().caps();
        port_exists(attributes.port, caps)?;
        pkey_exists(attributes.pkey_index, caps)?;
        let rts = &attributes.rts;
        rts.check()?;
        let path_mtu = path_mtu(self.device(), attributes.path_mtu)?;
        let general: CmdHcaCap = caps.current(CapPage::General).unwrap_or_default();
        let most = general.log_max_ra_req_dc();
        let log_sra_max = log_outstanding("max_rd_atomic", rts.max_rd_atomic, "log_max_ra_req_dc", most)?;

        let (mut init, mut context, mut path) = (Rst2initQpIn::default(), Qpc::default(), Ads::default());
        path.w().vhca_port_num(attributes.port).pkey_index(attributes.pkey_index);
        context.w().pm_state(PathMigration::Migrated).primary_address_path(&path).counter_set_id(self.counter_set_id());
        init.w().qpn(self.qpn).qpc(&context);
        self.step(&mut state, QpState::Init, &init)?;

        let (mut rtr, mut context) = (Init2rtrQpIn::default(), Qpc::default());
        context.w().pm_state(PathMigration::Migrated).mtu(path_mtu).log_msg_max(caps.log_max_msg.min(30));
        context.w().primary_address_path(&path);
        rtr.w().qpn(self.qpn).qpc(&context);
        let moved = self.step(&mut state, QpState::Rtr, &rtr);
        moved.map_err(|error| self.explain_mtu(error, path_mtu))?;

        let (mut command, mut context, mut path) = (Rtr2rtsQpIn::default(), Qpc::default(), Ads::default());
        path.w().ack_timeout(rts.timeout);
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .next_send_psn(rts.sq_psn)
            .primary_address_path(&path)
            .log_ack_req_freq(LOG_ACK_REQ_FREQ)
            .log_sra_max(log_sra_max)
            .retry_count(rts.retry_count)
            .rnr_retry(rts.rnr_retry);
        command.w().qpn(self.qpn).qpc(&context);
        self.step(&mut state, QpState::Rts, &command)?;
        Ok(())
    }

    /// Takes a stream of a dynamically connected initiator out of error, once all that was posted to it is flushed. One
    /// that is in no error stays as it is. PRM "RTS2RTS_QP".
    ///
    /// # Errors
    /// [`Error::Invalid`] for a queue pair without [streams](crate::objects::DciStreams), [`Error::State`] in any state
    /// but RTS, [`Error::Unsupported`] on a card that resets no stream. [`Error::Command`] also for an initiator that
    /// its streams put into error: call [`reset`](Self::reset).
    pub fn reset_stream(&self, stream: u16) -> Result<(), Error> {
        self.must_be(&[ServiceType::Dci], "reset_stream", "reset")?;
        if self.options.dci_streams.is_none() {
            let what = "reset_stream".into();
            return Err(Invalid::Requires { what, requires: "QpOptions::dci_streams" }.into());
        }
        let mut state = self.lock();
        if *state != QpState::Rts {
            return Err(self.forbidden(*state, "reset_stream", "RTS", QpState::Rts));
        }
        let general: CmdHcaCap = self.device().caps().current(CapPage::General).unwrap_or_default();
        if !general.qpc_extension() {
            let what = "to reset a stream".into();
            return Err(Error::Unsupported { what, capability: "qpc_extension" });
        }
        let (mut command, mut extension) = (Rts2rtsQpIn::default(), QpContextExtension::default());
        command.w().qpn(self.qpn).qpc_ext(true).opt_param_mask_95_32(QpContextExtension::DCI_STREAM_CHANNEL_ID);
        extension.w().dci_stream_channel_id(stream);
        self.step(&mut state, QpState::Rts, &WithTail::new(command, vec![extension]))?;
        Ok(())
    }
}
