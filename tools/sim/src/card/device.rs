//! The device thread: runs a card with the wall clock.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use super::idle::{Idle, exact_timers};
use super::machine::Machine;
use crate::function::Function;

/// A request to the device thread.
pub(super) enum Message {
    /// Runs a closure on a function. Requests are executed in order.
    Run(usize, Box<dyn FnOnce(&mut Function) + Send>),
    /// Ends the thread.
    PowerOff,
}

/// Maximum number of requests handled before the functions get a turn.
const MESSAGES_A_TURN: usize = 64;

/// Everything that the device thread owns.
pub(super) struct Device {
    machine: Machine,
    inbox: Receiver<Message>,
    idle: Idle,
}

impl Device {
    pub(super) fn new(machine: Machine, inbox: Receiver<Message>) -> Self {
        Device { machine, inbox, idle: Idle::new() }
    }

    /// Runs until the card is powered off.
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

    /// Handles requests. Returns whether there were any; `None` after power-off.
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
