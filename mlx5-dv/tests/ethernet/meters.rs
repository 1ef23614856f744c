//! Flow meters: which frames have which colour, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use etherparse::PacketBuilder;
use mlx5_dv::Device;
use mlx5_dv::objects::{
    Direction, FlowActions, FlowCounter, FlowGroup, FlowMatch, FlowMeter, FlowMeterColor, FlowMeters, FlowRule,
    FlowRules, FlowRulesOptions, FlowTable, FlowTableOptions, MeterRate, Pd,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags, MeterWriter};
use mlx5_open::Sim;
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::profile::Profile;
use mlx5_sim::world::Conditions;

use crate::ends::{EthernetEnd, end_in_peace, refusal, two_of};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a frame: 512 of IP, of which a card has all multiples here exactly.
const FRAME: usize = 526;
/// UDP ports of the rules.
const PORTS: [u16; 2] = [7001, 7002];
/// The register that has the colour.
const REGISTER: u8 = 5;
const COLORS: [FlowMeterColor; 3] = [FlowMeterColor::Green, FlowMeterColor::Yellow, FlowMeterColor::Red];

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A function that sends, and one that meters what it sends, or what it receives.
struct Metered {
    world: World,
    sender: EthernetQueue,
    frames: [Vec<u8>; 2],
    meters: Arc<FlowMeters>,
    writer: MeterWriter,
    by_color: [FlowCounter; 3],
    _rules: (FlowRules, Vec<FlowRule>),
}

impl Metered {
    /// Frames to either port go through meter 3, to be counted and dropped by their colour in the next table.
    fn new(direction: Direction) -> Result<Self, Box<dyn std::error::Error>> {
        let world = World::new(1);
        let card = || Card::builder().profile(Profile::connectx6dx());
        let (cards, _) = world.simulated().joined([card(), card()], Conditions::default())?;
        let [here, there] = [world.open(&cards[0])?, world.open(&cards[1])?];
        let mut options = EthernetOptions::default();
        options.inline_bytes = FRAME as u16;
        let sender = EthernetQueue::new(&Pd::alloc(&here)?, options)?;
        let frames = PORTS.map(|port| {
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2(here.mac().0, there.mac().0).ipv4([10; 4], [11; 4], 64).udp(9, port);
            builder.write(&mut frame, &[7; FRAME - 42]).unwrap();
            frame
        });
        let device = if direction == Direction::Transmit { &here } else { &there };
        let pd = Pd::alloc(device)?;
        let (meters, writer) = (FlowMeters::create(&pd)?, MeterWriter::new(&pd)?);
        let by_color = [FlowCounter::create(device)?, FlowCounter::create(device)?, FlowCounter::create(device)?];
        let rules = rules(device, direction, &meters.meter(3)?, &by_color)?;
        Ok(Metered { world, sender, frames, meters, writer, by_color, _rules: rules })
    }

    /// Lets so much time pass.
    fn pass(&self, time: Duration) {
        let clock = self.world.clock();
        let end = clock.now() + time;
        while clock.now() < end {
            clock.pause(end - clock.now());
        }
    }

    /// The colours of `count` frames that are sent to a port: so many are green, yellow and red.
    fn colors(&mut self, port: usize, count: usize) -> Result<[u64; 3], Box<dyn std::error::Error>> {
        let read = |metered: &Self| -> Result<Vec<u64>, mlx5_dv::Error> {
            metered.by_color.iter().map(|counter| Ok(counter.read()?.packets)).collect()
        };
        let before = read(self)?;
        for _ in 0..count {
            self.sender.send_inline(&self.frames[port], FrameFlags::empty())?;
            self.sender.wait(PATIENCE)?.result?;
        }
        let all: u64 = before.iter().sum::<u64>() + count as u64;
        let (end, mut after) = (self.world.clock().now() + PATIENCE, read(self)?);
        while after.iter().sum::<u64>() < all {
            assert!(self.world.clock().now() < end, "{after:?} of {all}");
            self.pass(Duration::from_micros(1));
            after = read(self)?;
        }
        Ok([0, 1, 2].map(|color: usize| after[color] - before[color]))
    }
}

fn rules(
    device: &Arc<Device>,
    direction: Direction,
    meter: &FlowMeter,
    by_color: &[FlowCounter; 3],
) -> Result<(FlowRules, Vec<FlowRule>), mlx5_dv::Error> {
    let (mut options, mut later) = (FlowRulesOptions::default(), FlowTableOptions::default());
    (options.direction, later.direction) = (direction, direction);
    (later.level, later.entries) = (options.priorities, 4);
    let (rules, later) = (FlowRules::create(device, options)?, FlowTable::with_options(device, later)?);
    let of_color = |color| FlowMatch::new().color(REGISTER, color);
    let group = FlowGroup::create(&later, 0..3, &of_color(FlowMeterColor::Red))?;
    let mut made = Vec::new();
    for (color, counter) in COLORS.into_iter().zip(by_color) {
        made.push(FlowRule::create(&group, &of_color(color), FlowActions::drop().count(counter))?);
    }
    for port in PORTS {
        let matched = FlowMatch::new().udp_destination_port(port);
        made.push(rules.add(0, &matched, FlowActions::table(&later).meter(meter, REGISTER))?);
    }
    rules.start()?;
    Ok((rules, made))
}

