//! What changes of a connection while it works, and where its packets go.

use mlx5_dv::Error;
use mlx5_dv::memory::RemoteAddress;
use mlx5_dv::objects::{
    AccessFlags, AddressPath, CqOptions, EceOptions, InitAttributes, QpChanges, QpOptions, QueuePair, RtrAttributes,
    Uar,
};
use mlx5_dv::queue::{CompletionQueue, WrFlags};
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::values::QpState;
use mlx5_sim::profile::Profile;

use crate::ends::{Card, End, Setup, pair, pair_of};

fn write(end: &mut End, remote: RemoteAddress) {
    let mut batch = end.sq.batch();
    batch.write_inline(1, WrFlags::SIGNALLED, remote, b"by right").unwrap();
    batch.ring();
}

#[test]
fn rights_come_and_go_while_a_connection_works() {
    let card = Card::new();
    let (mut a, b) = pair_of(&card, &Setup { remote_access: AccessFlags::empty(), ..Setup::default() });
    let region = card.region(4096);
    assert_eq!(b.qp.query().unwrap().remote_access, AccessFlags::empty());
    let all = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    for access in [AccessFlags::REMOTE_WRITE, all] {
        b.qp.modify(&QpChanges::default().remote_access(access)).unwrap();
        assert_eq!((b.qp.query().unwrap().remote_access, b.qp.state()), (access, QpState::Rts));
        write(&mut a, region.remote());
        a.good();
    }
    b.qp.modify(&QpChanges::default().remote_access(AccessFlags::REMOTE_READ)).unwrap();
    write(&mut a, region.remote());
    assert_eq!(a.bad().1.syndrome(), Some(CqeSyndrome::RemoteInvalidRequest));
    drop((a, b, region));
    card.end();
}

#[test]
fn a_query_says_what_a_connection_was_made_with_and_changed_to() {
    let card = Card::new();
    let (a, b) = pair(&card);
    a.qp.modify(&QpChanges::default().min_rnr_timer(17)).unwrap();
    let status = a.qp.query().unwrap();
    assert_eq!((status.min_rnr_timer, b.qp.query().unwrap().min_rnr_timer), (17, 1));
    assert_eq!((status.timeout, status.retry_count, status.rnr_retry), (14, 7, 7));
    assert_eq!((status.max_rd_atomic, status.max_dest_rd_atomic), (16, 16));
    assert_eq!(status.remote_access, AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ);
    assert_eq!(status.path.gid, card.device.gids()[0].address.octets());
    let port = card.device.port().unwrap();
    assert_eq!(status.path_mtu.bytes(), port.path_mtu().map(u32::from), "by default the port's");
    // Of nothing nothing changes.
    a.qp.modify(&QpChanges::default()).unwrap();
    drop((a, b));
    card.end();
}

#[test]
fn connections_have_source_ports_of_their_own() {
    let card = Card::new();
    let pairs: Vec<_> = (0..8).map(|_| pair(&card)).collect();
    let sport = |end: &End| end.qp.query().unwrap().path.udp_sport.unwrap();
    let mut ports: Vec<u16> = pairs
        .iter()
        .map(|(a, b)| (sport(a), sport(b)))
        .map(|(a, b)| {
            assert_eq!(a, b, "the same both ways");
            assert!(a >= 0xc000);
            a
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), pairs.len());
    drop(pairs);
    card.end();
}

#[test]
fn a_connection_changes_its_source_port_while_it_works() {
    let card = Card::new();
    let (mut a, b) = pair(&card);
    let region = card.region(4096);
    let before = a.qp.query().unwrap();
    for port in [0xc123, 0xffff] {
        a.qp.modify(&QpChanges::default().udp_sport(port)).unwrap();
        let now = a.qp.query().unwrap();
        assert_eq!((now.path.udp_sport, now.path.gid, now.timeout), (Some(port), before.path.gid, before.timeout));
        write(&mut a, region.remote());
        a.good();
    }
    assert_eq!(b.qp.query().unwrap().path.udp_sport, before.path.udp_sport, "that of the other end stays");
    drop((a, b, region));
    card.end();
}

