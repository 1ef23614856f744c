//! Flow rules: sends datagrams to a function whose rules receive, drop, and leave them by their UDP port, and prints
//! what each rule counted. Those to a fourth port are put into a tunnel by a rule of the sender; the
//! receiver takes them out in a further table, and changes them. Those to a fifth port are received, and some of them
//! counted as samples, where the card has samplers.
//!
//! `rules` (two functions of the software card), or `rules -d DEVICE --peer DEVICE`. On `devx:` the rules are before
//! those of the kernel, which keeps all other frames. `--vxlan PORT` sends the datagrams in VXLAN at a UDP port of its
//! own, and the rules look into it; there are no fourth and fifth ports then.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::objects::{
    Direction, ExclusiveRegion, FlowActions, FlowCounter, FlowGroup, FlowMatch, FlowRule, FlowRules, FlowRulesOptions,
    FlowSampler, FlowTable, FlowTableOptions, HeaderChanges, ModifyHeader, PacketReformat, Pd, VxlanPort, VxlanTunnel,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_dv::{Device, Error, Mac};
use mlx5_examples::pingpong::{Failure, is};
use mlx5_open::{Sim, program};

/// UDP ports of the frames that are received, dropped, left to the kernel or to a later rule, sent in a tunnel, and
/// sampled.
const RECEIVED: u16 = 7001;
const DROPPED: u16 = 7002;
const LEFT: u16 = 7003;
const TUNNELLED: u16 = 7004;
const SAMPLED: u16 = 7005;
/// Of so many frames one is sampled.
const RATIO: u32 = 3;
/// Flow tag of what is received.
const TAG: u32 = 0x7001;
/// Frame size without the check sequence, and what VXLAN adds to it.
const FRAME: usize = 60;
const AROUND: usize = HEADERS + 8;
/// Bytes of the headers of a datagram: Ethernet, IPv4, UDP.
const HEADERS: usize = 14 + 20 + 8;
/// The VXLAN networks of `--vxlan`, and of the sender's rule.
const NETWORK: u32 = 7;
const TUNNEL: u32 = 8;
/// DSCP and time to live of datagrams, and what the receiver makes of them after the tunnel.
const PLAIN: (u8, u8) = (0, 64);
const CHANGED: (u8, u8) = (46, 9);
/// Receives posted at once.
const DEPTH: usize = 16;
/// Timeout of one frame.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends datagrams to a function whose flow rules receive, drop and leave them, and prints what each rule counted.
#[derive(Debug, Parser)]
#[command(name = "rules")]
struct Arguments {
    /// Device with the rules: vfio:0000:3b:00.0, devx:mlx5_0; by default two functions of a software card.
    #[arg(short, long, requires = "peer")]
    device: Option<String>,
    /// The device on the same wire that sends.
    #[arg(long, requires = "device")]
    peer: Option<String>,
    /// Number of datagrams to each port.
    #[arg(short, long, default_value_t = 100)]
    iters: u32,
    /// Send the datagrams in VXLAN at this UDP port, other than 4789.
    #[arg(long)]
    vxlan: Option<u16>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("rules", || run(&arguments))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (here, peer) = devices(arguments)?;
    let mut receiver = queue(&here)?;
    let mut sender = queue(&peer)?;
    let mut options = FlowRulesOptions::default();
    options.tunnels = arguments.vxlan.is_none();
    let rules = FlowRules::create(&here, options)?;
    let [received, dropped, left] = [(); 3].map(|()| FlowCounter::create(&here));
    let (received, dropped, left) = (received?, dropped?, left?);
    let vxlan = arguments.vxlan.map(|port| VxlanPort::add(&here, port)).transpose()?;
    let to = |port| {
        let (ours, datagrams) = (FlowMatch::new().destination_mac(here.mac()), FlowMatch::new());
        match &vxlan {
            None => ours.udp_destination_port(port),
            Some(vxlan) => ours.vxlan_at(vxlan.port(), NETWORK).inner(datagrams.udp_destination_port(port)),
        }
    };
    let macs = (here.mac(), peer.mac());
    let datagram = |port, number| datagram(macs, arguments.vxlan, port, PLAIN, number);
    let leave = if here.is_owned() { FlowActions::drop() } else { FlowActions::kernel() };
    let _rules = [
        rules.add(0, &to(RECEIVED), FlowActions::forward(receiver.tir()).tag(TAG).count(&received))?,
        rules.add(0, &to(DROPPED), FlowActions::drop().count(&dropped))?,
        rules.add(1, &to(LEFT), leave.count(&left))?,
    ];
    let (entered, out) = (FlowCounter::create(&peer)?, FlowCounter::create(&here)?);
    let _tunnel = match vxlan {
        None => Some(tunnel(&rules, &receiver, (&entered, &out), &peer)?),
        Some(_) => None,
    };
    let (all, samples) = (FlowCounter::create(&here)?, FlowCounter::create(&here)?);
    let sampled = if vxlan.is_none() { sample(&rules, &receiver, (&all, &samples))? } else { None };
    rules.start()?;
    for (what, counter) in [("received", &received), ("dropped", &dropped), ("left", &left)] {
        is(what, &counter.read()?.packets, &0)?;
    }
    for number in 0..arguments.iters {
        if vxlan.is_none() {
            sender.send_inline(&datagram(TUNNELLED, number), FrameFlags::empty())?;
            sender.wait(PATIENCE)?.result?;
            let changed = self::datagram(macs, None, TUNNELLED, CHANGED, number);
            received_is(&mut receiver, &changed, number)?;
        }
        for port in [DROPPED, LEFT, RECEIVED] {
            sender.send_inline(&datagram(port, number), FrameFlags::empty())?;
            sender.wait(PATIENCE)?.result?;
        }
        received_is(&mut receiver, &datagram(RECEIVED, number), number)?;
        if sampled.is_some() {
            sender.send_inline(&datagram(SAMPLED, number), FrameFlags::empty())?;
            sender.wait(PATIENCE)?.result?;
            received_is(&mut receiver, &datagram(SAMPLED, number), number)?;
        }
    }
    for (what, port, counter) in [
        ("received", RECEIVED, &received),
        ("dropped", DROPPED, &dropped),
        ("left", LEFT, &left),
        ("into the tunnel", TUNNELLED, &entered),
        ("out of the tunnel", TUNNELLED, &out),
        ("sampled from", SAMPLED, &all),
        ("samples", SAMPLED, &samples),
    ] {
        if port == TUNNELLED && vxlan.is_some() || port == SAMPLED && sampled.is_none() {
            continue;
        }
        let counted = counter.read()?;
        println!("{what}: {} frames of {} bytes to port {port}", counted.packets, counted.bytes);
    }
    Ok(())
}

