//! Unreliable connections: SENDs and RDMA WRITEs without acknowledgement.

use std::time::Duration;

use mlx5_dv::objects::{AnyDoorbell, CqOptions, InitAttributes, QpOptions, QueuePair, Uar};
use mlx5_dv::queue::{
    CompletionQueue, ConnectionOptions, Operation, UnreliableConnection, UnreliableEndpoint, WrFlags,
};
use mlx5_dv::{Error, Invalid};
use mlx5_prm::values::{QpState, ServiceType};
use mlx5_sim::fault::{Fault, FrameFate, Times};
use mlx5_sim::profile::Profile;

use crate::ends::{Card, SOON, bytes};

/// Two unreliable connections with each other.
pub fn connected(card: &Card) -> (UnreliableConnection, UnreliableConnection) {
    let new = || UnreliableConnection::of_service(&card.pd, ConnectionOptions::default()).unwrap();
    let (mut a, mut b) = (new(), new());
    a.connect(&b.local().unwrap()).unwrap();
    b.connect(&a.local().unwrap()).unwrap();
    (a, b)
}

#[test]
fn messages_and_writes_arrive_with_and_without_immediates() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    assert_eq!(a.queue_pair().query().unwrap().state, QpState::Rts);
    // Three packets each.
    let (ours, theirs) = (card.region(2500), card.region(8192));
    let pattern: Vec<u8> = (0..2500u32).map(|at| (at * 7 + 3) as u8).collect();
    ours.write(0, &pattern);
    for at in [0, 1] {
        b.receive(theirs.buffer(at * 4096..at * 4096 + 2500).unwrap()).unwrap();
    }
    let sent = a.send_blocking(ours.buffer(0..2500).unwrap(), SOON).unwrap().unwrap();
    a.send_imm(sent, 0x1234).unwrap();
    let sent = a.wait(SOON).unwrap().buffer.unwrap();
    for (at, operation) in [(0, Operation::Received), (4096, Operation::ReceivedImm(0x1234))] {
        let done = b.wait(SOON).unwrap().result.unwrap();
        assert_eq!((done.operation, done.byte_len), (operation, 2500));
        assert_eq!(bytes(&theirs, at, 2500), pattern);
    }

    theirs.write(0, &[0; 8192]);
    let sent = a.write_blocking(sent, theirs.remote(), SOON).unwrap().unwrap();
    b.receive(theirs.buffer(8000..8192).unwrap()).unwrap();
    a.write_imm(sent, theirs.remote_at(4096), 0x77).unwrap();
    let done = b.wait(SOON).unwrap();
    assert_eq!(done.result.unwrap().operation, Operation::WrittenImm(0x77));
    assert_eq!((bytes(&theirs, 0, 2500), bytes(&theirs, 4096, 2500)), (pattern.clone(), pattern));
    drop((a, b, done.buffer, ours, theirs));
    card.end();
}

#[test]
fn endpoints_send_and_write_from_their_regions() {
    const RECEIVE: u64 = 9;
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let new = || UnreliableEndpoint::of_service(&card.region(8192), &uar, ConnectionOptions::default()).unwrap();
    let (mut a, mut b) = (new(), new());
    a.connect(&b.local().unwrap()).unwrap();
    b.connect(&a.local().unwrap()).unwrap();
    let pattern: Vec<u8> = (0..2500u32).map(|at| (at * 5 + 1) as u8).collect();
    a.region().write(0, &pattern);
    let mut receives = b.receives().unwrap();
    receives.receive(RECEIVE, 4096..8192).unwrap();
    receives.ring();
    let mut sends = a.sends().unwrap();
    sends.write(0, WrFlags::empty(), 0..2500, b.region().remote()).unwrap();
    sends.send(1, WrFlags::SIGNALLED, 0..2500).unwrap();
    sends.ring();
    let next = |end: &mut UnreliableEndpoint| {
        let start = std::time::Instant::now();
        loop {
            if let Some(done) = end.poll().unwrap() {
                return (done.ticket, done.result.unwrap());
            }
            assert!(start.elapsed() < SOON, "no completion");
            std::thread::yield_now();
        }
    };
    assert_eq!(next(&mut a).0, 1);
    let (wr_id, done) = next(&mut b);
    assert_eq!((wr_id, done.operation, done.byte_len), (RECEIVE, Operation::Received, 2500));
    assert_eq!([0, 4096].map(|at| bytes(b.region(), at, 2500)), [pattern.clone(), pattern]);
    drop((a, b, uar));
    card.end();
}

/// The sender gets no error; the next message is complete and uses the receive.
#[test]
fn a_message_that_is_lost_is_lost_alone() {
    let card = Card::new();
    let (mut a, mut b) = connected(&card);
    let region = card.region(4096);
    b.receive(region.buffer(0..4096).unwrap()).unwrap();
    let lost = Fault::Frame { fate: FrameFate::Lost, per_million: 1_000_000 };
    card.sim.handle(0).faults().inject(lost, Times::Count(1));
    a.send_inline(b"lost").unwrap();
    assert!(a.wait(SOON).unwrap().result.is_ok());
    let error = b.wait(Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    a.send_inline(b"found").unwrap();
    assert_eq!(b.wait(SOON).unwrap().result.unwrap().byte_len, 5);
    assert_eq!(bytes(&region, 0, 5), b"found");
    assert!(a.wait(SOON).unwrap().result.is_ok());
    assert_eq!([&a, &b].map(|end| end.queue_pair().query().unwrap().state), [QpState::Rts; 2]);
    drop((a, b, region));
    card.end();
}

#[test]
fn each_service_has_its_send_queue_and_a_card_without_uc_says_so() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let create = |options| QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), options);
    let (reliable, not) = (create(QpOptions::default()).unwrap(), create(QpOptions::default().unreliable()).unwrap());
    not.init(&InitAttributes::default()).unwrap();
    let wrong = |error| match error {
        Error::Invalid(Invalid::WrongService { service, call, wanted, .. }) => (service, call, wanted),
        other => panic!("{other}"),
    };
    let error = not.send_queue::<AnyDoorbell>().unwrap_err();
    assert_eq!(wrong(error), (ServiceType::Uc, "send_queue", &[ServiceType::Rc][..]));
    let error = reliable.unreliable_send_queue::<AnyDoorbell>().unwrap_err();
    assert_eq!(wrong(error), (ServiceType::Rc, "unreliable_send_queue", &[ServiceType::Uc][..]));
    let error = not.unreliable_send_queue::<AnyDoorbell>().unwrap_err();
    assert!(error.to_string().contains("unreliable_send_queue needs RTS"), "{error}");
    drop((reliable, not, cq, uar));
    card.end();

    let mut profile = Profile::connectx5();
    profile.general_max.w().uc(false);
    profile.general_current.w().uc(false);
    let card = Card::of(profile);
    let error = UnreliableConnection::of_service(&card.pd, ConnectionOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { capability: "uc", .. }), "{error}");
    card.end();
}
