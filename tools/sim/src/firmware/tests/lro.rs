//! Large receive offload: what is joined, what ends it, what completions say, and what is refused.

use std::time::Duration;

use etherparse::{PacketBuilder, TcpHeader, TcpOptionElement};
use mlx5_prm::cmd::*;
use mlx5_prm::cqe::{Cqe, CqeSyndrome, ErrorCqe, MiniCqeFormat, StridingByteCount};
use mlx5_prm::ctx::*;
use mlx5_prm::layout::{Be32, Layout};
use mlx5_prm::wqe::DataSeg;
use proptest::prelude::*;

use super::ethernet::{Rig, create_rq, create_tir, move_rq};
use crate::engine;
use crate::firmware::syndromes::Syndrome;
use crate::objects::Compression;
use crate::strict::rules;
use crate::wire::Frame;

/// The sender's data in a segment.
const MSS: usize = 1448;
/// Bytes of headers in front of it: Ethernet, IPv4, TCP with a timestamp.
const HEADERS: usize = 14 + 20 + 32;
/// Microseconds.
const PATIENCE: u16 = 32;

/// The TCP header of a segment of the flow, `at` bytes after its start.
fn tcp(at: u32) -> TcpHeader {
    let mut header = TcpHeader::new(1000, 2000, 0xffff_f000_u32.wrapping_add(at), 500);
    (header.acknowledgment_number, header.ack) = (77, true);
    timestamp(&mut header, 10, 20);
    header
}

fn timestamp(header: &mut TcpHeader, value: u32, echo: u32) {
    let options = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(value, echo)];
    header.set_options(&options).unwrap();
}

/// A frame of the flow, with `data` bytes of `fill`.
fn frame(rig: &Rig, header: TcpHeader, ttl: u8, fill: u8, data: usize) -> Vec<u8> {
    let mac = rig.client.f.nic.objects.vport.mac();
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], mac).ipv4([10, 0, 0, 1], [10, 0, 0, 2], ttl);
    let mut frame = Vec::new();
    builder.tcp_header(header).write(&mut frame, &vec![fill; data]).unwrap();
    frame
}

fn segment(rig: &Rig, number: u32) -> Vec<u8> {
    frame(rig, tcp(number * MSS as u32), 64, number as u8 + 1, MSS)
}

/// With a TIR that joins segments of up to `units` of 256 bytes.
fn rig(units: u8) -> Rig {
    let mut rig = Rig::new();
    let modify = joins(rig.tirn, MERGE_IPV4_LRO | MERGE_IPV6_LRO, units, PATIENCE);
    rig.client.exec(&modify).unwrap();
    rig
}

fn joins(tirn: u32, mask: u8, units: u8, timeout: u16) -> ModifyTirIn {
    let (mut context, mut bits) = (Tirc::ZERO, ModifyTirBitmask::ZERO);
    context.w().packet_merge_mask(mask).lro_max_ip_payload_size(units).lro_timeout_period_usecs(timeout);
    bits.w().packet_merge(true);
    let mut modify = ModifyTirIn::default();
    modify.w().tirn(tirn).bitmask(&bits).ctx(&context);
    modify
}

/// Frames arrive from the wire, all at once.
fn arrive(rig: &mut Rig, frames: impl IntoIterator<Item = Vec<u8>>) {
    for frame in frames {
        engine::receive(&mut rig.client.f, Frame::Ethernet(frame));
    }
    while engine::run(&mut rig.client.f) {}
}

/// Lets the timer run out, if it runs.
fn wait(rig: &mut Rig) {
    if let Some(due) = engine::next_deadline(&rig.client.f) {
        rig.client.f.nic.now = due;
        while engine::run(&mut rig.client.f) {}
    }
}

/// Receives of 8 KiB, which overlap in memory except for the first.
fn post_large(rig: &mut Rig, count: u16) {
    rig.post_receives(count);
    for index in 0..count {
        let mut first = DataSeg::ZERO;
        let at = rig.buffer(if index == 0 { 32 } else { 48 });
        first.w().byte_count(8192).lkey(rig.key).addr(at);
        rig.client.write(rig.receive_ring + u64::from(index) * 32, first.as_bytes());
    }
}

