//! What both programs share.

use std::sync::Arc;
use std::time::Duration;

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long an idle loop pauses.
const PAUSE: Duration = Duration::from_micros(50);
/// Turns without work until it pauses, unless another number is asked for.
pub(super) const EMPTY_TURNS: u32 = 200;

/// Different contents of operations.
const CONTENTS: u64 = 8;

/// Bytes of operation `tid`.
fn content(tid: u64, bytes: usize) -> Vec<u8> {
    let kind = tid % CONTENTS;
    (0..bytes as u64).map(|at| (at * (2 * kind + 3) + (at >> 8) + 7 * kind) as u8).collect()
}

/// The contents of operations of one size at a time: made when they are first asked for.
#[derive(Debug, Default)]
pub(super) struct Contents {
    kinds: Vec<Arc<Vec<u8>>>,
    zeros: Vec<u8>,
}

impl Contents {
    pub(super) fn new(bytes: usize) -> Self {
        Contents { kinds: (0..CONTENTS).map(|tid| Arc::new(content(tid, bytes))).collect(), zeros: vec![0; bytes] }
    }

    /// The bytes of operation `tid` of ours.
    pub(super) fn of(&self, tid: u64) -> &Arc<Vec<u8>> {
        &self.kinds[(tid % CONTENTS) as usize]
    }

    /// Whether `data` came unchanged. Operations of ceph_perf_msgr_client have number 0, and zeros.
    pub(super) fn is_right(&mut self, tid: u64, data: &[u8]) -> bool {
        if self.zeros.len() != data.len() {
            *self = Contents::new(data.len());
        }
        match tid {
            0 => *data == self.zeros,
            tid => *data == ***self.of(tid),
        }
    }
}

/// Pauses a loop that finds nothing to do.
#[derive(Debug)]
pub(super) struct Idle {
    empty: u32,
    limit: u32,
}

impl Idle {
    /// Pauses after `limit` turns without work.
    pub(super) fn new(limit: u32) -> Self {
        Idle { empty: 0, limit }
    }

    pub(super) fn turn(&mut self, moved: bool) {
        self.empty = if moved { 0 } else { self.empty.saturating_add(1) };
        if self.empty > self.limit {
            std::thread::sleep(PAUSE);
        }
    }
}
