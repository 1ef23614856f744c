//! State changes of queue pairs. IBTA 10.3.1.
//!
//! | command | from | fields always set | fields set by their bit of `opt_param_mask` |
//! | --- | --- | --- | --- |
//! | RST2INIT | RST | port, pkey index, remote access rights, queue counter | |
//! | INIT2INIT | INIT | | rights, pkey index, port |
//! | INIT2RTR | INIT | MTU, message limit, remote QP, receive PSN, responder reads, RNR timer, path | rights, pkey index |
//! | RTR2RTS | RTR | send PSN, retries, requester reads, acknowledge timeout | rights, RNR timer, migration state |
//! | RTS2RTS | RTS | | rights, RNR timer, migration state, queue counter, source port |
//! | SQERR2RTS | SQER | | rights, RNR timer |
//! | 2ERR, 2RST | any | | |
//!
//! Initiators of DC have an MTU and no path: each of their messages has one.
//!
//! UD queue pairs have no path, remote QP or access rights, but a Q_Key: always set by RST2INIT, later by its bit. Of
//! the access rights, UC has only remote write.
//!
//! UC and UD queue pairs enter SQER when a work request fails. The model never enters SQD, so SQD2RTS always fails with
//! "wrong state".

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{Ads, AtomicMode, Qpc};
use mlx5_prm::values::{PathMigration, PathMtu, QpState, ServiceType};

use super::answer::Answer;
use super::syndromes::Syndrome;
use super::{ece, qp_extension};
use crate::engine;
use crate::function::Function;
use crate::objects::{AddressPath, Qp};
use crate::profile::{MASKED_COMPARE_SWAP, MASKED_FETCH_ADD};
use crate::transport::packet::FRAME_OVERHEAD;

/// Bits of `opt_param_mask`.
mod opt {
    pub(super) const RRE: u32 = 1 << 1;
    pub(super) const RAE: u32 = 1 << 2;
    pub(super) const RWE: u32 = 1 << 3;
    pub(super) const PKEY_INDEX: u32 = 1 << 4;
    pub(super) const Q_KEY: u32 = 1 << 5;
    pub(super) const RNR_TIMEOUT: u32 = 1 << 6;
    pub(super) const PM_STATE: u32 = 1 << 10;
    pub(super) const PRIMARY_PORT: u32 = 1 << 16;
    pub(super) const COUNTER_SET_ID: u32 = 1 << 25;
    pub(super) const RIGHTS: u32 = RRE | RAE | RWE;
}

/// The function's only port.
pub(super) const PORT: u8 = 1;

/// A state change command.
struct Change<'a> {
    qpn: u32,
    from: QpState,
    to: QpState,
    wanted: &'a Qpc,
    /// Bits set in `opt_param_mask`.
    mask: u32,
    /// Bits of `opt_param_mask` allowed for RC.
    allowed: u32,
    /// Sets the fields that do not depend on the mask.
    always: fn(&Function, &Qpc, &mut Qpc) -> Result<(), Syndrome>,
    /// The options that the two ends agreed on; 0 changes nothing.
    ece: u32,
}

impl Change<'_> {
    /// Bits of `opt_param_mask` allowed for this service.
    fn allowed_for(&self, service: ServiceType) -> u32 {
        let unconnected = opt::PKEY_INDEX | opt::PRIMARY_PORT | opt::COUNTER_SET_ID;
        match service {
            ServiceType::Ud | ServiceType::Qp1 => self.allowed & unconnected | opt::Q_KEY,
            ServiceType::RegUmr => self.allowed & unconnected,
            ServiceType::Uc => self.allowed & !(opt::RRE | opt::RAE | opt::RNR_TIMEOUT),
            _ => self.allowed,
        }
    }
}