/// Segments and bytes of all completions so far.
fn joined(rig: &mut Rig) -> Vec<(u8, u32)> {
    rig.polls().iter().map(|cqe| (cqe.lro_num_seg(), cqe.byte_cnt())).collect()
}

const fn bytes(segments: u32) -> u32 {
    HEADERS as u32 + segments * MSS as u32
}

#[test]
fn segments_become_one_packet_and_the_completion_says_what_the_last_ones_headers_were() {
    let mut rig = rig(24);
    post_large(&mut rig, 4);
    let first = segment(&rig, 0);
    let mut header = tcp(MSS as u32);
    timestamp(&mut header, 11, 21);
    let second = frame(&rig, header, 60, 2, MSS);
    let mut header = tcp(2 * MSS as u32);
    timestamp(&mut header, 12, 22);
    (header.acknowledgment_number, header.window_size, header.psh) = (99, 600, true);
    let third = frame(&rig, header, 62, 3, MSS);
    arrive(&mut rig, [first.clone(), second, third]);
    let [cqe] = rig.polls()[..] else { panic!("one completion") };
    assert_eq!((cqe.lro_num_seg(), cqe.byte_cnt()), (3, bytes(3)));
    assert_eq!((cqe.lro_min_ttl(), cqe.lro_tcppsh()), (60, true));
    assert_eq!((cqe.lro_ack_seq_num(), cqe.lro_tcp_win()), (99, 600));
    assert_eq!((cqe.lro_timestamp_valid(), cqe.timestamp()), (true, 12 << 32 | 22));
    assert!(cqe.l3_ok() && cqe.l4_ok());
    let memory = rig.client.read(rig.buffer(32), bytes(3) as usize);
    let data: Vec<u8> = (1..=3).flat_map(|fill| [fill; MSS]).collect();
    assert_eq!((&memory[..HEADERS], &memory[HEADERS..]), (&first[..HEADERS], &data[..]), "the first one's headers");
    // What Linux and DPDK make of it: a right checksum, from that of the data.
    let (ip, _) = etherparse::Ipv4Header::from_slice(&memory[14..]).unwrap();
    let (mut header, _) = TcpHeader::from_slice(&memory[34..]).unwrap();
    (header.acknowledgment_number, header.window_size, header.psh) = (99, 600, true);
    let right = header.calc_checksum_ipv4_raw(ip.source, ip.destination, &data).unwrap();
    let of_header = header.calc_checksum_ipv4_raw(ip.source, ip.destination, &[]).unwrap();
    let (all, headers) = ((32 + 3 * MSS) as u16, 32);
    let sum = [!of_header, cqe.check_sum(), all, !headers].iter().map(|word| u32::from(*word)).sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    assert_eq!(!(((folded & 0xffff) + (folded >> 16)) as u16), right);
    assert_eq!(rig.client.violations(), [""; 0]);
}

