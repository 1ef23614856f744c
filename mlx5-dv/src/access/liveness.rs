//! Whether the card is alive. Everything that waits for the card checks this, and is woken from here when it dies.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use crate::error::Death;
use crate::lock::{Mutex, OnceLock, lock};

/// A component whose waiters must be woken when the card dies.
pub trait Wake: Send + Sync {
    /// Wakes every waiter; each then checks [`Liveness::death`].
    fn wake(&self);
}

/// Cuts a dead card off from memory.
pub trait StopDma: Send + Sync {
    /// After `Ok`, the card reads and writes no memory any more. An error where that cannot be guaranteed.
    fn stop_dma(&self) -> io::Result<()>;
}

/// Whether the card is alive, shared by all of its users. Death is final; the first cause is kept. The card's DMA is
/// stopped before anybody can see the death, so whoever sees it may free memory that the card was using; not if it is
/// [`Death::NotStopped`].
#[derive(Default)]
pub struct Liveness {
    death: OnceLock<Death>,
    /// Held while DMA is being stopped, so that nobody sees the death before.
    ending: Mutex<Option<Weak<dyn StopDma>>>,
    waiters: Mutex<Vec<Weak<dyn Wake>>>,
}

impl fmt::Debug for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness").field("death", &self.death.get()).finish_non_exhaustive()
    }
}

impl Liveness {
    /// A live card.
    pub fn new() -> Arc<Self> {
        Arc::new(Liveness::default())
    }

    /// Why the card is dead; `None` while it lives.
    pub fn death(&self) -> Option<Death> {
        self.death.get().cloned()
    }

    /// Error if the card is dead.
    pub fn check(&self) -> Result<(), Death> {
        self.death().map_or(Ok(()), Err)
    }

    /// Wakes `waiter` when the card dies.
    pub fn watch(&self, waiter: Weak<dyn Wake>) {
        let mut waiters = lock(&self.waiters);
        waiters.retain(|waiter| waiter.strong_count() > 0);
        waiters.push(waiter);
    }

    /// Sets how the card's DMA is stopped when it dies.
    pub fn stop_with(&self, stop: Weak<dyn StopDma>) {
        *lock(&self.ending) = Some(stop);
    }

