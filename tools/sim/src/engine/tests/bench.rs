//! A test bench for a function: no device thread, no firmware. Objects are inserted into its tables directly, and the
//! client's memory is a file.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, ErrorCqe};
use mlx5_prm::ctx::{Cqc, Eqc, Mkc, Qpc, RoceAddrLayout};
use mlx5_prm::eqe::{Eqe, EventType};
use mlx5_prm::layout::Layout;
use mlx5_prm::values::{PathMtu, QpState, ServiceType};
use mlx5_prm::wqe::{
    AtomicSeg, CompletionMode, CtrlSeg, DataSeg, Fence, InlineSegHeader, LKEY_INVALID, RaddrSeg, SrqNextSeg, WqeOpcode,
};

use crate::dma::{Access, Source};
use crate::engine;
use crate::fault::Faults;
use crate::function::Function;
use crate::objects::RcState;
use crate::objects::*;
use crate::profile::Profile;
use crate::strict::Strict;
use crate::transport::packet::gid_of_ipv4;
use crate::wire::Port;

pub const MEMORY: u64 = 0x10_0000_0000;
const MEMORY_LEN: u64 = 32 << 20;
pub const PD: u32 = 7;
pub const UAR: u32 = 20;
/// All access rights.
pub const ALL: MkeyRights = MkeyRights::all();

pub struct Bench {
    pub f: Function,
    next: u64,
    sends: HashMap<u32, u16>,
    pub receives: HashMap<u32, u16>,
    consumed: HashMap<u32, u32>,
    events: HashMap<u32, u32>,
    pub key: u32,
}

/// Options of a queue pair.
#[derive(Clone, Copy)]
pub struct Shape {
    pub log_sends: u32,
    pub log_receives: u32,
    pub cqn_send: u32,
    pub cqn_recv: u32,
    pub mtu: PathMtu,
    pub psn: u32,
    pub ack_timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub log_reads: u8,
    pub service: ServiceType,
    pub srqn: Option<u32>,
    pub xrcd: u32,
}

/// A completion, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub opcode: CqeOpcode,
    pub index: u16,
    pub len: u32,
    pub immediate: u32,
    pub qpn: u32,
    pub syndrome: Option<CqeSyndrome>,
    pub se: bool,
    pub user_index: u32,
    pub from: u32,
}

/// A segment after the control segment.
pub enum Seg {
    Remote(u64, u32),
    Data(u64, u32, u32),
    Inline(Vec<u8>),
    Atomic(u64, u64),
    /// An address vector or another segment.
    Raw(Vec<u8>),
}

/// A work request.
pub struct Post {
    pub opcode: WqeOpcode,
    pub segs: Vec<Seg>,
    pub signalled: bool,
    pub solicited: bool,
    pub fence: bool,
    pub immediate: u32,
    pub opmod: u8,
}

impl Post {
    pub fn new(opcode: WqeOpcode, segs: Vec<Seg>) -> Self {
        Post { opcode, segs, signalled: true, solicited: false, fence: false, immediate: 0, opmod: 0 }
    }

    pub fn bytes(&self, qpn: u32, index: u16) -> Vec<u8> {
        let mut body = Vec::new();
        for seg in &self.segs {
            match seg {
                Seg::Remote(address, key) => {
                    let mut seg = RaddrSeg::ZERO;
                    seg.w().raddr(*address).rkey(*key);
                    body.extend_from_slice(seg.as_bytes());
                }
                Seg::Data(address, len, key) => body.extend_from_slice(data(*address, *len, *key).as_bytes()),
                Seg::Inline(bytes) => {
                    let mut header = InlineSegHeader::default();
                    header.w().byte_count(bytes.len() as u16);
                    body.extend_from_slice(header.as_bytes());
                    body.extend_from_slice(bytes);
                    body.resize(body.len().next_multiple_of(16), 0);
                }
                Seg::Atomic(swap_add, compare) => {
                    let mut seg = AtomicSeg::ZERO;
                    seg.w().swap_add(*swap_add).compare(*compare);
                    body.extend_from_slice(seg.as_bytes());
                }
                Seg::Raw(bytes) => body.extend_from_slice(bytes),
            }
        }
        let mut ctrl = CtrlSeg::ZERO;
        ctrl.w()
            .opmod(self.opmod)
            .wqe_index(index)
            .opcode(self.opcode)
            .qp_or_sq(qpn)
            .ds((1 + body.len() / 16) as u8)
            .ce(if self.signalled { CompletionMode::Always } else { CompletionMode::OnError })
            .fm(if self.fence { Fence::FenceAndInitiatorSmall } else { Fence::None })
            .se(self.solicited)
            .imm(self.immediate);
        let mut wqe = ctrl.as_bytes().to_vec();
        wqe.extend_from_slice(&body);
        wqe
    }
}

