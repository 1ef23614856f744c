//! A function's port.

use std::collections::VecDeque;
use std::time::Instant;

use super::{Capture, Frame, PortCounters};
use crate::fault::{Faults, FrameFate};
use crate::strict::{Strict, rules};
use crate::transport::packet::Mac;

/// A function's port: link, counters, sent and received frames. Its addresses are in `Objects::vport` and
/// `Objects::gids`.
#[derive(Debug)]
pub struct Port {
    /// Whether the link is up. While it is down, sent and received frames are lost.
    pub link_up: bool,
    /// Maximum frame length in bytes, with FCS (`PMTU`).
    pub mtu: u16,
    /// Its counters.
    pub counters: PortCounters,
    strict: Strict,
    received: VecDeque<(Frame, Sender)>,
    sent: VecDeque<Frame>,
    /// A delayed frame: the next one overtakes it.
    held: Option<(Frame, Own)>,
    capture: Option<Capture>,
}

/// The function as a sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// Its MAC: frames to it are looped back.
    pub mac: Mac,
    /// Transport domain of the send queue; `None` for a queue pair.
    pub domain: Option<u32>,
}

/// Sender of a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Another port.
    Other,
    /// The function itself.
    Own(Own),
}

/// Maximum number of frames that wait in each direction before the sender must stop. Small enough to be processed
/// within the shortest ACK timeout in use: otherwise waiting alone would cause retransmissions, and more waiting.
pub(crate) const ROOM: usize = 1024;

impl Port {
    /// Maximum of `mtu`.
    pub const MAX_MTU: u16 = 10_000;
    /// Default MTU: 1500 bytes of payload in a tagged frame.
    const DEFAULT_MTU: u16 = 1522;

    /// A port with its link up; violations go to `strict`.
    pub fn new(strict: Strict) -> Self {
        Port {
            link_up: true,
            mtu: Self::DEFAULT_MTU,
            counters: PortCounters::default(),
            strict,
            received: VecDeque::new(),
            sent: VecDeque::new(),
            held: None,
            capture: None,
        }
    }

    /// From now on, records sent and received frames in `capture`.
    pub fn attach_capture(&mut self, capture: Option<Capture>) {
        self.capture = capture;
    }

    /// Sends a frame at time `now`; `faults` may drop, duplicate, delay or damage it. A frame to the port's own address
    /// is looped back.
    pub fn send(&mut self, mut frame: Frame, own: Own, faults: &Faults, now: Instant) {
        match faults.frame() {
            None => self.put(frame, own, now),
            Some(FrameFate::Lost) => {}
            Some(FrameFate::Duplicated) => {
                self.put(frame.clone(), own, now);
                self.put(frame, own, now);
            }
            Some(FrameFate::Corrupted(bit)) => {
                frame.damage(bit);
                self.put(frame, own, now);
            }
            Some(FrameFate::Reordered) => {
                if let Some((earlier, own)) = self.held.replace((frame, own)) {
                    self.put(earlier, own, now);
                }
                return;
            }
        }
        if let Some((late, own)) = self.held.take() {
            self.put(late, own, now);
        }
    }

    fn put(&mut self, frame: Frame, own: Own, now: Instant) {
        if !self.link_up {
            return;
        }
        let len = frame.wire_len();
        if self.is_too_long(len, "to be sent") {
            self.counters.physical.unsendable += 1;
            return;
        }
        self.counters.sent += 1;
        self.capture(&frame, now);
        let destination = frame.destination();
        if destination == own.mac {
            return self.take_in(frame, len, Sender::Own(own));
        }
        self.counters.physical.count_sent(&destination, len);
        if destination[0] & 1 != 0 {
            self.take_in(frame.clone(), len, Sender::Own(own));
        }
        self.sent.push_back(frame);
    }

    /// A frame arrives from the wire.
    pub(crate) fn deliver(&mut self, frame: Frame) {
        let len = frame.wire_len();
        self.take_in(frame, len, Sender::Other);
    }

    /// A frame arrived that is not for the function. A multicast frame reaches every port and is counted by it anyway.
    pub(crate) fn pass_by(&mut self, frame: &Frame) {
        self.counters.filtered += 1;
        let destination = frame.destination();
        if self.link_up && destination[0] & 1 != 0 {
            self.counters.physical.count_received(&destination, frame.wire_len());
        }
    }

    /// A frame came, of `len` bytes on the wire.
    fn take_in(&mut self, frame: Frame, len: usize, sender: Sender) {
        if !self.link_up {
            self.counters.dropped += 1;
            return;
        }
        if self.is_too_long(len, "received") {
            self.counters.physical.too_long += 1;
            return;
        }
        self.counters.received += 1;
        if sender == Sender::Other {
            self.counters.physical.count_received(&frame.destination(), len);
        }
        self.received.push_back((frame, sender));
    }

    /// A frame longer than the port's MTU is dropped silently.
    fn is_too_long(&mut self, len: usize, way: &str) -> bool {
        let mtu = self.mtu;
        let is_too_long = len > usize::from(mtu);
        if is_too_long {
            self.counters.too_long += 1;
            self.strict.report(rules::FRAME_TOO_LONG, || format!("{len} bytes {way}, the port's MTU (PMTU) is {mtu}"));
        }
        is_too_long
    }

    /// Resets link and MTU to their state after power-on.
    pub(crate) fn restore(&mut self) {
        (self.link_up, self.mtu) = (true, Self::DEFAULT_MTU);
    }

    /// Whether more frames can be sent now. A sender should wait if not, but no frame is lost if it does not.
    pub(crate) fn can_send(&self) -> bool {
        self.can_receive() && self.sent.len() < ROOM
    }

    /// Whether the port accepts more frames from the wire now.
    pub(crate) fn can_receive(&self) -> bool {
        self.received.len() < ROOM
    }

    /// Number of frames waiting, in both directions.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.received.len() + self.sent.len()
    }

    /// Destination of the next frame to another port.
    pub(crate) fn next_destination(&self) -> Option<Mac> {
        self.sent.front().map(Frame::destination)
    }

    /// The next received frame, and its sender.
    pub(crate) fn take_received(&mut self) -> Option<(Frame, Sender)> {
        self.received.pop_front()
    }

    /// The next frame that is to go to another port.
    pub(crate) fn take_sent(&mut self) -> Option<Frame> {
        self.sent.pop_front()
    }

    /// Forgets all frames, as at reset.
    pub(crate) fn clear(&mut self) {
        self.received.clear();
        self.sent.clear();
        self.held = None;
    }

    pub(crate) fn capture(&self, frame: &Frame, now: Instant) {
        if let Some(capture) = &self.capture {
            capture.write(now, frame);
        }
    }
}
