//! Ethernet queues and flow tables: creation, all refusals, and use.

use mlx5_prm::cmd::*;
use mlx5_prm::cqe::{Cqe, CqeFormat, CqeOpcode, CqeSyndrome, ErrorCqe, MiniCqeFormat};
use mlx5_prm::ctx::*;
use mlx5_prm::flow::*;
use mlx5_prm::layout::{Be32, Be64, Layout};
use mlx5_prm::wqe::{CompletionMode, CtrlSeg, DataSeg, EthSeg, LKEY_INVALID, SEGMENT, WQEBB, WqeOpcode};

use super::client::{Client, Parents};
use crate::engine;
use crate::firmware::syndromes::Syndrome;
use crate::objects::Compression;
use crate::strict::rules;
use crate::transport::packet::Route;
use crate::transport::{Opcode, Packet, Psn, icrc};

/// Entries of each ring.
const LOG_SIZE: u8 = 4;
/// Size of a buffer in bytes.
const BUFFER: u64 = 2048;

/// A function with all objects between a send queue and a receive queue.
pub(super) struct Rig {
    pub(super) client: Client,
    pub(super) parents: Parents,
    pub(super) domain: u32,
    tisn: u32,
    pub(super) sqn: u32,
    pub(super) rqn: u32,
    pub(super) rqtn: u32,
    pub(super) tirn: u32,
    pub(super) table: u32,
    pub(super) group: u32,
    counter: u32,
    send_ring: u64,
    pub(super) receive_ring: u64,
    buffers: u64,
    pub(super) key: u32,
    pub(super) posted: u16,
    pub(super) consumed: u32,
    pub(super) cq_ring: u64,
}

fn create_sq(parents: &Parents, tisn: u32, ring: u64) -> WithTail<CreateSqIn, Be64> {
    let mut wq = Wq::ZERO;
    wq.w()
        .wq_type(WqType::Cyclic)
        .pd(parents.pd)
        .uar_page(parents.uar)
        .dbr_addr(parents.doorbells + 128)
        .log_wq_stride(6)
        .log_wq_sz(LOG_SIZE);
    let mut context = Sqc::ZERO;
    context.w().cqn(parents.cqn).tis_lst_sz(1).tis_num_0(tisn).flush_in_error_en(true).user_index(7).wq(&wq);
    let mut command = CreateSqIn::default();
    command.w().ctx(&context);
    WithTail::new(command, vec![Be64::new(ring)])
}

pub(super) fn create_rq(parents: &Parents, ring: u64) -> WithTail<CreateRqIn, Be64> {
    let mut wq = Wq::ZERO;
    wq.w()
        .wq_type(WqType::Cyclic)
        .pd(parents.pd)
        .dbr_addr(parents.doorbells + 192)
        .log_wq_stride(5)
        .log_wq_sz(LOG_SIZE);
    let mut context = Rqc::ZERO;
    context.w().cqn(parents.cqn).flush_in_error_en(true).user_index(8).wq(&wq);
    let mut command = CreateRqIn::default();
    command.w().ctx(&context);
    WithTail::new(command, vec![Be64::new(ring)])
}

pub(super) fn create_rqt(rqs: &[u32]) -> WithTail<CreateRqtIn, Be32> {
    let mut context = Rqtc::ZERO;
    context.w().rqt_max_size(16).rqt_actual_size(rqs.len() as u16);
    let mut command = CreateRqtIn::default();
    command.w().rqt_context(&context);
    WithTail::new(command, rqs.iter().map(|rqn| Be32::new(*rqn)).collect())
}

pub(super) fn create_tir(domain: u32, rqtn: u32) -> CreateTirIn {
    let mut context = Tirc::ZERO;
    context
        .w()
        .disp_type(TirDispType::Indirect)
        .indirect_table(rqtn)
        .rx_hash_fn(RxHashFn::Toeplitz)
        .rx_hash_symmetric(true)
        .self_lb_block(3)
        .transport_domain(domain);
    let mut command = CreateTirIn::default();
    command.w().ctx(&context);
    command
}

pub(super) fn create_table(level: u8) -> CreateFlowTableIn {
    let mut context = FlowTableContext::ZERO;
    context.w().level(level).log_size(4);
    let mut command = CreateFlowTableIn::default();
    command.w().flow_table_context(&context);
    command
}

pub(super) fn create_group(table: u32, first: u32, last: u32) -> CreateFlowGroupIn {
    let mut command = CreateFlowGroupIn::default();
    command.w().table_id(table).start_flow_index(first).end_flow_index(last);
    command
}

pub(super) fn destination(kind: FlowDestinationType, number: u32) -> Be64 {
    Be64::new(u64::from(kind.number()) << 56 | u64::from(number) << 32)
}

/// An entry for any frame that counts, and forwards to a TIR.
fn set_entry(table: u32, group: u32, index: u32, tirn: u32, counter: u32) -> WithTail<SetFteIn, Be64> {
    let mut context = FlowContext::ZERO;
    context.w().group_id(group).action(4 | 8).flow_tag(0x55).destination_list_size(1).flow_counter_list_size(1);
    let mut command = SetFteIn::default();
    command.w().table_id(table).flow_index(index).flow_context(&context);
    WithTail::new(command, vec![destination(FlowDestinationType::Tir, tirn), Be64::new(u64::from(counter) << 32)])
}

pub(super) fn move_sq(sqn: u32, from: QueueState, to: QueueState) -> ModifySqIn {
    let mut context = Sqc::ZERO;
    context.w().state(to);
    let mut command = ModifySqIn::default();
    command.w().sqn(sqn).sq_state(from).ctx(&context);
    command
}

