//! Strict mode on Ethernet queues: errors of a driver that a card would ignore silently, and errors that are injected.

use std::time::Duration;

use mlx5_prm::cqe::{Cqe, CqeOpcode, CqeSyndrome, ErrorCqe};
use mlx5_prm::ctx::QueueState;
use mlx5_prm::layout::Layout;
use mlx5_prm::wqe::{DataSeg, EthSeg, LKEY_INVALID, WqeOpcode};

use super::ethernet::{Rig, move_sq};
use super::lro::make_striding;
use crate::bar::{self, RULE_COPY};
use crate::engine;
use crate::fault::{Fault, Times};
use crate::strict::rules::*;

/// Entries of the rings of a [`Rig`].
const RING: u32 = 16;

/// Writes a WQE that sends `frame`; nothing says yet that it is there.
fn put(rig: &mut Rig, frame: &[u8]) -> Vec<u8> {
    rig.client.write(rig.buffer(0), frame);
    let mut data = DataSeg::ZERO;
    data.w().byte_count(frame.len() as u32).lkey(rig.key).addr(rig.buffer(0));
    rig.put(WqeOpcode::Send, 0, &[EthSeg::ZERO.as_bytes(), data.as_bytes()].concat())
}

/// A frame that no rule forwards to a queue.
fn lost() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x77]);
    frame
}

fn post(rig: &mut Rig) {
    let wqe = put(rig, &lost());
    rig.record(rig.posted.into());
    rig.ring(&wqe);
}

fn syndrome(cqe: &Cqe) -> Option<CqeSyndrome> {
    let is_error = matches!(cqe.opcode(), CqeOpcode::RequesterError | CqeOpcode::ResponderError);
    is_error.then(|| ErrorCqe::read(cqe.as_bytes()).unwrap().syndrome())
}

#[test]
fn a_send_counter_that_is_not_where_or_as_it_should_be() {
    let slots: [(u64, u32, &str); 3] =
        [(128, 1, RECORD_IN_WRONG_SLOT), (132, 1u32.swap_bytes(), RECORD_LITTLE_ENDIAN), (132, 0, RECORD_NOT_WRITTEN)];
    for (slot, counter, rule) in slots {
        let mut rig = Rig::new();
        let wqe = put(&mut rig, &lost());
        rig.client.write(rig.parents.doorbells + slot, &counter.to_be_bytes());
        rig.ring(&wqe);
        assert!(rig.polls().is_empty(), "a card does nothing");
        assert_eq!(rig.client.violations(), [rule]);
    }
}

#[test]
fn a_post_to_a_queue_in_rst() {
    let mut rig = Rig::new();
    rig.client.exec(&move_sq(rig.sqn, QueueState::Rdy, QueueState::Rst)).unwrap();
    post(&mut rig);
    assert_eq!(rig.client.violations(), [WRONG_STATE]);
}

#[test]
fn a_doorbell_of_another_wqe_than_the_rings() {
    let mut rig = Rig::new();
    let mut wqe = put(&mut rig, &lost());
    rig.record(1);
    wqe[3] = WqeOpcode::Nop.number() as u8;
    rig.ring(&wqe);
    assert_eq!(rig.client.violations(), [DOORBELL_DIFFERS]);
}

#[test]
fn two_threads_copies_mixed_in_one_blueflame_buffer() {
    let mut rig = Rig::new();
    let uar = rig.parents.uar;
    let (first, second) = (put(&mut rig, &lost()), rig.put(WqeOpcode::Nop, 0, &[7; 32]));
    let at = (u64::from(uar) << bar::LOG_PAGE) + 0x800;
    let store = |rig: &mut Rig, from: usize, bytes: &[u8]| {
        for (index, quadword) in bytes.chunks(8).enumerate() {
            bar::write(&mut rig.client.f, at + (from + 8 * index) as u64, quadword);
        }
    };
    rig.record(2);
    store(&mut rig, 0, &first[..40]);
    store(&mut rig, 0, &second);
    store(&mut rig, 32, &first[32..]);
    while engine::run(&mut rig.client.f) {}
    rig.client.f.nic.now += Duration::from_secs(1);
    bar::audit(&mut rig.client.f);
    let said = rig.client.f.nic.strict.take();
    assert_eq!(said.iter().map(|violation| violation.rule).collect::<Vec<_>>(), [RULE_COPY]);
    assert!(said[0].detail.starts_with(&format!("SQ {:#x}, WQE 0x1", rig.sqn)), "{}", said[0].detail);
}

#[test]
fn more_than_the_rings_hold() {
    let mut rig = Rig::new();
    let wqe = put(&mut rig, &lost());
    rig.record(RING + 1);
    rig.ring(&wqe);
    assert!(rig.client.violations().contains(&SEND_OVERRUN));
    let mut rig = Rig::new();
    rig.post_receives(RING as u16);
    rig.client.write(rig.parents.doorbells + 192, &(RING + 1).to_be_bytes());
    let frame = rig.frame(b"one");
    rig.send(&frame);
    assert_eq!(rig.client.violations(), [RECEIVE_OVERRUN]);
}

#[test]
fn a_receive_counter_little_endian() {
    let mut rig = Rig::new();
    rig.post_receives(1);
    rig.client.write(rig.parents.doorbells + 192, &1u32.to_le_bytes());
    let frame = rig.frame(b"one");
    rig.send(&frame);
    assert_eq!(rig.client.violations(), [RECORD_LITTLE_ENDIAN]);
}

