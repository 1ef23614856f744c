//! The lab's folders on this machine.

use std::path::{Path, PathBuf};

/// The lab's folder, `<target dir>/lab`.
#[derive(Clone, Debug)]
pub(crate) struct LabFolder(PathBuf);

impl LabFolder {
    /// Finds the folder.
    pub(crate) fn find() -> Self {
        Self(target_dir().join("lab"))
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Logs, one folder for each program.
    pub(crate) fn logs(&self) -> PathBuf {
        self.join("logs")
    }
}

/// The root of this crate's workspace.
pub(crate) fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}

/// Cargo's target folder.
///
/// Found by the path of the running program, which also works if the folder was chosen by a configuration file, a flag
/// or a relative path.
fn target_dir() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    if let Some(dir) = executable.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file()) {
        return dir.to_path_buf();
    }
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace().join(dir),
        None => workspace().join("target"),
    }
}
