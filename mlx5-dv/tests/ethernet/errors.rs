//! Queues that enter the error state, and recover.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_dv::objects::{
    CqOptions, FlowActions, FlowGroup, FlowMatch, FlowRule, FlowTable, Pd, Rq, RqOptions, Sq, SqOptions, Tir, Tis,
    TransportDomain, Uar,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameFlags, Spread, SpreadOptions, StridingOptions, StridingQueue};
use mlx5_dv::queue::{AnyDoorbell, CompletionQueue, DataSegment, PostError, RefusedReason};
use mlx5_dv::{Device, Error, Mac};
use mlx5_open::Sim;
use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::ctx::QueueState;
use mlx5_sim::fault::{Fault, Times};

use crate::ends::{EthernetEnd, SOON, end, two};
use crate::spread::{UDP, ipv4};

#[test]
fn a_frame_that_does_not_fit_flushes_what_is_posted_and_after_a_reset_all_is_well() {
    let (sim, mut here, mut there) = two();
    let mut small = there.buffer(0);
    small.set_len(40);
    let small = there.queue.receive(small).unwrap();
    let large = there.queue.receive(there.buffer(1)).unwrap();
    let frame = here.frame(there.device.mac(), &[1; 100]);
    here.send(&frame);
    let first = there.queue.wait(SOON).unwrap();
    let error = first.result.unwrap_err();
    assert_eq!((first.ticket, error.syndrome(), error.is_flush()), (small, Some(CqeSyndrome::LocalLength), false));
    let second = there.queue.wait(SOON).unwrap();
    assert_eq!((second.ticket, second.result.unwrap_err().is_flush()), (large, true));
    assert_eq!(there.queue.rq().query().unwrap().state, QueueState::Err);
    assert_eq!(there.queue.in_flight(), (0, 0));

    assert_eq!(there.queue.reset().unwrap().len(), 0);
    there.queue.receive(second.buffer.unwrap()).unwrap();
    here.send(&frame);
    assert_eq!(there.heard(), frame);
    drop(first.buffer);
    end(sim, [here, there], &[]);
}

#[test]
fn a_completion_with_an_opcode_that_nobody_knows_returns_no_buffer() {
    let (sim, mut here, mut there) = two();
    there.post(2);
    let faulty = |function: usize| {
        sim.handle(function).faults().inject(Fault::CqeOpcode { qpn: None, opcode: 9 }, Times::Count(1));
    };
    faulty(1);
    here.send(&here.frame(there.device.mac(), &[1; 100]));
    let text = there.queue.wait(SOON).unwrap_err().to_string();
    assert!(text.contains("invalid opcode"), "{text}");
    assert_eq!(there.queue.in_flight(), (0, 2));
    here.post(1);
    faulty(0);
    here.queue.send_inline(&[2; 16], FrameFlags::empty()).unwrap();
    assert!(here.queue.wait(SOON).unwrap_err().to_string().contains("invalid opcode"));
    assert_eq!(here.queue.in_flight(), (1, 1));
    assert_eq!((here.queue.reset().unwrap().len(), there.queue.reset().unwrap().len()), (1, 2));
    end(sim, [here, there], &[]);
}

