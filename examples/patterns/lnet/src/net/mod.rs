//! A node: its peers, their connections, and what the program sees of them.

mod common;
mod connection;
mod events;
mod failure;
mod handshake;
mod node;
mod options;
mod peer;
mod transfer;

pub use events::{Event, Match, RequestId, Statistics, TransferId};
pub use failure::{Failure, LnetError, Refused, RefusedReason, TransferError};
pub use node::Lnet;
pub use options::{Options, PORT};
pub use peer::PeerHealth;
