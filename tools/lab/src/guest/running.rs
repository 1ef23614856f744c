//! A running guest, and commands in it.

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::channel::{Channel, State};
use super::error::GuestError;
use super::kernel_log::KernelLog;
use super::logs::{Logs, TAIL_LINES};
use super::monitor::Monitor;
use super::qemu::Qemu;
use crate::error::IoContext;
use crate::lock::FileLock;
use crate::process::last_lines;

/// How long the agent may take to respond.
const AGENT_PATIENCE: Duration = Duration::from_secs(60);
/// How long the guest may take to power off: its drivers release the cards first.
const OFF_PATIENCE: Duration = Duration::from_secs(120);
/// Result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 128 plus the signal's number if a signal ended it.
    pub status: i32,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Whether the exit status is 0.
    pub fn success(&self) -> bool {
        self.status == 0
    }

    /// Its standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its standard error as text.
    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    fn ending(&self) -> String {
        last_lines(&format!("{}{}", self.text(), self.error_text()), TAIL_LINES)
    }
}

/// A running guest. Dropping it kills it; [`power_off`](Self::power_off) shuts it down cleanly.
#[derive(Debug)]
pub struct Guest {
    pub(super) channel: Channel,
    pub(super) qemu: Qemu,
    pub(super) logs: Logs,
    /// The socket of QEMU's monitor.
    pub(super) monitor: PathBuf,
    pub(super) next: AtomicU64,
    // Dropped last: QEMU must have ended before another guest takes the slot.
    pub(super) _slot: FileLock,
    pub(super) _temp: TempDir,
}

impl Guest {
    /// Runs a bash command line and waits for its end, with any status. If it takes longer than `patience` it is
    /// killed, which is an error; the guest stays usable.
    pub fn run(&self, command: &str, patience: Duration) -> Result<Output, GuestError> {
        self.start(command)?.wait(patience)
    }

    /// Runs a command that must succeed; returns its standard output.
    pub fn check(&self, command: &str, patience: Duration) -> Result<String, GuestError> {
        let output = self.run(command, patience)?;
        if output.success() {
            return Ok(output.text());
        }
        Err(GuestError::Failed {
            command: command.to_owned(),
            status: output.status,
            output: output.ending(),
            evidence: Box::new(self.logs.evidence()),
        })
    }

    /// Starts a command and returns at once.
    pub fn start(&self, command: &str) -> Result<Job<'_>, GuestError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let job = Job { guest: self, id, command: command.to_owned(), finished: false };
        let script = format!("{command}\n");
        let path = job.file("sh");
        fs::write(&path, script).doing("write", &path)?;
        self.send(&format!("run {id}"), command)?;
        Ok(job)
    }

    /// The kernel's log so far, also of a guest that has ended.
    pub fn dmesg(&self) -> Result<KernelLog, GuestError> {
        static MARKS: AtomicU64 = AtomicU64::new(0);
        let mark = format!("mlx5-lab mark {}", MARKS.fetch_add(1, Ordering::Relaxed));
        // Records are written to the file in order: once our mark is there, all earlier records are. A guest that has
        // ended writes no more.
        let command = format!("echo '{mark}' > /dev/kmsg");
        let marked = self.run(&command, AGENT_PATIENCE);
        let deadline = Instant::now() + AGENT_PATIENCE;
        loop {
            let mut log = self.logs.kernel_log()?;
            let arrived = log.records.iter().any(|record| record.text == mark);
            if marked.is_err() || arrived {
                log.records.retain(|record| !record.text.starts_with("mlx5-lab mark "));
                return Ok(log);
            }
            if Instant::now() >= deadline {
                let output = "the kernel's log stands still".to_owned();
                let evidence = Box::new(self.logs.evidence());
                return Err(GuestError::Timeout { command, after: AGENT_PATIENCE, output, evidence });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops the guest's processors and its clock: it says nothing and hears nothing, while its cards, which are the
    /// model's, go on.
    ///
    /// # Errors
    /// QEMU does not answer, or refuses.
    pub fn pause(&self) -> io::Result<Paused<'_>> {
        let mut monitor = Monitor::connect(&self.monitor)?;
        monitor.execute("stop")?;
        Ok(Paused { monitor, _guest: PhantomData })
    }

    /// The folder with this guest's logs: `console.log`, `kernel.log`, `qemu.log`, and `run/` with every command and
    /// its output.
    pub fn logs(&self) -> &Path {
        self.logs.dir()
    }

    /// Powers the guest off and waits for its end.
    pub fn power_off(mut self) -> Result<(), GuestError> {
        self.send("off", "powering off")?;
        if self.qemu.ends_within(OFF_PATIENCE) {
            return Ok(());
        }
        Err(GuestError::PowerOff { evidence: Box::new(self.logs.evidence()) })
    }

    fn send(&self, line: &str, doing: &str) -> Result<(), GuestError> {
        let closed = self.channel.wait(Instant::now(), |state| Some(state.closed));
        if closed == Some(true) {
            return Err(self.ended(doing));
        }
        self.channel.send(line).map_err(GuestError::Channel)
    }

    fn ended(&self, doing: &str) -> GuestError {
        GuestError::Ended { doing: doing.to_owned(), evidence: Box::new(self.logs.evidence()) }
    }

    pub(super) fn await_ready(&self, deadline: Instant, patience: Duration) -> Result<(), GuestError> {
        let came = self.channel.wait(deadline, |state| {
            (state.ready || state.closed).then(|| match state {
                State { closed: true, .. } => Err("it ended".to_owned()),
                State { failures, .. } if !failures.is_empty() => Err(format!("failed: {}", failures.join(", "))),
                _ => Ok(()),
            })
        });
        let late = || Err(format!("not ready after {} s", patience.as_secs()));
        came.unwrap_or_else(late)
            .map_err(|reason| GuestError::Boot { reason, evidence: Box::new(self.logs.evidence()) })
    }
}

/// A guest whose processors stand still, until this is dropped.
#[derive(Debug)]
pub struct Paused<'guest> {
    monitor: Monitor,
    _guest: PhantomData<&'guest Guest>,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.monitor.execute("cont") {
            eprintln!("the guest stays paused: {error}");
        }
    }
}

