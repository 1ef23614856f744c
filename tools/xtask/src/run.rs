//! Runs `cargo test`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Runs `cargo test` with `arguments`, and `rest` after them; says how long it took. Whether all passed.
pub fn cargo_test(arguments: &[&str], rest: &[&str]) -> Result<bool, String> {
    cargo_test_watched(arguments, rest, |_| {})
}

/// As [`cargo_test`], which shows each line of the standard output to `watch` as it is printed.
pub fn cargo_test_watched(arguments: &[&str], rest: &[&str], mut watch: impl FnMut(&str)) -> Result<bool, String> {
    let command_line = command_line(arguments, rest);
    eprintln!("{command_line}");
    let begin = Instant::now();
    let mut child = cargo(arguments, rest).spawn().map_err(|error| format!("cannot run cargo: {error}"))?;
    let lines = BufReader::new(child.stdout.take().ok_or("cargo has no output")?).lines();
    for line in lines {
        let line = line.map_err(|error| format!("cannot read what cargo prints: {error}"))?;
        println!("{line}");
        watch(&line);
    }
    let status = child.wait().map_err(|error| format!("cannot wait for cargo: {error}"))?;
    eprintln!("{command_line}: {status} after {} s", begin.elapsed().as_secs());
    Ok(status.success())
}

/// As [`cargo_test`], beside another one: what it printed, for whoever waits for both to show, and whether all passed.
pub fn cargo_test_collected(arguments: &[&str], rest: &[&str]) -> Result<(String, bool), String> {
    let mut cargo = cargo(arguments, rest);
    let output = cargo.stderr(Stdio::piped()).output().map_err(|error| format!("cannot run cargo: {error}"))?;
    let [errors, said] = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes));
    Ok((format!("{}\n{errors}{said}", command_line(arguments, rest)), output.status.success()))
}

fn command_line(arguments: &[&str], rest: &[&str]) -> String {
    [&["cargo", "test"], arguments, rest].concat().join(" ")
}

/// `cargo test`, whose standard output is read.
fn cargo(arguments: &[&str], rest: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg("test").args(arguments).args(rest).stdin(Stdio::null()).stdout(Stdio::piped());
    cargo
}
