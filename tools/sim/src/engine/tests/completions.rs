//! Completion and event queues: wraps, overrun, arming and its races.

use mlx5_prm::cqe::{CqeSyndrome, ErrorCqe};
use mlx5_prm::eqe::EventType;
use mlx5_prm::init_seg::HealthSyndrome;
use mlx5_prm::layout::Layout;
use mlx5_prm::values::QpState;
use mlx5_prm::wqe::WqeOpcode;

use super::bench::*;
use crate::engine::event;
use crate::fault::{Fault, Times};
use crate::firmware;
use crate::objects::CqStatus;
use crate::strict::rules;

const VECTOR: u16 = 3;

/// Two queue pairs whose sends complete to a CQ of `log_size`, with an EQ of 16 entries.
fn bench(log_size: u32, cqe_size: u32) -> (Bench, u32, u32, u32) {
    let mut bench = Bench::new();
    let eqn = bench.eq(4, &[EventType::CqError, EventType::WqCatastrophic]);
    let cqn_send = bench.cq_of(log_size, cqe_size, eqn);
    let shape = Shape { cqn_send, ..bench.shape() };
    let (a, _) = bench.pair(shape);
    (bench, a, cqn_send, eqn)
}

fn nop(bench: &mut Bench, a: u32) {
    bench.post(a, &Post::new(WqeOpcode::Nop, vec![]));
    bench.run();
}

fn completion_of(event: Option<(EventType, [u8; 28])>) -> Option<u32> {
    let (event, data) = event?;
    assert_eq!(event, EventType::Completion);
    Some(u32::from_be_bytes(data[24..].try_into().unwrap()))
}

#[test]
fn rings_of_both_entry_sizes_wrap() {
    for cqe_size in [64, 128] {
        let (mut bench, a, cqn, _) = bench(3, cqe_size);
        for index in 0..1000u16 {
            nop(&mut bench, a);
            assert_eq!(bench.poll(cqn).map(|done| done.index), Some(index));
            assert_eq!(bench.poll(cqn), None);
        }
        assert_eq!(bench.violations(), [""; 0]);
    }
}

#[test]
fn completions_go_on_in_a_ring_of_another_size() {
    for (before, after) in [(3, 5), (5, 3), (3, 3)] {
        let (mut bench, a, cqn, _) = bench(before, 64);
        for index in 0..100u16 {
            // At each place of the ring, and on each lap of the old and the new one.
            if index == 21 || index == 70 {
                assert!(bench.resize(cqn, if index == 21 { after } else { before }));
            }
            nop(&mut bench, a);
            assert_eq!(bench.poll(cqn).map(|done| done.index), Some(index));
            assert_eq!(bench.poll(cqn), None);
        }
        assert_eq!(bench.violations(), [""; 0]);
    }
}