/// A command running in a guest. Dropping it kills the command.
#[derive(Debug)]
pub struct Job<'guest> {
    guest: &'guest Guest,
    id: u64,
    command: String,
    finished: bool,
}

impl Job<'_> {
    /// Waits for the command's end; kills it after `patience`, which is an error.
    pub fn wait(mut self, patience: Duration) -> Result<Output, GuestError> {
        match self.status(Instant::now() + patience) {
            Some(Ok(status)) => self.output(status),
            Some(Err(error)) => Err(error),
            None => Err(self.give_up(patience)),
        }
    }

    /// Whether the command still runs.
    pub fn runs(&mut self) -> bool {
        self.status(Instant::now()).is_none()
    }

    /// The command's standard output so far.
    pub fn so_far(&self) -> String {
        let bytes = fs::read(self.file("out")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the command has written `text` to its standard output.
    pub fn wait_for(&mut self, text: &str, patience: Duration) -> Result<(), GuestError> {
        self.wait_until(|so_far| so_far.contains(text), patience)
    }

    /// Waits until what the command has written to its standard output is enough.
    pub fn wait_until(&mut self, is_enough: impl Fn(&str) -> bool, patience: Duration) -> Result<(), GuestError> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = !self.runs();
            if is_enough(&self.so_far()) {
                return Ok(());
            }
            if ended || Instant::now() >= deadline {
                return Err(self.give_up(patience));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The exit status; `None` if the deadline passes first.
    fn status(&mut self, deadline: Instant) -> Option<Result<i32, GuestError>> {
        let id = self.id;
        let answer = self.guest.channel.wait(deadline, |state| {
            let status = state.done.get(&id).copied();
            status.map(Some).or(state.closed.then_some(None))
        })?;
        self.finished = true;
        Some(answer.ok_or_else(|| self.guest.ended(&self.command)))
    }

    fn output(&self, status: i32) -> Result<Output, GuestError> {
        let read = |kind| {
            let path = self.file(kind);
            fs::read(&path).doing("read", &path)
        };
        Ok(Output { status, stdout: read("out")?, stderr: read("err")? })
    }

    /// Kills the command and reports its output.
    fn give_up(&mut self, after: Duration) -> GuestError {
        self.kill();
        GuestError::Timeout {
            command: self.command.clone(),
            after,
            output: self.output(0).map_or_else(|_| String::new(), |output| output.ending()),
            evidence: Box::new(self.guest.logs.evidence()),
        }
    }

    fn kill(&mut self) {
        if self.finished {
            return;
        }
        // If the agent cannot be reached, the guest has ended and the command with it.
        if self.guest.send(&format!("kill {}", self.id), "").is_ok() {
            let _ = self.status(Instant::now() + AGENT_PATIENCE);
        }
        self.finished = true;
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.guest.logs.dir().join(format!("run/{}.{kind}", self.id))
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}
