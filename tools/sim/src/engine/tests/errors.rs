//! Each way in which a work request fails, on both sides.

use std::time::Duration;

use mlx5_prm::cqe::CqeSyndrome::{self, *};
use mlx5_prm::eqe::EventType;
use mlx5_prm::values::QpState;
use mlx5_prm::wqe::WqeOpcode;

use super::bench::*;
use crate::engine;
use crate::fault::{Fault, Times};
use crate::objects::MkeyRights;
use crate::strict::rules;
use crate::transport::opcode::Opcode;
use crate::transport::packet::Packet;
use crate::transport::psn::Psn;
use crate::wire::Frame;

fn syndromes(done: &[Done]) -> Vec<Option<CqeSyndrome>> {
    done.iter().map(|done| done.syndrome).collect()
}

/// Posts a valid write, then `post`, then another write: the first must succeed, the second fail with `expected`, the
/// third be flushed, and the queue pair be in the error state.
fn fails_alone(mut bench: Bench, a: u32, post: &Post, expected: CqeSyndrome) -> Bench {
    let (from, to, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    bench.post(a, &write(from, 3000, key, to, key));
    bench.put(a, post);
    let mut flushed = write(from, 8, key, to, key);
    flushed.signalled = false;
    bench.post(a, &flushed);
    bench.run_for(Duration::from_secs(10));
    assert_eq!(syndromes(&bench.sent(a)), [None, Some(expected), Some(WorkRequestFlushed)]);
    assert_eq!(bench.state(a), QpState::Err);
    bench
}

#[test]
fn local_protection() {
    type Case = fn(&mut Bench) -> (u64, u32, u32);
    let cases: [Case; 7] = [
        |bench| (MEMORY, 8, bench.key + 0x100),
        |bench| (MEMORY, 8, bench.key ^ 1),
        |bench| {
            let key = bench.mkey(MEMORY, Some(100), ALL);
            (MEMORY, 101, key)
        },
        |bench| {
            let key = bench.mkey(MEMORY + 100, Some(100), ALL);
            (MEMORY, 8, key)
        },
        |bench| {
            let key = bench.mkey(MEMORY, Some(100), ALL);
            bench.mkey_mut(key).pd = 8;
            (MEMORY, 8, key)
        },
        |bench| {
            let key = bench.mkey(MEMORY, Some(100), ALL);
            bench.mkey_mut(key).set_free(true);
            (MEMORY, 8, key)
        },
        |bench| {
            let key = bench.mkey(0x9999_0000, Some(100), ALL); // not mapped
            (0x9999_0000, 8, key)
        },
    ];
    for case in cases {
        let (mut bench, a, _) = Bench::standard();
        let (at, len, key) = case(&mut bench);
        let rkey = bench.key;
        let bench = fails_alone(bench, a, &write(at, len, key, MEMORY, rkey), LocalProtection);
        assert!(!bench.violations().is_empty(), "strict mode says why");
    }
}

#[test]
fn a_read_needs_the_right_to_write_locally() {
    let (mut bench, a, _) = Bench::standard();
    let key = bench.mkey(MEMORY, Some(4096), MkeyRights::LOCAL_READ);
    let rkey = bench.key;
    fails_alone(bench, a, &read(MEMORY, 8, key, MEMORY, rkey), LocalProtection);
}

#[test]
fn a_message_too_long_to_send() {
    let (mut bench, a, _) = Bench::standard();
    bench.qp_mut(a).context.w().log_msg_max(12);
    let (from, key) = (bench.alloc(8192), bench.key);
    fails_alone(bench, a, &write(from, 4097, key, from, key), LocalLength);
}

#[test]
fn wqes_that_make_no_sense() {
    let base = |bench: &mut Bench| {
        let (from, key) = (bench.alloc(4096), bench.key);
        write(from, 8, key, from + 100, key)
    };
    // Opcodes that do not exist.
    for opcode in [WqeOpcode::Umr, WqeOpcode::Lso, WqeOpcode::Unknown(0x77)] {
        let (mut bench, a, _) = Bench::standard();
        let mut post = base(&mut bench);
        post.opcode = opcode;
        fails_alone(bench, a, &post, LocalQpOperation);
    }
    // A read with inline data, a write without a remote address, an atomic of four bytes.
    let (mut bench, a, _) = Bench::standard();
    let key = bench.key;
    let segs = vec![Seg::Remote(bench.alloc(4096), key), Seg::Inline(vec![0; 8])];
    fails_alone(bench, a, &Post::new(WqeOpcode::RdmaRead, segs), LocalQpOperation);
    let (bench, a, _) = Bench::standard();
    fails_alone(bench, a, &Post::new(WqeOpcode::RdmaWrite, vec![]), LocalQpOperation);
    let (bench, a, _) = Bench::standard();
    let segs = vec![Seg::Remote(MEMORY, key), Seg::Atomic(1, 1), Seg::Data(MEMORY, 4, key)];
    fails_alone(bench, a, &Post::new(WqeOpcode::AtomicCs, segs), LocalLength);
}

/// Changes bytes of a posted WQE in the ring before its doorbell.
fn tampered(at: u64, bytes: &[u8]) -> (Bench, u32, Vec<Done>) {
    let (mut bench, a, _) = Bench::standard();
    let (from, key) = (bench.alloc(4096), bench.key);
    bench.put(a, &write(from, 8, key, from + 100, key));
    let ring = bench.qp_mut(a).send.clone().unwrap();
    ring.memory.write(&bench.f.nic.dma, at, bytes).unwrap();
    bench.record(a, 1, 1);
    bench.ring_for(a, 0);
    bench.run();
    let done = bench.sent(a);
    (bench, a, done)
}

#[test]
fn control_segments_that_contradict_the_ring() {
    for (at, bytes, rule) in
        [(2, [9], rules::WQE_INDEX), (6, [9], rules::WQE_QPN), (7, [0], rules::WQE_SIZE), (7, [5], rules::WQE_SIZE)]
    {
        let (bench, a, done) = tampered(at, &bytes);
        assert_eq!(syndromes(&done), [Some(LocalQpOperation)], "{rule}");
        assert_eq!(bench.state(a), QpState::Err);
        assert!(bench.violations().contains(&rule), "{rule}");
    }
}

#[test]
fn an_inline_segment_longer_than_its_wqe() {
    let (mut bench, a, _) = Bench::standard();
    bench.put(a, &Post::new(WqeOpcode::Send, vec![Seg::Inline(vec![1; 8])]));
    let ring = bench.qp_mut(a).send.clone().unwrap();
    ring.memory.write(&bench.f.nic.dma, 16, &[0x80, 0, 3, 0xff]).unwrap();
    bench.record(a, 1, 1);
    bench.ring_for(a, 0);
    bench.run();
    assert_eq!(syndromes(&bench.sent(a)), [Some(LocalQpOperation)]);
}

#[test]
fn remote_access() {
    for (offset, rights) in [(0x100, ALL), (0, MkeyRights::LOCAL_WRITE)] {
        let (mut bench, a, b) = Bench::standard();
        let eqn = bench.eq(4, &[EventType::WqAccessError]);
        bench.post_recv(b, &[]);
        let rkey = bench.mkey(MEMORY, Some(4096), rights) + offset;
        let key = bench.key;
        let mut bench = fails_alone(bench, a, &write(MEMORY, 8, key, MEMORY, rkey), RemoteAccess);
        assert_eq!(bench.state(b), QpState::Err);
        assert_eq!(syndromes(&bench.received(b)), [Some(WorkRequestFlushed)]);
        assert_eq!(bench.event(eqn).map(|(event, _)| event), Some(EventType::WqAccessError));
    }
    let (mut bench, a, _) = Bench::standard();
    let rkey = bench.mkey(MEMORY, Some(4096), MkeyRights::REMOTE_WRITE);
    let key = bench.key;
    fails_alone(bench, a, &read(MEMORY, 8, key, MEMORY, rkey), RemoteAccess);
    let (mut bench, a, _) = Bench::standard();
    let rkey = bench.mkey(MEMORY, Some(4096), ALL);
    let key = bench.key;
    fails_alone(bench, a, &read(MEMORY, 97, key, MEMORY + 4000, rkey), RemoteAccess);
}

#[test]
fn operations_that_the_queue_pair_does_not_allow() {
    let (mut bench, a, b) = Bench::standard();
    let eqn = bench.eq(4, &[EventType::WqInvalidRequest]);
    bench.qp_mut(b).remote_read = false;
    let key = bench.key;
    let mut bench = fails_alone(bench, a, &read(MEMORY, 8, key, MEMORY, key), RemoteInvalidRequest);
    assert_eq!(bench.state(b), QpState::Err);
    let (event, data) = bench.event(eqn).unwrap();
    assert_eq!((event, u32::from_be_bytes(data[24..].try_into().unwrap())), (EventType::WqInvalidRequest, b));
}

#[test]
fn a_receive_too_short() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to, key) = (bench.alloc(8192), bench.alloc(8192), bench.key);
    bench.post_recv(b, &[data(to, 1500, key)]);
    bench.post_recv(b, &[data(to, 1500, key)]);
    bench.post(a, &send(from, 1501, key));
    bench.run();
    assert_eq!(syndromes(&bench.received(b)), [Some(LocalLength), Some(WorkRequestFlushed)]);
    assert_eq!(syndromes(&bench.sent(a)), [Some(RemoteInvalidRequest)]);
    assert_eq!((bench.state(a), bench.state(b)), (QpState::Err, QpState::Err));
}