#[test]
fn what_does_not_follow_ends_it_and_comes_by_itself() {
    let next = MSS as u32;
    let with = |change: &dyn Fn(&mut TcpHeader)| {
        let mut header = tcp(next);
        change(&mut header);
        header
    };
    let plain = |rig: &Rig, header| frame(rig, header, 64, 2, MSS);
    type Make<'a> = &'a dyn Fn(&Rig) -> Vec<u8>;
    let ends: [(&str, Make<'_>); 19] = [
        ("a gap", &|rig| plain(rig, tcp(next + 1))),
        ("a repetition", &|rig| plain(rig, tcp(0))),
        ("a source port", &|rig| plain(rig, with(&|header| header.source_port = 1001))),
        ("a destination port", &|rig| plain(rig, with(&|header| header.destination_port = 2001))),
        ("FIN", &|rig| plain(rig, with(&|header| header.fin = true))),
        ("SYN", &|rig| plain(rig, with(&|header| header.syn = true))),
        ("RST", &|rig| plain(rig, with(&|header| header.rst = true))),
        ("URG", &|rig| plain(rig, with(&|header| header.urg = true))),
        ("ECE", &|rig| plain(rig, with(&|header| header.ece = true))),
        ("CWR", &|rig| plain(rig, with(&|header| header.cwr = true))),
        ("NS", &|rig| plain(rig, with(&|header| header.ns = true))),
        ("no ACK", &|rig| plain(rig, with(&|header| header.ack = false))),
        ("an older acknowledgment", &|rig| plain(rig, with(&|header| header.acknowledgment_number = 76))),
        ("an older timestamp", &|rig| plain(rig, with(&|header| timestamp(header, 9, 20)))),
        ("no timestamp", &|rig| plain(rig, with(&|header| header.set_options(&[]).unwrap()))),
        ("another option", &|rig| {
            let options = [TcpOptionElement::SelectiveAcknowledgement((1, 2), [None; 3])];
            plain(rig, with(&|header| header.set_options(&options).unwrap()))
        }),
        ("too little data", &|rig| frame(rig, tcp(next), 64, 2, 1347)),
        ("padding behind the data", &|rig| [plain(rig, tcp(next)), vec![0; 4]].concat()),
        ("a wrong checksum", &|rig| {
            let mut frame = plain(rig, tcp(next));
            frame[HEADERS] ^= 1;
            frame
        }),
    ];
    for (what, make) in ends {
        let mut rig = rig(24);
        post_large(&mut rig, 4);
        let (first, second) = (segment(&rig, 0), make(&rig));
        let len = second.len() as u32;
        arrive(&mut rig, [first, second]);
        wait(&mut rig);
        assert_eq!(joined(&mut rig), [(0, bytes(1)), (0, len)], "{what}");
        assert_eq!(rig.client.violations(), [""; 0], "{what}");
    }
}

#[test]
fn headers_of_ip_that_differ_are_not_joined() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 4] = [
        ("type of service", |frame| frame[15] = 0x10),
        ("may be divided", |frame| frame[20] ^= 0x40),
        ("a length that says less", |frame| frame[17] -= 1),
        ("a length that says more", |frame| frame[17] += 1),
    ];
    for (what, change) in changes {
        let mut rig = rig(24);
        post_large(&mut rig, 4);
        let (first, mut second) = (segment(&rig, 0), segment(&rig, 1));
        change(&mut second);
        second[24..26].fill(0);
        let checksum = etherparse::Ipv4Header::from_slice(&second[14..]).unwrap().0.calc_header_checksum();
        second[24..26].copy_from_slice(&checksum.to_be_bytes());
        arrive(&mut rig, [first, second]);
        wait(&mut rig);
        assert_eq!(joined(&mut rig), [(0, bytes(1)); 2], "{what}");
    }
}

#[test]
fn a_joined_packet_waits_for_its_timer_and_no_longer() {
    let mut rig = rig(24);
    post_large(&mut rig, 4);
    let frames = [segment(&rig, 0), segment(&rig, 1)];
    let start = rig.client.f.nic.now;
    arrive(&mut rig, frames);
    assert_eq!(joined(&mut rig), []);
    let due = engine::next_deadline(&rig.client.f).unwrap();
    assert_eq!(due, start + Duration::from_micros(PATIENCE.into()), "from the first segment on");
    rig.client.f.nic.now = due - Duration::from_nanos(1);
    while engine::run(&mut rig.client.f) {}
    assert_eq!(joined(&mut rig), []);
    rig.client.f.nic.now = due;
    // A segment that comes too late is not joined.
    let late = segment(&rig, 2);
    arrive(&mut rig, [late]);
    assert_eq!(joined(&mut rig), [(2, bytes(2))]);
    wait(&mut rig);
    assert_eq!(joined(&mut rig), [(0, bytes(1))]);
    assert_eq!(engine::next_deadline(&rig.client.f), None);
}

