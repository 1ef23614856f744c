//! Our end of a wire, on this host: raw Ethernet queues of a function over vfio-user, whose frames a peer sends back.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use etherparse::{IpHeaders, Ipv4Header, Ipv6Header, PacketBuilder};
use fastrand::Rng;
use mlx5_dv::Mac;
use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd, VlanTag};
use mlx5_dv::queue::Side;
use mlx5_dv::queue::ethernet::{
    EthernetOptions, EthernetQueue, Forwarder, FrameFlags, ReceivedFrame, StridingOptions, StridingQueue,
};
use mlx5_lab::rounds;

use crate::common::{Report, TRAFFIC, TestResult};

/// Frames under way at most: fewer than the peers' rings have receives.
const WINDOW: usize = 256;
/// Receives, and buffers to send from.
const DEPTH: usize = 512;
/// Bytes of a buffer.
const BUFFER: usize = 2048;
/// The longest frame that is copied into a work request, by an end that copies.
const SHORT: u16 = 256;
/// Frames of a burst at most.
const BURST: u64 = 40;
/// Lengths without FCS: what Ethernet pads to, and the longest of an MTU of 1500.
const SHORTEST: usize = 60;
const LONGEST: usize = 1514;
/// The UDP port of RoCE, whose packets are not for Ethernet queues.
const ROCE: u16 = 4791;
/// Where the headers of layer 3 begin.
const L3: usize = 14;

/// What is in a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    NoIp,
    Ipv4,
    Ipv6,
}

/// What comes back by a striding queue, and goes out once more from where it was received.
struct InPlace {
    receiver: StridingQueue,
    forwarder: Forwarder,
}

/// A frame that is under way.
struct UnderWay {
    /// As it has to come back.
    wanted: Vec<u8>,
    /// How often it goes out again.
    again: u64,
}

/// Our end, and what is under way.
pub struct OurEnd {
    queue: EthernetQueue,
    /// `None` if frames come back to `queue`.
    in_place: Option<InPlace>,
    free: Vec<Buffer>,
    received: Vec<ReceivedFrame>,
    /// Our address, and the peer's.
    pub macs: [Mac; 2],
    random: Rng,
    under_way: HashMap<u64, UnderWay>,
    sent: u64,
    /// Of these, how many went out by multi-packet work requests.
    together: u64,
}

/// Opens an end on the function at a socket, whose peer has a MAC address.
type Open = fn(&Path, &str) -> Result<OurEnd, Report>;

/// Each kind of end, and how many frames it exchanges.
pub fn ends() -> [(Open, u64); 2] {
    [(OurEnd::open, rounds(10_000, 10_000_000) as u64), (OurEnd::in_place, rounds(10_000, 1_000_000) as u64)]
}

impl OurEnd {
    /// Takes the function at `socket`, to send to `peer`. Short frames are copied into work requests. Frames come back
    /// to buffers of their own.
    fn open(socket: &Path, peer: &str) -> Result<Self, Report> {
        let mut end = OurEnd::new(socket, peer, SHORT)?;
        end.queue.listen(&[])?;
        Ok(end)
    }

    /// As [`open`](Self::open), without copies. Frames come back to a striding queue, and each is forwarded from there
    /// once.
    fn in_place(socket: &Path, peer: &str) -> Result<Self, Report> {
        let mut end = OurEnd::new(socket, peer, 0)?;
        let mut receiver = StridingQueue::new(end.queue.sq().pd(), StridingOptions::default())?;
        receiver.listen(&[])?;
        let forwarder = Forwarder::new(&receiver, DEPTH as u32)?;
        end.in_place = Some(InPlace { receiver, forwarder });
        Ok(end)
    }

    /// Frames of up to `copied` bytes are copied.
    fn new(socket: &Path, peer: &str, copied: u16) -> Result<Self, Report> {
        let device = mlx5_open::open(&format!("vfio-user:{}", socket.display()))?;
        let pd = Pd::alloc(&device)?;
        let options = EthernetOptions::default().send_depth(2 * DEPTH as u32).recv_depth(DEPTH as u32);
        let mut queue = EthernetQueue::new(&pd, options.inline_up_to(copied))?;
        assert!(queue.sq().most_packets() > 1, "multi-packet work requests are what is tried");
        let buffers = |access| -> Result<Vec<Buffer>, Report> {
            Ok(MemoryRegion::allocate(&pd, DEPTH * BUFFER, access)?.buffers(BUFFER)?)
        };
        let free = buffers(AccessFlags::empty())?;
        queue.receives().receive_each(&mut buffers(AccessFlags::LOCAL_WRITE)?)?;
        Ok(OurEnd {
            queue,
            in_place: None,
            free,
            received: Vec::new(),
            macs: [device.mac(), peer.parse()?],
            random: Rng::with_seed(16),
            under_way: HashMap::new(),
            sent: 0,
            together: 0,
        })
    }