/// Rules for the datagrams to [`TUNNELLED`]: the sender puts them into VXLAN; the receiver takes them out, in a table
/// after those of its rules, and changes them. Counters: before the tunnel, and at its end, of frames as they come.
fn tunnel(
    rules: &FlowRules,
    receiver: &EthernetQueue,
    (entered, left): (&FlowCounter, &FlowCounter),
    peer: &Arc<Device>,
) -> Result<(FlowRules, [FlowRule; 3]), Failure> {
    let here = rules.device();
    let ends = VxlanTunnel {
        source_mac: peer.mac(),
        destination_mac: here.mac(),
        source: [10, 9, 0, 2].into(),
        destination: [10, 9, 0, 1].into(),
        source_port: 9001,
        vni: TUNNEL,
    };
    let datagrams = FlowMatch::new().destination_mac(here.mac()).udp_destination_port(TUNNELLED);
    let mut options = FlowRulesOptions::default();
    (options.direction, options.priorities, options.tunnels) = (Direction::Transmit, 1, true);
    let sent = FlowRules::create(peer, options)?;
    let vxlan = PacketReformat::vxlan(peer, &ends)?;
    let mut enter = sent.add(0, &datagrams, FlowActions::send().encap(&vxlan))?;
    sent.start()?;
    // Each frame meets the old actions or the new ones.
    enter.set_actions(FlowActions::send().encap(&vxlan).count(entered))?;
    let changes = HeaderChanges::new().dscp(CHANGED.0).ttl(CHANGED.1);
    let changes = ModifyHeader::create(here, Direction::Receive, &changes)?;
    let inside = FlowMatch::new().destination_mac(here.mac()).vxlan(TUNNEL).inner(datagrams);
    let mut options = FlowTableOptions::default();
    (options.level, options.tunnels) = (FlowRulesOptions::default().priorities, true);
    let next = FlowTable::with_options(here, options)?;
    let to_next = rules.add(0, &inside, FlowActions::table(&next).count(left))?;
    let leave = FlowActions::forward(receiver.tir()).tag(TAG).decap().modify(&changes);
    let every = FlowMatch::new();
    let leave = FlowRule::create(&FlowGroup::create(&next, 0..1, &every)?, &every, leave)?;
    Ok((sent, [enter, to_next, leave]))
}

