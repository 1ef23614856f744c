//! No system call per message: strace counts the same calls for some exchanges as for ten times as many, of the driver
//! and of the software card.
//!
//! The software card runs in its own process, so either the driver or the card is traced. The polling thread's calls
//! may differ by [`RACES`]. The driver's other threads wake up by time, and a longer run takes longer. So the totals
//! may grow by [`SHARE`] of the additional messages, and by [`BY_THE_CLOCK`] for each additional second: less than one
//! call in ten messages on any machine.
//!
//! The card's thread also yields or sleeps while idle; these calls are counted separately.

mod common;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Report, TestResult};
use mlx5_lab::{Build, Model, rounds};

/// How many calls two runs of the polling thread may differ by. During bring-up each of some hundred commands sleeps
/// until its answer arrives, or does not need to.
const RACES: u64 = 256;
/// Additional calls allowed for each additional message.
const SHARE: f64 = 0.001;
/// Calls that the driver's other threads may make in a second.
const BY_THE_CLOCK: f64 = 1000.0;
const PATIENCE: Duration = Duration::from_secs(600);

/// One test at a time: each keeps two processors busy, the card's and the driver's. If two polling threads share a
/// processor, a message takes a time slice instead of microseconds.
static ALONE: Mutex<()> = Mutex::new(());

/// The exchanges of two runs.
fn few_and_many() -> (u64, u64) {
    let many = rounds(200_000, 1_000_000) as u64;
    (many / 10, many)
}

