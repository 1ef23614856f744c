//! QEMU's monitor: a JSON object a line (QMP).

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// How long QEMU may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the monitor.
#[derive(Debug)]
pub(super) struct Monitor(BufReader<UnixStream>);

impl Monitor {
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut monitor = Self(BufReader::new(stream));
        monitor.execute("qmp_capabilities")?;
        Ok(monitor)
    }

    /// Executes a command without arguments, and waits until it is done.
    pub(super) fn execute(&mut self, command: &str) -> io::Result<()> {
        writeln!(self.0.get_mut(), "{}", json!({ "execute": command }))?;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("QEMU ended at `{command}`")));
            }
            let said: Value = serde_json::from_str(&line)?;
            if let Some(error) = said.get("error") {
                return Err(io::Error::other(format!("QEMU refuses `{command}`: {error}")));
            }
            // Else a greeting, or an event.
            if said.get("return").is_some() {
                return Ok(());
            }
        }
    }
}
