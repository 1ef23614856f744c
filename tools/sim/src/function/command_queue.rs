//! The command queue of a function, and its pending commands. PRM "Command Interface".

use std::time::Instant;

use mlx5_prm::cmd::{CommandQueueEntry, MailboxBlock};

/// log2 of the number of slots.
pub const LOG_SIZE: u8 = 5;
/// log2 of a slot's size in bytes.
pub const LOG_STRIDE: u8 = 6;
/// The command queue of one function.
#[derive(Debug, Default)]
pub struct CommandQueue {
    /// IOVA of slot 0.
    pub(crate) address: u64,
    pub(crate) pending: Vec<Pending>,
    /// The signature of firmware's last answer in each slot.
    pub(crate) left_signature: [Option<u8>; 1 << LOG_SIZE],
    /// Commands answered since reset.
    pub(crate) answered: u64,
}

/// A command that has not been answered.
#[derive(Debug)]
pub(crate) struct Pending {
    pub slot: Slot,
    pub wait: Wait,
}

#[derive(Debug)]
pub(crate) enum Wait {
    /// Executed; the answer is sent at that time.
    Until(Instant, Vec<u8>),
    /// Not executed: waits for pages.
    Pages(Vec<u8>),
    /// Never answered.
    Forever,
}

/// A fetched slot: everything needed for its answer.
#[derive(Debug)]
pub(crate) struct Slot {
    pub number: u32,
    pub entry: CommandQueueEntry,
    pub output: OutputChain,
    /// Whether a command event follows. Decided when the slot is fetched: the driver still polls for the command that
    /// creates the EQ for command events.
    pub event: bool,
    pub spoil: Spoil,
}

impl CommandQueue {
    /// Whether the slot has a pending command.
    pub(crate) fn is_pending(&self, number: u32) -> bool {
        self.pending.iter().any(|pending| pending.slot.number == number)
    }

    /// Number of pending commands.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }
}

/// Output blocks: address of each, and its content before, without the data.
pub(crate) type OutputChain = Vec<(u64, MailboxBlock)>;

/// Errors to inject into an output.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spoil {
    /// XORed with tokens.
    pub token: u8,
    /// XORed with signatures.
    pub signature: u8,
}