pub(super) fn move_rq(rqn: u32, from: QueueState, to: QueueState) -> ModifyRqIn {
    let mut context = Rqc::ZERO;
    context.w().state(to);
    let mut command = ModifyRqIn::default();
    command.w().rqn(rqn).rq_state(from).ctx(&context);
    command
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(Client::new(), TimestampFormat::FreeRunning)
    }

    /// The same on this function, which has just started; completions of frames sent have times of this format.
    pub(super) fn with(mut client: Client, format: TimestampFormat) -> Self {
        client.bring_up();
        let parents = client.parents();
        // The CQ of `parents` is the last object created; its ring is the page before.
        let cq_ring = client.f.nic.objects.cqs.get(parents.cqn).unwrap().ring.pages[0];
        let domain = client.exec(&AllocTransportDomainIn::default()).unwrap().transport_domain();
        let mut tis = CreateTisIn::default();
        let mut context = Tisc::ZERO;
        context.w().transport_domain(domain);
        tis.w().ctx(&context);
        let tisn = client.exec(&tis).unwrap().tisn();
        let (send_ring, receive_ring) = (client.pages(1), client.pages(1));
        let mut create = create_sq(&parents, tisn, send_ring);
        let mut context = *create.command.ctx();
        context.w().ts_format(format);
        create.command.w().ctx(&context);
        let sqn = client.exec(&create).unwrap().reply.sqn();
        let rqn = client.exec(&create_rq(&parents, receive_ring)).unwrap().reply.rqn();
        let rqtn = client.exec(&create_rqt(&[rqn])).unwrap().reply.rqtn();
        let tirn = client.exec(&create_tir(domain, rqtn)).unwrap().tirn();
        let table = client.exec(&create_table(1)).unwrap().table_id();
        let group = client.exec(&create_group(table, 0, 7)).unwrap().group_id();
        let counter = client.exec(&AllocFlowCounterIn::default()).unwrap().flow_counter_id();
        client.exec(&set_entry(table, group, 0, tirn, counter)).unwrap();
        let mut root = SetFlowTableRootIn::default();
        root.w().table_id(table);
        client.exec(&root).unwrap();
        client.exec(&move_sq(sqn, QueueState::Rst, QueueState::Rdy)).unwrap();
        client.exec(&move_rq(rqn, QueueState::Rst, QueueState::Rdy)).unwrap();
        let buffers = client.pages(32);
        let mut context = Mkc::ZERO;
        context.w().pd(parents.pd).lr(true).lw(true).length64(true).qpn(0xff_ffff);
        let mut command = CreateMkeyIn::default();
        command.w().memory_key_mkey_entry(&context);
        let key = client.exec(&WithTail::<_, Be64>::new(command, vec![])).unwrap().reply.mkey_index() << 8;
        Rig {
            client,
            parents,
            domain,
            tisn,
            sqn,
            rqn,
            rqtn,
            tirn,
            table,
            group,
            counter,
            send_ring,
            receive_ring,
            buffers,
            key,
            posted: 0,
            consumed: 0,
            cq_ring,
        }
    }

    /// Address of buffer `index`.
    pub(super) fn buffer(&self, index: u64) -> u64 {
        self.buffers + index * BUFFER
    }

    /// Posts `count` receives of one buffer each.
    pub(super) fn post_receives(&mut self, count: u16) {
        for index in 0..count {
            let mut first = DataSeg::ZERO;
            first.w().byte_count(BUFFER as u32).lkey(self.key).addr(self.buffer(32 + u64::from(index)));
            let mut end = DataSeg::ZERO;
            end.w().lkey(LKEY_INVALID);
            let wqe = [first.as_bytes(), end.as_bytes()].concat();
            self.client.write(self.receive_ring + u64::from(index) * 32, &wqe);
        }
        self.client.write(self.parents.doorbells + 192, &u32::from(count).to_be_bytes());
    }

    /// Posts a WQE of one WQEBB and rings. `eth` follows the control segment, then the data at `buffer`.
    fn post(&mut self, opcode: WqeOpcode, eth: &EthSeg, buffer: u64, len: u32) {
        self.post_as(opcode, 0, eth, buffer, len);
    }

    fn post_as(&mut self, opcode: WqeOpcode, opmod: u8, eth: &EthSeg, buffer: u64, len: u32) {
        let mut data = DataSeg::ZERO;
        data.w().byte_count(len).lkey(self.key).addr(buffer);
        self.post_segments(opcode, opmod, &[eth.as_bytes(), data.as_bytes()].concat());
    }

    /// Posts a WQE of one WQEBB, of these segments after the control segment, and rings.
    pub(super) fn post_segments(&mut self, opcode: WqeOpcode, opmod: u8, segments: &[u8]) {
        let wqe = self.put(opcode, opmod, segments);
        self.record(self.posted.into());
        self.ring(&wqe);
    }

    /// Writes a WQE of one WQEBB to the ring, of these segments after the control segment. Returns it.
    pub(super) fn put(&mut self, opcode: WqeOpcode, opmod: u8, segments: &[u8]) -> Vec<u8> {
        let mut ctrl = CtrlSeg::ZERO;
        ctrl.w().opmod(opmod).wqe_index(self.posted).opcode(opcode).qp_or_sq(self.sqn).ce(CompletionMode::Always);
        ctrl.w().ds(1 + (segments.len() / SEGMENT) as u8);
        let place = self.send_ring + u64::from(self.posted % (1 << LOG_SIZE)) * 64;
        let wqe = [ctrl.as_bytes(), segments].concat();
        self.client.write(place, &wqe);
        self.posted += 1;
        wqe
    }

    /// Writes the WQE that was put last once more.
    pub(super) fn rewrite(&mut self, wqe: &[u8]) {
        let place = self.send_ring + u64::from((self.posted - 1) % (1 << LOG_SIZE)) * 64;
        self.client.write(place, wqe);
    }

    /// Writes the send counter of the doorbell record.
    pub(super) fn record(&mut self, counter: u32) {
        self.client.write(self.parents.doorbells + 132, &counter.to_be_bytes());
    }

    /// Rings for a WQE, by its first eight bytes.
    pub(super) fn ring(&mut self, wqe: &[u8]) {
        let head = u64::from_be_bytes(*wqe.first_chunk().unwrap());
        engine::send_doorbell(&mut self.client.f, self.parents.uar, head);
        while engine::run(&mut self.client.f) {}
    }

    /// Sends the first buffer unchanged.
    pub(super) fn send(&mut self, frame: &[u8]) {
        let buffer = self.buffer(0);
        self.client.write(buffer, frame);
        self.post(WqeOpcode::Send, &EthSeg::ZERO, buffer, frame.len() as u32);
    }

    /// The next completion.
    fn poll(&mut self) -> Option<Cqe> {
        let place = self.cq_ring + u64::from(self.consumed % 64) * 64;
        let cqe = Cqe::read(&self.client.read(place, 64)).unwrap();
        let is_ours = cqe.opcode() != CqeOpcode::Invalid && cqe.owner() == (self.consumed >> 6 & 1 != 0);
        if is_ours {
            self.consumed += 1;
            self.client.write(self.parents.doorbells, &self.consumed.to_be_bytes());
        }
        is_ours.then_some(cqe)
    }

    pub(super) fn polls(&mut self) -> Vec<Cqe> {
        std::iter::from_fn(|| self.poll()).collect()
    }

    /// A UDP frame to the function itself, with valid checksums.
    pub(super) fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let mac = self.client.f.nic.objects.vport.mac();
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], mac)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(1000, 2000);
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        frame
    }
}

#[test]
fn a_frame_goes_from_a_send_queue_through_steering_to_a_receive_queue() {
    let mut rig = Rig::new();
    rig.post_receives(2);
    let frame = rig.frame(b"some data, long enough for a frame without padding");
    rig.send(&frame);
    let done = rig.polls();
    assert_eq!(done.len(), 2);
    assert_eq!(
        (done[0].opcode(), done[0].wqe_counter(), done[0].qpn(), done[0].srqn()),
        (CqeOpcode::Requester, 0, rig.sqn, 7)
    );
    let received = &done[1];
    assert_eq!(
        (received.opcode(), received.byte_cnt(), received.srqn()),
        (CqeOpcode::ResponderSend, frame.len() as u32, 8)
    );
    assert_eq!((received.qpn(), received.wqe_counter()), (0x55, 0), "the flow tag, the WQE");
    assert!(received.l2_ok() && received.l3_ok() && received.l4_ok());
    assert_eq!(rig.client.read(rig.buffer(32), frame.len()), frame);
    let mut query = QueryFlowCounterIn::default();
    query.w().flow_counter_id(rig.counter);
    let mut query = WithTail::<_, Be64>::new(query, vec![]);
    query.out_tail = 2;
    let counted = TrafficCounter::read(&rig.client.exec(&query).unwrap().tail).unwrap();
    assert_eq!((counted.packets(), counted.octets()), (1, frame.len() as u64));
    let counters = rig.client.exec(&QueryVportCounterIn::default()).unwrap();
    assert_eq!(counters.transmitted_eth_unicast().packets(), 1);
    assert_eq!(counters.received_eth_unicast().octets(), frame.len() as u64);
    assert_eq!(rig.client.violations(), [""; 0]);
}

