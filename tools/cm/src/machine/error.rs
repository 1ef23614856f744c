//! Errors of calls.

use super::types::State;
use crate::message::Service;

/// Why the connection manager refuses a call. Nothing has changed.
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
    /// The private data is longer than its field in the message.
    #[error("{given} bytes of private data, and a {message} has room for {most}")]
    PrivateData {
        /// The message.
        message: &'static str,
        /// Bytes given.
        given: usize,
        /// Room for the program's data.
        most: usize,
    },
    /// A value above its limit.
    #[error("{what} is {given:#x}, and the limit is {most:#x}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// Its value.
        given: u32,
        /// The greatest valid value.
        most: u32,
    },
    /// The service has a listener already.
    #[error("{0} has a listener already: close it, or take another port")]
    InUse(Service),
    /// The service has no listener.
    #[error("{0} has no listener")]
    NotListening(Service),
    /// The limit of connections is reached.
    #[error("{most} connections exist, the limit that Config::connections sets: destroy some, or raise it")]
    Full {
        /// The limit.
        most: usize,
    },
}
