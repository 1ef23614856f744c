//! Paths in an unpacked tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{IoContext, LabError};

/// The release of the only kernel in a tree.
pub(crate) fn kernel_release(root: &Path) -> Result<String, LabError> {
    let modules = root.join("usr/lib/modules");
    fs::read_dir(&modules)
        .doing("read", &modules)?
        .flatten()
        .find_map(|entry| entry.file_name().into_string().ok())
        .ok_or_else(|| LabError::Missing { what: "kernel modules".into() })
}

/// A program of a tree, run by the tree's own dynamic loader, because the machine's libraries may be older.
pub(crate) fn loader(root: &Path, argv0: &str, program: &str) -> Command {
    let mut command = Command::new(root.join("usr/lib64/ld-linux-x86-64.so.2"));
    command
        .args(["--argv0", argv0, "--library-path"])
        .arg(libraries(root))
        .arg(root.join(program))
        // cargo sets this to its own libraries while tests run.
        .env_remove("LD_LIBRARY_PATH");
    command
}

/// The libraries of a tree.
pub(crate) fn libraries(root: &Path) -> PathBuf {
    root.join("usr/lib/x86_64-linux-gnu")
}
