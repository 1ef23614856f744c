//! Frames of a vector of which the short ones are copied into work requests, and the long ones read where they are.

use std::sync::Arc;

use mlx5_dv::objects::{Buffer, ExclusiveRegion, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_dv::queue::{PostError, RefusedReason};
use mlx5_dv::{Error, Invalid};
use mlx5_open::Sim;
use mlx5_sim::dma::{Crossed, Purpose};
use mlx5_sim::profile::Profile;

use crate::each::{content, frames, send_rest, until};
use crate::ends::{BUFFER, EthernetEnd, SOON, end, end_in_peace, refusal, two_of};

/// The longest frame that is copied, where a test does not say otherwise.
const SHORT: usize = 200;
/// The longest frame that a work request of the card holds, beside one element: 60 segments but for the 14 bytes that
/// do not count, of a WQE of 63.
const MOST: u16 = 962;

fn options() -> EthernetOptions {
    EthernetOptions::default().inline_up_to(SHORT as u16)
}

/// Two ends on a card of ConnectX-6 Dx's, or (1) one without multi-packet work requests, or (2) that requires headers.
fn two_on(limit: usize, options: EthernetOptions) -> (Sim, EthernetEnd, EthernetEnd) {
    let mut profile = Profile::connectx6dx();
    match limit {
        1 => _ = profile.ethernet.w().enhanced_multi_pkt_send_wqe(false),
        2 => _ = profile.ethernet.w().wqe_inline_mode(0),
        _ => {}
    }
    two_of(Sim::builder().profile(profile), options)
}

/// What `queue` of function 0 has moved across PCIe.
fn crossed(sim: &Sim, queue: &EthernetQueue, purpose: Purpose) -> Crossed {
    let (sqn, traffic) = (queue.sq().sqn(), sim.handle(0).traffic());
    let queue = traffic.queues.iter().find(|queue| (queue.kind, queue.number) == ("SQ", sqn));
    queue.map_or_else(Crossed::default, |queue| queue.traffic.of(purpose))
}

/// As `buffers`, in memory that nobody else reaches.
fn exclusive(pd: &Arc<Pd>, buffers: &[Buffer]) -> Vec<Buffer> {
    let region = ExclusiveRegion::allocate(pd, buffers.len() * BUFFER).unwrap();
    let mut copies = region.buffers(BUFFER).unwrap();
    copies.truncate(buffers.len());
    for (copy, buffer) in copies.iter_mut().zip(buffers) {
        copy.set_len(buffer.len());
        buffer.read(0, copy.as_mut_slice());
    }
    copies
}

/// Lengths round `SHORT` and across the ring's end, on cards of all kinds, of memory of both kinds.
#[test]
fn short_frames_are_copied_and_arrive_with_the_others_whole_and_in_order() {
    for limit in 0..3 {
        let (sim, mut here, mut there) = two_on(limit, options().send_depth(32).recv_depth(32));
        let mut posts: Vec<_> = (0..32).map(|index| there.buffer(index)).collect();
        there.queue.receives().receive_each(&mut posts).unwrap();
        let mut read = 0;
        for round in 0..60usize {
            let count = round * 7 % 31 + 1;
            let lens = |at: usize| match (at * 5 + round) % 7 {
                0 => SHORT + (at + round) % 2,
                1 | 2 => SHORT + 1 + (at * 211 + round * 97) % 1200,
                _ => 14 + (at * 31 + round * 17) % (SHORT - 14),
            };
            let (mut buffers, sent) = frames(&here, &there, (0..count).map(lens));
            if round % 2 == 0 {
                buffers = exclusive(&here.pd, &buffers);
            }
            let last = here.frame(there.device.mac(), &[]);
            let mut batch = here.queue.batch();
            batch.quiet();
            batch.send_each(&mut buffers, FrameFlags::empty()).unwrap();
            batch.signalled();
            batch.send_inline(&last, FrameFlags::empty()).unwrap();
            batch.ring();
            assert!(buffers.is_empty());
            let (received, _) = until(&mut there, count + 1, 0);
            for (received, sent) in received.iter().zip(sent.iter().chain([&last])) {
                assert_eq!(content(received), *sent, "round {round}");
            }
            posts.extend(received.into_iter().map(|frame| frame.buffer));
            there.queue.receives().receive_each(&mut posts).unwrap();
            let (_, back) = until(&mut here, 0, count);
            assert_eq!(back.iter().map(Buffer::len).collect::<Vec<_>>(), sent.iter().map(Vec::len).collect::<Vec<_>>());
            while here.queue.in_flight().0 > 0 {
                here.queue.poll_into(&mut Vec::new(), &mut Vec::new(), 1).unwrap();
            }
            let headers = if limit == 2 { 18 } else { 0 };
            read += sent.iter().filter(|frame| frame.len() > SHORT).map(|frame| frame.len() - headers).sum::<usize>();
        }
        let data = crossed(&sim, &here.queue, Purpose::Data);
        assert_eq!(data.read_bytes, read as u64, "of long frames alone, on card {limit}");
        end(sim, [here, there], &[]);
    }
}

/// A frame of 60 bytes takes four segments, of which a work request has 61: 15 frames in 62 segments, or 16 WQEBBs.
#[test]
fn a_run_of_short_frames_takes_as_few_work_requests_as_hold_it() {
    let (sim, mut here, there) = two_on(0, options());
    let (mut buffers, _) = frames(&here, &there, [60; 29].into_iter());
    here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
    until(&mut here, 0, 29);
    let moved = |purpose| crossed(&sim, &here.queue, purpose);
    assert_eq!(moved(Purpose::Wqe).read_bytes, (16 + (2 + 14 * 4_u64).div_ceil(4)) * 64);
    assert_eq!((moved(Purpose::Data).reads, moved(Purpose::Cqe).writes), (0, 2));
    end(sim, [here, there], &[]);
}

/// Two short ones, three long ones, and a short one.
#[test]
fn frames_of_a_run_have_one_ticket_and_come_back_one_by_one() {
    let (sim, mut here, there) = two_on(0, options());
    let lens = [60, 70, 1000, 1100, 1200, 80];
    let (mut buffers, _) = frames(&here, &there, lens.into_iter());
    here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
    let done: Vec<_> = lens.iter().map(|_| here.queue.wait(SOON).unwrap()).collect();
    let runs: Vec<_> = done.chunk_by(|a, b| a.ticket == b.ticket).map(<[_]>::len).collect();
    assert_eq!(runs, [2, 3, 1]);
    assert_eq!(done.iter().map(|done| done.buffer.as_ref().unwrap().len()).collect::<Vec<_>>(), lens);
    assert!(done.iter().all(|done| done.result.is_ok()));
    drop(done);
    end(sim, [here, there], &[]);
}

/// Its buffer is written before the doorbell.
#[test]
fn a_frame_is_copied_before_the_call_returns() {
    let (sim, mut here, mut there) = two_on(0, options());
    there.post(1);
    let (mut buffers, sent) = frames(&here, &there, [60].into_iter());
    let mut batch = here.queue.batch();
    batch.send_each(&mut buffers, FrameFlags::empty()).unwrap();
    here.region.fill(0, BUFFER, 0xff);
    batch.ring();
    assert_eq!(there.heard(), sent[0]);
    until(&mut here, 0, 1);
    end(sim, [here, there], &[]);
}

#[test]
fn with_fewer_queues_than_the_bound_nothing_is_copied() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let there = EthernetEnd::listening(&sim, 1, EthernetOptions::default());
    for (count, from, is_copied) in [(1, 0, true), (1, 1, true), (1, 2, false), (3, 4, false), (4, 4, true)] {
        let queues = EthernetQueue::several(&here.pd, count, &options().inline_from_queues(from)).unwrap();
        for mut queue in queues {
            let (mut buffers, _) = frames(&here, &there, [60, 61].into_iter());
            queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
            (0..2).for_each(|_| _ = queue.wait(SOON).unwrap());
            let read = if is_copied { 0 } else { 60 + 61 };
            assert_eq!(crossed(&sim, &queue, Purpose::Data).read_bytes, read, "{count} queues, from {from}");
        }
    }
    let mut one = EthernetQueue::new(&here.pd, options().inline_from_queues(2)).unwrap();
    let (mut buffers, _) = frames(&here, &there, [60, 61].into_iter());
    one.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
    (0..2).for_each(|_| _ = one.wait(SOON).unwrap());
    assert_eq!(crossed(&sim, &one, Purpose::Data).read_bytes, 60 + 61, "one queue, from 2");
    drop(one);
    end_in_peace(&sim, (here, there));
}

