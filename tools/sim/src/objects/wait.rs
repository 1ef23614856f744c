//! Waiting for a time. PRM "Wait on Data Segment", with opmod TIME.

use std::time::Duration;

use mlx5_prm::wqe::{WaitCondition, WaitSeg};

/// A work request that holds its queue until a clock has passed a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWait {
    value: u64,
    /// Low bits of both that are compared: at least one.
    mask: u64,
    /// They are numbers that wrap.
    is_cyclic: bool,
}

impl TimeWait {
    /// The wait of `segment`, on a clock of seconds and nanoseconds if `is_real_time`. `None` if no such wait ends by
    /// time: other conditions, or a mask that is not of low bits, of whole nanoseconds at least.
    pub(crate) fn of(segment: &WaitSeg, is_real_time: bool) -> Option<Self> {
        let (value, mask) = (segment.value(), segment.mask());
        let least = if is_real_time { u64::from(u32::MAX) } else { 1 };
        if segment.invert() || mask < least || mask & mask.wrapping_add(1) != 0 {
            return None;
        }
        match WaitCondition::from_number(segment.operation().into()) {
            WaitCondition::Smaller => Some(TimeWait { value, mask, is_cyclic: false }),
            WaitCondition::CyclicSmaller => Some(TimeWait { value, mask, is_cyclic: true }),
            _ => None,
        }
    }

    /// Whether a clock that shows `clock` has passed the time.
    pub fn is_over(self, clock: u64) -> bool {
        match self.is_cyclic {
            true => (1..=self.mask / 2).contains(&(clock.wrapping_sub(self.value) & self.mask)),
            false => self.value & self.mask < clock & self.mask,
        }
    }

    /// Ticks until a clock of ticks has passed the time, which it has not.
    pub fn ticks_left(self, clock: u64) -> u64 {
        (self.value.wrapping_sub(clock) & self.mask).saturating_add(1)
    }

    /// The same of a clock of seconds, and nanoseconds in the lower half.
    pub fn time_left(self, clock: u64) -> Duration {
        const SECOND: u64 = 1_000_000_000;
        let seconds = (self.value >> 32).wrapping_sub(clock >> 32) & self.mask >> 32;
        let until = seconds * SECOND + u64::from(self.value as u32) + 1;
        Duration::from_nanos(until.saturating_sub(clock as u32 as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(operation: WaitCondition, value: u64, mask: u64) -> WaitSeg {
        let mut segment = WaitSeg::default();
        segment.w().operation(operation.number() as u8).value(value).mask(mask);
        segment
    }

    fn wait(value: u64, mask: u64) -> TimeWait {
        TimeWait::of(&segment(WaitCondition::CyclicSmaller, value, mask), false).unwrap()
    }

    #[test]
    fn a_wait_ends_when_the_clock_has_passed_it_also_where_the_clock_wraps() {
        for value in [100, 0, 0xffff_fff0] {
            let wait = wait(value, 0xffff);
            for (gone, is_over) in [(0, false), (1, true), (0x7fff, true), (0x8000, false), (0xffff, false)] {
                assert_eq!(wait.is_over(value.wrapping_add(gone)), is_over, "{value} after {gone}");
            }
            assert!(!wait.is_over(value.wrapping_sub(1)));
            assert_eq!(wait.ticks_left(value.wrapping_sub(10)), 11);
            assert!(wait.is_over(value.wrapping_sub(10).wrapping_add(11)));
        }
        let straight = TimeWait::of(&segment(WaitCondition::Smaller, 100, 0xffff), false).unwrap();
        assert!(!straight.is_over(100) && straight.is_over(101) && straight.is_over(0xffff));
    }

    #[test]
    fn seconds_and_nanoseconds_are_left() {
        let at = |seconds: u64, nanos: u64| seconds << 32 | nanos;
        let wait = wait(at(17, 5), at(8, 0) - 1);
        for (clock, left) in
            [(at(17, 5), 1), (at(17, 3), 3), (at(16, 999_999_999), 7), (at(14, 500_000_000), 2_500_000_006)]
        {
            assert!(!wait.is_over(clock));
            assert_eq!(wait.time_left(clock), Duration::from_nanos(left));
        }
        assert!(wait.is_over(at(17, 6)) && wait.is_over(at(18, 0)) && wait.is_over(at(20, 999_999_999)));
    }

    #[test]
    fn what_does_not_end_by_time_is_no_wait() {
        let is_one = |segment: &WaitSeg, is_real_time| TimeWait::of(segment, is_real_time).is_some();
        for operation in [WaitCondition::AlwaysTrue, WaitCondition::Equal, WaitCondition::Bigger] {
            assert!(!is_one(&segment(operation, 1, u64::MAX), false), "{operation}");
        }
        let mut inverted = segment(WaitCondition::Smaller, 1, u64::MAX);
        inverted.w().invert(true);
        assert!(!is_one(&inverted, false));
        for (mask, ticks, nanoseconds) in [
            (0, false, false),
            (1, true, false),
            (0xff00, false, false),
            (u64::from(u32::MAX) >> 1, true, false),
            (u64::from(u32::MAX), true, true),
            (u64::MAX, true, true),
        ] {
            let segment = segment(WaitCondition::CyclicSmaller, 1, mask);
            assert_eq!((is_one(&segment, false), is_one(&segment, true)), (ticks, nanoseconds), "{mask:#x}");
        }
    }
}
