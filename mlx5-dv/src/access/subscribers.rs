//! Delivery of the card's events to subscribers.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};

use rustix::event::{EventfdFlags, eventfd};

use super::liveness::{Liveness, Wake};
use super::{AsyncEvent, AsyncEvents};
use crate::error::Error;
use crate::lock::{AtomicBool, Mutex, Ordering, lock};

/// Events that a listener's channel can buffer; more are dropped, and counted.
const BACKLOG: usize = 1024;

/// Subscribers: one eventfd per CQ, and channels for asynchronous events.
#[derive(Debug, Default)]
pub struct Subscribers {
    queues: Mutex<HashMap<u32, OwnedFd>>,
    listeners: Mutex<Vec<Listener>>,
    /// Whether the system wants the function back.
    wanted_back: AtomicBool,
}

/// A listener to asynchronous events.
#[derive(Debug)]
struct Listener {
    channel: mpsc::SyncSender<AsyncEvent>,
    /// Events that were dropped, until the listener takes the number.
    lost: Arc<AtomicU64>,
    /// An eventfd that counts what is sent.
    count: Option<OwnedFd>,
}

impl Subscribers {
    /// Creates the eventfd of CQ `cqn`. Each of the CQ's events signals it, and so does the card's death. Errors: the
    /// card is dead already, so nothing would signal it.
    pub fn subscribe(&self, cqn: u32, liveness: &Liveness) -> Result<OwnedFd, Error> {
        let failed = |error: rustix::io::Errno| Error::io("creating an eventfd", error.into());
        let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let theirs = rustix::io::dup(&ours).map_err(failed)?;
        lock(&self.queues).insert(cqn, ours);
        // Checked after the insertion: an earlier death has signalled only the eventfds present then.
        liveness.check().inspect_err(|_| self.forget(cqn))?;
        Ok(theirs)
    }

    /// Ends the subscription of [`subscribe`](Self::subscribe).
    pub fn forget(&self, cqn: u32) {
        lock(&self.queues).remove(&cqn);
    }

    /// Opens a channel for asynchronous events. It closes when the card dies, or at once if the card is dead. Each
    /// event, a call of [`want_back`](Self::want_back), the first event that is lost, and then the death add one to
    /// `count`.
    pub fn listen(&self, liveness: &Liveness, count: Option<OwnedFd>) -> AsyncEvents {
        let (channel, events) = mpsc::sync_channel(BACKLOG);
        let lost = Arc::default();
        let mut listeners = lock(&self.listeners);
        if self.is_wanted_back() {
            count.iter().for_each(signal);
        }
        listeners.push(Listener { channel, lost: Arc::clone(&lost), count });
        drop(listeners);
        // Checked after the insertion: an earlier death has closed only the channels present then.
        if liveness.check().is_err() {
            self.wake();
        }
        AsyncEvents { events, lost }
    }

    /// Signals the eventfd of CQ `cqn`.
    pub fn completed(&self, cqn: u32) {
        if let Some(fd) = lock(&self.queues).get(&cqn) {
            signal(fd);
        }
    }

    /// Tells every listener that the system wants the function back. Only the first call has an effect.
    pub fn want_back(&self) {
        if !self.wanted_back.swap(true, Ordering::AcqRel) {
            lock(&self.listeners).iter().flat_map(|listener| &listener.count).for_each(signal);
        }
    }

    /// Whether the system wants the function back.
    pub fn is_wanted_back(&self) -> bool {
        self.wanted_back.load(Ordering::Acquire)
    }

    /// Sends `event` to every listener.
    pub fn tell(&self, event: AsyncEvent) {
        lock(&self.listeners).retain(|listener| match listener.channel.try_send(event.clone()) {
            Ok(()) => {
                listener.count.iter().for_each(signal);
                true
            }
            Err(mpsc::TrySendError::Full(_)) => {
                tracing::warn!(?event, "an event listener is too slow: event dropped");
                if listener.lost.fetch_add(1, std::sync::atomic::Ordering::AcqRel) == 0 {
                    listener.count.iter().for_each(signal);
                }
                true
            }
            Err(mpsc::TrySendError::Disconnected(_)) => false,
        });
    }
}

impl Wake for Subscribers {
    fn wake(&self) {
        lock(&self.queues).values().for_each(signal);
        // Closes the listeners' channels, and then wakes who waits for one.
        for Listener { channel, count, .. } in lock(&self.listeners).drain(..) {
            drop(channel);
            count.iter().for_each(signal);
        }
    }
}

/// Adds one to an eventfd. Fails only if the counter is full, and then its reader is awake anyway.
pub fn signal(fd: &OwnedFd) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::{Arc, Weak};

    use super::*;
    use crate::error::Death;

    fn card() -> (Arc<Liveness>, Arc<Subscribers>) {
        let (liveness, subscribers) = (Liveness::new(), Arc::new(Subscribers::default()));
        let waiter: Arc<dyn Wake> = Arc::clone(&subscribers) as _;
        liveness.watch(Arc::downgrade(&waiter) as Weak<dyn Wake>);
        (liveness, subscribers)
    }

    #[test]
    fn a_listener_to_a_card_that_dies_meanwhile_does_not_wait_for_ever() {
        loom::model(|| {
            let (liveness, subscribers) = card();
            let dying = Arc::clone(&liveness);
            let death = loom::thread::spawn(move || dying.end(Death::Vanished));
            let events = subscribers.listen(&liveness, None).events;
            death.join().unwrap();
            assert_eq!(events.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        });
    }

    #[test]
    fn a_subscriber_to_a_card_that_dies_meanwhile_is_signalled_or_refused() {
        loom::model(|| {
            let (liveness, subscribers) = card();
            let dying = Arc::clone(&liveness);
            let death = loom::thread::spawn(move || dying.end(Death::Vanished));
            let fd = subscribers.subscribe(7, &liveness);
            death.join().unwrap();
            if let Ok(fd) = fd {
                let mut count = [0; 8];
                assert_eq!(rustix::io::read(&fd, &mut count), Ok(8), "not signalled: its reader would sleep for ever");
            }
        });
    }
}
