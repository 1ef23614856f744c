//! Where the drivers' memory lies: at the same addresses in each run, so that the commands that carry them are the
//! same.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Addresses that neither programs nor their libraries are put at, on x86-64 and aarch64.
const FIRST: usize = 0x1000_0000_0000;
/// Address space of one world.
const SIZE: usize = 1 << 36;
/// What the larger of the allocations are aligned to.
const LARGEST_ALIGNMENT: usize = 1 << 30;
/// Any host's page.
const PAGE: usize = 1 << 16;

/// The worlds there are now, by number: the lowest free one is the next one's.
static WORLDS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// One world's addresses, given out once each.
#[derive(Debug)]
pub(crate) struct Places {
    world: usize,
    next: Mutex<usize>,
}

impl Places {
    pub(crate) fn new() -> Arc<Self> {
        let mut worlds = lock(&WORLDS);
        let world = (0..).find(|world| !worlds.contains(world)).unwrap_or_default();
        worlds.insert(world);
        Arc::new(Places { world, next: Mutex::new(FIRST + world * SIZE) })
    }

    /// A place for `len` bytes; `None` once they are all given out.
    pub(crate) fn take(&self, len: usize) -> Option<NonNull<u8>> {
        let mut next = lock(&self.next);
        let place = next.next_multiple_of(len.max(1).next_power_of_two().clamp(PAGE, LARGEST_ALIGNMENT));
        let end = place.checked_add(len)?;
        if end > FIRST + (self.world + 1) * SIZE {
            return None;
        }
        *next = end;
        NonNull::new(std::ptr::without_provenance_mut(place))
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        lock(&WORLDS).remove(&self.world);
    }
}

/// What is behind it, whatever happened to who had it last.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_world_has_its_own_and_the_next_gets_the_same_again() {
        let (first, second) = (Places::new(), Places::new());
        let taken = [first.take(5000), first.take(1), second.take(5000)].map(|place| place.unwrap().addr().get());
        assert_eq!((taken[0] % PAGE, taken[1] % PAGE), (0, 0));
        assert!(taken[1] >= taken[0] + 5000 && taken[2] >= taken[0] + SIZE, "{taken:x?}");
        drop(first);
        let again = Places::new().take(5000).unwrap().addr().get();
        assert_eq!(again, taken[0]);
        assert_eq!(second.take(SIZE), None);
    }
}
