//! The transport's packets: RoCE v2. IBTA A17.
//!
//! [`packet`] is the wire format and [`decode`] its parser, based on [`header`], [`dynamic`], [`opcode`] and [`icrc`].
//! None of them knows queue pairs: requester and responder are in [`crate::engine`].

pub mod decode;
pub mod dynamic;
pub mod header;
pub mod icrc;
pub mod opcode;
pub mod packet;
pub mod psn;

pub use opcode::{Opcode, Transport};
pub use packet::Packet;
pub use psn::Psn;
