//! Frames a vector at a time: sent by few work requests, received, and their buffers taken back and posted again.

use std::time::Instant;

use mlx5_dv::objects::{AccessFlags, Buffer, LroOptions, MemoryRegion};
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameFlags, ReceivedFrame};
use mlx5_dv::queue::{PostError, RefusedReason};
use mlx5_open::Sim;
use mlx5_sim::dma::Purpose;
use mlx5_sim::profile::Profile;

use crate::ends::{BUFFER, EthernetEnd, SOON, end, two, two_of};
use crate::lro;

/// Buffers of `end`'s region with frames to `to`, of these lengths.
pub fn frames(end: &EthernetEnd, to: &EthernetEnd, lens: impl Iterator<Item = usize>) -> (Vec<Buffer>, Vec<Vec<u8>>) {
    let frame = |(number, len): (usize, usize)| {
        let payload: Vec<u8> = (14..len).map(|at| (at * 3 + number * 7) as u8).collect();
        let (frame, mut buffer) = (end.frame(to.device.mac(), &payload), end.buffer(number));
        buffer.write(0, &frame);
        buffer.set_len(frame.len());
        (buffer, frame)
    };
    lens.enumerate().map(frame).unzip()
}

pub fn content(received: &ReceivedFrame) -> Vec<u8> {
    let mut bytes = vec![0; received.buffer.len()];
    received.buffer.read(0, &mut bytes);
    bytes
}

/// Polls until `count` frames were received and `buffers` sent, at most five at a time.
pub fn until(end: &mut EthernetEnd, count: usize, buffers: usize) -> (Vec<ReceivedFrame>, Vec<Buffer>) {
    let (mut received, mut sent, deadline) = (Vec::new(), Vec::new(), Instant::now() + SOON);
    while received.len() < count || sent.len() < buffers {
        let before = received.len();
        assert!(end.queue.poll_into(&mut received, &mut sent, 5).unwrap().is_none());
        assert!(received.len() - before <= 5);
        assert!(Instant::now() < deadline, "{} of {count} received, {} of {buffers} sent", received.len(), sent.len());
    }
    (received, sent)
}

/// Sends `buffers` as the queue empties, in which `posted` frames are. Returns when all were sent.
pub fn send_rest(end: &mut EthernetEnd, buffers: &mut Vec<Buffer>, posted: usize) {
    let mut left = posted;
    while !buffers.is_empty() {
        until(end, 0, left);
        let before = buffers.len();
        _ = end.queue.batch().send_each(buffers, FrameFlags::empty());
        left = before - buffers.len();
        assert!(left > 0, "{before} frames and an empty queue");
    }
    until(end, 0, left);
}

/// Cards with multi-packet work requests, without, and ones that require headers in them.
#[test]
fn frames_of_a_vector_arrive_whole_and_in_order_and_buffers_come_back() {
    for limit in 0..3 {
        let mut profile = Profile::connectx6dx();
        match limit {
            1 => _ = profile.ethernet.w().enhanced_multi_pkt_send_wqe(false),
            2 => _ = profile.ethernet.w().wqe_inline_mode(0),
            _ => {}
        }
        let options = EthernetOptions::default().send_depth(32).recv_depth(32);
        let (sim, mut here, mut there) = two_of(Sim::builder().profile(profile), options);
        let mut posts: Vec<_> = (0..32).map(|index| there.buffer(index)).collect();
        there.queue.receives().receive_each(&mut posts).unwrap();
        for round in 0..30usize {
            let count = round * 7 % 31 + 1;
            let (mut buffers, sent) = frames(&here, &there, (0..count).map(|at| 14 + (at * 211 + round * 97) % 1500));
            let last = here.frame(there.device.mac(), &[]);
            let mut batch = here.queue.batch();
            if round % 3 == 0 {
                batch.quiet();
                batch.send_each(&mut buffers, FrameFlags::empty()).unwrap();
                batch.signalled();
                batch.send_inline(&last, FrameFlags::empty()).unwrap();
            } else {
                batch.send_each(&mut buffers, FrameFlags::empty()).unwrap();
            }
            batch.ring();
            assert!(buffers.is_empty());
            let more = usize::from(round % 3 == 0);
            let (received, _) = until(&mut there, count + more, 0);
            for (received, sent) in received.iter().zip(sent.iter().chain([&last])) {
                assert_eq!((content(received), received.completion.byte_len as usize), (sent.clone(), sent.len()));
            }
            posts.extend(received.into_iter().map(|frame| frame.buffer));
            there.queue.receives().receive_each(&mut posts).unwrap();
            let (_, sent) = until(&mut here, 0, count);
            assert_eq!(sent.len(), count);
            while here.queue.in_flight().0 > 0 {
                here.queue.poll_into(&mut Vec::new(), &mut Vec::new(), 1).unwrap();
            }
        }
        assert_eq!((here.queue.in_flight(), there.queue.in_flight()), ((0, 0), (0, 32)));
        end(sim, [here, there], &[]);
    }
}

