//! Services of the function that queues use: memory by key, frames, time, counters.

use std::time::{Duration, Instant};

use mlx5_prm::cqe::CqeSyndrome;

use super::memory::{self, Access, Refusal};
use crate::ethernet::HEADER;
use crate::function::{Nic, Seen};
use crate::objects::{Absent, AtomicResult, Failure, MkeyRights, Qp, QueueCounter, TimeWait, User};
use crate::steering::{Delivery, Entering, MOST_DESTINATIONS};
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

    /// What of an access that was not made is absent. `None` if there is another reason.
    pub(crate) fn absent(&self, user: User, key: u32, address: u64, len: u64, rights: MkeyRights) -> Option<Absent> {
        match memory::check(&self.objects.mkeys, Access { user, key, address, len, rights }) {
            Err(Refusal::Absent(absent)) => Some(absent),
            _ => None,
        }
    }

    /// Writes memory by key. Returns false if the key does not allow it, or the memory is not mapped.
    pub(crate) fn write(&self, user: User, key: u32, address: u64, bytes: &[u8], rights: MkeyRights) -> bool {
        let access = Access { user, key, address, len: bytes.len() as u64, rights };
        memory::check(&self.objects.mkeys, access).is_ok_and(|way| way.write(&self.dma, address, bytes).is_ok())
    }

    /// Atomically replaces `len` bytes by key, at most [`AtomicResult::LONGEST`]; returns the old ones. `None` if the
    /// key does not allow it, or the memory is not mapped. Of eight bytes it is atomic towards the host's CPU, too.
    pub(crate) fn update(
        &self,
        user: User,
        key: u32,
        address: u64,
        len: usize,
        change: impl Fn(&mut [u8]),
    ) -> Option<AtomicResult> {
        let access = Access { user, key, address, len: len as u64, rights: MkeyRights::REMOTE_ATOMIC };
        let way = memory::check(&self.objects.mkeys, access).ok()?;
        if len == size_of::<u64>() {
            let old = way.update(&self.dma, address, |memory| {
                let mut bytes = memory.to_be_bytes();
                change(&mut bytes);
                u64::from_be_bytes(bytes)
            });
            return Some(AtomicResult::new(&old.ok()?.to_be_bytes()));
        }
        let mut old = AtomicResult::new(&[0; AtomicResult::LONGEST][..len.min(AtomicResult::LONGEST)]);
        way.read(&self.dma, address, old.bytes_mut()).ok()?;
        let mut new = old;
        change(new.bytes_mut());
        way.write(&self.dma, address, new.bytes()).ok()?;
        Some(old)
    }

    /// Payload of the largest packet that fits the port's MTU: a power of two.
    pub(crate) fn largest_payload(&self) -> u64 {
        let room = usize::from(self.port.mtu).saturating_sub(FRAME_OVERHEAD).clamp(256, MAX_PAYLOAD);
        1 << room.ilog2()
    }

    /// What an atomic's requester is told, from big-endian numbers: one of eight bytes in the order that the driver
    /// chose with `atomic_req_8B_endianness_mode`, all others big-endian, as UCX reads them.
    pub(crate) fn told(&self, mut found: AtomicResult) -> AtomicResult {
        if found.bytes().len() == size_of::<u64>() && self.firmware.atomics_little_endian() {
            found.bytes_mut().reverse();
        }
        found
    }

    /// The device clock, as in CQEs of the queue pair or Ethernet queue `number`.
    pub(crate) fn timestamp(&self, number: u32) -> u64 {
        if self.firmware.real_time.is_borne_by(number) {
            return self.firmware.real_time.at(self.now);
        }
        self.firmware.internal_timer(&self.profile, self.now)
    }

    /// When the clock of the queue `number` will have passed the time that is waited for; `None` if it has.
    pub(crate) fn end_of(&self, wait: TimeWait, number: u32) -> Option<Instant> {
        let clock = self.timestamp(number);
        if wait.is_over(clock) {
            return None;
        }
        let left = match self.firmware.real_time.is_borne_by(number) {
            true => self.firmware.real_time.time_of(wait.time_left(clock)),
            false => self.firmware.time_of_ticks(&self.profile, wait.ticks_left(clock)),
        };
        // So far away that nobody sees it.
        const NEVER: Duration = Duration::from_secs(1 << 32);
        Some(self.now + left.min(NEVER))
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

    /// Sends a frame of the send queue `sqn`, in the transport domain `domain`, with `metadata` of its work request for
    /// flow tables. A frame shorter than an Ethernet header is dropped.
    pub(crate) fn send_frame(&mut self, frame: Vec<u8>, sqn: u32, domain: u32, metadata: u32) {
        if frame.len() < HEADER {
            self.port.counters.physical.unsendable += 1;
            return;
        }
        let Some(root) = self.objects.steering.transmit_root else { return self.send_steered(frame, domain) };
        for delivery in self.steer(root, &frame, Entering { sqn, metadata, now: self.now }) {
            self.send_steered(delivery.changed.unwrap_or_else(|| frame.clone()), domain);
        }
    }

    /// Where flow tables have a frame go that enters at `root`. One with too many destinations is dropped.
    pub(crate) fn steer(&mut self, root: u32, frame: &[u8], entering: Entering) -> Vec<Delivery> {
        let deliveries = self.objects.steering.steer(root, frame, entering);
        if deliveries.is_none() {
            self.strict.report(rules::STEERING, || {
                format!("flow table {root:#x}: a frame that enters it has more than {MOST_DESTINATIONS} destinations")
            });
        }
        deliveries.unwrap_or_default()
    }

    /// Sends a frame that flow tables let through.
    fn send_steered(&mut self, frame: Vec<u8>, domain: u32) {
        let destination = frame.first_chunk().copied().unwrap_or_default();
        self.port.counters.ethernet.count_sent(&destination, frame.len());
        // Who receives it decodes it: it may be a RoCE packet, though software built it.
        let frame = Frame::Ethernet(frame);
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
