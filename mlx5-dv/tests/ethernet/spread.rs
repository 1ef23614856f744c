//! Frames spread over several queues.

use std::net::Ipv4Addr;
use std::time::Duration;

use mlx5_dv::objects::{
    AccessFlags, HashFields, HashFunction, MemoryRegion, Rqt, RssOptions, TOEPLITZ_KEY, Tir, Tis, Traffic,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags, Spread, SpreadOptions};
use mlx5_open::Sim;
use mlx5_prm::ctx::{L3ProtType, L4ProtType, RxHashFn, TirDispType};

use crate::ends::{BUFFER, EthernetEnd, SOON, content, end, refusal};

/// Source, destination, their ports, and the hash with ports and without.
pub type Example = ([u8; 4], [u8; 4], (u16, u16), u32, u32);

/// Examples of Microsoft's RSS specification.
pub const EXAMPLES: [Example; 5] = [
    ([66, 9, 149, 187], [161, 142, 100, 80], (2794, 1766), 0x51cc_c178, 0x323e_8fc2),
    ([199, 92, 111, 2], [65, 69, 140, 83], (14230, 4739), 0xc626_b0ea, 0xd718_262a),
    ([24, 19, 198, 95], [12, 22, 207, 184], (12898, 38024), 0x5c2b_394a, 0xd2d0_a5de),
    ([38, 27, 205, 30], [209, 142, 163, 6], (48228, 2217), 0xafc7_327f, 0x8298_9176),
    ([153, 39, 163, 191], [202, 188, 127, 2], (44251, 1303), 0x10e8_28a2, 0x5d18_09c5),
];
const QUEUES: usize = 4;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP: u8 = 1;

/// An IPv4 frame of 60 bytes from `here` with `protocol`, whose payload starts with both ports.
pub fn ipv4(head: &[u8], protocol: u8, source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut frame = [&head[..12], &[8, 0]].concat();
    let mut header = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&source);
    header[16..20].copy_from_slice(&destination);
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    // A data offset that TCP takes; a length and no checksum for UDP.
    let rest: &[u8] =
        if protocol == TCP { &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0] } else { &[0, 26, 0, 0] };
    frame.extend(rest);
    frame.resize(60, 0);
    frame
}

/// The second function with several queues, each with receives posted.
struct Receiver {
    queues: Vec<EthernetQueue>,
    end: EthernetEnd,
}

impl Receiver {
    fn new(sim: &Sim) -> Self {
        let end = EthernetEnd::new(sim, 1, EthernetOptions::default());
        let mut queues = EthernetQueue::several(&end.pd, QUEUES, &EthernetOptions::default()).unwrap();
        for queue in &mut queues {
            let region = MemoryRegion::allocate(&end.pd, 32 * BUFFER, AccessFlags::LOCAL_WRITE).unwrap();
            for buffer in region.buffers(BUFFER).unwrap().into_iter().take(32) {
                queue.receive(buffer).unwrap();
            }
        }
        Receiver { queues, end }
    }

