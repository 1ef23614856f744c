//! What calls may fail with.

use super::types::State;
use crate::message::Service;

/// A call that the connection manager refuses: nothing happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// There is no such connection.
    #[error("there is no connection {0:#x}: it was destroyed, or its last event was handed out")]
    Unknown(u32),
    /// The connection is in another state.
    #[error("connection {id:#x} is in {state}, and {call} needs {wanted}")]
    State {
        /// The connection.
        id: u32,
        /// The state it is in.
        state: State,
        /// The call.
        call: &'static str,
        /// The state that the call needs.
        wanted: &'static str,
    },
    /// More private data than the message has room for.
    #[error("{given} bytes of private data, and a {message} has room for {most}")]
    PrivateData {
        /// The message.
        message: &'static str,
        /// Bytes given.
        given: usize,
        /// Room for the program's own.
        most: usize,
    },
    /// A number that its field has no room for.
    #[error("{what} is {given:#x}, and the limit is {most:#x}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// Its value.
        given: u32,
        /// The greatest that is valid.
        most: u32,
    },
    /// Somebody listens there already.
    #[error("{0} has a listener already: close it, or take another port")]
    InUse(Service),
    /// Nobody listens there.
    #[error("{0} has no listener")]
    NotListening(Service),
    /// The connection manager is full.
    #[error("{most} connections exist, the limit that Config::connections sets: destroy some, or raise it")]
    Full {
        /// The limit.
        most: usize,
    },
}
