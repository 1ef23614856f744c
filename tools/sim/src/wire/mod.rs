//! The wire: what joins two ports.

use crate::function::Function;
use crate::profile::Profile;

/// An Ethernet frame, without its check sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame(pub Vec<u8>);

/// A function's port: MAC, GIDs, link; frames to and from the wire.
#[derive(Debug)]
pub struct Port {}

impl Port {
    /// The port of the card's function `index`.
    pub fn new(_index: usize, _profile: &Profile) -> Self {
        Port {}
    }
}

/// Moves frames: out of each port, over the wire, to [`crate::engine::receive`] of each addressee. True if any moved.
/// Called by the device thread each turn of its loop.
pub fn exchange(_functions: &mut [Function]) -> bool {
    false
}
