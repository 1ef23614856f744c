//! Options of a messenger, and what it tells.

use std::time::Duration;

use crate::msgr2::{Message, ProtocolError};
use crate::stack::{StackOptions, Why};
use crate::wire::{EntityKind, EntityName, Limits};

/// Options of a [`Messenger`](super::Messenger).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MessengerOptions {
    /// Who it is.
    pub name: EntityName,
    /// Whether messages are dropped when a connection breaks: for a server, whose word counts. Otherwise its clients
    /// come back to their sessions, and nothing is lost. Default: no.
    pub is_lossy: bool,
    /// Tells clients of one address apart; 0 for a server (`entity_addr_t`).
    pub nonce: u32,
    /// What it takes.
    pub limits: Limits,
    /// How long a client waits until it connects again: at first, and at most (`ms_initial_backoff`,
    /// `ms_max_backoff`). Default: 0.2 s and 15 s.
    pub backoff: (Duration, Duration),
    /// How often the other end is asked whether it is alive; a connection on which nothing comes for four times as long
    /// is made again. Default: 10 s.
    pub keepalive: Duration,
    /// Bytes of messages that a session keeps: of those that wait to be sent, and of those that the other end may not
    /// have. Beyond that [`Messenger::send`](super::Messenger::send) gives messages back; one alone may be of any
    /// length. Of a lossy session about a mebibyte beside them is encoded already. Default: 100 MiB
    /// (`objecter_inflight_op_bytes`).
    pub pending_bytes: usize,
    /// Sessions without a connection that a server keeps, if they are not lossy: their clients may come back. Beyond
    /// that the one whose client has been gone for longest is dropped. Default: 1024.
    pub absent: usize,
    /// The stack's options.
    pub stack: StackOptions,
}

impl MessengerOptions {
    /// Of client `number`.
    pub fn client(number: u64) -> Self {
        Self::new(EntityName { kind: EntityKind::CLIENT, number }, 1)
    }

    /// Of object storage daemon `number`, a server.
    pub fn osd(number: u64) -> Self {
        Self::new(EntityName { kind: EntityKind::OSD, number }, 0)
    }

    fn new(name: EntityName, nonce: u32) -> Self {
        MessengerOptions {
            name,
            is_lossy: false,
            nonce,
            limits: Limits::default(),
            backoff: (Duration::from_millis(200), Duration::from_secs(15)),
            keepalive: Duration::from_secs(10),
            pending_bytes: 100 << 20,
            absent: 1024,
            stack: StackOptions::default(),
        }
    }
}

/// One end of a session. Never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub(super) u64);

/// What happened to a session.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Messages can come, for the first time or again.
    Connected(PeerId),
    /// A message.
    Message(PeerId, Message),
    /// The connection broke. A client makes it again; what was sent is sent again, unless the session is lossy: then
    /// [`Event::Reset`] follows.
    Broken(PeerId, Trouble),
    /// What was sent and not answered is lost: send it again. The session goes on with nothing in it.
    Reset(PeerId),
    /// A session of a server has ended, and will not come back: it was lossy, or one of too many whose clients are
    /// gone.
    Gone(PeerId),
}

/// Why a connection broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The stream ended.
    #[error("{0}")]
    Stream(#[from] Why),
    /// What came made no sense.
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    /// The other end did not answer.
    #[error("nothing came for {} s", .0.as_secs_f64())]
    Silence(Duration),
    /// It was killed by [`Messenger::kill`](super::Messenger::kill), or replaced by a later one.
    #[error("it was ended here")]
    Ended,
}

/// A message that was not taken, as its session keeps too many: the other end takes or acknowledges none.
#[derive(Debug, thiserror::Error)]
#[error(
    "{peer:?} keeps {pending} bytes that its other end has not taken, of at most {most}: send again later, or close it"
)]
pub struct Unsent {
    /// The session.
    pub peer: PeerId,
    /// The message, unchanged.
    pub message: Message,
    /// Bytes that the session keeps.
    pub pending: usize,
    /// How many it may: [`MessengerOptions::pending_bytes`].
    pub most: usize,
}

/// What a messenger has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Streams that were made, by either end.
    pub streams: u64,
    /// Sessions that were come back to.
    pub resumed: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Messages that came.
    pub received: u64,
}
