//! What a connection waits for, and why it cannot go on.

use crate::wire::{ControlError, EntityAddress, FrameError, Tag};

/// Why a connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A frame that makes no sense.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// A frame at the wrong time.
    #[error("a frame {tag:?} came while {state:?}")]
    Unexpected {
        /// Which.
        tag: Tag,
        /// What was waited for.
        state: State,
    },
    /// Authentication that this side does not have.
    #[error("the peer wants authentication method {method} in modes {modes:?}: only none (1) in mode crc (1) is known")]
    Authentication {
        /// The method.
        method: u32,
        /// The modes.
        modes: Vec<u32>,
    },
    /// A peer that is too old, or not open enough.
    #[error("the peer lacks the features {0:#x}")]
    Features(u64),
    /// This side lacks what the peer wants.
    #[error("the peer wants the features {0:#x}, which this side lacks")]
    Wanted(u64),
    /// Another than who was called.
    #[error("{wanted:?} was called, and is not among {found:?}")]
    Address {
        /// Who was called.
        wanted: EntityAddress,
        /// Who answered.
        found: Vec<EntityAddress>,
    },
    /// It asks for sessions again and again, and takes none of the answers.
    #[error("{0} bytes of answers wait for a peer that asks for more and reads none")]
    Unread(usize),
    /// The server asks to wait: its own connection goes first.
    #[error("the peer asks to wait")]
    Wait,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// The banner.
    Banner,
    /// Hello.
    Hello,
    /// The client's request, or the server's answer to it.
    Auth,
    /// The signature, which is empty without authentication.
    Signature,
    /// Who the other end is, or the session that it comes back to.
    Session,
    /// The server's user: `Protocol::accept`, `Protocol::resume` or `Protocol::refuse`.
    Decision,
    /// Messages.
    Ready,
}
