//! Progress output.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Progress on stderr: a bar on a terminal, otherwise one line for each step.
///
/// Written to stderr directly, not by `eprintln!`, which the test runner captures: the first test on a machine would
/// seem to hang.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts a step of `length` units, shown as bytes if `bytes`.
    pub(crate) fn step(message: &str, length: u64, bytes: bool) -> Self {
        if !std::io::stderr().is_terminal() {
            say(message);
            return Self { bar: None };
        }
        let template = if bytes {
            "lab: {msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}"
        } else {
            "lab: {msg} [{bar:30}] {pos}/{len} {elapsed}"
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(length).with_style(style);
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar: Some(bar) }
    }

    /// Sets the progress of the step.
    pub(crate) fn set(&self, position: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(position);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints one line.
pub(crate) fn say(message: &str) {
    // A closed stderr must not fail the work.
    let _ = writeln!(std::io::stderr(), "lab: {message}");
}