#[test]
fn without_roce_what_has_its_port_is_udp_like_any_other() {
    let mut rig = Rig::new();
    rig.post_receives(6);
    let mac = rig.client.f.nic.objects.vport.mac();
    let mut garbage = rig.frame(b"no packet of RoCE");
    garbage[36..38].copy_from_slice(&4791_u16.to_be_bytes());
    let route = Route { dst_mac: mac, src: [0xfe; 16], dst: [0xfd; 16], ..Route::default() };
    let mut packet = Vec::new();
    Packet::new(Opcode::Acknowledge, route, 64, Psn::new(1)).encode(&mut packet);
    // A UDP checksum, which RoCE's own packets have not.
    packet[14 + 40 + 6..14 + 40 + 8].copy_from_slice(&[0x12, 0x34]);
    let sum = icrc::compute(&packet[14..packet.len() - 4]).to_le_bytes();
    let end = packet.len() - 4;
    packet[end..].copy_from_slice(&sum);
    assert!(Packet::decode(&packet).is_ok());
    let mut heard = Vec::new();
    for frame in [&garbage, &packet] {
        engine::receive(&mut rig.client.f, crate::wire::Frame::Ethernet(frame.clone()));
        while engine::run(&mut rig.client.f) {}
        heard.extend(rig.polls());
        // And from a send queue.
        rig.send(frame);
        heard.extend(rig.polls().into_iter().filter(|cqe| cqe.opcode() == CqeOpcode::ResponderSend));
    }
    assert_eq!(heard.len(), 4);
    for (index, frame) in [&garbage, &garbage, &packet, &packet].into_iter().enumerate() {
        assert_eq!(rig.client.read(rig.buffer(32 + index as u64), frame.len()), *frame, "{index}");
    }
    rig.client.ready_for_roce();
    for frame in [garbage, packet] {
        let dropped = rig.client.f.nic.port.counters.dropped;
        engine::receive(&mut rig.client.f, crate::wire::Frame::Ethernet(frame));
        while engine::run(&mut rig.client.f) {}
        assert_eq!((rig.polls().len(), rig.client.f.nic.port.counters.dropped), (0, dropped + 1));
    }
}

#[test]
fn a_frame_goes_on_in_the_next_segment_also_where_segments_ask_for_padding() {
    const START_PADDING: u32 = 1 << 31;
    let mut rig = Rig::new();
    rig.post_receives(1);
    let mut wqe = Vec::new();
    for (index, room) in [(40, 60), (41, BUFFER as u32)] {
        let mut segment = DataSeg::ZERO;
        segment.w().byte_count(room | START_PADDING).lkey(rig.key).addr(rig.buffer(index));
        wqe.extend_from_slice(segment.as_bytes());
    }
    rig.client.write(rig.receive_ring, &wqe);
    let frame = rig.frame(&[7; 200]);
    rig.send(&frame);
    assert_eq!(rig.polls()[1].byte_cnt(), frame.len() as u32);
    assert_eq!(rig.client.read(rig.buffer(40), 60), frame[..60]);
    assert_eq!(rig.client.read(rig.buffer(40) + 60, 140), [0; 140], "memory that was not posted");
    assert_eq!(rig.client.read(rig.buffer(41), frame.len() - 60), frame[60..]);
}

#[test]
fn checksums_and_a_vlan_tag_are_put_in_and_the_tag_is_taken_off_again() {
    let mut rig = Rig::new();
    rig.post_receives(1);
    let frame = rig.frame(b"data that is to be protected by checksums");
    let mut wiped = frame.clone();
    wiped[24..26].fill(0);
    wiped[40..42].fill(0);
    let buffer = rig.buffer(0);
    rig.client.write(buffer, &wiped);
    let mut eth = EthSeg::ZERO;
    eth.w().l3_csum(true).l4_csum(true).insert_vlan(true).inline_hdr_start(0x2005);
    rig.post(WqeOpcode::Send, &eth, buffer, wiped.len() as u32);
    let done = rig.polls();
    assert_eq!((done[1].cv(), done[1].vlan_info()), (true, 0x2005));
    assert!(done[1].l3_ok() && done[1].l4_ok());
    assert_eq!(rig.client.read(rig.buffer(32), frame.len()), frame);
    assert_eq!(rig.client.violations(), [""; 0]);
}

/// Sends `payload` behind `header`, which is inlined, as segments of 1000 bytes.
fn post_large(rig: &mut Rig, header: &[u8], payload: &[u8]) {
    let buffer = rig.buffer(0);
    rig.client.write(buffer, payload);
    // The header is inline: two bytes in the Ethernet segment, the rest in the following segments.
    let mut eth = EthSeg::ZERO;
    eth.w().mss(1000).inline_hdr_sz(header.len() as u16);
    eth.w().inline_hdr_start(u16::from_be_bytes([header[0], header[1]]));
    let mut data = DataSeg::ZERO;
    data.w().byte_count(payload.len() as u32).lkey(rig.key).addr(buffer);
    let mut inline = header[2..].to_vec();
    inline.resize(inline.len().next_multiple_of(16), 0);
    let ds = 2 + inline.len() / 16 + 1;
    let mut ctrl = CtrlSeg::ZERO;
    ctrl.w().opcode(WqeOpcode::Lso).qp_or_sq(rig.sqn).ds(ds as u8).ce(CompletionMode::Always);
    let wqe = [ctrl.as_bytes(), eth.as_bytes(), &inline, data.as_bytes()].concat();
    rig.client.write(rig.send_ring, &wqe);
    rig.client.write(rig.parents.doorbells + 132, &(wqe.len().div_ceil(64) as u32).to_be_bytes());
    engine::send_doorbell(&mut rig.client.f, rig.parents.uar, u64::from_be_bytes(*wqe.first_chunk().unwrap()));
    while engine::run(&mut rig.client.f) {}
}

/// Linux' test of write combining: the copy asks for a completion, the WQE in the ring does not.
#[test]
fn a_copy_is_executed_instead_of_the_ring() {
    let mut rig = Rig::new();
    for (mode, completions) in [(CompletionMode::Always, 1), (CompletionMode::OnError, 0)] {
        let mut wqe = rig.put(WqeOpcode::Nop, 0, &[]);
        let mut ctrl = CtrlSeg::read(&wqe).unwrap();
        ctrl.w().ce(CompletionMode::OnError);
        rig.rewrite(ctrl.as_bytes());
        rig.record(rig.posted.into());
        ctrl.w().ce(mode);
        wqe[..SEGMENT].copy_from_slice(ctrl.as_bytes());
        wqe.resize(WQEBB, 0);
        engine::send_copy(&mut rig.client.f, rig.parents.uar, &wqe);
        while engine::run(&mut rig.client.f) {}
        assert_eq!(rig.polls().len(), completions, "{mode}");
    }
    let wqe = rig.put(WqeOpcode::Nop, 0, &[]);
    rig.record(rig.posted.into());
    rig.ring(&wqe);
    assert_eq!(rig.polls().len(), 1, "the ring's, by a doorbell alone");
}

#[test]
fn a_large_send_arrives_as_segments() {
    let mut rig = Rig::new();
    rig.post_receives(4);
    let mac = rig.client.f.nic.objects.vport.mac();
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], mac).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let mut header = Vec::new();
    builder.tcp(1, 2, 100, 1000).ack(1).write(&mut header, &[]).unwrap();
    let payload: Vec<u8> = (0..2500u32).map(|at| at as u8).collect();
    post_large(&mut rig, &header, &payload);
    let done = rig.polls();
    let lengths: Vec<_> = done[1..].iter().map(|cqe| cqe.byte_cnt() as usize - header.len()).collect();
    assert_eq!(lengths, [1000, 1000, 500]);
    assert!(done[1..].iter().all(|cqe| cqe.l3_ok() && cqe.l4_ok()));
    assert_eq!(rig.client.read(rig.buffer(34) + header.len() as u64, 500), payload[2000..]);
    assert_eq!(rig.client.violations(), [""; 0]);
}

/// As Linux's drivers do: mlx5e_udp_gso_handle_tx_skb, and GSO_PARTIAL for what is left.
#[test]
fn the_length_of_datagrams_of_a_large_send_is_the_drivers() {
    const UDP_LENGTH: usize = 38;
    for (given, payload, is_right) in
        [(1008u16, 2000, true), (0, 2000, false), (2008, 2000, false), (1008, 2500, false)]
    {
        let mut rig = Rig::new();
        rig.post_receives(4);
        let mac = rig.client.f.nic.objects.vport.mac();
        let (mut header, source) = (Vec::new(), [2, 0, 0, 0, 0, 9]);
        let builder = etherparse::PacketBuilder::ethernet2(source, mac).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        builder.udp(1, 2).write(&mut header, &[]).unwrap();
        header[UDP_LENGTH..UDP_LENGTH + 2].copy_from_slice(&given.to_be_bytes());
        post_large(&mut rig, &header, &vec![7; payload]);
        assert_eq!(rig.polls().len(), 1 + payload.div_ceil(1000));
        assert_eq!(rig.client.read(rig.buffer(32) + UDP_LENGTH as u64, 2), given.to_be_bytes());
        let rules: &[_] = if is_right { &[] } else { &[rules::UDP_LENGTH] };
        assert_eq!(rig.client.violations(), rules, "{given}, {payload}");
    }
}

