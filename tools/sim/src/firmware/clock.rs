//! The real-time clock's register, and queues whose completions bear its time. PRM `mtutc_reg`, `ts_format`.

use std::time::Duration;

use mlx5_prm::caps::TimestampCap;
use mlx5_prm::ctx::TimestampFormat;
use mlx5_prm::reg::{ClockOperation, FrequencyUnits, MtutcReg, TimestampMode};

use super::syndromes::Syndrome;
use crate::engine;
use crate::function::real_time::{self, Rate};
use crate::function::{Function, RealTime};

/// Sets, moves and steers the clock. PRM `MTUTC`.
pub(super) fn mtutc(f: &mut Function, given: &MtutcReg, write: bool) -> Result<MtutcReg, Syndrome> {
    if !real_time::is_announced(&f.nic.profile) {
        return Err(Syndrome::UnknownRegister);
    }
    if write {
        change(f, given)?;
        engine::clock_changed(f);
    }
    let mut register = MtutcReg::ZERO;
    let mode = TimestampMode::RealTime.number() as u8;
    register.w().log_max_freq_adjustment(RealTime::LOG_MAX_ADJUSTMENT).time_stamp_mode(mode);
    Ok(register)
}

fn change(f: &mut Function, given: &MtutcReg) -> Result<(), Syndrome> {
    let (now, clock) = (f.nic.now, &mut f.nic.firmware.real_time);
    match ClockOperation::from_number(given.operation().into()) {
        ClockOperation::SetTime if given.utc_nsec() < 1_000_000_000 => {
            clock.set(Duration::new(given.utc_sec().into(), given.utc_nsec()), now);
        }
        ClockOperation::AdjustTime if moves(given).unsigned_abs() <= RealTime::MAX_MOVE as u32 => {
            clock.shift(moves(given), now);
        }
        ClockOperation::AdjustFrequency => {
            // It is signed.
            let parts = given.freq_adjustment() as i32;
            let rate = match FrequencyUnits::from_number(given.freq_adj_units().into()) {
                FrequencyUnits::Ppb => Rate::of_billionths(parts),
                FrequencyUnits::ScaledPpm => Rate::of_scaled_millionths(parts),
                FrequencyUnits::Unknown(_) => return Err(Syndrome::ClockAdjustment),
            };
            if !clock.adjust(rate, now) {
                return Err(Syndrome::ClockAdjustment);
            }
        }
        _ => return Err(Syndrome::ClockAdjustment),
    }
    Ok(())
}

/// `time_adjustment`, which is signed.
fn moves(given: &MtutcReg) -> i32 {
    given.time_adjustment() as i32
}

/// Whether completions of a queue with this `ts_format` bear real time, on a function with this capability; `None` if
/// it has not that clock. The default is real time on a card that has it.
pub(super) fn bears_real_time(cap: u8, format: TimestampFormat) -> Option<bool> {
    let cap = TimestampCap::from_number(cap.into());
    match format {
        TimestampFormat::FreeRunning => (cap != TimestampCap::RealTime).then_some(false),
        TimestampFormat::Default => Some(cap != TimestampCap::FreeRunning),
        TimestampFormat::RealTime => (cap != TimestampCap::FreeRunning).then_some(true),
        TimestampFormat::Unknown(_) => None,
    }
}
