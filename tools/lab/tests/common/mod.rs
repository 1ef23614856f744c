//! What the lab's tests share.

// Each test is a program of its own and uses a part of this.
#![allow(dead_code)]

use std::error::Error;
use std::time::Duration;

use mlx5_lab::{Build, Guest, KernelLog, Model};

/// For commands that take no time to speak of.
pub const SOON: Duration = Duration::from_secs(20);

/// What a test returns: its error is shown with all its causes.
pub type TestResult = Result<(), Report>;

/// An error and its causes, for the test runner, which prints by `Debug`.
pub struct Report(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Report {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, "\n  because: {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Our programs that guests and hosts run.
pub fn build() -> Result<Build, Report> {
    Ok(Build::release(&["mlx5"], &["rc_pingpong"])?)
}

/// The addresses of the ConnectX functions in a guest.
pub fn functions(guest: &Guest) -> Result<Vec<String>, Report> {
    let text = guest.check("lspci -D -n -d 15b3:", SOON)?;
    let addresses = text.lines().filter_map(|line| line.split(' ').next());
    Ok(addresses.map(str::to_owned).collect())
}

/// Fails if the kernel warned about `what`; shows all it said of that, and what the `model` said.
pub fn assert_quiet(log: &KernelLog, what: &str, model: &Model) {
    let problems: Vec<String> = log.problems(what).iter().map(|record| record.to_string()).collect();
    assert!(
        problems.is_empty(),
        "the kernel complains:\n{}\n\nall it said of {what}:\n{}\nthe model said:\n{}",
        problems.join("\n"),
        log.matching(what).iter().map(|record| format!("{record}\n")).collect::<String>(),
        model.stderr()
    );
}

/// Fails if strict mode reported anything: with unmodified Linux as driver that is a false alarm, with ours a bug.
pub fn assert_lawful(model: &Model) {
    let violations = model.violations();
    assert!(violations.is_empty(), "strict mode reports:\n{}", violations.join("\n"));
}
