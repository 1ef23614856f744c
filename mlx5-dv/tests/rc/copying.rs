//! The safe layers copy work requests to the card where that pays, or as they are told.

use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::Error;
use mlx5_dv::objects::{Copying, DoorbellKind, Pd, Uar};
use mlx5_dv::queue::{Connection, ConnectionOptions, Endpoint, WrFlags};
use mlx5_open::Sim;
use mlx5_sim::profile::Profile;

use crate::ends::{Card, End, SOON, Setup, bytes, pair_on};

fn pair(card: &Card, copying: Copying) -> (Endpoint, Endpoint) {
    let mut options = ConnectionOptions::default();
    (options.inline_bytes, options.copying) = (200, copying);
    let mut one = Endpoint::new(&card.region(4096), options.clone()).unwrap();
    let mut other = Endpoint::new(&card.region(4096), options).unwrap();
    assert_eq!(one.doorbell_kind(), None, "before it is connected");
    other.connect(&one.local().unwrap()).unwrap();
    one.connect(&other.local().unwrap()).unwrap();
    (one, other)
}

/// The next completion.
fn next_of(endpoint: &mut Endpoint) -> u64 {
    let start = Instant::now();
    loop {
        if let Some(done) = endpoint.poll().unwrap() {
            done.result.unwrap();
            return done.ticket;
        }
        assert!(start.elapsed() < SOON, "no completion");
        std::thread::yield_now();
    }
}

/// Writes of every length that is posted inline, each alone.
fn write_one_by_one(one: &mut Endpoint, other: &Endpoint) {
    for len in 1..=200 {
        let data: Vec<u8> = (0..len).map(|at| (at * 5 + len) as u8).collect();
        let mut batch = one.sends().unwrap();
        batch.write_inline(len as u64, WrFlags::SIGNALLED, &data, other.region().remote()).unwrap();
        batch.ring();
        assert_eq!(next_of(one), len as u64);
        assert_eq!(bytes(other.region(), 0, len), data);
    }
}

#[test]
fn copies_are_the_work_requests_alone_and_between_several() {
    let card = Card::new();
    let (mut one, other) = pair(&card, Copying::Always);
    assert_eq!(one.doorbell_kind(), Some(DoorbellKind::BlueFlame));
    write_one_by_one(&mut one, &other);
    for wr_id in 0..20 {
        let mut batch = one.sends().unwrap();
        batch.write_inline(0, WrFlags::empty(), b"first", other.region().remote()).unwrap();
        batch.write_inline(wr_id, WrFlags::SIGNALLED, b" second", other.region().remote_at(5)).unwrap();
        batch.ring();
        assert_eq!(next_of(&mut one), wr_id);
    }
    assert_eq!(bytes(other.region(), 0, 12), b"first second");
    // The card compares each copy with its work request, and would report a difference.
    drop((one, other));
    card.end();
}

/// The messages of one thread of those that share a page.
const ROUNDS: u64 = 300;

#[test]
fn queues_of_two_threads_copy_by_one_register_and_mix_nothing() {
    let card = Card::new();
    let page = Uar::alloc_for_queues(&card.device, Copying::Always).unwrap();
    let mut ends: [End; 2] = pair_on(&card, &Setup::default(), [Arc::clone(&page), page]).into();
    let regions = [card.region(4096), card.region(4096)];
    std::thread::scope(|scope| {
        for (number, end) in ends.iter_mut().enumerate() {
            let (to, len) = (regions[number].remote(), 100 + 50 * number);
            assert_eq!(end.sq.doorbell_kind(), DoorbellKind::BlueFlame);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut batch = end.sq.batch();
                    batch.write_inline(round, WrFlags::SIGNALLED, to, &vec![round as u8; len]).unwrap();
                    batch.ring();
                    assert_eq!(end.good().0, round);
                }
            });
        }
    });
    for (region, len) in regions.iter().zip([100, 150]) {
        assert_eq!(bytes(region, 0, len + 1), [vec![(ROUNDS - 1) as u8; len], vec![0]].concat());
    }
    // The card compares each copy with its work request, and would report two that are mixed.
    drop((ends, regions));
    card.end();
}

#[test]
fn nothing_is_copied_over_an_uncached_page_unless_asked_for() {
    let card = Card::new();
    for copying in [Copying::WhereItPays, Copying::Never] {
        let (mut one, other) = pair(&card, copying);
        assert_eq!(one.doorbell_kind(), Some(DoorbellKind::Plain), "{copying:?}");
        write_one_by_one(&mut one, &other);
    }
    card.end();
}

#[test]
fn pages_that_cannot_be_mapped_are_rung_by_calls_whatever_is_asked_for() {
    let sim = Sim::builder().trapped_doorbells(true).build().unwrap();
    let device = sim.open(0).unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let card = Card { sim, device, pd };
    for copying in [Copying::Always, Copying::WhereItPays] {
        let (mut one, other) = pair(&card, copying);
        assert_eq!(one.doorbell_kind(), Some(DoorbellKind::Trapped), "{copying:?}");
        write_one_by_one(&mut one, &other);
    }
    card.end();
}

#[test]
fn copying_where_the_card_cannot_is_an_error_and_where_it_pays_is_nowhere() {
    let mut profile = Profile::connectx5();
    profile.general_max.w().bf(false);
    profile.general_current.w().bf(false);
    let card = Card::of(profile);
    let mut options = ConnectionOptions::default();
    options.copying = Copying::Always;
    let refused = Connection::new(&card.pd, options).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { capability: "bf", .. }), "{refused}");
    assert!(!Uar::alloc_for_one_queue(&card.device, Copying::WhereItPays).unwrap().copies());
    card.end();
}