/// The output of a change, with the options that it agreed on if the command has any.
macro_rules! output {
    ($Out:ident, $run:expr) => {{
        $run;
        $Out::ZERO
    }};
    ($Out:ident, $run:expr, $ece:ident) => {{
        let agreed = $run;
        let mut output = $Out::ZERO;
        output.w().$ece(agreed);
        output
    }};
}

macro_rules! change {
    ($name:ident, $In:ident => $Out:ident, $from:ident -> $to:ident, $allowed:expr, $always:path $(, $ece:ident)?) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        pub(super) fn $name(f: &mut Function, command: &$In) -> Answer<$Out> {
            let change = Change {
                qpn: command.qpn(),
                from: QpState::$from,
                to: QpState::$to,
                wanted: command.qpc(),
                mask: command.opt_param_mask(),
                allowed: $allowed,
                always: $always,
                ece: 0 $(+ command.$ece())?,
            };
            Ok(output!($Out, run(f, &change)? $(, $ece)?))
        }
    };
}

change!(rst2init, Rst2initQpIn => Rst2initQpOut, Rst -> Init, 0, take_init, ece);
change!(init2init, Init2initQpIn => Init2initQpOut, Init -> Init,
    opt::RIGHTS | opt::PKEY_INDEX | opt::PRIMARY_PORT, take_nothing, ece);
change!(init2rtr, Init2rtrQpIn => Init2rtrQpOut, Init -> Rtr, opt::RIGHTS | opt::PKEY_INDEX, take_rtr, ece);
change!(rtr2rts, Rtr2rtsQpIn => Rtr2rtsQpOut, Rtr -> Rts, opt::RIGHTS | opt::RNR_TIMEOUT | opt::PM_STATE, take_rts, ece);
change!(change_rts, Rts2rtsQpIn => Rts2rtsQpOut, Rts -> Rts,
    opt::RIGHTS | opt::RNR_TIMEOUT | opt::PM_STATE | opt::COUNTER_SET_ID, take_nothing, ece);
change!(sqerr2rts, Sqerr2rtsQpIn => Sqerr2rtsQpOut, Sqer -> Rts, opt::RIGHTS | opt::RNR_TIMEOUT, take_nothing);
change!(sqd2rts, Sqd2rtsQpIn => Sqd2rtsQpOut, Sqd -> Rts, opt::RIGHTS | opt::RNR_TIMEOUT, take_nothing);

/// `RTS2RTS_QP`, whose second mask changes the source port, and whose extension takes a stream out of error.
pub(super) fn rts2rts(f: &mut Function, command: &Rts2rtsQpIn, list: &[u8]) -> Answer<Rts2rtsQpOut> {
    let further = qp_extension::further(f, command, list)?;
    let output = change_rts(f, command)?;
    if let Some(port) = further.udp_sport {
        send_from(f, command.qpn(), port)?;
    }
    if let Some(stream) = further.stream {
        engine::stream_reset(f, command.qpn(), stream);
    }
    Ok(output)
}

/// Changes the source port of the packets that follow.
fn send_from(f: &mut Function, qpn: u32, port: u16) -> Answer<()> {
    let qp = f.queues.qps.get_mut(qpn).ok_or(Syndrome::NoSuchQp)?;
    let mut path = *qp.context.primary_address_path();
    path.w().udp_sport(port);
    qp.context.w().primary_address_path(&path);
    qp.path.udp_sport = port;
    Ok(())
}

/// `2ERR_QP`.
pub(super) fn to_err(f: &mut Function, command: &Qp2errIn) -> Answer<Qp2errOut> {
    force(f, command.qpn(), QpState::Err)?;
    Ok(Qp2errOut::ZERO)
}

/// `2RST_QP`.
pub(super) fn to_rst(f: &mut Function, command: &Qp2rstIn) -> Answer<Qp2rstOut> {
    force(f, command.qpn(), QpState::Rst)?;
    Ok(Qp2rstOut::ZERO)
}

