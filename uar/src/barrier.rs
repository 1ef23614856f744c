//! Barriers between this processor and the card.
//!
//! Rust's atomics order memory between threads. They say nothing of a device, which sees memory through PCIe reads and
//! writes (DMA) and sees registers through posted writes. Each place where the order of those matters has a name here;
//! use the name, it is the documentation.
//!
//! Two observers are in play: *this processor*, whose program order is the reference, and *the card*, which reads
//! memory when a register tells it to and writes memory whenever it likes. A barrier never waits for the card: it only
//! forbids an order of observation.
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
//! x86-64 keeps stores to ordinary and to uncached memory in program order, and loads of ordinary memory as well
//! (Linux's `dma_rmb` is a compiler barrier there, too; no load here is non-temporal), so most only have to stop the
//! compiler. Stores to write-combining memory are the exception: they wait in a buffer of the processor, and only
//! `sfence` orders that buffer. aarch64 promises nothing by itself; `osh` is the domain that devices belong to. There
//! is no build for other processors: what orders a device's view of memory there is not known here.

#[cfg(not(miri))]
use core::arch::asm;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the barriers between processor and card are written for x86-64 and aarch64 only");

/// Stops the compiler from moving memory accesses across.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
fn compiler() {
    // An interpreter knows no instructions.
    #[cfg(miri)]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(not(miri))]
    // SAFETY: no instruction at all; without `nomem` the compiler must assume that all memory is read and written.
    unsafe {
        asm!("", options(nostack, preserves_flags))
    }
}

/// Stores before it are visible to the card when it reacts to anything stored after it.
///
/// Guarantee: a DMA read that the card issues because of a later store (a doorbell record it polls, a register it is
/// rung by) returns what this processor stored before the barrier. Ordinary (write-back) memory only: a caller that
/// fills buffers by non-temporal stores fences those itself.
///
/// Observers: this processor's stores to WQEs and buffers; the card's DMA reads of them.
///
/// Callers: a send or receive queue between its WQEs and its doorbell record; the command queue between an entry and
/// its doorbell.
#[inline(always)]
pub fn to_device() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction; touches no register, no stack.
    unsafe {
        asm!("dmb oshst", options(nostack, preserves_flags))
    }
    #[cfg(not(target_arch = "aarch64"))]
    compiler();
}

/// Stores before it are visible to the card no later than stores after it, all in memory.
///
/// Guarantee: a card that sees a later store also sees every earlier one. Nothing is said about when.
///
/// Observers: this processor's two stores; the card's DMA reads of both places.
///
/// Callers: whoever writes an entry and then its valid or ownership bit: the command queue, and a CQ ring that is being
/// initialised before the card learns of it.
#[inline(always)]
pub fn order_writes() {
    to_device();
}

/// The doorbell record before it is visible to the card when a register store after it arrives, on an *uncached* page.
///
/// Guarantee: a card rung by the later register store reads the earlier doorbell record, not an older one.
///
/// Observers: this processor's store to the record and to the register; the card, which receives the register write and
/// then reads the record.
///
/// Callers: [`Plain`](crate::Plain).
#[inline(always)]
pub fn before_doorbell() {
    to_device();
}

/// As [`before_doorbell`], on a *write-combining* page; also keeps the store that follows from combining with what an
/// earlier ring left in the buffer.
///
/// Guarantee: everything stored before (record, WQE, earlier rings) is on its way to the card before the next store to
/// the write-combining page is.
///
/// Observers: this processor's write-combining buffer; the card, which receives its content as PCIe writes.
///
/// Callers: [`BlueFlame`](crate::BlueFlame).
#[inline(always)]
pub fn before_wc() {
    flush_wc();
}

/// Empties the write-combining buffers: the stores before it leave the processor now, and combine with none after it.
///
/// Guarantee: two rings with this between them arrive as two, in order. Without it the processor may keep the first
/// back for long, or replace it by the second.
///
/// Observers: this processor's write-combining buffer; the card, which receives its content as PCIe writes.
///
/// Callers: [`BlueFlame`](crate::BlueFlame), after each ring and before it moves to the other buffer;
/// [`Shared`](crate::Shared) before its lock is given up, lest another processor's later ring overtakes.
#[inline(always)]
pub fn flush_wc() {
    #[cfg(miri)]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a fence instruction; touches no register, no stack.
    unsafe {
        asm!("sfence", options(nostack, preserves_flags))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        asm!("dsb st", options(nostack, preserves_flags))
    }
}

/// Loads after it see what the card wrote before the store that a load before it saw.
///
/// Guarantee: having seen an ownership bit that says "yours", this processor reads the rest of the entry, and the
/// buffers the entry speaks of, as the card wrote them before the bit: no load is carried out early.
///
/// Observers: the card's DMA writes (data first, ownership last); this processor's loads.
///
/// Callers: a completion queue between the owner bit of a CQE and the copy of the rest; the event queue and the command
/// queue likewise.
#[inline(always)]
pub fn from_device() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction; touches no register, no stack.
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags))
    }
    #[cfg(not(target_arch = "aarch64"))]
    compiler();
}

/// Loads before it are done when the card sees what is stored after it.
///
/// Guarantee: an entry that was read before the barrier is not overwritten by a card that the later store (a consumer
/// index) allows to: no load is carried out late. Load before store, which a barrier of stores does not order.
///
/// Observers: this processor's loads; the card, which reads the index and then writes by DMA.
///
/// Callers: a completion queue between the copy of a CQE and the consumer index that gives its place back; the event
/// queue likewise.
#[inline(always)]
pub fn before_reuse() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction; touches no register, no stack.
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags))
    }
    #[cfg(not(target_arch = "aarch64"))]
    compiler();
}
