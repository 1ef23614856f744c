//! Every doorbell mode works.

use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::objects::{BlueFlame, CqOptions, DoorbellMode, Plain, QpOptions, QueuePair, Shared, Trapped, Uar};
use mlx5_dv::queue::{Completion, CompletionQueue, WrFlags};
use mlx5_open::Sim;

use crate::ends::{Card, SOON, Setup, bytes, pair_with, pattern};

/// Writes of every size, with doorbell mode `D`.
fn exchange<D: DoorbellMode>(card: Card) {
    let (mut a, b) = pair_with::<D>(&card, &Setup::default());
    let theirs = card.region(4096);
    for round in 0..300usize {
        let data = pattern(round % 200 + 1, round as u8);
        let mut batch = a.sq.batch();
        for part in 0..round % 3 {
            batch.write_inline(1, WrFlags::empty(), theirs.remote_at(2048 + 8 * part), b"before").unwrap();
        }
        batch.write_inline(round as u64, WrFlags::SIGNALLED, theirs.remote(), &data).unwrap();
        batch.ring();
        assert_eq!(a.good().0, round as u64);
        assert_eq!(bytes(&theirs, 0, data.len()), data);
    }
    drop((a, b, theirs));
    card.end();
}

#[test]
fn plain() {
    exchange::<Plain>(Card::new());
}

#[test]
fn blue_flame() {
    exchange::<BlueFlame>(Card::new());
}

#[test]
fn shared_plain() {
    exchange::<Shared<Plain>>(Card::new());
}

#[test]
fn shared_blue_flame() {
    exchange::<Shared<BlueFlame>>(Card::new());
}

#[test]
fn trapped_also_where_the_page_is_mapped() {
    exchange::<Trapped>(Card::new());
}

#[test]
fn a_page_that_cannot_be_mapped_is_rung_by_messages() {
    let sim = Sim::builder().trapped_doorbells(true).build().unwrap();
    let device = sim.open(0).unwrap();
    let pd = mlx5_dv::objects::Pd::alloc(&device).unwrap();
    let uar = Uar::alloc(&device).unwrap();
    assert!(!uar.is_mapped());
    drop(uar);
    exchange::<mlx5_dv::objects::AnyDoorbell>(Card { sim, device, pd });
}

#[test]
fn a_blue_flame_register_belongs_to_one_queue() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let take = || <BlueFlame as DoorbellMode>::of(&uar);
    let share = || <Shared<BlueFlame> as DoorbellMode>::of(&uar);
    let first = take().unwrap();
    let error = take().unwrap_err().to_string();
    assert!(error.contains("Shared<BlueFlame>"), "{error}");
    assert!(share().unwrap_err().to_string().contains("taken by a queue that does not share it"));
    drop(first);
    drop(take().unwrap());
    // Once shared, the register stays shared.
    drop((share().unwrap(), share().unwrap()));
    assert!(take().is_err());
    Uar::destroy(uar).unwrap();
    card.end();
}

#[test]
fn queues_of_several_threads_share_one_page() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let cqs: Vec<_> = (0..4)
        .map(|_| mlx5_dv::queue::CompletionQueue::create(&uar, mlx5_dv::objects::CqOptions::default()).unwrap())
        .collect();
    let targets: Vec<_> = (0..4).map(|_| card.region(4096)).collect();
    let gid = card.device.gids()[0].address.octets();
    std::thread::scope(|scope| {
        for (mut cq, target) in cqs.into_iter().zip(&targets) {
            let (pd, uar) = (&card.pd, &uar);
            scope.spawn(move || {
                let qp = QueuePair::create(pd, uar, cq.cq(), cq.cq(), QpOptions::default()).unwrap();
                connect_to_itself(&qp, gid);
                let mut sq = qp.send_queue::<Shared<BlueFlame>>().unwrap();
                for round in 0..200u64 {
                    let mut batch = sq.batch();
                    batch.write_inline(round, WrFlags::SIGNALLED, target.remote(), &round.to_ne_bytes()).unwrap();
                    batch.ring();
                    let completion = next(&mut cq);
                    assert_eq!(sq.retire(&completion.work), Ok(round));
                    assert_eq!(bytes(target, 0, 8), round.to_ne_bytes());
                }
            });
        }
    });
    drop(targets);
    Uar::destroy(uar).unwrap();
    card.end();
}

