//! Instructions: this program runs itself under valgrind's callgrind and reads what that has counted.
//!
//! Counting is switched on around each run by callgrind's client requests, so that nothing else is in the number, and what
//! the switching itself adds is measured by a run of nothing and taken off.

use std::fs;
use std::process::{Command, Stdio};

use super::rows::{Lane, Row};
use super::stage::Failure;

/// Tells this program, as its own child, to count.
pub const ARGUMENT: &str = "--count";

/// Instructions an operation, of the driver and by hand.
pub type Counts = Vec<(f64, f64)>;

/// callgrind's client requests: `VG_USERREQ_TOOL_BASE('C', 'T')` and the next.
const ZERO_STATS: u64 = 0x4354_0001;
const TOGGLE_COLLECT: u64 = 0x4354_0002;
const DUMP_STATS_AT: u64 = 0x4354_0003;

/// Asks valgrind; does nothing where there is none.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn request(number: u64, argument: u64) {
    let arguments = [number, argument, 0, 0, 0, 0];
    // SAFETY: valgrind's own sequence: the four rotations make 128 bits, after which `rdi` is as before, and exchanging a
    // register with itself does nothing. valgrind knows it, reads the six words at `rax` and answers in `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx",
            in("rax") arguments.as_ptr(), inout("rdx") 0u64 => _, options(nostack)
        );
    }
}
#[cfg(not(target_arch = "x86_64"))]
fn request(_: u64, _: u64) {}

fn count(lane: &mut Lane, name: &str) {
    let name = format!("{name}\0");
    // Once to warm up, once counted.
    (lane.ready)();
    (lane.run)();
    (lane.ready)();
    request(ZERO_STATS, 0);
    request(TOGGLE_COLLECT, 0);
    (lane.run)();
    request(TOGGLE_COLLECT, 0);
    request(DUMP_STATS_AT, name.as_ptr() as u64);
}

/// The child's part: runs every lane once for each count.
pub fn child(rows: &mut [Row]) {
    count(&mut Lane { ready: Box::new(|| {}), run: Box::new(|| 0) }, "nothing");
    for (i, row) in rows.iter_mut().enumerate() {
        count(&mut row.driver, &format!("driver {i}"));
        count(&mut row.bare[0], &format!("bare {i}"));
        // In step with the others.
        for _ in 0..2 {
            (row.bare[1].ready)();
            (row.bare[1].run)();
        }
    }
}

/// Counts the instructions of `operations`, the operations of one run of each row.
///
/// # Errors
/// There is no valgrind, or it did not count.
pub fn measure(operations: &[usize]) -> Result<Counts, Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Err("valgrind is asked in x86-64's way only".into());
    }
    let folder = tempfile::tempdir()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--callgrind-out-file={}", folder.path().join("out").display()))
        .arg(std::env::current_exe()?)
        .arg(ARGUMENT)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind does not start ({error}); `apt-get install valgrind`"))?;
    if !output.status.success() {
        return Err(format!("under valgrind: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut dumps = Vec::new();
    for entry in fs::read_dir(folder.path())? {
        dumps.extend(parse(&fs::read_to_string(entry?.path())?));
    }
    let of = |name: String| {
        let dump = dumps.iter().find(|(dump, _)| *dump == name);
        dump.map(|(_, count)| *count).ok_or(format!("callgrind has not counted {name:?}"))
    };
    let nothing = of("nothing".into())?;
    let each = |name: &str, i: usize| Ok::<_, Failure>((of(format!("{name} {i}"))? - nothing) / operations[i] as f64);
    (0..operations.len()).map(|i| Ok((each("driver", i)?, each("bare", i)?))).collect()
}

/// Name and count of a dump that [`count`] has asked for.
fn parse(dump: &str) -> Option<(String, f64)> {
    let name = dump.lines().find_map(|line| line.strip_prefix("desc: Trigger: Client Request: "))?;
    let total = dump.lines().find_map(|line| line.strip_prefix("totals: "))?;
    Some((name.trim().to_owned(), total.trim().parse().ok()?))
}
