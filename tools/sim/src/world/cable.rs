//! A cable between two cards, in memory and in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fault::Random;
use crate::lock::lock;
use crate::wire::Uplink;

/// Properties of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// Frames lost, out of a million.
    pub loss: u32,
    /// Frames duplicated, out of a million.
    pub duplication: u32,
    /// Frames delayed so that others overtake them, out of a million.
    pub reordering: u32,
    /// Frames with one flipped bit, out of a million.
    pub corruption: u32,
    /// Latency of a frame.
    pub latency: Duration,
    /// Maximum additional latency of a delayed frame.
    pub lateness: Duration,
}

impl Default for Conditions {
    /// A cable with a latency of one microsecond and no errors.
    fn default() -> Self {
        Conditions {
            loss: 0,
            duplication: 0,
            reordering: 0,
            corruption: 0,
            latency: Duration::from_micros(1),
            lateness: Duration::from_micros(20),
        }
    }
}

/// Both directions of a cable.
#[derive(Debug)]
pub(super) struct Cable {
    conditions: Conditions,
    random: Random,
    now: Duration,
    /// Number of frames sent. Frames due at the same time arrive in the order of sending.
    sent: u64,
    /// For each end, the frames in flight to it, by time of arrival.
    ways: [BTreeMap<(Duration, u64), Vec<u8>>; 2],
}

/// One end of a cable.
#[derive(Debug)]
pub(super) struct CableEnd {
    cable: Arc<Mutex<Cable>>,
    end: usize,
}

impl Cable {
    /// A cable and its two ends.
    pub(super) fn new(conditions: Conditions, seed: u64, now: Duration) -> (Arc<Mutex<Cable>>, [CableEnd; 2]) {
        let random = Random::new(seed);
        let cable = Arc::new(Mutex::new(Cable { conditions, random, now, sent: 0, ways: Default::default() }));
        let ends = [0, 1].map(|end| CableEnd { cable: cable.clone(), end });
        (cable, ends)
    }

    pub(super) fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    pub(super) fn set_time(&mut self, now: Duration) {
        self.now = now;
    }

    /// When the next frame arrives.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let after = (self.now + Duration::from_nanos(1), 0);
        self.ways.iter().filter_map(|way| way.range(after..).next()).map(|((due, _), _)| *due).min()
    }

    fn happens(&mut self, per_million: u32) -> bool {
        self.random.below(1_000_000) < per_million
    }

    fn send(&mut self, to: usize, frame: &[u8]) {
        if self.happens(self.conditions.loss) {
            return;
        }
        let copies = if self.happens(self.conditions.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            let mut bytes = frame.to_vec();
            if self.happens(self.conditions.corruption) && !bytes.is_empty() {
                let bit = self.random.below(bytes.len() as u32 * 8);
                bytes[bit as usize / 8] ^= 1 << (bit % 8);
            }
            let mut due = self.now + self.conditions.latency;
            if self.happens(self.conditions.reordering) {
                due += Duration::from_nanos(self.random.below(self.conditions.lateness.as_nanos() as u32).into());
            }
            self.ways[to].insert((due, self.sent), bytes);
            self.sent += 1;
        }
    }

    fn receive(&mut self, end: usize) -> Option<Vec<u8>> {
        let first = self.ways[end].first_entry()?;
        (first.key().0 <= self.now).then(|| first.remove())
    }
}

impl Uplink for CableEnd {
    fn send(&mut self, frame: &[u8]) {
        lock(&self.cable).send(1 - self.end, frame);
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let frame = lock(&self.cable).receive(self.end)?;
        let room = buffer.get_mut(..frame.len())?;
        room.copy_from_slice(&frame);
        Some(frame.len())
    }
}
