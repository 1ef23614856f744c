//! Copies between ordinary memory and memory that a device, or another thread, may access at the same time.
//!
//! A plain `memcpy` of such memory is undefined behaviour in Rust, and the compiler may split or repeat it. These copies go
//! by relaxed atomic quadwords and bytes, which compile to plain loads and stores, each carried out exactly once.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Copies `from` to the memory at `to`.
///
/// # Safety
/// `from.len()` bytes from `to` on are mapped, writable, and accessed by this process through atomics or volatile
/// accesses only.
pub(super) unsafe fn copy_in(to: *mut u8, from: &[u8]) {
    let head = to.align_offset(8).min(from.len());
    let (first, rest) = from.split_at(head);
    let words = rest.chunks_exact(8);
    let tail = words.remainder();
    // SAFETY: every address is in range by the caller's promise; quadwords start where the alignment allows.
    unsafe {
        bytes_in(to, first);
        let mut at = to.add(head);
        for word in words {
            let word = u64::from_ne_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
            AtomicU64::from_ptr(at.cast()).store(word, Relaxed);
            at = at.add(8);
        }
        bytes_in(at, tail);
    }
}

/// # Safety
/// As for [`copy_in`].
unsafe fn bytes_in(to: *mut u8, from: &[u8]) {
    for (i, &byte) in from.iter().enumerate() {
        // SAFETY: in range by the caller's promise.
        unsafe { AtomicU8::from_ptr(to.add(i)) }.store(byte, Relaxed);
    }
}

/// Copies from the memory at `from`.
///
/// # Safety
/// As for [`copy_in`], but readable.
pub(super) unsafe fn copy_out(from: *mut u8, to: &mut [u8]) {
    let head = from.align_offset(8).min(to.len());
    let (first, rest) = to.split_at_mut(head);
    // SAFETY: as in `copy_in`.
    unsafe {
        bytes_out(from, first);
        let mut at = from.add(head);
        let mut words = rest.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&AtomicU64::from_ptr(at.cast()).load(Relaxed).to_ne_bytes());
            at = at.add(8);
        }
        bytes_out(at, words.into_remainder());
    }
}

/// # Safety
/// As for [`copy_out`].
unsafe fn bytes_out(from: *mut u8, to: &mut [u8]) {
    for (i, byte) in to.iter_mut().enumerate() {
        // SAFETY: in range by the caller's promise.
        *byte = unsafe { AtomicU8::from_ptr(from.add(i)) }.load(Relaxed);
    }
}

/// Fills `len` bytes from `to` on with `byte`.
///
/// # Safety
/// As for [`copy_in`].
pub(super) unsafe fn fill(mut to: *mut u8, byte: u8, mut len: usize) {
    let block = [byte; 256];
    while len > 0 {
        let now = len.min(block.len());
        // SAFETY: in range by the caller's promise.
        unsafe {
            copy_in(to, &block[..now]);
            to = to.add(now);
        }
        len -= now;
    }
}
