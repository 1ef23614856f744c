//! Frames that leave at a time, in virtual time: the receiver's clock says when each came.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, Buffer, MemoryRegion, Pd, RateLimit, RateLimitOptions};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_dv::queue::{Full, PostError, RefusedReason};
use mlx5_dv::{Device, RealTime, Timestamp};
use mlx5_open::Sim;
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::profile::Profile;
use mlx5_sim::world::Conditions;

use crate::ends::{BUFFER, EthernetEnd};

const PATIENCE: Duration = Duration::from_secs(60);
/// How late a frame may come: the cable takes a microsecond, the card at most some ticks of a nanosecond.
const LATE: Duration = Duration::from_nanos(1010);

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A card that sends and one that receives.
struct Ends {
    world: World,
    device: Arc<Device>,
    pd: Arc<Pd>,
    heard: EthernetQueue,
}

fn profile() -> Profile {
    Profile::connectx7().with_real_time_clock()
}

impl Ends {
    fn new() -> TestResult<Self> {
        let world = World::new(1);
        let builders = [Card::builder().profile(profile()), Card::builder().profile(profile())];
        let (cards, _) = world.simulated().joined(builders, Conditions::default())?;
        let (device, there) = (world.open(&cards[0])?, world.open(&cards[1])?);
        let memory = MemoryRegion::allocate(&Pd::alloc(&there)?, 64 * BUFFER, AccessFlags::LOCAL_WRITE)?;
        let mut heard = EthernetQueue::new(memory.pd(), EthernetOptions::default())?;
        heard.listen(&[])?;
        for index in 0..64 {
            heard.receive(memory.buffer(index * BUFFER..(index + 1) * BUFFER)?)?;
        }
        Ok(Ends { world, pd: Pd::alloc(&device)?, device, heard })
    }

    fn queue(&self, real_time: bool) -> TestResult<EthernetQueue> {
        let mut options = EthernetOptions::default();
        (options.inline_bytes, options.real_time) = (64, real_time);
        Ok(EthernetQueue::new(&self.pd, options)?)
    }

    /// A frame to the receiver that bears `number`.
    fn frame(&self, number: u8) -> [u8; 60] {
        let mut frame = [number; 60];
        frame[..6].copy_from_slice(&self.heard.device().mac().0);
        frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        frame
    }

    /// The time `later` than now, in ticks of the sender's clock.
    fn tick(&self, later: Duration) -> TestResult<Timestamp> {
        Ok(self.device.clock_rate()?.after(self.device.timestamp()?, later))
    }

    /// The next `count` frames: the number of each, and how much later than `since` of the receiver's clock it came.
    fn hear(&mut self, count: usize, since: Timestamp) -> TestResult<Vec<(u8, Duration)>> {
        let rate = self.heard.device().clock_rate()?;
        let mut heard = Vec::new();
        for _ in 0..count {
            let done = self.heard.wait(PATIENCE)?;
            let (mut buffer, completion) = (done.buffer.ok_or("no buffer")?, done.result?);
            let mut number = [0];
            buffer.read(59, &mut number);
            heard.push((number[0], rate.between(since, completion.timestamp)));
            buffer.set_len(BUFFER);
            self.heard.receive(buffer)?;
        }
        Ok(heard)
    }

    fn now_there(&self) -> TestResult<Timestamp> {
        Ok(self.heard.device().timestamp()?)
    }

    /// A buffer that holds frame `number`.
    fn buffer(&self, region: &Arc<MemoryRegion>, number: u8) -> TestResult<Buffer> {
        let mut buffer = region.buffer(usize::from(number) * 64..usize::from(number + 1) * 64)?;
        buffer.write(0, &self.frame(number));
        buffer.set_len(60);
        Ok(buffer)
    }
}

/// Frames that came, each not before its time in milliseconds and not much later.
fn assert_punctual(heard: &[(u8, Duration)], expected: &[(u8, u64)]) {
    assert_eq!(heard.len(), expected.len());
    for ((number, came), (expected, millis)) in heard.iter().zip(expected) {
        let time = Duration::from_millis(*millis);
        assert!(number == expected && (time..time + LATE).contains(came), "{heard:?}");
    }
}