#[test]
fn a_source_port_that_cannot_be_changed_stays() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().rts2rts_qp_udp_sport(false);
    profile.general_current.w().rts2rts_qp_udp_sport(false);
    let card = Card::of(profile);
    let (a, b) = pair(&card);
    let change = QpChanges::default().udp_sport(0xc123);
    let refused = a.qp.modify(&change).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { capability: "rts2rts_qp_udp_sport", .. }), "{refused}");
    drop((a, b));
    card.end();
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let create = |options| QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), options).unwrap();
    let (qp, datagrams) = (create(QpOptions::default()), create(QpOptions::default().datagrams()));
    qp.init(&InitAttributes::default()).unwrap();
    for (qp, says) in [(&qp, "modify needs RTS"), (&datagrams, "QpChanges::udp_sport")] {
        let refused = qp.modify(&change).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    drop((qp, datagrams, cq, uar));
    card.end();
}

#[test]
fn two_ends_agree_on_the_options_of_their_connection() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let create = |options| QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), options).unwrap();
    let (active, passive, plain) =
        (create(QpOptions::default()), create(QpOptions::default()), create(QpOptions::default()));
    let path = AddressPath::link_local(card.device.gids()[0].address.octets()).unwrap();
    let connect = |qp: &QueuePair, to: &QueuePair, ece| {
        qp.init(&InitAttributes::default()).unwrap();
        qp.ready_to_receive(&RtrAttributes { ece, ..RtrAttributes::new(to.qpn(), 0, path) }).unwrap();
        qp.ece()
    };
    let offered = active.ece().unwrap();
    assert_eq!(offered, EceOptions(1 << 28));
    // An option that the card has not.
    let answer = connect(&passive, &active, Some(EceOptions(offered.0 | 2)));
    assert_eq!(answer, Some(offered));
    assert_eq!(connect(&active, &passive, answer), answer);
    assert_eq!(connect(&plain, &plain, None), Some(EceOptions(0)), "offered, but not agreed on");
    active.reset().unwrap();
    assert_eq!(active.ece(), Some(offered));
    drop((active, passive, plain, cq, uar));
    card.end();
}

#[test]
fn a_card_without_options_of_connections_says_so() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().ece_support(false);
    profile.general_current.w().ece_support(false);
    let card = Card::of(profile);
    let uar = Uar::alloc(&card.device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let qp = QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), QpOptions::default()).unwrap();
    assert_eq!(qp.ece(), None);
    qp.init(&InitAttributes::default()).unwrap();
    let path = AddressPath::link_local(card.device.gids()[0].address.octets()).unwrap();
    let attributes = RtrAttributes { ece: Some(EceOptions::default()), ..RtrAttributes::new(qp.qpn(), 0, path) };
    let refused = qp.ready_to_receive(&attributes).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { capability: "ece_support", .. }), "{refused}");
    assert_eq!(qp.state(), QpState::Init, "a refusal changes nothing");
    drop((qp, cq, uar));
    card.end();
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let create = |options| QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), options).unwrap();
    let (qp, unreliable) = (create(QpOptions::default()), create(QpOptions::default().unreliable()));
    let (rights, timer) =
        (QpChanges::default().remote_access(AccessFlags::REMOTE_READ), QpChanges::default().min_rnr_timer(3));
    let text = qp.modify(&rights).unwrap_err().to_string();
    assert!(text.contains("in RST, and modify needs INIT or RTS; first call init"), "{text}");
    qp.init(&InitAttributes::default()).unwrap();
    qp.modify(&rights).unwrap();
    assert_eq!((qp.query().unwrap().remote_access, qp.state()), (AccessFlags::REMOTE_READ, QpState::Init));
    let text = qp.modify(&timer).unwrap_err().to_string();
    assert!(text.contains("in INIT, and modify needs RTS; first call ready_to_receive"), "{text}");
    let path = AddressPath::link_local(card.device.gids()[0].address.octets()).unwrap();
    qp.ready_to_receive(&RtrAttributes::new(qp.qpn(), 0, path.traffic_class(0xb9).service_level(3))).unwrap();
    let path = qp.query().unwrap().path;
    assert_eq!((path.traffic_class, path.service_level), (0xb9, 3));
    assert!(matches!(qp.modify(&rights), Err(Error::State(_))));
    let text = qp.modify(&QpChanges::default().min_rnr_timer(32)).unwrap_err().to_string();
    assert!(text.contains("min_rnr_timer is 0x20, and the field has 5 bits"), "{text}");
    assert!(unreliable.modify(&timer).unwrap_err().to_string().contains("is for RC"));
    unreliable.init(&InitAttributes::default()).unwrap();
    unreliable.modify(&QpChanges::default().remote_access(AccessFlags::empty())).unwrap();
    assert_eq!(unreliable.query().unwrap().remote_access, AccessFlags::empty());
    drop((qp, unreliable, cq, uar));
    card.end();
}
