//! A card that is driven step by step, by whoever owns it and by whatever clock.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::face::Face;
use super::handle::{FunctionHandle, Link};
use super::machine::SharedMachine;
use super::{BuildError, Builder};
use crate::lock::lock;

/// A card under power that does nothing by itself. Its handles work as those of a [`Card`](super::Card) do, but what
/// they ask is done at once, on the thread that asks. Dropping it takes the power.
#[derive(Debug)]
pub struct SteppedCard {
    faces: Vec<Arc<Face>>,
    machine: SharedMachine,
}

impl Builder {
    /// Powers the card on without a thread; it is `now`.
    ///
    /// # Errors
    /// As of [`build`](Builder::build).
    pub fn build_stepped(self, now: Instant) -> Result<SteppedCard, BuildError> {
        let (faces, machine) = self.assemble(now)?;
        Ok(SteppedCard { faces, machine: Arc::new(Mutex::new(Some(machine))) })
    }
}

impl SteppedCard {
    /// How many functions.
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

    /// One turn of bounded work at the time `now`, which never goes back. True if anything was done: then there may be
    /// more to do at once. Otherwise nothing is to be done before [`next_due`](Self::next_due), unless a client asks,
    /// stores a doorbell, or a frame comes.
    pub fn step(&self, now: Instant) -> bool {
        lock(&self.machine).as_mut().is_some_and(|machine| {
            machine.set_time(now);
            machine.turn()
        })
    }

    /// When the card next wants to run; `None` if it waits for others alone.
    pub fn next_due(&self) -> Option<Instant> {
        lock(&self.machine).as_ref()?.next_due()
    }
}

impl Drop for SteppedCard {
    fn drop(&mut self) {
        lock(&self.machine).take();
    }
}
