//! Output and errors of all commands.

use std::io::Write;

/// The error of a command.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Prints `value` as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes to stdout. If the reader has closed it, as `head` does, the program exits successfully.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => Ok(written?),
    }
}

/// Writes a remark to stderr; a closed stderr is nobody's loss.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "mlx5: note: {text}");
}
