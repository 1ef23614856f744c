//! Times of the card's clocks.

use std::time::Duration;

/// A time of the card's free-running clock in ticks, from an arbitrary start: of a completion, or from
/// [`Device::timestamp`](crate::Device::timestamp). [`ClockRate`] converts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub u64);

/// A time of the card's real-time clock, from [`Device::real_time`](crate::Device::real_time), or of a completion of a
/// queue that was created to bear it. It is UTC if somebody sets the clock and keeps it: on `devx:` the kernel, as its
/// PTP hardware clock. Seconds are 32 bits, as the card's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RealTime {
    /// Whole seconds since 1970.
    pub seconds: u32,
    /// Nanoseconds of the next one.
    pub nanoseconds: u32,
}

impl RealTime {
    /// The time of a completion of a queue with `real_time`. Of any other queue, it means nothing.
    pub fn of(timestamp: Timestamp) -> Self {
        RealTime { seconds: (timestamp.0 >> 32) as u32, nanoseconds: timestamp.0 as u32 }
    }

    /// The time `later` than this. It wraps as the card's, after 32 bits of seconds.
    pub fn after(self, later: Duration) -> Self {
        let sum = self.since_1970().saturating_add(later);
        RealTime { seconds: sum.as_secs() as u32, nanoseconds: sum.subsec_nanos() }
    }

    /// Time since 1970.
    pub fn since_1970(self) -> Duration {
        Duration::new(self.seconds.into(), self.nanoseconds)
    }
}

impl From<RealTime> for Timestamp {
    /// As in a completion of a queue with `real_time`.
    fn from(time: RealTime) -> Self {
        Timestamp(u64::from(time.seconds) << 32 | u64::from(time.nanoseconds))
    }
}

/// Rate of a card's clock, from [`Device::clock_rate`](crate::Device::clock_rate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRate {
    khz: u32,
}

/// A tick by a kHz is a millisecond.
const NANOS_OF_MILLISECOND: u128 = 1_000_000;

impl ClockRate {
    /// A rate; `None` for 0.
    pub(crate) fn of_khz(khz: u32) -> Option<Self> {
        (khz > 0).then_some(ClockRate { khz })
    }

    /// Ticks in a millisecond. PRM `device_frequency_khz`.
    pub fn khz(self) -> u32 {
        self.khz
    }

    /// Nanoseconds from the clock's start to `time`, rounded down. Differences of these are exact to one nanosecond.
    pub fn nanoseconds(self, time: Timestamp) -> u128 {
        u128::from(time.0) * NANOS_OF_MILLISECOND / u128::from(self.khz)
    }

    /// The time `later` than `time`, rounded up to a tick, also across the clock's wrap.
    pub fn after(self, time: Timestamp, later: Duration) -> Timestamp {
        let ticks = (later.as_nanos() * u128::from(self.khz)).div_ceil(NANOS_OF_MILLISECOND);
        Timestamp(time.0.wrapping_add(ticks as u64))
    }

    /// Time from `from` to `to`, also across the clock's wrap. `to` is the later one: the other way round it is a very
    /// long time.
    pub fn between(self, from: Timestamp, to: Timestamp) -> Duration {
        let nanos = self.nanoseconds(Timestamp(to.0.wrapping_sub(from.0)));
        let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        Duration::new(u64::try_from(seconds).unwrap_or(u64::MAX), rest as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds_whatever_the_rate() {
        // 78.125 MHz: 12.8 ns a tick, as on a ConnectX-4.
        let slow = ClockRate::of_khz(78_125).unwrap();
        assert_eq!((slow.nanoseconds(Timestamp(1)), slow.nanoseconds(Timestamp(10))), (12, 128));
        let giga = ClockRate::of_khz(1_000_000).unwrap();
        assert_eq!(giga.nanoseconds(Timestamp(u64::MAX)), u128::from(u64::MAX));
        assert_eq!(ClockRate::of_khz(0), None);
    }

    #[test]
    fn real_time_is_seconds_and_nanoseconds() {
        let time = RealTime::of(Timestamp(1_700_000_000 << 32 | 999_999_999));
        assert_eq!(time, RealTime { seconds: 1_700_000_000, nanoseconds: 999_999_999 });
        assert_eq!(Timestamp::from(time), Timestamp(1_700_000_000 << 32 | 999_999_999));
        assert_eq!(time.after(Duration::from_nanos(1)), RealTime { seconds: 1_700_000_001, nanoseconds: 0 });
        let last = RealTime { seconds: u32::MAX, nanoseconds: 0 };
        assert_eq!(last.after(Duration::from_secs(1)), RealTime::default());
        assert_eq!(time.since_1970(), Duration::new(1_700_000_000, 999_999_999));
    }

    #[test]
    fn a_duration_goes_across_the_wrap() {
        let rate = ClockRate::of_khz(1_000_000).unwrap();
        assert_eq!(rate.between(Timestamp(u64::MAX - 4), Timestamp(5)), Duration::from_nanos(10));
        let years = ClockRate::of_khz(1).unwrap().between(Timestamp(0), Timestamp(u64::MAX));
        assert_eq!(years, Duration::from_millis(u64::MAX));
    }
}