#[test]
fn a_receive_whose_key_is_bad() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to, key) = (bench.alloc(8192), bench.alloc(8192), bench.key);
    bench.post_recv(b, &[data(to, 1500, key + 0x100)]);
    bench.post(a, &send(from, 10, key));
    bench.run();
    assert_eq!(syndromes(&bench.received(b)), [Some(LocalProtection)]);
    assert_eq!(syndromes(&bench.sent(a)), [Some(RemoteOperation)]);
}

#[test]
fn nobody_answers() {
    let mut bench = Bench::new();
    let shape = Shape { retry_count: 3, ack_timeout: 10, ..bench.shape() };
    let (a, b) = bench.pair(shape);
    bench.go(b, QpState::Rst);
    let key = bench.key;
    bench.post(a, &write(MEMORY, 8, key, MEMORY, key));
    let started = bench.now();
    let timeout = Duration::from_nanos(4096 << 10);
    bench.run_for(timeout * 4 - Duration::from_micros(1));
    assert!(bench.sent(a).is_empty());
    bench.run_for(Duration::from_micros(2));
    assert_eq!(syndromes(&bench.sent(a)), [Some(TransportRetryExceeded)], "after {:?}", bench.now() - started);
    // The first attempt and three retries.
    assert_eq!(bench.f.nic.port.counters.sent, 4);
}

