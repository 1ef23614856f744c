//! What other threads hand to a thread that sleeps, and the request to stop. No item is lost, and no wake-up: the
//! models below run through every order of the steps.

use std::os::fd::OwnedFd;

use crate::access::subscribers::signal;
use crate::lock::{AtomicBool, Mutex, Ordering, lock};

/// Wakes the thread. Once raised, it stays so until it is cleared.
pub trait Alarm {
    /// Wakes the thread, now or when it next sleeps.
    fn raise(&self);
    /// Makes the next sleep last again.
    fn clear(&self);
}

/// A non-blocking eventfd.
impl Alarm for OwnedFd {
    fn raise(&self) {
        signal(self);
    }

    fn clear(&self) {
        // The count does not matter. An error says that it was not raised.
        let _ = rustix::io::read(self, &mut [0; 8]);
    }
}

/// Items for a thread that sleeps until `alarm` is raised.
#[derive(Debug)]
pub struct Inbox<T, A = OwnedFd> {
    alarm: A,
    stop: AtomicBool,
    items: Mutex<Vec<T>>,
}

impl<T, A: Alarm> Inbox<T, A> {
    /// An empty inbox.
    pub fn new(alarm: A) -> Self {
        Inbox { alarm, stop: AtomicBool::new(false), items: Mutex::new(vec![]) }
    }

    /// What wakes the thread.
    pub fn alarm(&self) -> &A {
        &self.alarm
    }

    /// Hands `item` to the thread, and wakes it.
    pub fn put(&self, item: T) {
        lock(&self.items).push(item);
        self.alarm.raise();
    }

    /// Asks the thread to stop, and wakes it.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.alarm.raise();
    }

    /// Calls `turn` with the new items until [`stop`](Self::stop) is called. `turn` sleeps at its end; it returns
    /// whether the alarm is raised. Returns the items that no turn has taken: all that were put before `stop`.
    pub fn serve(&self, mut turn: impl FnMut(Vec<T>) -> bool) -> Vec<T> {
        while !self.stop.load(Ordering::Acquire) {
            if turn(self.take()) {
                // Before the next look at `stop` and the items: what comes later raises the alarm again.
                self.alarm.clear();
            }
        }
        self.take()
    }

    fn take(&self) -> Vec<T> {
        std::mem::take(&mut *lock(&self.items))
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use loom::sync::{Condvar, Mutex};

    use super::*;

    /// An eventfd, as loom can follow it: a sleeper that nobody wakes is a deadlock, which loom reports.
    #[derive(Default)]
    struct Flag {
        raised: Mutex<bool>,
        changed: Condvar,
    }

    impl Flag {
        /// Sleeps until it is raised.
        fn wait(&self) {
            let mut raised = lock(&self.raised);
            while !*raised {
                raised = self.changed.wait(raised).unwrap();
            }
        }
    }

    impl Alarm for Flag {
        fn raise(&self) {
            *lock(&self.raised) = true;
            self.changed.notify_all();
        }

        fn clear(&self) {
            *lock(&self.raised) = false;
        }
    }

    /// A thread that sleeps without limit, as behind a dead card. It raises `served` after each item that a turn takes,
    /// and returns all items.
    fn start(inbox: &Arc<Inbox<u32, Flag>>, served: &Arc<Flag>) -> loom::thread::JoinHandle<Vec<u32>> {
        let (inbox, served) = (Arc::clone(inbox), Arc::clone(served));
        loom::thread::spawn(move || {
            let mut all = vec![];
            let rest = inbox.serve(|new| {
                if !new.is_empty() {
                    all.extend(new);
                    served.raise();
                }
                inbox.alarm().wait();
                true
            });
            all.extend(rest);
            all
        })
    }

    fn idle() -> (Arc<Inbox<u32, Flag>>, Arc<Flag>) {
        (Arc::new(Inbox::new(Flag::default())), Arc::default())
    }

    #[test]
    fn an_item_is_served_though_the_thread_goes_to_sleep_meanwhile() {
        loom::model(|| {
            let (inbox, served) = idle();
            let thread = start(&inbox, &served);
            inbox.put(7);
            served.wait();
            inbox.stop();
            assert_eq!(thread.join().unwrap(), [7]);
        });
    }

    #[test]
    fn what_is_put_before_the_stop_comes_back_and_the_thread_ends() {
        loom::model(|| {
            let (inbox, served) = idle();
            let thread = start(&inbox, &served);
            inbox.put(1);
            inbox.put(2);
            inbox.stop();
            assert_eq!(thread.join().unwrap(), [1, 2]);
        });
    }
}
