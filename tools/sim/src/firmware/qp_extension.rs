//! The extension of a queue pair's context, and streams of DC initiators, of which one command has its only field here.

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

/// The stream that a change takes out of error, if any. `list` is what follows the command's fixed part.
pub(super) fn stream_to_reset(f: &Function, command: &Rts2rtsQpIn, list: &[u8]) -> Result<Option<u16>, Syndrome> {
    let mask = command.opt_param_mask_95_32();
    if !command.qpc_ext() {
        return match list.iter().any(|byte| *byte != 0) {
            true => Err(Syndrome::InputTooLong),
            false if mask != 0 => Err(Syndrome::OptParamMask),
            false => Ok(None),
        };
    }
    if !f.nic.firmware.caps.general().qpc_extension() {
        return Err(Syndrome::QpFeature);
    }
    let extension = QpContextExtension::read(list).ok_or(Syndrome::InputTooShort)?;
    let has_streams = f.queues.qps.get(command.qpn()).is_some_and(|qp| qp.rc.send.streams.is_some());
    match mask {
        0 => Ok(None),
        QpContextExtension::DCI_STREAM_CHANNEL_ID if has_streams => Ok(Some(extension.dci_stream_channel_id())),
        _ => Err(Syndrome::OptParamMask),
    }
}