fn force(f: &mut Function, qpn: u32, to: QpState) -> Answer<()> {
    let qp = f.queues.qps.get_mut(qpn).ok_or(Syndrome::NoSuchQp)?;
    let from = std::mem::replace(&mut qp.state, to);
    if to == QpState::Rst {
        qp.ece = 0;
    }
    engine::qp_state_changed(f, qpn, from, to);
    Ok(())
}

/// Applies the change completely, or not at all. Returns what it has of the options that it asks for.
fn run(f: &mut Function, change: &Change) -> Answer<u32> {
    let qp = f.queues.qps.get(change.qpn).ok_or(Syndrome::NoSuchQp)?;
    if qp.state != change.from {
        return Err(Syndrome::WrongState.into());
    }
    if change.mask & !change.allowed_for(qp.service) != 0 {
        return Err(Syndrome::OptParamMask.into());
    }
    let mut context = qp.context;
    (change.always)(f, change.wanted, &mut context)?;
    take_optional(f, change.wanted, change.mask, &mut context)?;
    context.w().state(change.to);
    let ece = ece::reduce(f, change.ece)?;
    let qp = f.queues.qps.get_mut(change.qpn).ok_or(Syndrome::NoSuchQp)?;
    adopt(qp, context);
    if change.ece != 0 {
        qp.ece = ece;
    }
    engine::qp_state_changed(f, change.qpn, change.from, change.to);
    Ok(ece)
}

/// Copies a context's fields to the queue pair.
fn adopt(qp: &mut Qp, context: Qpc) {
    qp.state = context.state();
    qp.path = address_path(context.primary_address_path());
    qp.mtu = context.mtu();
    qp.remote_qpn = context.remote_qpn();
    qp.retry_count = context.retry_count();
    qp.rnr_retry = context.rnr_retry();
    qp.min_rnr_nak = context.min_rnr_nak();
    qp.log_sra_max = context.log_sra_max();
    qp.log_rra_max = context.log_rra_max();
    qp.remote_write = context.rwe();
    qp.remote_read = context.rre();
    qp.remote_atomic = context.rae();
    qp.counter_set_id = context.counter_set_id();
    qp.context = context;
}

fn address_path(ads: &Ads) -> AddressPath {
    let (high, low) = (ads.rmac_47_32().to_be_bytes(), ads.rmac_31_0().to_be_bytes());
    AddressPath {
        src_addr_index: ads.src_addr_index(),
        rgid: *ads.rgid_rip(),
        rmac: [high[0], high[1], low[0], low[1], low[2], low[3]],
        udp_sport: ads.udp_sport(),
        hop_limit: ads.hop_limit(),
        tclass: ads.tclass(),
        flow_label: ads.flow_label(),
        eth_prio: ads.eth_prio(),
        ack_timeout: ads.ack_timeout(),
        port: ads.vhca_port_num(),
    }
}

fn take_nothing(_: &Function, _: &Qpc, _: &mut Qpc) -> Result<(), Syndrome> {
    Ok(())
}

fn take_init(f: &Function, wanted: &Qpc, context: &mut Qpc) -> Result<(), Syndrome> {
    take_counter(f, wanted, context)?;
    take_port(wanted, context)?;
    take_pkey(wanted, context)?;
    take_rights(f, wanted, opt::RIGHTS, context)?;
    // The reserved lkey may be requested here or at creation.
    let rlky = context.rlky() || wanted.rlky();
    context.w().rlky(rlky);
    if is_unconnected(context) {
        context.w().q_key(wanted.q_key());
    }
    Ok(())
}

/// Whether it has no path: UD, where each message has its own destination, and `REG_UMR`, which sends nothing.
fn is_unconnected(context: &Qpc) -> bool {
    matches!(context.st(), ServiceType::Ud | ServiceType::Qp1 | ServiceType::RegUmr)
}

