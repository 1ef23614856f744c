//! What is refused before the card is asked, and in which words.

use std::sync::Arc;

use mlx5_dv::Error;
use mlx5_dv::objects::{
    AccessFlags, AddressPath, AnyDoorbell, CqOptions, DestroyReason, InitAttributes, MemoryRegion, Pd, QpOptions,
    QueuePair, RtrAttributes, RtsAttributes, Uar,
};
use mlx5_dv::queue::CompletionQueue;
use mlx5_prm::values::QpState;

use crate::ends::Card;

struct Parts {
    uar: Arc<Uar>,
    cq: CompletionQueue,
    qp: Arc<QueuePair>,
}

fn parts(card: &Card) -> Parts {
    let uar = Uar::alloc(&card.device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let qp = QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), QpOptions::default()).unwrap();
    Parts { uar, cq, qp }
}

fn path(card: &Card) -> AddressPath {
    AddressPath::link_local(card.device.gids()[0].address.octets()).unwrap()
}

#[track_caller]
fn state_error(result: Result<(), Error>) -> String {
    match result.unwrap_err() {
        Error::State(error) => error.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn steps_come_in_order_and_each_error_says_what_is_missing() {
    let card = Card::new();
    let Parts { uar, cq, qp } = parts(&card);
    let (rtr, rts) = (RtrAttributes::new(qp.qpn(), 0, path(&card)), RtsAttributes::new(0));
    let text = state_error(qp.ready_to_send(&rts));
    assert!(text.contains("is in RST, and ready_to_send needs RTR"), "{text}");
    assert!(text.contains("init (port, remote_access), then ready_to_receive (remote_qpn, rq_psn, path)"), "{text}");
    let text = state_error(qp.send_queue::<AnyDoorbell>().map(drop));
    assert!(text.contains("send_queue needs RTS") && text.ends_with("ready_to_send (sq_psn)"), "{text}");
    let text = state_error(qp.receive_queue().map(drop));
    assert!(text.ends_with("first call init (port, remote_access)"), "{text}");
    state_error(qp.to_error());
    state_error(qp.ready_to_receive(&rtr));

    qp.init(&InitAttributes::default()).unwrap();
    assert!(state_error(qp.init(&InitAttributes::default())).ends_with("first call reset"));
    drop(qp.receive_queue().unwrap());
    state_error(qp.send_queue::<AnyDoorbell>().map(drop));
    qp.ready_to_receive(&rtr).unwrap();
    qp.ready_to_send(&rts).unwrap();
    assert_eq!((qp.state(), qp.query().unwrap().state), (QpState::Rts, QpState::Rts));
    let status = qp.query().unwrap();
    assert_eq!((status.remote_qpn, status.next_send_psn, status.next_rcv_psn), (qp.qpn(), 0, 0));

    let queue = qp.send_queue::<AnyDoorbell>().unwrap();
    assert!(qp.send_queue::<AnyDoorbell>().unwrap_err().to_string().contains("given out already"));
    drop(queue);
    assert!(qp.send_queue::<AnyDoorbell>().is_err(), "its indices are the card's no longer");
    assert!(qp.receive_queue().is_err());
    qp.reset().unwrap();
    assert_eq!(qp.query().unwrap().state, QpState::Rst);
    drop((qp, cq, uar));
    card.end();
}

#[test]
fn values_out_of_range_are_named() {
    let card = Card::new();
    let Parts { uar, cq, qp } = parts(&card);
    let said = |result: Result<(), Error>| result.unwrap_err().to_string();
    assert!(said(qp.init(&InitAttributes { port: 2, ..InitAttributes::default() })).contains("num_ports"));
    qp.init(&InitAttributes::default()).unwrap();
    let good = RtrAttributes::new(1, 0, path(&card));
    assert!(said(qp.ready_to_receive(&RtrAttributes { remote_qpn: 1 << 24, ..good })).contains("remote_qpn"));
    assert!(said(qp.ready_to_receive(&RtrAttributes { rq_psn: 1 << 24, ..good })).contains("rq_psn"));
    assert!(said(qp.ready_to_receive(&RtrAttributes { min_rnr_timer: 32, ..good })).contains("min_rnr_timer"));
    let path = path(&card).gid_index(255);
    assert!(said(qp.ready_to_receive(&RtrAttributes { path, ..good })).contains("gid_index"));
    assert_eq!(qp.state(), QpState::Init, "a refusal changes nothing");
    qp.ready_to_receive(&good).unwrap();
    let good = RtsAttributes::new(0);
    assert!(said(qp.ready_to_send(&RtsAttributes { sq_psn: 1 << 24, ..good })).contains("sq_psn"));
    assert!(said(qp.ready_to_send(&RtsAttributes { retry_count: 8, ..good })).contains("retry_count"));
    assert!(said(qp.ready_to_send(&RtsAttributes { timeout: 32, ..good })).contains("timeout"));
    qp.ready_to_send(&good).unwrap();
    drop((qp, cq, uar));
    card.end();
}

#[test]
fn what_the_card_cannot_do_is_named_with_its_capability() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let error = CompletionQueue::create(&uar, CqOptions::default().entries(u32::MAX)).unwrap_err().to_string();
    assert!(error.contains("entries") && error.contains("log_max_cq_sz"), "{error}");
    let error = CompletionQueue::create(&uar, CqOptions::default().vector(99)).unwrap_err().to_string();
    assert!(error.contains("completion vector 99"), "{error}");
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let create = |options| QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), options).unwrap_err().to_string();
    assert!(create(QpOptions::default().wqes(1 << 20, 1)).contains("log_max_qp_sz"));
    assert!(create(QpOptions::default().sges(63, 1)).contains("max_wqe_sz_sq"));
    assert!(create(QpOptions::default().wqes(0, 0)).contains("neither send_wqes nor recv_wqes"));
    drop((cq, uar));
    card.end();
}

