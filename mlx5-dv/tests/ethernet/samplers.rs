//! Flow samplers: every frame comes to one queue, and some to another, too.

use std::sync::Arc;
use std::time::Duration;

use etherparse::PacketBuilder;
use mlx5_dv::Device;
use mlx5_dv::objects::{
    Direction, ExclusiveRegion, FlowActions, FlowCounter, FlowDestination, FlowGroup, FlowMatch, FlowRule, FlowRules,
    FlowRulesOptions, FlowSampler, FlowTable, FlowTableOptions, Pd,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_open::Sim;
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::profile::Profile;
use mlx5_sim::world::Conditions;

use crate::ends::{EthernetEnd, end_in_peace, refusal, two_of};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a frame, and of a buffer.
const FRAME: usize = 200;
const BUFFER: usize = 2048;
/// UDP port of the rule.
const PORT: u16 = 7001;
/// The first level of tables that a sampler after [`FlowRules`] of [`PRIORITIES`] may have.
const LEVEL: u8 = PRIORITIES + 1;
const PRIORITIES: u8 = 1;

type Failure = Box<dyn std::error::Error>;
type TestResult = Result<(), Failure>;

/// A queue with receives posted, of frames of up to [`FRAME`] bytes.
fn queue(pd: &Arc<Pd>) -> Result<EthernetQueue, Failure> {
    let mut options = EthernetOptions::default();
    options.inline_bytes = FRAME as u16;
    let mut queue = EthernetQueue::new(pd, options)?;
    for buffer in ExclusiveRegion::allocate(pd, 4 * BUFFER)?.buffers(BUFFER)? {
        queue.receive(buffer)?;
    }
    Ok(queue)
}

/// The next frame that comes to it.
fn heard(queue: &mut EthernetQueue) -> Result<Vec<u8>, Failure> {
    let done = queue.wait(PATIENCE)?;
    done.result?;
    let frame = done.received().unwrap_or_default().to_vec();
    queue.receive(done.buffer.ok_or("no buffer")?)?;
    Ok(frame)
}

/// A table that gives all frames to the queue and counts them.
fn to(queue: &EthernetQueue, level: u8) -> Result<(Arc<FlowTable>, FlowRule, FlowCounter), mlx5_dv::Error> {
    let (every, device) = (FlowMatch::new(), queue.tir().device());
    let (table, counter) = (FlowTable::create(device, level, 1)?, FlowCounter::create(device)?);
    let actions = FlowActions::forward(queue.tir()).count(&counter);
    let rule = FlowRule::create(&FlowGroup::create(&table, 0..1, &every)?, &every, actions)?;
    Ok((table, rule, counter))
}

/// Which of `count` frames come to the queue of samples: all come to the other one, and both have what was sent.
fn sampled(seed: u64, ratio: u32, count: u32) -> Result<Vec<u32>, Failure> {
    let world = World::new(seed);
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default())?;
    let [here, there] = [world.open(&cards[0])?, world.open(&cards[1])?];
    let (mut sender, pd) = (queue(&Pd::alloc(&here)?)?, Pd::alloc(&there)?);
    let (mut some, mut all) = (queue(&pd)?, queue(&pd)?);
    // Of different levels: the sampler is before both.
    let (samples, _sampled, of_samples) = to(&some, LEVEL + 1)?;
    let (default, _rest, of_all) = to(&all, LEVEL)?;
    let sampler = FlowSampler::create(ratio, &samples, &default)?;
    let mut options = FlowRulesOptions::default();
    options.priorities = PRIORITIES;
    let rules = FlowRules::create(&there, options)?;
    let _rule = rules.add(0, &FlowMatch::new().udp_destination_port(PORT), FlowActions::sample(&sampler))?;
    rules.start()?;
    let mut found = Vec::new();
    for number in 0..count {
        let frame = frame(&here, &there, number);
        sender.send_inline(&frame, FrameFlags::empty())?;
        sender.wait(PATIENCE)?.result?;
        assert_eq!(heard(&mut all)?, frame, "{number}");
        let counted = of_samples.read()?.packets;
        if counted > found.len() as u64 {
            assert_eq!(heard(&mut some)?, frame, "{number}");
            found.push(number);
        }
        assert_eq!((counted, of_all.read()?.packets), (found.len() as u64, u64::from(number) + 1));
    }
    Ok(found)
}

