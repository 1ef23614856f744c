//! The real-time clock: time since 1970, as the driver sets and steers it. PRM `mtutc_reg`.
//!
//! Each function has its own, which nobody else steers. It counts from zero at power-on and reset until it is set.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use mlx5_prm::caps::TimestampCap;

use crate::profile::Profile;

const BILLION: i128 = 1_000_000_000;

/// How much faster a clock is than another: in billionths over 2^16, as firmware takes billionths, and millionths over
/// 2^16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate(i64);

impl Rate {
    /// Parts of a [`Rate`] in 1.
    const WHOLE: i128 = BILLION << 16;

    pub(crate) fn of_billionths(parts: i32) -> Self {
        Rate(i64::from(parts) << 16)
    }

    /// `parts` of a millionth over 2^16.
    pub(crate) fn of_scaled_millionths(parts: i32) -> Self {
        Rate(i64::from(parts) * 1000)
    }
}

/// Time of day. It follows the card's clock at a rate that can be adjusted.
#[derive(Debug)]
pub struct RealTime {
    /// Its time at `since`, in nanoseconds.
    base: u128,
    since: Instant,
    /// How much faster it is than the card's clock.
    rate: Rate,
    /// The queue pairs and Ethernet queues whose completions bear it.
    queues: HashSet<u32>,
}

impl RealTime {
    /// log2 of the largest adjustment of its frequency, in billionths.
    pub const LOG_MAX_ADJUSTMENT: u8 = 26;
    /// Nanoseconds that it can be moved by without being set.
    pub const MAX_MOVE: i32 = 200_000;

    pub(crate) fn new(now: Instant) -> Self {
        RealTime { base: 0, since: now, rate: Rate(0), queues: HashSet::new() }
    }

    /// Nanoseconds at `now`.
    fn nanos(&self, now: Instant) -> u128 {
        let passed = now.saturating_duration_since(self.since).as_nanos();
        let gained = passed as i128 * i128::from(self.rate.0) / Rate::WHOLE;
        (self.base + passed).saturating_add_signed(gained)
    }

    /// Its time, as in completions and in the initialization segment: seconds, and nanoseconds in the lower half.
    pub fn at(&self, now: Instant) -> u64 {
        const SECOND: u128 = 1_000_000_000;
        let nanos = self.nanos(now);
        // The card counts 32 bits of seconds.
        u64::from((nanos / SECOND) as u32) << 32 | (nanos % SECOND) as u64
    }

    /// How much of the card's time `left` of its time takes at least, at its rate.
    pub(crate) fn time_of(&self, left: Duration) -> Duration {
        let (nanos, rate) = (left.as_nanos().cast_signed(), Rate::WHOLE + i128::from(self.rate.0));
        // At most 2^62 nanoseconds of 2^46 parts, rounded up, and once more for what its reading rounds.
        let whole = nanos * Rate::WHOLE / rate + 2;
        Duration::from_nanos(u64::try_from(whole).unwrap_or(u64::MAX))
    }

    /// Whether the completions of queue `number` bear it.
    pub(crate) fn is_borne_by(&self, number: u32) -> bool {
        self.queues.contains(&number)
    }

    /// A new queue: whether its completions bear it.
    pub(crate) fn enlist(&mut self, number: u32, bears: bool) {
        if bears {
            self.queues.insert(number);
        } else {
            self.queues.remove(&number);
        }
    }

    /// Sets it.
    pub(crate) fn set(&mut self, time: Duration, now: Instant) {
        (self.base, self.since) = (time.as_nanos(), now);
    }

    /// Moves it. It does not go below zero.
    pub(crate) fn shift(&mut self, nanos: i32, now: Instant) {
        let moved = self.nanos(now).saturating_add_signed(i128::from(nanos));
        (self.base, self.since) = (moved, now);
    }

    /// Makes it faster or slower from now on. False, with nothing changed, if that is too much.
    pub(crate) fn adjust(&mut self, rate: Rate, now: Instant) -> bool {
        if rate.0.unsigned_abs() > 1 << (Self::LOG_MAX_ADJUSTMENT + 16) {
            return false;
        }
        self.shift(0, now);
        self.rate = rate;
        true
    }
}

/// Whether cards of this profile have a real-time clock.
pub(crate) fn is_announced(profile: &Profile) -> bool {
    profile.general_max.rq_ts_format() != TimestampCap::FreeRunning.number() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds and nanoseconds.
    fn read(clock: &RealTime, now: Instant) -> (u64, u64) {
        let time = clock.at(now);
        (time >> 32, time & 0xffff_ffff)
    }

    #[test]
    fn it_is_set_moved_and_steered() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut clock = RealTime::new(start);
        assert_eq!(read(&clock, start + Duration::from_millis(2500)), (2, 500_000_000));
        clock.set(Duration::new(1_700_000_000, 999_999_999), at(3));
        assert_eq!(read(&clock, at(3) + Duration::from_nanos(1)), (1_700_000_001, 0));
        clock.shift(-200_000, at(4));
        assert_eq!(read(&clock, at(4)), (1_700_000_001, 999_799_999));
        clock.set(Duration::from_secs(10), at(10));
        assert!(clock.adjust(Rate::of_billionths(-100_000), at(10)));
        assert_eq!(read(&clock, at(20)), (19, 999_000_000));
        // What has been gained and lost stays so.
        assert!(clock.adjust(Rate::of_billionths(0), at(20)));
        assert_eq!(read(&clock, at(30)), (29, 999_000_000));
        // Less than a billionth counts: 46 us in 10^6 seconds.
        assert!(clock.adjust(Rate::of_scaled_millionths(3), at(30)));
        assert_eq!(read(&clock, at(1_000_030)), (1_000_029, 999_045_776));
        for rate in [0, 1_000_000, -1_000_000, (1 << 26) - 1, 1 - (1 << 26)] {
            clock.set(Duration::ZERO, start);
            assert!(clock.adjust(Rate::of_billionths(rate), start));
            let passed = clock.time_of(Duration::from_millis(1));
            let shown = clock.at(start + passed);
            assert!((1_000_000..1_000_004).contains(&shown), "{shown} at {rate}, after {passed:?}");
        }
        let most = 1 << RealTime::LOG_MAX_ADJUSTMENT;
        let mut takes = |parts| clock.adjust(Rate::of_billionths(parts), at(30));
        assert!(takes(most) && !takes(most + 1) && !takes(i32::MIN));
        assert!(clock.adjust(Rate::of_scaled_millionths(i32::MIN), at(30)), "half of the most");
    }

    #[test]
    fn it_does_not_go_below_zero_and_wraps_after_32_bits_of_seconds() {
        let start = Instant::now();
        let mut clock = RealTime::new(start);
        clock.shift(-5, start);
        assert_eq!(clock.at(start), 0);
        clock.set(Duration::from_secs(u32::MAX.into()), start);
        assert_eq!(read(&clock, start + Duration::from_secs(1)), (0, 0));
    }
}
