//! The switch between a card's functions, and its uplink.

use super::filter::{self, Claim};
use crate::engine;
use crate::function::Function;
use crate::wire::{Frame, Uplink};

/// Joins the ports of a card's functions, and connects them to an [`Uplink`] if there is one.
#[derive(Debug, Default)]
pub struct Wire {
    uplink: Option<Box<dyn Uplink>>,
    /// The frame that the uplink sends.
    sent: Vec<u8>,
    /// Room for the frame that the uplink receives.
    received: Box<[u8]>,
    /// The function that sends first in this turn: rotates, so that none always takes the last room of a receiver.
    first: usize,
}

/// Maximum frame length of an uplink in bytes.
const LARGEST_FRAME: usize = 16 * 1024;
/// Maximum number of frames read from an uplink in one turn.
const UPLINK_BATCH: usize = 64;

impl Wire {
    /// A wire that only joins functions.
    pub fn new() -> Self {
        Self::default()
    }

    /// A wire with an uplink.
    pub fn with_uplink(uplink: impl Uplink + 'static) -> Self {
        Wire { uplink: Some(Box::new(uplink)), received: vec![0; LARGEST_FRAME].into(), ..Wire::default() }
    }

    /// Moves frames from each port to [`engine::receive`] of each destination. Returns true if any frame was moved.
    /// Called in each turn.
    pub fn exchange(&mut self, functions: &mut [Function]) -> bool {
        // Reads before sending: the uplink learns a new peer before the first frame to it is sent.
        let mut moved = self.take_in(functions);
        let count = functions.len();
        self.first = self.first.wrapping_add(1);
        for turn in 0..count {
            let from = self.first.wrapping_add(turn) % count;
            while has_room(functions, from)
                && let Some(frame) = functions[from].nic.port.take_sent()
            {
                moved = true;
                self.deliver(frame, from, functions);
            }
        }
        moved
    }

    /// Delivers a frame to the function that owns its destination, or else to the uplink. Functions that receive the
    /// address get a copy. An unknown address goes to every port, as in a switch, and each drops the frame.
    fn deliver(&mut self, frame: Frame, from: usize, functions: &mut [Function]) {
        let destination = frame.destination();
        let own = functions.iter().position(|function| filter::claim(function, destination) == Claim::Own);
        if own.is_none()
            && let Some(uplink) = &mut self.uplink
        {
            self.sent.clear();
            frame.encode(&mut self.sent);
            uplink.send(&self.sent);
        }
        for (index, function) in functions.iter_mut().enumerate() {
            if index == from || Some(index) == own {
                continue;
            }
            match filter::claim(function, destination) {
                Claim::Hears => engine::receive(function, frame.clone()),
                Claim::None if own.is_none() => function.nic.port.pass_by(&frame),
                Claim::None | Claim::Own => {}
            }
        }
        if let Some(own) = own {
            engine::receive(&mut functions[own], frame);
        }
    }

    /// Reads frames from the uplink.
    fn take_in(&mut self, functions: &mut [Function]) -> bool {
        let Some(uplink) = &mut self.uplink else { return false };
        for count in 0..UPLINK_BATCH {
            // Frames that are not read stay in the socket.
            if !functions.iter().all(|function| function.nic.port.can_receive()) {
                return count > 0;
            }
            let Some(len) = uplink.receive(&mut self.received) else { return count > 0 };
            let frame = Frame::Ethernet(self.received[..len].to_vec());
            let destination = frame.destination();
            // Once: the ports of a card share the capture.
            if let Some(first) = functions.first() {
                first.nic.port.capture(&frame, first.nic.now);
            }
            for function in functions.iter_mut() {
                if filter::claim(function, destination) == Claim::None {
                    function.nic.port.pass_by(&frame);
                    continue;
                }
                engine::receive(function, frame.clone());
            }
        }
        true
    }
}

/// Whether all receivers of a function's next frame have room; true if there is none.
fn has_room(functions: &[Function], from: usize) -> bool {
    let Some(destination) = functions[from].nic.port.next_destination() else { return true };
    let mut takers = functions.iter().filter(|function| filter::claim(function, destination) != Claim::None);
    takers.all(|function| function.nic.port.can_receive())
}