#[test]
fn an_error_completion_ignored() {
    let mut rig = Rig::new();
    let mut data = DataSeg::ZERO;
    data.w().byte_count(60).lkey(rig.key ^ 0x100).addr(rig.buffer(0));
    rig.post_segments(WqeOpcode::Send, 0, &[EthSeg::ZERO.as_bytes(), data.as_bytes()].concat());
    assert_eq!(rig.client.violations(), [KEY]);
    let posted = |rig: &mut Rig| {
        (0..RING).for_each(|_| post(rig));
        rig.polls();
        rig.client.violations()
    };
    assert_eq!(posted(&mut rig), [""; 0], "a queue that is drained");
    assert_eq!(posted(&mut rig), [ERROR_IGNORED]);
    assert_eq!(posted(&mut rig), [""; 0], "said once");
}

/// Sends `count` frames, to receives that are posted one by one if any receives them. Sends and receives complete to
/// queues of their own. Returns after how many strict mode speaks, and what it says.
fn consume_many(count: u32, is_published: bool, is_received: bool) -> (u32, Vec<&'static str>) {
    let mut rig = Rig::new();
    if is_received {
        let other = rig.client.cq(rig.parents.uar, rig.parents.eqn, rig.parents.doorbells + 256);
        let other = rig.client.exec(&other).unwrap().reply.cqn();
        rig.client.f.queues.sqs.get_mut(rig.sqn).unwrap().cqn = other;
    }
    let frame = if is_received { rig.frame(b"one") } else { lost() };
    rig.post_receives(RING as u16);
    for sent in 0..count {
        rig.client.write(rig.parents.doorbells + 192, &(sent + 1).to_be_bytes());
        if is_received {
            rig.client.write(rig.parents.doorbells + 256, &sent.to_be_bytes());
        }
        rig.send(&frame);
        if is_published {
            rig.polls();
        }
        let said = rig.client.violations();
        if !said.is_empty() {
            return (sent, said);
        }
    }
    (count, vec![])
}

#[test]
fn a_consumer_index_that_is_never_published_is_noticed_before_the_queue_is_full() {
    for is_received in [false, true] {
        assert_eq!(consume_many(200, true, is_received), (200, vec![]));
        // 16 places in the ring and 64 in the CQ: the 49th WQE is posted to the place of the 33rd.
        assert_eq!(consume_many(60, false, is_received), (48, vec![CI_NEVER_PUBLISHED]));
    }
}

#[test]
fn a_receive_buffer_posted_twice() {
    let mut rig = Rig::new();
    rig.client.f.nic.strict.watch_receives();
    let frame = rig.frame(b"one");
    rig.post_receives(3);
    rig.send(&frame);
    // The first, which has come back, and the third, which has not.
    for (place, index, said) in [(3u64, 0, vec![]), (4, 2, vec![RECEIVE_TWICE])] {
        let mut data = DataSeg::ZERO;
        data.w().byte_count(2048).lkey(rig.key).addr(rig.buffer(32 + index));
        let mut end = DataSeg::ZERO;
        end.w().lkey(LKEY_INVALID);
        rig.client.write(rig.receive_ring + place * 32, &[data.as_bytes(), end.as_bytes()].concat());
        rig.client.write(rig.parents.doorbells + 192, &(place as u32 + 1).to_be_bytes());
        rig.send(&frame);
        assert_eq!(rig.client.violations(), said);
    }
}

/// A striding WQE begins with the segment that links it to the next, also where nothing is linked.
#[test]
fn a_striding_wqe_whose_buffer_is_where_the_link_should_be() {
    let mut rig = Rig::new();
    let rqn = make_striding(&mut rig);
    let mut data = DataSeg::ZERO;
    data.w().byte_count(8192).lkey(rig.key).addr(rig.buffer(32));
    let mut end = DataSeg::ZERO;
    end.w().lkey(LKEY_INVALID);
    let wqe = [data.as_bytes(), end.as_bytes()].concat();
    let ring = rig.client.f.queues.rqs.get(rqn).unwrap().ring.memory.clone();
    ring.write(&rig.client.f.nic.dma, 0, &wqe).unwrap();
    let frame = rig.frame(b"one");
    rig.send(&frame);
    assert_eq!(rig.client.violations(), [NO_BUFFER]);
    assert!(rig.polls().iter().any(|cqe| syndrome(cqe).is_some()));
}

#[test]
fn injected_failures_of_either_side_break_the_queue() {
    for is_sender in [true, false] {
        let mut rig = Rig::new();
        rig.post_receives(2);
        let qpn = Some(if is_sender { rig.sqn } else { rig.rqn });
        let fault = Fault::CompletionError { qpn, syndrome: 0x14, vendor_syndrome: 7 };
        rig.client.f.nic.faults.inject(fault, Times::Count(1));
        let frame = rig.frame(b"one");
        rig.send(&frame);
        let failed: Vec<_> = rig.polls().iter().filter_map(syndrome).collect();
        let (first, flushed) = (CqeSyndrome::RemoteOperation, CqeSyndrome::WorkRequestFlushed);
        assert_eq!(failed, if is_sender { vec![first] } else { vec![first, flushed] });
        let state = match is_sender {
            true => rig.client.f.queues.sqs.get(rig.sqn).unwrap().state,
            false => rig.client.f.queues.rqs.get(rig.rqn).unwrap().state,
        };
        assert_eq!(state, QueueState::Err);
    }
}