/// A datagram with a number in it.
fn frame(here: &Device, there: &Device, number: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(here.mac().0, there.mac().0).ipv4([10; 4], [11; 4], 64).udp(9, PORT);
    let mut payload = [number as u8; FRAME - 42];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    builder.write(&mut frame, &payload).unwrap();
    frame
}

#[test]
fn every_frame_comes_to_one_queue_and_one_of_so_many_to_the_other_too() -> TestResult {
    assert_eq!(sampled(1, 1, 20)?, (0..20).collect::<Vec<_>>());
    let first = sampled(1, 5, 300)?;
    assert!((35..85).contains(&first.len()), "{} of 300: {first:?}", first.len());
    assert_eq!(sampled(1, 5, 300)?, first, "a world of the same seed");
    assert_ne!(sampled(2, 5, 300)?, first);
    Ok(())
}

#[test]
fn samplers_that_cannot_be_and_cards_without_are_refused() {
    let (sim, here, there) = two_of(Sim::builder(), EthernetOptions::default());
    let table = |device: &Arc<Device>, direction, level| {
        let mut options = FlowTableOptions::default();
        (options.direction, options.level) = (direction, level);
        FlowTable::with_options(device, options).unwrap()
    };
    let received = |level| table(&here.device, Direction::Receive, level);
    let [sent, theirs] = [table(&here.device, Direction::Transmit, 3), table(&there.device, Direction::Receive, 3)];
    let (low, near, next, far) = (received(0), received(1), received(2), received(3));
    for (ratio, samples, default, wanted) in [
        (0, &next, &far, "ratio is 0, and a flow sampler takes 1 to"),
        (2, &near, &far, "level is 1, and a table of a flow sampler takes 2 to 255"),
        (2, &far, &near, "level is 1, and a table of a flow sampler takes 2 to 255"),
        (2, &sent, &far, "tables of one direction"),
        (2, &far, &sent, "log_max_ft_sampler_num of NIC transmit"),
        (2, &far, &theirs, "one device"),
    ] {
        let text = refusal(FlowSampler::create(ratio, samples, default).map(drop));
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let sampler = FlowSampler::create(100, &far, &next).unwrap();
    let found = sampler.query().unwrap();
    assert_eq!((found.sample_ratio(), found.level(), sampler.ratio()), (100, 1, 100));
    assert_eq!((found.sample_table_id(), found.default_table_id()), (far.table_id(), next.table_id()));
    let every = FlowMatch::new();
    let group = |table: &Arc<FlowTable>| FlowGroup::create(table, 0..1, &every).unwrap();
    let own = FlowTable::create(&there.device, 0, 1).unwrap();
    let twice = [(); 2].map(|()| FlowDestination::Sampler(sampler.clone()));
    for (from, actions, wanted) in [
        (&near, FlowActions::sample(&sampler), "level is 2, and a table after a sampler takes 3 to 255"),
        (&sent, FlowActions::sample(&sampler), "direction"),
        (&own, FlowActions::sample(&sampler), "one device"),
        (&low, FlowActions::several(twice), "flow sampler"),
    ] {
        let text = refusal(FlowRule::create(&group(from), &every, actions).map(drop));
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // A rule keeps its sampler, and a sampler its tables.
    let rule = FlowRule::create(&group(&low), &every, FlowActions::sample(&sampler)).unwrap();
    let sampler = FlowSampler::destroy(sampler).unwrap_err().object;
    let far = FlowTable::destroy(far).unwrap_err().object;
    drop((sampler, next));
    rule.delete().unwrap();
    FlowTable::destroy(far).unwrap();
    drop((low, near, sent, theirs, own));
    end_in_peace(&sim, [here, there]);

    let mut profile = Profile::connectx5();
    for caps in [&mut profile.general_max, &mut profile.general_current] {
        caps.w().general_obj_types(0);
    }
    let sim = Sim::builder().profile(profile).functions(2).build().unwrap();
    let here = EthernetEnd::new(&sim, 0, EthernetOptions::default());
    let table = FlowTable::create(&here.device, 3, 1).unwrap();
    let text = refusal(FlowSampler::create(2, &table, &table).map(drop));
    assert!(text.contains("general_obj_types (SAMPLER)"), "{text}");
    drop(table);
    end_in_peace(&sim, here);
}
