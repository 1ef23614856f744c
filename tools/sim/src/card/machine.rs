//! A card at work: its functions and the switch between them, run turn by turn by whoever owns it.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::switch::Wire;
use crate::function::Function;
use crate::{bar, engine, firmware};

/// A card without a thread and without a clock: each turn is told what time it is.
#[derive(Debug)]
pub(super) struct Machine {
    functions: Vec<Function>,
    /// Which functions were removed by a fault when last looked at.
    removed: Vec<bool>,
    wire: Wire,
}

/// `None` once the power is off. Locked for one turn, or one request of a handle, at a time.
pub(super) type SharedMachine = Arc<Mutex<Option<Machine>>>;

impl Machine {
    pub(super) fn new(functions: Vec<Function>, wire: Wire) -> Self {
        Machine { removed: vec![false; functions.len()], functions, wire }
    }

    /// It is `now`.
    pub(super) fn set_time(&mut self, now: Instant) {
        self.functions.iter_mut().for_each(|function| function.nic.now = now);
    }

    /// The function of that number.
    pub(super) fn function(&mut self, index: usize) -> Option<&mut Function> {
        self.functions.get_mut(index)
    }

    /// One turn of every function and of the wire. True if anything was done.
    pub(super) fn turn(&mut self) -> bool {
        let mut worked = false;
        for (function, removed) in self.functions.iter_mut().zip(&mut self.removed) {
            if function.nic.faults.removed() || *removed {
                worked |= vanish_or_return(function, removed);
                continue;
            }
            worked |= bar::poll(function);
            worked |= firmware::tick(function);
            worked |= engine::run(function);
            bar::audit(function);
        }
        worked | self.wire.exchange(&mut self.functions)
    }

    /// When a turn next has work to do though nothing happens until then.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let present = self.functions.iter().filter(|function| !function.nic.faults.removed());
        present
            .flat_map(|function| [engine::next_deadline(function), firmware::next_deadline(function)])
            .flatten()
            .min()
    }
}

/// A removed function does nothing and remembers nothing; one that is back is as after power-on.
fn vanish_or_return(function: &mut Function, removed: &mut bool) -> bool {
    let before = std::mem::replace(removed, function.nic.faults.removed());
    if before != *removed {
        reset(function);
    }
    before != *removed
}

/// Function level reset. Memory stays mapped and interrupts connected: they are the client's side.
pub(super) fn reset(f: &mut Function) {
    tracing::debug!(
        "function {} is reset: {} objects, {} pages, {} mapped ranges, {} frames sent",
        f.nic.index,
        f.object_count(),
        f.nic.firmware.pages_held(),
        f.nic.dma.ranges(),
        f.nic.port.counters.sent
    );
    engine::reset(f);
    firmware::reset(f);
    f.nic.port.clear();
    f.bar.reset();
    f.nic.pci.reset();
    f.nic.dma.enable(f.nic.pci.bus_master());
}