#[test]
fn frames_leave_at_their_times_in_order_and_hold_no_other_queue() -> TestResult {
    let mut ends = Ends::new()?;
    let (mut first, mut second) = (ends.queue(false)?, ends.queue(false)?);
    let since = ends.now_there()?;
    let at = |millis| ends.tick(Duration::from_millis(millis));
    let mut batch = first.batch();
    batch.send_inline(&ends.frame(1), FrameFlags::empty())?;
    batch.wait_until(at(5)?)?;
    batch.send_inline(&ends.frame(2), FrameFlags::empty())?;
    batch.send_inline(&ends.frame(3), FrameFlags::empty())?;
    // Its time has passed when it is its turn.
    batch.wait_until(at(4)?)?;
    batch.send_inline(&ends.frame(4), FrameFlags::empty())?;
    batch.wait_until(at(3900)?)?;
    batch.send_inline(&ends.frame(5), FrameFlags::empty())?;
    batch.ring();
    let mut batch = second.batch();
    batch.wait_until(at(2)?)?;
    batch.send_inline(&ends.frame(6), FrameFlags::empty())?;
    batch.wait_until(at(7)?)?;
    batch.send_inline(&ends.frame(7), FrameFlags::empty())?;
    batch.ring();
    let heard = ends.hear(7, since)?;
    assert_punctual(&heard, &[(1, 0), (6, 2), (2, 5), (3, 5), (4, 5), (7, 7), (5, 3900)]);
    Ok(())
}

#[test]
fn a_queue_with_real_time_holds_frames_until_that() -> TestResult {
    let mut ends = Ends::new()?;
    let mut queue = ends.queue(true)?;
    let (since, real) = (ends.now_there()?, ends.device.real_time()?);
    for (number, millis) in [(1, 10), (2, 1500), (3, 3500)] {
        let mut batch = queue.batch();
        batch.wait_until(Timestamp::from(real.after(Duration::from_millis(millis))))?;
        batch.send_inline(&ends.frame(number), FrameFlags::empty())?;
        batch.ring();
    }
    assert_punctual(&ends.hear(3, since)?, &[(1, 10), (2, 1500), (3, 3500)]);
    // Waits complete with the frames after them, which bear the time at which they left.
    for millis in [10, 1500, 3500] {
        let (wait, frame) = (queue.wait(PATIENCE)?, queue.wait(PATIENCE)?);
        assert!(wait.buffer.is_none() && wait.ticket < frame.ticket);
        let left = RealTime::of(frame.result?.timestamp);
        let time = real.after(Duration::from_millis(millis));
        assert!((time..time.after(LATE)).contains(&left), "{left:?}, not {time:?}");
        assert_eq!(RealTime::of(wait.result?.timestamp), left);
    }
    Ok(())
}

#[test]
fn a_vector_of_frames_and_a_rate_begin_when_the_time_has_come() -> TestResult {
    let mut ends = Ends::new()?;
    let mut queue = ends.queue(false)?;
    let region = MemoryRegion::allocate(&ends.pd, 4096, AccessFlags::LOCAL_WRITE)?;
    let since = ends.now_there()?;
    let mut buffers = (0..3).map(|number| ends.buffer(&region, number)).collect::<Result<Vec<_>, _>>()?;
    let time = ends.tick(Duration::from_millis(3))?;
    let mut batch = queue.batch();
    batch.quiet();
    batch.wait_until(time)?;
    batch.send_each(&mut buffers, FrameFlags::empty())?;
    batch.signalled();
    batch.send(ends.buffer(&region, 3)?, FrameFlags::empty())?;
    batch.ring();
    assert_punctual(&ends.hear(4, since)?, &[(0, 3), (1, 3), (2, 3), (3, 3)]);
    let (mut received, mut sent) = (Vec::new(), Vec::new());
    while sent.len() < 4 {
        assert!(queue.poll_into(&mut received, &mut sent, 1)?.is_none());
        ends.world.clock().pause(Duration::from_millis(1));
    }
    assert_eq!(queue.in_flight(), (0, 0), "the wait is gone, too");

    // 480 bits take 1 ms at this rate.
    queue.sq().set_rate_limit(Some(&RateLimit::create(&ends.device, RateLimitOptions::new(480))?))?;
    let (since, time) = (ends.now_there()?, ends.tick(Duration::from_millis(20))?);
    let mut batch = queue.batch();
    batch.wait_until(time)?;
    (4..8).try_for_each(|number| batch.send_inline(&ends.frame(number), FrameFlags::empty()).map(drop))?;
    batch.ring();
    assert_punctual(&ends.hear(4, since)?, &[(4, 20), (5, 21), (6, 22), (7, 23)]);
    Ok(())
}