#[test]
fn no_packet_is_larger_than_the_tir_allows() {
    // TCP header and data: two segments of 1448 bytes are 2928.
    for (units, expected) in [(12, vec![(2, bytes(2)), (2, bytes(2))]), (11, vec![(0, bytes(1)); 4])] {
        let mut rig = rig(units);
        post_large(&mut rig, 6);
        let frames: Vec<_> = (0..4).map(|number| segment(&rig, number)).collect();
        arrive(&mut rig, frames);
        assert_eq!(joined(&mut rig), expected, "{units}");
    }
}

#[test]
fn pushed_and_other_packets_do_not_wait() {
    let mut rig = rig(24);
    post_large(&mut rig, 6);
    let mut header = tcp(0);
    header.psh = true;
    let pushed = frame(&rig, header, 64, 1, MSS);
    let mac = rig.client.f.nic.objects.vport.mac();
    let mut datagram = Vec::new();
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], mac).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    builder.udp(1000, 2000).write(&mut datagram, &[5; 1400]).unwrap();
    let (next, len) = (segment(&rig, 1), datagram.len() as u32);
    arrive(&mut rig, [pushed, next, datagram]);
    assert_eq!(joined(&mut rig), [(0, bytes(1)), (0, bytes(1)), (0, len)]);
}

#[test]
fn ipv6_and_vlan_tags_are_joined_where_they_are_asked_for() {
    /// What fits a frame beside IPv6's header.
    const DATA: usize = 1428;
    for (mask, expected) in [(MERGE_IPV6_LRO, 2), (MERGE_IPV4_LRO, 0)] {
        let mut rig = Rig::new();
        rig.client.exec(&joins(rig.tirn, mask, 24, PATIENCE)).unwrap();
        post_large(&mut rig, 4);
        let mac = rig.client.f.nic.objects.vport.mac();
        let make = |number: u32| {
            let vlan = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], mac).single_vlan(5.try_into().unwrap());
            let mut frame = Vec::new();
            let ip = vlan.ipv6([1; 16], [2; 16], 64);
            ip.tcp_header(tcp(number * DATA as u32)).write(&mut frame, &[number as u8; DATA]).unwrap();
            frame
        };
        let (first, second) = (make(0), make(1));
        arrive(&mut rig, [first.clone(), second]);
        wait(&mut rig);
        let done = rig.polls();
        assert_eq!(done[0].lro_num_seg(), expected);
        assert!(done[0].cv() && done[0].vlan_info() == 5);
        if expected > 0 {
            let header = 14 + 40 + 32;
            assert_eq!(done[0].byte_cnt() as usize, header + 2 * DATA);
            let memory = rig.client.read(rig.buffer(32), header + 2 * DATA);
            assert_eq!(memory[..12], first[..12]);
            assert_eq!(memory[12..header], first[16..header + 4]);
            assert_eq!(memory[header..], [[0; DATA], [1; DATA]].concat());
        }
    }
}

#[test]
fn a_receive_too_short_for_what_is_joined_breaks_the_queue_and_strict_mode_says_why() {
    let mut rig = rig(24);
    rig.post_receives(2);
    let frames = [segment(&rig, 0), segment(&rig, 1)];
    arrive(&mut rig, frames);
    wait(&mut rig);
    let syndromes: Vec<_> = rig.polls().iter().map(|cqe| ErrorCqe::read(cqe.as_bytes()).unwrap().syndrome()).collect();
    assert_eq!(syndromes, [CqeSyndrome::LocalLength, CqeSyndrome::WorkRequestFlushed]);
    assert_eq!(rig.client.violations(), [rules::LRO_ROOM]);
}

