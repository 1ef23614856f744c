//! The transport: RoCE v2 packets.
//!
//! [`packet`] is the wire format and [`decode`] reads it, with [`header`], [`opcode`] and [`icrc`] under them; none
//! knows of queue pairs. What requesters and responders do with packets is the engines'.

pub mod decode;
pub mod header;
pub mod icrc;
pub mod opcode;
pub mod packet;
pub mod psn;

pub use opcode::{Opcode, Transport};
pub use packet::Packet;
pub use psn::Psn;
