//! What every command writes, and what it may fail with.

use std::io::Write;

/// What a command may fail with.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Prints `value` for machines.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes to stdout. A reader that has seen enough, such as `head`, ends the program in peace.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => Ok(written?),
    }
}
