//! The transport: RoCE v2 packets and the reliable connection's rules.
//!
//! [`packet`] is the wire format, with [`opcode`] and [`icrc`] under it; it knows nothing of queue pairs. [`rc`] is what
//! one queue pair remembers of its connection; the engines of [`crate::engine`] act on it.

pub mod icrc;
pub mod opcode;
pub mod packet;
pub mod psn;
pub mod rc;

pub use opcode::Opcode;
pub use packet::Packet;
pub use psn::Psn;
