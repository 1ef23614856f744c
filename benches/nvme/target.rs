//! The target of mlx5-nvme, in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use mlx5_benches::Failure;
use mlx5_lab::Build;

/// Its address and port.
pub const ADDRESS: &str = "10.0.0.4:4420";
/// Its subsystem.
pub const NQN: &str = "nqn.2014-08.example:bench";
/// MiB of its disk, in memory.
const DISK: &str = "64";

/// A running target. Dropping it kills it.
pub struct Target {
    process: Child,
    /// It writes here from time to time.
    said: BufReader<ChildStdout>,
}

impl Target {
    /// Serves a disk on the function behind `socket`. Returns once hosts can connect.
    pub fn start(build: &Build, socket: &Path) -> Result<Self, Failure> {
        let (address, _) = ADDRESS.split_once(':').ok_or("an address and a port")?;
        let mut command = Command::new(build.program("nvme_rdma")?);
        command.args(["serve", "-d", &format!("vfio-user:{}", socket.display()), "--ip", &format!("{address}/24")]);
        command.args(["--ram", DISK, "--nqn", NQN]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let said = BufReader::new(process.stdout.take().ok_or("the target's standard output")?);
        let (mut target, mut line) = (Target { process, said }, String::new());
        target.said.read_line(&mut line)?;
        if line.starts_with("serving") { Ok(target) } else { Err(format!("the target said {line:?}").into()) }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
