//! Several frames in one work request, by pointer and inline.

use std::sync::Arc;

use mlx5_dv::objects::{AccessFlags, MemoryRegion};
use mlx5_dv::queue::PostError;
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameFlags};
use mlx5_open::Sim;
use mlx5_sim::dma::Purpose;
use mlx5_sim::profile::Profile;

use crate::ends::{BUFFER, EthernetEnd};
use crate::sender::Sender;

/// With a ring of 64 WQEBBs, and memory for frames.
fn sender(sim: &Sim) -> (Sender, Arc<MemoryRegion>) {
    let here = Sender::new(sim, 64);
    let region = MemoryRegion::allocate(&here.pd, 64 * BUFFER, AccessFlags::LOCAL_WRITE).unwrap();
    (here, region)
}

fn frames(there: &EthernetEnd, lens: &[usize], round: usize) -> Vec<Vec<u8>> {
    let payload =
        |number: usize, len: usize| (14..len).map(|at| (at * 3 + number * 5 + round) as u8).collect::<Vec<_>>();
    lens.iter().enumerate().map(|(number, len)| there.frame(there.device.mac(), &payload(number, *len))).collect()
}

fn receiver(sim: &Sim) -> EthernetEnd {
    EthernetEnd::listening(sim, 1, EthernetOptions::default())
}

#[test]
fn frames_by_pointer_and_inline_arrive_in_order_and_whole_round_the_ring() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let ((mut here, region), mut there) = (sender(&sim), receiver(&sim));
    for round in 0..40usize {
        let by_pointer = round % 2 == 0;
        // Inline: up to 61 segments, of 16 bytes with 4 for each frame.
        let lens: Vec<_> = (0..round % 9 + 1).map(|number| 14 + (number * 31 + round * 7) % 84).collect();
        let sent = frames(&there, &lens, round);
        there.post(sent.len());
        let mut batch = here.queue.batch();
        let wr_id = round as u64;
        if by_pointer {
            let elements: Vec<_> = sent
                .iter()
                .enumerate()
                .map(|(at, frame)| {
                    region.write(at * BUFFER, frame);
                    region.segment(at * BUFFER..at * BUFFER + frame.len())
                })
                .collect();
            // SAFETY: the region outlives the queue.
            unsafe { batch.send_several(wr_id, FrameFlags::SIGNALLED, &elements).unwrap() };
        } else {
            let inline: Vec<&[u8]> = sent.iter().map(Vec::as_slice).collect();
            batch.send_several_inline(wr_id, FrameFlags::SIGNALLED, &inline).unwrap();
        }
        batch.ring();
        arrive(&mut here, &mut there, wr_id, &sent);
    }
    drop((here, region, there));
    assert_eq!(sim.violations(), []);
}

/// What was sent with `wr_id` is heard, in order and whole, and completes.
fn arrive(here: &mut Sender, there: &mut EthernetEnd, wr_id: u64, sent: &[Vec<u8>]) {
    for sent in sent {
        assert_eq!(there.heard(), *sent, "round {wr_id}");
    }
    here.completes(wr_id);
}

