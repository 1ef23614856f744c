//! Limits on what clients and peers can cause.

use std::time::Duration;

use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::ctx::{DctState, Dctc, Klm};
use mlx5_prm::values::{PathMtu, QpState};

use super::bench::*;
use crate::engine;
use crate::objects::{Dct, MkeyRights, Qp, QueueCounter, Translation, User};
use crate::strict::rules;
use crate::transport::dynamic::Dceth;
use crate::transport::packet::{Packet, Route};
use crate::transport::{Opcode, Psn, Transport};
use crate::wire::{Frame, ROOM};

fn syndromes(done: &[Done]) -> Vec<Option<CqeSyndrome>> {
    done.iter().map(|done| done.syndrome).collect()
}

/// A packet to queue pair `to` that appears to be from its peer.
fn forged(bench: &Bench, to: u32, opcode: Opcode, psn: u32) -> Box<Packet> {
    let mac = bench.f.nic.objects.vport.mac();
    let (src, dst) = (Bench::gid(0), Bench::gid(0));
    let route = Route { dst_mac: mac, src_mac: mac, src, dst, ..Default::default() };
    Box::new(Packet::new(opcode, route, to, Psn::new(psn)))
}

/// Runs until nothing is left to do, with turns as long as a device thread's on a busy machine. Returns the maximum
/// number of waiting frames.
fn run_watched(bench: &mut Bench) -> usize {
    const TURN: Duration = Duration::from_micros(500);
    let (mut most, end) = (0, bench.f.nic.now + Duration::from_secs(600));
    loop {
        bench.f.nic.now += TURN;
        assert!(bench.f.nic.now < end, "the engine never comes to rest");
        let worked = engine::run(&mut bench.f);
        most = most.max(bench.f.nic.port.waiting());
        if !worked {
            return most;
        }
    }
}

#[test]
fn long_reads_of_many_queue_pairs_wait_for_room_on_the_wire() {
    const LEN: u32 = 4 << 20;
    let mut bench = Bench::new();
    let counter = bench.f.nic.objects.queue_counters.insert(QueueCounter::default()).unwrap();
    let (from, to, key) = (bench.alloc(LEN.into()), bench.alloc(LEN.into()), bench.key);
    let (cqn_send, cqn_recv) = (bench.cq(8), bench.cq(8));
    let base = bench.shape();
    let shape = Shape { cqn_send, cqn_recv, mtu: PathMtu::Mtu4096, log_sends: 4, log_receives: 4, ..base };
    let mac = bench.f.nic.objects.vport.mac();
    for _ in 0..64 {
        let (a, b) = (bench.qp(shape), bench.qp(shape));
        bench.qp_mut(a).counter_set_id = counter as u8;
        bench.connect(a, b, 0, mac);
        bench.connect(b, a, 0, mac);
        bench.post(a, &read(to, LEN, key, from, key));
        bench.post(b, &write(from, LEN / 4, key, to, key));
    }
    let most = run_watched(&mut bench);
    // One queue pair's turn may exceed the limit.
    assert!(most <= ROOM + 64, "{most} frames waited");
    assert_eq!(syndromes(&bench.drain(cqn_send)), [None; 128]);
    assert_eq!(bench.f.nic.objects.queue_counters.get(counter).unwrap().local_ack_timeout_err, 0);
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn repeated_reads_are_answered_no_more_often_than_reads_may_be_under_way() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    let to = bench.alloc(1 << 16);
    bench.post(a, &read(to, 1 << 16, key, MEMORY, key));
    bench.run();
    for number in 0..20 {
        let mut packet = forged(&bench, b, Opcode::ReadRequest, 0xff_fff0u32.wrapping_add(number) & 0xff_ffff);
        (packet.reth.va, packet.reth.rkey, packet.reth.len) = (MEMORY, key, 40_000);
        engine::receive(&mut bench.f, Frame::Roce(packet));
    }
    engine::run(&mut bench.f);
    assert!((1..=4).contains(&bench.qp_mut(b).rc.receive.replies.len()));
    bench.run();
    assert_eq!((bench.state(a), bench.state(b)), (QpState::Rts, QpState::Rts));
}

#[test]
fn more_atomics_than_may_be_under_way_are_an_invalid_request() {
    let (mut bench, _, b) = Bench::standard();
    let (at, key) = (bench.alloc(8), bench.key);
    for number in 0..8 {
        let mut packet = forged(&bench, b, Opcode::FetchAdd, 0xff_fff0 + number);
        (packet.atomic.va, packet.atomic.rkey, packet.atomic.swap_add) = (at, key, 1);
        engine::receive(&mut bench.f, Frame::Roce(packet));
    }
    bench.run();
    let most = 1u64 << bench.qp_mut(b).log_rra_max;
    assert_eq!(bench.read(at, 8), most.to_le_bytes(), "each executed one adds 1");
    assert_eq!(bench.state(b), QpState::Err);
}