#[test]
fn a_receive_comes_late() {
    let (mut bench, a, b) = Bench::standard();
    let (from, to, key) = (bench.alloc(8192), bench.alloc(8192), bench.key);
    bench.write(from, b"late");
    bench.post(a, &send(from, 4, key));
    bench.post(a, &send(from, 4, key));
    // 640 us each time, unlimited retries.
    bench.run_for(Duration::from_millis(20));
    assert!(bench.sent(a).is_empty());
    assert!((60..110).contains(&bench.f.nic.port.counters.sent), "{}", bench.f.nic.port.counters.sent);
    bench.post_recv(b, &[data(to, 4, key)]);
    bench.post_recv(b, &[data(to, 4, key)]);
    bench.run_for(Duration::from_millis(2));
    assert_eq!(syndromes(&bench.sent(a)), [None, None]);
    assert_eq!(bench.read(to, 4), b"late");
}

#[test]
fn a_receive_never_comes() {
    let mut bench = Bench::new();
    let shape = Shape { rnr_retry: 2, ..bench.shape() };
    let (a, b) = bench.pair(shape);
    let key = bench.key;
    bench.post(a, &send(MEMORY, 4, key));
    bench.run_for(Duration::from_millis(1));
    assert!(bench.sent(a).is_empty());
    bench.run_for(Duration::from_millis(1));
    assert_eq!(syndromes(&bench.sent(a)), [Some(RnrRetryExceeded)]);
    assert_eq!(bench.state(b), QpState::Rts, "the responder did nothing wrong");
}

#[test]
fn everything_posted_is_flushed_before_and_after() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    for _ in 0..3 {
        bench.post_recv(a, &[]);
    }
    bench.qp_mut(b).state = QpState::Init; // does not respond
    for signalled in [true, false] {
        let mut post = Post::new(WqeOpcode::Send, vec![Seg::Inline(vec![0; 200])]);
        post.signalled = signalled;
        bench.post(a, &post);
    }
    bench.run();
    bench.go(a, QpState::Err);
    let flushed = |count| vec![Some(WorkRequestFlushed); count];
    assert_eq!(syndromes(&bench.sent(a)), flushed(2));
    assert_eq!(bench.received(a).iter().map(|done| done.index).collect::<Vec<_>>(), [0, 1, 2]);
    // WQEs posted to a queue pair in error are flushed too: software drains it that way.
    bench.post(a, &send(MEMORY, 4, key));
    bench.post_recv(a, &[]);
    bench.run();
    assert_eq!(syndromes(&bench.sent(a)), flushed(1));
    assert_eq!(syndromes(&bench.received(a)), flushed(1));
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn injected_failures() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    bench
        .f
        .nic
        .faults
        .inject(Fault::CompletionError { qpn: Some(a), syndrome: 0x14, vendor_syndrome: 7 }, Times::Count(1));
    bench.post_recv(b, &[data(MEMORY, 8, key)]);
    bench.post(a, &send(MEMORY, 4, key));
    bench.run();
    assert_eq!(syndromes(&bench.sent(a)), [Some(RemoteOperation)]);
    assert_eq!(syndromes(&bench.received(b)), [None]);
}