#[test]
fn a_length_that_no_work_request_holds_is_refused_by_name() {
    for limit in 0..3 {
        let (sim, mut here, mut there) = two_on(limit, EthernetOptions::default().inline_up_to(MOST));
        there.post(8);
        let (mut buffers, sent) = frames(&here, &there, [MOST.into(), usize::from(MOST) + 1].into_iter());
        here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
        let (received, _) = until(&mut there, 2, 0);
        assert_eq!(received.iter().map(content).collect::<Vec<_>>(), sent);
        until(&mut here, 0, 2);

        let mut options = EthernetOptions::default().inline_up_to(MOST + 1).inline_from_queues(8);
        let refused = EthernetQueue::new(&here.pd, options.clone()).unwrap_err();
        assert!(matches!(refused, Error::Invalid(Invalid::OutOfRange { what: "inline_up_to", .. })), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("inline_up_to is 963") && text.contains("at most 962 (max_wqe_sz_sq)"), "{text}");
        (options.send_sges, options.inline_up_to) = (4, MOST - 3 * 16 + 1);
        let text = refusal(EthernetQueue::several(&here.pd, 2, &options));
        assert!(text.contains("send_sges takes at most 914 (max_wqe_sz_sq)"), "{text}");
        drop(received);
        end(sim, [here, there], &[]);
    }
}

