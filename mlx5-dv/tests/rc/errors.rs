//! Every error syndrome, on the side that must report it.

use mlx5_dv::CqStatus;
use mlx5_dv::objects::{AccessFlags, CqOptions, MemoryRegion, Pd, RtsAttributes};
use mlx5_dv::queue::{DataSegment, RemoteAddress, Side, WorkError, WrFlags};
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::values::QpState;
use mlx5_prm::wqe::WqeOpcode;

use crate::ends::{Card, End, SOON, Setup, all_rights, bytes, pair, pair_of};

const SIGNALLED: WrFlags = WrFlags::SIGNALLED;
/// The syndrome of an invalid key.
const BAD_KEY: &[&str] = &["key does not allow the access"];

/// Writes 8 bytes to `remote`, and returns how that failed.
fn failing_write(a: &mut End, region: &MemoryRegion, remote: RemoteAddress) -> WorkError {
    let mut batch = a.sq.batch();
    // SAFETY: the region outlives the queue pair.
    unsafe { batch.write(77, SIGNALLED, remote, &[region.segment(0..8)]).unwrap() };
    batch.ring();
    let (wr_id, error) = a.bad();
    assert_eq!((wr_id, error.work.side, error.opcode), (77, Side::Send, WqeOpcode::RdmaWrite));
    assert_eq!(error.work.qpn, a.qp.qpn());
    error
}

#[test]
fn a_remote_key_that_does_not_allow_it_is_a_remote_access_error() {
    let card = Card::new();
    let other_pd = Pd::alloc(&card.device).unwrap();
    let ours = card.region(4096);
    let read_only = MemoryRegion::allocate(&card.pd, 4096, AccessFlags::REMOTE_READ).unwrap();
    let foreign = MemoryRegion::allocate(&other_pd, 4096, all_rights()).unwrap();
    let good = card.region(4096);
    let past_the_end = RemoteAddress { addr: good.addr() + 4090, ..good.remote() };
    let before_the_start = RemoteAddress { addr: good.addr() - 1, ..good.remote() };
    let no_such_key = RemoteAddress { rkey: 0xdead_be00, ..good.remote() };
    let wrong_variant = RemoteAddress { rkey: good.rkey() ^ 1, ..good.remote() };
    for remote in [read_only.remote(), foreign.remote(), past_the_end, before_the_start, no_such_key, wrong_variant] {
        let (mut a, b) = pair(&card);
        let error = failing_write(&mut a, &ours, remote);
        assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteAccess), "{error}");
        assert_eq!(a.qp.query().unwrap().state, QpState::Err);
        assert!(bytes(&good, 0, 4096).iter().all(|&byte| byte == 0));
        drop((a, b));
    }
    drop((ours, read_only, good));
    MemoryRegion::destroy(foreign).unwrap();
    Pd::destroy(other_pd).unwrap();
    card.end_after(BAD_KEY);
}

#[test]
fn what_the_queue_pair_does_not_allow_the_remote_is_a_remote_invalid_request() {
    let card = Card::new();
    let setup = Setup { remote_access: AccessFlags::empty(), ..Setup::default() };
    let (mut a, b) = pair_of(&card, &setup);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    let error = failing_write(&mut a, &ours, theirs.remote());
    // The queue pair lacks the right, not the key: Linux's rxe also answers with an invalid request.
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteInvalidRequest), "{error}");
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn a_local_key_that_does_not_allow_it_is_a_local_protection_error() {
    let card = Card::new();
    let other_pd = Pd::alloc(&card.device).unwrap();
    let (ours, theirs) = (card.region(4096), card.region(4096));
    let foreign = MemoryRegion::allocate(&other_pd, 4096, all_rights()).unwrap();
    let gone = card.region(4096);
    let stale = gone.segment(0..8);
    MemoryRegion::destroy(gone).unwrap();
    let good = ours.segment(0..8);
    let past_the_end = DataSegment { addr: ours.addr() + 4090, len: 8, ..good };
    for segment in [foreign.segment(0..8), stale, past_the_end, DataSegment { lkey: 0xdead_be00, ..good }] {
        let (mut a, b) = pair(&card);
        let mut batch = a.sq.batch();
        // SAFETY: the card must refuse these reads.
        unsafe { batch.write(1, SIGNALLED, theirs.remote(), &[segment]).unwrap() };
        batch.ring();
        let (_, error) = a.bad();
        assert_eq!(error.syndrome(), Some(CqeSyndrome::LocalProtection), "{error}");
        drop((a, b));
    }
    drop((ours, theirs));
    MemoryRegion::destroy(foreign).unwrap();
    Pd::destroy(other_pd).unwrap();
    card.end_after(BAD_KEY);
}

