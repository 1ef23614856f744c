//! The extension of a queue pair's context, streams of DC initiators, and what a working queue pair changes by its
//! second mask.

use mlx5_prm::cmd::{CreateQpIn, QpContextExtension, Rts2rtsQpIn};
use mlx5_prm::ctx::Qpc;
use mlx5_prm::layout::Layout;
use mlx5_prm::values::ServiceType;

use super::syndromes::Syndrome;
use crate::function::Function;

/// The page list of a command that may have an extension before it, which sets nothing at creation.
pub(super) fn at_creation<'a>(f: &Function, command: &CreateQpIn, list: &'a [u8]) -> Result<&'a [u8], Syndrome> {
    if !command.qpc_ext() {
        return Ok(list);
    }
    let (extension, pages) = list.split_at_checked(QpContextExtension::SIZE).ok_or(Syndrome::InputTooShort)?;
    let is_announced = f.nic.firmware.caps.general().qpc_extension();
    if !is_announced || extension.iter().any(|byte| *byte != 0) {
        return Err(Syndrome::QpFeature);
    }
    Ok(pages)
}

/// Whether the queue pair may have the streams that its context asks for.
pub(super) fn check_streams(f: &Function, context: &Qpc) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.general();
    let (channels, errored) = (context.log_num_dci_stream_channels(), context.log_num_dci_errored_streams());
    let is_announced = channels <= caps.log_max_dci_stream_channels() && errored <= caps.log_max_dci_errored_streams();
    let has_streams = channels != 0 || errored != 0;
    if !is_announced || has_streams && context.st() != ServiceType::Dci { Err(Syndrome::QpFeature) } else { Ok(()) }
}

/// What a change of a working queue pair sets by its second mask, `opt_param_mask_95_32`.
#[derive(Default)]
pub(super) struct Further {
    /// The stream that it takes out of error.
    pub(super) stream: Option<u16>,
    /// Source port of the packets that follow.
    pub(super) udp_sport: Option<u16>,
}

/// What `command` sets by its second mask. `list` is what follows the command's fixed part.
pub(super) fn further(f: &Function, command: &Rts2rtsQpIn, list: &[u8]) -> Result<Further, Syndrome> {
    let extension = extension(f, command, list)?;
    let (mask, mut further) = (command.opt_param_mask_95_32(), Further::default());
    if mask & !(QpContextExtension::DCI_STREAM_CHANNEL_ID | Rts2rtsQpIn::UDP_SPORT) != 0 {
        return Err(Syndrome::OptParamMask);
    }
    let qp = f.queues.qps.get(command.qpn()).ok_or(Syndrome::NoSuchQp)?;
    if mask & QpContextExtension::DCI_STREAM_CHANNEL_ID != 0 {
        let extension = extension.filter(|_| qp.rc.send.streams.is_some()).ok_or(Syndrome::OptParamMask)?;
        further.stream = Some(extension.dci_stream_channel_id());
    }
    if mask & Rts2rtsQpIn::UDP_SPORT != 0 {
        if !f.nic.firmware.caps.general().rts2rts_qp_udp_sport() {
            return Err(Syndrome::CapabilityNotAnnounced);
        }
        // As libmlx5 has it: who sends to many has a port for each.
        if !matches!(qp.service, ServiceType::Rc | ServiceType::Uc) {
            return Err(Syndrome::OptParamMask);
        }
        further.udp_sport = Some(command.qpc().primary_address_path().udp_sport());
    }
    Ok(further)
}

/// The extension behind `command`, which says if it is there.
fn extension(f: &Function, command: &Rts2rtsQpIn, list: &[u8]) -> Result<Option<QpContextExtension>, Syndrome> {
    if !command.qpc_ext() {
        return if list.iter().any(|byte| *byte != 0) { Err(Syndrome::InputTooLong) } else { Ok(None) };
    }
    if !f.nic.firmware.caps.general().qpc_extension() {
        return Err(Syndrome::QpFeature);
    }
    QpContextExtension::read(list).map(Some).ok_or(Syndrome::InputTooShort)
}