/// A packet to queue pair `b`.
fn forged(bench: &Bench, b: u32, opcode: Opcode, psn: u32) -> Packet {
    let mac = bench.f.nic.objects.vport.mac();
    let route = crate::transport::packet::Route {
        dst_mac: mac,
        src_mac: mac,
        src: Bench::gid(0),
        dst: Bench::gid(0),
        ..Default::default()
    };
    Packet::new(opcode, route, b, Psn::new(psn))
}

/// Delivers a packet to queue pair `b` that its peer never sent.
fn forge(bench: &mut Bench, b: u32, opcode: Opcode, psn: u32, change: impl FnOnce(&mut Packet)) {
    let mut packet = forged(bench, b, opcode, psn);
    change(&mut packet);
    engine::receive(&mut bench.f, Frame::Roce(Box::new(packet)));
    bench.run();
}

#[test]
fn reserved_opcodes_are_refused_at_the_psn_that_is_expected() {
    for number in [0x15, 0x18, 0x1c, 0x1d, 0x1f] {
        let (mut bench, _, b) = Bench::standard();
        let eqn = bench.eq(4, &[EventType::WqInvalidRequest]);
        let mut bytes = Vec::new();
        forged(&bench, b, Opcode::Acknowledge, 0xff_fff0).encode(&mut bytes);
        let (ip, bth, end) = (14, 14 + 20 + 8, bytes.len() - 4);
        bytes[bth] = number;
        let sum = crate::transport::icrc::compute(&bytes[ip..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&sum);
        let frame = Frame::from_bytes(bytes).expect("a packet of a known transport");
        let Frame::Roce(mut earlier) = frame.clone() else { panic!("{frame:?}") };
        earlier.psn = earlier.psn.previous();
        engine::receive(&mut bench.f, Frame::Roce(earlier));
        bench.run();
        assert_eq!((bench.state(b), bench.f.nic.port.counters.sent), (QpState::Rts, 0), "a duplicate");
        engine::receive(&mut bench.f, frame);
        bench.run();
        assert_eq!(bench.state(b), QpState::Err, "{number:#x}");
        assert_eq!(bench.event(eqn).map(|(event, _)| event), Some(EventType::WqInvalidRequest));
        assert_eq!(bench.f.nic.port.counters.sent, 1, "a NAK");
    }
}

#[test]
fn requests_that_no_requester_would_make() {
    type Change = fn(&mut Packet);
    let cases: [(Opcode, Change); 7] = [
        (Opcode::SendMiddle, |packet| packet.payload = vec![0; 1024]),
        (Opcode::SendLast, |packet| packet.payload = vec![0; 10]),
        (Opcode::SendFirst, |packet| packet.payload = vec![0; 10]),
        (Opcode::SendOnly, |packet| packet.payload = vec![0; 1025]),
        (Opcode::WriteLast, |packet| packet.payload = vec![0; 10]),
        (Opcode::WriteOnly, |packet| (packet.reth.len, packet.payload) = (11, vec![0; 10])),
        (Opcode::FetchAdd, |packet| packet.atomic.va = 3),
    ];
    for (opcode, change) in cases {
        let (mut bench, _, b) = Bench::standard();
        bench.post_recv(b, &[]);
        forge(&mut bench, b, opcode, 0xff_fff0, change);
        assert_eq!(bench.state(b), QpState::Err, "{opcode:?}");
    }
}

#[test]
fn strangers_and_damaged_packets_are_not_heard() {
    let (mut bench, a, b) = Bench::standard();
    bench.post_recv(b, &[]);
    forge(&mut bench, b, Opcode::SendOnly, 0xff_fff0, |packet| packet.route.src = Bench::gid(9));
    forge(&mut bench, b, Opcode::SendOnly, 0xff_fff0, |packet| packet.flipped = Some(400));
    forge(&mut bench, 0xabcdef, Opcode::SendOnly, 0xff_fff0, |_| {});
    forge(&mut bench, a, Opcode::Acknowledge, 0xff_fff0, |packet| packet.aeth.syndrome = 0x63);
    assert!(bench.received(b).is_empty());
    assert_eq!(bench.f.nic.port.counters.dropped, 3);
    assert_eq!((bench.state(a), bench.state(b)), (QpState::Rts, QpState::Rts));
}

#[test]
fn no_packet_goes_in_or_out_while_roce_is_disabled() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    bench.post_recv(b, &[]);
    bench.f.nic.objects.vport.context.w().roce_en(false);
    forge(&mut bench, b, Opcode::SendOnly, 0xff_fff0, |_| {});
    assert_eq!((bench.received(b).len(), bench.f.nic.port.counters.dropped), (0, 1));
    let sent = bench.f.nic.port.counters.sent;
    bench.post(a, &write(MEMORY, 8, key, MEMORY, key));
    bench.run();
    assert_eq!(bench.f.nic.port.counters.sent, sent);
    bench.f.nic.objects.vport.context.w().roce_en(true);
    bench.run_for(std::time::Duration::from_millis(200));
    assert_eq!(bench.sent(a).len(), 1, "sent again, as what is lost");
}