#[test]
fn reading_into_memory_that_may_not_be_written_is_a_local_protection_error() {
    let card = Card::new();
    let (mut a, b) = pair(&card);
    let ours = MemoryRegion::allocate(&card.pd, 4096, AccessFlags::empty()).unwrap();
    let theirs = card.region(4096);
    theirs.write(0, b"secret!!");
    let mut batch = a.sq.batch();
    // SAFETY: the card must refuse to write.
    unsafe { batch.read(1, SIGNALLED, theirs.remote(), &[ours.segment(0..8)]).unwrap() };
    batch.ring();
    let (_, error) = a.bad();
    assert_eq!(error.syndrome(), Some(CqeSyndrome::LocalProtection), "{error}");
    assert_eq!(bytes(&ours, 0, 8), [0; 8]);
    drop((a, b, ours, theirs));
    card.end_after(BAD_KEY);
}

#[test]
fn a_short_receive_is_a_local_length_error_there_and_an_invalid_request_here() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    let mut batch = b.rq.batch();
    // SAFETY: the region outlives the queue pair.
    unsafe { batch.receive(5, &[theirs.segment(0..100)]).unwrap() };
    batch.ring();
    let mut batch = a.sq.batch();
    // SAFETY: as above.
    unsafe { batch.send(6, SIGNALLED, &[ours.segment(0..101)]).unwrap() };
    batch.ring();
    let (wr_id, error) = b.bad();
    assert_eq!((wr_id, error.work.side), (5, Side::Receive));
    assert_eq!(error.syndrome(), Some(CqeSyndrome::LocalLength), "{error}");
    let (wr_id, error) = a.bad();
    assert_eq!((wr_id, error.syndrome()), (6, Some(CqeSyndrome::RemoteInvalidRequest)), "{error}");
    drop((a, b, ours, theirs));
    card.end();
}

#[test]
fn a_bad_receive_key_is_a_local_protection_error_there_and_a_remote_operation_error_here() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    let mut batch = b.rq.batch();
    // SAFETY: the card must refuse to write.
    unsafe { batch.receive(5, &[DataSegment { lkey: 0xdead_be00, ..theirs.segment(0..100) }]).unwrap() };
    batch.ring();
    let mut batch = a.sq.batch();
    // SAFETY: the region outlives the queue pair.
    unsafe { batch.send(6, SIGNALLED, &[ours.segment(0..50)]).unwrap() };
    batch.ring();
    let (_, error) = b.bad();
    assert_eq!(error.syndrome(), Some(CqeSyndrome::LocalProtection), "{error}");
    let (_, error) = a.bad();
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RemoteOperation), "{error}");
    drop((a, b, ours, theirs));
    card.end_after(BAD_KEY);
}

#[test]
fn no_receive_posted_all_retries_long_is_rnr_retry_exceeded() {
    let card = Card::new();
    let rts = RtsAttributes { rnr_retry: 2, ..RtsAttributes::new(0) };
    let (mut a, b) = pair_of(&card, &Setup { rts, ..Setup::default() });
    let mut batch = a.sq.batch();
    batch.send_inline(1, SIGNALLED, b"anybody?").unwrap();
    batch.ring();
    let (_, error) = a.bad();
    assert_eq!(error.syndrome(), Some(CqeSyndrome::RnrRetryExceeded), "{error}");
    drop((a, b));
    card.end();
}

#[test]
fn no_receive_posted_yet_is_waited_for() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let theirs = card.region(4096);
    let mut batch = a.sq.batch();
    batch.send_inline(1, SIGNALLED, b"patience").unwrap();
    batch.ring();
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(a.cq.poll().is_none());
    b.receive(2, &theirs);
    assert_eq!(b.good().0, 2);
    assert_eq!(a.good().0, 1);
    assert_eq!(bytes(&theirs, 0, 8), b"patience");
    drop((a, b, theirs));
    card.end();
}

#[test]
fn a_remote_that_never_answers_is_transport_retry_exceeded() {
    let card = Card::new();
    // 4.096 us << 8 is a millisecond.
    let rts = RtsAttributes { timeout: 8, retry_count: 2, ..RtsAttributes::new(0) };
    let (mut a, b) = pair_of(&card, &Setup { rts, ..Setup::default() });
    drop((b.sq, b.rq));
    b.qp.reset().unwrap();
    let mut batch = a.sq.batch();
    batch.send_inline(1, SIGNALLED, b"anybody?").unwrap();
    batch.ring();
    let (_, error) = a.bad();
    assert_eq!(error.syndrome(), Some(CqeSyndrome::TransportRetryExceeded), "{error}");
    drop((a, b.qp, b.cq));
    card.end();
}

