//! Instruction counts: runs this program in a child process under valgrind's callgrind, and reads its counts.
//!
//! Callgrind's client requests switch counting on for each measurement only. The cost of switching is measured by an
//! empty run and subtracted.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use crate::Failure;

/// Instructions by the name given to [`count`].
pub type Counts = BTreeMap<String, f64>;

/// callgrind's client requests: `VG_USERREQ_TOOL_BASE('C', 'T')` and the next.
const ZERO_STATS: u64 = 0x4354_0001;
const TOGGLE_COLLECT: u64 = 0x4354_0002;
const DUMP_STATS_AT: u64 = 0x4354_0003;

/// Name of the empty run.
const NOTHING: &str = "nothing";

/// A client request; does nothing without valgrind.
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

/// In the child: counts the instructions of `work`, under `name`.
pub fn count<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let name = format!("{name}\0");
    request(ZERO_STATS, 0);
    request(TOGGLE_COLLECT, 0);
    let result = work();
    request(TOGGLE_COLLECT, 0);
    request(DUMP_STATS_AT, name.as_ptr() as u64);
    result
}

/// In the child, once: counts an empty run.
pub fn count_nothing() {
    count(NOTHING, || ());
}

/// Runs this program in a child process with `arguments`, and collects its counts.
///
/// # Errors
/// There is no valgrind, or the child failed.
pub fn run(arguments: &[&str]) -> Result<Counts, Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Err("valgrind is asked in x86-64's way only".into());
    }
    let folder = tempfile::tempdir()?;
    let output = Command::new("valgrind")
        // valgrind runs one thread at a time. Without fair scheduling, a polling thread would starve the card's.
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

/// The program's own output without valgrind's messages, unless there is none.
fn own_words(stderr: &[u8]) -> String {
    let said = String::from_utf8_lossy(stderr);
    let own: Vec<&str> = said.lines().filter(|line| !line.starts_with("==")).collect();
    if own.is_empty() { said.into_owned() } else { own.join("\n") }
}

/// Name and count of a dump requested by [`count`].
fn parse(dump: &str) -> Option<(String, f64)> {
    let name = dump.lines().find_map(|line| line.strip_prefix("desc: Trigger: Client Request: "))?;
    let total = dump.lines().find_map(|line| line.strip_prefix("totals: "))?;
    Some((name.trim().to_owned(), total.trim().parse().ok()?))
}
