//! The same work with only the stores and loads that are unavoidable.
//!
//! No checks, no bookkeeping except the ring's index, no generality: each loop knows its operation and its sizes, and
//! that nothing fails. It stores byte for byte the same as the driver, which each measurement checks first.

pub mod forward;
mod frames;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use uar::barrier;

use crate::request::{INLINE, REQUESTS, Requests};

const WQEBB: usize = 64;
const PAGE: usize = 4096;
/// `ce` of a control segment: always a completion.
const CE_ALWAYS: u64 = 2 << 2;
/// Opcodes of send WQEs.
const RDMA_WRITE: u32 = 0x08;
const SEND: u32 = 0x0a;
const RDMA_READ: u32 = 0x10;
/// Opcode of the completion of a send.
const REQUESTER: u8 = 0;
/// Top bit of an inline header.
const INLINE_DATA: u32 = 1 << 31;

/// Zeroed, page-aligned memory.
struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(PAGE), PAGE).unwrap_or(Layout::new::<[u8; PAGE]>());
        // SAFETY: the layout has a size.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { base, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// A ring, its doorbell record on its own cache line, and a page in place of a UAR.
pub struct Ring {
    base: *mut u8,
    mask: u32,
    producer: u32,
    retired: u32,
    /// `[ qpn | 0 ]`, as in dword 1 of a control segment.
    qpn: u32,
    record: *mut u32,
    register: *mut u8,
    /// Offset of the next BlueFlame buffer: 0 or 256.
    buffer: usize,
    memory: Memory,
}

impl Ring {
    /// A ring of `entries` (a power of two) of `stride` bytes, filled with `fill`, starting at number `producer`.
    pub fn new(entries: usize, stride: usize, qpn: u32, fill: u8, producer: u32) -> Self {
        let len = (entries * stride).next_multiple_of(PAGE);
        let memory = Memory::new(len + 2 * PAGE);
        let base = memory.base.as_ptr();
        // SAFETY: all inside of the memory just allocated: ring, a page for the record, a page for the registers.
        let (record, register) = unsafe {
            base.write_bytes(fill, len);
            (base.add(len).cast(), base.add(len + PAGE + 0x800))
        };
        Ring {
            base,
            mask: entries as u32 - 1,
            producer,
            retired: 0,
            qpn: qpn << 8,
            record,
            register,
            buffer: 0,
            memory,
        }
    }