#[test]
fn what_is_posted_in_error_and_what_was_posted_before_is_flushed() {
    let card = Card::new();
    let (mut a, b) = pair(&card);
    let theirs = card.region(4096);
    for wr_id in 0..3 {
        a.receive(wr_id, &theirs);
    }
    a.qp.to_error().unwrap();
    for wr_id in 0..3 {
        let (got, error) = a.bad();
        assert_eq!((got, error.is_flush(), error.work.side), (wr_id, true, Side::Receive), "{error}");
    }
    let mut batch = a.sq.batch();
    (10..14).for_each(|wr_id| batch.send_inline(wr_id, WrFlags::empty(), b"too late").unwrap());
    batch.ring();
    for wr_id in 10..14 {
        let (got, error) = a.bad();
        assert_eq!((got, error.is_flush(), error.work.side), (wr_id, true, Side::Send), "also unsignalled: {error}");
    }
    assert_eq!(a.qp.query().unwrap().state, QpState::Err);
    assert_eq!((a.sq.free(), a.rq.free()), (a.sq.capacity(), a.rq.capacity()));
    drop((a, b, theirs));
    card.end();
}

#[test]
fn after_the_first_failure_the_rest_is_flushed_in_order() {
    let card = Card::new();
    let (mut a, b) = pair(&card);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    let mut batch = a.sq.batch();
    // SAFETY: the regions outlive the queue pairs.
    unsafe {
        batch.write(1, SIGNALLED, theirs.remote(), &[ours.segment(0..8)]).unwrap();
        batch
            .write(2, WrFlags::empty(), RemoteAddress { rkey: 0xdead_be00, ..theirs.remote() }, &[ours.segment(0..8)])
            .unwrap();
        batch.write(3, WrFlags::empty(), theirs.remote(), &[ours.segment(0..8)]).unwrap();
        batch.write(4, SIGNALLED, theirs.remote(), &[ours.segment(0..8)]).unwrap();
    }
    batch.ring();
    assert_eq!(a.good().0, 1);
    let (wr_id, error) = a.bad();
    assert_eq!((wr_id, error.syndrome()), (2, Some(CqeSyndrome::RemoteAccess)), "an unsignalled failure completes");
    assert!((3..=4).all(|wr_id| matches!(a.bad(), (got, error) if got == wr_id && error.is_flush())));
    drop((a, b, ours, theirs));
    card.end_after(BAD_KEY);
}

#[test]
fn a_queue_pair_in_error_is_reset_and_connected_anew() {
    let card = Card::new();
    let (mut a, mut b) = pair(&card);
    let (ours, theirs) = (card.region(4096), card.region(4096));
    failing_write(&mut a, &ours, RemoteAddress { rkey: 0xdead_be00, ..theirs.remote() });
    let (a_qp, b_qp) = (a.qp.clone(), b.qp.clone());
    assert!(a_qp.reset().unwrap_err().to_string().contains("SendQueue"));
    drop((a.sq, a.rq, b.sq, b.rq));
    a_qp.reset().unwrap();
    b_qp.reset().unwrap();
    assert_eq!(a_qp.query().unwrap().state, QpState::Rst);
    (a, b) = crate::ends::connect_again(&card, (a.cq, a_qp), (b.cq, b_qp));
    theirs.fill(0, 8, 0);
    ours.write(0, b"reborn!!");
    let mut batch = a.sq.batch();
    // SAFETY: the regions outlive the queue pairs.
    unsafe { batch.write(1, SIGNALLED, theirs.remote(), &[ours.segment(0..8)]).unwrap() };
    batch.ring();
    a.good();
    assert_eq!(bytes(&theirs, 0, 8), b"reborn!!");
    drop((a, b, ours, theirs));
    card.end_after(BAD_KEY);
}

/// A violation that the software card must report.
#[test]
fn a_completion_queue_that_overruns_says_so() {
    let card = Card::new();
    let setup = Setup { cq: CqOptions::default().entries(3).events(), ..Setup::default() };
    let (mut a, b) = pair_of(&card, &setup);
    let mut batch = a.sq.batch();
    (0..8).for_each(|wr_id| batch.nop(wr_id, SIGNALLED).unwrap());
    batch.ring();
    let deadline = std::time::Instant::now() + SOON;
    while a.cq.cq().status().unwrap() == CqStatus::Ok {
        assert!(std::time::Instant::now() < deadline);
    }
    assert_eq!(a.cq.cq().status().unwrap(), CqStatus::Overflow);
    // What fits is there; then the queue fails, which a wait reports.
    while a.cq.poll().is_some() {}
    let error = a.cq.wait(std::time::Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().contains("is broken: Overflow"), "{error}");
    drop((a, b));
    card.end_after(&["CQ overrun", "consumer index never published"]);
}
