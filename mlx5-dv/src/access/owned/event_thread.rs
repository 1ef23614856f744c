//! The background thread of an owned function. It sleeps on the eventfds of the interrupt vectors, and runs the event
//! loop when one fires or a timeout expires.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::event_loop::{EventLoop, Shared};
use super::event_queue::EventQueue;
use super::inbox::Inbox;
use crate::access::Notices;
use crate::clock::Clock;
use crate::error::{Death, Error};

/// How long `stop` waits for the thread.
const JOIN: Duration = Duration::from_secs(5);

/// An event queue, and the eventfd of its interrupt vector.
type Watched = (EventQueue, Option<File>);

/// Handle of the running thread.
#[derive(Debug)]
pub struct EventThread {
    inbox: Arc<Inbox<Watched>>,
    /// Receives the queues when the thread ends.
    ended: mpsc::Receiver<Vec<EventQueue>>,
}

impl EventThread {
    /// Starts the thread, which also heeds `notices`.
    pub fn start(shared: Shared, notices: Notices, name: &str) -> Result<Self, Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("creating an eventfd", error.into()))?;
        let inbox = Arc::new(Inbox::new(wake));
        let (sender, ended) = mpsc::sync_channel(1);
        let Notices { wanted_back, bus_error } = notices;
        let watched = [(wanted_back, Signal::WantedBack), (bus_error, Signal::BusError)];
        let watched = watched.into_iter().filter_map(|(fd, signal)| Some((File::from(fd?), signal))).collect();
        let thread = Thread { events: EventLoop::new(shared), watched };
        let ours = Arc::clone(&inbox);
        std::thread::Builder::new()
            .name(format!("mlx5 {}", name.rsplit('/').next().unwrap_or(name)))
            .spawn(move || {
                // If this fails, nobody waits any more; the queues' memory is freed here.
                let _ = sender.send(thread.run(&ours));
            })
            .map_err(|error| Error::io("starting the background thread", error))?;
        Ok(EventThread { inbox, ended })
    }

    /// Hands an event queue to the thread. `vector` is its interrupt's eventfd, unless another queue shares it.
    pub fn adopt(&self, queue: EventQueue, vector: Option<OwnedFd>) {
        self.inbox.put((queue, vector.map(File::from)));
    }

    /// Stops the thread and returns its queues. `None` if it misses the deadline: then it keeps them.
    pub fn stop(self) -> Option<Vec<EventQueue>> {
        self.inbox.stop();
        let queues = self.ended.recv_timeout(JOIN).ok();
        if queues.is_none() {
            tracing::error!("the background thread did not stop in time: abandoned");
        }
        queues
    }
}

impl Drop for EventThread {
    fn drop(&mut self) {
        self.inbox.stop();
    }
}

/// What an eventfd says.
#[derive(Debug, Clone, Copy)]
enum Signal {
    Interrupt,
    WantedBack,
    BusError,
}

struct Thread {
    events: EventLoop,
    watched: Vec<(File, Signal)>,
}

impl Thread {
    fn run(mut self, inbox: &Inbox<Watched>) -> Vec<EventQueue> {
        let rest = inbox.serve(|new| {
            self.adopt(new);
            let rest = self.events.turn(Clock::SYSTEM.now());
            self.sleep(inbox.alarm(), rest)
        });
        self.adopt(rest);
        self.events.queues
    }

    fn adopt(&mut self, new: Vec<Watched>) {
        for (queue, vector) in new {
            self.events.queues.push(queue);
            self.watched.extend(vector.map(|vector| (vector, Signal::Interrupt)));
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a thread of its own, which there is in real time alone")]
    /// Waits for an interrupt, for `wake`, or for `limit` (`None`: no limit, and no interrupts). Returns whether `wake`
    /// is signalled.
    fn sleep(&mut self, wake: &OwnedFd, limit: Option<Duration>) -> bool {
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = vec![PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)];
        if limit.is_some() {
            fds.extend(self.watched.iter().map(|(file, _)| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)));
        }
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted by a signal, or failed: in either case do not spin.
            std::thread::sleep(Duration::from_millis(1));
            return false;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| fd.revents().contains(PollFlags::IN)).collect();
        drop(fds);
        for ((file, signal), _) in self.watched.iter_mut().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            // The count does not matter: the queue is read until it is empty.
            let _ = file.read(&mut [0; 8]);
            heed(*signal, &self.events.shared);
        }
        ready[0]
    }
}

/// Acts on what the system says. An interrupt only wakes the thread.
fn heed(signal: Signal, shared: &Shared) {
    match signal {
        Signal::Interrupt => {}
        Signal::WantedBack => shared.subscribers.want_back(),
        Signal::BusError => shared.liveness.end(Death::BusError),
    }
}
