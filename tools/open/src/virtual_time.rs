//! Software cards in virtual time: cards, cables and drivers on one thread, the same in every run of a seed.
//!
//! Time passes where the driver waits or the program calls [`Clock::pause`], and nowhere else: no wait costs time,
//! however long. All dice come from the seed of the [simulated world](SimulatedWorld), whose
//! [`Record`](mlx5_sim::world::Record) sums up all that the cards did: two runs with equal records were the same.
//!
//! ```
//! use std::time::Duration;
//!
//! use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
//! use mlx5_dv::queue::{Connection, ConnectionOptions};
//! use mlx5_open::virtual_time::World;
//! use mlx5_sim::card::Card;
//! use mlx5_sim::world::Conditions;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let run = |seed| -> Result<_, Box<dyn std::error::Error>> {
//!     let world = World::new(seed);
//!     let conditions = Conditions { loss: 300_000, ..Conditions::default() };
//!     let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], conditions)?;
//!     let end = |card| -> Result<_, mlx5_dv::Error> {
//!         let pd = Pd::alloc(&world.open(card)?)?;
//!         let region = MemoryRegion::allocate(&pd, 4096, AccessFlags::LOCAL_WRITE)?;
//!         Ok((Connection::new(&pd, ConnectionOptions::default())?, region))
//!     };
//!     let ((mut near, _), (mut far, region)) = (end(&cards[0])?, end(&cards[1])?);
//!     near.connect(&far.local()?)?;
//!     far.connect(&near.local()?)?;
//!     far.receive(region.buffer(0..4096)?)?;
//!
//!     // A third of all frames is lost. The cards send again, after timeouts that cost nothing.
//!     near.send_inline(b"hello")?;
//!     assert_eq!(far.wait(Duration::from_secs(60))?.result?.byte_len, 5);
//!     near.wait(Duration::from_secs(60))?.result?;
//!     Ok(world.simulated().record())
//! };
//! assert_eq!(run(7)?, run(7)?);
//! assert_ne!(run(7)?, run(8)?);
//! # Ok(())
//! # }
//! ```
//!
//! A run depends on its seed, and on what the program brings in itself: clocks, threads and random numbers of its own,
//! and memory of its own that it registers, whose addresses differ between processes. Memory that the driver allocates
//! lies at the same addresses each time. Worlds that exist in one process at the same time have addresses of their own,
//! and records that differ.

use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::clock::{Clock, VirtualTime};
use mlx5_dv::{Device, Error, Options};
use mlx5_sim::card::SteppedCard;
use mlx5_sim::world::World as SimulatedWorld;

use crate::glue;
use crate::places::Places;

/// A simulated world with drivers in it.
#[derive(Debug)]
pub struct World {
    simulated: SimulatedWorld,
    clock: Clock,
    places: Arc<Places>,
}

/// The world's time, for drivers.
#[derive(Debug)]
struct Time(SimulatedWorld);

/// How far time may pass in one step: no wait of a driver is longer without a look.
const LONGEST_STEP: Duration = Duration::from_secs(3600);

impl VirtualTime for Time {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn pass(&self, limit: Duration) {
        self.0.advance(self.0.now() + limit.min(LONGEST_STEP));
    }
}

impl World {
    /// An empty world at time 0.
    pub fn new(seed: u64) -> Self {
        let simulated = SimulatedWorld::new(seed);
        let clock = Clock::of(Time(simulated.clone()));
        World { simulated, clock, places: Places::new() }
    }

    /// The simulation: makes cards and cables, and records what happens.
    pub fn simulated(&self) -> &SimulatedWorld {
        &self.simulated
    }

    /// The time that all its drivers wait by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Opens the first function of `card`, with default options.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open(&self, card: &Arc<SteppedCard>) -> Result<Arc<Device>, Error> {
        self.open_with(card, 0, Options::default())
    }

    /// Opens function `index` of `card`, which stays powered as long as the device is open. The clock in `options` is
    /// replaced by the world's; replies are signed and checked.
    ///
    /// # Errors
    /// As [`Device::open`].
    ///
    /// # Panics
    /// There is no such function.
    pub fn open_with(&self, card: &Arc<SteppedCard>, index: usize, mut options: Options) -> Result<Arc<Device>, Error> {
        options.clock = self.clock.clone();
        options.sign_replies = true;
        let (power, places) = (Some(card.clone() as _), Some(Arc::clone(&self.places)));
        Device::open(glue::powered("sim in virtual time".into(), card.function(index), power, places), options)
    }
}
