//! The device thread: drives a card by the wall clock.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use super::idle::{Idle, exact_timers};
use super::machine::Machine;
use crate::function::Function;

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
    machine: Machine,
    inbox: Receiver<Message>,
    idle: Idle,
}

impl Device {
    pub(super) fn new(machine: Machine, inbox: Receiver<Message>) -> Self {
        Device { machine, inbox, idle: Idle::new() }
    }

    /// Runs until the power is off.
    pub(super) fn run(mut self) {
        exact_timers();
        loop {
            let now = Instant::now();
            self.machine.set_time(now);
            let Some(mut worked) = self.messages() else { return };
            worked |= self.machine.turn();
            if worked {
                self.idle.busy();
            } else {
                self.idle.pause(now, self.machine.next_due());
            }
        }
    }

    /// Handles what clients ask. Whether they asked anything; `None` when the power is off.
    fn messages(&mut self) -> Option<bool> {
        for handled in 0..MESSAGES_A_TURN {
            match self.inbox.try_recv() {
                Ok(Message::Run(index, work)) => {
                    if let Some(function) = self.machine.function(index) {
                        work(function);
                    }
                }
                Ok(Message::PowerOff) | Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => return Some(handled > 0),
            }
        }
        Some(true)
    }
}