#[test]
fn rights_that_make_no_sense_and_no_memory_are_refused() {
    let card = Card::new();
    for access in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
        let error = MemoryRegion::allocate(&card.pd, 4096, access).unwrap_err().to_string();
        assert!(error.contains("need LOCAL_WRITE"), "{error}");
    }
    assert!(MemoryRegion::allocate(&card.pd, 0, AccessFlags::empty()).is_err());
    card.end();
}

#[test]
fn parts_of_a_region_are_lent_once() {
    let card = Card::new();
    let region = card.region(4096);
    let first = region.buffer(100..200).unwrap();
    for range in [0..101, 199..300, 150..160, 0..4096] {
        assert!(region.buffer(range).unwrap_err().to_string().contains("overlap"));
    }
    assert!(region.buffer(4000..4097).is_err() && region.buffer(7..7).is_err());
    let (before, after) = (region.buffer(0..100).unwrap(), region.buffer(200..4096).unwrap());
    drop(first);
    drop(region.buffer(100..200).unwrap());
    drop((before, after, region));
    card.end();
}

#[test]
fn parents_outlive_children_and_destroy_says_who_is_left() {
    let card = Card::new();
    let Parts { uar, cq, qp } = parts(&card);
    let pd = Arc::clone(&card.pd);
    let error = Pd::destroy(pd).unwrap_err();
    assert!(matches!(error.reason, DestroyReason::InUse(_)), "{error}");
    drop(error);
    let error = cq.destroy().unwrap_err();
    assert!(matches!(error.reason, DestroyReason::InUse(_)), "{error}");
    drop(error.object);
    QueuePair::destroy(qp).unwrap();
    Uar::destroy(uar).unwrap();
    card.end();
}

#[test]
fn rings_are_filled_with_entries_that_are_no_completions() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let mut cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    assert!(!cq.is_ready() && cq.poll().is_none());
    cq.destroy().unwrap();
    Uar::destroy(uar).unwrap();
    card.end();
}