fn take_rtr(f: &Function, wanted: &Qpc, context: &mut Qpc) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.general();
    let is_local = context.st() == ServiceType::RegUmr;
    if !is_local && (!caps.roce() || !f.nic.objects.vport.roce_enabled()) {
        return Err(Syndrome::RoceDisabled);
    }
    if wanted.log_msg_max() > caps.log_max_msg() {
        return Err(Syndrome::MessageLimit);
    }
    check_gsi(wanted, context)?;
    if is_unconnected(context) {
        context.w().mtu(wanted.mtu()).log_msg_max(wanted.log_msg_max());
        return Ok(());
    }
    check_mtu_of(f, wanted.mtu())?;
    // Each of its messages has a path of its own.
    if context.st() == ServiceType::Dci {
        context.w().mtu(wanted.mtu()).log_msg_max(wanted.log_msg_max());
        return Ok(());
    }
    if wanted.log_rra_max() > caps.log_max_ra_res_qp() {
        return Err(Syndrome::ReadsResponder);
    }
    let mut path = *wanted.primary_address_path();
    check_path(f, &path)?;
    // Timeout and pkey index are set by other transitions.
    let old = context.primary_address_path();
    path.w().pkey_index(old.pkey_index()).ack_timeout(old.ack_timeout());
    context
        .w()
        .mtu(wanted.mtu())
        .log_msg_max(wanted.log_msg_max())
        .remote_qpn(wanted.remote_qpn())
        .next_rcv_psn(wanted.next_rcv_psn())
        .log_rra_max(wanted.log_rra_max())
        .min_rnr_nak(wanted.min_rnr_nak())
        .primary_address_path(&path);
    Ok(())
}

/// Of queue pair 1, Linux gives these limits, and the port at each transition.
fn check_gsi(wanted: &Qpc, context: &Qpc) -> Result<(), Syndrome> {
    if context.st() != ServiceType::Qp1 {
        return Ok(());
    }
    if wanted.mtu() != PathMtu::Mtu256 || wanted.log_msg_max() > 8 {
        return Err(Syndrome::GsiLimits);
    }
    check_port(wanted.primary_address_path())
}

fn check_port(path: &Ads) -> Result<(), Syndrome> {
    if path.vhca_port_num() == PORT { Ok(()) } else { Err(Syndrome::PortNumber) }
}

/// The MTU of the path must fit the port's: longer frames would be dropped, and every retry fail.
pub(super) fn check_mtu_of(f: &Function, mtu: PathMtu) -> Result<(), Syndrome> {
    let payload = mtu.bytes().filter(|bytes| *bytes <= 4096).ok_or(Syndrome::Mtu)?;
    if payload as usize + FRAME_OVERHEAD > usize::from(f.nic.port.mtu) {
        return Err(Syndrome::PortMtu);
    }
    Ok(())
}

fn check_path(f: &Function, path: &Ads) -> Result<(), Syndrome> {
    check_port(path)?;
    f.nic.objects.gids.get(u16::from(path.src_addr_index())).ok_or(Syndrome::SourceAddress)?;
    let multicast = path.rmac_47_32() & 0x100 != 0;
    if multicast || path.rmac_47_32() == 0 && path.rmac_31_0() == 0 {
        return Err(Syndrome::RemoteMac);
    }
    Ok(())
}

fn take_rts(f: &Function, wanted: &Qpc, context: &mut Qpc) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.general();
    let most = match context.st() {
        ServiceType::Dci => caps.log_max_ra_req_dc(),
        _ => caps.log_max_ra_req_qp(),
    };
    if wanted.log_sra_max() > most {
        return Err(Syndrome::ReadsRequester);
    }
    if context.st() == ServiceType::Qp1 {
        check_port(wanted.primary_address_path())?;
    }
    let mut path = *context.primary_address_path();
    path.w().ack_timeout(wanted.primary_address_path().ack_timeout());
    context
        .w()
        .log_ack_req_freq(wanted.log_ack_req_freq())
        .next_send_psn(wanted.next_send_psn())
        .retry_count(wanted.retry_count())
        .rnr_retry(wanted.rnr_retry())
        .log_sra_max(wanted.log_sra_max())
        .primary_address_path(&path);
    Ok(())
}

