//! The functions of a card and the switch between them, run in turns by their owner.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::switch::Wire;
use crate::function::Function;
use crate::{bar, engine, firmware};

/// A card without thread and clock: each turn is given the current time.
#[derive(Debug)]
pub(super) struct Machine {
    functions: Vec<Function>,
    /// Functions that were removed by fault injection, at the last check.
    removed: Vec<bool>,
    wire: Wire,
}

/// `None` after power-off. Locked for one turn, or for one request of a handle.
pub(super) type SharedMachine = Arc<Mutex<Option<Machine>>>;

impl Machine {
    pub(super) fn new(functions: Vec<Function>, wire: Wire) -> Self {
        Machine { removed: vec![false; functions.len()], functions, wire }
    }

    /// Sets the current time.
    pub(super) fn set_time(&mut self, now: Instant) {
        self.functions.iter_mut().for_each(|function| function.nic.now = now);
    }

    /// Function `index`.
    pub(super) fn function(&mut self, index: usize) -> Option<&mut Function> {
        self.functions.get_mut(index)
    }

    /// One turn of every function and of the wire. Returns true if anything was done.
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

    /// When a turn has work next, if nothing else happens before.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let present = self.functions.iter().filter(|function| !function.nic.faults.removed());
        present
            .flat_map(|function| {
                [engine::next_deadline(function), firmware::next_deadline(function), bar::next_deadline(function)]
            })
            .flatten()
            .min()
    }
}

/// Lets DMA go by config space: bus mastering, sizes of requests.
pub(super) fn apply_config(f: &mut Function) {
    f.nic.dma.enable(f.nic.pci.bus_master());
    let (payload, read_request) = f.nic.pci.request_sizes();
    f.nic.dma.set_request_sizes(payload, read_request);
}

/// A removed function does nothing and loses its state; when it returns, it is in the state after power-on.
fn vanish_or_return(function: &mut Function, removed: &mut bool) -> bool {
    let before = std::mem::replace(removed, function.nic.faults.removed());
    if before != *removed {
        reset(function);
    }
    before != *removed
}

/// Function level reset. DMA mappings and eventfds stay: they belong to the client.
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
    apply_config(f);
}