#[test]
fn a_striding_queue_takes_no_strides_for_an_opcode_that_nobody_knows() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
    let mut there = StridingQueue::new(&pd, StridingOptions::default()).unwrap();
    there.listen(&[]).unwrap();
    sim.handle(1).faults().inject(Fault::CqeOpcode { qpn: None, opcode: 9 }, Times::Count(1));
    here.send(&here.frame(there.device().mac(), &[1; 100]));
    let text = there.wait(SOON).unwrap_err().to_string();
    assert!(text.contains("invalid opcode"), "{text}");
    there.reset().unwrap();
    let frame = here.frame(there.device().mac(), &[2; 100]);
    here.send(&frame);
    assert_eq!(&there.wait(SOON).unwrap()[..], frame);
    drop((here, there, pd));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_reset_gives_back_what_was_in_flight() {
    let (sim, mut here, mut there) = two();
    there.post(5);
    here.send(&here.frame(there.device.mac(), &[1; 100]));
    // One was received and not polled.
    until_received(there.queue.rq(), 1);
    let buffers = there.queue.reset().unwrap();
    assert_eq!((buffers.len(), there.queue.in_flight()), (5, (0, 0)));
    buffers.into_iter().for_each(|buffer| _ = there.queue.receive(buffer).unwrap());
    let frame = here.frame(there.device.mac(), &[2; 100]);
    here.send(&frame);
    assert_eq!(there.heard(), frame, "and not the frame of the life before");
    end(sim, [here, there], &[]);
}

/// Sends three frames to the end at `to`, of which the last has a CQE.
fn send_three(here: &mut EthernetEnd, to: Mac) {
    let frame = here.frame(to, &[3; 100]);
    let buffers = [0, 1, 2].map(|index| {
        let mut buffer = here.buffer(index);
        buffer.write(0, &frame);
        buffer.set_len(frame.len());
        buffer
    });
    let mut batch = here.queue.batch();
    for (index, buffer) in buffers.into_iter().enumerate() {
        if index == 2 {
            batch.signalled()
        } else {
            batch.quiet()
        }
        batch.send(buffer, FrameFlags::empty()).unwrap();
    }
}

#[test]
fn a_reset_gives_back_what_completed_together_and_was_not_polled() {
    let (sim, mut here, mut there) = two();
    there.post(6);
    let mac = there.device.mac();
    send_three(&mut here, mac);
    let first = here.queue.wait(SOON).unwrap();
    first.result.unwrap();
    assert_eq!(here.queue.in_flight().0, 2);
    let buffers = here.queue.reset().unwrap();
    assert_eq!((buffers.len(), here.queue.in_flight().0), (2, 0));
    drop((first.buffer, buffers));
    assert!(here.queue.poll().unwrap().is_none());
    send_three(&mut here, mac);
    for left in [2, 1, 0] {
        here.queue.wait(SOON).unwrap().result.unwrap();
        assert_eq!(here.queue.in_flight().0, left);
    }
    end(sim, [here, there], &[]);
}

/// Waits until the card has completed `count` receives of `rq`.
fn until_received(rq: &Rq, count: u32) {
    let deadline = Instant::now() + SOON;
    while !rq.query().is_ok_and(|status| status.hw_counter == count) {
        assert!(Instant::now() < deadline, "fewer than {count} receives completed");
        std::thread::yield_now();
    }
}

/// Rules that send all frames for `there` to `tir`, with the flow tag `tag`.
fn tagged(there: &Arc<Device>, tir: &Arc<Tir>, tag: u32) -> FlowRule {
    let table = FlowTable::create(there, 0, 1).unwrap();
    let all = FlowMatch::new().destination_mac(there.mac());
    let group = FlowGroup::create(&table, 0..1, &all).unwrap();
    let rule = FlowRule::create(&group, &all, FlowActions::forward(tir).tag(tag)).unwrap();
    table.set_root().unwrap();
    rule
}

/// Sends the first of `frames`, resets the queue that it came to before that is polled, and sends the second.
fn hears_only_the_second(here: &mut EthernetEnd, there: &mut EthernetEnd, frames: &[Vec<u8>; 2]) {
    there.post(1);
    here.send(&frames[0]);
    until_received(there.queue.rq(), 1);
    assert_eq!(there.queue.reset().unwrap().len(), 1);
    there.post(1);
    assert!(there.queue.poll().unwrap().is_none(), "the frame of the life before");
    here.send(&frames[1]);
    assert_eq!(there.heard(), frames[1]);
}

