//! The clock of all waits in the driver.
//!
//! A wait reads the time from its [`Clock`] and sleeps by [`Clock::pause`]. The default is the system's clock.
//!
//! In *virtual time* a simulation provides the time, and time passes only in pauses. The simulation runs in them, on
//! the waiting thread: cards, wires and drivers need no threads, a timeout costs no real time, and every run is the
//! same. The driver then starts no thread either; it reads its event queues after each pause.
//!
//! ```
//! use std::sync::Mutex;
//! use std::time::Duration;
//!
//! use mlx5_dv::clock::{Clock, VirtualTime};
//!
//! // A simulation in which nothing ever happens.
//! #[derive(Debug, Default)]
//! struct Empty(Mutex<Duration>);
//!
//! impl VirtualTime for Empty {
//!     fn now(&self) -> Duration {
//!         *self.0.lock().unwrap()
//!     }
//!     fn pass(&self, limit: Duration) {
//!         *self.0.lock().unwrap() += limit;
//!     }
//! }
//!
//! let clock = Clock::of(Empty::default());
//! clock.pause(Duration::from_secs(3600));
//! assert_eq!(clock.now(), Duration::from_secs(3600));
//! ```

use std::fmt::{self, Debug};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime};

use crate::lock::lock;

/// The origin of time: the first call in this process.
#[expect(clippy::disallowed_methods, reason = "here the clock is")]
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A simulation that controls time.
pub trait VirtualTime: Send + Sync + Debug {
    /// Time since the simulation began. Changes only in [`pass`](Self::pass).
    fn now(&self) -> Duration;

    /// Runs what is due now. If nothing is, advances time to the next event and runs that, but at most by `limit`.
    fn pass(&self, limit: Duration);
}

/// Background work of a driver without a thread: called after each pause.
pub(crate) trait Background: Send + Sync {
    /// Does what is due. Returns the time until the next call is needed; `None` if only an event can need one.
    fn turn(&self, now: Duration) -> Option<Duration>;
}

/// The system's clock or a virtual one. Clones share the same clock.
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<Simulated>>);

struct Simulated {
    time: Box<dyn VirtualTime>,
    /// In registration order, so that every run is the same.
    background: Mutex<Vec<Weak<dyn Background>>>,
}

impl Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("Clock(system)"),
            Some(simulated) => write!(f, "Clock({:?})", simulated.time),
        }
    }
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Clock(None)
    }

    /// The system's clock as a constant.
    pub(crate) const SYSTEM: &'static Clock = {
        static SYSTEM: Clock = Clock(None);
        &SYSTEM
    };

    /// A virtual clock. All cards of one simulation must get clones of the same clock.
    pub fn of(time: impl VirtualTime + 'static) -> Self {
        Clock(Some(Arc::new(Simulated { time: Box::new(time), background: Mutex::default() })))
    }

    /// Whether time passes only in pauses.
    pub fn is_virtual(&self) -> bool {
        self.0.is_some()
    }

    /// Time since the clock's origin. It never goes back.
    #[expect(clippy::disallowed_methods, reason = "here the clock is")]
    pub fn now(&self) -> Duration {
        match &self.0 {
            None => BEGIN.elapsed(),
            Some(simulated) => simulated.time.now(),
        }
    }

    /// Lets time pass, at most `limit`. Virtual time advances until the simulation has done something, possibly at
    /// once: to wait for more, pause again. A program that polls must call this in virtual time whenever it finds
    /// nothing.
    #[expect(clippy::disallowed_methods, reason = "here the clock is")]
    pub fn pause(&self, limit: Duration) {
        match &self.0 {
            None => std::thread::sleep(limit),
            Some(simulated) => simulated.pause(limit),
        }
    }

    /// Calls `background` after each pause from now on. For virtual time only: there, all waits share the same pauses.
    pub(crate) fn serve(&self, background: Weak<dyn Background>) {
        if let Some(simulated) = &self.0 {
            lock(&simulated.background).push(background);
        }
    }

    /// A number that differs between calls; it differs between runs too, except in virtual time.
    #[expect(clippy::disallowed_methods, reason = "here the clock is")]
    pub(crate) fn nonce(&self) -> u64 {
        let time = match &self.0 {
            None => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
            Some(simulated) => simulated.time.now(),
        };
        time.as_nanos() as u64
    }
}

impl Simulated {
    fn pause(&self, limit: Duration) {
        self.time.pass(self.turn().map_or(limit, |rest| rest.min(limit)));
        self.turn();
    }

    /// Calls every driver. Returns the shortest time until the next call.
    fn turn(&self) -> Option<Duration> {
        // Without the lock: a turn may end in the death of a card, and its handlers may do anything.
        let all: Vec<_> = {
            let mut background = lock(&self.background);
            background.retain(|one| one.strong_count() > 0);
            background.iter().filter_map(Weak::upgrade).collect()
        };
        let now = self.time.now();
        all.iter().filter_map(|one| one.turn(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulation with an event at each full second.
    #[derive(Debug, Default)]
    struct Seconds(Mutex<Duration>);

    impl VirtualTime for Seconds {
        fn now(&self) -> Duration {
            *lock(&self.0)
        }

        fn pass(&self, limit: Duration) {
            let mut now = lock(&self.0);
            let next = Duration::from_secs(now.as_secs() + 1);
            *now = next.min(now.saturating_add(limit));
        }
    }

    /// Needs a turn every 300 ms.
    #[derive(Default)]
    struct Driver(Mutex<Vec<Duration>>);

    impl Background for Driver {
        fn turn(&self, now: Duration) -> Option<Duration> {
            lock(&self.0).push(now);
            let rest = Duration::from_millis(300 - now.as_millis() as u64 % 300);
            Some(rest)
        }
    }

    #[test]
    fn a_pause_ends_with_what_happens_first_and_drivers_have_their_turn() {
        let clock = Clock::of(Seconds::default());
        clock.pause(Duration::from_millis(400));
        assert_eq!(clock.now().as_millis(), 400);
        clock.pause(Duration::MAX);
        assert_eq!(clock.now().as_millis(), 1000);

        let driver = Arc::new(Driver::default());
        let background: Arc<dyn Background> = Arc::clone(&driver) as _;
        clock.serve(Arc::downgrade(&background));
        drop(background);
        clock.clone().pause(Duration::MAX);
        clock.pause(Duration::from_millis(100));
        let turns: Vec<_> = lock(&driver.0).iter().map(Duration::as_millis).collect();
        assert_eq!((turns, clock.now().as_millis()), (vec![1000, 1200, 1200, 1300], 1300));
        drop(driver);
        clock.pause(Duration::from_millis(300));
        assert_eq!(clock.now().as_millis(), 1600, "a driver that is gone wants nothing");
    }

    #[test]
    fn the_system_s_clock_goes_on() {
        let (clock, begin) = (Clock::system(), Instant::now());
        let first = clock.now();
        clock.pause(Duration::from_millis(2));
        let passed = clock.now() - first;
        assert!(passed >= Duration::from_millis(2) && passed <= begin.elapsed());
        assert!(!clock.is_virtual() && clock.nonce() != clock.nonce());
    }
}
