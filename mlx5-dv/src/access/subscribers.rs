//! Who is told of the card's events.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, mpsc};

use rustix::event::{EventfdFlags, eventfd};

use super::AsyncEvent;
use super::liveness::Wake;
use crate::error::Error;
use crate::lock::lock;

/// Events that a listener may fall behind before it loses some.
const BACKLOG: usize = 1024;

/// Who is to be told of what: an eventfd a CQ, and listeners for asynchronous events.
#[derive(Debug, Default)]
pub struct Subscribers {
    queues: Mutex<HashMap<u32, OwnedFd>>,
    listeners: Mutex<Vec<mpsc::SyncSender<AsyncEvent>>>,
}

impl Subscribers {
    /// The eventfd of CQ `cqn`, from now on signalled at each of its events.
    pub fn subscribe(&self, cqn: u32) -> Result<OwnedFd, Error> {
        let failed = |error: rustix::io::Errno| Error::io("creating an eventfd", error.into());
        let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let theirs = rustix::io::dup(&ours).map_err(failed)?;
        lock(&self.queues).insert(cqn, ours);
        Ok(theirs)
    }

    /// Ends what [`subscribe`](Self::subscribe) began.
    pub fn forget(&self, cqn: u32) {
        lock(&self.queues).remove(&cqn);
    }

    /// Asynchronous events from now on.
    pub fn listen(&self) -> mpsc::Receiver<AsyncEvent> {
        let (sender, receiver) = mpsc::sync_channel(BACKLOG);
        lock(&self.listeners).push(sender);
        receiver
    }

    /// CQ `cqn` has completions.
    pub fn completed(&self, cqn: u32) {
        if let Some(fd) = lock(&self.queues).get(&cqn) {
            signal(fd);
        }
    }

    /// Tells every listener of `event`.
    pub fn tell(&self, event: AsyncEvent) {
        lock(&self.listeners).retain(|listener| match listener.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::TrySendError::Full(_)) => {
                tracing::warn!(?event, "a listener fell behind: event lost");
                true
            }
            Err(mpsc::TrySendError::Disconnected(_)) => false,
        });
    }
}

impl Wake for Subscribers {
    fn wake(&self) {
        lock(&self.queues).values().for_each(signal);
        // Listeners end: their channel closes.
        lock(&self.listeners).clear();
    }
}

/// Adds one to an eventfd. It fails only when the counter is full, and then its reader is awake anyway.
pub fn signal(fd: &OwnedFd) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}
