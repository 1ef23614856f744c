//! Observers of a card: every command, packet, completion and event, with its time.

use std::fmt;
use std::time::Duration;

use mlx5_prm::cmd::DeliveryStatus;

use super::Capabilities;

/// Time and place of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Time since power-on.
    pub time: Duration,
    /// Index of the function, from 0.
    pub function: usize,
}

/// An observation.
#[derive(Debug, Clone, Copy)]
pub enum Seen<'a> {
    /// A command was fetched from the command queue.
    Command {
        /// Its slot.
        slot: u32,
        /// Its input.
        input: &'a [u8],
        /// Current capabilities.
        caps: &'a Capabilities,
    },
    /// A command was answered.
    Answer {
        /// Its slot.
        slot: u32,
        /// Its output; empty if it was not delivered.
        output: &'a [u8],
        /// Delivery status.
        delivery: DeliveryStatus,
    },
    /// A frame was sent, without its FCS.
    Sent(&'a [u8]),
    /// A frame was received, without its FCS.
    Received(&'a [u8]),
    /// A CQE was written.
    Completion {
        /// The completion queue.
        cqn: u32,
        /// The CQE.
        cqe: &'a [u8],
    },
    /// An EQE was written.
    Event {
        /// The event queue.
        eqn: u32,
        /// The EQE.
        eqe: &'a [u8],
    },
}

/// Observes a function. Called on the thread that runs the card, during its work: it must not call the card.
pub trait Observer: Send + fmt::Debug {
    /// Called for each observation.
    fn see(&mut self, at: At, what: Seen<'_>);
}
