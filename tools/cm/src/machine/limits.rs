//! Limits of what a program may give.

use mlx5_prm::ib::RdmaCmHdr;
use mlx5_prm::layout::Layout;

use super::error::CallError;
use super::types::{Parameters, Route};

/// Maximum length of a program's private data, by message.
pub(crate) const REQ_DATA: usize = 92 - RdmaCmHdr::SIZE;
pub(crate) const REP_DATA: usize = 196;
pub(crate) const REJ_DATA: usize = 148;
pub(crate) const RTU_DATA: usize = 224;
pub(crate) const DREQ_DATA: usize = 220;
pub(crate) const SIDR_REQ_DATA: usize = 216 - RdmaCmHdr::SIZE;
pub(crate) const SIDR_REP_DATA: usize = 136;

pub(crate) fn of_data(message: &'static str, data: &[u8], most: usize) -> Result<(), CallError> {
    match data.len() {
        given if given > most => Err(CallError::PrivateData { message, given, most }),
        _ => Ok(()),
    }
}

fn within(what: &'static str, given: u32, most: u32) -> Result<(), CallError> {
    if given > most { Err(CallError::OutOfRange { what, given, most }) } else { Ok(()) }
}

pub(crate) fn of_qpn(qpn: u32) -> Result<(), CallError> {
    within("qpn", qpn, 0xff_ffff)
}

pub(crate) fn of_delay(service_timeout: u8) -> Result<(), CallError> {
    within("service_timeout", service_timeout.into(), 31)
}

pub(crate) fn of_parameters(parameters: &Parameters, message: &'static str, most: usize) -> Result<(), CallError> {
    of_qpn(parameters.qpn)?;
    within("psn", parameters.psn, 0xff_ffff)?;
    within("rnr_retry_count", parameters.rnr_retry_count.into(), 7)?;
    of_data(message, &parameters.private_data, most)
}

pub(crate) fn of_route(route: &Route) -> Result<(), CallError> {
    within("transport", route.transport.number(), 1)?;
    within("path_mtu", route.path_mtu.number(), 5)?;
    within("local_ack_timeout", route.local_ack_timeout.into(), 31)?;
    within("retry_count", route.retry_count.into(), 7)?;
    within("service_level", route.service_level.into(), 7)
}
