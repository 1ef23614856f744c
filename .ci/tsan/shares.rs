//! Two threads that add to one number: with a mutex (`--cfg locked`), often contended, or without one.

use std::cell::UnsafeCell;
use std::sync::{Barrier, Mutex};

struct Number(UnsafeCell<u64>);
// SAFETY: none without the mutex: that is what ThreadSanitizer is to find.
unsafe impl Sync for Number {}

fn main() {
    let (number, mutex, begin) = (Number(UnsafeCell::new(0)), Mutex::new(()), Barrier::new(2));
    let add = || {
        let number = &number;
        // Else the first may end before the second is created.
        begin.wait();
        // Long enough to run at the same time on a busy machine: else ThreadSanitizer may miss it.
        for _ in 0..if cfg!(locked) { 100_000 } else { 20_000_000 } {
            let _held = cfg!(locked).then(|| mutex.lock());
            // SAFETY: as above.
            unsafe { *number.0.get() += 1 };
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(add);
        scope.spawn(add);
    });
    // SAFETY: both threads have ended.
    std::hint::black_box(unsafe { *number.0.get() });
}