#[test]
fn a_vector_takes_one_work_request_and_one_completion() {
    let (sim, mut here, there) = two();
    let (mut buffers, _) = frames(&here, &there, [60; 29].into_iter());
    here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
    until(&mut here, 0, 29);
    let (sqn, traffic) = (here.queue.sq().sqn(), sim.handle(0).traffic());
    let queue = traffic.queues.iter().find(|queue| (queue.kind, queue.number) == ("SQ", sqn)).unwrap();
    // Two segments before the frames.
    assert_eq!(queue.traffic.of(Purpose::Wqe).read_bytes, (2 + 29_u64).div_ceil(4) * 64);
    assert_eq!(queue.traffic.of(Purpose::Cqe).writes, 1);
    end(sim, [here, there], &[]);
}

#[test]
fn what_is_not_posted_stays_in_order() {
    let options = EthernetOptions::default().send_depth(16);
    let (sim, mut here, mut there) = two_of(Sim::builder(), options);
    there.post(32);
    let (mut buffers, sent) = frames(&here, &there, (0..30).map(|at| 60 + at));
    let mut batch = here.queue.batch();
    let full = batch.send_each(&mut buffers, FrameFlags::empty()).unwrap_err();
    batch.ring();
    assert!(matches!(full, RefusedReason::Post(PostError::Full(_))), "{full}");
    let posted = sent.len() - buffers.len();
    send_rest(&mut here, &mut buffers, posted);
    let (received, _) = until(&mut there, sent.len(), 0);
    assert_eq!(received.iter().map(content).collect::<Vec<_>>(), sent);

    let (mut buffers, _) = frames(&here, &there, [60, 13, 70].into_iter());
    buffers[1].set_len(13);
    let short = here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap_err();
    assert!(matches!(short, RefusedReason::Post(PostError::FrameLength { given: 13, .. })), "{short}");
    assert_eq!(buffers.iter().map(Buffer::len).collect::<Vec<_>>(), [60, 13, 70]);
    drop((received, buffers));
    end(sim, [here, there], &[]);
}

