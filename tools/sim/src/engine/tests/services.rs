//! Transport services other than RC, and shared receives.

use mlx5_prm::cqe::{CqeOpcode, CqeSyndrome};
use mlx5_prm::eqe::EventType;
use mlx5_prm::layout::Layout;
use mlx5_prm::values::{QpState, ServiceType};
use mlx5_prm::wqe::{UdAdrsVector, WqeOpcode, XrcSeg};

use super::bench::*;
use crate::fault::{Fault, FrameFate, Times};
use crate::objects::{MkeyRights, XrcSrq};

const QKEY: u32 = 0x1111_1111;

fn connected(service: ServiceType) -> (Bench, u32, u32) {
    let mut bench = Bench::new();
    let shape = Shape { service, ..bench.shape() };
    let (a, b) = bench.pair(shape);
    (bench, a, b)
}

fn av(bench: &Bench, qpn: u32, qkey: u32) -> Seg {
    let mac = bench.f.nic.objects.vport.mac();
    let mut av = UdAdrsVector::ZERO;
    av.w()
        .dc_key(u64::from(qkey) << 32)
        .destination_qp_dct(qpn)
        .rmac_47_16(u32::from_be_bytes([mac[0], mac[1], mac[2], mac[3]]))
        .rmac_15_0(u16::from_be_bytes([mac[4], mac[5]]))
        .hop_limit(64)
        .tclass(0x20)
        .rgid_rip(&Bench::gid(0));
    Seg::Raw(av.as_bytes().to_vec())
}

fn datagram(bench: &Bench, to: u32, qkey: u32, at: u64, len: u32) -> Post {
    Post::new(WqeOpcode::Send, vec![av(bench, to, qkey), Seg::Data(at, len, bench.key)])
}

/// Destination QP number of multicast datagrams.
fn group() -> [u8; 16] {
    crate::transport::packet::gid_of_ipv4([239, 1, 2, 3])
}

#[test]
fn what_is_sent_to_a_group_comes_to_each_member_once() {
    let (mut bench, a, b) = connected(ServiceType::Ud);
    let shape = Shape { service: ServiceType::Ud, ..bench.shape() };
    let stranger = bench.qp(shape);
    for qpn in [a, b, stranger] {
        set_qkey(&mut bench, qpn);
        bench.go(qpn, QpState::Rts);
    }
    for member in [a, b] {
        bench.f.nic.objects.groups.attach(group(), member);
    }
    let (from, to, key) = (bench.alloc(4096), bench.alloc(8192), bench.key);
    bench.write(from, &pattern(100, 1));
    for (place, qpn) in [a, b, stranger].into_iter().enumerate() {
        bench.post_recv(qpn, &[data(to + 1024 * place as u64, 1024, key)]);
    }
    let mut av = UdAdrsVector::ZERO;
    av.w().dc_key(u64::from(QKEY) << 32).destination_qp_dct(0xff_ffff).rmac_47_16(0x0100_5e01).rmac_15_0(0x0203);
    av.w().hop_limit(1).rgid_rip(&group());
    let post = Post::new(WqeOpcode::Send, vec![Seg::Raw(av.as_bytes().to_vec()), Seg::Data(from, 100, key)]);
    bench.post(a, &post);
    bench.run();
    let counted = bench.f.nic.port.counters.rdma;
    for way in [counted.sent, counted.received] {
        assert_eq!((way.multicast.packets, way.unicast.packets), (1, 0));
    }
    for (place, qpn, expected) in [(0, a, 1), (1, b, 1), (2, stranger, 0)] {
        let received = bench.received(qpn);
        assert_eq!(received.len(), expected, "QP {qpn:#x}");
        if expected == 1 {
            assert_eq!(bench.read(to + 1024 * place + 40, 100), pattern(100, 1));
        }
    }
    bench.f.nic.objects.groups.detach(&group(), b);
    bench.post_recv(b, &[data(to, 1024, key)]);
    bench.post(a, &post);
    bench.run();
    assert!(bench.received(b).is_empty(), "no member any more");
    assert!(bench.violations().is_empty());
}

fn set_qkey(bench: &mut Bench, qpn: u32) {
    bench.qp_mut(qpn).context.w().q_key(QKEY);
}

