//! What drives an owned function's event loop: a thread of its own, or in virtual time every wait.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::event_loop::{EventLoop, Shared};
use super::event_queue::EventQueue;
use super::event_thread::EventThread;
use crate::access::Notices;
use crate::clock::{Background, Clock};
use crate::error::Error;
use crate::lock::lock;

/// The running event loop.
#[derive(Debug)]
pub enum Events {
    /// Driven by a thread.
    Thread(EventThread),
    /// Driven after each wait.
    Pauses(Arc<Served>),
}

/// The event loop in virtual time, without a thread.
#[derive(Debug)]
pub struct Served(Mutex<EventLoop>);

impl Background for Served {
    fn turn(&self, now: Duration) -> Option<Duration> {
        // The lock is held only if a turn of this very loop waits, and none does.
        self.0.try_lock().ok()?.turn(now)
    }
}

impl Events {
    /// Starts the event loop. A system that signals `notices` goes by real time.
    pub fn start(shared: Shared, notices: Notices, name: &str, clock: &Clock) -> Result<Self, Error> {
        if !clock.is_virtual() {
            return EventThread::start(shared, notices, name).map(Events::Thread);
        }
        let served = Arc::new(Served(Mutex::new(EventLoop::new(shared))));
        let background: Arc<dyn Background> = Arc::clone(&served) as _;
        clock.serve(Arc::downgrade(&background) as Weak<dyn Background>);
        Ok(Events::Pauses(served))
    }

    /// Hands an event queue over. `vector` is its interrupt's eventfd, unless another queue shares it.
    pub fn adopt(&self, queue: EventQueue, vector: Option<OwnedFd>) {
        match self {
            Events::Thread(thread) => thread.adopt(queue, vector),
            // Read after each wait: nothing sleeps on the vector.
            Events::Pauses(served) => lock(&served.0).queues.push(queue),
        }
    }

    /// Stops the loop and returns its queues. `None` if it misses the deadline: then it keeps them.
    pub fn stop(self) -> Option<Vec<EventQueue>> {
        match self {
            Events::Thread(thread) => thread.stop(),
            Events::Pauses(served) => Some(std::mem::take(&mut lock(&served.0).queues)),
        }
    }
}
