//! Compressed completions: each form says what the card would have said without, in fewer bytes.

use std::sync::mpsc::channel;
use std::time::Instant;

use mlx5_dv::objects::{Compression, Pd, Strides};
use mlx5_dv::queue::ethernet::{EthernetOptions, FrameFlags, Receives, StridingOptions, StridingQueue};
use mlx5_open::Sim;
use mlx5_sim::dma::Purpose;
use mlx5_sim::profile::Profile;

use crate::ends::{EthernetEnd, SOON, of_small_strides, refusal};

const FORMS: [Compression; 5] = [
    Compression::Hash,
    Compression::Checksum,
    Compression::FlowTag,
    Compression::ChecksumStride,
    Compression::HeaderType,
];

fn options(strides: Strides) -> StridingOptions {
    let mut options = StridingOptions::default();
    (options.strides, options.posted, options.spare) = (strides, 4, 4);
    options
}

fn sender(sim: &Sim) -> EthernetEnd {
    let mut options = EthernetOptions::default();
    (options.inline_bytes, options.send_depth) = (200, 64);
    EthernetEnd::new(sim, 0, options)
}

/// Sends all frames at once: the card is stopped while they are posted.
fn send_together(sim: &Sim, here: &mut EthernetEnd, frames: &[Vec<u8>]) {
    let (is_stopped, stopped) = channel();
    let (go_on, goes_on) = channel::<()>();
    let handle = sim.handle(0);
    let card = std::thread::spawn(move || {
        handle.with(move |_| {
            is_stopped.send(()).unwrap();
            let _ = goes_on.recv();
        })
    });
    stopped.recv().unwrap();
    for frame in frames {
        here.queue.send_inline(frame, FrameFlags::empty()).unwrap();
    }
    go_on.send(()).unwrap();
    card.join().unwrap();
    for _ in frames {
        here.queue.wait(SOON).unwrap().result.unwrap();
    }
}

fn frames<C: Receives>(here: &EthernetEnd, there: &StridingQueue<C>, lens: &[usize]) -> Vec<Vec<u8>> {
    let payload = |(number, len): (usize, &usize)| (14..*len).map(|at| (at * 3 + number * 5) as u8).collect::<Vec<_>>();
    lens.iter().enumerate().map(|frame| here.frame(there.device().mac(), &payload(frame))).collect()
}

/// Writes of the card for the queue, and their bytes.
fn writes<C: Receives>(sim: &Sim, there: &StridingQueue<C>, purpose: Purpose) -> (u64, u64) {
    let (rqn, traffic) = (there.rq().rqn(), sim.handle(1).traffic());
    let queue = traffic.queues.iter().find(|queue| (queue.kind, queue.number) == ("RQ", rqn)).unwrap();
    let accesses = queue.traffic.of(purpose);
    (accesses.writes, accesses.write_bytes)
}

/// Waits until the card has written `count` frames into the queue's buffers. A sender's completion is no sign of it:
/// its frame may still be on the wire.
fn until_written<C: Receives>(sim: &Sim, there: &StridingQueue<C>, count: usize) {
    let deadline = Instant::now() + SOON;
    while writes(sim, there, Purpose::Data).0 < count as u64 {
        assert!(Instant::now() < deadline, "fewer than {count} frames came");
        std::thread::yield_now();
    }
}

#[test]
fn sixteen_packets_cost_three_entries_in_every_form() {
    for form in FORMS {
        let sim = Sim::builder().functions(2).build().unwrap();
        let mut here = sender(&sim);
        let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
        let mut there = StridingQueue::compressed(&pd, options(Strides::new(64, 256)), form).unwrap();
        there.listen(&[]).unwrap();
        let sent = frames(&here, &there, &[60, 64, 100, 128, 129, 60, 199, 14, 60, 61, 62, 63, 64, 65, 66, 67]);
        send_together(&sim, &mut here, &sent);
        for sent in &sent {
            assert_eq!(there.wait(SOON).unwrap()[..], sent[..], "{form:?}");
        }
        assert_eq!(writes(&sim, &there, Purpose::Cqe), (3, 3 * 64), "{form:?}");
        assert!(there.poll().unwrap().is_none());
        drop((here, there));
        assert_eq!(sim.violations(), []);
    }
}

