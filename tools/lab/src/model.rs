//! The software ConnectX, served by `mlx5 sim` for guests to plug in.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use thiserror::Error;

use crate::binaries::{BinariesError, Build};
use crate::error::LabError;
use crate::logs::LogFolder;
use crate::process::{kill, tail};

/// How long the server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why the model cannot be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// No program to start.
    #[error("the server program is missing")]
    Program(#[from] BinariesError),
    /// The program does not start, or its output files cannot be created.
    #[error("cannot start the model")]
    Start(#[source] io::Error),
    /// No folder for its output.
    #[error("cannot create the model's log files")]
    Logs(#[source] LabError),
    /// It does not listen in time.
    #[error("the model does not listen on {socket}; its output:\n{tail}", socket = .socket.display())]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// The end of its output.
        tail: String,
    },
}

/// A running `mlx5 sim`. Dropping it kills it.
#[derive(Debug)]
pub struct Model {
    child: Child,
    sockets: Vec<PathBuf>,
    logs: LogFolder,
    _temp: TempDir,
}

impl Model {
    /// Serves `functions` functions on one wire, with further `arguments` for `mlx5 sim`. Returns once every socket
    /// accepts connections.
    pub fn start(build: &Build, functions: usize, arguments: &[&str]) -> Result<Self, ModelError> {
        Self::start_saying(build, functions, arguments, &log_filter())
    }

    /// Like [`start`](Self::start), with a `RUST_LOG` filter for its standard error.
    pub fn start_saying(build: &Build, functions: usize, arguments: &[&str], filter: &str) -> Result<Self, ModelError> {
        Self::spawn(Command::new(build.program("mlx5")?), functions, arguments, filter)
    }

    /// Like [`start`](Self::start), for one function, run by `tracer`: a program that executes the server, and ends
    /// with it.
    pub fn start_traced(build: &Build, mut tracer: Command, arguments: &[&str]) -> Result<Self, ModelError> {
        tracer.arg(build.program("mlx5")?);
        Self::spawn(tracer, 1, arguments, &log_filter())
    }

    fn spawn(mut command: Command, functions: usize, arguments: &[&str], filter: &str) -> Result<Self, ModelError> {
        let logs = LogFolder::take("model").map_err(ModelError::Logs)?;
        // A socket's path is limited to 107 bytes; the target folder's may be longer.
        let temp = tempfile::Builder::new().prefix("mlx5-sim-").tempdir().map_err(ModelError::Start)?;
        let sockets: Vec<PathBuf> = (0..functions).map(|index| temp.path().join(format!("nic{index}.sock"))).collect();
        let create = |name| File::create(logs.path().join(name)).map_err(ModelError::Start);
        command.arg("sim");
        for socket in &sockets {
            command.arg("--socket").arg(socket);
        }
        let child = command
            .args(arguments)
            .env("RUST_LOG", filter)
            .stdin(Stdio::null())
            .stdout(create("stdout")?)
            .stderr(create("stderr")?)
            .spawn()
            .map_err(ModelError::Start)?;
        let mut model = Self { child, sockets, logs, _temp: temp };
        model.await_sockets()?;
        Ok(model)
    }

    /// The folder of its `stdout` and `stderr`.
    pub fn logs(&self) -> &Path {
        self.logs.path()
    }

    /// The sockets, one for each function.
    pub fn sockets(&self) -> &[PathBuf] {
        &self.sockets
    }

    /// Whether it is still running.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        kill(&mut self.child);
    }

    /// Its process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    pub fn stdout(&self) -> String {
        self.said("stdout")
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.said("stderr")
    }

    /// Violations that strict mode has reported so far: driver errors that a real card would ignore silently.
    pub fn violations(&self) -> Vec<String> {
        let is_violation = |line: &&str| line.contains("mlx5_sim::strict:");
        self.stderr().lines().filter(is_violation).map(str::to_owned).collect()
    }

    fn said(&self, name: &str) -> String {
        let bytes = fs::read(self.logs.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn await_sockets(&mut self) -> Result<(), ModelError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let runs = self.runs();
            let said = self.stdout();
            let silent = self.sockets.iter().find(|socket| !listens(&said, socket));
            let Some(socket) = silent else {
                return Ok(());
            };
            if !runs || Instant::now() >= deadline {
                return Err(ModelError::Silent {
                    socket: socket.clone(),
                    tail: tail(&self.logs.path().join("stderr"), 20),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

/// Default log filter of the server.
fn log_filter() -> String {
    std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned())
}

/// Whether the server has logged that it listens on a socket.
fn listens(said: &str, socket: &Path) -> bool {
    let line = format!("listening on {}", socket.display());
    said.lines().any(|said| said.trim() == line)
}
