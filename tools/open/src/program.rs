//! The common frame of programs: logging, errors, exit status.

use std::error::Error;
use std::io::IsTerminal;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

/// Runs `work` as the program `name`. Warnings and the final error go to stderr; `RUST_LOG` sets the log level.
pub fn run<E: Into<Box<dyn Error + Send + Sync>>>(name: &str, work: impl FnOnce() -> Result<(), E>) -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn")))
        .init();
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {}", chain(&*error.into()));
            ExitCode::FAILURE
        }
    }
}

/// An error and all its causes, on one line.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
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
}
