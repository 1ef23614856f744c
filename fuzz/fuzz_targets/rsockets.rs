//! What strangers say to an rsocket: a greeting, targets, and messages whose bytes its program reads meanwhile. None
//! panics, and nothing is read outside of the ring.

#![no_main]

// Not by its crate, which examples of all kinds give many dependencies.
#[allow(dead_code)]
#[path = "../../examples/common/rsockets.rs"]
mod rsockets;

use libfuzzer_sys::fuzz_target;
use rsockets::{Greeting, Incoming, Message, RING, TARGET, TARGETS, Target};

/// Reads up to `most` bytes of what came.
fn read(incoming: &mut Incoming, mut most: usize) {
    while let Some(next) = incoming.next(most) {
        assert!(next.start < RING && next.end <= RING && next.len() <= most);
        incoming.took(next.len());
        most -= next.len();
        // A message without bytes is read even so.
        if most == 0 {
            break;
        }
    }
}

/// A target that was read is written as it came.
fn check(target: &[u8; TARGET], is_big_endian: bool) {
    let read = Target::read(*target, is_big_endian);
    assert_eq!(read.bytes(is_big_endian), *target);
    let half = read.behind(read.len / 2);
    assert_eq!(half.len + read.len / 2, read.len);
    assert_eq!(read.behind(usize::MAX).len, 0);
}

/// A ring, the bytes of the targets that the other end was given, and those that it has brought.
struct Ring {
    incoming: Incoming,
    given: usize,
    taken: usize,
}

impl Ring {
    fn come(&mut self, bytes: u32) {
        if self.incoming.came(bytes).is_ok() {
            self.taken += bytes as usize;
        }
        assert!(self.taken <= self.given, "{} bytes came where {} had room", self.taken, self.given);
    }

    fn give(&mut self) {
        if let Some(owed) = self.incoming.owed() {
            assert!(owed.entry < TARGETS && owed.half.is_none_or(|half| half == owed.entry));
            self.given += if owed.half.is_some() { RING / TARGETS } else { 0 };
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(greeting) = Greeting::read(bytes) {
        assert_eq!(Greeting::read(&greeting.bytes()), Ok(greeting));
    }
    if let Some((target, _)) = bytes.split_first_chunk() {
        check(target, true);
        check(target, false);
    }
    let mut ring = Ring { incoming: Incoming::default(), given: RING / TARGETS, taken: 0 };
    let mut bytes = bytes;
    while let Some((&[what, rest_of @ ..], rest)) = bytes.split_first_chunk::<5>() {
        bytes = rest;
        let number = u32::from_be_bytes(rest_of);
        match what % 4 {
            0 => read(&mut ring.incoming, number as usize % (2 * RING)),
            1 => ring.give(),
            // As an honest end sends.
            2 => ring.come(number % (RING as u32 / 4)),
            _ => match Message::read(number) {
                Ok(message) => {
                    assert_eq!(Message::read(message.immediate()), Ok(message));
                    if let Message::Data(bytes) = message {
                        ring.come(bytes);
                    }
                }
                Err(said) => assert!(said.contains("not agreed on")),
            },
        }
    }
});
