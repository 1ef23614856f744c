//! Keys whose holder is gone while a work request on them may be in flight.

use std::sync::Arc;

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
            && !error.is_dead()
        {
            tracing::error!(%error, "a key of a remote was not destroyed; its regions are leaked");
            std::mem::forget(std::mem::take(&mut self.regions));
        }
    }
}

/// The orphans of a queue pair, until that is reset or destroyed; `None` afterwards.
///
/// A work request names a key by its number, which the next key gets when the key is destroyed: it would open the old
/// memory by that one.
#[derive(Debug)]
pub(super) struct Orphans(Mutex<Option<Vec<Orphan>>>);

impl Default for Orphans {
    fn default() -> Self {
        Orphans(Mutex::new(Some(Vec::new())))
    }
}

impl Orphans {
    /// Keeps `orphan`, or destroys it if no work request can be in flight any more.
    pub(super) fn keep(&self, orphan: Orphan) {
        if let Some(all) = &mut *lock(&self.0) {
            all.push(orphan);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).as_ref().is_none_or(Vec::is_empty)
    }

    /// Whether the queue pair was reset or destroyed.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.0).is_none()
    }

    /// The queue pair was reset or destroyed.
    pub(super) fn end(&self) {
        let all = lock(&self.0).take();
        drop(all);
    }
}
