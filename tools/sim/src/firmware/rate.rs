//! Rates that send queues may be held to. PRM "SET_PP_RATE_LIMIT", "Packet Pacing".
//!
//! Index 0 stands for no limit. An entry is of the user context that set it: only that one may name it, but every one
//! may name those of the driver's for all users.

use mlx5_prm::cmd::*;

use super::answer::Answer;
use super::syndromes::Syndrome;
use crate::function::Function;
use crate::objects::Rate;

/// `SET_PP_RATE_LIMIT`: a rate of 0 clears the entry, whose queues send without a limit then.
pub(super) fn set(f: &mut Function, command: &SetPpRateLimitIn) -> Answer<SetPpRateLimitOut> {
    let (caps, wanted, index) = (f.nic.firmware.caps.qos(), command.ctx(), command.rate_limit_index());
    if !caps.packet_pacing() {
        return Err(Syndrome::CapabilityNotAnnounced.into());
    }
    if index >= caps.packet_pacing_rate_table_size() {
        return Err(Syndrome::RateIndex.into());
    }
    let limits = caps.packet_pacing_min_rate()..=caps.packet_pacing_max_rate();
    if wanted.rate_limit() != 0 && !limits.contains(&wanted.rate_limit()) {
        return Err(Syndrome::RateRange.into());
    }
    let rate =
        (wanted.rate_limit() != 0).then(|| Rate { kbps: wanted.rate_limit(), burst: wanted.burst_upper_bound() });
    if index == 0 || !f.nic.objects.set_rate(index, rate) {
        return Err(Syndrome::NoSuchRate.into());
    }
    Ok(SetPpRateLimitOut::ZERO)
}

/// Error unless a send queue may be held to the rate at `index`.
pub(super) fn check(f: &Function, index: u16) -> Result<(), Syndrome> {
    let caps = f.nic.firmware.caps.qos();
    match index {
        0 => Ok(()),
        _ if !caps.packet_pacing() => Err(Syndrome::CapabilityNotAnnounced),
        index if index >= caps.packet_pacing_rate_table_size() => Err(Syndrome::RateIndex),
        index if !f.nic.objects.may_use_rate(index) => Err(Syndrome::NoSuchRate),
        _ => Ok(()),
    }
}
