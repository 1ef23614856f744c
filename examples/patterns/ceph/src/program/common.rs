//! What both programs share.

use std::time::Duration;

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long an idle loop pauses.
const PAUSE: Duration = Duration::from_micros(50);
/// Turns without work until it pauses.
const EMPTY_TURNS: u32 = 200;

/// Different contents of operations.
pub(super) const CONTENTS: u64 = 8;
/// Bytes of operation `tid`.
pub(super) fn content(tid: u64, bytes: usize) -> Vec<u8> {
    let kind = tid % CONTENTS;
    (0..bytes as u64).map(|at| (at * (2 * kind + 3) + (at >> 8) + 7 * kind) as u8).collect()
}

/// Pauses a loop that finds nothing to do.
#[derive(Debug, Default)]
pub(super) struct Idle(u32);

impl Idle {
    pub(super) fn turn(&mut self, moved: bool) {
        self.0 = if moved { 0 } else { self.0 + 1 };
        if self.0 > EMPTY_TURNS {
            std::thread::sleep(PAUSE);
        }
    }
}
