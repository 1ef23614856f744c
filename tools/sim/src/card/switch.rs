//! The switch between a card's functions, and the way out.

use super::filter::{self, Claim};
use crate::engine;
use crate::function::Function;
use crate::wire::{Frame, Uplink};

/// Joins the ports of a card's functions, and leads out of it if it has an [`Uplink`].
#[derive(Debug, Default)]
pub struct Wire {
    uplink: Option<Box<dyn Uplink>>,
    bytes: Vec<u8>,
    /// Which function's turn it is to send first: none may always take the last room at a receiver.
    first: usize,
}

/// Most bytes of a frame that an uplink takes or gives.
const LARGEST_FRAME: usize = 16 * 1024;
/// Frames taken from an uplink in one turn.
const UPLINK_BATCH: usize = 64;

impl Wire {
    /// A wire that leads nowhere but from function to function.
    pub fn new() -> Self {
        Self::default()
    }

    /// A wire that also leads out.
    pub fn with_uplink(uplink: impl Uplink + 'static) -> Self {
        Wire { uplink: Some(Box::new(uplink)), ..Wire::default() }
    }

    /// Moves frames: out of each port, over the wire, to [`engine::receive`] of each addressee. True if any moved.
    /// Called by the device thread each turn of its loop.
    pub fn exchange(&mut self, functions: &mut [Function]) -> bool {
        // In before out: who joins the wire is heard before the first frame to it leaves.
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

    /// Takes a frame to whose address it is; if that is nobody here, out of the card. Those that hear it too get a
    /// copy. What nobody has comes to every port, as from a switch that does not know the address, and each drops it.
    fn deliver(&mut self, frame: Frame, from: usize, functions: &mut [Function]) {
        let destination = frame.destination();
        let own = functions.iter().position(|function| filter::claim(function, destination) == Claim::Own);
        if own.is_none()
            && let Some(uplink) = &mut self.uplink
        {
            self.bytes.clear();
            frame.encode(&mut self.bytes);
            uplink.send(&self.bytes);
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

    /// Takes frames from the uplink.
    fn take_in(&mut self, functions: &mut [Function]) -> bool {
        let Some(uplink) = &mut self.uplink else { return false };
        self.bytes.resize(LARGEST_FRAME, 0);
        for count in 0..UPLINK_BATCH {
            // What is not taken now waits in the socket.
            if !functions.iter().all(|function| function.nic.port.can_receive()) {
                return count > 0;
            }
            let Some(len) = uplink.receive(&mut self.bytes) else { return count > 0 };
            let Some(frame) = Frame::from_bytes(&self.bytes[..len]) else { continue };
            let destination = frame.destination();
            for function in functions.iter_mut() {
                if filter::claim(function, destination) == Claim::None {
                    function.nic.port.pass_by(&frame);
                    continue;
                }
                function.nic.port.capture(&frame);
                engine::receive(function, frame.clone());
            }
        }
        true
    }
}

/// Whether all to whom a function's next frame goes can take it; true if there is no such frame.
fn has_room(functions: &[Function], from: usize) -> bool {
    let Some(destination) = functions[from].nic.port.next_destination() else { return true };
    let mut takers = functions.iter().filter(|function| filter::claim(function, destination) != Claim::None);
    takers.all(|function| function.nic.port.can_receive())
}
