//! Futures of queues, with the smallest executor and reactor there can be: one future, one descriptor.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, CqOptions, MemoryRegion, Pd, Uar};
use mlx5_dv::queue::{CompletionQueue, Connection, ConnectionOptions};
use mlx5_dv::{Error, Options};
use mlx5_sim::fault::{Fault, Times};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What a busy machine may need.
const SOON: Duration = Duration::from_secs(60);

/// Carries `future` out on this thread: it is pending only where [`readable`] is, which blocks instead.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("pending, though what it awaits blocks"),
    }
}

/// Returns once `fd` is readable.
fn readable(fd: &OwnedFd) -> io::Result<()> {
    let limit = Timespec::try_from(SOON).unwrap();
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&limit))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

fn duplicate(fd: Option<impl AsFd>) -> OwnedFd {
    fd.expect("made with events").as_fd().try_clone_to_owned().unwrap()
}

#[test]
fn a_connection_s_future_ends_with_the_next_completion() {
    let device = mlx5_open::open("sim").unwrap();
    let pd = Pd::alloc(&device).unwrap();
    let mut options = ConnectionOptions::default();
    options.events = true;
    let [mut near, mut far] = [options.clone(), options].map(|options| Connection::new(&pd, options).unwrap());
    near.connect(&far.local().unwrap()).unwrap();
    far.connect(&near.local().unwrap()).unwrap();
    let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE).unwrap();
    let fd = duplicate(far.fd());
    for round in 0..100u8 {
        far.receive(region.buffer(0..64).unwrap()).unwrap();
        std::thread::scope(|scope| {
            // Sent at any moment: before the queue is armed, while it is, or while it is awaited.
            scope.spawn(|| {
                near.send_inline(&[round; 16]).unwrap();
                near.wait(SOON).unwrap().result.unwrap();
            });
            let done = block_on(far.next(async || readable(&fd))).unwrap();
            assert_eq!(done.result.unwrap().byte_len, 16, "round {round}");
        });
    }
}

#[test]
fn a_future_of_a_card_that_dies_ends() {
    let sim = mlx5_open::Sim::builder().build().unwrap();
    let mut options = Options::default();
    options.health_interval = Duration::from_millis(20);
    let device = sim.open_with(0, options).unwrap();
    let uar = Uar::alloc(&device).unwrap();
    let mut queue = CompletionQueue::create(&uar, CqOptions::default().events()).unwrap();
    let fd = duplicate(queue.fd());
    sim.handle(0).faults().inject(Fault::SurpriseRemoval, Times::Always);
    let ended = block_on(queue.ready(async || readable(&fd)));
    assert!(matches!(ended, Err(Error::Dead(_))), "{ended:?}");
}

#[test]
fn a_queue_without_events_has_no_future() {
    let device = mlx5_open::open("sim").unwrap();
    let mut queue = CompletionQueue::create(&Uar::alloc(&device).unwrap(), CqOptions::default()).unwrap();
    assert!(queue.fd().is_none());
    let refused = block_on(queue.ready(async || unreachable!())).unwrap_err().to_string();
    assert!(refused.contains("CqOptions::events"), "{refused}");
}
