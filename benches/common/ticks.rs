//! The time stamp counter, which counts instructions under QEMU's `-icount`.

use std::sync::atomic::{Ordering, compiler_fence};

/// The counter now.
#[inline(always)]
pub fn ticks() -> u64 {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    let now = unsafe { std::arch::x86_64::_rdtsc() };
    compiler_fence(Ordering::SeqCst);
    now
}

/// Ticks between two reads of the counter.
pub fn of_nothing() -> u64 {
    let before = ticks();
    ticks() - before
}
