//! The common frame of programs: logging, errors, exit status.

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

/// Runs `work` as the program `name`. Warnings and the final error go to stderr; `RUST_LOG` sets the log level.
pub fn run<E: Into<Box<dyn Error + Send + Sync>>>(name: &str, work: impl FnOnce() -> Result<(), E>) -> ExitCode {
    start_log("warn");
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{name}: {}", chain(&*error.into()));
            ExitCode::FAILURE
        }
    }
}

/// Starts the log on stderr. `RUST_LOG` sets its level, else `level` does, such as `warn`. Call it once.
pub fn start_log(level: &str) {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        // A closed stderr is no reason to end.
        .log_internal_errors(false)
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level)))
        .init();
}

/// An error and all its causes, each once, on one line without control characters. A process that is out of file
/// descriptors is told how to get more.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text.push_str(": ");
            text.push_str(&reason);
        }
        cause = error.source();
    }
    if text.contains(TOO_MANY_FILES) {
        text.push_str("; this process is out of file descriptors: raise its limit, such as `ulimit -n 65536`");
    }
    printable(&text)
}

/// How the system's error EMFILE ends.
const TOO_MANY_FILES: &str = "(os error 24)";

/// Text with its control characters escaped: what a program was given cannot move the cursor of its user.
pub fn printable(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_with_all_its_causes() {
        let cause = std::io::Error::from_raw_os_error(2);
        let error = mlx5_dv::Error::io("opening it", cause);
        let text = chain(&error);
        assert_eq!(text.matches("os error 2").count(), 1, "{text}");
        assert!(text.starts_with("opening it"), "{text}");
    }

    #[test]
    fn a_cause_that_is_told_already_is_not_told_again() {
        let error = mlx5_dv::Error::Refused {
            device: "sim".into(),
            reason: "No such file or directory (os error 2)".into(),
            fix: None,
            source: Some(std::io::Error::from_raw_os_error(2)),
        };
        assert_eq!(chain(&error).matches("os error 2").count(), 1, "{}", chain(&error));
    }

    #[test]
    fn control_characters_of_the_input_are_escaped() {
        let error = std::io::Error::other("no file \u{1b}[2J\r\n\u{7}x");
        assert_eq!(chain(&error), "no file \\u{1b}[2J\\r\\n\\u{7}x");
    }

    #[test]
    fn out_of_descriptors_names_the_limit() {
        let error = mlx5_dv::Error::io("mapping it", std::io::Error::from_raw_os_error(24));
        assert!(chain(&error).contains("ulimit -n"), "{}", chain(&error));
    }
}
