//! A function taken apart: its queue pairs, and everything else a queue pair's work touches.

use std::time::Instant;

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::values::ServiceType;

use super::Engine;
use super::access::{self, Access, User};
use super::ethernet::Ethernet;
use super::rules;
use super::spare::Spare;
use crate::dma::Dma;
use crate::ethernet::HEADER;
use crate::fault::Faults;
use crate::firmware::Firmware;
use crate::function::Function;
use crate::objects::{Cq, Eq, GidTable, Mkey, MkeyRights, Objects, Pd, Qp, QueueCounter, Srq, Table};
use crate::pci::Pci;
use crate::profile::Profile;
use crate::strict::Strict;
use crate::transport::Packet;
use crate::transport::packet::{FRAME_OVERHEAD, MAX_PAYLOAD, Mac};
use crate::wire::{Frame, Own, Port};

/// All of a function but its queue pairs, so that one of those can be borrowed beside it.
pub(crate) struct Rest<'a> {
    pub pds: &'a mut Table<Pd>,
    pub mkeys: &'a mut Table<Mkey>,
    pub cqs: &'a mut Table<Cq>,
    pub eqs: &'a mut Table<Eq>,
    pub srqs: &'a mut Table<Srq>,
    pub counters: &'a mut Table<QueueCounter>,
    pub gids: &'a GidTable,
    pub mac: Mac,
    /// Whether RoCE is enabled in the vport: without, no packet of it goes out or in.
    pub roce: bool,
    pub dma: &'a Dma,
    pub strict: &'a Strict,
    pub faults: &'a Faults,
    pub pci: &'a mut Pci,
    pub port: &'a mut Port,
    pub firmware: &'a Firmware,
    pub profile: &'a Profile,
    pub engine: &'a mut Engine,
    pub now: Instant,
}

/// Takes the function apart.
pub(crate) fn split(f: &mut Function) -> (&mut Table<Qp>, Rest<'_>) {
    let (qps, _, rest) = take_apart(f);
    (qps, rest)
}

/// Takes the function apart, Ethernet queues too.
pub(crate) fn take_apart(f: &mut Function) -> (&mut Table<Qp>, Ethernet<'_>, Rest<'_>) {
    let Objects {
        qps, pds, mkeys, cqs, eqs, srqs, queue_counters, gids, vport, sqs, rqs, tirs, rqts, steering, ..
    } = &mut f.objects;
    let ethernet = Ethernet { sqs, rqs, tirs, rqts, steering };
    let rest = Rest {
        pds,
        mkeys,
        cqs,
        eqs,
        srqs,
        counters: queue_counters,
        gids,
        mac: vport.mac(),
        roce: vport.roce_enabled(),
        dma: &f.dma,
        strict: &f.strict,
        faults: &f.faults,
        pci: &mut f.pci,
        port: &mut f.port,
        firmware: &f.firmware,
        profile: &f.profile,
        engine: &mut f.engine,
        now: f.now,
    };
    (qps, ethernet, rest)
}

/// Why a work request fails: what its completion says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// `syndrome` of the CQE.
    pub syndrome: CqeSyndrome,
    /// `vendor_error_syndrome` of the CQE.
    pub vendor: u8,
}

impl Failure {
    /// A failure with the vendor syndrome that cards show with it in the field, where one is known.
    pub(crate) const fn new(syndrome: CqeSyndrome) -> Self {
        let vendor = match syndrome {
            CqeSyndrome::LocalLength => 0x32,
            CqeSyndrome::LocalQpOperation => 0x68,
            CqeSyndrome::LocalProtection => 0x51,
            CqeSyndrome::WorkRequestFlushed => 0xf9,
            CqeSyndrome::TransportRetryExceeded => 0x81,
            CqeSyndrome::RnrRetryExceeded => 0x87,
            CqeSyndrome::RemoteAccess => 0x88,
            CqeSyndrome::RemoteInvalidRequest => 0x8a,
            CqeSyndrome::RemoteOperation => 0x89,
            _ => 0,
        };
        Failure { syndrome, vendor }
    }

    /// Whether this side found the error itself, rather than being told by the remote one, or by its silence.
    pub(crate) const fn is_own(self) -> bool {
        !matches!(
            self.syndrome,
            CqeSyndrome::WorkRequestFlushed
                | CqeSyndrome::TransportRetryExceeded
                | CqeSyndrome::RnrRetryExceeded
                | CqeSyndrome::RemoteAccess
                | CqeSyndrome::RemoteInvalidRequest
                | CqeSyndrome::RemoteOperation
        )
    }
}

impl Qp {
    /// Who this queue pair is to a key.
    pub(crate) fn user(&self) -> User {
        let every_pd = self.service == ServiceType::RegUmr;
        User { pd: self.pd, qpn: self.qpn, every_pd, is_trusted: self.context.rlky() }
    }
}

impl Rest<'_> {
    pub(crate) fn spare(&mut self) -> &mut Spare {
        &mut self.engine.spare
    }

    /// Whether `key` allows `rights` on `len` bytes at `address`; strict mode is told why not.
    pub(crate) fn allows(&self, user: User, key: u32, address: u64, len: u64, rights: MkeyRights) -> bool {
        let access = Access { user, key, address, len, rights };
        match access::check(self.mkeys, access) {
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
        access::check(self.mkeys, access).is_ok_and(|way| way.read(self.dma, address, bytes).is_ok())
    }

    /// Writes memory by key. False if the key does not allow it, or the memory is not there.
    pub(crate) fn write(&self, user: User, key: u32, address: u64, bytes: &[u8], rights: MkeyRights) -> bool {
        let access = Access { user, key, address, len: bytes.len() as u64, rights };
        access::check(self.mkeys, access).is_ok_and(|way| way.write(self.dma, address, bytes).is_ok())
    }

    /// Replaces a quadword by key; the old one. `None` if the key does not allow it, or the memory is not there.
    pub(crate) fn update(&self, user: User, key: u32, address: u64, change: impl Fn(u64) -> u64) -> Option<u64> {
        let access = Access { user, key, address, len: 8, rights: MkeyRights::REMOTE_ATOMIC };
        access::check(self.mkeys, access).ok()?.update(self.dma, address, change).ok()
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
        self.firmware.internal_timer(self.profile, self.now)
    }

    /// Puts a packet on the wire.
    pub(crate) fn send(&mut self, packet: Box<Packet>) {
        if self.roce {
            self.port.counters.rdma.count_sent(&packet.route.dst_mac, packet.frame_len());
            self.port.send(Frame::Roce(packet), Own { mac: self.mac, domain: None }, self.faults);
        }
    }

    /// Puts a frame of a send queue in the transport domain `domain` on the wire. What is shorter than a header is no frame,
    /// and lost.
    pub(crate) fn send_frame(&mut self, frame: Vec<u8>, domain: u32) {
        if frame.len() < HEADER {
            self.port.counters.physical.unsendable += 1;
            return;
        }
        let destination = frame.first_chunk().copied().unwrap_or_default();
        self.port.counters.ethernet.count_sent(&destination, frame.len());
        // What a neighbour's RDMA is to take travels as such, whoever made it.
        let frame = Frame::from_bytes(&frame).unwrap_or(Frame::Ethernet(frame));
        self.port.send(frame, Own { mac: self.mac, domain: Some(domain) }, self.faults);
    }

    /// The queue counter that a queue pair counts in, if it has one.
    pub(crate) fn counter(&mut self, qp: &Qp) -> Option<&mut QueueCounter> {
        self.counters.get_mut(u32::from(qp.counter_set_id))
    }
}
