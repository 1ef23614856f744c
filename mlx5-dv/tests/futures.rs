//! Futures of queues, with the smallest executor and reactor there can be: one future, one descriptor.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, Compression, CqOptions, MemoryRegion, Pd, Uar};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags, Receives, StridingOptions, StridingQueue};
use mlx5_dv::queue::{CompletionQueue, Connection, ConnectionOptions};
use mlx5_dv::{Error, Options};
use mlx5_open::Sim;
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

/// Frames that the function 0 of a card sends to `receiver` are what its futures end with.
fn frames_end_futures<C: Receives>(sim: &Sim, mut receiver: StridingQueue<C>) {
    let pd = Pd::alloc(&sim.open(0).unwrap()).unwrap();
    let mut sender = EthernetQueue::new(&pd, EthernetOptions::default().inline_bytes(64)).unwrap();
    receiver.listen(&[]).unwrap();
    let mut frame = [0; 64];
    frame[..6].copy_from_slice(&receiver.device().mac().0);
    let fd = duplicate(receiver.fd());
    for round in 0..100u8 {
        frame[20] = round;
        std::thread::scope(|scope| {
            // Several at a time: a queue that compresses is asked for an event before, in and after a block.
            scope.spawn(|| {
                for _ in 0..3 {
                    sender.send_inline(&frame, FrameFlags::empty()).unwrap();
                    sender.wait(SOON).unwrap().result.unwrap();
                }
            });
            for _ in 0..3 {
                let packet = block_on(receiver.next(async || readable(&fd))).unwrap();
                assert_eq!(packet[..], frame, "round {round}");
            }
        });
    }
}

#[test]
fn a_striding_queue_s_future_ends_with_the_next_frame() {
    let sim = Sim::builder().functions(2).build().unwrap();
    let mut options = StridingOptions::default();
    options.events = true;
    let pd = Pd::alloc(&sim.open(1).unwrap()).unwrap();
    frames_end_futures(&sim, StridingQueue::new(&pd, options.clone()).unwrap());
    frames_end_futures(&sim, StridingQueue::compressed(&pd, options, Compression::Checksum).unwrap());
}

#[test]
fn a_future_of_a_card_that_dies_ends() {
    let sim = Sim::builder().build().unwrap();
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
fn an_error_of_the_reactor_is_not_the_card_s_death() {
    let device = mlx5_open::open("sim").unwrap();
    let uar = Uar::alloc(&device).unwrap();
    let mut queue = CompletionQueue::create(&uar, CqOptions::default().events()).unwrap();
    for kind in [io::ErrorKind::TimedOut, io::ErrorKind::BrokenPipe, io::ErrorKind::Other] {
        let failed = block_on(queue.ready(async || Err(kind.into())));
        assert!(matches!(&failed, Err(Error::Io { source, .. }) if source.kind() == kind), "{kind}: {failed:?}");
    }
    let events = device.events().unwrap();
    let failed = block_on(events.next(async || Err(io::ErrorKind::TimedOut.into())));
    assert!(matches!(&failed, Err(Error::Io { .. })), "{failed:?}");
}

#[test]
fn a_queue_without_events_has_no_future() {
    let device = mlx5_open::open("sim").unwrap();
    let mut queue = CompletionQueue::create(&Uar::alloc(&device).unwrap(), CqOptions::default()).unwrap();
    assert!(queue.fd().is_none());
    let refused = block_on(queue.ready(async || unreachable!())).unwrap_err().to_string();
    assert!(refused.contains("CqOptions::events"), "{refused}");
}