#[test]
fn packets_of_one_length_go_out_of_one_work_request_where_the_queue_allows_it() {
    for is_allowed in [true, false] {
        let mut rig = Rig::new();
        rig.post_receives(3);
        rig.client.f.queues.sqs.get_mut(rig.sqn).unwrap().context.w().allow_multi_pkt_send_wqe(is_allowed);
        let packets: Vec<_> = [1, 2, 3].map(|fill| rig.frame(&[fill; 100])).into();
        let (buffer, size) = (rig.buffer(0), packets[0].len());
        rig.client.write(buffer, &packets.concat());
        let mut eth = EthSeg::ZERO;
        eth.w().mss(size as u16);
        rig.post_as(WqeOpcode::Lso, 1, &eth, buffer, 3 * size as u32);
        let done = rig.polls();
        if !is_allowed {
            assert_eq!(done[0].opcode(), CqeOpcode::RequesterError);
            assert_eq!(rig.client.violations(), ["opcode not supported"]);
            continue;
        }
        assert_eq!(done[1..].iter().map(|cqe| cqe.byte_cnt() as usize).collect::<Vec<_>>(), [size; 3]);
        for (index, packet) in (32..).zip(&packets) {
            assert_eq!(rig.client.read(rig.buffer(index), size), *packet);
        }
        assert_eq!(rig.client.violations(), [""; 0]);
    }
}

/// DPDK's vector code would give back what lies behind the ring.
#[test]
fn a_block_of_compressed_completions_does_not_go_round_the_end_of_the_ring() {
    let mut rig = Rig::new();
    rig.post_receives(16);
    rig.client.f.queues.sqs.get_mut(rig.sqn).unwrap().context.w().allow_multi_pkt_send_wqe(true);
    let compression = Compression { format: MiniCqeFormat::Hash, held: Vec::new(), number: 0 };
    rig.client.f.nic.objects.cqs.get_mut(rig.parents.cqn).unwrap().compression = Some(compression);
    let packet = rig.frame(&[7; 100]);
    let (buffer, size) = (rig.buffer(0), packet.len());
    rig.client.write(buffer, &packet.repeat(2));
    let mut eth = EthSeg::ZERO;
    eth.w().mss(size as u16);
    let (mut blocks, mut alone) = (0, 0);
    for round in 1..=64u32 {
        rig.post_as(WqeOpcode::Lso, 1, &eth, buffer, 2 * size as u32);
        // Each round completes one send and two receives.
        while rig.consumed < 3 * round {
            let at = rig.consumed % 64;
            let cqe = Cqe::read(&rig.client.read(rig.cq_ring + u64::from(at) * 64, 64)).unwrap();
            let is_block = cqe.cqe_format() == CqeFormat::Compressed.number() as u8;
            let entries = if is_block { cqe.byte_cnt() } else { 1 };
            assert!(at + entries <= 64, "{entries} entries from {at}");
            blocks += u32::from(is_block);
            alone += u32::from(!is_block && cqe.opcode() == CqeOpcode::ResponderSend);
            for entry in at..at + entries {
                rig.client.write(rig.cq_ring + u64::from(entry) * 64 + 63, &[0xf0]);
            }
            rig.consumed += entries;
        }
        rig.client.write(rig.parents.doorbells, &rig.consumed.to_be_bytes());
        rig.client.write(rig.parents.doorbells + 192, &(16 + 2 * round).to_be_bytes());
    }
    assert_eq!((blocks, alone), (63, 2));
    assert_eq!(rig.client.violations(), [""; 0]);
}

#[test]
fn a_frame_for_which_nothing_is_posted_is_lost_and_counted() {
    let mut rig = Rig::new();
    let counter = rig.client.exec(&AllocQCounterIn::default()).unwrap().counter_set_id();
    let mut command = create_rq(&rig.parents, rig.receive_ring);
    let mut context = *command.command.ctx();
    context.w().counter_set_id(counter);
    command.command.w().ctx(&context);
    let rqn = rig.client.exec(&command).unwrap().reply.rqn();
    rig.client.exec(&move_rq(rqn, QueueState::Rst, QueueState::Rdy)).unwrap();
    let mut modify = ModifyRqtIn::default();
    let (mut bitmask, mut rqt) = (RqtBitmask::ZERO, Rqtc::ZERO);
    bitmask.w().rqn_list(true);
    rqt.w().rqt_actual_size(1);
    modify.w().rqtn(rig.rqtn).bitmask(&bitmask).ctx(&rqt);
    rig.client.exec(&WithTail::new(modify, vec![Be32::new(rqn)])).unwrap();
    let frame = rig.frame(b"lost");
    rig.send(&frame);
    assert_eq!(rig.polls().len(), 1, "the send alone");
    let mut query = QueryQCounterIn::default();
    query.w().counter_set_id(counter);
    assert_eq!(rig.client.exec(&query).unwrap().out_of_buffer(), 1);
    let mut dealloc = DeallocQCounterIn::default();
    dealloc.w().counter_set_id(counter);
    assert_eq!(rig.client.refused(&dealloc), Syndrome::CounterInUse);
}

#[test]
fn what_its_own_domain_sent_comes_only_where_it_is_asked_for() {
    let mut rig = Rig::new();
    rig.post_receives(3);
    let mut modify = ModifyTirIn::default();
    let (mut bitmask, mut tir) = (ModifyTirBitmask::ZERO, Tirc::ZERO);
    bitmask.w().self_lb_en(true);
    tir.w().self_lb_block(1);
    modify.w().tirn(rig.tirn).bitmask(&bitmask).ctx(&tir);
    rig.client.exec(&modify).unwrap();
    let mut broadcast = rig.frame(b"to all");
    broadcast[..6].fill(0xff);
    rig.send(&broadcast);
    assert_eq!(rig.polls().len(), 1, "no multicast");
    let unicast = rig.frame(b"to me");
    rig.send(&unicast);
    assert_eq!(rig.polls().len(), 2, "but unicast");
    // Both from the wire.
    engine::receive(&mut rig.client.f, crate::wire::Frame::Ethernet(broadcast));
    while engine::run(&mut rig.client.f) {}
    assert_eq!(rig.polls().len(), 1);
}

#[test]
fn frames_longer_than_the_port_allows_are_lost_on_both_sides() {
    let mut rig = Rig::new();
    rig.post_receives(2);
    let frame = rig.frame(&[7; 1500 - 28]);
    assert_eq!(frame.len() + 4, 1518);
    rig.client.f.nic.port.mtu = 1518;
    rig.send(&frame);
    assert_eq!(rig.polls().len(), 2);
    rig.client.f.nic.port.mtu = 1517;
    rig.send(&frame);
    assert_eq!(rig.polls().len(), 1);
    engine::receive(&mut rig.client.f, crate::wire::Frame::Ethernet(frame));
    while engine::run(&mut rig.client.f) {}
    assert_eq!(rig.polls().len(), 0);
    let physical = rig.client.f.nic.port.counters.physical;
    assert_eq!((physical.too_long, physical.unsendable), (1, 1));
}

