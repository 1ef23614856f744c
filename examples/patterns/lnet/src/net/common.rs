//! What all connections share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use mlx5_dv::clock::Clock;
use mlx5_dv::objects::Pd;

use super::events::{Event, RequestId, Statistics};
use super::options::Options;
use crate::keys::Keys;
use crate::wire::Handle;

/// What all connections share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) pd: Arc<Pd>,
    pub(super) clock: Clock,
    pub(super) options: Options,
    pub(super) incarnation: u64,
    pub(super) keys: Keys,
    pub(super) events: VecDeque<Event>,
    pub(super) statistics: Statistics,
    pub(super) last_cookie: u64,
}

impl Common {
    pub(super) fn cookie(&mut self) -> u64 {
        self.last_cookie += 1;
        self.last_cookie
    }

    pub(super) fn deadline(&self) -> Duration {
        self.clock.now() + self.options.timeout
    }

    /// What a reply of LNet names.
    pub(super) fn handle(&self, cookie: u64) -> Handle {
        Handle { interface: self.incarnation.to_le_bytes(), object: cookie.to_le_bytes() }
    }

    pub(super) fn request(&self, connection: u64, cookie: u64) -> RequestId {
        RequestId { connection, cookie }
    }
}
