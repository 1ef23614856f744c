//! Connections, by local number and by the remote's identifiers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use mlx5_prm::ib::MAD;

use super::types::{Agreed, ConnectionId, Path, State};
use crate::message::{Gid, Service};

/// The remote's identifiers of a connection: GID, GUID and number. So a remote cannot name connections of another GID.
pub(super) type RemoteKey = (Gid, u64, u32);

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) path: Path,
    pub(super) service: Service,
    /// Whether the listener's program must still answer.
    pub(super) in_backlog: bool,
    /// Transaction of the last message.
    pub(super) tid: u64,
    /// The remote's GUID, communication ID and queue pair; 0 until known.
    pub(super) remote_guid: u64,
    pub(super) remote_id: u32,
    pub(super) remote_qpn: u32,
    /// What this side offered, then what both agree on.
    pub(super) agreed: Agreed,
    /// The last message. It is retransmitted after a timeout, and when the remote shows that it missed it.
    pub(super) last: Option<Box<[u8; MAD]>>,
    /// Time that the remote has to answer, and how often the last message will still be retransmitted.
    pub(super) interval: Duration,
    pub(super) tries: u8,
    /// The program has destroyed it: its events are discarded.
    pub(super) orphan: bool,
    /// When its timer is due.
    deadline: Option<Duration>,
    remote_key: Option<RemoteKey>,
    queue_pair_key: Option<RemoteKey>,
}

impl Connection {
    pub(super) fn new(state: State, path: Path, service: Service, tid: u64) -> Self {
        Connection {
            state,
            path,
            service,
            in_backlog: false,
            tid,
            remote_guid: 0,
            remote_id: 0,
            remote_qpn: 0,
            agreed: Agreed::none(path),
            last: None,
            interval: Duration::ZERO,
            tries: 0,
            orphan: false,
            deadline: None,
            remote_key: None,
            queue_pair_key: None,
        }
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Table {
    connections: BTreeMap<u32, Connection>,
    by_remote: HashMap<RemoteKey, u32>,
    by_queue_pair: HashMap<RemoteKey, u32>,
    timers: BTreeSet<(Duration, u32)>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.connections.contains_key(&id)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Connection> {
        self.connections.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: u32, connection: Connection) {
        self.connections.insert(id, connection);
    }

    /// The connection or request with the remote's identifiers `key`.
    pub(super) fn of_remote(&self, key: &RemoteKey) -> Option<u32> {
        self.by_remote.get(key).copied()
    }

    /// The connection to the remote queue pair `key`.
    pub(super) fn of_queue_pair(&self, key: &RemoteKey) -> Option<u32> {
        self.by_queue_pair.get(key).copied()
    }

    /// Records the remote's number `remote_id` of connection `id`.
    pub(super) fn know_remote(&mut self, id: u32, guid: u64, remote_id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let key = (connection.path.remote, guid, remote_id);
        (connection.remote_guid, connection.remote_id) = (guid, remote_id);
        connection.remote_key = Some(key);
        self.by_remote.insert(key, id);
    }

    /// Records the remote queue pair of connection `id`.
    pub(super) fn know_queue_pair(&mut self, id: u32, qpn: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let key = (connection.path.remote, connection.remote_guid, qpn);
        connection.remote_qpn = qpn;
        connection.queue_pair_key = Some(key);
        self.by_queue_pair.insert(key, id);
    }

    /// The remote queue pair of connection `id` may have another connection from now on.
    pub(super) fn forget_queue_pair(&mut self, id: u32) {
        let key = self.connections.get_mut(&id).and_then(|connection| connection.queue_pair_key.take());
        if let Some(key) = key
            && self.by_queue_pair.get(&key) == Some(&id)
        {
            self.by_queue_pair.remove(&key);
        }
    }

    /// Sets the timer of connection `id` to `deadline`.
    pub(super) fn set_deadline(&mut self, id: u32, deadline: Option<Duration>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(old) = std::mem::replace(&mut connection.deadline, deadline) {
            self.timers.remove(&(old, id));
        }
        self.timers.extend(deadline.map(|deadline| (deadline, id)));
    }

    /// When the next timer is due.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Returns a connection whose timer is due, and clears the timer.
    pub(super) fn due(&mut self, now: Duration) -> Option<u32> {
        let (deadline, id) = *self.timers.first()?;
        if deadline > now {
            return None;
        }
        self.set_deadline(id, None);
        Some(id)
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Connection> {
        self.set_deadline(id, None);
        self.forget_queue_pair(id);
        let connection = self.connections.remove(&id)?;
        if let Some(key) = connection.remote_key
            && self.by_remote.get(&key) == Some(&id)
        {
            self.by_remote.remove(&key);
        }
        Some(connection)
    }

    /// Whether all tables are empty.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
            && self.by_remote.is_empty()
            && self.by_queue_pair.is_empty()
            && self.timers.is_empty()
    }

    /// All IDs.
    pub(super) fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        self.connections.keys().copied().map(ConnectionId)
    }
}
