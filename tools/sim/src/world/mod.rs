//! Cards, cables and a clock of their own: everything on one thread, in virtual time, the same in every run of a seed.
//!
//! Nothing happens in a world unless somebody [advances](World::advance) it. Time stands still while cards have work to
//! do, and jumps to the next thing that is due when they have none: a timeout of a second costs nothing.
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

/// A world. Cheap to clone; all clones are the same world. `Send` and `Sync`, though its point is to be used by one
/// thread.
///
/// A client waits so: it looks whether what it waits for has come; if not, it advances the world, never past its own
/// deadline, and looks again. It may do that anywhere but inside the closure of
/// [`FunctionHandle::with`](crate::card::FunctionHandle::with) or an [`Observer`](crate::function::Observer).
#[derive(Debug, Clone)]
pub struct World(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    seed: u64,
    /// Stands for time 0. It is a label: only differences from it are ever looked at.
    start: Instant,
    record: record::Shared,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    now: Duration,
    /// How many cards there have been.
    made: usize,
    /// In the order in which they were made, which is the order of their turns. One that was dropped has no power.
    cards: Vec<Weak<SteppedCard>>,
    cables: Vec<Arc<Mutex<Cable>>>,
}

/// A cable between two cards of a world.
#[derive(Debug, Clone)]
pub struct CableHandle(Arc<Mutex<Cable>>);

impl CableHandle {
    /// What the cable does to the frames that are sent from now on.
    pub fn set_conditions(&self, conditions: Conditions) {
        lock(&self.0).set_conditions(conditions);
    }
}

/// Addresses between the functions of one card and those of the next.
const MACS_A_CARD: u64 = 0x100;

impl World {
    /// An empty world at time 0. All dice that are thrown in it come from `seed`.
    pub fn new(seed: u64) -> Self {
        World(Arc::new(Shared {
            seed,
            start: Instant::now(),
            record: record::Shared::default(),
            state: Mutex::default(),
        }))
    }

    /// A card without a cable, or with a wire of its own. Its MAC addresses are those of the profile, counted on for
    /// each card that the world has already. It has power until the last reference to it is dropped.
    ///
    /// # Errors
    /// As of [`Builder::build`].
    pub fn card(&self, builder: Builder) -> Result<Arc<SteppedCard>, BuildError> {
        let mut state = self.state();
        let number = state.made;
        let record = self.0.record.clone();
        let card = builder
            .count_macs_on(MACS_A_CARD * number as u64)
            .seed(self.0.seed.wrapping_add(0x1000 * (number as u64 + 1)))
            .observer(move |_| record.watcher(number))
            .build_stepped(self.0.start + state.now)?;
        let card = Arc::new(card);
        state.made += 1;
        state.cards.push(Arc::downgrade(&card));
        Ok(card)
    }

    /// Two cards, joined by a cable. It is the wire of both: a wire that a builder was given is not used.
    ///
    /// # Errors
    /// As of [`Builder::build`].
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

    /// The time since the world began.
    pub fn now(&self) -> Duration {
        self.state().now
    }

    /// Does what is to be done next: a turn of each card if any has work to do now; otherwise lets time pass until the
    /// next thing is due, or until `until`, and gives each card a turn then. False, and nothing was done, if `until`
    /// has come and no card has work.
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

    /// Advances until `until` has come and no card has work.
    pub fn run_until(&self, until: Duration) {
        while self.advance(until) {}
    }

    /// What happened so far.
    pub fn record(&self) -> Record {
        self.0.record.record()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl State {
    /// One turn of each card at the present time. True if any did something.
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

    /// When the next thing is due, later than now.
    fn next_due(&self, start: Instant) -> Option<Duration> {
        let cards = self.cards.iter().filter_map(|card| card.upgrade()?.next_due());
        let timers = cards.map(|due| due.saturating_duration_since(start));
        let frames = self.cables.iter().filter_map(|cable| lock(cable).next_due());
        timers.chain(frames).filter(|due| *due > self.now).min()
    }
}

#[cfg(test)]
mod tests;