#[test]
fn an_unreliable_connection_delivers_sends_and_writes_and_completes_them_when_sent() {
    let (mut bench, a, b) = connected(ServiceType::Uc);
    let (from, to, key) = (bench.alloc(8192), bench.alloc(8192), bench.key);
    bench.write(from, &pattern(3000, 1));
    bench.post_recv(b, &[data(to, 4096, key)]);
    bench.post(a, &send(from, 3000, key));
    bench.post(a, &write(from, 2000, key, to + 4096, key));
    bench.run();
    assert_eq!(bench.sent(a).len(), 2);
    let received = bench.received(b);
    assert_eq!((received.len(), received[0].len), (1, 3000));
    assert_eq!(bench.read(to, 3000), pattern(3000, 1));
    assert_eq!(bench.read(to + 4096, 2000), pattern(3000, 1)[..2000]);
    assert!(bench.violations().is_empty());
}

#[test]
fn an_unreliable_connection_loses_the_message_of_a_lost_packet_and_takes_the_next() {
    let (mut bench, a, b) = connected(ServiceType::Uc);
    let (from, to, key) = (bench.alloc(8192), bench.alloc(8192), bench.key);
    bench.write(from, &pattern(3000, 2));
    bench.post_recv(b, &[data(to, 4096, key)]);
    bench.f.nic.faults.inject(Fault::Frame { fate: FrameFate::Lost, per_million: 1_000_000 }, Times::Count(1));
    bench.post(a, &send(from, 3000, key));
    bench.run();
    assert_eq!(bench.received(b), []);
    assert_eq!(bench.sent(a).len(), 1, "who sends never hears of it");
    bench.post(a, &send(from, 2500, key));
    bench.run();
    let received = bench.received(b);
    assert_eq!((received.len(), received[0].len, received[0].index), (1, 2500, 0));
    assert_eq!(bench.read(to, 2500), pattern(3000, 2)[..2500]);
    assert_eq!((bench.state(a), bench.state(b)), (QpState::Rts, QpState::Rts));
}

#[test]
fn an_unreliable_connection_without_a_receive_loses_the_message() {
    let (mut bench, a, b) = connected(ServiceType::Uc);
    let (at, key) = (bench.alloc(4096), bench.key);
    bench.post(a, &send(at, 100, key));
    bench.run();
    bench.post_recv(b, &[data(at, 4096, key)]);
    bench.post(a, &send(at, 200, key));
    bench.run();
    assert_eq!(bench.received(b).iter().map(|done| done.len).collect::<Vec<_>>(), [200]);
}

#[test]
fn an_unreliable_connection_does_not_read() {
    let (mut bench, a, _) = connected(ServiceType::Uc);
    let (at, key) = (bench.alloc(4096), bench.key);
    bench.post(a, &read(at, 100, key, at, key));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::LocalQpOperation));
    assert_eq!(bench.violations(), [crate::strict::rules::WQE_OPCODE]);
}

fn datagrams() -> (Bench, u32, u32) {
    let (mut bench, a, b) = connected(ServiceType::Ud);
    set_qkey(&mut bench, a);
    set_qkey(&mut bench, b);
    (bench, a, b)
}

#[test]
fn a_datagram_arrives_behind_its_ip_header_and_names_its_sender() {
    let (mut bench, a, b) = datagrams();
    let (from, to, key) = (bench.alloc(4096), bench.alloc(4096), bench.key);
    bench.write(from, &pattern(500, 3));
    bench.post_recv(b, &[data(to, 4096, key)]);
    let post = datagram(&bench, b, QKEY, from, 500);
    bench.post(a, &post);
    bench.run();
    assert_eq!(bench.sent(a).len(), 1);
    let received = bench.received(b);
    assert_eq!((received[0].len, received[0].from, received[0].opcode), (540, a, CqeOpcode::ResponderSend));
    let bytes = bench.read(to, 540);
    assert_eq!(bytes[40..], pattern(500, 3));
    assert_eq!((bytes[20], bytes[21], bytes[29]), (0x45, 0x20, 17), "IPv4, traffic class, UDP");
    assert_eq!((&bytes[32..36], &bytes[36..40]), (&[10, 0, 0, 1][..], &[10, 0, 0, 1][..]));
    assert!(bench.violations().is_empty());
}

