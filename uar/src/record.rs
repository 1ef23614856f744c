//! Doorbell records: big-endian dwords in memory that the card reads to learn how far software is. PRM "Doorbell
//! Record".
//!
//! A queue pair's record is two dwords: receive counter first, send counter second. A card that finds the send counter
//! in the first does nothing and says nothing, so each dword is a type of its own:
//!
//! ```compile_fail,E0308
//! fn ring(receive: uar::ReceiveRecord) {
//!     fn post_send(_: &uar::SendRecord) {}
//!     post_send(&receive); // a receive record is no send record
//! }
//! ```
//!
//! ```text
//!            dword 0                          dword 1
//! QP   [ receive WQEs posted (16) ]  [ send WQEBBs posted (16) ]
//! CQ   [ CQEs consumed (24)       ]  [ sn | command | CQEs consumed at arming (24) ]
//! ```
//!
//! Each dword is stored and loaded as a relaxed atomic: other threads may read a record while its owner counts on. What
//! is ordered against it is the work of the [barriers](crate::barrier), for the card, and of locks, for threads.

use core::fmt;
use core::ptr::NonNull;

use crate::events::Arm;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Bytes of any doorbell record.
pub const RECORD: usize = 8;

/// `place.store(value, Relaxed)`, as the one instruction that it is.
///
/// Not that call: LLVM takes a relaxed store of Rust's for one that may change any memory, and then loads a queue's
/// numbers anew that it had in registers, three instructions a completion. To other threads, and to loads that are
/// Rust's atomics, there is no difference: an aligned store of a dword is what both processors make of the call.
#[inline(always)]
fn store_relaxed(place: &AtomicU32, value: u32) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    // SAFETY: stores a dword that is aligned and may be stored to through a shared reference; no stack, no flags.
    unsafe {
        core::arch::asm!("mov dword ptr [{}], {:e}", in(reg) place.as_ptr(), in(reg) value, options(nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("str {1:w}, [{0}]", in(reg) place.as_ptr(), in(reg) value, options(nostack, preserves_flags));
    }
    #[cfg(any(miri, loom))]
    place.store(value, Relaxed);
}

macro_rules! record {
    ($(#[$meta:meta])* $Name:ident) => {
        $(#[$meta])*
        pub struct $Name(NonNull<AtomicU32>);

        // SAFETY: the record's memory stays mapped by the promise of its constructor, and is only accessed as atomic
        // dwords.
        unsafe impl Send for $Name {}

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:p})", stringify!($Name), self.0)
            }
        }

        impl $Name {
            /// Stores to the dword that is this half's, or a record's first.
            #[inline(always)]
            fn store(&self, value: u32) {
                // SAFETY: mapped, aligned and accessed as atomic dwords only, by the constructor's promise.
                store_relaxed(unsafe { self.0.as_ref() }, value.to_be());
            }
        }
    };
}

record! {
    /// The send half of a queue pair's record, dword 1.
    SendRecord
}
record! {
    /// The receive half of a queue pair's record, dword 0.
    ReceiveRecord
}
record! {
    /// A completion queue's record.
    CqRecord
}

/// The two halves of the queue pair record at `address`.
///
/// # Safety
/// `address` is aligned to 8 bytes; the 8 bytes from it are memory that stays mapped until both halves are gone.
/// Meanwhile this process stores there through them alone, and loads each dword as a relaxed atomic or not at all.
pub unsafe fn queue_pair(address: NonNull<u8>) -> (ReceiveRecord, SendRecord) {
    let receive = address.cast::<AtomicU32>();
    // SAFETY: the second of the record's two dwords.
    (ReceiveRecord(receive), SendRecord(unsafe { receive.add(1) }))
}

impl SendRecord {
    /// Says that `counter` WQEBBs have been posted in all, modulo 2^16. [`to_device`](crate::barrier::to_device) first.
    #[inline(always)]
    pub fn post(&mut self, counter: u16) {
        self.store(counter.into());
    }
}

impl ReceiveRecord {
    /// Says that `counter` receive WQEs have been posted in all, modulo 2^16. [`to_device`](crate::barrier::to_device)
    /// first.
    #[inline(always)]
    pub fn post(&mut self, counter: u16) {
        self.store(counter.into());
    }
}

impl CqRecord {
    /// The completion queue record at `address`.
    ///
    /// # Safety
    /// As for [`queue_pair`].
    pub unsafe fn new(address: NonNull<u8>) -> Self {
        CqRecord(address.cast())
    }