/// Rules for the datagrams to [`SAMPLED`]: all are received, and one of [`RATIO`] is counted as a sample. Counters: of
/// all, and of samples. `None` on a card without samplers.
fn sample(
    rules: &FlowRules,
    receiver: &EthernetQueue,
    (all, samples): (&FlowCounter, &FlowCounter),
) -> Result<Option<[FlowRule; 3]>, Failure> {
    let here = rules.device();
    let every = FlowMatch::new();
    // A sampler has the level between the rules and its tables.
    let level = FlowRulesOptions::default().priorities + 1;
    let [default, sample] = [FlowTable::create(here, level, 1)?, FlowTable::create(here, level, 1)?];
    let sampler = match FlowSampler::create(RATIO, &sample, &default) {
        Err(Error::Unsupported { capability, .. }) => {
            println!("no frames are sampled: this card has no {capability}");
            return Ok(None);
        }
        made => made?,
    };
    let received = FlowActions::forward(receiver.tir()).tag(TAG).count(all);
    let rest = FlowRule::create(&FlowGroup::create(&default, 0..1, &every)?, &every, received)?;
    let counted = FlowActions::drop().count(samples);
    let some = FlowRule::create(&FlowGroup::create(&sample, 0..1, &every)?, &every, counted)?;
    let datagrams = every.destination_mac(here.mac()).udp_destination_port(SAMPLED);
    let rule = rules.add(0, &datagrams, FlowActions::sample(&sampler))?;
    Ok(Some([rule, rest, some]))
}

/// Error unless the next frame is `wanted`, and has the flow tag.
fn received_is(receiver: &mut EthernetQueue, wanted: &[u8], number: u32) -> Result<(), Failure> {
    let done = receiver.wait(PATIENCE)?;
    let (tag, frame) = (done.result?.work.qpn, done.received().unwrap_or_default());
    if tag != TAG || frame != wanted {
        return Err(format!("frame {number} is {frame:02x?}, of tag {tag:#x}").into());
    }
    if let Some(buffer) = done.buffer {
        receiver.receive(buffer)?;
    }
    Ok(())
}

fn devices(arguments: &Arguments) -> Result<(Arc<Device>, Arc<Device>), Failure> {
    match (&arguments.device, &arguments.peer) {
        (Some(here), Some(peer)) => Ok((mlx5_open::open(here)?, mlx5_open::open(peer)?)),
        _ => {
            let sim = Sim::builder().functions(2).build()?;
            Ok((sim.open(0)?, sim.open(1)?))
        }
    }
}

/// A queue with receives posted.
fn queue(device: &Arc<Device>) -> Result<EthernetQueue, Failure> {
    let pd = Pd::alloc(device)?;
    let mut options = EthernetOptions::default();
    options.inline_bytes = (FRAME + AROUND) as u16;
    let mut queue = EthernetQueue::new(&pd, options)?;
    let len = queue.sq().longest_frame().next_multiple_of(64);
    let region = ExclusiveRegion::allocate(&pd, DEPTH * len)?;
    for buffer in region.buffers(len)?.into_iter().take(DEPTH) {
        queue.receive(buffer)?;
    }
    Ok(queue)
}

/// A datagram with a number in it, in VXLAN at a port if one is given.
fn datagram(macs: (Mac, Mac), vxlan: Option<u16>, port: u16, marks: (u8, u8), number: u32) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(FRAME - HEADERS, number as u8);
    let frame = udp(macs, port, marks, &payload);
    match vxlan {
        None => frame,
        Some(port) => udp(macs, port, PLAIN, &[&[8, 0, 0, 0][..], &(NETWORK << 8).to_be_bytes(), &frame].concat()),
    }
}

/// A UDP datagram without a checksum, from 10.9.0.2 to 10.9.0.1, of this DSCP and time to live.
fn udp((to, from): (Mac, Mac), port: u16, (dscp, ttl): (u8, u8), payload: &[u8]) -> Vec<u8> {
    let (source, destination) = ([10, 9, 0, 2], [10, 9, 0, 1]);
    let lens = [(20 + 8 + payload.len()) as u16, (8 + payload.len()) as u16].map(u16::to_be_bytes);
    let mut ip = [&[0x45, dscp << 2][..], &lens[0], &[0, 0, 0x40, 0, ttl, 17, 0, 0], &source, &destination].concat();
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    let udp = [&9000u16.to_be_bytes()[..], &port.to_be_bytes(), &lens[1], &[0, 0]].concat();
    [&to.0[..], &from.0, &[8, 0], &ip, &udp, payload].concat()
}