#[test]
fn messages_longer_than_the_responder_takes() {
    let over = |bench: &mut Bench, a, b| {
        bench.qp_mut(b).context.w().log_msg_max(12);
        bench.run();
        (syndromes(&bench.sent(a)), syndromes(&bench.received(b)))
    };
    let (invalid, length) = (Some(CqeSyndrome::RemoteInvalidRequest), Some(CqeSyndrome::LocalLength));
    for (len, sender, receiver) in [(4096, None, None), (4097, invalid, length)] {
        let (mut bench, a, b) = Bench::standard();
        let key = bench.key;
        let to = bench.alloc(8192);
        bench.post_recv(b, &[data(to, 8192, key)]);
        bench.post(a, &send(MEMORY, len, key));
        assert_eq!(over(&mut bench, a, b), (vec![sender], vec![receiver]), "send of {len}");
    }
    for post in [write, read] {
        let (mut bench, a, b) = Bench::standard();
        let key = bench.key;
        let to = bench.alloc(8192);
        bench.post(a, &post(to, 4097, key, MEMORY, key));
        assert_eq!(over(&mut bench, a, b), (vec![invalid], vec![]));
    }
}

#[test]
fn a_message_limit_of_zero_is_one_byte() {
    let (mut bench, a, _) = Bench::standard();
    let (to, key) = (bench.alloc(8), bench.key);
    bench.qp_mut(a).context.w().log_msg_max(0);
    bench.post(a, &write(MEMORY, 1, key, to, key));
    bench.post(a, &write(MEMORY, 2, key, to, key));
    bench.run();
    assert_eq!(syndromes(&bench.sent(a)), [None, Some(CqeSyndrome::LocalLength)]);
}

#[test]
fn no_message_goes_half_around_the_circle_of_sequence_numbers() {
    let mut bench = Bench::new();
    let shape = Shape { mtu: PathMtu::Mtu256, ..bench.shape() };
    let (a, _) = bench.pair(shape);
    let key = bench.mkey(0, None, ALL);
    bench.qp_mut(a).context.w().log_msg_max(31);
    let mut post = read(0, 0x7fff_ffff, key, 0, key);
    post.segs.push(Seg::Data(0, 1, key));
    bench.post(a, &post);
    bench.run();
    assert_eq!(syndromes(&bench.sent(a)), [Some(CqeSyndrome::LocalLength)]);
}

#[test]
fn a_repeated_read_that_goes_round_the_circle_of_sequence_numbers_is_not_answered() {
    let mut bench = Bench::new();
    let shape = Shape { mtu: PathMtu::Mtu256, ..bench.shape() };
    let (a, b) = bench.pair(shape);
    let (at, key, all) = (bench.alloc(512), bench.key, bench.mkey(0, None, ALL));
    bench.post(a, &write(MEMORY, 512, key, at, key));
    bench.run();
    let mut packet = forged(&bench, b, Opcode::ReadRequest, 0xff_fff0);
    (packet.reth.va, packet.reth.rkey, packet.reth.len) = (MEMORY, all, 0xffff_ff00);
    engine::receive(&mut bench.f, Frame::Roce(packet));
    engine::run(&mut bench.f);
    assert!(bench.qp_mut(b).rc.receive.replies.is_empty());
}

#[test]
fn a_peers_endless_message_ends() {
    let (mut bench, _, b) = Bench::standard();
    let key = bench.mkey(0, None, ALL);
    // Up to the length of three segments of nearly 2 GiB, most of it received already.
    bench.post_recv(b, &[data(MEMORY, 0x7fff_ffff, key); 3]);
    bench.qp_mut(b).context.w().log_msg_max(31);
    let mut first = forged(&bench, b, Opcode::SendFirst, 0xff_fff0);
    first.payload = vec![0; 1024];
    engine::receive(&mut bench.f, Frame::Roce(first));
    bench.run();
    bench.qp_mut(b).rc.receive.message = Some(crate::objects::Message::Send { done: u32::MAX - 100 });
    let mut next = forged(&bench, b, Opcode::SendMiddle, 0xff_fff1);
    next.payload = vec![0; 1024];
    engine::receive(&mut bench.f, Frame::Roce(next));
    bench.run();
    assert_eq!(syndromes(&bench.received(b)), [Some(CqeSyndrome::LocalLength)]);
    assert_eq!(bench.state(b), QpState::Err);
}