#[test]
fn a_ring_is_not_replaced_where_completions_would_be_lost() {
    let (mut bench, a, cqn, _) = bench(3, 64);
    (0..4).for_each(|_| nop(&mut bench, a));
    assert!(!bench.resize(cqn, 2), "four are unconsumed");
    (0..4).for_each(|_| nop(&mut bench, a));
    assert!(!bench.resize(cqn, 6), "the old ring has no room for the word");
    assert_eq!(bench.drain(cqn).len(), 8);
    assert!(bench.resize(cqn, 2));
    nop(&mut bench, a);
    assert_eq!(bench.drain(cqn).len(), 1);
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn a_completion_too_many() {
    let (mut bench, a, cqn, eqn) = bench(3, 64);
    for _ in 0..8 {
        nop(&mut bench, a);
    }
    assert_eq!(bench.f.nic.objects.cqs.get(cqn).unwrap().status, CqStatus::Ok);
    nop(&mut bench, a);
    assert_eq!(bench.f.nic.objects.cqs.get(cqn).unwrap().status, CqStatus::Overflow);
    assert_eq!(bench.state(a), QpState::Err);
    let (event, data) = bench.event(eqn).unwrap();
    assert_eq!((event, data[..4].to_vec(), data[11]), (EventType::CqError, cqn.to_be_bytes().to_vec(), 1));
    assert_eq!(bench.event(eqn).map(|(event, _)| event), Some(EventType::WqCatastrophic));
    assert_eq!(bench.violations(), [rules::CQ_OVERRUN, rules::CI_NEVER_PUBLISHED]);
    assert_eq!(bench.drain(cqn).len(), 8, "what was written before stays");
}

#[test]
fn an_overrun_may_be_ignored() {
    let (mut bench, a, cqn, _) = bench(3, 64);
    bench.f.nic.objects.cqs.get_mut(cqn).unwrap().ignore_overrun = true;
    for _ in 0..100 {
        nop(&mut bench, a);
    }
    assert_eq!(bench.state(a), QpState::Rts);
}

#[test]
fn a_ring_that_cannot_be_written() {
    let (mut bench, a, cqn, eqn) = bench(3, 64);
    bench.f.nic.objects.cqs.get_mut(cqn).unwrap().ring.pages = [0x5000].into();
    nop(&mut bench, a);
    assert_eq!(bench.f.nic.objects.cqs.get(cqn).unwrap().status, CqStatus::WriteFailure);
    let (event, data) = bench.event(eqn).unwrap();
    assert_eq!((event, data[11]), (EventType::CqError, 2));
}

#[test]
fn an_armed_queue_fires_once() {
    let (mut bench, a, cqn, eqn) = bench(6, 64);
    nop(&mut bench, a);
    assert_eq!(bench.event(eqn), None, "not armed");
    bench.poll(cqn);
    bench.arm(cqn, 0, false);
    assert_eq!(bench.event(eqn), None, "nothing new");
    nop(&mut bench, a);
    nop(&mut bench, a);
    assert_eq!(completion_of(bench.event(eqn)), Some(cqn));
    assert_eq!(bench.event(eqn), None, "one event an arming");
    bench.drain(cqn);
    bench.arm(cqn, 1, false);
    nop(&mut bench, a);
    assert_eq!(completion_of(bench.event(eqn)), Some(cqn));
}

#[test]
fn a_completion_between_the_last_poll_and_the_arming_fires_at_once() {
    let (mut bench, a, cqn, eqn) = bench(6, 64);
    nop(&mut bench, a);
    bench.arm(cqn, 0, false); // consumer index 0, producer 1
    assert_eq!(completion_of(bench.event(eqn)), Some(cqn));
}

#[test]
fn a_request_of_before_the_event_does_not_arm_again() {
    let (mut bench, a, cqn, eqn) = bench(6, 64);
    bench.arm(cqn, 0, false);
    nop(&mut bench, a);
    assert_eq!(completion_of(bench.event(eqn)), Some(cqn));
    // The same doorbell again, as if a register is read twice.
    bench.arm_at(cqn, 0, false, 0);
    assert_eq!(bench.event(eqn), None);
}

#[test]
fn sequence_numbers_go_round() {
    let (mut bench, a, cqn, eqn) = bench(6, 64);
    for round in 0..12 {
        bench.arm(cqn, round & 3, false);
        nop(&mut bench, a);
        assert_eq!(completion_of(bench.event(eqn)), Some(cqn), "round {round}");
        bench.eq_doorbell(eqn, false);
        bench.drain(cqn);
    }
    assert_eq!(bench.violations(), [""; 0]);
}

#[test]
fn solicited_arming_waits_for_a_solicited_completion_or_an_error() {
    let mut bench = Bench::new();
    let eqn = bench.eq(4, &[]);
    let shape = bench.shape();
    let (a, b) = bench.pair(shape);
    let cqn = bench.qp_mut(b).cqn_recv;
    bench.f.nic.objects.cqs.get_mut(cqn).unwrap().eqn = eqn;
    let key = bench.key;
    for _ in 0..4 {
        bench.post_recv(b, &[data(MEMORY, 8, key)]);
    }
    bench.arm(cqn, 0, true);
    bench.post(a, &send(MEMORY, 8, key));
    bench.run();
    assert_eq!(bench.event(eqn), None);
    let mut solicited = send(MEMORY, 8, key);
    solicited.solicited = true;
    bench.post(a, &solicited);
    bench.run();
    assert_eq!(completion_of(bench.event(eqn)), Some(cqn));
    // An unseen unsolicited completion does not trigger a CQ armed for solicited ones; an unseen solicited one does.
    bench.drain(cqn);
    bench.post(a, &send(MEMORY, 8, key));
    bench.run();
    bench.arm(cqn, 1, true);
    assert_eq!(bench.event(eqn), None);
    bench.drain(cqn);
    bench.go(b, QpState::Err);
    bench.run();
    assert_eq!(completion_of(bench.event(eqn)), Some(cqn), "the flushed receive is an error");
}

#[test]
fn arm_doorbells_that_were_overwritten_are_made_up_for() {
    let (mut bench, a, cqn, eqn) = bench(6, 64);
    let other = bench.cq_of(6, 64, eqn);
    // The first arm request, whose record is zero; its doorbell was overwritten by the other queue's.
    bench.arm(other, 0, false);
    nop(&mut bench, a);
    assert_eq!(completion_of(bench.event(eqn)), Some(cqn));
    bench.drain(cqn);
    let iova = bench.f.nic.objects.cqs.get(cqn).unwrap().doorbell.iova;
    bench.write(iova + 4, &(1u32 << 28 | 1).to_be_bytes());
    bench.arm(other, 0, false);
    nop(&mut bench, a);
    assert_eq!(completion_of(bench.event(eqn)), Some(cqn));
}

#[test]
fn a_queue_that_is_polled_is_not_armed_by_anothers_doorbell() {
    let (mut bench, a, cqn, eqn) = bench(6, 64);
    let other = bench.cq_of(6, 64, eqn);
    let iova = bench.f.nic.objects.cqs.get(cqn).unwrap().doorbell.iova;
    // Linux's steering writes this to keep cards from arming: an unexpected sequence number.
    bench.write(iova + 4, &(2u32 << 28).to_be_bytes());
    bench.arm(other, 0, false);
    nop(&mut bench, a);
    assert_eq!(bench.event(eqn), None);
}

#[test]
fn arming_is_not_made_up_for_where_no_doorbell_is_lost() {
    let (mut bench, a, _, eqn) = bench(6, 64);
    bench.f.bar = crate::bar::Bar::new(&bench.f.nic.profile);
    let other = bench.cq_of(6, 64, eqn);
    bench.arm(other, 0, false);
    nop(&mut bench, a);
    assert_eq!(bench.event(eqn), None);
}

#[test]
fn interrupts_follow_the_arming_of_the_event_queue() {
    let (mut bench, a, cqn, eqn) = bench(6, 64);
    let pending = |bench: &Bench| bench.f.nic.pci.is_pending(VECTOR);
    bench.arm(cqn, 0, false);
    nop(&mut bench, a);
    assert!(!pending(&bench), "the event queue is not armed");
    // Armed while an event is pending: the interrupt is sent at once.
    bench.eq_doorbell(eqn, true);
    assert!(pending(&bench));
    bench.f.nic.pci.reset();
    bench.event(eqn);
    bench.eq_doorbell(eqn, true);
    assert!(!pending(&bench));
    bench.drain(cqn);
    bench.arm(cqn, 1, false);
    nop(&mut bench, a);
    assert!(pending(&bench));
}

#[test]
fn an_event_queue_wraps_and_overruns() {
    let (mut bench, a, cqn, eqn) = bench(6, 64);
    for round in 0..40 {
        bench.arm(cqn, round & 3, false);
        nop(&mut bench, a);
        bench.drain(cqn);
        assert!(bench.event(eqn).is_some());
        bench.eq_doorbell(eqn, false);
    }
    assert_eq!(bench.violations(), [""; 0]);
    for round in 0..17 {
        bench.arm(cqn, round & 3, false);
        nop(&mut bench, a);
        bench.drain(cqn);
    }
    assert!(bench.f.nic.objects.eqs.get(eqn).unwrap().overrun);
    assert_eq!(bench.violations(), [rules::EQ_OVERRUN]);
    assert_eq!(std::iter::from_fn(|| bench.event(eqn)).count(), 16);
}

/// What the health buffer says.
fn syndrome(bench: &mut Bench) -> HealthSyndrome {
    firmware::tick(&mut bench.f);
    let health = *bench.f.nic.firmware.init_segment(&bench.f.nic.profile, bench.f.nic.now).health_buffer();
    assert_eq!(health.rfr(), health.synd() != HealthSyndrome::None);
    health.synd()
}

#[test]
fn an_overrun_of_asynchronous_events_is_fatal_until_a_reset() {
    let mut bench = Bench::new();
    let of_completions = bench.eq(4, &[]);
    for _ in 0..17 {
        event::write(&mut bench.f.nic, of_completions, EventType::Completion, 0, &[]);
    }
    assert_eq!(bench.violations(), [rules::EQ_OVERRUN]);
    assert_eq!(syndrome(&mut bench), HealthSyndrome::None, "fatal to who waits for completions alone");
    let eqn = bench.eq(4, &[EventType::SrqLastWqe]);
    for _ in 0..16 {
        event::post_qp(&mut bench.f.nic, EventType::SrqLastWqe, 7);
    }
    assert_eq!(syndrome(&mut bench), HealthSyndrome::None);
    event::post_qp(&mut bench.f.nic, EventType::SrqLastWqe, 7);
    assert!(bench.f.nic.objects.eqs.get(eqn).unwrap().overrun);
    assert_eq!(bench.violations(), [rules::EQ_OVERRUN]);
    assert_eq!(syndrome(&mut bench), HealthSyndrome::AsyncEqOverrun);
    firmware::reset(&mut bench.f);
    assert_eq!(syndrome(&mut bench), HealthSyndrome::None);
}

#[test]
fn events_can_be_lost_on_purpose() {
    let (mut bench, a, cqn, eqn) = bench(6, 64);
    bench.f.nic.faults.inject(Fault::EventLost { event_type: Some(0) }, Times::Count(1));
    bench.arm(cqn, 0, false);
    nop(&mut bench, a);
    assert_eq!(bench.event(eqn), None);
}

#[test]
fn error_completions_say_who_found_the_error() {
    let (mut bench, a, cqn, _) = bench(6, 64);
    let key = bench.key;
    bench.post(a, &write(MEMORY, 8, key + 0x100, MEMORY, key));
    bench.run();
    let mut bytes = [0; 64];
    bench.f.nic.objects.cqs.get(cqn).unwrap().ring.read(&bench.f.nic.dma, 0, &mut bytes).unwrap();
    let cqe = ErrorCqe::read(&bytes).unwrap();
    assert_eq!((cqe.syndrome(), cqe.send_wqe_opcode(), cqe.qpn()), (CqeSyndrome::LocalProtection, 8, a));
    assert_ne!(cqe.hw_error_syndrome(), 0);
    assert_ne!(cqe.vendor_error_syndrome(), 0);
}