#[test]
fn a_datagram_with_another_queue_key_is_dropped() {
    let (mut bench, a, b) = datagrams();
    let (at, key) = (bench.alloc(4096), bench.key);
    bench.post_recv(b, &[data(at, 4096, key)]);
    let post = datagram(&bench, b, QKEY + 1, at, 50);
    bench.post(a, &post);
    bench.run();
    assert_eq!(bench.received(b), []);
    assert_eq!(bench.f.nic.port.counters.dropped, 1);
    assert_eq!(bench.f.nic.objects.vport.context.qkey_violation_counter(), 1);
    // The top bit selects the sender's own Q_Key.
    let post = datagram(&bench, b, 1 << 31, at, 50);
    bench.post(a, &post);
    bench.run();
    assert_eq!(bench.received(b).len(), 1);
}

#[test]
fn a_send_that_fails_stops_the_send_queue_alone_until_software_restarts_it() {
    for service in [ServiceType::Ud, ServiceType::Uc] {
        let (mut bench, a, b) = connected(service);
        set_qkey(&mut bench, a);
        set_qkey(&mut bench, b);
        let (at, key) = (bench.alloc(8192), bench.key);
        bench.write(at, &pattern(500, 3));
        let post = |bench: &Bench, to, key| match service {
            ServiceType::Ud => Post::new(WqeOpcode::Send, vec![av(bench, to, QKEY), Seg::Data(at, 500, key)]),
            _ => send(at, 500, key),
        };
        for qpn in [a, b] {
            bench.post_recv(qpn, &[data(at + 4096, 4096, key)]);
        }
        let (wrong, good) = (post(&bench, b, key + 1), post(&bench, b, key));
        bench.post(a, &wrong);
        bench.put(a, &good);
        bench.post(a, &good);
        bench.run();
        let flushed = Some(CqeSyndrome::WorkRequestFlushed);
        let ended = |bench: &mut Bench| bench.sent(a).iter().map(|done| done.syndrome).collect::<Vec<_>>();
        assert_eq!(ended(&mut bench), [Some(CqeSyndrome::LocalProtection), flushed, flushed]);
        let mut context = mlx5_prm::ctx::Qpc::ZERO;
        crate::engine::describe_qp(bench.qp_mut(a), &mut context);
        assert_eq!((bench.state(a), context.state()), (QpState::Sqer, QpState::Sqer));
        bench.post(a, &good);
        bench.run();
        assert_eq!(ended(&mut bench), [flushed], "posted later");
        let back = post(&bench, a, key);
        bench.post(b, &back);
        bench.run();
        assert_eq!(bench.received(a).iter().map(|done| done.syndrome).collect::<Vec<_>>(), [None]);
        assert_eq!(bench.received(b), []);
        bench.go(a, QpState::Rts);
        bench.post(a, &good);
        bench.run();
        assert_eq!(ended(&mut bench), [None]);
        assert_eq!(bench.received(b).iter().map(|done| done.syndrome).collect::<Vec<_>>(), [None]);
    }
}

#[test]
fn an_unreliable_message_that_fails_on_the_way_does_not_harm_the_next() {
    let (mut bench, a, b) = connected(ServiceType::Uc);
    let (at, key) = (bench.alloc(16384), bench.key);
    bench.write(at, &pattern(3000, 5));
    let short = bench.mkey(at, Some(1024), MkeyRights::LOCAL_READ);
    bench.post_recv(b, &[data(at + 8192, 8192, key)]);
    let segs = vec![Seg::Data(at, 1024, short), Seg::Data(at + 1024, 2000, short)];
    bench.post(a, &Post::new(WqeOpcode::Send, segs));
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::LocalProtection));
    bench.go(a, QpState::Rts);
    bench.post(a, &send(at, 2500, key));
    bench.run();
    assert_eq!(bench.received(b).iter().map(|done| (done.len, done.syndrome)).collect::<Vec<_>>(), [(2500, None)]);
    assert_eq!(bench.read(at + 8192, 2500), pattern(3000, 5)[..2500]);
}

