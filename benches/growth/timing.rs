//! Reading the clock around work.

use std::time::Instant;

use mlx5_benches::median;

/// Nanoseconds between two reads of the clock.
pub fn clock() -> f64 {
    let mut samples: Vec<f64> = (0..10_000).map(|_| nanoseconds(|| ()).0).collect();
    median(&mut samples)
}

/// Nanoseconds that `work` took, and its result.
pub fn nanoseconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = work();
    (started.elapsed().as_nanos() as f64, result)
}
