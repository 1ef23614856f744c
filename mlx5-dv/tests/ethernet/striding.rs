//! Striding receive queues: packets packed into large buffers, which come back when their packets are dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use mlx5_dv::Device;
use mlx5_dv::objects::{AccessFlags, Cq, MemoryRegion, Pd, QueueCounter, Rq, RqOptions, Strides};
use mlx5_dv::queue::ethernet::{EthernetOptions, Packet, StridingOptions, StridingQueue};
use mlx5_dv::queue::{CompletionQueue, PostError};
use mlx5_open::Sim;
use mlx5_sim::profile::Profile;
use proptest::prelude::*;

use crate::ends::{EthernetEnd, SOON, end_in_peace, of_small_strides, refusal};

fn options(strides: Strides, posted: u32, spare: u32) -> StridingOptions {
    let mut options = StridingOptions::default();
    (options.strides, options.posted, options.spare) = (strides, posted, spare);
    options
}

/// A sender, and a receiver of frames to function 1.
fn pair(options: StridingOptions) -> (Sim, EthernetEnd, StridingQueue) {
    let sim = Sim::builder().functions(2).profile(of_small_strides()).build().unwrap();
    let here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let there = listening(&sim.open(1).unwrap(), options);
    (sim, here, there)
}

fn listening(device: &Arc<Device>, options: StridingOptions) -> StridingQueue {
    let pd = Pd::alloc(device).unwrap();
    let mut queue = StridingQueue::new(&pd, options).unwrap();
    queue.listen(&[]).unwrap();
    queue
}

fn frame(here: &EthernetEnd, there: &StridingQueue, number: usize, len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (14..len).map(|at| (at * 7 + number) as u8).collect();
    here.frame(there.device().mac(), &payload)
}

#[test]
fn packets_of_every_length_share_buffers_and_what_does_not_fit_begins_a_new_one() {
    for strides in [Strides::new(64, 32), Strides::new(256, 8), Strides::new(64, 64).two_byte_shift()] {
        let (sim, mut here, mut there) = pair(options(strides, 4, 0));
        // 1514 bytes take 24 strides of 64 bytes: of 32, the last 8 are given up by a filler.
        for (number, len) in [60, 1514, 64, 65, 1000, 1514, 1514, 14].into_iter().cycle().take(80).enumerate() {
            let sent = frame(&here, &there, number, len);
            here.send(&sent);
            let packet = there.wait(SOON).unwrap();
            assert_eq!(packet[..], sent[..], "frame {number}");
            let at = packet.as_ptr() as usize % strides.bytes as usize;
            assert_eq!(at, if strides.two_byte_shift { 2 } else { 0 }, "a packet starts a stride");
        }
        end_in_peace(&sim, (here, there));
    }
}

#[test]
fn a_packet_that_is_kept_keeps_its_buffer_and_nothing_else() {
    // Two frames fill a buffer.
    let (sim, mut here, mut there) = pair(options(Strides::new(64, 8), 1, 2));
    let sent: Vec<_> = (0..9).map(|number| frame(&here, &there, number, 256)).collect();
    here.send(&sent[0]);
    let kept = there.wait(SOON).unwrap();
    for sent in &sent[1..8] {
        here.send(sent);
        // The other buffers come and go.
        assert_eq!(there.wait(SOON).unwrap()[..], sent[..]);
    }
    assert_eq!(kept[..], sent[0][..]);
    drop(there);
    assert_eq!(kept[..], sent[0][..], "a packet outlives its queue");
    end_in_peace(&sim, (here, kept));
}

