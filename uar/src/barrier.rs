//! Barriers between the CPU and the card.
//!
//! Rust's atomics order memory between threads. They do not cover devices, which access memory by PCIe reads and writes
//! (DMA) and receive register stores as posted writes. Every place where that order matters uses a named barrier of
//! this module; the name is its documentation.
//!
//! There are two observers: *this CPU*, whose program order is the reference, and *the card*, which reads memory after
//! a register write and may write memory at any time. A barrier never waits for the card: it only orders what each
//! observer sees.
//!
//! | barrier | between | and | x86-64 | aarch64 |
//! | --- | --- | --- | --- | --- |
//! | [`to_device`] | stores to memory | a later record or register that makes the card read them | compiler only | `dmb oshst` |
//! | [`order_writes`] | a store to memory | a later store to memory | compiler only | `dmb oshst` |
//! | [`before_doorbell`] | the doorbell record | a register of an uncached page | compiler only | `dmb oshst` |
//! | [`before_wc`] | the doorbell record | a register of a write-combining page | `sfence` | `dsb st` |
//! | [`flush_wc`] | a register of a write-combining page | the next one | `sfence` | `dsb st` |
//! | [`from_device`] | the load that saw an owner bit | loads of what the owner bit guards | compiler only | `dmb oshld` |
//! | [`before_reuse`] | loads of an entry | a later record or register that lets the card overwrite it | compiler only | `dmb oshld` |
//!
//! x86-64 keeps stores to ordinary and uncached memory in program order, and loads of ordinary memory too (Linux's
//! `dma_rmb` is a compiler barrier there; no load here is non-temporal), so most barriers only stop the compiler.
//! Stores to write-combining memory are the exception: they wait in a CPU buffer that only `sfence` orders. aarch64
//! guarantees no order by itself; `osh` is the shareability domain of devices. Other architectures are not supported,
//! since their ordering towards devices is not known here.

#[cfg(not(miri))]
use core::arch::asm;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the barriers between CPU and card support only x86-64 and aarch64");

/// Stops the compiler from moving memory accesses across.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
fn compiler() {
    // Miri does not support instructions.
    #[cfg(miri)]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(not(miri))]
    // SAFETY: no instruction; without `nomem` the compiler must assume that all memory is read and written.
    unsafe {
        asm!("", options(nostack, preserves_flags))
    }
}

/// Stores before it are visible to the card when it reacts to any store after it.
///
/// Guarantee: a DMA read that the card issues because of a later store (to a doorbell record that it polls, or to a
/// register) returns what this CPU stored before the barrier. For ordinary (write-back) memory only: a caller that uses
/// non-temporal stores must fence them itself.
///
/// Observers: this CPU's stores to WQEs and buffers; the card's DMA reads of them.
///
/// Callers: a send or receive queue between its WQEs and its doorbell record; the command queue between an entry and
/// its doorbell.
#[inline(always)]
pub fn to_device() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction; uses no register and no stack.
    unsafe {
        asm!("dmb oshst", options(nostack, preserves_flags))
    }
    #[cfg(not(target_arch = "aarch64"))]
    compiler();
}

/// Stores before it are visible to the card no later than stores after it; for memory only.
///
/// Guarantee: a card that sees a later store also sees all earlier ones. It does not say when.
///
/// Observers: this CPU's two stores; the card's DMA reads of both locations.
///
/// Callers: writers of an entry and then its valid or ownership bit: the command queue, and a CQ ring that is
/// initialised before the card knows it.
#[inline(always)]
pub fn order_writes() {
    to_device();
}

/// The doorbell record is visible to the card when a later register store arrives, on an *uncached* page.
///
/// Guarantee: a card that receives the register store reads this doorbell record, not an older one.
///
/// Observers: this CPU's stores to record and register; the card, which receives the register write and then reads the
/// record.
///
/// Callers: [`Plain`](crate::Plain).
#[inline(always)]
pub fn before_doorbell() {
    to_device();
}

/// As [`before_doorbell`], on a *write-combining* page. It also prevents the next store from being combined with data
/// of an earlier ring in the buffer.
///
/// Guarantee: everything stored before (record, WQE, earlier rings) leaves for the card before the next store to the
/// write-combining page does.
///
/// Observers: this CPU's write-combining buffer; the card, which receives its content as PCIe writes.
///
/// Callers: [`BlueFlame`](crate::BlueFlame).
#[inline(always)]
pub fn before_wc() {
    flush_wc();
}

/// Flushes the write-combining buffers: earlier stores leave the CPU now, and are not combined with later ones.
///
/// Guarantee: two rings with this barrier between them arrive as two, in order. Without it the CPU may delay the first
/// one, or replace it by the second.
///
/// Observers: this CPU's write-combining buffer; the card, which receives its content as PCIe writes.
///
/// Callers: [`BlueFlame`](crate::BlueFlame), after each ring and before it switches to the other buffer;
/// [`Shared`](crate::Shared), before it releases its lock, so that a later ring of another CPU cannot overtake.
#[inline(always)]
pub fn flush_wc() {
    #[cfg(miri)]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a fence instruction; uses no register and no stack.
    unsafe {
        asm!("sfence", options(nostack, preserves_flags))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("dsb st", options(nostack, preserves_flags))
    }
}

/// Loads after it see what the card wrote before the store that an earlier load saw.
///
/// Guarantee: after this CPU has seen an ownership bit in its favour, it reads the rest of the entry, and the buffers
/// that the entry describes, as the card wrote them before the bit: no load is executed early.
///
/// Observers: the card's DMA writes (data first, ownership last); this CPU's loads.
///
/// Callers: a completion queue between the owner bit of a CQE and the copy of the rest; the event queue and the command
/// queue in the same way.
#[inline(always)]
pub fn from_device() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction; uses no register and no stack.
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags))
    }
    #[cfg(not(target_arch = "aarch64"))]
    compiler();
}

/// Loads before it are complete when the card sees a store after it.
///
/// Guarantee: the card does not overwrite an entry that was read before the barrier because of the later store (a
/// consumer index): no load is executed late. This is load before store, which a store barrier does not order.
///
/// Observers: this CPU's loads; the card, which reads the index and then writes by DMA.
///
/// Callers: a completion queue between the copy of a CQE and the consumer index that releases it; the event queue in
/// the same way.
#[inline(always)]
pub fn before_reuse() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction; uses no register and no stack.
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags))
    }
    #[cfg(not(target_arch = "aarch64"))]
    compiler();
}
