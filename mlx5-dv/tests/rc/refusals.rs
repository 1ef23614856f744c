//! Errors of the driver before the card is asked, with their texts.

use std::sync::Arc;

use mlx5_dv::objects::{
    AccessFlags, AddressPath, AnyDoorbell, CqOptions, DestroyReason, InitAttributes, MemoryRegion, Pd, QpOptions,
    QueuePair, RtrAttributes, RtsAttributes, Uar,
};
use mlx5_dv::queue::CompletionQueue;
use mlx5_dv::{Error, Invalid};
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

#[track_caller]
fn invalid<T>(result: Result<T, Error>) -> Invalid {
    match result.map(drop).unwrap_err() {
        Error::Invalid(invalid) => invalid,
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
    let (object, send) = (format!("QP {:#x}", qp.qpn()), "SendQueue");
    let taken = Invalid::QueueTaken { object: object.clone(), queue: send };
    assert_eq!(invalid(qp.send_queue::<AnyDoorbell>()), taken);
    assert_eq!(invalid(qp.reset()), Invalid::QueueInUse { object, queue: send });
    drop(queue);
    assert_eq!(invalid(qp.send_queue::<AnyDoorbell>()), taken, "its indices are the card's no longer");
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
    let port = invalid(qp.init(&InitAttributes { port: 2, ..InitAttributes::default() }));
    let Invalid::OutOfRange { what, given, limit, capability, .. } = port else { panic!("{port}") };
    assert_eq!((what, given, limit, capability), ("port", 2, 1..=1, Some("num_ports")));
    let no_pkey = |refused| {
        let Invalid::OutOfRange { what, given, limit, mend, .. } = refused else { panic!("{refused}") };
        assert_eq!((what, given, limit), ("pkey_index", 1, 0..=0), "a port of Ethernet has one P_Key");
        assert!(mend.is_some_and(|mend| mend.contains("VLANs")));
    };
    no_pkey(invalid(qp.init(&InitAttributes::default().pkey_index(1))));
    qp.init(&InitAttributes::default().pkey_index(0)).unwrap();
    assert_eq!(qp.query().unwrap().pkey_index, 0);
    let good = RtrAttributes::new(1, 0, path(&card));
    no_pkey(invalid(qp.ready_to_receive(&good.pkey_index(1))));
    let too_wide = |what, given, bits| Invalid::TooWide { what, given, bits };
    let refused = |attributes| invalid(qp.ready_to_receive(&attributes));
    let over: u32 = 1 << 24;
    assert_eq!(refused(RtrAttributes { remote_qpn: over, ..good }), too_wide("remote_qpn", over.into(), 24));
    assert_eq!(refused(RtrAttributes { rq_psn: over, ..good }), too_wide("rq_psn", over.into(), 24));
    assert_eq!(refused(RtrAttributes { min_rnr_timer: 32, ..good }), too_wide("min_rnr_timer", 32, 5));
    let no_gid = refused(RtrAttributes { path: path(&card).gid_index(255), ..good });
    let size = u64::from(card.device.caps().roce_address_table_size);
    let Invalid::OutOfRange { what, given, limit, capability, .. } = no_gid else { panic!("{no_gid}") };
    assert_eq!((what, given, limit), ("gid_index", 255, 0..=size - 1));
    assert_eq!(capability, Some("roce_address_table_size"));
    assert_eq!(qp.state(), QpState::Init, "a refusal changes nothing");
    qp.ready_to_receive(&good.pkey_index(0)).unwrap();
    let good = RtsAttributes::new(0);
    let refused = |attributes| invalid(qp.ready_to_send(&attributes));
    assert_eq!(refused(RtsAttributes { sq_psn: over, ..good }), too_wide("sq_psn", over.into(), 24));
    assert_eq!(refused(RtsAttributes { retry_count: 8, ..good }), too_wide("retry_count", 8, 3));
    assert_eq!(refused(RtsAttributes { timeout: 32, ..good }), too_wide("timeout", 32, 5));
    qp.ready_to_send(&good).unwrap();
    drop((qp, cq, uar));
    card.end();
}

#[test]
fn what_the_card_cannot_do_is_named_with_its_capability() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let caps = card.device.caps();
    let refused = invalid(CompletionQueue::create(&uar, CqOptions::default().entries(u32::MAX)));
    let Invalid::OutOfRange { what, given, limit, capability, .. } = refused else { panic!("{refused}") };
    assert_eq!((what, given, limit), ("entries", 1 << 32, 0..=1 << caps.log_max_cq_sz));
    assert_eq!(capability, Some("log_max_cq_sz"));
    let refused = invalid(CompletionQueue::create(&uar, CqOptions::default().vector(99)));
    let Invalid::OutOfRange { what, given, limit, .. } = refused else { panic!("{refused}") };
    assert_eq!((what, given, *limit.start()), ("completion vector", 99, 0));
    assert!(*limit.end() < 99);
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let create = |options| invalid(QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), options));
    let refused = create(QpOptions::default().wqes(1 << 20, 1));
    assert!(matches!(refused, Invalid::OutOfRange { capability: Some("log_max_qp_sz"), .. }), "{refused}");
    let refused = create(QpOptions::default().sges(63, 1));
    let Invalid::WqeTooLong { what, sges, needed, most, capability, .. } = refused else { panic!("{refused}") };
    assert_eq!((what, sges, needed, capability), ("send_sges", 63, 65 * 16, "max_wqe_sz_sq"));
    assert!(most < needed);
    assert!(matches!(create(QpOptions::default().wqes(0, 0)), Invalid::Empty { what: "a queue pair", .. }));
    drop((cq, uar));
    card.end();
}

#[test]
fn rights_that_make_no_sense_and_no_memory_are_refused() {
    let card = Card::new();
    for access in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
        let error = invalid(MemoryRegion::allocate(&card.pd, 4096, access));
        assert!(matches!(error, Invalid::Requires { requires: "LOCAL_WRITE as well", .. }), "{error}");
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
        let given = range.start as u64..range.end as u64;
        let overlap = Invalid::Overlap { what: "bytes", given, taken: 100..200, by: "a buffer that is lent out" };
        assert_eq!(invalid(region.buffer(range)), overlap);
    }
    for range in [4000..4097, 7..7] {
        let given = range.start as u64..range.end as u64;
        let out_of_bounds = Invalid::OutOfBounds { what: "bytes", given, of: "a memory region", len: 4096 };
        assert_eq!(invalid(region.buffer(range)), out_of_bounds);
    }
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
