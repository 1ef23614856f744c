//! Why bytes make no sense.

use super::codec::Truncated;

/// Why a control frame makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// It ends too early.
    #[error("the frame is too short: {0}")]
    Truncated(#[from] Truncated),
    /// A number that it may not have.
    #[error("{what}: {given} is not known")]
    Value {
        /// What it is.
        what: &'static str,
        /// The number.
        given: u64,
    },
    /// Not a banner of msgr2.
    #[error("the peer does not begin with the banner of msgr2: it may speak version 1, or no Ceph at all")]
    Banner,
}