    /// The bytes of the ring from `offset` on.
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.memory.layout.size());
        // SAFETY: inside of the memory, by the check above.
        (0..len).map(|i| unsafe { self.base.add(offset + i).read_volatile() }).collect()
    }

    /// The number of the next entry.
    pub fn next_entry(&self) -> u32 {
        self.producer
    }

    /// Writes `bytes` to the ring at `offset`, as a card does to a completion queue.
    pub fn fill(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.memory.layout.size());
        // SAFETY: inside of the memory, by the check above.
        unsafe { self.base.add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Address of the next WQE, and the first eight bytes of its control segment, in wire order.
    #[inline(always)]
    fn next(&self, opcode: u32, segments: u32) -> (*mut u64, u64) {
        let control = u64::from((self.producer & 0xffff) << 8 | opcode) << 32 | u64::from(self.qpn | segments);
        // SAFETY: the masked index is inside of the ring.
        let slot = unsafe { self.base.add((self.producer & self.mask) as usize * WQEBB) };
        (slot.cast(), control.to_be())
    }

    /// Writes doorbell record, fence, doorbell.
    #[inline(always)]
    fn ring(&mut self, control: u64) {
        barrier::to_device();
        // SAFETY: record and register lie in this value's memory, aligned.
        unsafe {
            self.record.add(1).write_volatile((self.producer & 0xffff).to_be());
            barrier::before_doorbell();
            self.register.cast::<u64>().write_volatile(control);
        }
    }

    /// Writes doorbell record, fence, the WQE's block to the BlueFlame buffer, fence.
    #[inline(always)]
    fn ring_blue_flame(&mut self, slot: *const u64) {
        barrier::to_device();
        // SAFETY: record and register lie in this value's memory, aligned; so does the WQE's block at `slot`.
        unsafe {
            self.record.add(1).write_volatile((self.producer & 0xffff).to_be());
            barrier::before_wc();
            let buffer = self.register.add(self.buffer).cast::<u64>();
            for i in 0..WQEBB / 8 {
                buffer.add(i).write_volatile(slot.add(i).read());
            }
        }
        barrier::flush_wc();
        self.buffer ^= 0x100;
    }

    /// Stores an RDMA WRITE or READ of one element, with `ce`, without ringing.
    #[inline(always)]
    fn put_rdma(&mut self, opcode: u32, ce: u64, requests: &Requests, i: usize) -> (*mut u64, u64) {
        let (remote, local) = (requests.remote[i % REQUESTS], requests.local[i % REQUESTS]);
        let (slot, control) = self.next(opcode, 3);
        // SAFETY: one block of the ring, aligned to 64; 48 of its bytes are stored to.
        unsafe {
            slot.write(control);
            slot.add(1).write((ce << 32).to_be());
            slot.add(2).write(remote.addr.to_be());
            slot.add(3).write((u64::from(remote.rkey) << 32).to_be());
            slot.add(4).write((u64::from(local.len) << 32 | u64::from(local.lkey)).to_be());
            slot.add(5).write(local.addr.to_be());
        }
        self.producer = self.producer.wrapping_add(1);
        (slot, control)
    }

    /// `count` RDMA WRITEs of one element each, a doorbell every `BATCH`, a completion every `SIGNAL`.
    #[inline(never)]
    pub fn write<const BATCH: usize, const SIGNAL: usize>(&mut self, requests: &Requests, count: usize) {
        for first in (0..count).step_by(BATCH) {
            let mut last = 0;
            for i in first..first + BATCH {
                let ce = if i % SIGNAL == SIGNAL - 1 { CE_ALWAYS } else { 0 };
                last = self.put_rdma(RDMA_WRITE, ce, requests, i).1;
            }
            self.ring(last);
        }
    }

    /// `count` RDMA READs of one element each.
    #[inline(never)]
    pub fn read(&mut self, requests: &Requests, count: usize) {
        for i in 0..count {
            let (_, control) = self.put_rdma(RDMA_READ, CE_ALWAYS, requests, i);
            self.ring(control);
        }
    }

    /// `count` RDMA WRITEs of one element each, by BlueFlame.
    #[inline(never)]
    pub fn write_blue_flame(&mut self, requests: &Requests, count: usize) {
        for i in 0..count {
            let (slot, _) = self.put_rdma(RDMA_WRITE, CE_ALWAYS, requests, i);
            self.ring_blue_flame(slot);
        }
    }

    /// `count` SENDs of one element each.
    #[inline(never)]
    pub fn send(&mut self, requests: &Requests, count: usize) {
        for i in 0..count {
            let local = requests.local[i % REQUESTS];
            let (slot, control) = self.next(SEND, 2);
            // SAFETY: one block of the ring, aligned to 64; 32 of its bytes are stored to.
            unsafe {
                slot.write(control);
                slot.add(1).write((CE_ALWAYS << 32).to_be());
                slot.add(2).write((u64::from(local.len) << 32 | u64::from(local.lkey)).to_be());
                slot.add(3).write(local.addr.to_be());
            }
            self.producer = self.producer.wrapping_add(1);
            self.ring(control);
        }
    }

    /// Writes the header of inline data, and the data.
    ///
    /// # Safety
    /// `at` has room for 4 bytes and the data.
    #[inline(always)]
    unsafe fn put_inline(at: *mut u64, data: &[u8; INLINE]) {
        // SAFETY: by the caller's promise.
        unsafe {
            at.cast::<u32>().write((INLINE_DATA | INLINE as u32).to_be());
            at.cast::<u8>().add(4).cast::<[u8; INLINE]>().write_unaligned(*data);
        }
    }

    /// `count` RDMA WRITEs of 64 bytes of inline data each. Two blocks each: the ring's size is even, so none wraps
    /// inside.
    #[inline(never)]
    pub fn write_inline(&mut self, requests: &Requests, count: usize) {
        for i in 0..count {
            let remote = requests.remote[i % REQUESTS];
            let (slot, control) = self.next(RDMA_WRITE, 7);
            // SAFETY: two blocks of the ring, aligned to 64; 100 of their bytes are stored to.
            unsafe {
                slot.write(control);
                slot.add(1).write((CE_ALWAYS << 32).to_be());
                slot.add(2).write(remote.addr.to_be());
                slot.add(3).write((u64::from(remote.rkey) << 32).to_be());
                Self::put_inline(slot.add(4), &requests.data[i % REQUESTS]);
            }
            self.producer = self.producer.wrapping_add(2);
            self.ring(control);
        }
    }

    /// `count` SENDs of 64 bytes of inline data each. Two blocks each.
    #[inline(never)]
    pub fn send_inline(&mut self, requests: &Requests, count: usize) {
        for i in 0..count {
            let (slot, control) = self.next(SEND, 6);
            // SAFETY: two blocks of the ring, aligned to 64; 84 of their bytes are stored to.
            unsafe {
                slot.write(control);
                slot.add(1).write((CE_ALWAYS << 32).to_be());
                Self::put_inline(slot.add(2), &requests.data[i % REQUESTS]);
            }
            self.producer = self.producer.wrapping_add(2);
            self.ring(control);
        }
    }

    /// `count` receives of one element each, a doorbell record every `BATCH`. The ring's entries are of 16 bytes.
    #[inline(never)]
    pub fn receive<const BATCH: usize>(&mut self, requests: &Requests, count: usize) {
        for first in (0..count).step_by(BATCH) {
            for i in first..first + BATCH {
                let local = requests.local[i % REQUESTS];
                // SAFETY: the masked index is inside of the ring; 16 bytes, aligned.
                unsafe {
                    let slot = self.base.add((self.producer & self.mask) as usize * 16).cast::<u64>();
                    slot.write((u64::from(local.len) << 32 | u64::from(local.lkey)).to_be());
                    slot.add(1).write(local.addr.to_be());
                }
                self.producer = self.producer.wrapping_add(1);
            }
            barrier::to_device();
            // SAFETY: the record lies in this value's memory, aligned.
            unsafe { self.record.write_volatile((self.producer & 0xffff).to_be()) }
        }
    }

    /// One completion: the sum of its queue pair, index and length. `None` if there is none, or it is not a successful
    /// send: opcode and owner bit are in one byte, and checking only the owner bit would take an error for a success.
    #[inline(always)]
    fn take(&mut self) -> Option<u64> {
        // SAFETY: the masked index is inside of the ring, whose entries are of 64 bytes, aligned.
        unsafe {
            let cqe = self.base.add((self.producer & self.mask) as usize * WQEBB);
            let op_own = cqe.add(63).read_volatile();
            if op_own & 1 != u8::from(self.producer & (self.mask + 1) != 0) {
                return None;
            }
            if op_own >> 4 != REQUESTER {
                return None;
            }
            barrier::from_device();
            let byte_count = u32::from_be(cqe.add(0x2c).cast::<u32>().read_volatile());
            let qpn = u32::from_be(cqe.add(0x38).cast::<u32>().read_volatile()) & 0xff_ffff;
            let index = u16::from_be(cqe.add(0x3c).cast::<u16>().read_volatile());
            self.producer = self.producer.wrapping_add(1);
            Some(u64::from(byte_count) + u64::from(qpn) + u64::from(index))
        }
    }

    #[inline(always)]
    fn consume(&mut self) {
        barrier::to_device();
        // SAFETY: the record lies in this value's memory, aligned.
        unsafe { self.record.write_volatile((self.producer & 0xff_ffff).to_be()) }
    }

    /// Polls `count` completions, storing the consumer index every `BATCH`; returns the sum of their fields.
    #[inline(never)]
    pub fn poll<const BATCH: usize>(&mut self, count: usize) -> Option<u64> {
        let mut sum = 0u64;
        for _ in 0..count / BATCH {
            for _ in 0..BATCH {
                sum = sum.wrapping_add(self.take()?);
            }
            self.consume();
        }
        Some(sum)
    }

    /// Like [`poll`](Self::poll); each frees the room of its work request.
    #[inline(never)]
    pub fn poll_and_retire<const BATCH: usize>(&mut self, count: usize) -> Option<u64> {
        for _ in 0..count / BATCH {
            for _ in 0..BATCH {
                self.retired = self.take()? as u32;
            }
            self.consume();
        }
        Some(u64::from(self.retired))
    }

    /// Polls an empty queue `count` times.
    #[inline(never)]
    pub fn poll_empty(&mut self, count: usize) -> bool {
        (0..count).all(|_| self.take().is_none())
    }
}