/// Whatever their lengths, and wherever in the ring: the last work request is full, has one frame that wraps, or ends
/// with the ring.
#[test]
fn frames_copied_one_by_one_arrive_in_order_and_whole_round_the_ring() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let ((mut here, region), mut there) = (sender(&sim), receiver(&sim));
    for round in 0..120usize {
        let lens: Vec<_> = match round % 3 {
            0 => vec![60; round % 23 + 1],
            1 => (0..round % 9 + 1).map(|number| 14 + (number * 131 + round * 7) % 300).collect(),
            _ => vec![14 + round * 3; 2],
        };
        let sent = frames(&there, &lens, round);
        there.post(sent.len());
        let wr_id = round as u64;
        let mut batch = here.queue.batch();
        let mut copies = batch.copies(wr_id, FrameFlags::SIGNALLED).unwrap();
        sent.iter().for_each(|frame| copies.push(frame).unwrap());
        copies.end();
        batch.ring();
        arrive(&mut here, &mut there, wr_id, &sent);
    }
    drop((here, region, there));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_frame_that_cannot_be_copied_leaves_those_before_it() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (mut here, mut there) = (Sender::new(&sim, 32), receiver(&sim));
    let capacity = here.queue.capacity();
    let frame = frames(&there, &[60], 0).remove(0);
    let mut batch = here.queue.batch();
    let mut none = batch.copies(0, FrameFlags::SIGNALLED).unwrap();
    (0..20).for_each(|_| none.push(&frame).unwrap());
    drop(none);
    batch.copies(0, FrameFlags::SIGNALLED).unwrap().end();
    assert!(batch.is_empty(), "neither what was dropped nor what has no frame");

    there.post(30);
    let mut copies = batch.copies(7, FrameFlags::SIGNALLED).unwrap();
    copies.push(&frame).unwrap();
    let (given, most) = ((4 + 1000usize).div_ceil(16), 61);
    assert_eq!(copies.push(&[0; 1000]), Err(PostError::MultiPacketLength { given, most }));
    assert!(matches!(copies.push(&[0; 13]), Err(PostError::FrameLength { given: 13, .. })));
    let mut count = 1;
    let full = loop {
        match copies.push(&frame) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    // A frame takes four segments, and 15 of them a work request of 62: 16 WQEBBs.
    assert_eq!((full, count), (mlx5_dv::queue::Full.into(), capacity / 16 * 15));
    copies.end();
    batch.ring();
    assert_eq!(here.queue.free(), 0);
    (0..count).for_each(|_| assert_eq!(there.heard(), frame));
    here.completes(7);
    drop((here, there));
    assert_eq!(sim.violations(), []);
}

/// Posts frames by one of four ways, without asking for a completion but seldom.
fn post_seldom(here: &mut Sender, region: &MemoryRegion, way: usize, frames: &[Vec<u8>]) -> Result<(), PostError> {
    let mut batch = here.queue.batch();
    let inline: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let elements: Vec<_> = (0..frames.len())
        .map(|at| {
            region.write(at * BUFFER, inline[at]);
            region.segment(at * BUFFER..at * BUFFER + inline[at].len())
        })
        .collect();
    match way {
        0 => batch.send_several_inline(0, FrameFlags::SELDOM, &inline)?,
        1 => {
            let mut copies = batch.copies(0, FrameFlags::SELDOM)?;
            inline.iter().try_for_each(|frame| copies.push(frame))?;
            copies.end();
        }
        // SAFETY: the region outlives the queue, and frames are awaited before it is written again.
        2 => unsafe { batch.send_several(0, FrameFlags::SELDOM, &elements)? },
        // SAFETY: as above.
        _ => unsafe {
            elements.iter().try_for_each(|element| batch.send(0, FrameFlags::SELDOM, &[], &[*element]))?;
        },
    }
    batch.ring();
    Ok(())
}

