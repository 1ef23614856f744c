//! msgr2, revision 1, in crc mode and without authentication: what is said over a byte stream, without the stream
//! (`src/msg/async/ProtocolV2.cc`, `doc/dev/msgr2.rst`).

mod error;
mod outbox;
mod protocol;
mod session;

pub use error::{ProtocolError, State};
pub use protocol::{Heard, Identity, Protocol, Refusal};
pub use session::{Message, Session};
