//! What both programs share.

use std::time::Duration;

use clap::Args;
use mlx5_ceph::{Messenger, MessengerError};

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A time on the command line.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("{text:?} is no time in seconds, such as 10 or 0.5"))
}

/// Different contents of operations.
pub(super) const CONTENTS: u64 = 8;
/// Bytes of operation `tid`.
pub(super) fn content(tid: u64, bytes: usize) -> Vec<u8> {
    let kind = tid % CONTENTS;
    (0..bytes as u64).map(|at| (at * (2 * kind + 3) + (at >> 8) + 7 * kind) as u8).collect()
}

/// Lets a loop that finds nothing to do sleep.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Idle {
    /// Turns without work until the program sleeps, and the card has to interrupt.
    #[arg(long, default_value_t = EMPTY_TURNS)]
    empty_turns: u32,
    /// How many there were.
    #[arg(skip)]
    empty: u32,
}

const EMPTY_TURNS: u32 = 200;

impl Default for Idle {
    fn default() -> Self {
        Idle { empty_turns: EMPTY_TURNS, empty: 0 }
    }
}

impl Idle {
    /// After each turn: whether it `moved` something.
    pub(super) fn turn(&mut self, moved: bool, messenger: &mut Messenger) -> Result<(), MessengerError> {
        self.empty = if moved { 0 } else { self.empty.saturating_add(1) };
        if self.empty > self.empty_turns { messenger.wait() } else { Ok(()) }
    }
}