#[test]
fn while_packets_hold_all_buffers_frames_are_lost_and_come_again_once_one_is_back() {
    let sim = Sim::builder().functions(2).profile(of_small_strides()).build().unwrap();
    let mut here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let device = sim.open(1).unwrap();
    let lost = QueueCounter::alloc(&device).unwrap();
    let mut one_buffer = options(Strides::new(64, 8), 1, 0);
    one_buffer.counter = Some(Arc::clone(&lost));
    let mut there = listening(&device, one_buffer);
    let mut send = |there: &StridingQueue, number| {
        let sent = frame(&here, there, number, 512);
        here.send(&sent);
        sent
    };
    let first = send(&there, 1);
    let kept = there.wait(SOON).unwrap();
    send(&there, 2);
    // A send completes before its frame arrives.
    let late = Instant::now() + SOON;
    while lost.out_of_buffer().unwrap() == 0 {
        assert!(Instant::now() < late, "the second frame was never lost");
    }
    assert!(there.poll().unwrap().is_none() && there.posted() == 0);
    assert_eq!(kept[..], first[..]);
    drop(kept);
    assert!(there.poll().unwrap().is_none() && there.posted() == 1);
    let third = send(&there, 3);
    assert_eq!(there.wait(SOON).unwrap()[..], third[..]);
    assert_eq!(lost.out_of_buffer().unwrap(), 1);
    end_in_peace(&sim, (here, there, lost, device));
}

#[test]
fn packets_go_to_other_threads() {
    let (sim, mut here, mut there) = pair(options(Strides::new(64, 8), 2, 6));
    let (to, from) = std::sync::mpsc::channel::<(Packet, Vec<u8>)>();
    let reader = std::thread::spawn(move || from.iter().filter(|(packet, sent)| packet[..] == sent[..]).count());
    for number in 0..100 {
        let sent = frame(&here, &there, number, 14 + number * 4);
        // All buffers may still be with the other thread; in the first of two the frame may have no room.
        let late = Instant::now() + SOON;
        while there.posted() < 2 {
            assert!(Instant::now() < late, "no buffer came back");
            assert!(there.poll().unwrap().is_none(), "a frame that nobody sent");
            std::thread::yield_now();
        }
        here.send(&sent);
        to.send((there.wait(SOON).unwrap(), sent)).unwrap();
    }
    drop(to);
    assert_eq!(reader.join().unwrap(), 100);
    end_in_peace(&sim, (here, there));
}

#[test]
fn a_packet_longer_than_a_buffer_breaks_the_queue_until_it_is_reset() {
    let (sim, mut here, mut there) = pair(options(Strides::new(64, 8), 2, 0));
    let long = frame(&here, &there, 0, 513);
    here.send(&long);
    let error = there.wait(SOON).unwrap_err().to_string();
    assert!(error.contains("LOCAL_LENGTH_ERR"), "{error}");
    assert!(there.wait(SOON).unwrap_err().to_string().contains("WR_FLUSH_ERR"));
    there.reset().unwrap();
    let sent = frame(&here, &there, 1, 512);
    here.send(&sent);
    assert_eq!(there.wait(SOON).unwrap()[..], sent[..]);
    end_in_peace(&sim, (here, there));
}

#[test]
fn what_a_queue_cannot_have_is_named() {
    let sim = Sim::builder().build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    let small = refusal(StridingQueue::new(&pd, options(Strides::new(1024, 8), 1, 0)));
    assert!(small.contains("log_min_stride_wqe_sz") && small.contains("16384"), "{small}");
    StridingQueue::new(&pd, options(Strides::new(2048, 8), 1, 0)).unwrap();
    let mut silent = Profile::connectx5();
    silent.general_2.w().log_min_stride_wqe_sz(0);
    let sim = Sim::builder().profile(silent).build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    assert_eq!(refusal(StridingQueue::new(&pd, options(Strides::new(1024, 8), 1, 0))), small);

    let sim = Sim::builder().profile(of_small_strides()).build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    for (strides, named) in [
        (Strides::new(32, 512), "log_wqe_stride_size"),
        (Strides::new(96, 512), "power of two"),
        (Strides::new(16384, 512), "log_wqe_stride_size"),
        (Strides::new(64, 4), "log_wqe_num_of_strides"),
        (Strides::new(64, 65536), "log_wqe_num_of_strides"),
    ] {
        let text = refusal(StridingQueue::new(&pd, options(strides, 1, 0)));
        assert!(text.contains(named), "{text}");
    }
    let uar = mlx5_dv::objects::Uar::alloc(pd.device()).unwrap();
    let cq = CompletionQueue::create(&uar, Default::default()).unwrap();
    let plain = Rq::create(&pd, cq.cq(), RqOptions::default()).unwrap();
    assert!(refusal(plain.striding_receive_queue()).contains("RqOptions::strides"));
    let rq = rq(&pd, cq.cq());
    assert!(refusal(rq.receive_queue()).contains("striding_receive_queue"));
    let mut queue = rq.striding_receive_queue().unwrap();
    let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    // SAFETY: the region outlives the queue.
    let short = unsafe { queue.receive(0, &region.segment(0..511)) };
    assert_eq!(short, Err(PostError::BufferLength { given: 511, needed: 512 }));

    let mut old = Profile::connectx5();
    old.general_max.w().ext_stride_num_range(false);
    old.general_current.w().ext_stride_num_range(false);
    let sim = Sim::builder().profile(old).build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    assert!(refusal(StridingQueue::new(&pd, options(Strides::new(64, 256), 1, 0))).contains("ext_stride_num_range"));
    StridingQueue::new(&pd, options(Strides::new(64, 512), 1, 0)).unwrap();

    let mut none = Profile::connectx5();
    none.general_max.w().striding_rq(false);
    none.general_current.w().striding_rq(false);
    let sim = Sim::builder().profile(none).build().unwrap();
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    assert!(refusal(StridingQueue::new(&pd, StridingOptions::default())).contains("striding_rq"));
}