fn take_optional(f: &Function, wanted: &Qpc, mask: u32, context: &mut Qpc) -> Result<(), Syndrome> {
    take_rights(f, wanted, mask, context)?;
    if mask & opt::PKEY_INDEX != 0 {
        take_pkey(wanted, context)?;
    }
    if mask & opt::PRIMARY_PORT != 0 {
        take_port(wanted, context)?;
    }
    if mask & opt::Q_KEY != 0 {
        context.w().q_key(wanted.q_key());
    }
    if mask & opt::RNR_TIMEOUT != 0 {
        context.w().min_rnr_nak(wanted.min_rnr_nak());
    }
    if mask & opt::COUNTER_SET_ID != 0 {
        if !f.nic.firmware.caps.general().rts2rts_qp_counters_set_id() {
            return Err(Syndrome::CapabilityNotAnnounced);
        }
        take_counter(f, wanted, context)?;
    }
    if mask & opt::PM_STATE != 0 && wanted.pm_state() != PathMigration::Migrated {
        return Err(Syndrome::Migration);
    }
    Ok(())
}

fn take_rights(f: &Function, wanted: &Qpc, mask: u32, context: &mut Qpc) -> Result<(), Syndrome> {
    if mask & opt::RRE != 0 {
        context.w().rre(wanted.rre());
    }
    if mask & opt::RWE != 0 {
        context.w().rwe(wanted.rwe());
    }
    if mask & opt::RAE != 0 {
        if wanted.rae() && !f.nic.firmware.caps.general().atomic() {
            return Err(Syndrome::Atomics);
        }
        if wanted.rae() && !is_mode_announced(f, wanted.atomic_mode(), f.nic.firmware.caps.atomic().atomic_size_qp()) {
            return Err(Syndrome::AtomicMode);
        }
        context.w().rae(wanted.rae()).atomic_mode(wanted.atomic_mode());
    }
    Ok(())
}

/// Of eight bytes, a mode may allow masked atomics or not; the longer ones are for these alone.
pub(super) fn is_mode_announced(f: &Function, mode: AtomicMode, sizes: u16) -> bool {
    let caps = f.nic.firmware.caps.atomic();
    match mode {
        AtomicMode::IbSpec | AtomicMode::Only8B | AtomicMode::UpTo8B => true,
        AtomicMode::UpTo16B | AtomicMode::UpTo32B => {
            let masked = caps.atomic_operations() & (MASKED_COMPARE_SWAP | MASKED_FETCH_ADD) != 0;
            masked && u32::from(sizes) >> mode.number() & 1 != 0
        }
        _ => false,
    }
}

fn take_counter(f: &Function, wanted: &Qpc, context: &mut Qpc) -> Result<(), Syndrome> {
    let counter = wanted.counter_set_id();
    if counter != 0 && f.nic.objects.queue_counters.get(u32::from(counter)).is_none() {
        return Err(Syndrome::NoSuchCounter);
    }
    context.w().counter_set_id(counter);
    Ok(())
}

fn take_pkey(wanted: &Qpc, context: &mut Qpc) -> Result<(), Syndrome> {
    if wanted.primary_address_path().pkey_index() != 0 {
        return Err(Syndrome::PkeyIndex);
    }
    let mut path = *context.primary_address_path();
    path.w().pkey_index(0);
    context.w().primary_address_path(&path);
    Ok(())
}

fn take_port(wanted: &Qpc, context: &mut Qpc) -> Result<(), Syndrome> {
    check_port(wanted.primary_address_path())?;
    let mut path = *context.primary_address_path();
    path.w().vhca_port_num(PORT);
    context.w().primary_address_path(&path);
    Ok(())
}