    /// Says that `counter` CQEs have been consumed in all; the card may overwrite them. Only the low 24 bits travel.
    #[inline(always)]
    pub fn consume(&mut self, counter: u32) {
        self.store(counter & 0xff_ffff);
    }

    /// How many CQEs the record at `address` says were consumed, modulo 2^24. Any thread may ask.
    ///
    /// # Safety
    /// `address` is aligned to 8 bytes, the 8 bytes from it are mapped, and whoever stores there meanwhile is a
    /// [`CqRecord`].
    pub unsafe fn consumed(address: NonNull<u8>) -> u32 {
        // SAFETY: mapped, aligned, and stored to by atomic dwords only, by the caller's promise.
        let consumed = unsafe { address.cast::<AtomicU32>().as_ref() };
        u32::from_be(consumed.load(Relaxed)) & 0xff_ffff
    }

    /// Says which event is wanted; [`CqDoorbell::arm`](crate::CqDoorbell::arm) tells the card to look.
    #[inline(always)]
    pub fn request(&mut self, arm: Arm) {
        // SAFETY: the second of the record's two dwords, as the first by the constructor's promise.
        store_relaxed(unsafe { self.0.add(1).as_ref() }, arm.dword().to_be());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::UnsafeCell;

    fn dwords(memory: &UnsafeCell<[u64; 1]>) -> [u32; 2] {
        // SAFETY: the records of these tests are not in use while this reads.
        let bytes = unsafe { core::ptr::read_volatile(memory.get()) }[0].to_ne_bytes();
        let dword = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        [dword(0), dword(4)]
    }

    fn address(memory: &UnsafeCell<[u64; 1]>) -> NonNull<u8> {
        NonNull::new(memory.get().cast()).unwrap()
    }

    #[test]
    fn send_counter_lands_in_dword_one_and_receive_counter_in_dword_zero() {
        let memory = UnsafeCell::new([0]);
        // SAFETY: aligned, and lives to the end of the test.
        let (mut receive, mut send) = unsafe { queue_pair(address(&memory)) };
        send.post(0x1234);
        assert_eq!(dwords(&memory), [0, 0x1234]);
        receive.post(0xffff);
        assert_eq!(dwords(&memory), [0xffff, 0x1234]);
    }

    #[test]
    fn cq_record_carries_24_bits_and_the_arm_request() {
        let memory = UnsafeCell::new([0]);
        // SAFETY: aligned, and lives to the end of the test.
        let mut record = unsafe { CqRecord::new(address(&memory)) };
        record.consume(0x0100_0007);
        record.request(Arm::solicited(0x0100_0007, 2));
        assert_eq!(dwords(&memory), [7, 0x2100_0007]);
        // SAFETY: as above.
        assert_eq!(unsafe { CqRecord::consumed(address(&memory)) }, 7);
    }
}

/// Every order of two threads' steps, by loom: `.ci/races`.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use alloc::boxed::Box;

    /// Who polls counts on, and who destroys a queue pair looks how far it is: never back, and never past the end.
    /// After it has heard by another way that an entry was polled, it sees so.
    #[test]
    fn a_consumer_index_is_read_while_its_owner_counts() {
        loom::model(|| {
            let memory = Box::leak(Box::new([AtomicU32::new(0), AtomicU32::new(0)]));
            let address = NonNull::from(&mut *memory).cast::<u8>();
            // SAFETY: two dwords, accessed as such; freed below, when both threads are done.
            let mut record = unsafe { CqRecord::new(address) };
            let told = loom::sync::Arc::new(loom::sync::atomic::AtomicBool::new(false));
            let tell = loom::sync::Arc::clone(&told);
            let owner = loom::thread::spawn(move || {
                record.consume(1);
                record.request(Arm::next(1, 0));
                record.consume(2);
                tell.store(true, crate::sync::Ordering::Release);
            });
            // SAFETY: as above.
            let look = || unsafe { CqRecord::consumed(address) };
            let first = look();
            let all = told.load(crate::sync::Ordering::Acquire);
            let second = look();
            assert!(first <= second && second <= 2);
            assert!(!all || second == 2);
            owner.join().unwrap();
            assert_eq!(look(), 2);
            // SAFETY: leaked above; the record is gone with its thread.
            drop(unsafe { Box::from_raw(address.cast::<[AtomicU32; 2]>().as_ptr()) });
        });
    }
}