/// Number of calls, by thread and call.
type Calls = BTreeMap<(String, String), u64>;

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn exchanges_make_no_more_system_calls_than_a_tenth_of_them() -> TestResult {
    // Short messages: the count does not depend on the length.
    let arguments = |exchanges: u64| format!("--size 64 --iters {exchanges}");
    assert_no_calls_a_message("rc_pingpong", arguments)
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn measuring_exchanges_makes_no_more_system_calls_than_measuring_a_tenth_of_them() -> TestResult {
    assert_no_calls_a_message("mlx5", |exchanges| format!("perf lat write -n {exchanges}"))
}

/// Runs `program` with the `arguments` for few exchanges, and for many. Its main thread polls, and is named after the
/// program.
fn assert_no_calls_a_message(program: &str, arguments: impl Fn(u64) -> String) -> TestResult {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let build = Build::dev(&["mlx5"], &["rc_pingpong"])?;
    let path = build.program(program)?;
    let model = Model::start(&build, 1, &[])?;
    let device = format!("vfio-user:{}", model.sockets()[0].display());
    let folder = tempfile::tempdir()?;
    let trace = |exchanges| {
        let arguments = format!("{} -d {device}", arguments(exchanges));
        trace(path, &arguments, &folder.path().join(exchanges.to_string()))
    };
    let (fewer, more) = few_and_many();
    let (few, many) = (trace(fewer)?, trace(more)?);

    let added = 2 * (more - fewer);
    let table = table(&few, &many);
    println!("{added} more messages:\n{table}");
    let (before, after) = (few.calls_of(program), many.calls_of(program));
    assert!(before > 0, "strace saw nothing of the polling thread:\n{table}");
    assert!(
        before.abs_diff(after) <= RACES,
        "the polling thread made {before} calls, then {after} with {added} more messages:\n{table}"
    );
    let grown = many.total.saturating_sub(few.total);
    let longer = many.lasted.saturating_sub(few.lasted).as_secs_f64();
    assert!(
        (grown as f64) < added as f64 * SHARE + longer * BY_THE_CLOCK,
        "the driver made {grown} more calls with {added} more messages in {longer:.1} s more:\n{table}"
    );
    Ok(())
}

/// The card's thread, by its name.
const ENGINE: &str = "mlx5-sim";

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn the_software_card_makes_no_more_system_calls_for_exchanges_than_for_a_tenth_of_them() -> TestResult {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let build = Build::dev(&["mlx5"], &["rc_pingpong"])?;
    let folder = tempfile::tempdir()?;
    let trace = |exchanges| trace_card(&build, &[], exchanges, &folder.path().join(exchanges.to_string()));
    let (fewer, more) = few_and_many();
    let (few, many) = (trace(fewer)?, trace(more)?);

    let added = 2 * (more - fewer);
    let table = table(&few, &many);
    println!("{added} more messages:\n{table}");
    let (before, after) = (few.engine(), many.engine());
    let longer = many.lasted.saturating_sub(few.lasted).as_secs_f64();
    assert!(before > 0, "strace saw nothing of the card's thread:\n{table}");
    assert!(
        after.saturating_sub(before) as f64 <= RACES as f64 + longer * BY_THE_CLOCK,
        "the card's thread made {before} calls, then {after} with {added} more messages in {longer:.1} s more:\n{table}"
    );
    let grown = (many.total - many.pauses).saturating_sub(few.total - few.pauses);
    assert!(
        (grown as f64) < added as f64 * SHARE + longer * BY_THE_CLOCK,
        "the card made {grown} more calls with {added} more messages in {longer:.1} s more:\n{table}"
    );
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn a_system_call_for_each_message_of_the_software_card_would_be_seen() -> TestResult {
    const EXCHANGES: u64 = 1000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let build = Build::dev(&["mlx5"], &["rc_pingpong"])?;
    let folder = tempfile::tempdir()?;
    // The card writes each packet to the capture when it passes.
    let capture = folder.path().join("pcap").display().to_string();
    let seen = trace_card(&build, &["--pcap", &capture], EXCHANGES, &folder.path().join("log"))?;
    assert!(seen.engine() >= 2 * EXCHANGES, "{}", table(&seen, &seen));
    Ok(())
}

/// Runs the ping-pong, and the software card with `arguments` under strace.
fn trace_card(build: &Build, arguments: &[&str], exchanges: u64, log: &Path) -> Result<Trace, Report> {
    // strace becomes the card's process, and ends with it.
    let mut strace = strace(log);
    strace.arg("--daemonize");
    let model = Model::start_traced(build, strace, arguments)?;
    let arguments = format!("--size 64 --iters {exchanges} -d vfio-user:{}", model.sockets()[0].display());
    let lasted = run(Command::new(build.program("rc_pingpong")?).args(arguments.split(' ')))?;
    drop(model);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let said = std::fs::read_to_string(log)?;
        match total(&said) {
            Some(total) => return Ok(Trace::of(&said, total, lasted)),
            None if Instant::now() > deadline => return Err("strace wrote no summary".into()),
            None => sleep(Duration::from_millis(20)),
        }
    }
}

/// What strace recorded of one run.
struct Trace {
    calls: Calls,
    /// The total of strace's own summary.
    total: u64,
    /// Calls of the card's thread while idle.
    pauses: u64,
    lasted: Duration,
}

impl Trace {
    /// strace's output.
    fn of(said: &str, total: u64, lasted: Duration) -> Self {
        Trace { calls: count(said), total, pauses: pauses(said), lasted }
    }

    /// Calls of `thread`.
    fn calls_of(&self, thread: &str) -> u64 {
        self.calls.iter().filter(|((other, _), _)| other == thread).map(|(_, count)| count).sum()
    }

    /// Calls of the card's thread while not idle.
    fn engine(&self) -> u64 {
        self.calls_of(ENGINE) - self.pauses
    }
}

/// strace that writes to `log` every call of what it runs, and a summary.
fn strace(log: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--summary", "--decode-pids=comm", "--output"]).arg(log);
    strace
}

/// Runs `program` under strace and counts.
fn trace(program: &Path, arguments: &str, log: &Path) -> Result<Trace, Report> {
    let lasted = run(strace(log).arg(program).args(arguments.split(' ')))?;
    let said = std::fs::read_to_string(log)?;
    let total = total(&said).ok_or("strace wrote no summary")?;
    Ok(Trace::of(&said, total, lasted))
}

/// Runs `command` to its end; returns the time it took.
fn run(command: &mut Command) -> Result<Duration, Report> {
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{command:?}: not there; for strace: sudo apt-get install strace"),
        _ => format!("{command:?} does not start: {error}"),
    })?;
    let deadline = started + PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill()?;
                child.wait()?;
                return Err(format!("{command:?}: not at its end after {} s", PATIENCE.as_secs()).into());
            }
            None => sleep(Duration::from_millis(20)),
        }
    };
    if !status.success() {
        return Err(format!("{command:?}: {status} (may this user trace its processes?)").into());
    }
    Ok(started.elapsed())
}