#[test]
fn nothing_is_left_of_what_waits_when_the_queue_is_reset_or_nothing_is_posted() {
    let mut rig = rig(24);
    post_large(&mut rig, 2);
    let frames = [segment(&rig, 0), segment(&rig, 1)];
    arrive(&mut rig, frames.clone());
    rig.client.exec(&move_rq(rig.rqn, QueueState::Rdy, QueueState::Rst)).unwrap();
    assert_eq!(engine::next_deadline(&rig.client.f), None);
    rig.client.write(rig.parents.doorbells + 192, &[0; 4]);
    rig.client.exec(&move_rq(rig.rqn, QueueState::Rst, QueueState::Rdy)).unwrap();
    arrive(&mut rig, frames);
    assert_eq!(engine::next_deadline(&rig.client.f), None);
    assert_eq!(joined(&mut rig), []);
}

#[test]
fn joined_packets_are_not_compressed() {
    let mut rig = rig(12);
    post_large(&mut rig, 6);
    let compression = Compression { format: MiniCqeFormat::Hash, held: Vec::new(), number: 0 };
    rig.client.f.nic.objects.cqs.get_mut(rig.parents.cqn).unwrap().compression = Some(compression);
    let frames: Vec<_> = (0..4).map(|number| segment(&rig, number)).collect();
    arrive(&mut rig, frames);
    assert_eq!(joined(&mut rig), [(2, bytes(2)); 2]);
}

/// A striding queue of one WQE of 8 strides of 1 KiB, instead of the rig's.
pub(super) fn make_striding(rig: &mut Rig) -> u32 {
    let ring = rig.client.pages(1);
    let mut command = create_rq(&rig.parents, ring);
    let mut context = *command.command.ctx();
    let mut wq = *context.wq();
    wq.w()
        .wq_type(WqType::CyclicStridingRq)
        .log_wqe_stride_size(4)
        .log_wqe_num_of_strides(10)
        .dbr_addr(rig.parents.doorbells + 256);
    context.w().wq(&wq);
    command.command.w().ctx(&context);
    assert_eq!(rig.client.refused(&command), Syndrome::StridingWqeSize);
    // Of a card that takes small ones.
    rig.client.f.nic.firmware.caps.general_2.w().log_min_stride_wqe_sz(13);
    let rqn = rig.client.exec(&command).unwrap().reply.rqn();
    for index in 0..2_u64 {
        let mut data = DataSeg::ZERO;
        data.w().byte_count(8192).lkey(rig.key).addr(rig.buffer(32 + 4 * index));
        rig.client.write(ring + index * 32 + 16, data.as_bytes());
    }
    rig.client.write(rig.parents.doorbells + 256, &2_u32.to_be_bytes());
    rig.client.exec(&move_rq(rqn, QueueState::Rst, QueueState::Rdy)).unwrap();
    let mut context = Rqtc::ZERO;
    context.w().rqt_actual_size(1);
    let (mut bits, mut modify) = (RqtBitmask::ZERO, ModifyRqtIn::default());
    bits.w().rqn_list(true);
    modify.w().rqtn(rig.rqtn).bitmask(&bits).ctx(&context);
    rig.client.exec(&WithTail::new(modify, vec![Be32::new(rqn)])).unwrap();
    rqn
}

#[test]
fn in_a_striding_queue_a_joined_packet_is_in_one_work_request() {
    let mut rig = rig(255);
    make_striding(&mut rig);
    // Of the 8 KiB, 4 segments and their headers take 6 KiB; the next one begins in what is left, and is alone there.
    let frames: Vec<_> = (0..5).map(|number| segment(&rig, number)).collect();
    let mut header = tcp(5 * MSS as u32);
    header.psh = true;
    let (other, last) = (frame(&rig, tcp(9), 64, 9, MSS), frame(&rig, header, 64, 6, MSS));
    let place = |cqe: &Cqe| {
        let count = StridingByteCount::read(&cqe.byte_cnt().to_be_bytes()).unwrap();
        (cqe.wqe_id(), cqe.wqe_counter(), count.consumed_strides(), u32::from(count.byte_cnt()), cqe.lro_num_seg())
    };
    arrive(&mut rig, frames[..4].iter().cloned().chain([other, frames[4].clone(), last]));
    let done: Vec<_> = rig.polls().iter().map(place).collect();
    assert_eq!(done, [(0, 0, 6, bytes(4), 4), (0, 6, 2, bytes(1), 0), (1, 0, 3, bytes(2), 2)]);
    let data = rig.client.read(rig.buffer(32) + HEADERS as u64, 4 * MSS);
    assert_eq!(data, (1..=4).flat_map(|fill| [fill; MSS]).collect::<Vec<u8>>());
    assert_eq!(rig.client.violations(), [""; 0]);
}

