//! Services of the function that queues use: memory by key, frames, time, counters.

use mlx5_prm::cqe::CqeSyndrome;

use super::memory::{self, Access};
use crate::ethernet::HEADER;
use crate::function::{Nic, Seen};
use crate::objects::{Failure, MkeyRights, Qp, QueueCounter, User};
use crate::strict::rules;
use crate::transport::Packet;
use crate::transport::packet::{FRAME_OVERHEAD, MAX_PAYLOAD};
use crate::wire::{Frame, Own};

impl Nic {
    /// Whether `key` allows `rights` on `len` bytes at `address`. Strict mode records the reason if not.
    pub(crate) fn allows(&self, user: User, key: u32, address: u64, len: u64, rights: MkeyRights) -> bool {
        let access = Access { user, key, address, len, rights };
        match memory::allows(&self.objects.mkeys, access) {
            Ok(()) => true,
            Err(refusal) => {
                self.strict.report(rules::KEY, || {
                    format!("QP {:#x}: key {key:#x}, {len:#x} bytes at {address:#x}, {rights:?}: {refusal}", user.qpn)
                });
                false
            }
        }
    }

    /// Reads memory by key. Returns false if the key does not allow it, or the memory is not mapped.
    pub(crate) fn read(&self, user: User, key: u32, address: u64, bytes: &mut [u8], rights: MkeyRights) -> bool {
        let access = Access { user, key, address, len: bytes.len() as u64, rights };
        memory::check(&self.objects.mkeys, access).is_ok_and(|way| way.read(&self.dma, address, bytes).is_ok())
    }

    /// Writes memory by key. Returns false if the key does not allow it, or the memory is not mapped.
    pub(crate) fn write(&self, user: User, key: u32, address: u64, bytes: &[u8], rights: MkeyRights) -> bool {
        let access = Access { user, key, address, len: bytes.len() as u64, rights };
        memory::check(&self.objects.mkeys, access).is_ok_and(|way| way.write(&self.dma, address, bytes).is_ok())
    }

    /// Atomically replaces a quadword by key; returns the old value. `None` if the key does not allow it, or the memory
    /// is not mapped.
    pub(crate) fn update(&self, user: User, key: u32, address: u64, change: impl Fn(u64) -> u64) -> Option<u64> {
        let access = Access { user, key, address, len: 8, rights: MkeyRights::REMOTE_ATOMIC };
        memory::check(&self.objects.mkeys, access).ok()?.update(&self.dma, address, change).ok()
    }

    /// Payload of the largest packet that fits the port's MTU: a power of two.
    pub(crate) fn largest_payload(&self) -> u64 {
        let room = usize::from(self.port.mtu).saturating_sub(FRAME_OVERHEAD).clamp(256, MAX_PAYLOAD);
        1 << room.ilog2()
    }

    /// Converts an atomic's operand between memory order and big-endian, by the function's endianness mode;
    /// self-inverse.
    pub(crate) fn atomic_operand(&self, memory: u64) -> u64 {
        if self.firmware.atomics_little_endian() { memory.swap_bytes() } else { memory }
    }

    /// The device clock, as in CQEs.
    pub(crate) fn timestamp(&self) -> u64 {
        self.firmware.internal_timer(&self.profile, self.now)
    }

    /// Puts a packet on the wire.
    pub(crate) fn send(&mut self, packet: Box<Packet>) {
        if self.objects.vport.roce_enabled() {
            self.port.counters.rdma.count_sent(&packet.route.dst_mac, packet.frame_len());
            let frame = Frame::Roce(packet);
            self.observe_frame(&frame, true);
            self.port.send(frame, Own { mac: self.objects.vport.mac(), domain: None }, &self.faults, self.now);
        }
    }

    /// Sends a frame of a send queue in the transport domain `domain`. A frame shorter than an Ethernet header is
    /// dropped.
    pub(crate) fn send_frame(&mut self, frame: Vec<u8>, domain: u32) {
        if frame.len() < HEADER {
            self.port.counters.physical.unsendable += 1;
            return;
        }
        let destination = frame.first_chunk().copied().unwrap_or_default();
        self.port.counters.ethernet.count_sent(&destination, frame.len());
        // A RoCE frame is decoded even if software built it in an Ethernet send queue.
        let frame = Frame::from_bytes(&frame).unwrap_or(Frame::Ethernet(frame));
        self.observe_frame(&frame, true);
        self.port.send(frame, Own { mac: self.objects.vport.mac(), domain: Some(domain) }, &self.faults, self.now);
    }

    /// Passes a sent or received frame to the observer.
    #[inline]
    pub(crate) fn observe_frame(&mut self, frame: &Frame, goes_out: bool) {
        if self.observer.is_some() {
            self.show_frame(frame, goes_out);
        }
    }

    #[cold]
    fn show_frame(&mut self, frame: &Frame, goes_out: bool) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.observe(if goes_out { Seen::Sent(&bytes) } else { Seen::Received(&bytes) });
    }

    /// The queue counter of a queue pair, if it has one.
    pub(crate) fn counter(&mut self, qp: &Qp) -> Option<&mut QueueCounter> {
        self.objects.queue_counters.get_mut(u32::from(qp.counter_set_id))
    }

    /// The error that fault injection assigns to the current work request.
    pub(crate) fn fault_of(&self, qpn: u32) -> Option<Failure> {
        let (syndrome, vendor) = self.faults.completion_error(qpn)?;
        Some(Failure { syndrome: CqeSyndrome::from_number(u32::from(syndrome)), vendor })
    }
}