#[test]
fn a_queue_that_waits_is_reset_and_gives_its_buffers_back() -> TestResult {
    let mut ends = Ends::new()?;
    let mut queue = ends.queue(false)?;
    let region = MemoryRegion::allocate(&ends.pd, 4096, AccessFlags::LOCAL_WRITE)?;
    let time = ends.tick(Duration::from_millis(3))?;
    let mut batch = queue.batch();
    batch.wait_until(time)?;
    batch.send(ends.buffer(&region, 0)?, FrameFlags::empty())?;
    batch.ring();
    ends.world.clock().pause(Duration::from_micros(1));
    assert_eq!(queue.reset()?.len(), 1);
    let since = ends.now_there()?;
    queue.send_inline(&ends.frame(9), FrameFlags::empty())?;
    assert_punctual(&ends.hear(1, since)?, &[(9, 0)]);
    // In ERR both are flushed.
    let time = ends.tick(Duration::from_millis(3))?;
    let mut batch = queue.batch();
    let ticket = batch.wait_until(time)?;
    batch.send(ends.buffer(&region, 0)?, FrameFlags::empty())?;
    batch.ring();
    queue.sq().to_error()?;
    assert!(queue.wait(PATIENCE)?.result.is_ok(), "the frame before");
    let (wait, frame) = (queue.wait(PATIENCE)?, queue.wait(PATIENCE)?);
    assert!(wait.ticket == ticket && wait.result.is_err() && frame.result.is_err() && frame.buffer.is_some());
    let (mut queue, time) = (ends.queue(false)?, ends.tick(Duration::from_millis(3))?);
    let mut batch = queue.batch();
    batch.wait_until(time)?;
    batch.send(ends.buffer(&region, 1)?, FrameFlags::empty())?;
    batch.ring();
    drop(queue);
    ends.world.clock().pause(Duration::from_millis(10));
    assert!(ends.heard.poll()?.is_none(), "nothing of what waited came");
    Ok(())
}

#[test]
fn a_wait_leaves_room_for_a_frame() -> TestResult {
    let mut ends = Ends::new()?;
    let mut options = EthernetOptions::default();
    (options.send_depth, options.inline_bytes) = (4, 64);
    let mut queue = EthernetQueue::new(&ends.pd, options)?;
    for round in 0..10 {
        let since = ends.now_there()?;
        let mut batch = queue.batch();
        for later in 1..4 {
            batch.wait_until(ends.tick(Duration::from_millis(later))?)?;
        }
        let refused = batch.wait_until(Timestamp(0)).unwrap_err();
        assert_eq!(refused, RefusedReason::Post(PostError::Full(Full)));
        batch.send_inline(&ends.frame(round), FrameFlags::empty())?;
        batch.ring();
        assert_punctual(&ends.hear(1, since)?, &[(round, 3)]);
        for _ in 0..4 {
            queue.wait(PATIENCE)?.result?;
        }
    }
    Ok(())
}

#[test]
fn a_card_that_waits_for_no_time_is_named() {
    for (profile, waits) in [(Profile::connectx6dx(), false), (profile(), true)] {
        let sim = Sim::builder().profile(profile).build().unwrap();
        let mut end = EthernetEnd::new(&sim, 0, EthernetOptions::default());
        assert_eq!(end.queue.sq().waits_for_times(), waits);
        let refused = end.queue.batch().wait_until(Timestamp(1));
        let said = refused.map(drop).map_err(|reason| reason.to_string());
        assert_eq!(said.as_ref().is_err_and(|said| said.contains("wait_on_time")), !waits, "{said:?}");
    }
}
