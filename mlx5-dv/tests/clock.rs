//! The card's clock, and the times of completions, in virtual time.

use std::time::Duration;

use mlx5_dv::objects::{
    AccessFlags, AddressHandle, AddressPath, CqOptions, MemoryRegion, Pd, Rq, RqOptions, Strides, Uar,
};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags, StridingOptions, StridingQueue};
use mlx5_dv::queue::{CompletionQueue, Connection, ConnectionOptions, DatagramOptions, DatagramQueue};
use mlx5_dv::{Error, RealTime, Timestamp};
use mlx5_open::Sim;
use mlx5_open::virtual_time::World;
use mlx5_sim::card::Card;
use mlx5_sim::fault::{Fault, Times};
use mlx5_sim::profile::Profile;

const SOON: Duration = Duration::from_secs(60);

/// Lets `time` pass.
fn pass(world: &World, time: Duration) {
    let end = world.clock().now() + time;
    while world.clock().now() < end {
        world.clock().pause(end - world.clock().now());
    }
}

#[test]
fn the_clock_goes_as_time_does() {
    let world = World::new(1);
    let card = world.simulated().card(Card::builder()).unwrap();
    let device = world.open(&card).unwrap();
    let rate = device.clock_rate().unwrap();
    assert_eq!(u64::from(rate.khz()), Profile::connectx5().frequency_khz());
    for wait in [Duration::from_micros(3), Duration::from_millis(250), Duration::from_secs(20)] {
        let (begin, before) = (world.clock().now(), device.timestamp().unwrap());
        pass(&world, wait);
        let (passed, counted) = (world.clock().now() - begin, rate.between(before, device.timestamp().unwrap()));
        // The clock counts whole ticks.
        let tick = Duration::from_nanos(1_000_000 / u64::from(rate.khz()) + 1);
        assert!(counted.abs_diff(passed) <= tick, "{counted:?} instead of {passed:?}");
    }
}