/// The completions of a tagged queue have the tag in the place of its number.
#[test]
fn a_reset_discards_what_a_tagged_queue_received_before() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, mut there] = [0, 1].map(|at| EthernetEnd::new(&sim, at, EthernetOptions::default()));
    let rule = tagged(&there.device, there.queue.tir(), 0x77);
    let frames = [1, 2].map(|content| here.frame(there.device.mac(), &[content; 100]));
    hears_only_the_second(&mut here, &mut there, &frames);
    drop(rule);
    end(sim, [here, there], &[]);
}

/// So do those of a queue that a hash chooses: they have the number of the TIR.
#[test]
fn a_reset_discards_what_a_spread_queue_received_before() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let [mut here, mut there] = [0, 1].map(|at| EthernetEnd::new(&sim, at, EthernetOptions::default()));
    let spread = Spread::listen([&there.queue], &[], SpreadOptions::default()).unwrap();
    let head = here.frame(there.device.mac(), &[]);
    let frames = [(1, 2), (3, 4)].map(|ports| ipv4(&head, UDP, [10, 0, 0, 1], [10, 0, 0, 2], ports));
    hears_only_the_second(&mut here, &mut there, &frames);
    drop(spread);
    end(sim, [here, there], &[]);
}

#[test]
fn a_reset_discards_what_a_tagged_striding_queue_received_before() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let device = sim.open(1).unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let mut there = StridingQueue::new(&pd, StridingOptions::default()).unwrap();
    let _rule = tagged(&device, there.tir(), 0x77);
    here.send(&here.frame(device.mac(), &[1; 100]));
    until_received(there.rq(), 1);
    there.reset().unwrap();
    assert!(there.poll().unwrap().is_none(), "the frame of the life before");
    let frame = here.frame(device.mac(), &[2; 100]);
    here.send(&frame);
    let packet = there.wait(SOON).unwrap();
    assert_eq!(&packet[..], frame);
}

/// A single send queue, with its completion queue.
fn send_queue(here: &EthernetEnd) -> (CompletionQueue, Arc<Sq>) {
    let uar = Uar::alloc(&here.device).unwrap();
    let cq = CompletionQueue::create(&uar, Default::default()).unwrap();
    let tis = Tis::create(&TransportDomain::alloc(&here.device).unwrap(), 0).unwrap();
    let sq = Sq::create(&here.pd, &uar, &tis, cq.cq(), SqOptions::default()).unwrap();
    sq.ready().unwrap();
    (cq, sq)
}

fn poll(cq: &mut CompletionQueue) -> Result<mlx5_dv::queue::Completion, mlx5_dv::queue::WorkError> {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        if let Some(result) = cq.poll() {
            return result;
        }
        assert!(std::time::Instant::now() < deadline, "no completion");
        std::thread::yield_now();
    }
}

#[test]
fn a_frame_without_a_key_fails_and_those_behind_it_are_flushed() {
    let (sim, here, there) = two();
    let (mut cq, sq) = send_queue(&here);
    let mut queue = sq.send_queue::<AnyDoorbell>().unwrap();
    let frame = here.frame(there.device.mac(), &[1; 4]);
    let mut batch = queue.batch();
    // SAFETY: the card cannot access the memory: the key does not exist.
    unsafe { batch.send(1, FrameFlags::SIGNALLED, &[], &[DataSegment { addr: 0, len: 60, lkey: 0x77_00 }]).unwrap() };
    batch.send_inline(2, FrameFlags::SIGNALLED, &frame).unwrap();
    assert_eq!(batch.len(), 2);
    batch.ring();
    let error = poll(&mut cq).unwrap_err();
    assert_eq!((error.syndrome(), queue.retire(&error.work)), (Some(CqeSyndrome::LocalProtection), Ok(1)));
    let flushed = poll(&mut cq).unwrap_err();
    assert_eq!((flushed.is_flush(), queue.retire(&flushed.work)), (true, Ok(2)));
    assert_eq!((sq.query().unwrap().state, queue.free()), (QueueState::Err, queue.capacity()));
    drop(queue);
    sq.reset().unwrap();
    sq.ready().unwrap();
    let mut queue = sq.send_queue::<AnyDoorbell>().unwrap();
    let mut batch = queue.batch();
    batch.send_inline(3, FrameFlags::SIGNALLED, &frame).unwrap();
    batch.ring();
    assert_eq!(queue.retire(&poll(&mut cq).unwrap().work), Ok(3));
    drop((queue, sq, cq));
    end(sim, [here, there], &["key does not allow the access"]);
}