#[test]
fn a_response_of_the_wrong_length() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    bench.go(b, QpState::Rst);
    bench.post(a, &read(MEMORY, 100, key, MEMORY, key));
    bench.run();
    forge(&mut bench, a, Opcode::ReadResponseOnly, 0xff_fff0, |packet| packet.payload = vec![0; 99]);
    assert_eq!(syndromes(&bench.sent(a)), [Some(BadResponse)]);
}

#[test]
fn a_key_that_goes_away_in_the_middle_of_a_read() {
    let (mut bench, a, _) = Bench::standard();
    let (here, there) = (bench.alloc(1 << 20), bench.alloc(1 << 20));
    let (key, rkey) = (bench.key, bench.mkey(there, Some(1 << 20), ALL));
    bench.post(a, &read(here, 1 << 20, key, there, rkey));
    for _ in 0..5 {
        engine::run(&mut bench.f);
    }
    bench.mkey_mut(rkey).set_free(true);
    bench.run();
    assert_eq!(syndromes(&bench.sent(a)), [Some(RemoteOperation)]);
}

/// The requester has the data, and its duplicate is late: a key that it invalidates meanwhile is no error.
#[test]
fn a_key_that_goes_away_while_a_read_is_answered_again() {
    const LEN: u32 = 1 << 20;
    let (mut bench, a, b) = Bench::standard();
    let (here, there) = (bench.alloc(LEN.into()), bench.alloc(LEN.into()));
    let (key, rkey) = (bench.key, bench.mkey(there, Some(LEN.into()), ALL));
    bench.post(a, &read(here, LEN, key, there, rkey));
    bench.run();
    assert_eq!(syndromes(&bench.sent(a)), [None]);
    let mut packet = forged(&bench, b, Opcode::ReadRequest, 0xff_fff0);
    (packet.reth.rkey, packet.reth.va, packet.reth.len) = (rkey, there, LEN);
    engine::receive(&mut bench.f, Frame::Roce(Box::new(packet)));
    for _ in 0..5 {
        engine::run(&mut bench.f);
    }
    assert!(!bench.qp_mut(b).rc.receive.replies.is_empty(), "the answer is under way");
    bench.mkey_mut(rkey).set_free(true);
    bench.run();
    assert_eq!((bench.state(a), bench.state(b)), (QpState::Rts, QpState::Rts));
    bench.post(a, &write(here, 8, key, here, key));
    bench.run();
    assert_eq!(syndromes(&bench.sent(a)), [None]);
}

#[test]
fn memory_that_goes_away_is_no_panic() {
    let (mut bench, a, b) = Bench::standard();
    let key = bench.key;
    bench.post_recv(b, &[data(MEMORY, 100, key)]);
    bench.put(a, &send(MEMORY, 100, key));
    bench.f.nic.dma.clear();
    engine::send_doorbell(&mut bench.f, UAR, u64::from(a) << 8 | 4);
    engine::cq_doorbell(&mut bench.f, UAR, 1);
    bench.go(a, QpState::Err);
    bench.run();
    assert!(!bench.violations().is_empty());
}
