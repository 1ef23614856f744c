//! What the card tells of completion and event queues.

use std::time::Duration;

use mlx5_dv::objects::{CqModeration, CqOptions, CqeSize, Uar};
use mlx5_dv::queue::{CompletionQueue, WrFlags};
use mlx5_prm::ctx::{CqPeriodMode, CqStatus, EqStatus};

use crate::ends::{Card, Setup, pair_of};

#[test]
fn a_completion_queue_is_on_the_card_as_it_was_created_and_changed() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let moderation =
        CqModeration { count: 9, period: Duration::from_micros(70), period_mode: CqPeriodMode::StartFromCqe };
    let options = CqOptions::default().entries(100).cqe_size(CqeSize::B128).moderation(moderation);
    let mut queue = CompletionQueue::create(&uar, options).unwrap();
    let found = queue.cq().query().unwrap();
    assert_eq!((found.status(), found.log_cq_size(), found.oi()), (CqStatus::Ok.number() as u8, 7, false));
    assert_eq!((found.cq_max_count(), found.cq_period(), found.cq_period_mode()), (9, 70, 1));
    assert_eq!((found.cqe_sz(), found.cqe_comp_en()), (1, false));
    assert_eq!((found.producer_counter(), found.consumer_counter()), (0, 0));
    queue.cq().moderate(&CqModeration { count: 3, ..moderation }).unwrap();
    queue.resize(500).unwrap();
    let found = queue.cq().query().unwrap();
    assert_eq!((found.cq_max_count(), found.cq_period(), found.log_cq_size()), (3, 70, 9));
    drop((queue, uar));
    card.end();
}

#[test]
fn the_counters_of_a_completion_queue_are_those_of_its_completions() {
    let card = Card::new();
    let (mut a, b) = pair_of(&card, &Setup::default());
    let mut batch = a.sq.batch();
    (0..3).for_each(|id| batch.nop(id, WrFlags::SIGNALLED).unwrap());
    batch.ring();
    (0..3).for_each(|id| assert_eq!(a.good().0, id));
    assert_eq!(a.cq.cq().query().unwrap().producer_counter(), 3);
    drop((a, b));
    card.end();
}

#[test]
fn the_event_queue_of_a_vector_is_that_of_its_completion_queues() {
    let card = Card::new();
    let uar = Uar::alloc(&card.device).unwrap();
    let queue = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let found = card.device.query_event_queue(0).unwrap().unwrap();
    assert_eq!(found.status(), EqStatus::Ok.number() as u8);
    assert!(found.log_eq_size() > 0 && found.intr() > 0, "the first interrupt is that of other events: {found:?}");
    let context = queue.cq().query().unwrap();
    assert_ne!(context.c_eqn_or_apu_element(), 0);
    let none = card.device.query_event_queue(99).unwrap_err().to_string();
    assert!(none.contains("completion vector"), "{none}");
    drop((queue, uar));
    card.end();
}