/// More frames than the queue takes, short and long ones.
#[test]
fn a_full_queue_leaves_what_was_not_posted_in_order() {
    for limit in 0..3 {
        let (sim, mut here, mut there) = two_on(limit, options().send_depth(16));
        there.post(32);
        let (mut buffers, sent) = frames(&here, &there, (0..30).map(|at| [60, 61, 300, 62, 1000][at % 5] + at));
        let mut batch = here.queue.batch();
        let full = batch.send_each(&mut buffers, FrameFlags::empty()).unwrap_err();
        batch.ring();
        assert!(matches!(full, RefusedReason::Post(PostError::Full(_))), "{full}");
        assert_eq!(buffers.len(), 30 - 16, "as many as there is room for are posted");
        send_rest(&mut here, &mut buffers, 16);
        let (received, _) = until(&mut there, sent.len(), 0);
        assert_eq!(received.iter().map(content).collect::<Vec<_>>(), sent);
        drop(received);
        end(sim, [here, there], &[]);
    }
}

/// The ring has room for as many frames of the longest kind that is copied as may be in flight.
#[test]
fn as_many_of_the_longest_copied_frames_are_in_flight_as_of_any() {
    for limit in 0..3 {
        let (sim, mut here, there) = two_on(limit, options().send_depth(31));
        let (mut buffers, _) = frames(&here, &there, [SHORT; 31].into_iter());
        here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
        until(&mut here, 0, 31);
        end(sim, [here, there], &[]);
    }
}

#[test]
fn what_is_refused_keeps_its_buffers_in_order() {
    let lens = |buffers: &[Buffer]| buffers.iter().map(Buffer::len).collect::<Vec<_>>();
    for (limit, kept) in [(0, &[60, 13, 70, 400][..]), (1, &[13, 70, 400])] {
        let (sim, mut here, mut there) = two_on(limit, options());
        there.post(4);
        let (mut buffers, sent) = frames(&here, &there, [300, 60, 60, 70, 400].into_iter());
        buffers[2].set_len(13);
        let short = here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap_err();
        assert!(matches!(short, RefusedReason::Post(PostError::FrameLength { given: 13, .. })), "{short}");
        assert_eq!(lens(&buffers), kept, "those of one work request are refused together");
        assert_eq!(there.heard(), sent[0]);
        until(&mut here, 0, 5 - kept.len());
        assert_eq!(here.queue.in_flight().0, 0);
        drop(buffers);
        end(sim, [here, there], &[]);
    }

    let mut profile = Profile::connectx6dx();
    profile.ethernet.w().csum_cap(false);
    let (sim, mut here, there) = two_of(Sim::builder().profile(profile), options());
    let (mut buffers, _) = frames(&here, &there, [60, 300, 70].into_iter());
    let refused = here.queue.batch().send_each(&mut buffers, FrameFlags::L4_CHECKSUM).unwrap_err();
    assert_eq!((refused, lens(&buffers)), (RefusedReason::Post(PostError::NoChecksums), vec![60, 300, 70]));
    drop(buffers);
    end(sim, [here, there], &[]);
}

/// As for frames by pointer.
#[test]
fn copied_frames_that_fail_come_back_with_their_buffers() {
    let (sim, mut here, there) = two_on(0, options());
    here.queue.sq().to_error().unwrap();
    let (mut buffers, _) = frames(&here, &there, [60, 70, 300, 80].into_iter());
    here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
    for len in [60, 70, 300, 80] {
        let done = here.queue.wait(SOON).unwrap();
        assert_eq!(done.buffer.as_ref().unwrap().len(), len);
        assert!(done.result.unwrap_err().is_flush());
    }
    assert_eq!(here.queue.in_flight(), (0, 0));
    end(sim, [here, there], &[]);
}