/// A key made of other keys, of `len` bytes from address 0 on, and without a context but its rights.
fn key_of_keys(bench: &mut Bench, len: u64, entries: Vec<Klm>) -> u32 {
    let key = bench.mkey(0, Some(len), ALL);
    bench.mkey_mut(key).translation = Translation::Keys(entries);
    key
}

fn entry(key: u32, address: u64, len: u32) -> Klm {
    let mut klm = Klm::ZERO;
    klm.w().mkey(key).address(address).byte_count(len);
    klm
}

#[test]
fn an_access_passes_as_many_entries_of_keys_as_the_longest_message_needs() {
    const ENTRIES: u32 = 1 << 15;
    let mut bench = Bench::new();
    let user = User { pd: PD, ..User::default() };
    let behind = bench.key;
    // 2 GiB in entries of 4 KiB.
    let pages = key_of_keys(&mut bench, 1 << 31, vec![entry(behind, MEMORY, 4096); 1 << 19]);
    assert!(bench.f.nic.allows(user, pages, 0, 1 << 31, MkeyRights::REMOTE_READ));
    assert!(bench.f.nic.allows(user, pages, 4096, 0, MkeyRights::REMOTE_READ));
    // Entries of a byte each, reached from entries of as many.
    let bytes = key_of_keys(&mut bench, ENTRIES.into(), vec![entry(behind, MEMORY, 1); ENTRIES as usize]);
    let both = u64::from(ENTRIES) * u64::from(ENTRIES);
    let nested = key_of_keys(&mut bench, both, vec![entry(bytes, 0, ENTRIES); ENTRIES as usize]);
    assert!(bench.f.nic.allows(user, nested, 5, 1 << 19, MkeyRights::REMOTE_READ));
    assert_eq!(bench.violations(), [""; 0]);
    assert!(!bench.f.nic.allows(user, nested, 0, 1 << 22, MkeyRights::REMOTE_READ));
    assert_eq!(bench.violations(), [rules::KEY]);
}

#[test]
fn the_end_of_a_list_of_keys_is_not_looked_at_for_what_its_beginning_has() {
    let mut bench = Bench::new();
    let user = User { pd: PD, ..User::default() };
    let behind = bench.key;
    let long = key_of_keys(&mut bench, 1 << 20, vec![entry(behind, MEMORY, 1); 1 << 15]);
    let short = key_of_keys(&mut bench, 64, vec![entry(long, 0, 1); 64]);
    assert!(bench.f.nic.allows(user, short, 0, 64, MkeyRights::REMOTE_READ));
    assert_eq!(bench.violations(), [""; 0]);
}

/// An empty write of an initiator: message `number` of its connection with the target `dctn`.
fn dynamic_write(bench: &Bench, dctn: u32, dci: u32, number: u32) -> Box<Packet> {
    dynamic(bench, dctn, dci, Opcode::WriteOnly, number)
}

fn dynamic(bench: &Bench, dctn: u32, dci: u32, opcode: Opcode, number: u32) -> Box<Packet> {
    let mut packet = forged(bench, dctn, opcode, number);
    packet.transport = Transport::Dc;
    packet.dc = Dceth { dci, connection: 1, ..Dceth::default() };
    packet
}

/// A target that completes to `cqn`, and its shared receive queue.
fn target(bench: &mut Bench, cqn: u32) -> (u32, u32) {
    let (mut context, srqn) = (Dctc::ZERO, bench.srq(None));
    context.w().rwe(true).mtu(PathMtu::Mtu1024).pd(PD).cqn(cqn).srqn_xrqn(srqn).hop_limit(64);
    let dctn = bench.f.queues.dcts.next_number().unwrap();
    let (connections, by_age) = Default::default();
    let (state, is_armed, is_broken) = (DctState::Active, false, false);
    let dct = Dct { dctn, state, context, is_armed, is_broken, violations: 0, connections, by_age, heard: 0 };
    bench.f.queues.dcts.insert(dct).unwrap();
    (dctn, srqn)
}

/// The hidden queue pair of a target's connection with an initiator.
fn connection(bench: &Bench, dctn: u32, dci: u32) -> Option<&Qp> {
    let number = bench.f.queues.dcts.get(dctn)?.connections.get(&(Bench::gid(0), dci))?;
    bench.f.queues.connections.get(*number)
}