/// A ring without any other completion never stays full, and has one completion for each quarter of it.
#[test]
fn completions_that_are_seldom_free_the_ring() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let ((mut here, region), mut there) = (sender(&sim), receiver(&sim));
    let (capacity, mut posted, mut completions) = (here.queue.capacity(), 0, 0);
    for round in 0..2000usize {
        let lens: Vec<_> = (0..round % 7 + 1).map(|number| 14 + (number * 31 + round * 7) % 84).collect();
        let sent = frames(&there, &lens, round);
        there.post(sent.len());
        loop {
            let before = here.queue.free();
            match post_seldom(&mut here, &region, round * 5 / 3 % 4, &sent) {
                Ok(()) => posted += before - here.queue.free(),
                Err(PostError::Full(_)) => {
                    here.retire_next();
                    completions += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            break;
        }
        for sent in &sent {
            assert_eq!(there.heard(), *sent, "round {round}");
        }
    }
    let quarters = posted / (capacity / 4);
    assert!(quarters > 100 && (quarters - 4..=quarters).contains(&completions), "{completions} of {quarters}");
    drop((here, region, there));
    assert_eq!(sim.violations(), []);
}

#[test]
fn many_small_frames_cost_one_doorbell_and_a_fraction_of_the_work_requests() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let ((mut here, region), mut there) = (sender(&sim), receiver(&sim));
    let sqn = here.queue.sq().sqn();
    let most = here.queue.sq().most_packets();
    assert_eq!(most, 61);
    let lens = [60; 30];
    let sent = frames(&there, &lens, 0);
    there.post(30);
    for (at, frame) in sent.iter().enumerate() {
        region.write(at * BUFFER, frame);
    }
    let elements: Vec<_> = (0..30).map(|at| region.segment(at * BUFFER..at * BUFFER + 60)).collect();
    let mut batch = here.queue.batch();
    // SAFETY: the region outlives the queue.
    unsafe { batch.send_several(0, FrameFlags::SIGNALLED, &elements).unwrap() };
    batch.ring();
    for sent in &sent {
        assert_eq!(there.heard(), *sent);
    }
    let traffic = sim.handle(0).traffic();
    let queue = traffic.queues.iter().find(|queue| (queue.kind, queue.number) == ("SQ", sqn)).unwrap().traffic;
    // 32 segments are 8 WQEBBs; one frame each, they would be 30.
    assert_eq!(queue.of(Purpose::Wqe).read_bytes, 8 * 64);
    assert_eq!(queue.of(Purpose::Data).read_bytes, 30 * 60);
    assert_eq!((queue.of(Purpose::Doorbell).writes, queue.of(Purpose::Cqe).writes), (1, 1));
    drop((here, region, there));
    assert_eq!(sim.violations(), []);
}

#[test]
fn what_does_not_fit_a_work_request_is_refused_and_leaves_no_trace() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (mut here, region) = sender(&sim);
    let (free, longest) = (here.queue.free(), here.queue.sq().longest_frame());
    let element = region.segment(0..60);
    let mut batch = here.queue.batch();
    // SAFETY: the region outlives the queue.
    let mut several = |elements: &[_]| unsafe { batch.send_several(0, FrameFlags::empty(), elements) };
    assert_eq!(several(&[]), Err(PostError::MultiPacketLength { given: 0, most: 61 }));
    assert_eq!(several(&[element; 62]), Err(PostError::MultiPacketLength { given: 62, most: 61 }));
    let short = region.segment(0..13);
    assert!(matches!(several(&[element, short]), Err(PostError::FrameLength { given: 13, .. })));
    let long = region.segment(0..longest + 1);
    assert!(matches!(several(&[element, long]), Err(PostError::FrameLength { .. })));
    let (frame, frames) = ([0u8; 200], 5);
    let inline = vec![&frame[..]; frames];
    let given = frames * 204usize.div_ceil(16);
    assert_eq!(
        batch.send_several_inline(0, FrameFlags::empty(), &inline),
        Err(PostError::MultiPacketLength { given, most: 61 })
    );
    assert!(batch.is_empty());
    drop(batch);
    assert_eq!(here.queue.free(), free);

    let mut profile = Profile::connectx5();
    profile.ethernet.w().enhanced_multi_pkt_send_wqe(false);
    let sim = Sim::builder().functions(2).profile(profile).build().unwrap();
    let (mut here, region) = sender(&sim);
    let element = region.segment(0..60);
    assert_eq!(here.queue.sq().most_packets(), 0);
    // SAFETY: the region outlives the queue.
    let refused = unsafe { here.queue.batch().send_several(0, FrameFlags::empty(), &[element]) };
    assert_eq!(refused, Err(PostError::NoMultiPacket));
    assert_eq!(here.queue.batch().copies(0, FrameFlags::empty()).unwrap_err(), PostError::NoMultiPacket);
}
