//! Send queues that are held to a rate: when their frames go out, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::Device;
use mlx5_dv::objects::{Pd, RateLimit, RateLimitOptions};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::world::Conditions;

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a frame.
const FRAME: usize = 500;
/// At this rate a frame takes 1 ms.
const KBPS: u32 = 4000;

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A queue that sends, on a card whose cable takes no time.
fn queue(world: &World) -> Result<(Arc<Device>, EthernetQueue), Box<dyn std::error::Error>> {
    let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default())?;
    let device = world.open(&cards[0])?;
    let mut options = EthernetOptions::default();
    options.inline_bytes = FRAME as u16;
    let queue = EthernetQueue::new(&Pd::alloc(&device)?, options)?;
    Ok((device, queue))
}

/// How long `count` frames take to be sent.
fn time(world: &World, queue: &mut EthernetQueue, count: usize) -> Result<Duration, Box<dyn std::error::Error>> {
    let begin = world.clock().now();
    for _ in 0..count {
        queue.send_inline(&[0xff; FRAME], FrameFlags::empty())?;
    }
    for _ in 0..count {
        queue.wait(PATIENCE)?.result?;
    }
    Ok(world.clock().now() - begin)
}

fn near(found: Duration, expected_ms: u64) -> bool {
    let expected = Duration::from_millis(expected_ms);
    found >= expected && found < expected + Duration::from_millis(1)
}

#[test]
fn frames_go_out_at_the_rate_until_it_is_taken_off() -> TestResult {
    let world = World::new(1);
    let (device, mut queue) = queue(&world)?;
    let free = time(&world, &mut queue, 11)?;
    assert!(free < Duration::from_millis(1), "{free:?}");
    let limit = RateLimit::create(&device, RateLimitOptions::new(KBPS))?;
    queue.sq().set_rate_limit(Some(&limit))?;
    let held = time(&world, &mut queue, 11)?;
    assert!(near(held, 10), "the first at once, each other 1 ms later: {held:?}");
    let faster = RateLimit::create(&device, RateLimitOptions::new(10 * KBPS))?;
    queue.sq().set_rate_limit(Some(&faster))?;
    world.clock().pause(Duration::from_secs(1));
    let held = time(&world, &mut queue, 101)?;
    assert!(near(held, 10), "{held:?}");
    queue.sq().set_rate_limit(None)?;
    let free = time(&world, &mut queue, 11)?;
    assert!(free < Duration::from_millis(1), "{free:?}");
    Ok(())
}

#[test]
fn a_burst_goes_out_at_once_up_to_its_bound() -> TestResult {
    let world = World::new(1);
    let (device, mut queue) = queue(&world)?;
    let options = RateLimitOptions::new(KBPS).burst(6 * FRAME as u32).typical_packet(FRAME as u16);
    queue.sq().set_rate_limit(Some(&RateLimit::create(&device, options)?))?;
    let held = time(&world, &mut queue, 11)?;
    assert!(near(held, 5), "six at once, each other 1 ms later: {held:?}");
    Ok(())
}

#[test]
fn rates_are_refused_that_the_card_has_not_and_freed_when_dropped() -> TestResult {
    let world = World::new(1);
    let (device, queue) = queue(&world)?;
    for kbps in [0, 100_000_001] {
        let said = RateLimit::create(&device, RateLimitOptions::new(kbps)).unwrap_err().to_string();
        assert!(said.contains("kbps") && said.contains("packet_pacing_max_rate"), "{said}");
    }
    let all: Result<Vec<_>, _> = (1..128).map(|kbps| RateLimit::create(&device, RateLimitOptions::new(kbps))).collect();
    let all = all?;
    let said = RateLimit::create(&device, RateLimitOptions::new(1)).unwrap_err().to_string();
    assert!(said.contains("packet_pacing_rate_table_size"), "{said}");
    queue.sq().set_rate_limit(all.first())?;
    drop(all);
    assert_eq!(queue.sq().rate_limit().map(|limit| limit.options().kbps), Some(1), "the queue holds it");
    assert_eq!(RateLimit::create(&device, RateLimitOptions::new(1))?.index(), 2);
    Ok(())
}
