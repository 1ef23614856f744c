//! A function's port.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::{Frame, PcapWriter, PortCounters};
use crate::fault::{Faults, FrameFate};
use crate::strict::{Strict, rules};
use crate::transport::packet::Mac;

/// A function's port: link, counters, frames to and from the wire. Its addresses are `Objects::vport`'s and
/// `Objects::gids`'.
#[derive(Debug)]
pub struct Port {
    /// Whether the link is up. Frames sent or arriving while it is down are lost.
    pub link_up: bool,
    /// Bytes of the longest frame that may pass, with its check sequence (`PMTU`).
    pub mtu: u16,
    /// What it counted.
    pub counters: PortCounters,
    strict: Strict,
    received: VecDeque<(Frame, Sender)>,
    sent: VecDeque<Frame>,
    /// A frame that the next one overtakes.
    held: Option<(Frame, Own)>,
    capture: Option<Arc<Mutex<PcapWriter>>>,
}

/// The function's own side of what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// Its address: frames to it come back.
    pub mac: Mac,
    /// The transport domain of the send queue; `None` for a queue pair's.
    pub domain: Option<u32>,
}

/// Who sent a frame that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Another port.
    Other,
    /// The function itself.
    Own(Own),
}

/// Frames that wait in one direction before whoever makes more is held back. Few enough to be handled well within the
/// shortest acknowledge timeout that software uses, or waiting alone would cause retries, and those more waiting.
pub(crate) const ROOM: usize = 1024;

impl Port {
    /// The most that `mtu` can be.
    pub const MAX_MTU: u16 = 10_000;
    /// What it is until a driver says: room for 1500 bytes in a tagged frame.
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

    /// Writes each frame that the port sends or takes from outside to `capture` from now on.
    pub fn attach_capture(&mut self, capture: Option<Arc<Mutex<PcapWriter>>>) {
        self.capture = capture;
    }

    /// Sends a frame, which `faults` may lose, double, delay or damage. One to its own address comes back.
    pub fn send(&mut self, mut frame: Frame, own: Own, faults: &Faults) {
        match faults.frame() {
            None => self.put(frame, own),
            Some(FrameFate::Lost) => {}
            Some(FrameFate::Duplicated) => {
                self.put(frame.clone(), own);
                self.put(frame, own);
            }
            Some(FrameFate::Corrupted(bit)) => {
                frame.damage(bit);
                self.put(frame, own);
            }
            Some(FrameFate::Reordered) => {
                if let Some((earlier, own)) = self.held.replace((frame, own)) {
                    self.put(earlier, own);
                }
                return;
            }
        }
        if let Some((late, own)) = self.held.take() {
            self.put(late, own);
        }
    }

    fn put(&mut self, frame: Frame, own: Own) {
        if !self.link_up {
            return;
        }
        if self.is_too_long(&frame, "to be sent") {
            self.counters.physical.unsendable += 1;
            return;
        }
        self.counters.sent += 1;
        self.capture(&frame);
        let destination = frame.destination();
        if destination == own.mac {
            return self.take_in(frame, Sender::Own(own));
        }
        self.counters.physical.count_sent(&destination, frame.wire_len());
        if destination[0] & 1 != 0 {
            self.take_in(frame.clone(), Sender::Own(own));
        }
        self.sent.push_back(frame);
    }

    /// Puts a frame into the port from the wire's side.
    pub(crate) fn deliver(&mut self, frame: Frame) {
        self.take_in(frame, Sender::Other);
    }

    /// A frame came that is not for the function. One to a group comes to every port, and its port counts it all the
    /// same.
    pub(crate) fn pass_by(&mut self, frame: &Frame) {
        self.counters.filtered += 1;
        let destination = frame.destination();
        if self.link_up && destination[0] & 1 != 0 {
            self.counters.physical.count_received(&destination, frame.wire_len());
        }
    }

    fn take_in(&mut self, frame: Frame, sender: Sender) {
        if !self.link_up {
            self.counters.dropped += 1;
            return;
        }
        if self.is_too_long(&frame, "received") {
            self.counters.physical.too_long += 1;
            return;
        }
        self.counters.received += 1;
        if sender == Sender::Other {
            self.counters.physical.count_received(&frame.destination(), frame.wire_len());
        }
        self.received.push_back((frame, sender));
    }

    /// A frame above the port's MTU is dropped, and nobody is told: the sender's retries run out.
    fn is_too_long(&mut self, frame: &Frame, way: &str) -> bool {
        let (len, mtu) = (frame.wire_len(), self.mtu);
        let is_too_long = len > usize::from(mtu);
        if is_too_long {
            self.counters.too_long += 1;
            self.strict.report(rules::FRAME_TOO_LONG, || format!("{len} bytes {way}, the port's MTU (PMTU) is {mtu}"));
        }
        is_too_long
    }

    /// Link and MTU as after power-on.
    pub(crate) fn restore(&mut self) {
        (self.link_up, self.mtu) = (true, Self::DEFAULT_MTU);
    }

    /// Whether more frames can be sent now. A sender that may wait does; nothing is lost if it does not.
    pub(crate) fn can_send(&self) -> bool {
        self.can_receive() && self.sent.len() < ROOM
    }

    /// Whether the wire may bring more frames now.
    pub(crate) fn can_receive(&self) -> bool {
        self.received.len() < ROOM
    }

    /// How many frames wait, both ways.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.received.len() + self.sent.len()
    }

    /// Where the next frame goes that is to go to another port.
    pub(crate) fn next_destination(&self) -> Option<Mac> {
        self.sent.front().map(Frame::destination)
    }

    /// The next frame that came, and who sent it.
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

    pub(crate) fn capture(&self, frame: &Frame) {
        if let Some(capture) = &self.capture {
            capture.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).write(frame);
        }
    }
}