/// As the test below by bursts of several lengths, by packets in between, one or many, with plain completions and in
/// each form.
#[test]
fn bursts_go_round_the_ring() {
    fn go_round<C: Receives>(sim: &Sim, mut there: StridingQueue<C>, what: &str) {
        let mut here = sender(sim);
        there.listen(&[]).unwrap();
        for round in 0..40usize {
            let lens: Vec<_> = (0..round % 21 + 1).map(|number| 14 + (number * 37 + round * 11) % 180).collect();
            let sent = frames(&here, &there, &lens);
            send_together(sim, &mut here, &sent);
            let mut heard = Vec::new();
            while heard.len() < sent.len() {
                let before = heard.len();
                // Of some nothing is taken, and others are not taken to their end.
                drop(there.burst(round % 6).unwrap());
                assert_eq!(there.burst(0).unwrap().count(), 0);
                let burst = there.burst(round % 7 + 1).unwrap().take(round % 4 + 1);
                heard.extend(burst.map(|frame| frame.to_vec()));
                if round % 3 == 1 {
                    let many = round % 9;
                    let count = there.take_each(many, |frame| heard.push(frame.to_vec())).unwrap();
                    assert!(count <= many, "{what}, round {round}: {count}");
                }
                if round % 3 == 2 {
                    let (many, mut packets) = (round % 8, Vec::new());
                    let count = there.poll_into(&mut packets, many).unwrap();
                    assert!(count == packets.len() && count <= many, "{what}, round {round}: {count}");
                    heard.extend(packets.iter().map(|packet| packet.to_vec()));
                }
                if heard.len() == before || round % 5 == 4 && heard.len() < sent.len() {
                    heard.push(there.wait(SOON).unwrap().to_vec());
                }
            }
            assert_eq!(heard, sent, "{what}, round {round}");
            assert_eq!((there.burst(0).unwrap().count(), there.burst(1).unwrap().count()), (0, 0));
        }
        there.reset().unwrap();
        let sent = frames(&here, &there, &[60; 9]);
        send_together(sim, &mut here, &sent);
        for sent in &sent {
            assert_eq!(there.wait(SOON).unwrap()[..], sent[..], "{what}");
        }
    }
    for form in FORMS.map(Some).into_iter().chain([None]) {
        let sim = Sim::builder().functions(2).profile(of_small_strides()).build().unwrap();
        let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
        let options = options(Strides::new(64, 16));
        match form {
            Some(form) => go_round(&sim, StridingQueue::compressed(&pd, options, form).unwrap(), &format!("{form:?}")),
            None => go_round(&sim, StridingQueue::new(&pd, options).unwrap(), "plain"),
        }
        assert_eq!(sim.violations(), [], "{form:?}");
    }
}

/// What a burst knew of the next frames, and did not take, a packet may take.
#[test]
fn a_packet_between_bursts_comes_once() {
    fn by_turns<C: Receives>(sim: &Sim, mut there: StridingQueue<C>, what: &str) {
        let mut here = sender(sim);
        there.listen(&[]).unwrap();
        let sent = frames(&here, &there, &[60; 12]);
        send_together(sim, &mut here, &sent);
        until_written(sim, &there, sent.len());
        let mut heard = vec![there.wait(SOON).unwrap().to_vec()];
        while heard.len() < sent.len() {
            drop(there.burst(2).unwrap());
            heard.push(there.wait(SOON).unwrap().to_vec());
            heard.extend(there.burst(1).unwrap().map(|frame| frame.to_vec()));
        }
        assert_eq!(heard, sent, "{what}");
    }
    for form in FORMS.map(Some).into_iter().chain([None]) {
        let sim = Sim::builder().functions(2).build().unwrap();
        let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
        let options = options(Strides::new(64, 256));
        match form {
            Some(form) => by_turns(&sim, StridingQueue::compressed(&pd, options, form).unwrap(), &format!("{form:?}")),
            None => by_turns(&sim, StridingQueue::new(&pd, options).unwrap(), "plain"),
        }
        assert_eq!(sim.violations(), [], "{form:?}");
    }
}