#[test]
fn a_wrong_key_breaks_the_queue_and_flushes_it_until_it_is_reset() {
    let mut rig = Rig::new();
    rig.key ^= 0xff;
    let frame = rig.frame(b"never sent");
    rig.send(&frame);
    let done = rig.polls();
    let error = ErrorCqe::read(done[0].as_bytes()).unwrap();
    assert_eq!(
        (done.len(), error.opcode(), error.syndrome()),
        (1, CqeOpcode::RequesterError, CqeSyndrome::LocalProtection)
    );
    rig.send(&frame);
    let done = rig.polls();
    assert_eq!(ErrorCqe::read(done[0].as_bytes()).unwrap().syndrome(), CqeSyndrome::WorkRequestFlushed);
    let mut query = QuerySqIn::default();
    query.w().sqn(rig.sqn);
    assert_eq!(rig.client.exec(&query).unwrap().sq_context().state(), QueueState::Err);
    let c = &mut rig.client;
    assert_eq!(c.refused(&move_sq(rig.sqn, QueueState::Rdy, QueueState::Rst)), Syndrome::QueueState);
    assert_eq!(c.refused(&move_sq(rig.sqn, QueueState::Err, QueueState::Rdy)), Syndrome::QueueTransition);
    c.exec(&move_sq(rig.sqn, QueueState::Err, QueueState::Rst)).unwrap();
    c.write(rig.parents.doorbells + 132, &[0; 4]);
    c.exec(&move_sq(rig.sqn, QueueState::Rst, QueueState::Rdy)).unwrap();
    (rig.key, rig.posted) = (rig.key ^ 0xff, 0);
    rig.post_receives(1);
    rig.send(&frame);
    assert_eq!(rig.polls().len(), 2);
    assert!(rig.client.violations().contains(&"key does not allow the access"));
}

#[test]
fn a_frame_larger_than_its_receive_breaks_the_receive_queue() {
    let mut rig = Rig::new();
    rig.post_receives(2);
    let mut first = DataSeg::ZERO;
    first.w().byte_count(20).lkey(rig.key).addr(rig.buffer(32));
    rig.client.write(rig.receive_ring, first.as_bytes());
    let frame = rig.frame(b"more than twenty bytes");
    rig.send(&frame);
    let syndromes: Vec<_> =
        rig.polls()[1..].iter().map(|cqe| ErrorCqe::read(cqe.as_bytes()).unwrap().syndrome()).collect();
    assert_eq!(syndromes, [CqeSyndrome::LocalLength, CqeSyndrome::WorkRequestFlushed]);
    let mut query = QueryRqIn::default();
    query.w().rqn(rig.rqn);
    assert_eq!(rig.client.exec(&query).unwrap().rq_context().state(), QueueState::Err);
}

/// Sets the moderation of the queue's completions: period in microseconds, number of completions, and the start of the
/// period.
fn moderate(rig: &mut Rig, period: u16, count: u16, mode: CqPeriodMode) {
    let mut context = Cqc::ZERO;
    context.w().cq_period(period).cq_max_count(count).cq_period_mode(mode.number() as u8);
    let mut modify = ModifyCqIn::default();
    modify.w().cqn(rig.parents.cqn).modify_field_select_resize_field_select(&[0, 0, 0, 0x13]).cq_context(&context);
    rig.client.exec(&WithTail::<_, Be64>::new(modify, vec![])).unwrap();
}

/// Arms for the next event, number `sn`.
fn arm(rig: &mut Rig, sn: u32) {
    let request = sn << 28 | rig.consumed;
    rig.client.write(rig.parents.doorbells + 4, &request.to_be_bytes());
    let value = u64::from(request) << 32 | u64::from(rig.parents.cqn);
    engine::cq_doorbell(&mut rig.client.f, rig.parents.uar, value);
}

/// Number of events so far.
fn events(rig: &Rig) -> u32 {
    rig.client.f.nic.objects.eqs.get(rig.parents.eqn.into()).unwrap().producer
}

/// Sends a frame, which causes two completions: send and receive. Returns the number of events sent at once.
fn two_completions(rig: &mut Rig) -> u32 {
    let before = events(rig);
    let frame = rig.frame(b"x");
    rig.send(&frame);
    events(rig) - before
}

/// Advances time to the next deadline; returns the result.
fn wait(rig: &mut Rig) -> u32 {
    let before = events(rig);
    rig.client.f.nic.now = engine::next_deadline(&rig.client.f).expect("the period ends");
    engine::run(&mut rig.client.f);
    events(rig) - before
}

#[test]
fn moderation_holds_events_back_until_enough_completions_or_long_enough() {
    let mut rig = Rig::new();
    rig.post_receives(8);
    moderate(&mut rig, 100, 5, CqPeriodMode::StartFromEqe);
    arm(&mut rig, 0);
    assert_eq!(two_completions(&mut rig), 1, "there was no event for long");
    rig.polls();
    arm(&mut rig, 1);
    assert_eq!([two_completions(&mut rig), two_completions(&mut rig)], [0, 0], "four completions");
    assert_eq!(two_completions(&mut rig), 1, "the fifth");
    rig.polls();
    arm(&mut rig, 2);
    assert_eq!(two_completions(&mut rig), 0);
    assert_eq!(wait(&mut rig), 1, "after the period");
}

#[test]
fn a_period_from_the_last_completion_begins_anew_with_each() {
    let mut rig = Rig::new();
    rig.post_receives(8);
    moderate(&mut rig, 100, 50, CqPeriodMode::StartFromCqe);
    arm(&mut rig, 0);
    assert_eq!(two_completions(&mut rig), 0);
    let first = engine::next_deadline(&rig.client.f).unwrap();
    rig.client.f.nic.now = first - std::time::Duration::from_micros(1);
    assert_eq!(two_completions(&mut rig), 0);
    rig.client.f.nic.now = first;
    engine::run(&mut rig.client.f);
    assert!(engine::next_deadline(&rig.client.f).unwrap() > first);
    assert_eq!(wait(&mut rig), 1);
}

#[test]
fn without_a_period_or_a_count_events_come_at_once() {
    for (period, count) in [(0, 50), (100, 0), (0, 0)] {
        for mode in [CqPeriodMode::StartFromEqe, CqPeriodMode::StartFromCqe] {
            let mut rig = Rig::new();
            rig.post_receives(8);
            moderate(&mut rig, period, count, mode);
            for sn in 0..2 {
                arm(&mut rig, sn);
                assert_eq!(two_completions(&mut rig), 1, "period {period}, count {count}, {mode:?}");
                rig.polls();
            }
        }
    }
}

#[test]
fn queues_are_refused_what_is_wrong_with_them() {
    let mut rig = Rig::new();
    let ring = rig.client.pages(1);
    let good = create_sq(&rig.parents, rig.tisn, ring);
    let sq = |change: &dyn Fn(&mut Sqc, &mut Wq)| {
        let mut command = good.clone();
        let mut context = *command.command.ctx();
        let mut wq = *context.wq();
        change(&mut context, &mut wq);
        context.w().wq(&wq);
        command.command.w().ctx(&context);
        command
    };
    let c = &mut rig.client;
    assert_eq!(c.refused(&sq(&|context, _| _ = context.w().cqn(99))), Syndrome::NoSuchCq);
    assert_eq!(c.refused(&sq(&|context, _| _ = context.w().tis_num_0(99))), Syndrome::NoSuchTis);
    assert_eq!(c.refused(&sq(&|context, _| _ = context.w().tis_lst_sz(2))), Syndrome::WqFeature);
    assert_eq!(c.refused(&sq(&|context, _| _ = context.w().hairpin(true))), Syndrome::WqFeature);
    assert_eq!(c.refused(&sq(&|context, _| _ = context.w().state(QueueState::Rdy))), Syndrome::QueueState);
    assert_eq!(c.refused(&sq(&|_, wq| _ = wq.w().pd(99))), Syndrome::NoSuchPd);
    assert_eq!(c.refused(&sq(&|_, wq| _ = wq.w().uar_page(3))), Syndrome::NoSuchUar);
    assert_eq!(c.refused(&sq(&|_, wq| _ = wq.w().wq_type(WqType::LinkedList))), Syndrome::WqType);
    assert_eq!(c.refused(&sq(&|_, wq| _ = wq.w().log_wq_sz(16))), Syndrome::WqSize);
    assert_eq!(c.refused(&sq(&|_, wq| _ = wq.w().log_wq_sz(7))), Syndrome::MemoryTooSmall);
    assert_eq!(c.refused(&sq(&|_, wq| _ = wq.w().log_wq_stride(5))), Syndrome::WqStride);
    assert_eq!(c.refused(&sq(&|_, wq| _ = wq.w().wq_signature(true))), Syndrome::WqFeature);
    let mut rq = create_rq(&rig.parents, ring);
    let mut context = *rq.command.ctx();
    context.w().counter_set_id(9);
    rq.command.w().ctx(&context);
    assert_eq!(rig.client.refused(&rq), Syndrome::NoSuchCounter);
    context.w().counter_set_id(0).scatter_fcs(true);
    rq.command.w().ctx(&context);
    assert_eq!(rig.client.refused(&rq), Syndrome::WqFeature);
    assert_eq!(rig.client.refused(&create_rqt(&[])), Syndrome::RqtSize);
    assert_eq!(rig.client.refused(&create_rqt(&[99])), Syndrome::NoSuchRq);
    assert_eq!(rig.client.refused(&create_tir(rig.domain, 99)), Syndrome::NoSuchRqt);
    assert_eq!(rig.client.refused(&create_tir(99, rig.rqtn)), Syndrome::NoSuchTransportDomain);
    rig.client.exec(&create_tir(0, rig.rqtn)).unwrap();
    let mut tir = create_tir(rig.domain, rig.rqtn);
    let mut context = *tir.ctx();
    context.w().tls_en(true);
    tir.w().ctx(&context);
    assert_eq!(rig.client.refused(&tir), Syndrome::CapabilityNotAnnounced);
}

