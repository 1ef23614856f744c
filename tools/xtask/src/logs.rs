//! The logs of one test program of the lab: `<target dir>/lab/logs/PROGRAM/TEST/...`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How many lines of a log are shown.
const TAIL_LINES: usize = 40;
/// The logs whose ends are shown when a test fails.
const SHOWN: [&str; 4] = ["console.log", "qemu.log", "kernel.log", "stderr"];

/// The logs of one test program.
pub struct Logs(PathBuf);

impl Logs {
    pub fn of(target_dir: &Path, program: &str) -> Self {
        Self(target_dir.join("lab/logs").join(program))
    }

    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The logs that were written to since `begin`, but for those of single commands.
    pub fn written_since(&self, begin: SystemTime) -> Result<Vec<PathBuf>, String> {
        let mut found = Vec::new();
        collect(&self.0, begin, &mut found)?;
        found.sort();
        Ok(found)
    }

    /// Prints the ends of the logs that the `test` has written to since `begin`.
    pub fn print_ends(&self, test: &str, begin: SystemTime) -> Result<(), String> {
        // The test runner has no thread of that name where it runs one test at a time.
        let dir = self.0.join(test.replace("::", "."));
        let dir = if dir.is_dir() { dir } else { self.0.clone() };
        let mut files = Vec::new();
        collect(&dir, begin, &mut files)?;
        files.retain(|file| file.file_name().is_some_and(|name| SHOWN.iter().any(|shown| name == *shown)));
        files.sort();
        for file in files {
            let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            eprintln!("\n== {}", file.display());
            eprint!("{}", tail(&String::from_utf8_lossy(&bytes)));
        }
        Ok(())
    }
}

/// The last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines[from..].iter().map(|line| format!("{line}\n")).collect()
}

/// Adds the non-empty logs and captures below `dir` that were written to since `begin`. A folder `run` holds those of
/// single commands.
fn collect(dir: &Path, begin: SystemTime, found: &mut Vec<PathBuf>) -> Result<(), String> {
    if !dir.is_dir() {
        return Ok(());
    }
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let is_log = ["stdout", "stderr"].iter().any(|log| name == *log)
            || path.extension().is_some_and(|extension| extension == "log" || extension == "pcap");
        if path.is_dir() {
            if entry.file_name() != "run" {
                collect(&path, begin, found)?;
            }
        } else if is_log
            && entry.metadata().is_ok_and(|data| data.len() > 0 && data.modified().is_ok_and(|time| time >= begin))
        {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn logs_of_this_run_are_found() {
        let target = tempfile::tempdir().unwrap();
        let logs = Logs::of(target.path(), "boot");
        let begin = SystemTime::now() - Duration::from_secs(1);
        assert_eq!(logs.written_since(begin).unwrap(), [""; 0].map(PathBuf::from));

        let guest = logs.dir().join("it_boots/guest");
        fs::create_dir_all(guest.join("run")).unwrap();
        for (name, text) in [("kernel.log", "up\n"), ("qemu.log", ""), ("agent.sh", "x"), ("run/1.log", "x")] {
            fs::write(guest.join(name), text).unwrap();
        }
        assert_eq!(logs.written_since(begin).unwrap(), [guest.join("kernel.log")]);
        assert_eq!(
            logs.written_since(SystemTime::now() + Duration::from_secs(60)).unwrap(),
            [""; 0].map(PathBuf::from)
        );
        logs.print_ends("it_boots", begin).unwrap();
    }

    #[test]
    fn the_end_of_a_log_is_shown() {
        let text: String = (0..100).map(|line| format!("{line}\n")).collect();
        let end = tail(&text);
        assert_eq!((end.lines().count(), end.lines().next(), end.lines().last()), (TAIL_LINES, Some("60"), Some("99")));
    }
}
