//! Queue counters of connections.

use mlx5_dv::objects::{CqOptions, QpOptions, QueueCounter, QueuePair, Uar};
use mlx5_dv::queue::{CompletionQueue, ConnectionOptions};

use crate::ends::{Card, SOON, connected_by};

/// Writes and reads that `counter` has counted.
fn requests(counter: &QueueCounter) -> [u32; 2] {
    let all = counter.query().unwrap();
    [all.rx_write_requests(), all.rx_read_requests()]
}

#[test]
fn each_counter_counts_what_reaches_its_own_queue_pairs() {
    let card = Card::new();
    let counters = [0, 1].map(|_| QueueCounter::alloc(&card.device).unwrap());
    let region = card.region(4096);
    let buffer = || region.buffer(0..64).unwrap();
    for (at, counter) in counters.iter().enumerate() {
        let mut options = ConnectionOptions::default();
        options.counter = Some(counter.clone());
        let (mut near, far) = connected_by(&card, &options);
        for _ in 0..=at {
            near.write_blocking(buffer(), region.remote_at(128), SOON).unwrap();
        }
        near.read_blocking(buffer(), region.remote_at(128), SOON).unwrap();
        // The queue pairs go first: until then the card keeps the counter.
        let error = QueueCounter::destroy(counter.clone()).unwrap_err();
        assert!(error.to_string().contains("in use"), "{error}");
        drop((near, far));
    }
    assert_eq!(counters.each_ref().map(|counter| requests(counter)), [[1, 1], [2, 1]]);
    for counter in counters {
        QueueCounter::destroy(counter).unwrap();
    }
    drop(region);
    card.end();
}

#[test]
fn a_counter_of_another_card_is_refused() {
    let (card, other) = (Card::new(), Card::new());
    let uar = Uar::alloc(&card.device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let options = QpOptions::default().counter(&QueueCounter::alloc(&other.device).unwrap());
    let error = QueuePair::create(&card.pd, &uar, cq.cq(), cq.cq(), options).unwrap_err();
    assert!(error.to_string().contains("counter"), "{error}");
}
