//! Runs helper programs, with output to a log and a time limit.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{IoContext, LabError};

const POLL: Duration = Duration::from_millis(20);

/// Opens a log for appending.
pub(crate) fn open_log(path: &Path) -> Result<File, LabError> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).doing("create", dir)?;
    }
    File::options().create(true).append(true).open(path).doing("open", path)
}

/// Runs a program to its end, appending its output to `log`.
///
/// `progress` is called while it runs. The program is killed if for the time `quiet` neither the value of `progress`
/// nor the size of the log has changed.
pub(crate) fn run_logged(
    command: &mut Command,
    step: &'static str,
    log: &Path,
    quiet: Duration,
    mut progress: impl FnMut() -> u64,
) -> Result<io::Result<ExitStatus>, LabError> {
    let out = open_log(log)?;
    let err = out.try_clone().doing("open", log)?;
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    let mut seen = (0, 0);
    let mut since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Ok(status)),
            Ok(None) => {}
            Err(error) => return Ok(Err(error)),
        }
        let now = (progress(), fs::metadata(log).map_or(0, |file| file.len()));
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > quiet {
            kill(&mut child);
            return Err(LabError::Stalled { step, quiet, log: log.to_owned() });
        }
        thread::sleep(POLL);
    }
}

/// Waits for a program's end, up to `patience`.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= patience {
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// Kills a program and waits for its end.
pub(crate) fn kill(child: &mut Child) {
    // Both calls fail only if the program has already ended. A process that the kernel cannot end at once is not waited
    // for.
    let _ = child.kill();
    let _ = wait(child, Duration::from_secs(5));
}

/// The last lines of a text file; empty if it cannot be read.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    const MOST: u64 = 64 * 1024;
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let length = file.metadata().map_or(0, |file| file.len());
        // Best effort: a part of the tail is better than none.
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(MOST)));
        let _ = file.take(MOST).read_to_end(&mut bytes);
    }
    last_lines(&String::from_utf8_lossy(&bytes), lines)
}

/// The last lines of a text.
pub(crate) fn last_lines(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 5), "a");
        assert_eq!(last_lines("", 5), "");
        assert_eq!(tail(Path::new("/nonexistent"), 3), "");
    }

    #[test]
    fn a_silent_program_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let result = run_logged(Command::new("sleep").arg("60"), "sleeping", &log, Duration::from_millis(100), || 0);
        assert!(matches!(result, Err(LabError::Stalled { .. })));
    }
}