#[test]
fn flow_tables_are_refused_what_is_wrong_with_them() {
    let mut rig = Rig::new();
    let (table, group) = (rig.table, rig.group);
    let mut tx = create_table(1);
    tx.w().table_type(FlowTableType::Fdb);
    let c = &mut rig.client;
    assert_eq!(c.refused(&tx), Syndrome::FlowTableType);
    let mut back = create_table(1);
    let mut context = *back.flow_table_context();
    context.w().table_miss_action(FlowTableMissAction::Fwd).table_miss_id(table);
    back.w().flow_table_context(&context);
    assert_eq!(c.refused(&back), Syndrome::FlowTableLevel, "from level 1 to level 1");
    assert_eq!(c.refused(&create_group(table, 7, 9)), Syndrome::FlowGroupRange, "7 is another's");
    assert_eq!(c.refused(&create_group(table, 8, 16)), Syndrome::FlowGroupRange, "there are 16");
    assert_eq!(c.refused(&create_group(99, 8, 9)), Syndrome::NoSuchFlowTable);
    let mut inner = create_group(table, 8, 9);
    inner.w().match_criteria_enable(1 << 5);
    assert_eq!(c.refused(&inner), Syndrome::FlowCriteria);
    // A port of the e-switch.
    let (mut set, mut criteria) = (FteMatchSetMisc::ZERO, FteMatchParam::ZERO);
    set.w().source_port(1);
    criteria.w().misc_parameters(&set);
    inner.w().match_criteria_enable(1 << 1).match_criteria(&criteria);
    assert_eq!(c.refused(&inner), Syndrome::FlowCriteria);
    assert_eq!(c.refused(&set_entry(table, group, 0, rig.tirn, rig.counter)), Syndrome::FlowEntryTaken);
    assert_eq!(c.refused(&set_entry(table, group, 8, rig.tirn, rig.counter)), Syndrome::FlowEntryRange);
    assert_eq!(c.refused(&set_entry(table, 99, 1, rig.tirn, rig.counter)), Syndrome::NoSuchFlowGroup);
    assert_eq!(c.refused(&set_entry(table, group, 1, 99, rig.counter)), Syndrome::NoSuchTir);
    assert_eq!(c.refused(&set_entry(table, group, 1, rig.tirn, 99)), Syndrome::NoSuchFlowCounter);
    let mut drop = set_entry(table, group, 1, rig.tirn, rig.counter);
    let mut context = *drop.command.flow_context();
    context.w().action(2 | 4 | 8);
    drop.command.w().flow_context(&context);
    assert_eq!(c.refused(&drop), Syndrome::FlowAction);
    context.w().action(2);
    drop.command.w().flow_context(&context);
    assert_eq!(c.refused(&drop), Syndrome::FlowDestinations);
    context.w().action(1 | 8).destination_list_size(0);
    drop.command.w().flow_context(&context);
    assert_eq!(c.refused(&drop), Syndrome::FlowAction, "what is received is not sent");
    let mut changes = set_entry(table, group, 1, rig.tirn, rig.counter);
    for (bit, refused) in [
        (0x10, Syndrome::FlowAction),
        (0x20, Syndrome::FlowAction),
        (0x40, Syndrome::NoSuchModifyHeader),
        (0x400, Syndrome::FlowAction),
        (0x1000, Syndrome::FlowAction),
    ] {
        let mut context = *changes.command.flow_context();
        context.w().action(4 | 8 | bit);
        let old = changes.command;
        changes.command.w().flow_context(&context);
        assert_eq!(c.refused(&changes), refused, "{bit:#x}: the table has neither reformat_en nor decap_en");
        changes.command = old;
    }
}

/// Linux chains its own rules by entries with a TIR and the next table.
#[test]
fn an_entry_gives_frames_to_tirs_and_tables_as_far_as_announced() {
    let mut rig = Rig::new();
    rig.post_receives(3);
    let second = rig.client.exec(&create_tir(rig.domain, rig.rqtn)).unwrap().tirn();
    let next = rig.client.exec(&create_table(2)).unwrap().table_id();
    let group = rig.client.exec(&create_group(next, 0, 7)).unwrap().group_id();
    rig.client.exec(&set_entry(next, group, 0, rig.tirn, rig.counter)).unwrap();
    let to = |table: u32, tirs: &[u32]| {
        let mut command = set_entry(rig.table, rig.group, 0, rig.tirn, rig.counter);
        let mut context = *command.command.flow_context();
        context.w().destination_list_size(1 + tirs.len() as u32).flow_counter_list_size(0);
        command.command.w().op_mod(1).modify_enable_mask(1 << 2).flow_context(&context);
        let tirs = tirs.iter().map(|tirn| destination(FlowDestinationType::Tir, *tirn));
        command.tail = tirs.chain([destination(FlowDestinationType::FlowTable, table)]).collect();
        command
    };
    let both = to(next, &[rig.tirn, second]);
    rig.client.f.nic.firmware.caps.flow_table.w().nic_rx_multi_path_tirs_fts(false);
    assert_eq!(rig.client.refused(&both), Syndrome::CapabilityNotAnnounced);
    rig.client.exec(&to(next, &[])).unwrap();
    rig.client.f.nic.firmware.caps.flow_table.w().nic_rx_multi_path_tirs_fts(true).nic_rx_multi_path_tirs(false);
    assert_eq!(rig.client.refused(&both), Syndrome::CapabilityNotAnnounced);
    rig.client.f.nic.firmware.caps.flow_table.w().nic_rx_multi_path_tirs(true);
    rig.client.exec(&both).unwrap();
    let frame = rig.frame(b"to three");
    rig.send(&frame);
    assert_eq!(rig.polls().len(), 1 + 3, "sent, and received by two TIRs and by that of the next table");
}

/// An entry for any frame that forwards to these destinations.
pub(super) fn lead(table: u32, group: u32, destinations: Vec<Be64>) -> WithTail<SetFteIn, Be64> {
    let mut context = FlowContext::ZERO;
    context.w().group_id(group).action(4).destination_list_size(destinations.len() as u32);
    let mut command = SetFteIn::default();
    command.w().table_id(table).flow_context(&context);
    WithTail::new(command, destinations)
}