#[test]
fn a_datagram_longer_than_the_receive_fails_the_receive() {
    let (mut bench, a, b) = datagrams();
    let (at, key) = (bench.alloc(4096), bench.key);
    bench.post_recv(b, &[data(at, 100, key)]);
    let post = datagram(&bench, b, QKEY, at, 61);
    bench.post(a, &post);
    bench.run();
    assert_eq!(bench.received(b)[0].syndrome, Some(CqeSyndrome::LocalLength));
    assert_eq!((bench.state(a), bench.state(b)), (QpState::Rts, QpState::Err));
}

#[test]
fn general_services_are_reached_by_queue_pair_1() {
    let mut bench = Bench::new();
    let shape = Shape { service: ServiceType::Qp1, ..bench.shape() };
    let gsi = bench.qp(shape);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        bench.go(gsi, state);
    }
    let (at, key) = (bench.alloc(4096), bench.key);
    bench.post_recv(gsi, &[data(at, 4096, key)]);
    let post = datagram(&bench, 1, 0x8001_0000, at, 256);
    bench.post(gsi, &post);
    bench.run();
    let received = bench.received(gsi);
    assert_eq!((received[0].len, received[0].from, received[0].immediate), (296, 1, 0xffff));
}

#[test]
fn a_shared_queue_gives_its_receives_in_the_order_they_are_linked() {
    let mut bench = Bench::new();
    let srqn = bench.srq(None);
    let shape = Shape { srqn: Some(srqn), ..bench.shape() };
    let (a, b) = bench.pair(shape);
    let (at, key) = (bench.alloc(8192), bench.key);
    for index in [0, 7, 6] {
        bench.post_srq(srqn, index, &[data(at + 4096, 512, key)]);
    }
    bench.post(a, &send(at, 10, key));
    bench.post(b, &send(at, 20, key));
    bench.post(a, &send(at, 30, key));
    bench.run();
    let of = |done: Vec<Done>| done.iter().map(|done| (done.index, done.len)).collect::<Vec<_>>();
    let (at_a, at_b) = (of(bench.received(a)), of(bench.received(b)));
    let mut all: Vec<_> = at_a.iter().chain(&at_b).map(|(index, _)| *index).collect();
    all.sort_unstable();
    assert_eq!((all, at_a.len(), at_b.len()), (vec![0, 6, 7], 1, 2));
}

#[test]
fn a_cyclic_shared_queue_gives_its_receives_in_the_order_of_the_ring() {
    let mut bench = Bench::new();
    let srqn = bench.srq(None);
    bench.srq_mut(srqn).is_cyclic = true;
    let shape = Shape { srqn: Some(srqn), ..bench.shape() };
    let (a, b) = bench.pair(shape);
    let (at, key) = (bench.alloc(8192), bench.key);
    for round in 0..3 {
        for index in [0, 1, 2].map(|index| (3 * round + index) % 8) {
            bench.post_srq(srqn, index, &[data(at + 4096, 512, key)]);
            bench.post(a, &send(at, 10, key));
            bench.run();
            assert_eq!(bench.received(b)[0].index, index);
        }
    }
}

#[test]
fn the_limit_event_of_a_shared_queue_comes_once() {
    let mut bench = Bench::new();
    let eqn = bench.eq(4, &[EventType::SrqLimit]);
    let srqn = bench.srq(None);
    let shape = Shape { srqn: Some(srqn), ..bench.shape() };
    let (a, _) = bench.pair(shape);
    let (at, key) = (bench.alloc(4096), bench.key);
    for index in [0, 7, 6, 5] {
        bench.post_srq(srqn, index, &[data(at, 512, key)]);
    }
    bench.srq_mut(srqn).limit = 3;
    bench.post(a, &send(at, 10, key));
    bench.run();
    assert!(bench.event(eqn).is_none(), "three are left");
    bench.post(a, &send(at, 10, key));
    bench.post(a, &send(at, 10, key));
    bench.run();
    let (event, data) = bench.event(eqn).unwrap();
    assert_eq!((event, u32::from_be_bytes(data[24..].try_into().unwrap())), (EventType::SrqLimit, srqn));
    assert!(bench.event(eqn).is_none());
}

#[test]
fn a_queue_pair_of_a_shared_queue_says_that_it_will_take_no_more() {
    let mut bench = Bench::new();
    let eqn = bench.eq(4, &[EventType::SrqLastWqe]);
    let srqn = bench.srq(None);
    let shape = Shape { srqn: Some(srqn), ..bench.shape() };
    let (a, _) = bench.pair(shape);
    bench.go(a, QpState::Err);
    assert_eq!(bench.event(eqn).map(|(event, _)| event), Some(EventType::SrqLastWqe));
}

