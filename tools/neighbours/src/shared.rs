//! What the thread of the stack and the callers share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use mlx5_dv::Mac;

/// Shared between the thread of the stack and the callers.
#[derive(Debug, Default)]
pub struct Shared {
    state: Mutex<State>,
    /// Signaled when an address was learned, and when the thread has ended.
    pub changed: Condvar,
}

/// What is known and wanted.
#[derive(Debug, Default)]
pub struct State {
    /// MAC addresses by IP address, as last heard.
    pub known: HashMap<IpAddr, Mac>,
    /// Addresses being resolved, and the number of requests sent for each.
    pub wanted: HashMap<IpAddr, u32>,
    /// Why the thread has ended.
    pub ended: Option<String>,
    /// Tells the thread to end.
    pub stop: bool,
}

impl Shared {
    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Size of the cache. When it is full, all of it is dropped.
const REMEMBERED: usize = 1024;

impl State {
    /// Records that `mac` has `address`.
    pub fn learn(&mut self, address: IpAddr, mac: Mac) {
        if self.known.len() >= REMEMBERED && !self.known.contains_key(&address) {
            self.known.clear();
        }
        self.known.insert(address, mac);
    }
}
