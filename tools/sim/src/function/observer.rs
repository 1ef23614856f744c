//! Who watches a card at work: every command, packet, completion and event, with its time.

use std::fmt;
use std::time::Duration;

use mlx5_prm::cmd::DeliveryStatus;

use super::Capabilities;

/// When and where something was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// The time since the card was powered on.
    pub time: Duration,
    /// Which of the card's functions, from 0.
    pub function: usize,
}

/// What was seen.
#[derive(Debug, Clone, Copy)]
pub enum Seen<'a> {
    /// A command was fetched from the command queue.
    Command {
        /// Its slot.
        slot: u32,
        /// Its input.
        input: &'a [u8],
        /// The capabilities in force.
        caps: &'a Capabilities,
    },
    /// A command was answered.
    Answer {
        /// Its slot.
        slot: u32,
        /// Its output; empty if it was not delivered.
        output: &'a [u8],
        /// Whether it was delivered.
        delivery: DeliveryStatus,
    },
    /// A frame left the port, without its check sequence.
    Sent(&'a [u8]),
    /// A frame came to the port, without its check sequence.
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

/// Watches a function. Called on the thread that runs the card, in the middle of its work: it must not call the card.
pub trait Observer: Send + fmt::Debug {
    /// Something was seen.
    fn see(&mut self, at: At, what: Seen<'_>);
}
