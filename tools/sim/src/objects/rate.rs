//! Rate limits, and what holds a send queue back. PRM "Packet Pacing".

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::TimeWait;
use crate::ethernet::segment::Segments;
use crate::table::{DRIVER, SHARED};

/// A rate for send queues. `typical_packet_size` is a hint that the model needs not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Thousands of bits a second, of frames without check sequences.
    pub kbps: u32,
    /// Bytes that may go out at once. A longer frame may, too.
    pub burst: u32,
}

impl Rate {
    /// How long `bytes` take.
    pub fn time(self, bytes: u64) -> Duration {
        // 8 bits a byte, 1000 bits a second, 10^9 ns.
        const SCALE: u64 = 8_000_000;
        Duration::from_nanos(bytes.saturating_mul(SCALE) / u64::from(self.kbps.max(1)))
    }
}

/// The rates of a function, by index, with the user context that set each.
#[derive(Debug, Default)]
pub struct Rates(BTreeMap<u16, (u16, Rate)>);

impl Rates {
    /// The rate at `index`.
    pub fn get(&self, index: u16) -> Option<Rate> {
        self.0.get(&index).map(|(_, rate)| *rate)
    }

    /// Sets or clears the rate at `index` for `user`. Returns false if it is another user context's.
    pub fn set(&mut self, index: u16, user: u16, rate: Option<Rate>) -> bool {
        let is_theirs = |owner: u16| !matches!(user, DRIVER | SHARED) && owner != user;
        if self.0.get(&index).is_some_and(|(owner, _)| is_theirs(*owner)) {
            return false;
        }
        match rate {
            Some(rate) => self.0.insert(index, (user, rate)),
            None => self.0.remove(&index),
        };
        true
    }

    /// Whether there is a rate at `index` that `user` may name.
    pub fn may_use(&self, index: u16, user: u16) -> bool {
        let may = |owner: u16| matches!(user, DRIVER | SHARED) || matches!(owner, SHARED) || owner == user;
        self.0.get(&index).is_some_and(|(owner, _)| may(*owner))
    }
}

/// A WQE whose frames wait for their turn.
#[derive(Debug, Clone, Copy)]
pub struct Executed {
    /// `wqe_counter`.
    pub index: u16,
    /// `send_wqe_opcode`.
    pub opcode: u8,
    /// Whether it completes with a CQE, and with an event.
    pub completes: Option<bool>,
}

/// Frames of a WQE that are not sent yet. Those of segmentation are made when their turn comes.
#[derive(Debug, Default)]
pub struct Frames {
    made: VecDeque<Vec<u8>>,
    segments: Option<Segments>,
    /// `flow_table_metadata` of the WQE, for flow tables.
    pub(crate) metadata: u32,
}

impl Frames {
    /// Adds one behind those that are made.
    pub(crate) fn push(&mut self, frame: Vec<u8>) {
        self.made.push_back(frame);
    }

    /// Adds the segments of a packet behind them.
    pub(crate) fn divide(&mut self, segments: Segments) {
        self.segments = Some(segments);
    }

    /// Takes the next one.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.made.pop_front().or_else(|| self.segments.as_mut()?.next())
    }

    /// Puts one back that must wait.
    pub(crate) fn put_back(&mut self, frame: Vec<u8>) {
        self.made.push_front(frame);
    }
}

/// What a send queue has still to send of the WQE it executes, and when it may.
#[derive(Debug, Default)]
pub struct Pace {
    /// Frames not sent yet.
    pub frames: Frames,
    /// The WQE that completes after them.
    pub executed: Option<Executed>,
    /// That WQE waits for a time of the queue's clock.
    pub wait: Option<TimeWait>,
    /// It waits until then.
    pub until: Option<Instant>,
    /// When everything sent so far has taken its time at the rate.
    next: Option<Instant>,
}

impl Pace {
    /// Whether anything is left of a WQE.
    pub fn is_busy(&self) -> bool {
        self.executed.is_some()
    }

    /// Takes the time of a frame of `bytes` that goes out `now`; or says when it may.
    pub fn admit(&mut self, rate: Rate, bytes: u64, now: Instant) -> Result<(), Instant> {
        let begin = self.next.map_or(now, |next| next.max(now));
        let end = begin + rate.time(bytes);
        let at_once = rate.time(bytes.max(rate.burst.into()));
        match end.checked_sub(at_once) {
            Some(at) if at > now => Err(at),
            _ => {
                self.next = Some(end);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;
    use crate::ethernet::Layers;

    /// When each of `count` frames of 1000 bytes goes out at 8 Mbit/s, in ms.
    fn departures(burst: u32, count: usize) -> Vec<u128> {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let (rate, mut now) = (Rate { kbps: 8000, burst }, begin);
        let mut times = Vec::new();
        while times.len() < count {
            match pace.admit(rate, 1000, now) {
                Ok(()) => times.push((now - begin).as_millis()),
                Err(at) => now = at,
            }
        }
        times
    }

    #[test]
    fn frames_keep_the_distance_of_the_rate_and_bursts_their_bound() {
        assert_eq!(departures(0, 5), [0, 1, 2, 3, 4]);
        assert_eq!(departures(3000, 6), [0, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn segments_are_made_one_at_a_time() {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 9).tcp(1, 2, 3, 4);
        builder.write(&mut packet, &[]).unwrap();
        let (header_len, layers) = (packet.len(), Layers::outer_of(&packet).unwrap());
        packet.resize(header_len + 1000, 0);
        let mut frames = Frames::default();
        frames.divide(Segments::new(layers, packet, header_len, 1, false).unwrap());
        let first = frames.take().unwrap();
        assert_eq!((first.len(), frames.made.len()), (header_len + 1, 0));
        frames.put_back(first.clone());
        assert_eq!(frames.take(), Some(first), "it waited");
        assert_eq!(std::iter::from_fn(|| frames.take()).count(), 999);
    }

    #[test]
    fn a_rate_is_of_who_set_it() {
        let rate = Some(Rate { kbps: 1, burst: 0 });
        let mut rates = Rates::default();
        assert!(rates.set(1, 5, rate) && rates.set(2, SHARED, rate));
        assert!(rates.may_use(1, 5) && !rates.may_use(1, 6) && rates.may_use(1, DRIVER));
        assert!(rates.may_use(2, 6) && !rates.set(2, 6, None) && !rates.set(1, 6, None));
        assert!(rates.set(1, 5, None) && !rates.may_use(1, 5));
    }
}
