//! The command queue of a function, and its pending commands. PRM "Command Interface".

use std::collections::VecDeque;
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
    /// Slots whose doorbell was rung, in order; not fetched yet.
    pub(crate) rung: VecDeque<u32>,
    /// The command whose mailboxes are being read.
    pub(crate) fetching: Option<Fetch>,
    /// Bytes of commands fetched and carried out since the last turn began.
    pub(crate) spent: usize,
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
    /// Not executed: waits for pages, for a context of that many bytes. Without its input, which is then fetched again.
    Pages(u64, Option<Vec<u8>>),
    /// Never answered.
    Forever,
}

/// A command whose mailboxes are being read, possibly over several turns.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub slot: Slot,
    /// The input so far.
    pub input: Vec<u8>,
    /// Where the next block of the input is, and the next one of the output.
    pub next: [u64; 2],
    /// It was fetched before, and waited for pages without its input.
    pub again: bool,
}

impl Pending {
    /// Bytes kept for a command that waits for pages.
    pub(crate) fn kept(&self) -> usize {
        let Wait::Pages(_, Some(input)) = &self.wait else { return 0 };
        input.len() + self.slot.output_bytes()
    }
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

impl Slot {
    /// Bytes kept for its output's blocks.
    pub(crate) fn output_bytes(&self) -> usize {
        self.output.len() * size_of::<(u64, MailboxBlock)>()
    }
}

impl CommandQueue {
    /// Whether the slot was rung, and its command has not been fetched as a whole.
    pub(crate) fn is_due(&self, number: u32) -> bool {
        self.rung.contains(&number) || self.fetching.as_ref().is_some_and(|fetch| fetch.slot.number == number)
    }

    /// Whether the slot has a pending command.
    pub(crate) fn is_pending(&self, number: u32) -> bool {
        self.pending.iter().any(|pending| pending.slot.number == number)
    }

    /// Number of commands that were rung and not answered.
    pub fn under_way(&self) -> usize {
        self.rung.len() + usize::from(self.fetching.is_some()) + self.pending.len()
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