fn rq(pd: &std::sync::Arc<Pd>, cq: &std::sync::Arc<Cq>) -> std::sync::Arc<Rq> {
    Rq::create(pd, cq, RqOptions::default().wqes(2).strides(Strides::new(64, 8))).unwrap()
}

/// Many frames to one buffer cost one work request: that is what a striding queue is for.
#[test]
fn the_card_fetches_one_work_request_for_many_packets() {
    use mlx5_sim::dma::Purpose;
    let (sim, mut here, mut there) = pair(options(Strides::new(64, 64), 2, 0));
    let rqn = there.rq().rqn();
    for number in 0..64 {
        let sent = frame(&here, &there, number, 60);
        here.send(&sent);
        there.wait(SOON).unwrap();
    }
    let traffic = sim.handle(1).traffic();
    let queue = traffic.queues.iter().find(|queue| (queue.kind, queue.number) == ("RQ", rqn)).unwrap().traffic;
    let [wqe, data, cqe] = [Purpose::Wqe, Purpose::Data, Purpose::Cqe].map(|purpose| queue.of(purpose));
    assert_eq!((wqe.reads, wqe.read_bytes), (1, 32));
    assert_eq!((data.writes, data.write_bytes), (64, 64 * 60));
    assert_eq!((cqe.writes, cqe.write_bytes), (64, 64 * 64));
    end_in_peace(&sim, (here, there));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    /// Whatever is kept for however long, each frame arrives whole, or is lost because all buffers are held.
    #[test]
    fn frames_arrive_whole_whatever_is_kept(
        lens in prop::collection::vec(14usize..1515, 20..60),
        keep in 0usize..12,
    ) {
        let (sim, mut here, mut there) = pair(options(Strides::new(64, 32), 2, 2));
        let mut kept: VecDeque<(Packet, Vec<u8>)> = VecDeque::new();
        let mut last: Option<Vec<u8>> = None;
        for (number, len) in lens.into_iter().enumerate() {
            let sent = frame(&here, &there, number, len);
            here.send(&sent);
            let (deadline, mut is_again) = (Instant::now() + SOON, false);
            let packet = loop {
                match there.wait(std::time::Duration::from_millis(25)) {
                    // It was sent again, and had only been late.
                    Ok(packet) if packet[..] != sent[..] && last.as_deref() == Some(&packet[..]) => (),
                    Ok(packet) => break packet,
                    // Lost only while packets hold buffers back.
                    Err(_) if !kept.is_empty() => kept.clear(),
                    Err(_) if !is_again => {
                        here.send(&sent);
                        is_again = true;
                    }
                    Err(error) => prop_assert!(Instant::now() < deadline, "frame {number}: {error}"),
                }
            };
            prop_assert_eq!(&packet[..], &sent[..]);
            last = Some(sent.clone());
            kept.push_back((packet, sent));
            while kept.len() > keep {
                let (packet, sent) = kept.pop_front().unwrap();
                prop_assert_eq!(&packet[..], &sent[..]);
            }
        }
        end_in_peace(&sim, (here, there, kept));
    }
}