    /// Marks the card dead: stops its DMA, then wakes every waiter. Only the first call has an effect.
    pub fn end(&self, death: Death) {
        let ending = lock(&self.ending);
        if self.death.get().is_some() {
            return;
        }
        let stopped = ending.as_ref().and_then(Weak::upgrade).map_or(Ok(()), |card| card.stop_dma());
        let death = match stopped {
            Err(error) if !is_unreachable(&death, &error) => {
                Death::NotStopped { cause: Box::new(death), reason: error.to_string() }
            }
            _ => death,
        };
        let first = self.death.set(death.clone()).is_ok();
        drop(ending);
        if first {
            tracing::error!(%death, "card is dead");
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        // Without the lock: a waiter may register again.
        let waiters = std::mem::take(&mut *lock(&self.waiters));
        for waiter in waiters.iter().filter_map(Weak::upgrade) {
            waiter.wake();
        }
    }

    /// Closes the device on purpose: wakes every waiter.
    pub fn close(&self) {
        if self.death.set(Death::Closed).is_ok() {
            self.wake_all();
        }
    }

    /// A register or memory access failed with `error`: marks the card dead.
    pub fn broken(&self, error: &io::Error) -> Death {
        self.end(match error.raw_os_error() {
            // The kernel's errors for a function that is no longer on its bus.
            Some(libc::EIO | libc::ENODEV | libc::ENXIO) => Death::Vanished,
            _ => Death::ServerGone { reason: error.to_string() },
        });
        self.death.get().cloned().unwrap_or(Death::Closed)
    }
}

/// Whether a card that died of `death` reaches no memory any more, though stopping its DMA failed with `error`: the
/// function is off its bus, or its server has ended. A server that does not answer may go on later.
fn is_unreachable(death: &Death, error: &io::Error) -> bool {
    match death {
        Death::Vanished => true,
        Death::ServerGone { .. } => error.kind() != io::ErrorKind::TimedOut,
        _ => false,
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    /// Counts how often it was stopped or woken. Relaxed: the death orders it.
    struct Counter(AtomicU32);

    impl StopDma for Counter {
        fn stop_dma(&self) -> io::Result<()> {
            self.0.fetch_add(1, Relaxed);
            Ok(())
        }
    }

    impl Wake for Counter {
        fn wake(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn counter() -> Arc<Counter> {
        Arc::new(Counter(AtomicU32::new(0)))
    }

    #[test]
    fn dma_stops_once_whoever_finds_the_death_and_before_anybody_knows_of_it() {
        loom::model(|| {
            let (liveness, dma) = (Liveness::new(), counter());
            let stop: Arc<dyn StopDma> = Arc::clone(&dma) as _;
            liveness.stop_with(Arc::downgrade(&stop));
            let finders = [Death::Vanished, Death::Closed].map(|death| {
                let liveness = Arc::clone(&liveness);
                loom::thread::spawn(move || liveness.end(death))
            });
            if liveness.death().is_some() {
                assert_eq!(dma.0.load(Relaxed), 1);
            }
            for finder in finders {
                finder.join().unwrap();
            }
            assert_eq!(dma.0.load(Relaxed), 1);
            assert!(liveness.death().is_some());
        });
    }

    #[test]
    fn a_waiter_that_comes_while_the_card_dies_is_woken_or_sees_the_death() {
        loom::model(|| {
            let liveness = Liveness::new();
            let dying = Arc::clone(&liveness);
            let death = loom::thread::spawn(move || dying.end(Death::Vanished));
            let waiter = counter();
            let woken: Arc<dyn Wake> = Arc::clone(&waiter) as _;
            liveness.watch(Arc::downgrade(&woken));
            let seen = liveness.check().is_err();
            death.join().unwrap();
            assert!(seen || waiter.0.load(Relaxed) == 1);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    /// A card that must not be known to be dead while its DMA is being stopped.
    struct Card {
        liveness: Weak<Liveness>,
        stopped: AtomicU32,
    }

    impl StopDma for Card {
        fn stop_dma(&self) -> io::Result<()> {
            assert!(self.liveness.upgrade().is_some_and(|liveness| liveness.death().is_none()));
            self.stopped.fetch_add(1, Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_card_s_dma_stops_once_and_before_its_death_is_known() {
        let liveness = Liveness::new();
        let card = Arc::new(Card { liveness: Arc::downgrade(&liveness), stopped: AtomicU32::new(0) });
        let stop: Arc<dyn StopDma> = Arc::clone(&card) as _;
        liveness.stop_with(Arc::downgrade(&stop));
        liveness.end(Death::Vanished);
        liveness.end(Death::Closed);
        assert_eq!((liveness.death(), card.stopped.load(Relaxed)), (Some(Death::Vanished), 1));
    }

    /// A card whose DMA cannot be stopped.
    struct Unstoppable(io::ErrorKind);

    impl StopDma for Unstoppable {
        fn stop_dma(&self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_card_that_may_still_write_does_not_give_memory_back() {
        let gone = || Death::ServerGone { reason: String::new() };
        for (cause, kind, frees_memory) in [
            (Death::Vanished, io::ErrorKind::Other, true),
            (gone(), io::ErrorKind::NotConnected, true),
            (gone(), io::ErrorKind::TimedOut, false),
            (Death::Disabled, io::ErrorKind::Other, false),
        ] {
            let (liveness, card) = (Liveness::new(), Arc::new(Unstoppable(kind)));
            let stop: Arc<dyn StopDma> = Arc::clone(&card) as _;
            liveness.stop_with(Arc::downgrade(&stop));
            liveness.end(cause.clone());
            let death = liveness.death().expect("a dead card");
            assert_eq!(Error::Dead(death.clone()).frees_memory(), frees_memory, "{death}");
            assert_eq!(death == cause, frees_memory, "{death}");
        }
    }

    #[test]
    fn a_function_off_its_bus_and_a_server_that_hung_up_are_told_apart() {
        let death = |error: io::Error| Liveness::new().broken(&error);
        assert_eq!(death(io::Error::from_raw_os_error(libc::EIO)), Death::Vanished);
        assert!(matches!(death(io::Error::from_raw_os_error(libc::EPIPE)), Death::ServerGone { .. }));
    }
}
