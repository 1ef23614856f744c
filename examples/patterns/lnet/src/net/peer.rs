//! What is known of a peer.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use mlx5_cm::ConnectionId;

use super::events::Waiting;
use super::failure::Failure;
use super::options::Options;

/// `LNET_MAX_HEALTH_VALUE` of `include/linux/lnet/lib-types.h`.
const HEALTHY: u16 = 1000;
/// `lnet_health_sensitivity` of `lnet/lnet/api-ni.c`: what a failure takes.
const SENSITIVITY: u16 = 100;
/// `KIB_RECONN_HIGH_RACE` of `o2iblnd_cb.c`: attempts at once; afterwards one a second.
const ATTEMPTS_AT_ONCE: u32 = 10;
/// `MAX_CONN_RACES_BEFORE_ABORT` of `o2iblnd_cb.c`: races that the higher NID wins before the lower one may.
const MOST_RACES: u32 = 20;
/// Attempts until a peer that refuses again and again is given up.
const MOST_ATTEMPTS: u32 = 60;

/// How a peer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerHealth {
    /// 1000, less 100 for each failure of late: a connection that is established gives 100 back.
    pub value: u16,
    /// Established connections.
    pub connections: usize,
    /// When it was last heard of, by the node's clock.
    pub last_alive: Option<Duration>,
    /// What went wrong last.
    pub last_failure: Option<Failure>,
}

#[derive(Debug)]
pub(super) struct Peer {
    /// Established.
    pub(super) conns: BTreeSet<ConnectionId>,
    /// Our request.
    pub(super) connecting: Option<ConnectionId>,
    /// Its requests that are accepted, but not established.
    pub(super) accepting: BTreeSet<ConnectionId>,
    /// The version that it speaks; 0 where it is not known.
    pub(super) version: u16,
    /// Its incarnation; 0 where it is not known.
    pub(super) stamp: u64,
    pub(super) queue_depth: u16,
    pub(super) max_fragments: u16,
    pub(super) races: u32,
    attempts: u32,
    /// When to ask again.
    pub(super) retry_at: Option<Duration>,
    /// Transfers that wait for a connection.
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) health: PeerHealth,
}

impl Peer {
    pub(super) fn new(options: &Options) -> Self {
        Peer {
            conns: BTreeSet::new(),
            connecting: None,
            accepting: BTreeSet::new(),
            version: 0,
            stamp: 0,
            queue_depth: options.queue_depth,
            max_fragments: options.max_fragments,
            races: 0,
            attempts: 0,
            retry_at: None,
            waiting: VecDeque::new(),
            health: PeerHealth { value: HEALTHY, connections: 0, last_alive: None, last_failure: None },
        }
    }

    /// Whether a connection is under way.
    pub(super) fn is_connecting(&self) -> bool {
        self.connecting.is_some() || self.retry_at.is_some() || !self.accepting.is_empty()
    }

    /// Whether there is anything with it now.
    pub(super) fn is_in_use(&self) -> bool {
        self.is_connecting() || !self.conns.is_empty() || !self.waiting.is_empty()
    }

    /// Its request while ours is under way: whether ours wins. After many races the lower one may win: the higher one's
    /// request is stuck.
    pub(super) fn wins_race(&mut self, ours: u64, its: u64) -> bool {
        let wins = self.connecting.is_some() && its < ours && self.races < MOST_RACES;
        self.races = if wins { self.races + 1 } else { 0 };
        wins
    }

    /// Plans another request, unless there were too many.
    pub(super) fn retry(&mut self, now: Duration) -> bool {
        self.attempts += 1;
        let delay = if self.attempts < ATTEMPTS_AT_ONCE { Duration::ZERO } else { Duration::from_secs(1) };
        let may = self.attempts < MOST_ATTEMPTS;
        self.retry_at = may.then_some(now + delay);
        may
    }

    pub(super) fn established(&mut self, now: Duration) {
        (self.attempts, self.races, self.retry_at) = (0, 0, None);
        self.alive(now);
    }

    pub(super) fn alive(&mut self, now: Duration) {
        self.health.last_alive = Some(now);
        self.health.value = (self.health.value + SENSITIVITY).min(HEALTHY);
    }

    pub(super) fn failed(&mut self, failure: &Failure) {
        if !matches!(failure, Failure::Disconnected | Failure::ShutDown | Failure::Replaced) {
            self.health.value = self.health.value.saturating_sub(SENSITIVITY);
        }
        self.health.last_failure = Some(failure.clone());
        if self.connecting.is_none() && self.retry_at.is_none() {
            self.attempts = 0;
        }
    }
}
