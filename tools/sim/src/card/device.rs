//! The device thread.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use super::idle::{Idle, exact_timers};
use super::switch::Wire;
use crate::function::Function;
use crate::{bar, engine, firmware};

/// What the device thread is asked to do.
pub(super) enum Message {
    /// Something with a function, in the order asked.
    Run(usize, Box<dyn FnOnce(&mut Function) + Send>),
    /// End.
    PowerOff,
}

/// So many messages are handled before the functions get their turn.
const MESSAGES_A_TURN: usize = 64;

/// All that the device thread owns.
pub(super) struct Device {
    functions: Vec<Function>,
    /// Which functions were removed by a fault when last looked at.
    removed: Vec<bool>,
    wire: Wire,
    inbox: Receiver<Message>,
    idle: Idle,
}

impl Device {
    pub(super) fn new(functions: Vec<Function>, wire: Wire, inbox: Receiver<Message>) -> Self {
        Device { removed: vec![false; functions.len()], functions, wire, inbox, idle: Idle::new() }
    }

    /// Runs until the power is off.
    pub(super) fn run(mut self) {
        exact_timers();
        loop {
            let now = Instant::now();
            self.functions.iter_mut().for_each(|function| function.nic.now = now);
            let Some(mut worked) = self.messages() else { return };
            worked |= self.turn();
            if worked {
                self.idle.busy();
            } else {
                let deadline = self.functions.iter().filter_map(engine::next_deadline).min();
                self.idle.pause(now, deadline);
            }
        }
    }

    /// Handles what clients ask. Whether they asked anything; `None` when the power is off.
    fn messages(&mut self) -> Option<bool> {
        for handled in 0..MESSAGES_A_TURN {
            match self.inbox.try_recv() {
                Ok(Message::Run(index, work)) => {
                    if let Some(function) = self.functions.get_mut(index) {
                        work(function);
                    }
                }
                Ok(Message::PowerOff) | Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => return Some(handled > 0),
            }
        }
        Some(true)
    }

    /// One turn of every function and of the wire.
    fn turn(&mut self) -> bool {
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
