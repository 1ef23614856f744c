//! The logs of one guest.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::Evidence;
use super::kernel_log::KernelLog;
use crate::error::{IoContext, LabError};
use crate::logs::LogFolder;
use crate::process::tail;

/// Number of lines that an error shows: a kernel panic takes forty.
pub(super) const TAIL_LINES: usize = 50;

/// A guest's log folder, mounted in it as `/lab`.
#[derive(Clone, Debug)]
pub(super) struct Logs(LogFolder);

impl Logs {
    /// Takes the folder `name`, as [`LogFolder::take`] does.
    pub(super) fn take(name: &str) -> Result<Self, LabError> {
        let logs = Self(LogFolder::take(name)?);
        let run = logs.dir().join("run");
        fs::create_dir_all(&run).doing("create", &run)?;
        Ok(logs)
    }

    pub(super) fn dir(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn console(&self) -> PathBuf {
        self.dir().join("console.log")
    }

    pub(super) fn qemu(&self) -> PathBuf {
        self.dir().join("qemu.log")
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), LabError> {
        let path = self.dir().join(name);
        fs::write(&path, text).doing("write", &path)
    }

    pub(super) fn kernel_log(&self) -> Result<KernelLog, LabError> {
        let path = self.dir().join("kernel.log");
        let bytes = fs::read(&path).doing("read", &path)?;
        Ok(KernelLog::parse(&String::from_utf8_lossy(&bytes)))
    }

    pub(super) fn evidence(&self) -> Evidence {
        let part = |title: &str, path: &Path| {
            let text = tail(path, TAIL_LINES);
            match text.trim().is_empty() {
                true => String::new(),
                false => format!("[{title}]\n{text}\n"),
            }
        };
        Evidence { logs: self.dir().to_owned(), tail: part("console", &self.console()) + &part("qemu", &self.qemu()) }
    }
}
