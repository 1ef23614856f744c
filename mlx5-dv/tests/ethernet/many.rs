//! Many frames of random sizes, headers and flags: each arrives once, in the order of its queue, with the bytes and
//! verdicts that another implementation (etherparse) computes, or is counted as lost by the card.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use etherparse::{IpHeaders, Ipv4Header, Ipv6Header, PacketBuilder};
use fastrand::Rng;
use mlx5_dv::objects::{AccessFlags, Buffer, Compression, MemoryRegion, Pd, QueueCounter, VlanTag};
use mlx5_dv::queue::ethernet::{
    EthernetOptions, EthernetQueue, FrameCompletion, FrameFlags, Packet, Spread, SpreadOptions, StridingOptions,
    StridingQueue,
};
use mlx5_dv::queue::{CompressedCompletionQueue, Side};
use mlx5_dv::{Device, Mac};
use mlx5_open::Sim;
use mlx5_prm::cqe::L3Header;

use crate::ends::{BUFFER, ROCE, SOON};

/// Frames that the sender has under way at most, and receives of each queue.
const DEPTH: usize = 256;
/// Longest frame that is sent inline.
const INLINE: usize = 128;
/// The longest frame of an MTU of 1500.
const LONGEST: usize = 1514;
/// Frames between two bursts that nobody receives.
const CALM: u64 = 20_000;

/// Frames of each receiver, in the short form and with `MLX5_LAB_LONG=1`: ten million of both together.
fn count() -> u64 {
    if std::env::var_os("MLX5_LAB_LONG").is_some_and(|value| value == "1") { 5_000_000 } else { 50_000 }
}

/// A frame to send.
struct Request {
    bytes: Vec<u8>,
    flags: FrameFlags,
    tag: Option<VlanTag>,
    wanted: Wanted,
}

/// How it has to arrive.
struct Wanted {
    bytes: Vec<u8>,
    l3: L3Header,
    l3_ok: bool,
    l4_ok: bool,
}

/// Frame `number`: without IP, or TCP or UDP over IPv4 or IPv6. It ends with its number.
fn request(random: &mut Rng, [from, to]: [Mac; 2], number: u64) -> Request {
    let builder = PacketBuilder::ethernet2(from.0, to.0);
    let (is_ip, is_v4, is_udp) = (random.u8(..8) != 0, random.bool(), random.bool());
    let options = if is_v4 { 4 * random.usize(..11) } else { 0 };
    let l4 = 14 + if is_v4 { 20 + options } else { 40 };
    let headers = if is_ip { l4 + if is_udp { 8 } else { 20 } } else { 14 };
    // Half of them short.
    let most = if random.bool() { 64 } else { LONGEST - headers };
    let mut payload = vec![random.u8(..); 8 + random.usize(..most - 7)];
    let end = payload.len() - 8;
    payload[end..].copy_from_slice(&number.to_be_bytes());

    let mut bytes = Vec::with_capacity(LONGEST);
    if is_ip {
        let step = builder.ip(addresses(random, is_v4, options));
        let (source, destination) = (random.u16(..), random.u16(..ROCE));
        let written = match is_udp {
            true => step.udp(source, destination).write(&mut bytes, &payload),
            false => {
                let step = step.tcp(source, destination, random.u32(..), random.u16(..));
                let step = if random.u8(..4) == 0 { step.syn() } else { step.ack(random.u32(..)) };
                step.write(&mut bytes, &payload)
            }
        };
        written.unwrap();
    } else {
        bytes.extend([&to.0[..], &from.0, &[0x88, 0xb5], &payload].concat());
    }

    let mut right = bytes.clone();
    let mut flags = FrameFlags::empty();
    let (mut l3_ok, mut l4_ok) = (is_ip, is_ip);
    if is_ip && is_v4 {
        let sum = 24..26;
        match random.u64(..4) {
            0 => bytes[sum].copy_from_slice(&random.u16(..).to_ne_bytes()),
            1 => spoil(&mut right, &mut bytes, sum.start, &mut l3_ok),
            _ => {}
        }
        flags.set(FrameFlags::L3_CHECKSUM, l3_ok && bytes[24..26] != right[24..26]);
    }
    if is_ip {
        let at = l4 + if is_udp { 6 } else { 16 };
        match random.u64(..4) {
            0 => bytes[at..at + 2].copy_from_slice(&random.u16(..).to_ne_bytes()),
            1 => spoil(&mut right, &mut bytes, at, &mut l4_ok),
            _ => {}
        }
        flags.set(FrameFlags::L4_CHECKSUM, l4_ok && bytes[at..at + 2] != right[at..at + 2]);
    }
    let tag = (random.u8(..8) == 0).then(|| VlanTag {
        ethertype: 0x8100,
        priority: random.u8(..8),
        vlan: random.u16(..4096),
    });
    if let Some(tag) = tag {
        let tci = u16::from(tag.priority) << 13 | tag.vlan;
        right.splice(12..12, [0x81, 0, (tci >> 8) as u8, tci as u8]);
    }
    let l3 = match (is_ip, is_v4) {
        (false, _) => L3Header::None,
        (true, true) => L3Header::Ipv4,
        (true, false) => L3Header::Ipv6,
    };
    Request { bytes, flags, tag, wanted: Wanted { bytes: right, l3, l3_ok, l4_ok } }
}