    /// The queue that gets `frame`, and nobody else.
    fn whose(&mut self, frame: &[u8]) -> usize {
        let begin = std::time::Instant::now();
        loop {
            let found = (0..QUEUES).find_map(|index| Some((index, self.queues[index].poll().unwrap()?)));
            if let Some((index, done)) = found {
                let buffer = done.buffer.as_ref().map(|_| ());
                assert!(buffer.is_some());
                assert_eq!(content(done), frame);
                return index;
            }
            assert!(begin.elapsed() < SOON, "nobody got the frame");
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

fn sim() -> (Sim, EthernetEnd, Receiver) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let (here, there) = (EthernetEnd::new(&sim, 0, EthernetOptions::default()), Receiver::new(&sim));
    (sim, here, there)
}

#[test]
fn frames_go_where_the_published_hash_says() {
    let (sim, mut here, mut there) = sim();
    let spread = Spread::listen(&there.queues, &[], SpreadOptions::default()).unwrap();
    assert_eq!(spread.rqt().rqs().len(), 128);
    let head = here.frame(there.end.device.mac(), &[]);
    let mut seen = [false; QUEUES];
    for (source, destination, ports, with_ports, without) in EXAMPLES {
        for (protocol, hash) in [(TCP, with_ports), (UDP, with_ports), (ICMP, without)] {
            let frame = ipv4(&head, protocol, source, destination, ports);
            here.send(&frame);
            let queue = there.whose(&frame);
            assert_eq!(queue, hash as usize % 128 % QUEUES, "{} {protocol}", Ipv4Addr::from(source));
            seen[queue] = true;
        }
    }
    assert!(seen.iter().filter(|seen| **seen).count() > 2, "{seen:?}");
    // What is not IP, and what is for all.
    let other = here.frame(there.end.device.mac(), &[7; 60]);
    here.send(&other);
    assert_eq!(there.whose(&other), 0);
    let to_all = here.frame(mlx5_dv::Mac::BROADCAST, b"to all, without IP in it, to the first queue");
    here.send(&to_all);
    assert_eq!(there.whose(&to_all), 0);
    drop(spread);
    let Receiver { queues, end: receiver } = there;
    drop(queues);
    end(sim, [here, receiver], &[]);
}

#[test]
fn the_table_changes_while_frames_arrive_and_both_ways_of_a_flow_stay_together() {
    let (sim, mut here, mut there) = sim();
    let mut options = SpreadOptions::default();
    (options.entries, options.symmetric) = (8, true);
    let spread = Spread::listen(&there.queues, &[], options).unwrap();
    let head = here.frame(there.end.device.mac(), &[]);
    for (source, destination, ports, ..) in EXAMPLES {
        let way = ipv4(&head, UDP, source, destination, ports);
        let back = ipv4(&head, UDP, destination, source, (ports.1, ports.0));
        here.send(&way);
        let queue = there.whose(&way);
        here.send(&back);
        assert_eq!(there.whose(&back), queue);
    }
    for target in [3, 1] {
        spread.set(&[target; 8]).unwrap();
        assert_eq!(spread.rqt().query().unwrap(), [there.queues[target].rq().rqn(); 8]);
        for (source, destination, ports, ..) in EXAMPLES {
            let frame = ipv4(&head, TCP, source, destination, ports);
            here.send(&frame);
            assert_eq!(there.whose(&frame), target);
        }
    }
    spread.set(&[2]).unwrap();
    let text = refusal(spread.set(&[0, 4]));
    assert!(text.starts_with("index of a queue is 4"), "{text}");
    let text = refusal(spread.set(&[0; 16]));
    assert!(text.starts_with("entries is 16"), "{text}");
    let text = refusal(spread.set(&[0; 3]));
    assert!(text.contains("3 entries is no power of two"), "{text}");
    let frame = ipv4(&head, TCP, [1, 2, 3, 4], [5, 6, 7, 8], (9, 10));
    here.send(&frame);
    assert_eq!(there.whose(&frame), 2, "what was refused changed nothing");
    drop(spread);
    let Receiver { queues, end: receiver } = there;
    drop(queues);
    end(sim, [here, receiver], &[]);
}

#[test]
fn the_card_is_asked_for_the_contexts_of_what_frames_pass_by() {
    let (sim, here, there) = sim();
    let rqs: Vec<_> = there.queues[..2].iter().map(|queue| queue.rq().clone()).collect();
    let (rqt, domain) = (Rqt::create(&rqs).unwrap(), there.end.queue.tir().transport_domain());
    assert_eq!(rqt.query().unwrap(), [rqs[0].rqn(), rqs[1].rqn()]);
    rqt.set(&rqs[1..]).unwrap();
    assert_eq!(rqt.query().unwrap(), [rqs[1].rqn()]);

    let hashed = RssOptions::new(Traffic::UdpIpv6).symmetric(true).function(HashFunction::Xor);
    let tir = Tir::create_rss(domain, &rqt, hashed).unwrap();
    let context = tir.query().unwrap();
    assert_eq!((context.disp_type(), context.indirect_table()), (TirDispType::Indirect, rqt.rqtn()));
    assert_eq!((context.rx_hash_fn(), context.rx_hash_symmetric()), (RxHashFn::InvertedXor8, true));
    assert_eq!(context.transport_domain(), domain.number());
    let select = context.rx_hash_field_selector_outer();
    assert_eq!((select.l3_prot_type(), select.l4_prot_type()), (L3ProtType::Ipv6, L4ProtType::Udp));
    assert_eq!(select.selected_fields(), HashFields::FLOW.bits());
    let direct = there.end.queue.tir().query().unwrap();
    assert_eq!((direct.disp_type(), direct.inline_rqn()), (TirDispType::Direct, there.end.queue.rq().rqn()));

    let tis = Tis::create(domain, 5).unwrap();
    let context = tis.query().unwrap();
    assert_eq!((context.prio() >> 1, context.transport_domain()), (5, domain.number()));
    drop((tis, tir, rqt, rqs));
    let Receiver { queues, end: receiver } = there;
    drop(queues);
    end(sim, [here, receiver], &[]);
}

#[test]
fn spreads_that_cannot_be_are_refused() {
    let (sim, here, there) = sim();
    let none: [EthernetQueue; 0] = [];
    assert_eq!(refusal(Spread::listen(&none, &[], SpreadOptions::default())), "a spread of frames without queues");
    let mut few = SpreadOptions::default();
    few.entries = 2;
    let text = refusal(Spread::listen(&there.queues, &[], few));
    assert!(text.starts_with("entries is 2"), "{text}");
    let mut many = SpreadOptions::default();
    many.entries = 1 << 20;
    let text = refusal(Spread::listen(&there.queues, &[], many));
    assert!(text.contains("log_max_rqt_size"), "{text}");
    let strangers = [&there.queues[0], &there.end.queue];
    let text = refusal(Spread::listen(strangers, &[], SpreadOptions::default()));
    assert!(text.contains("EthernetQueue::several"), "{text}");
    assert!(refusal(Rqt::create(&[])).contains("without receive queues"));
    let mut xor = SpreadOptions::default();
    xor.function = HashFunction::Xor;
    let spread = Spread::listen(&there.queues, &[], xor).unwrap();
    let kept = Rqt::destroy(spread.rqt().clone()).unwrap_err();
    drop((kept, spread));
    assert_eq!(TOEPLITZ_KEY.len(), 40);
    let Receiver { queues, end: receiver } = there;
    drop(queues);
    end(sim, [here, receiver], &[]);
}

#[test]
fn queues_of_one_spread_do_not_hear_each_other() {
    let (sim, here, mut there) = sim();
    let spread = Spread::listen(&there.queues, &[], SpreadOptions::default()).unwrap();
    let own = there.end.device.mac();
    let frame = [&own.0[..], &own.0, &[0x88, 0xb5], &[1; 46]].concat();
    there.queues[2].send_inline(&frame[..18], FrameFlags::empty()).unwrap();
    there.queues[2].wait(SOON).unwrap().result.unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(there.queues.iter_mut().all(|queue| queue.poll().unwrap().is_none()));
    drop(spread);
    let Receiver { queues, end: receiver } = there;
    drop(queues);
    end(sim, [here, receiver], &[]);
}
