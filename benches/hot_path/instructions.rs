//! Instruction counts by callgrind.

use mlx5_benches::{Failure, callgrind};

use super::rows::{Loop, Row};

/// Argument for the child process that counts.
pub const ARGUMENT: &str = "--count";

/// Instructions per operation, of the driver and by hand.
pub type Counts = Vec<(f64, f64)>;

fn count(measured: &mut Loop, name: &str) {
    // Once to warm up, once counted.
    (measured.ready)();
    (measured.run)();
    (measured.ready)();
    callgrind::count(name, || (measured.run)());
}

/// Runs in the child process: every loop, once for each count.
pub fn child(rows: &mut [Row]) {
    callgrind::count_nothing();
    for (i, row) in rows.iter_mut().enumerate() {
        count(&mut row.driver, &format!("driver {i}"));
        count(&mut row.bare[0], &format!("bare {i}"));
        // Keeps it in step with the others.
        for _ in 0..2 {
            (row.bare[1].ready)();
            (row.bare[1].run)();
        }
    }
}

/// Counts the instructions of `operations`, the operations of one run of each row.
///
/// # Errors
/// There is no valgrind, or it failed.
pub fn measure(operations: &[usize]) -> Result<Counts, Failure> {
    let counts = callgrind::run(&[ARGUMENT])?;
    let each = |name: &str, i: usize| {
        let count = counts.get(&format!("{name} {i}")).ok_or(format!("callgrind has not counted {name} {i}"))?;
        Ok::<_, Failure>(count / operations[i] as f64)
    };
    (0..operations.len()).map(|i| Ok((each("driver", i)?, each("bare", i)?))).collect()
}