fn addresses(random: &mut Rng, is_v4: bool, options: usize) -> IpHeaders {
    if is_v4 {
        let (source, destination) = (random.u32(..).to_ne_bytes(), random.u32(..).to_ne_bytes());
        // The builder sets lengths, protocol and checksum.
        let mut header = Ipv4Header::new(0, 64, 17.into(), source, destination).unwrap();
        // NOPs.
        header.options = vec![1; options][..].try_into().unwrap();
        return IpHeaders::Ipv4(header, Default::default());
    }
    let (source, destination) = (random.u128(..).to_ne_bytes(), random.u128(..).to_ne_bytes());
    let header = Ipv6Header { hop_limit: 64, source, destination, ..Default::default() };
    IpHeaders::Ipv6(header, Default::default())
}

/// Makes the checksum at `at` a wrong one, on arrival, too. 0 would be none.
fn spoil(right: &mut [u8], bytes: &mut [u8], at: usize, is_ok: &mut bool) {
    let wrong = u16::from_be_bytes([right[at], right[at + 1]]) ^ 0x5555;
    if wrong != 0 {
        for frame in [right, bytes] {
            frame[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
        }
        *is_ok = false;
    }
}

/// What receives.
enum Receiver {
    Spread { queues: Vec<EthernetQueue>, _spread: Spread },
    Compressed(Box<StridingQueue<CompressedCompletionQueue>>),
    Striding(Box<StridingQueue>, Vec<Packet>),
}

impl Receiver {
    /// Four queues that frames are spread over by their hash.
    fn spread(pd: &Arc<Pd>, counter: &Arc<QueueCounter>) -> Receiver {
        let mut options = EthernetOptions::default().recv_depth(DEPTH as u32);
        options.counter = Some(Arc::clone(counter));
        let mut queues = EthernetQueue::several(pd, 4, &options).unwrap();
        for queue in &mut queues {
            let region = MemoryRegion::allocate(pd, DEPTH * BUFFER, AccessFlags::LOCAL_WRITE).unwrap();
            for buffer in region.buffers(BUFFER).unwrap().into_iter().take(DEPTH) {
                queue.receive(buffer).unwrap();
            }
        }
        let spread = Spread::listen(&queues, &[], SpreadOptions::default()).unwrap();
        Receiver::Spread { queues, _spread: spread }
    }

    /// A striding queue that is asked for many packets at a time.
    fn striding(pd: &Arc<Pd>, counter: &Arc<QueueCounter>) -> Receiver {
        let mut options = StridingOptions::default();
        options.counter = Some(Arc::clone(counter));
        let mut queue = StridingQueue::new(pd, options).unwrap();
        queue.listen(&[]).unwrap();
        Receiver::Striding(Box::new(queue), Vec::new())
    }

    /// A striding queue, with compressed completions, which tell checksums.
    fn compressed(pd: &Arc<Pd>, counter: &Arc<QueueCounter>) -> Receiver {
        let mut options = StridingOptions::default();
        options.counter = Some(Arc::clone(counter));
        let mut queue = StridingQueue::compressed(pd, options, Compression::Checksum).unwrap();
        queue.listen(&[]).unwrap();
        Receiver::Compressed(Box::new(queue))
    }

    /// Frames that have arrived, each with its queue, go to `heard`.
    fn poll(&mut self, mut heard: impl FnMut(usize, &[u8], &FrameCompletion)) {
        match self {
            Receiver::Spread { queues, .. } => {
                let (mut received, mut posts) = (Vec::new(), Vec::new());
                for (index, queue) in queues.iter_mut().enumerate() {
                    assert!(queue.poll_into(&mut received, &mut Vec::new(), 32).unwrap().is_none());
                    for frame in received.drain(..) {
                        let mut bytes = vec![0; frame.buffer.len()];
                        frame.buffer.read(0, &mut bytes);
                        heard(index, &bytes, &frame.completion);
                        posts.push(frame.buffer);
                    }
                    queue.receives().receive_each(&mut posts).unwrap();
                }
            }
            Receiver::Compressed(queue) => {
                while let Some(packet) = queue.poll().unwrap() {
                    heard(0, &packet, packet.completion());
                }
            }
            Receiver::Striding(queue, packets) => {
                while queue.poll_into(packets, 7).unwrap() > 0 {
                    for packet in packets.drain(..) {
                        heard(0, &packet, packet.completion());
                    }
                }
            }
        }
    }
}

/// Both ends, and what is under way.
struct Run {
    sender: EthernetQueue,
    free: Vec<Buffer>,
    receiver: Receiver,
    counter: Arc<QueueCounter>,
    macs: [Mac; 2],
    random: Rng,
    under_way: HashMap<u64, Wanted>,
    /// The last frame of each queue.
    last: [Option<u64>; 4],
    sent: u64,
    lost: u64,
}

impl Run {
    fn new(sim: &Sim, receiver: fn(&Arc<Pd>, &Arc<QueueCounter>) -> Receiver) -> Run {
        let devices: [Arc<Device>; 2] = std::array::from_fn(|function| sim.open(function).unwrap());
        let [here, there] = devices.each_ref().map(|device| Pd::alloc(device).unwrap());
        // An inline frame takes up to three places of the ring.
        let options = EthernetOptions::default().send_depth(4 * DEPTH as u32).inline_bytes(INLINE as u16);
        let sender = EthernetQueue::new(&here, options).unwrap();
        let region = MemoryRegion::allocate(&here, DEPTH * BUFFER, AccessFlags::empty()).unwrap();
        let counter = QueueCounter::alloc(&devices[1]).unwrap();
        Run {
            sender,
            free: region.buffers(BUFFER).unwrap(),
            receiver: receiver(&there, &counter),
            counter,
            macs: devices.each_ref().map(|device| device.mac()),
            random: Rng::with_seed(16),
            under_way: HashMap::new(),
            last: [None; 4],
            sent: 0,
            lost: 0,
        }
    }

    /// Sends up to 32 frames with one doorbell, some of them without a completion of their own.
    fn burst(&mut self, most: usize) {
        let room = DEPTH.saturating_sub(self.sender.in_flight().0).min(self.free.len());
        let most = most.min(room).min(1 + self.random.usize(..32));
        // Those that go together follow with the next that is alone.
        let mut together: Vec<Buffer> = Vec::new();
        let mut batch = self.sender.batch();
        for left in (0..most).rev() {
            let Request { bytes, flags, tag, wanted } = request(&mut self.random, self.macs, self.sent);
            match left > 0 && self.random.bool() {
                true => batch.quiet(),
                false => batch.signalled(),
            }
            if bytes.len() <= INLINE && tag.is_none() && self.random.bool() {
                batch.send_each(&mut together, FrameFlags::empty()).unwrap();
                batch.send_inline(&bytes, flags).unwrap();
            } else {
                let mut buffer = self.free.pop().unwrap();
                buffer.set_len(BUFFER);
                buffer.write(0, &bytes);
                buffer.set_len(bytes.len());
                together.push(buffer);
                if tag.is_none() && flags.is_empty() && left > 0 && self.random.bool() {
                    self.under_way.insert(self.sent, wanted);
                    self.sent += 1;
                    continue;
                }
                let buffer = together.pop().unwrap();
                batch.send_each(&mut together, FrameFlags::empty()).unwrap();
                match tag {
                    Some(tag) => batch.send_tagged(buffer, flags, tag).unwrap(),
                    None => batch.send(buffer, flags).unwrap(),
                };
            }
            self.under_way.insert(self.sent, wanted);
            self.sent += 1;
        }
    }

    fn poll_sender(&mut self) {
        while let Some(done) = self.sender.poll().unwrap() {
            assert_eq!(done.result.unwrap().work.side, Side::Send);
            self.free.extend(done.buffer);
        }
    }

    fn poll_receiver(&mut self) {
        let (under_way, last) = (&mut self.under_way, &mut self.last);
        self.receiver.poll(|queue, bytes, completion| {
            let number = u64::from_be_bytes(bytes[bytes.len() - 8..].try_into().unwrap());
            let wanted = under_way.remove(&number).unwrap_or_else(|| panic!("frame {number} twice, or of nobody"));
            assert_eq!(bytes, wanted.bytes, "frame {number}");
            assert!(last[queue] < Some(number), "{number} after {:?}", last[queue]);
            last[queue] = Some(number);
            let verdicts = (completion.l3(), completion.l3_checksum_ok(), completion.l4_checksum_ok());
            assert_eq!(verdicts, (wanted.l3, wanted.l3_ok, wanted.l4_ok), "frame {number}: {bytes:02x?}");
        });
    }

    /// Waits until everything that was sent has arrived, or was counted as lost.
    fn settle(&mut self) {
        let deadline = Instant::now() + SOON;
        loop {
            self.poll_sender();
            self.poll_receiver();
            let missing = self.under_way.len() as u64;
            if missing == 0 || u64::from(self.counter.out_of_buffer().unwrap()) - self.lost == missing {
                self.lost += missing;
                self.under_way.clear();
                return;
            }
            assert!(Instant::now() < deadline, "{missing} frames neither arrived nor are counted as lost");
        }
    }

    /// As long as receives are there for all that is under way, nothing is lost.
    fn calm(&mut self) {
        let (end, before) = (self.sent + CALM, self.lost);
        let mut deadline = Instant::now() + SOON;
        while self.sent < end {
            let room = DEPTH / 2 - self.under_way.len();
            if room > 0 {
                self.burst(room);
                deadline = Instant::now() + SOON;
            }
            self.poll_sender();
            self.poll_receiver();
            assert!(Instant::now() < deadline, "nothing moves, {} under way", self.under_way.len());
        }
        self.settle();
        assert_eq!(self.lost, before);
    }

    /// More frames than all queues have receives for, or strides.
    fn storm(&mut self) {
        let (end, before) = (self.sent + 30 * DEPTH as u64, self.lost);
        while self.sent < end {
            self.burst(32);
            self.poll_sender();
        }
        self.settle();
        assert!(self.lost > before, "a storm lost nothing");
    }
}

fn run(receiver: fn(&Arc<Pd>, &Arc<QueueCounter>) -> Receiver) {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut run = Run::new(&sim, receiver);
    while run.sent < count() {
        run.calm();
        run.storm();
    }
    assert_eq!(u64::from(run.counter.out_of_buffer().unwrap()), run.lost);
    println!("{} frames, {} of them lost and counted", run.sent, run.lost);
    drop(run);
    assert_eq!(sim.violations(), []);
}

#[test]
fn random_frames_over_four_queues_arrive_as_they_have_to_or_are_counted() {
    run(Receiver::spread);
}

#[test]
fn random_frames_in_strides_arrive_as_they_have_to_or_are_counted() {
    run(Receiver::striding);
}

#[test]
fn random_frames_in_strides_with_compressed_completions_arrive_as_they_have_to_or_are_counted() {
    run(Receiver::compressed);
}
