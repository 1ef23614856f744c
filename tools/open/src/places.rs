//! The addresses that keys have for the drivers' memory in a world. They are the world's own, not the process': the
//! same in each run, whatever else the process has, so that the commands and packets that carry them are the same.

use std::sync::atomic::{AtomicU64, Ordering};

/// Above all that a process can have, so that mixing them up fails, and below the IOVAs.
const FIRST: u64 = 1 << 48;
/// No address from here on is given out.
const END: u64 = 1 << 52;
/// What the larger of the allocations are aligned to.
const LARGEST_ALIGNMENT: u64 = 1 << 30;
/// Any host's page.
const PAGE: u64 = 1 << 16;

/// The addresses of one world, given out once each.
#[derive(Debug)]
pub(crate) struct Places {
    next: AtomicU64,
}

impl Places {
    pub(crate) fn new() -> Self {
        Places { next: AtomicU64::new(FIRST) }
    }

    /// A place for `len` bytes, at a multiple of the next power of two; `None` once they are all given out.
    pub(crate) fn take(&self, len: usize) -> Option<u64> {
        let len = len.max(1) as u64;
        let align = len.checked_next_power_of_two()?.clamp(PAGE, LARGEST_ALIGNMENT);
        let place_after = |next: u64| next.next_multiple_of(align);
        let end_after = |next| place_after(next).checked_add(len).filter(|end| *end <= END);
        let before = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end_after);
        before.ok().map(place_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_out_once_and_each_world_has_the_same() {
        let (first, second) = (Places::new(), Places::new());
        let taken = [5000, 1, 3 << 30].map(|len| first.take(len).unwrap());
        assert_eq!(taken, [5000, 1, 3 << 30].map(|len| second.take(len).unwrap()));
        assert!(taken[0] + 5000 <= taken[1] && taken[1] < taken[2], "{taken:x?}");
        assert_eq!((taken[0] % PAGE, taken[1] % PAGE, taken[2] % LARGEST_ALIGNMENT), (0, 0, 0));
        assert_eq!((first.take(usize::MAX), first.take(1 << 52)), (None, None));
        assert!(first.take(1).is_some(), "what was too much took nothing");
    }
}
