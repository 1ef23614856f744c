//! Locks between processes, released by the kernel when their holder dies.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{IoContext, LabError};

const POLL: Duration = Duration::from_millis(100);

/// A held lock.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
}

impl Drop for FileLock {
    // Closing the file is not enough: a child that another thread has forked but that has not yet executed its program
    // holds a copy of the descriptor, and with it the lock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl FileLock {
    /// Takes the first free lock of `paths`; waits up to `patience` for one. `on_wait` is called once if none is free
    /// at first.
    pub(crate) fn any(paths: &[PathBuf], patience: Duration, on_wait: impl FnOnce()) -> Result<Self, LabError> {
        let start = Instant::now();
        let mut on_wait = Some(on_wait);
        loop {
            for path in paths {
                if let Some(lock) = Self::try_take(path)? {
                    return Ok(lock);
                }
            }
            if start.elapsed() >= patience {
                return Err(LabError::Locked { path: paths.first().cloned().unwrap_or_default(), waited: patience });
            }
            if let Some(tell) = on_wait.take() {
                tell();
            }
            thread::sleep(POLL);
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Self>, LabError> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).doing("create", dir)?;
        }
        let file = File::options().create(true).truncate(false).write(true).open(path).doing("open", path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(source).doing("lock", path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_lock_is_free_although_a_child_still_holds_its_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = FileLock::try_take(&path).unwrap().unwrap();
        let of_child = lock.file.try_clone().unwrap();
        assert!(FileLock::try_take(&path).unwrap().is_none());
        drop(lock);
        assert!(FileLock::try_take(&path).unwrap().is_some());
        drop(of_child);
    }
}
