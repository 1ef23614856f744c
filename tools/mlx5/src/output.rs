//! Output, errors and exit statuses of all commands.

use std::io::Write;

use mlx5_dv::Error;
use mlx5_dv::discovery::DeviceNameError;
use mlx5_open::program;
use mlx5_tools::fields::VERSION;
use serde_json::{Value, json};

/// The error of a command.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Exit status of a command that failed.
const FAILED: u8 = 1;
/// Exit status of a command that was called wrongly, as clap's.
pub const MISUSED: u8 = 2;

/// An error in the command line itself, told without a look at the machine or the input.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

/// The error of a wrong command line.
pub fn usage(text: impl ToString) -> Failure {
    Usage(text.to_string()).into()
}

/// The error of a flag that has nothing to act on. `needs` says what it would need.
pub fn useless(flag: &str, needs: &str) -> Failure {
    usage(format!("{flag} does nothing here: {needs}"))
}

/// The exit status for `error`.
fn status(error: &Failure) -> u8 {
    let is_usage = error.is::<Usage>()
        || error.is::<DeviceNameError>()
        || matches!(error.downcast_ref(), Some(Error::DeviceName(_)));
    if is_usage { MISUSED } else { FAILED }
}

/// Tells `error` on stderr, and returns the exit status.
pub fn fail(error: &Failure, json: bool) -> u8 {
    let status = status(error);
    tell(&program::chain(&**error), status, json);
    status
}

/// Tells an error on stderr, with `json` as one line of JSON. A closed stderr is nobody's loss.
pub fn tell(text: &str, status: u8, json: bool) {
    let line = match json {
        true => json!({ "version": VERSION, "error": text, "exit_status": status }).to_string(),
        false => format!("mlx5: {text}"),
    };
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints `value`, an object, as one JSON document with its version.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&(serde_json::to_string_pretty(&versioned(value)?)? + "\n"))
}

/// Prints `value`, an object, as a JSON document of one line.
pub fn print_json_line(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&(serde_json::to_string(&versioned(value)?)? + "\n"))
}

/// `value` with the version of the documents.
pub fn versioned(value: &impl serde::Serialize) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(value)?;
    value.as_object_mut().ok_or("a JSON document must be an object")?.insert("version".into(), VERSION.into());
    Ok(value)
}

/// Writes to stdout. If the reader has closed it, as `head` does, the program exits successfully.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => Ok(written?),
    }
}

/// Text with the control characters of its lines spelled out: what others wrote must not command the terminal.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            c if c.is_control() => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// Writes a remark to stderr; a closed stderr is nobody's loss.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "mlx5: note: {}", printable(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_command_line_has_a_status_of_its_own() {
        let name: Failure = mlx5_open::open("nonsense").expect_err("no device string").into();
        assert_eq!([status(&usage("-x")), status(&name), status(&"broken".into())], [MISUSED, MISUSED, FAILED]);
    }

    #[test]
    fn a_document_is_an_object_with_its_version() {
        assert_eq!(versioned(&json!({ "a": 1 })).expect("an object"), json!({ "a": 1, "version": VERSION }));
        assert!(versioned(&[1]).is_err());
    }
}
