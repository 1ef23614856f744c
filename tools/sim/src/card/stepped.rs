//! A card that its owner runs step by step, with any clock.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::face::Face;
use super::handle::{FunctionHandle, Link};
use super::machine::SharedMachine;
use super::{BuildError, Builder};
use crate::lock::lock;

/// A powered card without a thread. Its handles work like those of a [`Card`](super::Card), but execute requests at
/// once on the calling thread. Dropping it powers it off.
#[derive(Debug)]
pub struct SteppedCard {
    faces: Vec<Arc<Face>>,
    machine: SharedMachine,
}

impl Builder {
    /// Powers the card on at time `now`, without a thread. Timestamps of a capture start at 0, or at the age of the
    /// card's world.
    ///
    /// # Errors
    /// Those of [`build`](Builder::build).
    pub fn build_stepped(self, now: Instant) -> Result<SteppedCard, BuildError> {
        let age = self.age;
        let (faces, machine) = self.assemble(now, age)?;
        Ok(SteppedCard { faces, machine: Arc::new(Mutex::new(Some(machine))) })
    }
}

impl SteppedCard {
    /// Number of functions.
    pub fn functions(&self) -> usize {
        self.faces.len()
    }

    /// A handle to function `index`.
    ///
    /// # Panics
    /// There is no such function.
    pub fn function(&self, index: usize) -> FunctionHandle {
        FunctionHandle::new(self.faces[index].clone(), Link::Stepped(self.machine.clone()))
    }

    /// One turn of bounded work at time `now`, which must never decrease. Returns true if anything was done; there may
    /// then be more to do at once. Otherwise there is nothing to do before [`next_due`](Self::next_due), unless a
    /// client sends a request, a doorbell is stored, or a frame arrives.
    pub fn step(&self, now: Instant) -> bool {
        lock(&self.machine).as_mut().is_some_and(|machine| {
            machine.set_time(now);
            machine.turn()
        })
    }

    /// When the card must run next; `None` if it only waits for input.
    pub fn next_due(&self) -> Option<Instant> {
        lock(&self.machine).as_ref()?.next_due()
    }
}

impl Drop for SteppedCard {
    fn drop(&mut self) {
        lock(&self.machine).take();
    }
}