#[test]
fn a_target_whose_completion_queue_is_full_takes_no_more() {
    let mut bench = Bench::new();
    let (cqn, key, at) = (bench.cq(1), bench.key, bench.alloc(4096));
    let (dctn, srqn) = target(&mut bench, cqn);
    (0..4).for_each(|index| bench.post_srq(srqn, (8 - index) % 8, &[data(at, 100, key)]));
    let mut hears = |dci, opcode, number| {
        let packet = dynamic(&bench, dctn, dci, opcode, number);
        engine::receive(&mut bench.f, Frame::Roce(packet));
        bench.run();
        connection(&bench, dctn, dci).map(|qp| (qp.state, qp.rc.receive.msn))
    };
    assert_eq!(hears(9, Opcode::WriteOnly, 0), Some((QpState::Rts, 1)));
    for number in 0..2 {
        assert_eq!(hears(8, Opcode::SendOnly, number), Some((QpState::Rts, number + 1)));
    }
    // As of a queue pair, the message whose completion is lost is the last.
    hears(8, Opcode::SendOnly, 2);
    assert_eq!(hears(8, Opcode::SendOnly, 3), Some((QpState::Err, 3)));
    assert_eq!(hears(9, Opcode::WriteOnly, 1), Some((QpState::Err, 1)), "of another initiator");
    assert_eq!(hears(10, Opcode::WriteOnly, 0), Some((QpState::Err, 0)), "of one that is new");
    assert_eq!(bench.violations(), [rules::CQ_OVERRUN, rules::CI_NEVER_PUBLISHED]);
}

#[test]
fn a_target_with_all_the_connections_it_can_have_forgets_one_that_is_silent() {
    let mut bench = Bench::new();
    let cqn = bench.cq(8);
    let (dctn, _) = target(&mut bench, cqn);
    let mut hears = |dci: u32, number: u32| {
        let packet = dynamic_write(&bench, dctn, dci, number);
        engine::receive(&mut bench.f, Frame::Roce(packet));
        bench.run();
        let done = connection(&bench, dctn, dci).map(|qp| qp.rc.receive.msn);
        (bench.f.queues.dcts.get(dctn).unwrap().connections.len(), done)
    };
    let most = engine::dynamic::MOST as u32;
    for dci in 1..=most {
        assert_eq!(hears(dci, 0), (dci as usize, Some(1)));
    }
    assert_eq!(hears(1, 1), (most as usize, Some(2)));
    assert_eq!(hears(most + 1, 0), (most as usize, Some(1)));
    assert_eq!(hears(1, 2).1, Some(3), "it was heard lately");
    assert_eq!(hears(2, 1).1, Some(0), "forgotten: its first message is missing");
    assert_eq!(hears(4, 1).1, Some(2), "only one at a time takes a place");
}

#[test]
fn packets_of_another_partition_or_to_another_address_are_not_heard() {
    let (mut bench, _, b) = Bench::standard();
    bench.post_recv(b, &[]);
    let changes: [fn(&mut Packet); 2] = [|packet| packet.pkey = 0x8001, |packet| packet.route.dst = Bench::gid(9)];
    for change in changes {
        let mut packet = forged(&bench, b, Opcode::SendOnly, 0xff_fff0);
        change(&mut packet);
        engine::receive(&mut bench.f, Frame::Roce(packet));
        bench.run();
    }
    assert!(bench.received(b).is_empty());
    assert_eq!(bench.f.nic.port.counters.dropped, 2);
    // A limited member of the default partition is accepted.
    let mut packet = forged(&bench, b, Opcode::SendOnly, 0xff_fff0);
    packet.pkey = 0x7fff;
    engine::receive(&mut bench.f, Frame::Roce(packet));
    bench.run();
    assert_eq!(syndromes(&bench.received(b)), [None]);
}

#[test]
fn nothing_arrives_while_the_link_is_down() {
    let (mut bench, _, b) = Bench::standard();
    bench.post_recv(b, &[]);
    bench.f.nic.port.link_up = false;
    let packet = forged(&bench, b, Opcode::SendOnly, 0xff_fff0);
    engine::receive(&mut bench.f, Frame::Roce(packet));
    bench.run();
    assert!(bench.received(b).is_empty());
}

#[test]
fn each_side_counts_what_it_sees_of_a_receive_that_is_not_posted() {
    let (mut bench, a, b) = Bench::standard();
    for qpn in [a, b] {
        let counter = bench.f.nic.objects.queue_counters.insert(QueueCounter::default()).unwrap();
        bench.qp_mut(qpn).counter_set_id = counter as u8;
    }
    let key = bench.key;
    bench.post(a, &send(MEMORY, 4, key));
    bench.run();
    let counts = |bench: &mut Bench, qpn| {
        let id = bench.qp_mut(qpn).counter_set_id;
        let counter = bench.f.nic.objects.queue_counters.get(id.into()).unwrap();
        (counter.rnr_nak_retry_err, counter.out_of_buffer)
    };
    assert_eq!((counts(&mut bench, a), counts(&mut bench, b)), ((1, 0), (0, 1)));
}