#[test]
fn a_frame_that_tables_multiply_without_end_is_lost() {
    let mut rig = Rig::new();
    rig.post_receives(2);
    let (mut next, mut last) = (destination(FlowDestinationType::Tir, rig.tirn), 0);
    for level in [4, 3, 2] {
        last = rig.client.exec(&create_table(level)).unwrap().table_id();
        let group = rig.client.exec(&create_group(last, 0, 7)).unwrap().group_id();
        let count = if level == 2 { 15 } else { 8 };
        rig.client.exec(&lead(last, group, vec![next; count])).unwrap();
        next = destination(FlowDestinationType::FlowTable, last);
    }
    let mut root = SetFlowTableRootIn::default();
    root.w().table_id(last);
    rig.client.exec(&root).unwrap();
    // 15 tables, 8 more behind each, and 8 TIRs behind each of these.
    let frame = rig.frame(b"to more than a thousand");
    rig.send(&frame);
    assert_eq!(rig.polls().len(), 1, "sent, and not received");
    assert_eq!(rig.client.violations(), [rules::STEERING]);
}

#[test]
fn counters_are_made_by_the_hundred_and_end_together() {
    let mut rig = Rig::new();
    let c = &mut rig.client;
    let mut bulk = AllocFlowCounterIn::default();
    bulk.w().flow_counter_bulk(0x80);
    assert_eq!(c.refused(&bulk), Syndrome::CapabilityNotAnnounced);
    bulk.w().flow_counter_bulk(2);
    let first = c.exec(&bulk).unwrap().flow_counter_id();
    assert_eq!(first % 4, 0, "Linux reads several from a multiple of 4");
    c.exec(&set_entry(rig.table, rig.group, 1, rig.tirn, first + 255)).unwrap();
    assert_eq!(c.refused(&set_entry(rig.table, rig.group, 2, rig.tirn, first + 256)), Syndrome::NoSuchFlowCounter);
    let mut end = DeallocFlowCounterIn::default();
    end.w().flow_counter_id(first + 1);
    assert_eq!(c.refused(&end), Syndrome::NoSuchFlowCounter, "the first stands for all");
    end.w().flow_counter_id(first);
    assert_eq!(c.refused(&end), Syndrome::FlowCounterInUse);
    let mut delete = DeleteFteIn::default();
    delete.w().table_id(rig.table).flow_index(1);
    c.exec(&delete).unwrap();
    c.exec(&end).unwrap();
    assert_eq!(c.refused(&end), Syndrome::NoSuchFlowCounter);
}

#[test]
fn counters_beyond_the_last_number_are_refused() {
    let mut client = Client::up();
    for (first, count) in [(u32::MAX, 2), (u32::MAX - 1, 255), (u32::MAX, 1)] {
        let mut query = QueryFlowCounterIn::default();
        query.w().flow_counter_id(first).num_of_counters(count);
        let mut query = WithTail::<_, Be64>::new(query, vec![]);
        query.out_tail = 2 * usize::from(count);
        assert_eq!(client.refused(&query), Syndrome::NoSuchFlowCounter);
    }
}

/// A reformat whose header has `size` bytes, and a list of `len`: two bytes of the header lie before it.
fn alloc_reformat(kind: ReformatType, size: u16, len: usize) -> WithTail<AllocPacketReformatContextIn, u8> {
    let (mut reformat, mut header) = (AllocPacketReformatContextIn::default(), PacketReformatContextIn::ZERO);
    header.w().reformat_type(kind).reformat_data_size(size);
    reformat.w().packet_reformat_context(&header);
    WithTail::new(reformat, vec![0; len])
}

#[test]
fn contexts_of_actions_are_refused_what_is_wrong_with_them() {
    let mut rig = Rig::new();
    let c = &mut rig.client;
    let (mut set, mut action) = (SetActionIn::ZERO, SetAddCopyActionInAuto::ZERO);
    set.w().action_type(ModifyActionType::Set).field(ModifyField::OutUdpDport).length(16).data(7);
    action.w().set_action_in(&set);
    let as_words =
        |action: &SetAddCopyActionInAuto| Be64::new(u64::from_be_bytes(*action.as_bytes().first_chunk().unwrap()));
    let mut modify = AllocModifyHeaderContextIn::default();
    modify.w().num_of_actions(33);
    assert_eq!(c.refused(&WithTail::new(modify, vec![as_words(&action); 33])), Syndrome::ModifyHeaderCount);
    modify.w().num_of_actions(2);
    assert_eq!(c.refused(&WithTail::new(modify, vec![as_words(&action)])), Syndrome::InputListLength);
    modify.w().num_of_actions(1);
    assert_eq!(c.refused(&WithTail::new(modify, vec![Be64::new(0)])), Syndrome::ModifyHeaderAction);
    let number = c.exec(&WithTail::new(modify, vec![as_words(&action)])).unwrap().reply.modify_header_id();
    let mut entry = set_entry(rig.table, rig.group, 1, rig.tirn, rig.counter);
    let mut context = *entry.command.flow_context();
    context.w().action(4 | 8 | 0x40).modify_header_id(number);
    entry.command.w().flow_context(&context);
    c.exec(&entry).unwrap();
    let mut end = DeallocModifyHeaderContextIn::default();
    end.w().modify_header_id(number);
    assert_eq!(c.refused(&end), Syndrome::ModifyHeaderInUse);

    use ReformatType as Type;
    assert_eq!(c.refused(&alloc_reformat(Type::AddMacsec, 14, 12)), Syndrome::ReformatType);
    for (kind, size) in [
        (Type::L2ToL2Tunnel, 129),
        (Type::L2ToNvgre, 0),
        (Type::L2ToL3Tunnel, 129),
        (Type::L3TunnelToL2, 0),
        (Type::L3TunnelToL2, 13),
        (Type::L3TunnelToL2, 16),
        (Type::L3TunnelToL2, 22),
    ] {
        assert_eq!(c.refused(&alloc_reformat(kind, size, 128)), Syndrome::ReformatSize, "{kind:?}, {size}");
    }
    assert_eq!(c.refused(&alloc_reformat(Type::L2ToL2Tunnel, 50, 12)), Syndrome::InputListLength);
    assert_eq!(rig.client.violations(), [""; 0]);
}

#[test]
fn a_packet_reformat_context_is_told_as_far_as_there_is_room() {
    let mut rig = Rig::new();
    let c = &mut rig.client;
    let mut reformat = alloc_reformat(ReformatType::L2ToNvgre, 14, 12);
    reformat.tail.iter_mut().zip(3..).for_each(|(byte, value)| *byte = value);
    let number = c.exec(&reformat).unwrap().reply.packet_reformat_id();
    let mut query = QueryPacketReformatContextIn::default();
    query.w().packet_reformat_id(number);
    let mut query = WithTail::<_, u8>::new(query, vec![]);
    for room in [20, 12, 8] {
        query.out_tail = room;
        let tail = c.exec(&query).unwrap().tail;
        let context = PacketReformatContextIn::read(&tail).unwrap();
        assert_eq!((context.reformat_type(), context.reformat_data_size()), (ReformatType::L2ToNvgre, 14));
        assert_eq!(tail[8..], (3..15).collect::<Vec<u8>>()[..room - 8]);
    }
    query.command.w().packet_reformat_id(number + 1);
    assert_eq!(c.refused(&query), Syndrome::NoSuchPacketReformat);
    assert_eq!(rig.client.violations(), [""; 0]);
}

