//! Who is told of the card's events.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc;

use rustix::event::{EventfdFlags, eventfd};

use super::AsyncEvent;
use super::liveness::{Liveness, Wake};
use crate::error::Error;
use crate::lock::{Mutex, lock};

/// Events that a listener may fall behind before it loses some.
const BACKLOG: usize = 1024;

/// Who is to be told of what: an eventfd a CQ, and listeners for asynchronous events.
#[derive(Debug, Default)]
pub struct Subscribers {
    queues: Mutex<HashMap<u32, OwnedFd>>,
    listeners: Mutex<Vec<mpsc::SyncSender<AsyncEvent>>>,
}

impl Subscribers {
    /// The eventfd of CQ `cqn`, from now on signalled at each of its events, and at the card's death. Error for a card
    /// that is dead: nobody would signal it any more.
    pub fn subscribe(&self, cqn: u32, liveness: &Liveness) -> Result<OwnedFd, Error> {
        let failed = |error: rustix::io::Errno| Error::io("creating an eventfd", error.into());
        let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let theirs = rustix::io::dup(&ours).map_err(failed)?;
        lock(&self.queues).insert(cqn, ours);
        // Only now: a death that came before the insertion has signalled the others alone.
        liveness.check().inspect_err(|_| self.forget(cqn))?;
        Ok(theirs)
    }

    /// Ends what [`subscribe`](Self::subscribe) began.
    pub fn forget(&self, cqn: u32) {
        lock(&self.queues).remove(&cqn);
    }

    /// Asynchronous events from now on; the channel closes when the card dies, or at once if it is dead.
    pub fn listen(&self, liveness: &Liveness) -> mpsc::Receiver<AsyncEvent> {
        let (sender, receiver) = mpsc::sync_channel(BACKLOG);
        lock(&self.listeners).push(sender);
        // Only now: a death that came before has closed the others' channels alone.
        if liveness.check().is_err() {
            self.wake();
        }
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
            let events = subscribers.listen(&liveness);
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
