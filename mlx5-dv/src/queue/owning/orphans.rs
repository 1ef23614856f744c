//! Keys whose holder is gone while a work request on them may be in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::{Mutex, lock};
use crate::objects::{MemoryRegion, UmrKey};

/// A key, with the regions that it opens, or will by a work request in flight.
#[derive(Debug)]
pub(super) struct Orphan {
    key: UmrKey,
    regions: Vec<Arc<MemoryRegion>>,
}

impl Orphan {
    pub(super) fn new(key: UmrKey, regions: Vec<Arc<MemoryRegion>>) -> Self {
        Orphan { key, regions }
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        // A remote may access the regions until the key is destroyed.
        if let Err(error) = self.key.end()
            && !error.frees_memory()
        {
            tracing::error!(%error, "a key of a remote was not destroyed; its regions are leaked");
            std::mem::forget(std::mem::take(&mut self.regions));
        }
    }
}

/// What the keys that work requests of a queue pair change know of it, and its orphans, until it is reset or destroyed.
///
/// A work request names a key by its number, which the next key gets when the key is destroyed: it would open the old
/// memory by that one.
#[derive(Debug)]
pub(super) struct Orphans {
    /// Reported work requests on keys were executed up to before this ticket: by what the queue pair has retired, not
    /// by what a program shows. [`OVER`] once it was reset or destroyed.
    executed: AtomicU64,
    /// `None` once it was reset or destroyed.
    kept: Mutex<Option<Vec<Arc<Orphan>>>>,
}

/// No work request is in flight any more.
const OVER: u64 = u64::MAX;

impl Default for Orphans {
    fn default() -> Self {
        Orphans { executed: AtomicU64::new(0), kept: Mutex::new(Some(Vec::new())) }
    }
}

impl Orphans {
    /// Keeps `orphan`, if a work request can be in flight.
    pub(super) fn keep(&self, orphan: &Arc<Orphan>) {
        if let Some(all) = &mut *lock(&self.kept) {
            all.push(Arc::clone(orphan));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.kept).as_ref().is_none_or(Vec::is_empty)
    }

    /// Whether the queue pair was reset or destroyed.
    pub(super) fn is_over(&self) -> bool {
        self.executed.load(Ordering::Acquire) == OVER
    }

    /// The work request `ticket` on a key was executed, and those before it.
    pub(super) fn executed(&self, ticket: u64) {
        self.executed.store(ticket.saturating_add(1), Ordering::Release);
    }

    /// Whether the work request `ticket` on a key cannot be in flight any more. Of one that is not reported nothing is
    /// known before a later one of the queue pair on the key was executed.
    pub(super) fn has_executed(&self, ticket: u64) -> bool {
        let executed = self.executed.load(Ordering::Acquire);
        executed == OVER || ticket < executed
    }

    /// The queue pair was reset or destroyed.
    pub(super) fn end(&self) {
        self.executed.store(OVER, Ordering::Release);
        let all = lock(&self.kept).take();
        drop(all);
    }
}