#[test]
fn reformats_are_refused_to_tables_and_cards_that_do_not_announce_them() {
    let mut rig = Rig::new();
    let c = &mut rig.client;
    let kinds = [ReformatType::L2ToNvgre, ReformatType::L2ToL3Tunnel, ReformatType::L3TunnelToL2];
    let [frames, packets, leave] =
        kinds.map(|kind| c.exec(&alloc_reformat(kind, 14, 12)).unwrap().reply.packet_reformat_id());
    let mut table = create_table(1);
    let mut context = *table.flow_table_context();
    context.w().reformat_en(true).decap_en(true);
    table.w().flow_table_context(&context);
    let table = c.exec(&table).unwrap().table_id();
    let group = c.exec(&create_group(table, 0, 7)).unwrap().group_id();
    let entry = |index: u32, action: u16, reformat: u32| {
        let mut entry = set_entry(table, group, index, rig.tirn, rig.counter);
        let mut context = *entry.command.flow_context();
        context.w().action(4 | 8 | action).packet_reformat_id(reformat);
        entry.command.w().flow_context(&context);
        entry
    };
    c.exec(&entry(0, 0x10, frames)).unwrap();
    c.exec(&entry(1, 0x10, leave)).unwrap();
    assert_eq!(c.refused(&entry(2, 0x10, packets)), Syndrome::CapabilityNotAnnounced, "where frames are sent");
    assert_eq!(c.refused(&entry(2, 0x10 | 0x20, leave)), Syndrome::FlowAction, "out of one tunnel, not of two");
    let mut end = DeallocPacketReformatContextIn::default();
    end.w().packet_reformat_id(leave);
    assert_eq!(c.refused(&end), Syndrome::PacketReformatInUse);

    let mut caps = c.f.nic.firmware.caps.flow_table;
    let mut receive = *caps.flow_table_properties_nic_receive();
    receive.w().reformat_l3_tunnel_to_l2(false);
    caps.w().flow_table_properties_nic_receive(&receive);
    c.f.nic.firmware.caps.flow_table = caps;
    assert_eq!(c.refused(&alloc_reformat(ReformatType::L3TunnelToL2, 14, 12)), Syndrome::CapabilityNotAnnounced);
    assert_eq!(c.refused(&entry(2, 0x10, leave)), Syndrome::CapabilityNotAnnounced);
    c.f.nic.firmware.caps.flow_table.w().encap_general_header(false);
    assert_eq!(c.refused(&alloc_reformat(ReformatType::L2ToVxlan, 14, 12)), Syndrome::CapabilityNotAnnounced);
    assert_eq!(rig.client.violations(), [""; 0]);
}

#[test]
fn an_entry_is_modified_in_the_parts_that_are_named() {
    let mut rig = Rig::new();
    rig.post_receives(2);
    let second = rig.client.exec(&create_tir(rig.domain, rig.rqtn)).unwrap().tirn();
    let mut modify = set_entry(rig.table, rig.group, 0, second, rig.counter);
    let mut context = *modify.command.flow_context();
    context.w().flow_tag(0x77);
    modify.command.w().op_mod(1).modify_enable_mask(1 << 2).flow_context(&context);
    rig.client.exec(&modify).unwrap();
    let mut destroy = DestroyTirIn::default();
    destroy.w().tirn(second);
    assert_eq!(rig.client.refused(&destroy), Syndrome::TirInUse);
    let frame = rig.frame(b"still the old tag");
    rig.send(&frame);
    assert_eq!(rig.polls()[1].qpn(), 0x55);
    modify.command.w().modify_enable_mask(1 << 1);
    rig.client.exec(&modify).unwrap();
    rig.send(&frame);
    assert_eq!(rig.polls()[1].qpn(), 0x77);
}

#[test]
fn objects_go_in_the_order_of_their_use() {
    let mut rig = Rig::new();
    macro_rules! destroy {
        ($In:ident, $( $field:ident: $value:expr ),*) => {{
            let mut command = $In::default();
            command.w()$( .$field($value) )*;
            command
        }};
    }
    let c = &mut rig.client;
    let table = destroy!(DestroyFlowTableIn, table_id: rig.table);
    let group = destroy!(DestroyFlowGroupIn, table_id: rig.table, group_id: rig.group);
    let entry = destroy!(DeleteFteIn, table_id: rig.table, flow_index: 0);
    let counter = destroy!(DeallocFlowCounterIn, flow_counter_id: rig.counter);
    let tir = destroy!(DestroyTirIn, tirn: rig.tirn);
    let rqt = destroy!(DestroyRqtIn, rqtn: rig.rqtn);
    let rq = destroy!(DestroyRqIn, rqn: rig.rqn);
    let tis = destroy!(DestroyTisIn, tisn: rig.tisn);
    let sq = destroy!(DestroySqIn, sqn: rig.sqn);
    let domain = destroy!(DeallocTransportDomainIn, transport_domain: rig.domain);
    let cq = destroy!(DestroyCqIn, cqn: rig.parents.cqn);
    assert_eq!(c.refused(&table), Syndrome::FlowTableInUse);
    assert_eq!(c.refused(&group), Syndrome::FlowGroupInUse);
    assert_eq!(c.refused(&counter), Syndrome::FlowCounterInUse);
    assert_eq!(c.refused(&tir), Syndrome::TirInUse);
    assert_eq!(c.refused(&rqt), Syndrome::RqtInUse);
    assert_eq!(c.refused(&rq), Syndrome::RqInUse);
    assert_eq!(c.refused(&tis), Syndrome::TisInUse);
    assert_eq!(c.refused(&domain), Syndrome::TransportDomainInUse);
    assert_eq!(c.refused(&cq), Syndrome::CqInUse);
    let before = c.f.object_count();
    c.exec(&entry).unwrap();
    c.exec(&group).unwrap();
    c.exec(&counter).unwrap();
    c.exec(&table).unwrap();
    assert_eq!(c.f.nic.objects.steering.receive_root, None, "it was the root");
    c.exec(&tir).unwrap();
    c.exec(&rqt).unwrap();
    c.exec(&rq).unwrap();
    c.exec(&sq).unwrap();
    c.exec(&tis).unwrap();
    c.exec(&domain).unwrap();
    c.exec(&cq).unwrap();
    assert_eq!(c.f.object_count(), before - 10);
    assert_eq!(c.refused(&sq), Syndrome::NoSuchSq);
    assert_eq!(c.refused(&entry), Syndrome::NoSuchFlowTable);
}

#[test]
fn vxlan_has_its_port_and_as_many_more_as_are_announced() {
    let mut rig = Rig::new();
    let c = &mut rig.client;
    let add = |port: u16| {
        let mut command = AddVxlanUdpDportIn::default();
        command.w().vxlan_udp_port(port);
        command
    };
    let delete = |port: u16| {
        let mut command = DeleteVxlanUdpDportIn::default();
        command.w().vxlan_udp_port(port);
        command
    };
    for port in [4789, 8472, 5000, 8472, 5001] {
        c.exec(&add(port)).unwrap();
    }
    assert_eq!(c.refused(&add(5002)), Syndrome::TooManyVxlanPorts);
    c.exec(&delete(5000)).unwrap();
    assert_eq!(c.refused(&delete(5000)), Syndrome::NoSuchVxlanPort);
    c.exec(&add(5002)).unwrap();
    c.exec(&delete(4789)).unwrap();
    assert!(c.f.nic.objects.steering.vxlan_ports.contains(4789), "VXLAN's own port stays");
}

#[test]
fn inner_headers_are_hashed_by_tirs_that_look_inside_and_not_beside_outer_ones() {
    let mut rig = Rig::new();
    let tir = |rig: &Rig, looks_inside: bool, inner: u32, outer: u32| {
        let mut command = create_tir(rig.domain, rig.rqtn);
        let mut context = *command.ctx();
        let (mut within, mut around) = (RxHashFieldSelect::ZERO, RxHashFieldSelect::ZERO);
        within.w().selected_fields(inner);
        around.w().selected_fields(outer);
        context
            .w()
            .tunneled_offload_en(looks_inside)
            .rx_hash_field_selector_inner(&within)
            .rx_hash_field_selector_outer(&around);
        command.w().ctx(&context);
        command
    };
    for (looks_inside, inner, outer) in [(true, 3, 0), (true, 0, 3), (false, 0, 3)] {
        let command = tir(&rig, looks_inside, inner, outer);
        rig.client.exec(&command).unwrap();
    }
    for (looks_inside, inner, outer, refusal) in
        [(false, 3, 0, Syndrome::CapabilityNotAnnounced), (true, 3, 3, Syndrome::TirHash)]
    {
        let command = tir(&rig, looks_inside, inner, outer);
        assert_eq!(rig.client.refused(&command), refusal);
    }
}
