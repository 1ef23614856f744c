//! Log folders: `<target dir>/lab/logs/PROGRAM/TEST`, and in it a folder for every guest and model.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{IoContext, LabError};
use crate::folder::LabFolder;
use crate::lock::FileLock;

/// Path of a file `name` in the log folder of the calling test, which is created. Captures are put there.
pub fn log_file(name: &str) -> Result<PathBuf, LabError> {
    let dir = of_caller();
    fs::create_dir_all(&dir).doing("create", &dir)?;
    Ok(dir.join(name))
}

/// `<target dir>/lab/logs/PROGRAM/TEST`. Programs other than tests omit the last part.
fn of_caller() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let stem = executable.file_stem().unwrap_or_default().to_string_lossy();
    let program = LabFolder::find().logs().join(without_hash(&stem));
    // The test runner names a test's thread after the test, unless it runs one test at a time.
    match std::thread::current().name() {
        Some(test) if test != "main" => program.join(test.replace("::", ".")),
        _ => program,
    }
}

/// A program's name without the hash that cargo appends to those of tests and benches.
fn without_hash(stem: &str) -> &str {
    match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => stem,
    }
}

/// A log folder. Locked until the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct LogFolder {
    path: PathBuf,
    _lock: Arc<FileLock>,
}

impl LogFolder {
    /// Takes the folder `name` of the calling test, or `name-2` and so on if another process or thread uses it, and
    /// empties it.
    pub(crate) fn take(name: &str) -> Result<Self, LabError> {
        Self::take_in(&of_caller(), name)
    }

    fn take_in(parent: &Path, name: &str) -> Result<Self, LabError> {
        let mut attempt = 1;
        loop {
            let name = match attempt {
                1 => name.to_owned(),
                _ => format!("{name}-{attempt}"),
            };
            if let Some(lock) = FileLock::try_take(&parent.join(format!(".{name}.lock")))? {
                let path = parent.join(name);
                if path.exists() {
                    fs::remove_dir_all(&path).doing("empty", &path)?;
                }
                fs::create_dir_all(&path).doing("create", &path)?;
                return Ok(Self { path, _lock: Arc::new(lock) });
            }
            attempt += 1;
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_has_no_hash() {
        assert_eq!(without_hash("mlx5_ib-0123456789abcdef"), "mlx5_ib");
        assert_eq!(without_hash("mlx5-lab"), "mlx5-lab");
        assert_eq!(without_hash("mlx5-0123456789abcdeg"), "mlx5-0123456789abcdeg");
    }

    #[test]
    fn the_folder_is_named_after_program_and_test() {
        let caller = std::thread::Builder::new().name("room::test".to_owned()).spawn(of_caller).unwrap();
        let folder = caller.join().unwrap();
        assert!(folder.ends_with("logs/mlx5_lab/room.test"), "{folder:?}");
    }

    #[test]
    fn a_folder_is_emptied_and_not_shared() {
        let parent = tempfile::tempdir().unwrap();
        let first = LogFolder::take_in(parent.path(), "guest").unwrap();
        assert_eq!(first.path(), parent.path().join("guest"));
        fs::write(first.path().join("old"), "").unwrap();
        let second = LogFolder::take_in(parent.path(), "guest").unwrap();
        assert_eq!(second.path(), parent.path().join("guest-2"));
        drop(first);
        let third = LogFolder::take_in(parent.path(), "guest").unwrap();
        assert_eq!(third.path(), parent.path().join("guest"));
        assert!(fs::read_dir(third.path()).unwrap().next().is_none());
    }
}