    /// How often each frame goes out, and comes back.
    pub fn times(&self) -> u64 {
        if self.in_place.is_some() { 2 } else { 1 }
    }

    /// Sends `count` frames, most of them by multi-packet work requests. The peer sends them back with their addresses
    /// swapped: each comes as it has to be, and once for each [time](Self::times) that it goes out.
    pub fn exchange(&mut self, count: u64) -> TestResult {
        let (end, before, begin) = (self.sent + count, self.together, Instant::now());
        let mut deadline = Instant::now() + TRAFFIC;
        while self.sent < end || !self.under_way.is_empty() {
            let room = WINDOW - self.under_way.len();
            if room >= BURST as usize && self.sent < end {
                let most = (1 + self.random.u64(..BURST)).min(end - self.sent);
                self.burst(most)?;
            }
            if self.poll()? {
                deadline = Instant::now() + TRAFFIC;
            }
            if Instant::now() > deadline {
                let (lost, of) = (self.under_way.len(), self.sent);
                return Err(format!("{lost} of {of} frames have not come back").into());
            }
        }
        let (times, together) = (self.times(), self.together - before);
        println!("{count} frames, {times} times each, in {:?}, {together} of them with others", begin.elapsed());
        assert!(together > count / 2, "{together}");
        Ok(())
    }

    /// Sends so many frames with one doorbell: those with the same offloads together, some others alone.
    fn burst(&mut self, most: u64) -> TestResult {
        let end = self.sent + most;
        while self.sent < end {
            let (flags, kind) = match self.random.u64(..4) {
                0 => (FrameFlags::L4_CHECKSUM, Some(Kind::Ipv6)),
                1 => (FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM, Some(Kind::Ipv4)),
                _ => (FrameFlags::empty(), None),
            };
            let tag = (self.random.u8(..8) == 0).then(|| self.tag());
            let count = if tag.is_some() { 1 } else { (1 + self.random.u64(..12)).min(end - self.sent) };
            let mut buffers = (0..count).map(|_| self.frame(flags, kind, tag)).collect::<Result<Vec<_>, _>>()?;
            let mut batch = self.queue.batch();
            match (tag, buffers.pop()) {
                (Some(tag), Some(buffer)) => _ = batch.send_tagged(buffer, flags, tag)?,
                (None, Some(last)) => {
                    buffers.push(last);
                    self.together += if count > 1 { count } else { 0 };
                    batch.send_each(&mut buffers, flags)?;
                }
                (_, None) => {}
            }
        }
        Ok(())
    }

    fn tag(&mut self) -> VlanTag {
        let (priority, vlan) = (self.random.u8(..8), 1 + self.random.u16(..4094));
        VlanTag { ethertype: 0x8100, priority, vlan }
    }

    /// The next frame, in a buffer. The card computes checksums as `flags` say, and inserts `tag`.
    fn frame(&mut self, flags: FrameFlags, kind: Option<Kind>, tag: Option<VlanTag>) -> Result<Buffer, Report> {
        let drawn = [Kind::NoIp, Kind::Ipv4, Kind::Ipv6][self.random.usize(..3)];
        let mut bytes = self.bytes(kind.unwrap_or(drawn))?;
        let mut wanted = bytes.clone();
        wanted[..6].copy_from_slice(&self.macs[0].0);
        wanted[6..12].copy_from_slice(&self.macs[1].0);
        if let Some(tag) = tag {
            let tci = u16::from(tag.priority) << 13 | tag.vlan;
            wanted.splice(12..12, [0x81, 0, (tci >> 8) as u8, tci as u8]);
        }
        // What the card has to fill in.
        if flags.contains(FrameFlags::L3_CHECKSUM) {
            bytes[L3 + 10..L3 + 12].copy_from_slice(&self.random.u16(..).to_ne_bytes());
        }
        if flags.contains(FrameFlags::L4_CHECKSUM) {
            let at = l4_checksum(&bytes);
            bytes[at..at + 2].copy_from_slice(&self.random.u16(..).to_ne_bytes());
        }
        self.under_way.insert(self.sent, UnderWay { wanted, again: self.times() - 1 });
        self.sent += 1;
        let mut buffer = self.free.pop().ok_or("no buffer is free")?;
        buffer.set_len(BUFFER);
        buffer.write(0, &bytes);
        buffer.set_len(bytes.len());
        Ok(buffer)
    }

