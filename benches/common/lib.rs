//! Code shared by the benchmarks.

use std::io::Write;

pub mod callgrind;
mod card;
pub mod guest;
#[cfg(target_arch = "x86_64")]
pub mod ticks;

pub use card::{Held, completion, connect, hold_still};

/// Errors of a benchmark.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Ends the benchmark `name` with its result, without running destructors: a card whose thread was stopped must never
/// see the doorbells, and ends with this process.
pub fn end(name: &str, result: Result<(), Failure>) -> ! {
    let code = match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{name}: {error}");
            1
        }
    };
    let _ = std::io::stdout().flush();
    std::process::exit(code)
}

/// The median of the samples; 0 if there are none.
pub fn median(samples: &mut [f64]) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}