/// Completions of before a reset, in the middle of a block or not, are no part of a burst.
#[test]
fn a_burst_has_nothing_of_before_a_reset() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut here = sender(&sim);
    let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
    let mut there =
        StridingQueue::compressed(&pd, options(Strides::new(64, 256)), Compression::ChecksumStride).unwrap();
    there.listen(&[]).unwrap();
    let old = frames(&here, &there, &[100; 20]);
    send_together(&sim, &mut here, &old);
    until_written(&sim, &there, old.len());
    assert_eq!(there.wait(SOON).unwrap()[..], old[0][..]);
    let some: Vec<_> = there.burst(3).unwrap().map(|frame| frame.to_vec()).collect();
    assert_eq!(some, old[1..4]);
    there.reset().unwrap();
    let new = frames(&here, &there, &[120; 12]);
    send_together(&sim, &mut here, &new);
    let mut heard = Vec::new();
    while heard.len() < new.len() {
        let before = heard.len();
        heard.extend(there.burst(5).unwrap().map(|frame| frame.to_vec()));
        if heard.len() == before {
            heard.push(there.wait(SOON).unwrap().to_vec());
        }
    }
    assert_eq!(heard, new);
    drop((here, there));
    assert_eq!(sim.violations(), []);
}

/// Many laps of a small completion queue, blocks of all lengths, buffers that end in the middle of one: nothing is
/// lost, doubled or mixed up, and strict mode finds every entry given back as it must be.
#[test]
fn blocks_of_all_lengths_go_round_the_ring() {
    for form in FORMS {
        let sim = Sim::builder().functions(2).profile(of_small_strides()).build().unwrap();
        let mut here = sender(&sim);
        let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
        let mut there = StridingQueue::compressed(&pd, options(Strides::new(64, 16)), form).unwrap();
        there.listen(&[]).unwrap();
        for round in 0..60usize {
            let lens: Vec<_> = (0..round % 21 + 1).map(|number| 14 + (number * 37 + round * 11) % 180).collect();
            let sent = frames(&here, &there, &lens);
            send_together(&sim, &mut here, &sent);
            for (number, sent) in sent.iter().enumerate() {
                assert_eq!(there.wait(SOON).unwrap()[..], sent[..], "{form:?}, round {round}, frame {number}");
            }
        }
        drop((here, there));
        assert_eq!(sim.violations(), [], "{form:?}");
    }
}

#[test]
fn a_reset_in_the_middle_of_a_block_leaves_nothing_of_it() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut here = sender(&sim);
    let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
    let mut there = StridingQueue::compressed(&pd, options(Strides::new(64, 256)), Compression::Checksum).unwrap();
    there.listen(&[]).unwrap();
    let old = frames(&here, &there, &[100; 20]);
    send_together(&sim, &mut here, &old);
    until_written(&sim, &there, old.len());
    for sent in &old[..3] {
        assert_eq!(there.wait(SOON).unwrap()[..], sent[..]);
    }
    there.reset().unwrap();
    let new = frames(&here, &there, &[120; 12]);
    send_together(&sim, &mut here, &new);
    for sent in &new {
        assert_eq!(there.wait(SOON).unwrap()[..], sent[..]);
    }
    drop((here, there));
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_card_without_compression_or_without_a_form_says_so() {
    let refuses = |mut profile: Profile, form, named: &str| {
        profile.general_current = profile.general_max;
        let sim = Sim::builder().profile(profile).build().unwrap();
        let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
        let text = refusal(StridingQueue::compressed(&pd, StridingOptions::default(), form));
        assert!(text.contains(named), "{text}");
    };
    for (form, named) in [
        (Compression::FlowTag, "mini_cqe_resp_flow_tag"),
        (Compression::ChecksumStride, "mini_cqe_resp_stride_index"),
        (Compression::HeaderType, "mini_cqe_resp_l3_l4_tag"),
        (Compression::Hash, "cqe_compression"),
    ] {
        let mut profile = Profile::connectx5();
        let caps = profile.general_max.w();
        match form {
            Compression::FlowTag => _ = caps.mini_cqe_resp_flow_tag(false),
            Compression::ChecksumStride => _ = caps.mini_cqe_resp_stride_index(false),
            Compression::HeaderType => _ = caps.mini_cqe_resp_l3_l4_tag(false),
            _ => _ = caps.cqe_compression(false),
        }
        refuses(profile, form, named);
    }
}
