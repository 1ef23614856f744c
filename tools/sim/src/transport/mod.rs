//! The transport: RoCE v2 packets, and the rules of connections and datagrams.
//!
//! [`packet`] is the wire format and [`decode`] reads it, with [`header`], [`opcode`] and [`icrc`] under them; none knows of
//! queue pairs. [`rc`] is what
//! one queue pair remembers of its connection, reliable or not; [`ud`] is for those that have none. The engines of
//! [`crate::engine`] act on it.

pub mod decode;
pub mod header;
pub mod icrc;
pub mod opcode;
pub mod packet;
pub mod psn;
pub mod rc;
pub mod ud;

pub use opcode::{Opcode, Transport};
pub use packet::Packet;
pub use psn::Psn;
