//! A record of what happened in a world, as a hash.

use std::sync::{Arc, Mutex};

use twox_hash::XxHash3_64;

use crate::function::{At, Observer, Seen};
use crate::lock::lock;

/// A hash over all observations, and their numbers. Runs with equal records did the same things at the same times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// Hash over all observations: time, card, function, kind, and all bytes. XXH3-64, each piece seeded by the hash
    /// before it.
    pub hash: u64,
    /// Commands fetched.
    pub commands: u64,
    /// Frames sent by ports.
    pub sent: u64,
    /// Frames received by ports.
    pub received: u64,
    /// CQEs written.
    pub completions: u64,
    /// EQEs written.
    pub events: u64,
}

impl Record {
    fn add(&mut self, bytes: &[u8]) {
        self.hash = XxHash3_64::oneshot_with_seed(self.hash, bytes);
    }

    fn add_all(&mut self, kind: u8, number: u32, bytes: &[u8]) {
        self.add(&[kind]);
        self.add(&number.to_le_bytes());
        self.add(&(bytes.len() as u64).to_le_bytes());
        self.add(bytes);
    }

    fn see(&mut self, card: usize, at: At, what: Seen<'_>) {
        self.add(&(at.time.as_nanos() as u64).to_le_bytes());
        self.add(&[card as u8, at.function as u8]);
        match what {
            Seen::Command { slot, input, .. } => {
                self.commands += 1;
                self.add_all(1, slot, input);
            }
            Seen::Answer { slot, output, delivery } => {
                self.add(&[delivery.number() as u8]);
                self.add_all(2, slot, output);
            }
            Seen::Sent(frame) => {
                self.sent += 1;
                self.add_all(3, 0, frame);
            }
            Seen::Received(frame) => {
                self.received += 1;
                self.add_all(4, 0, frame);
            }
            Seen::Completion { cqn, cqe } => {
                self.completions += 1;
                self.add_all(5, cqn, cqe);
            }
            Seen::Event { eqn, eqe } => {
                self.events += 1;
                self.add_all(6, eqn, eqe);
            }
        }
    }
}

/// The record, shared by all functions of a world.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Record>>);

impl Shared {
    pub(super) fn record(&self) -> Record {
        *lock(&self.0)
    }

    pub(super) fn watcher(&self, card: usize) -> Box<dyn Observer> {
        Box::new(Watcher { record: self.clone(), card })
    }
}

#[derive(Debug)]
struct Watcher {
    record: Shared,
    card: usize,
}

impl Observer for Watcher {
    fn see(&mut self, at: At, what: Seen<'_>) {
        lock(&self.record.0).see(self.card, at, what);
    }
}
