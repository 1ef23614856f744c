//! The logs of one guest.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::Evidence;
use super::kernel_log::KernelLog;
use crate::error::{IoContext, LabError};
use crate::logs::LogFolder;
use crate::process::tail;

/// Number of lines that an error shows.
pub(super) const TAIL_LINES: usize = 50;
/// Maximum number of lines that it shows of a crash: what a kernel says of its stack is of any length.
const CRASH_LINES: usize = 300;
/// What a kernel says when two measurements of the processor's clock differ. It takes the one that a busy host spoils:
/// of such a guest an hour was seen to last six minutes.
const WRONG_CLOCK: &str = "tsc: PIT calibration deviates from ";
/// What begins a kernel's report of its crash.
const CRASHES: [&str; 2] = ["Oops: ", "Kernel panic"];

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

    /// Whether the kernel's clock may run at a wrong rate.
    pub(super) fn show_wrong_clock(&self) -> bool {
        fs::read(self.console()).is_ok_and(|said| has_wrong_clock(&String::from_utf8_lossy(&said)))
    }

    pub(super) fn evidence(&self) -> Evidence {
        let part = |title: &str, path: &Path| {
            let text = since_crash(&tail(path, CRASH_LINES));
            match text.trim().is_empty() {
                true => String::new(),
                false => format!("[{title}]\n{text}\n"),
            }
        };
        Evidence { logs: self.dir().to_owned(), tail: part("console", &self.console()) + &part("qemu", &self.qemu()) }
    }
}

fn has_wrong_clock(console: &str) -> bool {
    console.contains(WRONG_CLOCK)
}

/// The last lines of a log; if a crash is among those before them, all since its beginning.
fn since_crash(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let crash = lines.iter().position(|line| CRASHES.iter().any(|crash| line.contains(crash)));
    let last = lines.len().saturating_sub(TAIL_LINES);
    lines[crash.unwrap_or(last).min(last)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_shown_and_a_crash_from_its_beginning() {
        let stack = "? stack\n".repeat(2 * TAIL_LINES);
        assert_eq!(since_crash(&stack).lines().count(), TAIL_LINES);
        for crash in ["[ 4.6] Oops: int3: 0000 [#1]", "[ 9.1] Kernel panic - not syncing: sysrq triggered crash"] {
            let shown = since_crash(&format!("before\n{crash}\n{stack}"));
            assert_eq!((shown.lines().next(), shown.lines().count()), (Some(crash), 2 * TAIL_LINES + 1));
            let shown = since_crash(&format!("before\n{crash}\nend"));
            assert_eq!(shown, format!("before\n{crash}\nend"));
        }
    }

    #[test]
    fn a_clock_that_the_kernel_misjudged_is_seen() {
        let deviates = "[    0.024000] tsc: PIT calibration deviates from HPET: 252301 2596247\r\n";
        assert!(has_wrong_clock(deviates));
        assert!(!has_wrong_clock("[    0.024000] tsc: Unable to calibrate against PIT\r\n"));
    }
}
