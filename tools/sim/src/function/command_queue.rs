//! The command queue of a function, and the commands that are under way.

use std::time::Instant;

use mlx5_prm::cmd::{CommandQueueEntry, MailboxBlock};

/// log2 of the slots.
pub const LOG_SIZE: u8 = 5;
/// log2 of a slot's bytes.
pub const LOG_STRIDE: u8 = 6;
/// The command queue of one function.
#[derive(Debug, Default)]
pub struct CommandQueue {
    /// IOVA of slot 0.
    pub(crate) address: u64,
    pub(crate) pending: Vec<Pending>,
    /// The signature this firmware left in each slot.
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
    /// Carried out; answered at that time.
    Until(Instant, Vec<u8>),
    /// Not carried out: it needs pages.
    Pages(Vec<u8>),
    /// Never answered.
    Forever,
}

/// A slot that was fetched: all that its answer needs.
#[derive(Debug)]
pub(crate) struct Slot {
    pub number: u32,
    pub entry: CommandQueueEntry,
    pub output: OutputChain,
    /// Whether a command event follows. Decided when the slot is fetched: the command that creates the EQ for command
    /// events is still polled for, and an event about it would come unexpected.
    pub event: bool,
    pub spoil: Spoil,
}

impl CommandQueue {
    /// Whether the slot is under way.
    pub(crate) fn is_pending(&self, number: u32) -> bool {
        self.pending.iter().any(|pending| pending.slot.number == number)
    }

    /// How many commands are under way.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }
}

/// Where an output goes: each block's address, and the block as it was found, data excepted.
pub(crate) type OutputChain = Vec<(u64, MailboxBlock)>;

/// What is to go wrong with an output on purpose.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spoil {
    /// XORed into tokens.
    pub token: u8,
    /// XORed into signatures.
    pub signature: u8,
}
