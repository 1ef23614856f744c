//! Who turns the event loop of an owned function: a thread of its own; in virtual time, every pause.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::event_loop::{EventLoop, Shared};
use super::event_queue::EventQueue;
use super::event_thread::EventThread;
use crate::clock::{Background, Clock};
use crate::error::Error;
use crate::lock::lock;

/// The event loop under way.
#[derive(Debug)]
pub enum Events {
    /// Turned by a thread.
    Thread(EventThread),
    /// Turned after each pause.
    Pauses(Arc<Served>),
}

/// The event loop where there is no thread.
#[derive(Debug)]
pub struct Served(Mutex<EventLoop>);

impl Background for Served {
    fn turn(&self, now: Duration) -> Option<Duration> {
        // Taken only where a turn of this very loop pauses, which none does.
        self.0.try_lock().ok()?.turn(now)
    }
}

impl Events {
    /// Starts it.
    pub fn start(shared: Shared, name: &str, clock: &Clock) -> Result<Self, Error> {
        if !clock.is_virtual() {
            return EventThread::start(shared, name).map(Events::Thread);
        }
        let served = Arc::new(Served(Mutex::new(EventLoop::new(shared))));
        let background: Arc<dyn Background> = Arc::clone(&served) as _;
        clock.serve(Arc::downgrade(&background) as Weak<dyn Background>);
        Ok(Events::Pauses(served))
    }

    /// Hands an event queue over. `vector` is the eventfd that says when to read it, if no other queue has that vector.
    pub fn adopt(&self, queue: EventQueue, vector: Option<OwnedFd>) {
        match self {
            Events::Thread(thread) => thread.adopt(queue, vector),
            // Read after each pause: nothing sleeps on the vector.
            Events::Pauses(served) => lock(&served.0).queues.push(queue),
        }
    }

    /// Ends it and returns its queues. `None` if it does not end in time: it keeps them.
    pub fn stop(self) -> Option<Vec<EventQueue>> {
        match self {
            Events::Thread(thread) => thread.stop(),
            Events::Pauses(served) => Some(std::mem::take(&mut lock(&served.0).queues)),
        }
    }
}