#[test]
fn a_tir_is_refused_what_the_card_cannot_join() {
    let mut rig = Rig::new();
    let create = |mask, units, timeout| {
        let mut command = create_tir(rig.domain, rig.rqtn);
        let mut context = *command.ctx();
        context.w().packet_merge_mask(mask).lro_max_ip_payload_size(units).lro_timeout_period_usecs(timeout);
        command.w().ctx(&context);
        command
    };
    let (shampo, none, slow) = (create(4, 24, 32), create(1, 0, 32), create(3, 24, 33));
    let (good, off) = (create(2, 255, 1024), create(0, 24, 33));
    assert_eq!(rig.client.refused(&shampo), Syndrome::CapabilityNotAnnounced);
    assert_eq!(rig.client.refused(&none), Syndrome::LroSize);
    assert_eq!(rig.client.refused(&slow), Syndrome::LroTimeout);
    rig.client.exec(&good).unwrap();
    rig.client.exec(&off).unwrap();
    assert_eq!(rig.client.refused(&joins(rig.tirn, 1, 0, 32)), Syndrome::LroSize);
    let mut query = QueryTirIn::default();
    query.w().tirn(rig.tirn);
    assert_eq!(rig.client.exec(&query).unwrap().tir_context().packet_merge_mask(), 0, "unchanged");
    rig.client.f.nic.firmware.caps.ethernet.w().lro_cap(false);
    assert_eq!(rig.client.refused(&good), Syndrome::CapabilityNotAnnounced);
    assert_eq!(rig.client.refused(&joins(rig.tirn, 1, 24, 32)), Syndrome::CapabilityNotAnnounced);
}

/// Makes the checksums of a frame right, whatever its headers say, as far as they are there.
fn mend(frame: &mut [u8]) {
    let headers = crate::ethernet::Headers::of(frame);
    let Some(ip) = headers.ip else { return };
    crate::ethernet::checksum::insert_l3(frame, &ip);
    if let Some(l4) = headers.l4 {
        crate::ethernet::checksum::insert_l4(frame, &ip, &l4);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    /// Frames with wrong bytes in their headers, lengths and offsets among them, whose checksums are right all the
    /// same, and frames that end early: each is received once, alone or joined, and no packet is longer than its
    /// frames.
    #[test]
    fn no_frame_is_lost_or_doubled_whatever_its_headers_say(
        changes in prop::collection::vec((0..6_u32, 12..HEADERS, any::<u8>()), 0..4),
        ends in prop::collection::vec((0..6_usize, 14..HEADERS + MSS), 0..2),
        mends: bool,
    ) {
        let mut rig = rig(24);
        post_large(&mut rig, 12);
        let mut frames: Vec<_> = (0..6).map(|number| segment(&rig, number)).collect();
        for (number, at, value) in changes {
            let frame = &mut frames[number as usize];
            frame[at] = value;
            if mends {
                mend(frame);
            }
        }
        for (number, len) in ends {
            frames[number].truncate(len);
        }
        let all: usize = frames.iter().map(Vec::len).sum();
        arrive(&mut rig, frames);
        wait(&mut rig);
        let done = joined(&mut rig);
        prop_assert_eq!(done.iter().map(|(segments, _)| u32::from(*segments).max(1)).sum::<u32>(), 6, "{:?}", done);
        let bytes: usize = done.iter().map(|(_, bytes)| *bytes as usize).sum();
        let headers: usize = done.iter().map(|(segments, _)| usize::from(segments.saturating_sub(1))).sum();
        prop_assert!(bytes <= all && bytes + headers * HEADERS >= all.saturating_sub(6 * 4), "{:?}", done);
    }
}
