//! What the measurements share.

use std::io::Write;

pub mod callgrind;
mod card;
pub mod guest;

pub use card::{Held, completion, connect, hold_still};

/// What may go wrong.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Ends the bench `name` as it went. At once: where the card's thread was held still, before doorbells that it must
/// never see, this process ends with it.
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

/// The middle one of the samples; 0 of none.
pub fn median(samples: &mut [f64]) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}