/// One of each kind that a program has to look at: errors of sends and receives.
#[test]
fn what_fails_ends_a_poll_and_is_returned_with_its_buffer() {
    let (sim, mut here, mut there) = two();
    here.queue.sq().to_error().unwrap();
    let (mut buffers, _) = frames(&here, &there, [60; 3].into_iter());
    here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
    there.post(2);
    there.queue.rq().to_error().unwrap();
    for (end, count) in [(&mut here, 3), (&mut there, 2)] {
        let (mut received, mut sent, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        let deadline = Instant::now() + SOON;
        while failed.len() < count {
            failed.extend(end.queue.poll_into(&mut received, &mut sent, 8).unwrap());
            assert!(Instant::now() < deadline, "{failed:?}");
        }
        assert!(failed.iter().all(|done| done.buffer.is_some() && done.result.as_ref().unwrap_err().is_flush()));
        assert_eq!((received.len(), sent.len(), end.queue.in_flight()), (0, 0, (0, 0)));
    }
    end(sim, [here, there], &[]);
}

/// A batch that is forgotten never went to the card.
#[test]
fn buffers_of_a_forgotten_batch_are_not_taken_for_those_of_the_next() {
    let (sim, mut here, there) = two();
    let (mut buffers, _) = frames(&here, &there, [60, 60, 60, 60, 70, 70, 70].into_iter());
    let mut forgotten: Vec<_> = buffers.drain(..4).collect();
    let mut batch = here.queue.batch();
    batch.quiet();
    batch.send_each(&mut forgotten, FrameFlags::empty()).unwrap();
    std::mem::forget(batch);
    here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
    let (_, sent) = until(&mut here, 0, 3);
    assert_eq!(sent.iter().map(Buffer::len).collect::<Vec<_>>(), [70; 3]);
    assert_eq!(here.queue.in_flight(), (0, 0));
    drop(sent);
    end(sim, [here, there], &[]);
}

/// Header and payload in buffers of their own come as a program that does not ask for many gets them.
#[test]
fn what_is_in_several_buffers_is_returned_one_by_one() {
    let mut options = EthernetOptions::default();
    options.recv_sges = 2;
    let (sim, mut here, mut there) = two_of(Sim::builder(), options);
    let (mut buffers, sent) = frames(&here, &there, [200].into_iter());
    let mut parts = vec![there.buffer(0), there.buffer(1)];
    parts[0].set_len(14);
    there.queue.receives().receive_all(&mut parts).unwrap();
    here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
    let (mut received, mut heard, deadline) = (Vec::new(), Vec::new(), Instant::now() + SOON);
    for len in [14, 186] {
        let done = loop {
            assert!(Instant::now() < deadline, "{heard:?}");
            if let Some(done) = there.queue.poll_into(&mut received, &mut Vec::new(), 8).unwrap() {
                break done;
            }
        };
        let mut part = vec![0; len];
        done.buffer.unwrap().read(0, &mut part);
        heard.extend(part);
    }
    assert_eq!((heard, received.len()), (sent[0].clone(), 0));
    until(&mut here, 0, 1);
    end(sim, [here, there], &[]);
}

/// Joined segments are among the others.
#[test]
fn joined_segments_are_one_packet_among_others() {
    let options = lro::ethernet(LroOptions::default().timeout_usecs(1024));
    let (sim, mut here, mut there) = two_of(Sim::builder(), options);
    let region = MemoryRegion::allocate(&there.pd, 8 << 16, AccessFlags::LOCAL_WRITE).unwrap();
    let data = vec![7; 5 * usize::from(lro::MSS)];
    let large = lro::packet(&here, &there.device, &data);
    let mut posts = region.buffers(1 << 16).unwrap();
    there.queue.receives().receive_each(&mut posts).unwrap();
    let mut is_whole = false;
    for _ in 0..lro::TRIES {
        lro::send(&mut here, &large);
        let (mut heard, deadline) = (0, Instant::now() + SOON);
        while heard < data.len() {
            assert!(Instant::now() < deadline, "only {heard} bytes came");
            let mut received = Vec::new();
            assert!(there.queue.poll_into(&mut received, &mut Vec::new(), 8).unwrap().is_none());
            heard += received.iter().map(|frame| frame.buffer.len() - lro::HEADERS).sum::<usize>();
            is_whole |= received.iter().any(|frame| content(frame) == large);
            posts.extend(received.into_iter().map(|frame| frame.buffer));
            there.queue.receives().receive_each(&mut posts).unwrap();
        }
        if is_whole {
            break;
        }
    }
    assert!(is_whole, "never in one piece");
    drop((posts, region));
    end(sim, [here, there], &[]);
}

/// As above, of the capacity that a buffer gets back when it is posted again.
#[test]
fn buffers_are_posted_with_all_of_their_capacity() {
    let (sim, mut here, mut there) = two();
    let mut posts = vec![there.buffer(0)];
    posts[0].set_len(20);
    there.queue.receives().receive_each(&mut posts).unwrap();
    let (mut buffers, sent) = frames(&here, &there, [1000].into_iter());
    here.queue.batch().send_each(&mut buffers, FrameFlags::empty()).unwrap();
    let (received, _) = until(&mut there, 1, 0);
    assert_eq!((content(&received[0]), received[0].buffer.capacity()), (sent[0].clone(), BUFFER));
    until(&mut here, 0, 1);
    drop(received);
    end(sim, [here, there], &[]);
}