/// The calls in the last line of strace's summary: `100.00    0.013 5    2345    12 total`, errors only where there
/// were any.
fn total(log: &str) -> Option<u64> {
    let line = log.lines().rev().find_map(|line| line.trim_end().strip_suffix(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Counts what strace wrote: lines of `12345<thread> call(...) = 0`. A call that another thread interrupted has a
/// second line, which begins with `<...`.
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

/// Number of pauses of the card's idle thread: it yields, then sleeps.
fn pauses(log: &str) -> u64 {
    let is_pause = |line: &&str| {
        let call = line.split_once(&format!("<{ENGINE}> ")).map_or("", |(_, call)| call);
        call.starts_with("sched_yield(")
            || call.starts_with("futex(") && call.contains(", FUTEX_WAIT") && call.contains("{tv_sec=")
    };
    log.lines().filter(is_pause).count() as u64
}

/// Both runs side by side, largest growth first, and strace's own totals.
fn table(few: &Trace, many: &Trace) -> String {
    let mut rows: Vec<_> = few.calls.keys().chain(many.calls.keys()).collect();
    rows.sort();
    rows.dedup();
    let of = |trace: &Trace, key: &(String, String)| trace.calls.get(key).copied().unwrap_or(0);
    rows.sort_by_key(|key| std::cmp::Reverse(of(many, key) as i64 - of(few, key) as i64));
    let rows = rows.into_iter().map(|key| (key.0.as_str(), key.1.as_str(), of(few, key), of(many, key)));
    rows.chain([("all", "total", few.total, many.total)])
        .map(|(thread, call, few, many)| format!("{thread:>15} {call:<18} {few:>8} {many:>8}\n"))
        .collect()
}

#[test]
fn a_trace_is_counted_by_thread_and_call() {
    let log = "7<rc_pingpong> brk(NULL) = 0x5\n8<mlx5-keeper> futex(0x1, FUTEX_WAIT, 1, NULL <unfinished ...>\n\
               7<rc_pingpong> brk(0x6) = 0x6\n8<mlx5-keeper> <... futex resumed>) = 0\n7<rc_pingpong> +++ exited with 0 +++\n\
               % time     seconds  usecs/call     calls    errors syscall\n100.00    0.000013           4         3         1 total\n";
    let of = |thread: &str, call: &str| (thread.to_owned(), call.to_owned());
    assert_eq!(count(log), Calls::from([(of("rc_pingpong", "brk"), 2), (of("mlx5-keeper", "futex"), 1)]));
    assert_eq!(total(log), Some(3));
}

#[test]
fn pauses_are_told_from_other_calls() {
    let log = "7<mlx5-sim> sched_yield( <unfinished ...>\n7<mlx5-sim> <... sched_yield resumed>) = 0\n\
               7<mlx5-sim> futex(0x5, FUTEX_WAIT_BITSET_PRIVATE, 4294967295, {tv_sec=2, tv_nsec=9}, 0x1) = -1 ETIMEDOUT\n\
               7<mlx5-sim> futex(0x5, FUTEX_WAIT_BITSET_PRIVATE, 2, NULL, 0x1) = 0\n\
               7<mlx5-sim> futex(0x5, FUTEX_WAKE_PRIVATE, 1) = 1\n8<mlx5-sim vfio-u> sched_yield() = 0\n";
    let trace = Trace::of(log, 5, Duration::ZERO);
    assert_eq!((trace.pauses, trace.engine(), trace.calls_of("mlx5-sim vfio-u")), (2, 2, 1));
}