    /// The bytes of the next frame, with right checksums: they end with its number.
    fn bytes(&mut self, kind: Kind) -> Result<Vec<u8>, Report> {
        let [from, to] = self.macs;
        let random = &mut self.random;
        let options = if kind == Kind::Ipv4 { 4 * random.usize(..11) } else { 0 };
        let is_udp = random.bool();
        let ip = match kind {
            Kind::NoIp => 0,
            Kind::Ipv4 => 20 + options,
            Kind::Ipv6 => 40,
        };
        let headers = L3 + if ip == 0 { 0 } else { ip + if is_udp { 8 } else { 20 } };
        let least = SHORTEST.saturating_sub(headers).max(8);
        // Half of them short.
        let most = if random.bool() { least + 64 } else { LONGEST - headers };
        let mut payload = vec![random.u8(..); least + random.usize(..=most - least)];
        let end = payload.len() - 8;
        payload[end..].copy_from_slice(&self.sent.to_be_bytes());
        if kind == Kind::NoIp {
            return Ok([&to.0[..], &from.0, &[0x88, 0xb5], &payload].concat());
        }
        let step = PacketBuilder::ethernet2(from.0, to.0).ip(addresses(random, kind == Kind::Ipv4, options)?);
        let (source, destination) = (random.u16(..), random.u16(..ROCE));
        let mut bytes = Vec::with_capacity(LONGEST);
        match is_udp {
            true => step.udp(source, destination).write(&mut bytes, &payload)?,
            false => {
                let step = step.tcp(source, destination, random.u32(..), random.u16(..));
                let step = if random.u8(..4) == 0 { step.syn() } else { step.ack(random.u32(..)) };
                step.write(&mut bytes, &payload)?;
            }
        }
        Ok(bytes)
    }

    /// Takes what was sent and what has come. Returns whether anything has.
    fn poll(&mut self) -> Result<bool, Report> {
        if let Some(failed) = self.queue.poll_into(&mut self.received, &mut self.free, WINDOW)? {
            return Err(format!("{failed:?}").into());
        }
        let (mut posts, mut any) = (Vec::new(), !self.received.is_empty());
        if let Some(InPlace { receiver, forwarder }) = &mut self.in_place {
            let mut batch = forwarder.batch(FrameFlags::empty())?;
            batch.push_each(receiver.burst(BURST as usize)?, |frame| {
                any = true;
                came_back(&mut self.under_way, frame)
            })?;
            batch.ring();
        }
        for ReceivedFrame { mut buffer, completion } in self.received.drain(..) {
            assert_eq!(completion.work.side, Side::Receive);
            let mut bytes = vec![0; buffer.len()];
            buffer.read(0, &mut bytes);
            assert!(!came_back(&mut self.under_way, &mut bytes));
            buffer.set_len(BUFFER);
            posts.push(buffer);
        }
        self.queue.receives().receive_each(&mut posts)?;
        Ok(any)
    }
}

/// Checks a frame that came back. Returns whether it is to go out again: its addresses are swapped then.
fn came_back(under_way: &mut HashMap<u64, UnderWay>, frame: &mut [u8]) -> bool {
    let number = frame.last_chunk().map_or(0, |number| u64::from_be_bytes(*number));
    let Some(known) = under_way.get_mut(&number) else {
        panic!("frame {number} came too often, or of nobody: {frame:02x?}");
    };
    assert_eq!(frame, known.wanted, "frame {number}");
    if known.again == 0 {
        under_way.remove(&number);
        return false;
    }
    known.again -= 1;
    let (to, from) = frame.split_at_mut(6);
    to.swap_with_slice(&mut from[..6]);
    true
}

/// Where the checksum of TCP or UDP is in a frame of IP.
fn l4_checksum(frame: &[u8]) -> usize {
    let (ip, protocol) = match frame[L3] >> 4 {
        4 => (usize::from(frame[L3] & 15) * 4, frame[L3 + 9]),
        _ => (40, frame[L3 + 6]),
    };
    const UDP: u8 = 17;
    L3 + ip + if protocol == UDP { 6 } else { 16 }
}

fn addresses(random: &mut Rng, is_v4: bool, options: usize) -> Result<IpHeaders, Report> {
    if is_v4 {
        let (source, destination) = (random.u32(..).to_ne_bytes(), random.u32(..).to_ne_bytes());
        // The builder sets lengths, protocol and checksum.
        let mut header = Ipv4Header::new(0, 64, 17.into(), source, destination)?;
        // NOPs.
        header.options = vec![1; options][..].try_into()?;
        return Ok(IpHeaders::Ipv4(header, Default::default()));
    }
    let (source, destination) = (random.u128(..).to_ne_bytes(), random.u128(..).to_ne_bytes());
    let header = Ipv6Header { hop_limit: 64, source, destination, ..Default::default() };
    Ok(IpHeaders::Ipv6(header, Default::default()))
}