#[test]
fn completions_bear_its_time() {
    let world = World::new(1);
    let card = world.simulated().card(Card::builder()).unwrap();
    let device = world.open(&card).unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let new = || Connection::new(&pd, ConnectionOptions::default()).unwrap();
    let (mut ours, mut theirs) = (new(), new());
    theirs.connect(&ours.local().unwrap()).unwrap();
    ours.connect(&theirs.local().unwrap()).unwrap();
    let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let region = MemoryRegion::allocate(&pd, 4096, rights).unwrap();
    let mut times: Vec<Timestamp> = vec![];
    for _ in 0..5 {
        times.push(device.timestamp().unwrap());
        ours.write(region.buffer(0..64).unwrap(), region.remote()).unwrap();
        times.push(ours.wait(SOON).unwrap().result.unwrap().timestamp);
        pass(&world, Duration::from_millis(7));
        let since = device.clock_rate().unwrap().between(times[times.len() - 1], device.timestamp().unwrap());
        assert!((Duration::from_millis(7)..Duration::from_millis(8)).contains(&since), "{since:?}");
    }
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn a_card_that_tells_no_rate_says_so() {
    let mut silent = Profile::connectx5();
    silent.general_current.w().device_frequency_khz(0);
    let mut real = Profile::connectx5();
    real.roce_max.w().qp_ts_format(1);
    real.roce_current.w().qp_ts_format(1);
    for (profile, lacks) in [(silent, "device_frequency_khz"), (real, "qp_ts_format")] {
        let device = Sim::builder().profile(profile).build().unwrap().open(0).unwrap();
        let error = device.clock_rate().unwrap_err();
        assert!(matches!(error, Error::Unsupported { capability, .. } if capability == lacks), "{error}");
    }
}

#[test]
fn real_time_goes_as_time_does_and_frames_bear_it() {
    let world = World::new(1);
    let card = world.simulated().card(Card::builder().profile(Profile::connectx6dx().with_real_time_clock())).unwrap();
    let device = world.open(&card).unwrap();
    let (begin, before) = (world.clock().now(), device.real_time().unwrap().since_1970());
    pass(&world, Duration::from_millis(2500));
    let passed = world.clock().now() - begin;
    assert_eq!(device.real_time().unwrap().since_1970() - before, passed);

    let pd = Pd::alloc(&device).unwrap();
    let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    for bears in [true, false] {
        let mut options = EthernetOptions::default();
        options.real_time = bears;
        let mut queue = EthernetQueue::new(&pd, options).unwrap();
        let (real, ticks) = (device.real_time().unwrap(), device.timestamp().unwrap());
        queue.send(region.buffer(0..64).unwrap(), FrameFlags::empty()).unwrap();
        let sent = queue.wait(SOON).unwrap().result.unwrap().timestamp;
        if bears {
            assert!((real..=device.real_time().unwrap()).contains(&RealTime::of(sent)), "{sent:?}");
        } else {
            assert!((ticks..=device.timestamp().unwrap()).contains(&sent), "{sent:?}");
        }
    }
}

#[test]
fn messages_bear_real_time_where_their_queue_pair_asks_for_it() {
    let world = World::new(1);
    let card = world.simulated().card(Card::builder().profile(Profile::connectx6dx().with_real_time_clock())).unwrap();
    let device = world.open(&card).unwrap();
    pass(&world, Duration::from_secs(1_000));
    let pd = Pd::alloc(&device).unwrap();
    let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    let new = |bears| {
        let mut options = ConnectionOptions::default();
        options.real_time = bears;
        Connection::new(&pd, options).unwrap()
    };
    // Each end has its own.
    let (mut ours, mut theirs) = (new(true), new(false));
    theirs.connect(&ours.local().unwrap()).unwrap();
    ours.connect(&theirs.local().unwrap()).unwrap();
    theirs.receive(region.buffer(0..64).unwrap()).unwrap();
    let (real, ticks) = (device.real_time().unwrap(), device.timestamp().unwrap());
    ours.send(region.buffer(64..128).unwrap()).unwrap();
    let sent = ours.wait(SOON).unwrap().result.unwrap().timestamp;
    let received = theirs.wait(SOON).unwrap().result.unwrap().timestamp;
    assert!((real..=device.real_time().unwrap()).contains(&RealTime::of(sent)), "{sent:?}");
    assert!((ticks..=device.timestamp().unwrap()).contains(&received), "{received:?}");

    let mut datagrams = DatagramQueue::new(&pd, DatagramOptions::new(5).real_time()).unwrap();
    let path = AddressPath::link_local(device.gids()[0].address.octets()).unwrap();
    let to = AddressHandle::new(&device, &path, ours.queue_pair().qpn(), 5).unwrap();
    let real = device.real_time().unwrap();
    datagrams.send_inline(&to, b"nobody takes it").unwrap();
    let sent = datagrams.wait(SOON).unwrap().result.unwrap().timestamp;
    assert!((real..=device.real_time().unwrap()).contains(&RealTime::of(sent)), "{sent:?}");
}

#[test]
fn packets_of_a_striding_queue_bear_real_time() {
    let sim = Sim::builder().profile(Profile::connectx6dx().with_real_time_clock()).functions(2).build().unwrap();
    let [here, there] = [0, 1].map(|function| sim.open(function).unwrap());
    let pds = [&here, &there].map(|device| Pd::alloc(device).unwrap());
    let region = MemoryRegion::allocate(&pds[0], 4096, AccessFlags::LOCAL_WRITE).unwrap();
    for bears in [true, false] {
        let mut options = StridingOptions::default().strides(Strides::new(64, 512));
        options.real_time = bears;
        let mut queue = StridingQueue::new(&pds[1], options).unwrap();
        queue.listen(&[]).unwrap();
        let mut sender = EthernetQueue::new(&pds[0], EthernetOptions::default()).unwrap();
        let mut frame = region.buffer(0..64).unwrap();
        frame.write(0, &[&there.mac().0[..], &here.mac().0, &[0x88, 0xb5]].concat());
        let (real, ticks) = (there.real_time().unwrap(), there.timestamp().unwrap());
        sender.send(frame, FrameFlags::empty()).unwrap();
        let heard = queue.wait(SOON).unwrap().completion().timestamp;
        if bears {
            assert!((real..=there.real_time().unwrap()).contains(&RealTime::of(heard)), "{heard:?}");
        } else {
            assert!((ticks..=there.timestamp().unwrap()).contains(&heard), "{heard:?}");
        }
    }
}

#[test]
fn a_card_without_real_time_names_the_capability() {
    let device = Sim::builder().build().unwrap().open(0).unwrap();
    let lacks = |error: Error, lacks: &str| {
        assert!(matches!(error, Error::Unsupported { capability, .. } if capability == lacks), "{error}");
    };
    lacks(device.real_time().unwrap_err(), "rq_ts_format");
    let pd = Pd::alloc(&device).unwrap();
    lacks(EthernetQueue::new(&pd, EthernetOptions::default().real_time()).unwrap_err(), "sq_ts_format");
    let uar = Uar::alloc(&device).unwrap();
    let cq = CompletionQueue::create(&uar, CqOptions::default()).unwrap();
    let error = Rq::create(&pd, cq.cq(), RqOptions::default().real_time()).unwrap_err();
    lacks(error, "rq_ts_format");
    lacks(StridingQueue::new(&pd, StridingOptions::default().real_time()).unwrap_err(), "rq_ts_format");
    lacks(Connection::new(&pd, ConnectionOptions::default().real_time()).unwrap_err(), "qp_ts_format");
    lacks(DatagramQueue::new(&pd, DatagramOptions::new(5).real_time()).unwrap_err(), "qp_ts_format");
}

#[test]
fn the_clock_of_a_card_that_is_gone_is_an_error() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open(0).unwrap();
    device.timestamp().unwrap();
    sim.handle(0).faults().inject(Fault::SurpriseRemoval, Times::Always);
    assert!(matches!(device.timestamp(), Err(Error::Dead(_))));
}