/// The next completion, which must arrive soon.
fn next(cq: &mut CompletionQueue) -> Completion {
    let deadline = Instant::now() + SOON;
    loop {
        match cq.poll() {
            Some(result) => return result.unwrap(),
            None => assert!(Instant::now() < deadline, "no completion"),
        }
        std::thread::yield_now();
    }
}

/// Writes by a queue with doorbell mode `D`, on a thread of its own.
fn writes<D: DoorbellMode>(card: &Card, uar: &Arc<Uar>, rounds: u64) {
    let mut cq = CompletionQueue::create(uar, CqOptions::default()).unwrap();
    let target = card.region(4096);
    let options = QpOptions::default().inline_bytes(200);
    let qp = QueuePair::create(&card.pd, uar, cq.cq(), cq.cq(), options).unwrap();
    connect_to_itself(&qp, card.device.gids()[0].address.octets());
    let mut sq = qp.send_queue::<D>().unwrap();
    for round in 0..rounds {
        let data = pattern(150, round as u8);
        let mut batch = sq.batch();
        batch.write_inline(round, WrFlags::SIGNALLED, target.remote(), &data).unwrap();
        batch.ring();
        let completion = next(&mut cq);
        assert_eq!(sq.retire(&completion.work), Ok(round));
        assert_eq!(bytes(&target, 0, data.len()), data);
    }
}

/// One thread copies WQEs of 192 bytes to the BlueFlame buffer while others ring plain doorbells. The card fetches WQEs
/// that arrive incomplete, so only the offsets of the stores show whether the modes are kept apart.
#[test]
fn queues_of_different_modes_share_one_page() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| writes::<BlueFlame>(&card, &uar, 200));
        scope.spawn(|| writes::<Plain>(&card, &uar, 200));
        scope.spawn(|| writes::<Shared<Plain>>(&card, &uar, 200));
        scope.spawn(|| writes::<Trapped>(&card, &uar, 200));
    });
    Uar::destroy(uar).unwrap();
    card.end();
}

/// WQEs are copied only to registers that no plain doorbell uses.
#[test]
fn no_wqe_is_copied_where_plain_doorbells_ring() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let plain = format!("{:?}", <Plain as DoorbellMode>::of(&uar).unwrap());
    let blue_flame = format!("{:?}", <BlueFlame as DoorbellMode>::of(&uar).unwrap());
    assert!(plain.contains("register: 0"), "{plain}");
    assert!(blue_flame.contains("register: 1"), "{blue_flame}");
    Uar::destroy(uar).unwrap();
    card.end();
}

#[test]
fn the_first_to_share_a_register_may_be_several() {
    let card = Card::new();
    for _ in 0..100 {
        let uar = Uar::alloc(&card.device).unwrap();
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    <Shared<BlueFlame> as DoorbellMode>::of(&uar).map(drop).unwrap();
                });
            }
        });
        Uar::destroy(uar).unwrap();
    }
    card.end();
}

/// A queue pair connected to itself.
fn connect_to_itself(qp: &Arc<QueuePair>, gid: [u8; 16]) {
    use mlx5_dv::objects::{AddressPath, InitAttributes, RtrAttributes, RtsAttributes};
    qp.init(&InitAttributes::default()).unwrap();
    qp.ready_to_receive(&RtrAttributes::new(qp.qpn(), 7, AddressPath::link_local(gid).unwrap())).unwrap();
    qp.ready_to_send(&RtsAttributes::new(7)).unwrap();
}