pub fn data(address: u64, len: u32, key: u32) -> DataSeg {
    let mut seg = DataSeg::ZERO;
    seg.w().byte_count(len).lkey(key).addr(address);
    seg
}

impl Bench {
    pub fn new() -> Self {
        Self::of(0)
    }

    /// Function `index`, with address 10.0.0.(index + 1).
    pub fn of(index: usize) -> Self {
        // As if the driver had chosen host byte order for atomics.
        let atomic_current = Profile::connectx5().atomic_max;
        let profile = Profile { atomic_current, ..Profile::connectx5() };
        let mut f = Function::new(index, profile, Strict::on(), Faults::new());
        // The queues' UAR page can be mapped by clients.
        f.share_bar(1).unwrap();
        Self::on(f, index)
    }

    /// Adds a function with address 10.0.0.(host + 1).
    pub fn on(mut f: Function, host: usize) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(MEMORY_LEN).unwrap();
        f.nic.dma.map(MEMORY, MEMORY_LEN, Access::READ | Access::WRITE, Source::File { file, offset: 0 }).unwrap();
        f.nic.objects.vport.context.w().roce_en(true);
        let mac = f.nic.objects.vport.mac();
        f.nic.objects.l2_table.as_mut().unwrap().set(0, mac);
        f.nic.port.mtu = Port::MAX_MTU;
        f.nic.objects.gids.set(
            0,
            Some(RoceAddress { gid: Self::gid(host), mac, vlan: None, ipv4: true, layout: RoceAddrLayout::ZERO }),
        );
        let mut bench = Bench {
            f,
            next: MEMORY,
            sends: HashMap::new(),
            receives: HashMap::new(),
            consumed: HashMap::new(),
            events: HashMap::new(),
            key: 0,
        };
        bench.key = bench.mkey(MEMORY, Some(MEMORY_LEN), ALL);
        bench
    }

    pub fn gid(index: usize) -> [u8; 16] {
        gid_of_ipv4([10, 0, 0, index as u8 + 1])
    }

    /// Fresh memory, filled with zeros.
    pub fn alloc(&mut self, bytes: u64) -> u64 {
        let at = self.next;
        self.next += bytes.next_multiple_of(4096);
        assert!(self.next <= MEMORY + MEMORY_LEN, "the bench has no more memory");
        at
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.f.nic.dma.write(at, bytes).unwrap();
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.f.nic.dma.read(at, &mut bytes).unwrap();
        bytes
    }

    fn pages(&mut self, bytes: u64) -> PageList {
        let first = self.alloc(bytes);
        // Pages in reverse order, so that they are not contiguous.
        let count = bytes.div_ceil(4096);
        PageList { page_shift: 12, offset: 0, pages: (0..count).rev().map(|page| first + page * 4096).collect() }
    }

    pub fn mkey(&mut self, start: u64, len: Option<u64>, rights: MkeyRights) -> u32 {
        let number = self
            .f
            .nic
            .objects
            .mkeys
            .insert(Mkey {
                variant: 0x42,
                pd: PD,
                qpn: None,
                rights,
                start,
                len,
                translation: Translation::Physical,
                context: Mkc::ZERO,
                umem: None,
                charged: 0,
            })
            .unwrap();
        number << 8 | 0x42
    }

    pub fn mkey_mut(&mut self, key: u32) -> &mut Mkey {
        self.f.nic.objects.mkeys.get_mut(key >> 8).unwrap()
    }

    pub fn eq(&mut self, log_size: u32, types: &[EventType]) -> u32 {
        let ring = self.pages(64 << log_size);
        for index in 0..1 << log_size {
            ring.write(&self.f.nic.dma, index * 64 + 63, &[1]).unwrap();
        }
        let mut event_mask = [0; 4];
        types.iter().for_each(|event| event_mask[0] |= 1 << event.number());
        let eq = Eq {
            ring,
            log_size,
            vector: 3,
            uar: UAR,
            event_mask,
            producer: 0,
            consumer: 0,
            armed: false,
            was_armed: false,
            overrun: false,
            users: 0,
            context: Eqc::ZERO,
        };
        self.f.nic.objects.eqs.insert(eq).unwrap()
    }

    pub fn cq(&mut self, log_size: u32) -> u32 {
        self.cq_of(log_size, 64, 0)
    }

    pub fn cq_of(&mut self, log_size: u32, cqe_size: u32, eqn: u32) -> u32 {
        let ring = self.pages(u64::from(cqe_size) << log_size);
        for index in 1..=1u64 << log_size {
            ring.write(&self.f.nic.dma, index * u64::from(cqe_size) - 1, &[0xf0]).unwrap();
        }
        let cq = Cq {
            ring,
            log_size,
            cqe_size,
            eqn,
            uar: UAR,
            doorbell: Doorbell { iova: self.alloc(8) },
            ignore_overrun: false,
            collapsed: false,
            producer: 0,
            began: 0,
            resized: false,
            status: CqStatus::Ok,
            arm: ArmState::Fired,
            arm_sn: 0,
            seen: Default::default(),
            compression: None,
            users: 0,
            umem: None,
            doorbell_umem: None,
            context: Cqc::ZERO,
        };
        let cqn = self.f.nic.objects.cqs.insert(cq).unwrap();
        engine::cq_created(&mut self.f, cqn);
        cqn
    }

    /// Moves a completion queue to a ring of `1 << log_size` entries and consumes the entry that says so. Whether the
    /// card did it.
    pub fn resize(&mut self, cqn: u32, log_size: u32) -> bool {
        let ring = self.pages(64 << log_size);
        for index in 1..=1u64 << log_size {
            ring.write(&self.f.nic.dma, index * 64 - 1, &[0xf0]).unwrap();
        }
        let old = self.f.nic.objects.cqs.get(cqn).unwrap();
        let (old_ring, place) = (old.ring.clone(), u64::from(old.producer & ((1 << old.log_size) - 1)));
        let mut context = old.context;
        context.w().log_cq_size(log_size as u8);
        if !engine::cq_resized(&mut self.f, cqn, ring, &context) {
            return false;
        }
        let mut last = [0; 64];
        old_ring.read(&self.f.nic.dma, place * 64, &mut last).unwrap();
        assert_eq!(Cqe::read(&last).unwrap().opcode(), CqeOpcode::ResizeCq);
        let consumed = self.consumed.entry(cqn).or_default();
        *consumed += 1;
        let record = (*consumed & 0xff_ffff).to_be_bytes();
        let iova = self.f.nic.objects.cqs.get(cqn).unwrap().doorbell.iova;
        self.write(iova, &record);
        true
    }

    pub fn shape(&mut self) -> Shape {
        let (cqn_send, cqn_recv) = (self.cq(8), self.cq(8));
        Shape {
            log_sends: 6,
            log_receives: 6,
            cqn_send,
            cqn_recv,
            mtu: PathMtu::Mtu1024,
            psn: 0xff_fff0,
            ack_timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            log_reads: 2,
            service: ServiceType::Rc,
            srqn: None,
            xrcd: 0,
        }
    }

    /// A queue pair in RST.
    pub fn qp(&mut self, shape: Shape) -> u32 {
        let sends = self.pages(64 << shape.log_sends);
        let receives = self.pages(64 << shape.log_receives);
        let mut context = Qpc::ZERO;
        context.w().next_send_psn(shape.psn).next_rcv_psn(shape.psn).log_msg_max(30).fre(true);
        let qp = Qp {
            qpn: 0,
            hidden: None,
            state: QpState::Rst,
            service: shape.service,
            pd: PD,
            uar: UAR,
            user_index: Some(0x1234),
            send: Some(SendRing { memory: sends, log_size: shape.log_sends }),
            recv: shape.srqn.is_none().then(|| RecvRing::new(receives, shape.log_receives, 6)),
            srqn: shape.srqn,
            xrcd: shape.xrcd,
            cqn_send: shape.cqn_send,
            cqn_recv: shape.cqn_recv,
            doorbell: Doorbell { iova: self.alloc(8) },
            path: AddressPath { ack_timeout: shape.ack_timeout, hop_limit: 64, ..AddressPath::default() },
            mtu: shape.mtu,
            remote_qpn: 0,
            retry_count: shape.retry_count,
            rnr_retry: shape.rnr_retry,
            min_rnr_nak: 12,
            log_sra_max: shape.log_reads,
            log_rra_max: shape.log_reads,
            remote_write: true,
            remote_read: true,
            remote_atomic: true,
            ece: 0,
            counter_set_id: 0,
            umem: None,
            doorbell_umem: None,
            traffic: Default::default(),
            context,
            rc: RcState::default(),
        };
        let qpn = self.f.queues.qps.insert(qp).unwrap();
        self.qp_mut(qpn).qpn = qpn;
        engine::qp_created(&mut self.f, qpn);
        qpn
    }

    pub fn qp_mut(&mut self, qpn: u32) -> &mut Qp {
        self.f.queues.qps.get_mut(qpn).unwrap()
    }

    pub fn state(&self, qpn: u32) -> QpState {
        self.f.queues.qps.get(qpn).unwrap().state
    }

    pub fn go(&mut self, qpn: u32, to: QpState) {
        let from = std::mem::replace(&mut self.qp_mut(qpn).state, to);
        engine::qp_state_changed(&mut self.f, qpn, from, to);
    }

    /// Connects `qpn` to `remote` at function `index` with that MAC, and moves it to RTS.
    pub fn connect(&mut self, qpn: u32, remote: u32, index: usize, mac: [u8; 6]) {
        let qp = self.qp_mut(qpn);
        qp.remote_qpn = remote;
        qp.path.rmac = mac;
        qp.path.rgid = Self::gid(index);
        self.go(qpn, QpState::Init);
        self.go(qpn, QpState::Rtr);
        self.go(qpn, QpState::Rts);
    }

    /// Two connected queue pairs of this function.
    pub fn pair(&mut self, shape: Shape) -> (u32, u32) {
        let second = Shape { cqn_send: self.cq(8), cqn_recv: self.cq(8), ..shape };
        let (a, b) = (self.qp(shape), self.qp(second));
        let mac = self.f.nic.objects.vport.mac();
        let index = self.f.nic.index;
        self.connect(a, b, index, mac);
        self.connect(b, a, index, mac);
        (a, b)
    }

    pub fn standard() -> (Self, u32, u32) {
        let mut bench = Self::new();
        let shape = bench.shape();
        let (a, b) = bench.pair(shape);
        (bench, a, b)
    }

    /// Writes a WQE to the ring and counts it as posted, without record or doorbell. Returns its index.
    pub fn put(&mut self, qpn: u32, post: &Post) -> u16 {
        let index = *self.sends.entry(qpn).or_default();
        let bytes = post.bytes(qpn, index);
        let ring = self.qp_mut(qpn).send.clone().unwrap();
        let mask = (1u64 << ring.log_size) - 1;
        for (block, bytes) in bytes.chunks(64).enumerate() {
            let place = (u64::from(index) + block as u64) & mask;
            ring.memory.write(&self.f.nic.dma, place * 64, bytes).unwrap();
        }
        *self.sends.get_mut(&qpn).unwrap() = index.wrapping_add(bytes.len().div_ceil(64) as u16);
        index
    }

    pub fn record(&mut self, qpn: u32, dword: u64, value: u32) {
        let iova = self.qp_mut(qpn).doorbell.iova + 4 * dword;
        self.write(iova, &value.to_be_bytes());
    }

    /// The doorbell for WQE `index`.
    pub fn ring_for(&mut self, qpn: u32, index: u16) {
        let ring = self.qp_mut(qpn).send.clone().unwrap();
        let mut bytes = [0; 8];
        let place = u64::from(index) & ((1 << ring.log_size) - 1);
        ring.memory.read(&self.f.nic.dma, place * 64, &mut bytes).unwrap();
        engine::send_doorbell(&mut self.f, UAR, u64::from_be_bytes(bytes));
    }

    pub fn posted(&self, qpn: u32) -> u16 {
        self.sends.get(&qpn).copied().unwrap_or_default()
    }

    pub fn post(&mut self, qpn: u32, post: &Post) -> u16 {
        let index = self.put(qpn, post);
        let posted = self.posted(qpn);
        self.record(qpn, 1, posted.into());
        self.ring_for(qpn, index);
        index
    }

    pub fn post_recv(&mut self, qpn: u32, segs: &[DataSeg]) -> u16 {
        let index = *self.receives.entry(qpn).or_default();
        let mut bytes: Vec<u8> = segs.iter().flat_map(|seg| seg.as_bytes().to_vec()).collect();
        if bytes.len() < 64 {
            bytes.extend_from_slice(data(0, 0, LKEY_INVALID).as_bytes());
        }
        bytes.truncate(64);
        let ring = self.qp_mut(qpn).recv.clone().unwrap();
        let place = u64::from(index) & ((1 << ring.log_size) - 1);
        ring.memory.write(&self.f.nic.dma, place * 64, &bytes).unwrap();
        self.receives.insert(qpn, index.wrapping_add(1));
        self.record(qpn, 0, index.wrapping_add(1).into());
        index
    }

    /// A shared receive queue of 8 WQEs, linked in a ring backwards from WQE 0.
    pub fn srq(&mut self, xrc: Option<XrcSrq>) -> u32 {
        const LOG_SIZE: u32 = 3;
        let memory = self.pages(64 << LOG_SIZE);
        for index in 0..1u16 << LOG_SIZE {
            let mut link = SrqNextSeg::ZERO;
            link.w().next_wqe_index(index.wrapping_sub(1) & 7);
            memory.write(&self.f.nic.dma, u64::from(index) * 64, link.as_bytes()).unwrap();
        }
        let srq = Srq {
            srqn: 0,
            pd: PD,
            xrc,
            ring: RecvRing::new(memory, LOG_SIZE, 6),
            doorbell: Doorbell { iova: self.alloc(8) },
            umem: None,
            doorbell_umem: None,
            posted: 0,
            taken: 0,
            next: 0,
            limit: 0,
            is_cyclic: false,
            users: 0,
        };
        let srqn = self.f.nic.objects.srqs.insert(srq).unwrap();
        self.srq_mut(srqn).srqn = srqn;
        srqn
    }

    pub fn srq_mut(&mut self, srqn: u32) -> &mut Srq {
        self.f.nic.objects.srqs.get_mut(srqn).unwrap()
    }

    /// Fills WQE `index` of a shared receive queue and counts it as posted.
    pub fn post_srq(&mut self, srqn: u32, index: u16, segs: &[DataSeg]) {
        let mut bytes: Vec<u8> = segs.iter().flat_map(|seg| seg.as_bytes().to_vec()).collect();
        bytes.extend_from_slice(data(0, 0, LKEY_INVALID).as_bytes());
        let ring = self.srq_mut(srqn).ring.clone();
        ring.memory.write(&self.f.nic.dma, u64::from(index) * 64 + 16, &bytes[..bytes.len().min(48)]).unwrap();
        let iova = self.srq_mut(srqn).doorbell.iova;
        let posted = u32::from_be_bytes(self.read(iova, 4).try_into().unwrap());
        self.write(iova, &(posted + 1).to_be_bytes());
    }

    /// The next completion, consumed; checks ownership and signature.
    pub fn poll(&mut self, cqn: u32) -> Option<Done> {
        let consumed = *self.consumed.entry(cqn).or_default();
        let cq = self.f.nic.objects.cqs.get(cqn).unwrap();
        let place = u64::from(consumed & ((1 << cq.log_size) - 1));
        let mut bytes = [0; 64];
        let at = place * u64::from(cq.cqe_size) + u64::from(cq.cqe_size) - 64;
        cq.ring.read(&self.f.nic.dma, at, &mut bytes).unwrap();
        let cqe = Cqe::read(&bytes).unwrap();
        let is_ours = cqe.opcode() != CqeOpcode::Invalid && cqe.owner() == (consumed >> cq.log_size & 1 != 0);
        if !is_ours {
            return None;
        }
        assert_eq!(!bytes.iter().fold(0, |sum, byte| sum ^ byte), consumed as u8, "signature of completion {consumed}");
        self.consumed.insert(cqn, consumed + 1);
        let iova = self.f.nic.objects.cqs.get(cqn).unwrap().doorbell.iova;
        self.write(iova, &((consumed + 1) & 0xff_ffff).to_be_bytes());
        let failed = matches!(cqe.opcode(), CqeOpcode::RequesterError | CqeOpcode::ResponderError);
        Some(Done {
            opcode: cqe.opcode(),
            index: cqe.wqe_counter(),
            len: if failed { 0 } else { cqe.byte_cnt() },
            immediate: cqe.immediate(),
            qpn: cqe.qpn(),
            syndrome: failed.then(|| ErrorCqe::read(&bytes).unwrap().syndrome()),
            se: cqe.se(),
            user_index: cqe.srqn(),
            from: if failed { 0 } else { cqe.rqpn() },
        })
    }

    /// All available completions.
    pub fn drain(&mut self, cqn: u32) -> Vec<Done> {
        std::iter::from_fn(|| self.poll(cqn)).collect()
    }

    pub fn sent(&mut self, qpn: u32) -> Vec<Done> {
        let cqn = self.qp_mut(qpn).cqn_send;
        self.drain(cqn)
    }

    pub fn received(&mut self, qpn: u32) -> Vec<Done> {
        let cqn = self.qp_mut(qpn).cqn_recv;
        self.drain(cqn)
    }

    /// The next event, consumed without a doorbell.
    pub fn event(&mut self, eqn: u32) -> Option<(EventType, [u8; 28])> {
        let consumed = *self.events.entry(eqn).or_default();
        let eq = self.f.nic.objects.eqs.get(eqn).unwrap();
        let mut bytes = [0; 64];
        eq.ring.read(&self.f.nic.dma, u64::from(consumed & ((1 << eq.log_size) - 1)) * 64, &mut bytes).unwrap();
        let eqe = Eqe::read(&bytes).unwrap();
        if eqe.owner() != (consumed >> eq.log_size & 1 != 0) {
            return None;
        }
        self.events.insert(eqn, consumed + 1);
        Some((eqe.event_type(), *eqe.event_data()))
    }

    pub fn eq_doorbell(&mut self, eqn: u32, arm: bool) {
        let consumed = self.events.get(&eqn).copied().unwrap_or_default();
        engine::eq_doorbell(&mut self.f, UAR, eqn << 24 | consumed & 0xff_ffff, arm);
    }

    /// Arms a CQ with the last published consumer index.
    pub fn arm(&mut self, cqn: u32, sn: u32, solicited: bool) {
        let consumed = self.consumed.get(&cqn).copied().unwrap_or_default();
        self.arm_at(cqn, sn, solicited, consumed);
    }

    pub fn arm_at(&mut self, cqn: u32, sn: u32, solicited: bool, consumer: u32) {
        let request = sn << 28 | u32::from(solicited) << 24 | consumer;
        let iova = self.f.nic.objects.cqs.get(cqn).unwrap().doorbell.iova;
        self.write(iova + 4, &request.to_be_bytes());
        engine::cq_doorbell(&mut self.f, UAR, u64::from(request) << 32 | u64::from(cqn));
    }

    /// Runs until nothing is left to do at the current time.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            if !engine::run(&mut self.f) {
                return;
            }
        }
        panic!("the engine never comes to rest");
    }

    /// Runs, advancing time from deadline to deadline, up to `limit`.
    pub fn run_for(&mut self, limit: Duration) {
        let end = self.f.nic.now + limit;
        loop {
            self.run();
            match engine::next_deadline(&self.f) {
                Some(next) if next <= end => self.f.nic.now = next.max(self.f.nic.now),
                _ => break,
            }
        }
        self.f.nic.now = end;
    }

    pub fn violations(&self) -> Vec<&'static str> {
        self.f.nic.strict.take().into_iter().map(|violation| violation.rule).collect()
    }

    pub fn now(&self) -> Instant {
        self.f.nic.now
    }
}

/// A send of memory.
pub fn send(at: u64, len: u32, key: u32) -> Post {
    Post::new(WqeOpcode::Send, vec![Seg::Data(at, len, key)])
}

/// A write of memory.
pub fn write(at: u64, len: u32, key: u32, to: u64, rkey: u32) -> Post {
    Post::new(WqeOpcode::RdmaWrite, vec![Seg::Remote(to, rkey), Seg::Data(at, len, key)])
}

/// A read into memory.
pub fn read(at: u64, len: u32, key: u32, from: u64, rkey: u32) -> Post {
    Post::new(WqeOpcode::RdmaRead, vec![Seg::Remote(from, rkey), Seg::Data(at, len, key)])
}

/// Test data: each byte depends on its position.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed)).collect()
}
