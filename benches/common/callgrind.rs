//! Instructions: this program runs itself under valgrind's callgrind and reads what that has counted.
//!
//! Counting is switched on around each piece of work by callgrind's client requests, so that nothing else is in the
//! number, and what the switching itself adds is measured by a run of nothing and taken off.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use crate::Failure;

/// Instructions by the name that [`count`] was given.
pub type Counts = BTreeMap<String, f64>;

/// callgrind's client requests: `VG_USERREQ_TOOL_BASE('C', 'T')` and the next.
const ZERO_STATS: u64 = 0x4354_0001;
const TOGGLE_COLLECT: u64 = 0x4354_0002;
const DUMP_STATS_AT: u64 = 0x4354_0003;

/// What a run of nothing is counted as.
const NOTHING: &str = "nothing";

/// Asks valgrind; does nothing where there is none.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn request(number: u64, argument: u64) {
    let arguments = [number, argument, 0, 0, 0, 0];
    // SAFETY: valgrind's own sequence: the four rotations make 128 bits, after which `rdi` is as before, and exchanging
    // a register with itself does nothing. valgrind knows it, reads the six words at `rax` and answers in `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") arguments.as_ptr(), inout("rdx") 0u64 => _, options(nostack)
        );
    }
}
#[cfg(not(target_arch = "x86_64"))]
fn request(_: u64, _: u64) {}

/// The child's part: counts what `work` does, under `name`.
pub fn count<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let name = format!("{name}\0");
    request(ZERO_STATS, 0);
    request(TOGGLE_COLLECT, 0);
    let result = work();
    request(TOGGLE_COLLECT, 0);
    request(DUMP_STATS_AT, name.as_ptr() as u64);
    result
}

/// The child's part, once: what counting itself costs.
pub fn count_nothing() {
    count(NOTHING, || ());
}

/// Runs this program as its own child, with `arguments`, and gathers what it counted.
///
/// # Errors
/// There is no valgrind, or the child failed.
pub fn run(arguments: &[&str]) -> Result<Counts, Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Err("valgrind is asked in x86-64's way only".into());
    }
    let folder = tempfile::tempdir()?;
    let output = Command::new("valgrind")
        // One thread runs at a time. Without turns in order a thread that polls keeps the card's from running for long.
        .args(["--tool=callgrind", "--collect-atstart=no", "--fair-sched=yes"])
        .arg(format!("--callgrind-out-file={}", folder.path().join("out").display()))
        .arg(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind does not start ({error}); `apt-get install valgrind`"))?;
    if !output.status.success() {
        return Err(format!("{} under valgrind:\n{}", output.status, own_words(&output.stderr)).into());
    }
    let mut counts = Counts::new();
    for entry in fs::read_dir(folder.path())? {
        counts.extend(parse(&fs::read_to_string(entry?.path())?));
    }
    let nothing = counts.remove(NOTHING).ok_or("callgrind has counted nothing")?;
    counts.values_mut().for_each(|count| *count -= nothing);
    Ok(counts)
}

/// What the program said, without what valgrind did, unless it said nothing.
fn own_words(stderr: &[u8]) -> String {
    let said = String::from_utf8_lossy(stderr);
    let own: Vec<&str> = said.lines().filter(|line| !line.starts_with("==")).collect();
    if own.is_empty() { said.into_owned() } else { own.join("\n") }
}

/// Name and count of a dump that [`count`] has asked for.
fn parse(dump: &str) -> Option<(String, f64)> {
    let name = dump.lines().find_map(|line| line.strip_prefix("desc: Trigger: Client Request: "))?;
    let total = dump.lines().find_map(|line| line.strip_prefix("totals: "))?;
    Some((name.trim().to_owned(), total.trim().parse().ok()?))
}
