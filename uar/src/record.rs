//! Doorbell records: big-endian dwords in memory from which the card reads the producer or consumer index. PRM
//! "Doorbell Record".
//!
//! A queue pair's record has two dwords: first the receive counter, then the send counter. A card that finds the send
//! counter in the first one silently does nothing, so each dword has its own type:
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
//! Each dword is stored and loaded as a relaxed atomic: other threads may read a record while its owner updates it.
//! Ordering with other accesses comes from the [barriers](crate::barrier) for the card, and from locks for threads.

use core::fmt;
use core::ptr::NonNull;

use crate::events::Arm;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Size of any doorbell record.
pub const RECORD: usize = 8;

/// `place.store(value, Relaxed)`, as a single instruction.
///
/// Not by that call: LLVM treats a relaxed store as one that may change any memory, and then reloads a queue's fields
/// from memory, which costs three instructions per completion. Other threads, and loads that are Rust atomics, see no
/// difference: on both architectures that call is an aligned dword store.
#[inline(always)]
fn store_relaxed(place: &AtomicU32, value: u32) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    // SAFETY: stores an aligned dword that may be stored to through a shared reference; no stack, no flags.
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

        // SAFETY: by the constructor's contract the record's memory stays mapped and is accessed only as atomic dwords.
        unsafe impl Send for $Name {}

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:p})", stringify!($Name), self.0)
            }
        }

        impl $Name {
            /// Stores to this half's dword, or to the first dword of a record.
            #[inline(always)]
            fn store(&self, value: u32) {
                // SAFETY: by the constructor's contract: mapped, aligned and accessed only as atomic dwords.
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
/// `address` is aligned to 8 bytes; the 8 bytes there are memory that stays mapped until both halves are dropped. Until
/// then this process stores there only through them, and loads each dword as a relaxed atomic or not at all.
pub unsafe fn queue_pair(address: NonNull<u8>) -> (ReceiveRecord, SendRecord) {
    let receive = address.cast::<AtomicU32>();
    // SAFETY: the second of the record's two dwords.
    (ReceiveRecord(receive), SendRecord(unsafe { receive.add(1) }))
}

impl SendRecord {
    /// Sets the number of posted WQEBBs, modulo 2^16. Call [`to_device`](crate::barrier::to_device) before.
    #[inline(always)]
    pub fn post(&mut self, counter: u16) {
        self.store(counter.into());
    }
}

impl ReceiveRecord {
    /// Sets the number of posted receive WQEs, modulo 2^16. Call [`to_device`](crate::barrier::to_device) before.
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

    /// Sets the number of consumed CQEs, of which the low 24 bits are stored. The card may overwrite these CQEs.
    #[inline(always)]
    pub fn consume(&mut self, counter: u32) {
        self.store(counter & 0xff_ffff);
    }

    /// The consumer index in the record at `address`, modulo 2^24. Any thread may call this.
    ///
    /// # Safety
    /// `address` is aligned to 8 bytes, the 8 bytes there are mapped, and only a [`CqRecord`] stores there meanwhile.
    pub unsafe fn consumed(address: NonNull<u8>) -> u32 {
        // SAFETY: by this function's contract: mapped, aligned, and stored to only by atomic dwords.
        let consumed = unsafe { address.cast::<AtomicU32>().as_ref() };
        u32::from_be(consumed.load(Relaxed)) & 0xff_ffff
    }

    /// Sets the arm request; [`CqDoorbell::arm`](crate::CqDoorbell::arm) makes the card read it.
    #[inline(always)]
    pub fn request(&mut self, arm: Arm) {
        // SAFETY: the second dword of the record, by the constructor's contract as for the first.
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

/// Checked by loom for all interleavings of two threads: `.ci/races`.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use alloc::boxed::Box;

    /// The poller updates the index while a thread that destroys a queue pair reads it: it never decreases or exceeds
    /// the end. After a thread has learned otherwise that an entry was polled, it sees that index.
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
