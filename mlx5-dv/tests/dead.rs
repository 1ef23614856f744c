//! A card that dies with work in flight: the program gets its buffers back, and can open the function again.

use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use mlx5_dv::objects::{AccessFlags, CqOptions, MemoryRegion, Pd, Uar};
use mlx5_dv::queue::{CompletionQueue, Connection, ConnectionOptions};
use mlx5_dv::{Device, Error, Options};
use mlx5_open::Sim;
use mlx5_sim::fault::{Fault, Times};

const SOON: Duration = Duration::from_secs(10);

fn hasty() -> Options {
    let mut options = Options::default();
    options.health_interval = Duration::from_millis(20);
    options.health_patience = Duration::from_secs(2);
    options
}

fn until_dead(device: &Device) {
    let begin = Instant::now();
    while device.death().is_none() {
        assert!(begin.elapsed() < SOON, "it lives");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Two connections of `device` with receives posted on both.
fn busy(device: &Arc<Device>) -> (Connection, Connection) {
    let pd = Pd::alloc(device).unwrap();
    let region = MemoryRegion::allocate(&pd, 16 * 1024, AccessFlags::LOCAL_WRITE).unwrap();
    let mut a = Connection::new(&pd, ConnectionOptions::default()).unwrap();
    let mut b = Connection::new(&pd, ConnectionOptions::default()).unwrap();
    a.connect(&b.local().unwrap()).unwrap();
    b.connect(&a.local().unwrap()).unwrap();
    for (i, buffer) in region.buffers(4096).unwrap().into_iter().enumerate() {
        if i % 2 == 0 { a.receive(buffer) } else { b.receive(buffer) }.unwrap();
    }
    (a, b)
}

fn dies_of(fault: Fault) {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open_with(0, hasty()).unwrap();
    let connections = busy(&device);
    let last: Weak<Device> = Arc::downgrade(&device);
    sim.handle(0).faults().inject(fault, Times::Always);
    until_dead(&device);
    drop((connections, device));
    assert!(last.upgrade().is_none(), "{fault:?}: something still holds the device");
    assert_eq!(sim.handle(0).counts().dma_ranges, 0, "{fault:?}: memory is still shown to the card");
    sim.handle(0).faults().clear_all();
    // A card that was removed and reinserted needs a moment to power up.
    std::thread::sleep(Duration::from_millis(200));
    let device = sim.open_with(0, hasty()).unwrap();
    drop(busy(&device));
    drop(device);
    assert_eq!(sim.violations(), [], "{fault:?}");
}

#[test]
fn all_is_given_back_after_a_surprise_removal() {
    dies_of(Fault::SurpriseRemoval);
}

#[test]
fn all_is_given_back_after_firmware_stopped() {
    dies_of(Fault::HealthCounterStopped);
}

#[test]
fn all_is_given_back_after_a_fatal_syndrome() {
    dies_of(Fault::Health { syndrome: 0x1 });
}

#[test]
fn a_card_known_to_be_dead_writes_no_memory() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let device = sim.open_with(0, hasty()).unwrap();
    let _connections = busy(&device);
    sim.handle(0).faults().inject(Fault::HealthCounterStopped, Times::Always);
    until_dead(&device);
    const PCI_COMMAND: u64 = 4;
    let mut command = [0; 2];
    sim.handle(0).config_read(PCI_COMMAND, &mut command);
    assert_eq!(command[0] & 1 << 2, 0, "bus mastering is off before the death is known");
}

/// The death's event may be consumed while another is waited for: the next sleep must not wait for it.
#[test]
fn nobody_sleeps_on_a_card_that_is_dead_already() {
    let sim = Sim::builder().build().unwrap();
    let device = sim.open_with(0, hasty()).unwrap();
    let uar = Uar::alloc(&device).unwrap();
    let mut queue = CompletionQueue::create(&uar, CqOptions::default().events()).unwrap();
    queue.arm(false).unwrap();
    sim.handle(0).faults().inject(Fault::SurpriseRemoval, Times::Always);
    until_dead(&device);
    while queue.take_events() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (told, waits) = mpsc::channel();
    std::thread::spawn(move || drop(told.send((queue.arm(false), queue.wait(Duration::MAX)))));
    let (armed, waited) = waits.recv_timeout(SOON).expect("it sleeps");
    assert!(matches!((&armed, &waited), (Err(Error::Dead(_)), Err(Error::Dead(_)))), "{armed:?} {waited:?}");
    let late = device.async_events().events;
    assert_eq!(late.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected), "whoever listens late");
}
