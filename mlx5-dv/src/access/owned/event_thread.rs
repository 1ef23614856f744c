//! The background thread of an owned function. It sleeps on the eventfds of the interrupt vectors, and runs the event
//! loop when one fires or a timeout expires.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::event_loop::{EventLoop, Shared};
use super::event_queue::EventQueue;
use crate::access::subscribers::signal;
use crate::clock::Clock;
use crate::error::Error;
use crate::lock::lock;

/// How long `stop` waits for the thread.
const JOIN: Duration = Duration::from_secs(5);

/// An event queue, and the eventfd of its interrupt vector.
type Watched = (EventQueue, Option<File>);

/// Handle of the running thread.
#[derive(Debug)]
pub struct EventThread {
    control: Arc<Control>,
    /// Receives the queues when the thread ends.
    ended: mpsc::Receiver<Vec<EventQueue>>,
}

#[derive(Debug)]
struct Control {
    wake: OwnedFd,
    stop: AtomicBool,
    inbox: Mutex<Vec<Watched>>,
}

impl EventThread {
    /// Starts the thread.
    pub fn start(shared: Shared, name: &str) -> Result<Self, Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("creating an eventfd", error.into()))?;
        let control = Arc::new(Control { wake, stop: AtomicBool::new(false), inbox: Mutex::default() });
        let (sender, ended) = mpsc::sync_channel(1);
        let thread = Thread { events: EventLoop::new(shared), control: Arc::clone(&control), vectors: vec![] };
        std::thread::Builder::new()
            .name(format!("mlx5 {}", name.rsplit('/').next().unwrap_or(name)))
            .spawn(move || {
                // If this fails, nobody waits any more; the queues' memory is freed here.
                let _ = sender.send(thread.run());
            })
            .map_err(|error| Error::io("starting the background thread", error))?;
        Ok(EventThread { control, ended })
    }

    /// Hands an event queue to the thread. `vector` is its interrupt's eventfd, unless another queue shares it.
    pub fn adopt(&self, queue: EventQueue, vector: Option<OwnedFd>) {
        lock(&self.control.inbox).push((queue, vector.map(File::from)));
        signal(&self.control.wake);
    }

    /// Stops the thread and returns its queues. `None` if it misses the deadline: then it keeps them.
    pub fn stop(self) -> Option<Vec<EventQueue>> {
        self.control.stop.store(true, Ordering::Release);
        signal(&self.control.wake);
        let queues = self.ended.recv_timeout(JOIN).ok();
        if queues.is_none() {
            tracing::error!("the background thread did not stop in time: abandoned");
        }
        queues
    }
}

impl Drop for EventThread {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Release);
        signal(&self.control.wake);
    }
}

struct Thread {
    events: EventLoop,
    control: Arc<Control>,
    vectors: Vec<File>,
}

impl Thread {
    fn run(mut self) -> Vec<EventQueue> {
        while !self.control.stop.load(Ordering::Acquire) {
            self.adopt_new();
            let rest = self.events.turn(Clock::SYSTEM.now());
            self.sleep(rest);
        }
        self.adopt_new();
        self.events.queues
    }

    fn adopt_new(&mut self) {
        for (queue, vector) in lock(&self.control.inbox).drain(..) {
            self.events.queues.push(queue);
            self.vectors.extend(vector);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a thread of its own, which there is in real time alone")]
    /// Waits for an interrupt, a request, or `limit` (`None`: no limit).
    fn sleep(&mut self, limit: Option<Duration>) {
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = vec![PollFd::from_borrowed_fd(self.control.wake.as_fd(), PollFlags::IN)];
        if limit.is_some() {
            fds.extend(self.vectors.iter().map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)));
        }
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted by a signal, or failed: in either case do not spin.
            std::thread::sleep(Duration::from_millis(1));
            return;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.revents().contains(PollFlags::IN)).collect();
        drop(fds);
        let mut counter = [0; 8];
        if ready[0] {
            let _ = rustix::io::read(&self.control.wake, &mut counter);
        }
        for (vector, _) in self.vectors.iter_mut().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            // The count does not matter: the queue is read until it is empty.
            let _ = vector.read(&mut counter);
        }
    }
}