#[test]
fn taken_to_error_everything_posted_comes_back() {
    let (sim, here, mut there) = two();
    there.post(3);
    there.queue.rq().to_error().unwrap();
    there.queue.sq().to_error().unwrap();
    for _ in 0..3 {
        assert!(there.queue.wait(SOON).unwrap().result.unwrap_err().is_flush());
    }
    there.queue.send_inline(&here.frame(there.device.mac(), &[]), FrameFlags::empty()).unwrap();
    assert!(there.queue.wait(SOON).unwrap().result.unwrap_err().is_flush(), "sent in error");
    end(sim, [here, there], &[]);
}

#[test]
fn waiting_ends_in_time_and_at_once_when_the_card_is_gone() {
    let (sim, here, mut there) = two();
    there.post(1);
    let error = there.queue.wait(Duration::from_millis(10)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    sim.handle(1).faults().inject(Fault::SurpriseRemoval, Times::Always);
    let error = there.queue.wait(Duration::MAX).unwrap_err();
    assert!(matches!(error, Error::Dead(_)), "{error}");
    drop((here, there));
}

#[test]
fn a_reset_that_fails_is_said_at_every_post_until_one_succeeds() {
    let (sim, here, mut there) = two();
    there.post(2);
    let opcode = Some(Opcode::ModifySq.number() as u16);
    sim.handle(1).faults().inject(Fault::CommandStatus { opcode, status: 1, syndrome: 0x1234 }, Times::Count(1));
    let error = there.queue.reset().unwrap_err().to_string();
    assert!(error.contains("MODIFY_SQ") && error.contains("0x1234"), "{error}");
    let refused = there.queue.receive(there.buffer(9)).unwrap_err();
    assert_eq!(refused.reason, RefusedReason::NotReset);
    drop(refused);
    // The first of these resets the send queue, which in the second fails to start again.
    for opcode in [Opcode::ModifyRq, Opcode::ModifySq] {
        let fault = Fault::CommandStatus { opcode: Some(opcode.number() as u16), status: 1, syndrome: 0x1234 };
        sim.handle(1).faults().inject(fault, Times::Count(1));
        there.queue.reset().unwrap_err();
    }
    assert_eq!(there.queue.reset().unwrap().len(), 2);
    there.queue.receive(there.buffer(9)).unwrap();
    end(sim, [here, there], &[]);
}

#[test]
fn a_full_queue_says_so() {
    let (sim, mut here, there) = two();
    let uar = Uar::alloc(here.pd.device()).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default().entries(4)).unwrap();
    let rq = Rq::create(&here.pd, cq.cq(), RqOptions::default().wqes(4)).unwrap();
    rq.ready().unwrap();
    let mut queue = rq.receive_queue().unwrap();
    let mut batch = queue.batch();
    // SAFETY: no frame is sent to it.
    let posted = (0..5).map(|i| unsafe { batch.receive(i, &[DataSegment { addr: 0, len: 64, lkey: 0 }]) });
    assert_eq!(posted.last(), Some(Err(PostError::Full(mlx5_dv::queue::Full))));
    drop((queue, rq, cq, uar));
    for index in 0..31 {
        let buffer = here.buffer(index);
        here.queue.receive(buffer).unwrap();
    }
    end(sim, [here, there], &[]);
}
