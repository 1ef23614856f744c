//! What queues do with the function beside them: memory by key, frames, time, counters.

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
    /// Whether `key` allows `rights` on `len` bytes at `address`; strict mode is told why not.
    pub(crate) fn allows(&self, user: User, key: u32, address: u64, len: u64, rights: MkeyRights) -> bool {
        let access = Access { user, key, address, len, rights };
        match memory::check(&self.objects.mkeys, access) {
            Ok(_) => true,
            Err(refusal) => {
                self.strict.report(rules::KEY, || {
                    format!("QP {:#x}: key {key:#x}, {len:#x} bytes at {address:#x}, {rights:?}: {refusal}", user.qpn)
                });
                false
            }
        }
    }

    /// Reads memory by key. False if the key does not allow it, or the memory is not there.
    pub(crate) fn read(&self, user: User, key: u32, address: u64, bytes: &mut [u8], rights: MkeyRights) -> bool {
        let access = Access { user, key, address, len: bytes.len() as u64, rights };
        memory::check(&self.objects.mkeys, access).is_ok_and(|way| way.read(&self.dma, address, bytes).is_ok())
    }

    /// Writes memory by key. False if the key does not allow it, or the memory is not there.
    pub(crate) fn write(&self, user: User, key: u32, address: u64, bytes: &[u8], rights: MkeyRights) -> bool {
        let access = Access { user, key, address, len: bytes.len() as u64, rights };
        memory::check(&self.objects.mkeys, access).is_ok_and(|way| way.write(&self.dma, address, bytes).is_ok())
    }

    /// Replaces a quadword by key; the old one. `None` if the key does not allow it, or the memory is not there.
    pub(crate) fn update(&self, user: User, key: u32, address: u64, change: impl Fn(u64) -> u64) -> Option<u64> {
        let access = Access { user, key, address, len: 8, rights: MkeyRights::REMOTE_ATOMIC };
        memory::check(&self.objects.mkeys, access).ok()?.update(&self.dma, address, change).ok()
    }

    /// Payload of the largest packet that fits the port: a power of two.
    pub(crate) fn largest_payload(&self) -> u64 {
        let room = usize::from(self.port.mtu).saturating_sub(FRAME_OVERHEAD).clamp(256, MAX_PAYLOAD);
        1 << room.ilog2()
    }

    /// A number that an atomic found in memory (or will put there), given as if memory were big-endian; and back.
    pub(crate) fn atomic_operand(&self, memory: u64) -> u64 {
        if self.firmware.atomics_little_endian() { memory.swap_bytes() } else { memory }
    }

    /// The device's clock, as CQEs carry it.
    pub(crate) fn timestamp(&self) -> u64 {
        self.firmware.internal_timer(&self.profile, self.now)
    }

    /// Puts a packet on the wire.
    pub(crate) fn send(&mut self, packet: Box<Packet>) {
        if self.objects.vport.roce_enabled() {
            self.port.counters.rdma.count_sent(&packet.route.dst_mac, packet.frame_len());
            let frame = Frame::Roce(packet);
            self.observe_frame(&frame, true);
            self.port.send(frame, Own { mac: self.objects.vport.mac(), domain: None }, &self.faults);
        }
    }

    /// Puts a frame of a send queue in the transport domain `domain` on the wire. What is shorter than a header is no
    /// frame, and lost.
    pub(crate) fn send_frame(&mut self, frame: Vec<u8>, domain: u32) {
        if frame.len() < HEADER {
            self.port.counters.physical.unsendable += 1;
            return;
        }
        let destination = frame.first_chunk().copied().unwrap_or_default();
        self.port.counters.ethernet.count_sent(&destination, frame.len());
        // What a neighbour's RDMA is to take travels as such, whoever made it.
        let frame = Frame::from_bytes(&frame).unwrap_or(Frame::Ethernet(frame));
        self.observe_frame(&frame, true);
        self.port.send(frame, Own { mac: self.objects.vport.mac(), domain: Some(domain) }, &self.faults);
    }

    /// Tells whoever watches of a frame that goes out, or came in.
    pub(crate) fn observe_frame(&mut self, frame: &Frame, goes_out: bool) {
        if self.observer.is_none() {
            return;
        }
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.observe(if goes_out { Seen::Sent(&bytes) } else { Seen::Received(&bytes) });
    }

    /// The queue counter that a queue pair counts in, if it has one.
    pub(crate) fn counter(&mut self, qp: &Qp) -> Option<&mut QueueCounter> {
        self.objects.queue_counters.get_mut(u32::from(qp.counter_set_id))
    }

    /// What fault injection wants the work request at hand to end with.
    pub(crate) fn fault_of(&self, qpn: u32) -> Option<Failure> {
        let (syndrome, vendor) = self.faults.completion_error(qpn)?;
        Some(Failure { syndrome: CqeSyndrome::from_number(u32::from(syndrome)), vendor })
    }
}
