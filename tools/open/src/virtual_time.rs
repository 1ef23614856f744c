//! Software cards in virtual time: cards, cables and drivers on one thread. Every run with the same seed is the same.
//!
//! Time passes only where the driver waits or the program calls [`Clock::pause`]: waits take no real time, however
//! long. All random numbers derive from the seed of the [simulated world](SimulatedWorld). Its
//! [`Record`](mlx5_sim::world::Record) is a hash of everything that the cards did: two runs with equal records were the
//! same.
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
//!     // A third of all frames is lost. The cards retransmit, after timeouts that take no real time.
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
//! A run depends on its seed, and on what the program brings in itself: clocks, threads and random numbers of its own.
//! Memory has addresses of the world's for keys, work requests and remotes
//! ([`MemoryRegion::addr`](mlx5_dv::objects::MemoryRegion::addr)), which are the same each time and not those of the
//! process; of a vector of the program's only its place within a page is left. Any number of worlds may exist in a
//! process at once.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mlx5_dv::access::Function;
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

/// The world's time, as the driver's clock.
#[derive(Debug)]
struct Time(SimulatedWorld);

/// Maximum step of time: no wait of a driver is longer without a check.
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
        World { simulated, clock, places: Arc::new(Places::new()) }
    }

    /// The simulation: makes cards and cables, and records what happens.
    pub fn simulated(&self) -> &SimulatedWorld {
        &self.simulated
    }

    /// The clock of all its drivers.
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
        Device::open(self.function(card, index), options)
    }

    /// Function `index` of `card`, for those who open it by [`Device::open`] with a wrapping of their own. The options
    /// must have the world's [`clock`](Self::clock).
    ///
    /// # Panics
    /// There is no such function.
    pub fn function(&self, card: &Arc<SteppedCard>, index: usize) -> Function {
        let (power, places) = (Some(card.clone() as _), Some(Arc::clone(&self.places)));
        // An earlier opening is not waited for: who would end it is on this thread.
        let name = format!("sim function {index} in virtual time");
        glue::powered(name, card.function(index), power, places, OnceLock::new())
    }
}

#[cfg(test)]
mod tests {
    use mlx5_dv::memory::HostMemory;
    use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd};
    use mlx5_dv::queue::{Connection, ConnectionOptions};
    use mlx5_sim::card::Card;
    use mlx5_sim::world::{Conditions, Record};

    use super::*;

    /// A world with two cards, two drivers and a connection, and its record once a write of remote memory is done.
    fn world_and_record() -> (impl Sized, Record) {
        let world = World::new(5);
        let (cards, _) = world.simulated().joined([Card::builder(), Card::builder()], Conditions::default()).unwrap();
        let ends = cards.each_ref().map(|card| {
            let pd = Pd::alloc(&world.open(card).unwrap()).unwrap();
            let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
            let region = MemoryRegion::allocate(&pd, 8192, rights).unwrap();
            let ours = MemoryRegion::register(&pd, HostMemory::allocate(100_000).unwrap(), rights).unwrap();
            let mut options = ConnectionOptions::default();
            options.remote_access = AccessFlags::REMOTE_WRITE;
            (Connection::new(&pd, options).unwrap(), region, ours)
        });
        let [(mut near, from, ours), (mut far, to, remote)] = ends;
        near.connect(&far.local().unwrap()).unwrap();
        far.connect(&near.local().unwrap()).unwrap();
        from.write(0, b"where it lies");
        ours.write(99_000, b"who knows");
        let patience = Duration::from_secs(1);
        near.write_blocking(from.buffer(0..13).unwrap(), to.remote_at(5000), patience).unwrap();
        near.write_blocking(ours.buffer(99_000..99_009).unwrap(), remote.remote(), patience).unwrap();
        let mut came = ([0; 13], [0; 9]);
        to.read(5000, &mut came.0);
        remote.read(0, &mut came.1);
        assert_eq!((&came.0, &came.1), (b"where it lies", b"who knows"));
        let record = world.simulated().record();
        ((near, from, ours, far, to, remote, cards, world), record)
    }

    #[test]
    fn worlds_that_exist_at_once_are_as_one_that_exists_alone() {
        let (first, record) = world_and_record();
        let (second, at_once) = world_and_record();
        assert_eq!(at_once, record);
        drop((first, second));
        assert_eq!(world_and_record().1, record);
    }

    #[test]
    fn worlds_of_other_threads_change_nothing() {
        let all: Vec<_> = (0..4).map(|_| std::thread::spawn(|| world_and_record().1)).collect();
        let records: Vec<_> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(records.iter().all(|record| *record == records[0]), "{records:?}");
    }
}
