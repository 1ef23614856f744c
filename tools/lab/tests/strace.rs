//! Polling makes no system call a message: strace counts the same calls for 100 000 exchanges as for a million.
//!
//! Counted by thread. The polling thread must stay the same but for [`RACES`]. The driver's other thread, which looks
//! after the card, wakes up by the clock; so all of the driver together may grow by [`SHARE`] of the messages added: a call
//! in every hundredth message would be seen. The thread of the software card stands for hardware: its sleeping and yielding
//! is shown and not judged.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::TestResult;
use mlx5_lab::Build;

const FEW: u64 = 100_000;
const MANY: u64 = 1_000_000;
/// Calls by which two runs of the polling thread may differ: while the card comes up, a wait for it may or may not sleep.
const RACES: u64 = 32;
/// Of the messages added, this part may be calls of the driver that come by the clock.
const SHARE: f64 = 0.01;
const PATIENCE: Duration = Duration::from_secs(600);

/// The thread that polls, by its name: the program's first.
const POLLING: &str = "rc_pingpong";
/// The software card's.
const CARD: &str = "mlx5-sim";

/// How often each thread made each call.
type Calls = BTreeMap<(String, String), u64>;

#[test]
fn a_million_exchanges_make_no_more_system_calls_than_a_tenth_of_them() -> TestResult {
    let build = Build::release(&[], &["rc_pingpong"])?;
    let program = build.program("rc_pingpong")?;
    let folder = tempfile::tempdir()?;
    let few = trace(program, FEW, &folder.path().join("few"))?;
    let many = trace(program, MANY, &folder.path().join("many"))?;

    let added = 2 * (MANY - FEW);
    let table = table(&few, &many);
    println!("{added} more messages:\n{table}");
    let sum = |calls: &Calls, whose: &dyn Fn(&str) -> bool| -> u64 {
        calls.iter().filter(|((thread, _), _)| whose(thread)).map(|(_, count)| count).sum()
    };
    let (before, after) = (sum(&few, &|thread| thread == POLLING), sum(&many, &|thread| thread == POLLING));
    assert!(before > 0, "strace saw nothing of the polling thread:\n{table}");
    assert!(
        before.abs_diff(after) <= RACES,
        "the polling thread made {before} calls, then {after} with {added} more messages:\n{table}"
    );
    let grown = sum(&many, &|thread| thread != CARD).saturating_sub(sum(&few, &|thread| thread != CARD));
    assert!(
        (grown as f64) < added as f64 * SHARE,
        "the driver made {grown} more calls with {added} more messages:\n{table}"
    );
    Ok(())
}

/// Runs the ping-pong under strace and counts.
fn trace(program: &Path, exchanges: u64, log: &Path) -> Result<Calls, Box<dyn std::error::Error>> {
    let mut child = Command::new("strace")
        .args(["--follow-forks", "--decode-pids=comm", "--output"])
        .arg(log)
        .arg(program)
        // Short messages, since what is counted does not depend on their length.
        .args(["--size", "64", "--iters", &exchanges.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "strace is not installed: sudo apt-get install strace".into(),
            _ => format!("strace does not start: {error}"),
        })?;
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill()?;
                child.wait()?;
                return Err(format!("{exchanges} exchanges took more than {} s", PATIENCE.as_secs()).into());
            }
            None => sleep(Duration::from_millis(20)),
        }
    };
    if !status.success() {
        return Err(format!("rc_pingpong under strace: {status} (may this user trace its processes?)").into());
    }
    Ok(count(&std::fs::read_to_string(log)?))
}

/// Counts what strace wrote: lines of `12345<thread> call(...) = 0`. A call that another thread interrupted has a second
/// line, which begins with `<...`.
fn count(log: &str) -> Calls {
    let mut calls = Calls::new();
    for line in log.lines() {
        let Some((thread, rest)) = line.split_once('<').and_then(|(_, rest)| rest.split_once('>')) else { continue };
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        if call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            *calls.entry((thread.to_owned(), call.to_owned())).or_default() += 1;
        }
    }
    calls
}

/// Both runs side by side, what grew most first.
fn table(few: &Calls, many: &Calls) -> String {
    let mut rows: Vec<_> = few.keys().chain(many.keys()).collect();
    rows.sort();
    rows.dedup();
    let of = |calls: &Calls, key: &(String, String)| calls.get(key).copied().unwrap_or(0);
    rows.sort_by_key(|key| std::cmp::Reverse(of(many, key) as i64 - of(few, key) as i64));
    rows.into_iter()
        .map(|key| format!("{:>12} {:<18} {:>8} {:>8}\n", key.0, key.1, of(few, key), of(many, key)))
        .collect()
}

#[test]
fn a_trace_is_counted_by_thread_and_call() {
    let log = "7<rc_pingpong> brk(NULL) = 0x5\n8<mlx5-sim> futex(0x1, FUTEX_WAIT, 1, NULL <unfinished ...>\n\
               7<rc_pingpong> brk(0x6) = 0x6\n8<mlx5-sim> <... futex resumed>) = 0\n7<rc_pingpong> +++ exited with 0 +++\n";
    let of = |thread: &str, call: &str| (thread.to_owned(), call.to_owned());
    assert_eq!(count(log), Calls::from([(of("rc_pingpong", "brk"), 2), (of("mlx5-sim", "futex"), 1)]));
}
