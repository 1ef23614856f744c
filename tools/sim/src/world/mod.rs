//! A simulated world: cards and cables on one thread, in virtual time. Every run with the same seed is the same.
//!
//! Nothing happens in a world unless somebody [advances](World::advance) it. Time stands still while cards have work to
//! do, and then jumps to the next event: a timeout of a second takes no real time.
//!
//! ```
//! use std::time::Duration;
//! use mlx5_sim::card::Card;
//! use mlx5_sim::world::{Conditions, World};
//!
//! # fn main() -> Result<(), mlx5_sim::card::BuildError> {
//! let world = World::new(7);
//! let conditions = Conditions { loss: 50_000, ..Conditions::default() };
//! let ([left, right], _cable) = world.joined([Card::builder(), Card::builder()], conditions)?;
//! let mut id = [0; 4];
//! left.function(0).config_read(0, &mut id);
//! assert_eq!(id, [0xb3, 0x15, 0x17, 0x10]);
//! while world.advance(Duration::from_secs(1)) {}
//! assert_eq!(world.now(), Duration::from_secs(1));
//! # drop(right);
//! # Ok(())
//! # }
//! ```

mod cable;
mod record;

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use crate::card::{BuildError, Builder, SteppedCard, Wire};
use crate::lock::lock;
use cable::Cable;

pub use cable::Conditions;
pub use record::Record;

/// A world. Cheap to clone; all clones are the same world. `Send` and `Sync`, but meant for use by one thread.
///
/// A client waits like this: it checks its condition; if not met, it advances the world, never past its own deadline,
/// and checks again. It may do so anywhere except inside the closure of
/// [`FunctionHandle::with`](crate::card::FunctionHandle::with) or an [`Observer`](crate::function::Observer).
#[derive(Debug, Clone)]
pub struct World(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    seed: u64,
    /// Time 0. Only differences from it are used.
    start: Instant,
    record: record::Shared,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    now: Duration,
    /// Number of cards created.
    made: usize,
    /// The cards in the order of creation, in which they get their turns. A dropped card is powered off.
    cards: Vec<Weak<SteppedCard>>,
    cables: Vec<Arc<Mutex<Cable>>>,
}

/// A cable between two cards of a world.
#[derive(Debug, Clone)]
pub struct CableHandle(Arc<Mutex<Cable>>);

impl CableHandle {
    /// Changes the cable's properties for frames sent from now on.
    pub fn set_conditions(&self, conditions: Conditions) {
        lock(&self.0).set_conditions(conditions);
    }
}

/// Distance of the MAC addresses of successive cards.
const MACS_A_CARD: u64 = 0x100;

impl World {
    /// An empty world at time 0. All random numbers derive from `seed`.
    pub fn new(seed: u64) -> Self {
        World(Arc::new(Shared {
            seed,
            start: Instant::now(),
            record: record::Shared::default(),
            state: Mutex::default(),
        }))
    }

    /// A card without a cable, or with its own wire. Its MAC addresses are those of the profile, offset for each card
    /// already in the world. It is powered until the last reference to it is dropped.
    ///
    /// # Errors
    /// Those of [`Builder::build`].
    pub fn card(&self, builder: Builder) -> Result<Arc<SteppedCard>, BuildError> {
        let mut state = self.state();
        let number = state.made;
        let record = self.0.record.clone();
        let card = builder
            .count_macs_on(MACS_A_CARD * number as u64)
            .seed(self.0.seed.wrapping_add(0x1000 * (number as u64 + 1)))
            .age(state.now)
            .observer(move |_| record.watcher(number))
            .build_stepped(self.0.start + state.now)?;
        let card = Arc::new(card);
        state.made += 1;
        state.cards.push(Arc::downgrade(&card));
        Ok(card)
    }

    /// Two cards joined by a cable. It replaces the wire of both builders.
    ///
    /// # Errors
    /// Those of [`Builder::build`].
    pub fn joined(
        &self,
        builders: [Builder; 2],
        conditions: Conditions,
    ) -> Result<([Arc<SteppedCard>; 2], CableHandle), BuildError> {
        let (cable, [left, right]) = {
            let mut state = self.state();
            let seed = self.0.seed.wrapping_add(0x100_0000 * (state.cables.len() as u64 + 1));
            let (cable, ends) = Cable::new(conditions, seed, state.now);
            state.cables.push(cable.clone());
            (cable, ends)
        };
        let [first, second] = builders;
        let cards =
            [self.card(first.wire(Wire::with_uplink(left)))?, self.card(second.wire(Wire::with_uplink(right)))?];
        Ok((cards, CableHandle(cable)))
    }

    /// Time since the start of the world.
    pub fn now(&self) -> Duration {
        self.state().now
    }

    /// Does the next step. If a card has work now, gives each card a turn. Otherwise advances time to the next event,
    /// at most to `until`, and then gives each card a turn. Returns false, without doing anything, if the time is
    /// `until` and no card has work.
    pub fn advance(&self, until: Duration) -> bool {
        let mut state = self.state();
        if state.turn(self.0.start) {
            return true;
        }
        if state.now >= until {
            return false;
        }
        state.now = state.next_due(self.0.start).map_or(until, |due| due.min(until));
        state.turn(self.0.start);
        true
    }

    /// Advances until the time is `until` and no card has work.
    pub fn run_until(&self, until: Duration) {
        while self.advance(until) {}
    }

    /// A record of everything that has happened.
    pub fn record(&self) -> Record {
        self.0.record.record()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl State {
    /// One turn of each card at the current time. Returns true if any did something.
    fn turn(&mut self, start: Instant) -> bool {
        for cable in &self.cables {
            lock(cable).set_time(self.now);
        }
        let now = start + self.now;
        let mut worked = false;
        self.cards.retain(|card| {
            let Some(card) = card.upgrade() else { return false };
            worked |= card.step(now);
            true
        });
        worked
    }

    /// Time of the next event after now.
    fn next_due(&self, start: Instant) -> Option<Duration> {
        let cards = self.cards.iter().filter_map(|card| card.upgrade()?.next_due());
        let timers = cards.map(|due| due.saturating_duration_since(start));
        let frames = self.cables.iter().filter_map(|cable| lock(cable).next_due());
        timers.chain(frames).filter(|due| *due > self.now).min()
    }
}

#[cfg(test)]
mod tests;