/// Two XRC queue pairs of domain 5, and a shared receive queue of `xrcd`.
fn extended(xrcd: u32) -> (Bench, u32, u32, u32) {
    let mut bench = Bench::new();
    let cqn = bench.cq(4);
    let srqn = bench.srq(Some(XrcSrq { xrcd, cqn, user_index: Some(0x5678) }));
    let shape = Shape { service: ServiceType::Xrc, xrcd: 5, ..bench.shape() };
    let (a, b) = bench.pair(shape);
    let (at, key) = (bench.alloc(4096), bench.key);
    bench.post_srq(srqn, 0, &[data(at, 4096, key)]);
    let mut to = XrcSeg::ZERO;
    to.w().xrc_srqn(srqn);
    let segs = vec![Seg::Raw(to.as_bytes().to_vec()), Seg::Data(at, 2000, key)];
    bench.post(a, &Post::new(WqeOpcode::Send, segs));
    bench.run();
    (bench, a, b, cqn)
}

#[test]
fn a_message_names_the_shared_queue_of_its_xrc_domain() {
    let (mut bench, a, b, cqn) = extended(5);
    assert_eq!(bench.sent(a).iter().map(|done| done.syndrome).collect::<Vec<_>>(), [None]);
    let received = bench.poll(cqn).unwrap();
    assert_eq!((received.len, received.user_index, received.qpn), (2000, 0x5678, b));
    assert_eq!(bench.received(b), []);
}

#[test]
fn a_shared_queue_of_another_xrc_domain_is_refused() {
    let (mut bench, a, _, cqn) = extended(6);
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::RemoteInvalidRequest));
    assert_eq!(bench.poll(cqn), None);
}

/// One write, one read, one atomic, in the order of their opcodes, to the memory of `srqn`'s domain by `rkey`.
fn remote_work(bench: &Bench, srqn: u32, at: u64, rkey: u32) -> Vec<Post> {
    let mut to = XrcSeg::ZERO;
    to.w().xrc_srqn(srqn);
    let work = |opcode, more: Vec<Seg>| {
        let head = vec![Seg::Raw(to.as_bytes().to_vec()), Seg::Remote(at + 4096, rkey)];
        Post::new(opcode, head.into_iter().chain(more).chain([Seg::Data(at, 8, bench.key)]).collect())
    };
    vec![
        work(WqeOpcode::RdmaWrite, vec![]),
        work(WqeOpcode::RdmaRead, vec![]),
        work(WqeOpcode::AtomicFa, vec![Seg::Atomic(5, 0)]),
    ]
}

#[test]
fn a_key_of_an_xrc_target_is_of_its_shared_queues_protection_domain() {
    let mut bench = Bench::new();
    let cqn = bench.cq(4);
    let srqn = bench.srq(Some(XrcSrq { xrcd: 5, cqn, user_index: None }));
    let shape = Shape { service: ServiceType::Xrc, xrcd: 5, ..bench.shape() };
    let (a, b) = bench.pair(shape);
    let (at, key) = (bench.alloc(8192), bench.key);
    // As Linux makes targets: in a protection domain of its own, which no program has.
    bench.qp_mut(b).pd = PD + 1;
    bench.write(at + 4096, &[0; 8]);
    for post in remote_work(&bench, srqn, at, key) {
        bench.post(a, &post);
    }
    bench.run();
    assert_eq!(bench.sent(a).iter().map(|done| done.syndrome).collect::<Vec<_>>(), [None; 3]);
    assert_eq!(bench.read(at + 4096, 8), 5u64.to_le_bytes());
    assert_eq!(bench.violations(), [] as [&str; 0]);
    // The target's own domain opens nothing.
    bench.mkey_mut(key).pd = PD + 1;
    let local = bench.mkey(at, Some(4096), ALL);
    bench.key = local;
    let post = remote_work(&bench, srqn, at, key).pop().unwrap();
    bench.post(a, &post);
    bench.run();
    assert_eq!(bench.sent(a)[0].syndrome, Some(CqeSyndrome::RemoteAccess));
}