#[test]
fn frames_within_the_rate_are_green_by_whichever_rule() -> TestResult {
    for direction in [Direction::Receive, Direction::Transmit] {
        let mut metered = Metered::new(direction)?;
        assert_eq!(metered.colors(0, 9)?, [9, 0, 0], "not set: {direction:?}");
        let meter = metered.meters.meter(3)?;
        // A frame each second, and four at once. All else here takes milliseconds.
        metered.writer.set(&meter, MeterRate::frame_bytes(FRAME as u64, 4 * FRAME as u64 + 100))?;
        let found = [metered.colors(0, 3)?, metered.colors(1, 7)?];
        assert_eq!(found, [[3, 0, 0], [1, 0, 6]], "{direction:?}");
        metered.pass(Duration::from_millis(2100));
        assert_eq!(metered.colors(0, 5)?, [2, 0, 3], "{direction:?}");
        metered.pass(Duration::from_secs(10));
        assert_eq!(metered.colors(1, 6)?, [4, 0, 2], "{direction:?}");
    }
    Ok(())
}

#[test]
fn a_second_bucket_makes_frames_yellow() -> TestResult {
    let mut metered = Metered::new(Direction::Receive)?;
    let meter = metered.meters.meter(3)?;
    metered.writer.set(&meter, MeterRate::packets(1, 3).excess_burst(2))?;
    assert_eq!(metered.colors(0, 9)?, [3, 2, 4]);
    metered.pass(Duration::from_secs(6));
    assert_eq!(metered.colors(0, 9)?, [3, 2, 4], "what the first had no room for");
    let bytes = (FRAME - 14) as u64;
    metered.writer.set(&meter, MeterRate::ip_bytes(1, 3 * bytes).excess(bytes, 2 * bytes))?;
    assert_eq!(metered.colors(0, 9)?, [3, 2, 4]);
    metered.pass(Duration::from_millis(1500));
    assert_eq!(metered.colors(0, 9)?, [0, 1, 8], "the second's own rate");
    metered.writer.set(&meter, MeterRate::ip_bytes(1, 3 * bytes).peak(bytes, 5 * bytes))?;
    assert_eq!(metered.colors(0, 9)?, [3, 2, 4], "green ones are of both");
    // Another meter of the same object is not touched.
    metered.writer.set(&metered.meters.meter(2)?, MeterRate::packets(1, 1))?;
    let parameters = meter.query()?;
    assert!(parameters.both_buckets_on_green() && parameters.valid(), "{parameters:?}");
    assert_eq!(metered.meters.meter(2)?.query()?.cbs_mantissa(), 128, "a packet counts 128 bytes");
    Ok(())
}

#[test]
fn a_meter_that_nothing_comes_of_and_cards_without_are_refused() {
    let profile = Profile::connectx6dx();
    let (sim, here, there) = two_of(Sim::builder().profile(profile), EthernetOptions::default());
    let meters = FlowMeters::create(&here.pd).unwrap();
    let mut writer = MeterWriter::new(&here.pd).unwrap();
    assert_eq!(meters.count(), 128);
    let meter = meters.meter(127).unwrap();
    let text = refusal(meters.meter(128).map(drop));
    assert!(text.contains("log_meter_aso_granularity"), "{text}");
    for wrong in [MeterRate::packets(0, 1), MeterRate::frame_bytes(1, 1 << 31)] {
        let text = refusal(writer.set(&meter, wrong));
        assert!(text.contains("flow meter"), "{text}");
    }
    let rules = FlowRules::create(&here.device, FlowRulesOptions::default()).unwrap();
    let later = FlowTable::create(&here.device, FlowRulesOptions::default().priorities, 1).unwrap();
    let tir = here.queue.tir().clone();
    for (actions, wanted) in [
        (FlowActions::forward(&tir).meter(&meter, 0), "forwards to no table"),
        (FlowActions::drop().meter(&meter, 0), "drops frames"),
        (FlowActions::table(&later).meter(&meter, 8), "metadata register"),
    ] {
        let text = refusal(rules.add(0, &FlowMatch::new(), actions));
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let theirs = FlowMeters::create(&there.pd).unwrap().meter(0).unwrap();
    let text = refusal(writer.set(&theirs, MeterRate::packets(1, 1)));
    assert!(text.contains("protection domain"), "{text}");
    refusal(rules.add(0, &FlowMatch::new(), FlowActions::table(&later).meter(&theirs, 0)));
    // A rule keeps its meters.
    let rule = rules.add(0, &FlowMatch::new(), FlowActions::table(&later).meter(&meter, 0)).unwrap();
    drop((meter, meters, writer));
    drop((rule, later, rules, tir, theirs));
    end_in_peace(&sim, [here, there]);

    let sim = Sim::builder().functions(2).build().unwrap();
    let here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let text = refusal(FlowMeters::create(&here.pd));
    assert!(text.contains("FLOW_METER_ASO"), "{text}");
    end_in_peace(&sim, here);
}
