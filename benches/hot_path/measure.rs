//! Time measurement.

use std::time::Instant;

use mlx5_benches::Failure;

use super::rows::{Loop, Row};

/// Nanoseconds per operation: medians over all rounds.
pub struct Time {
    pub driver: f64,
    pub bare: f64,
    /// Driver relative to bare.
    pub ratio: f64,
    /// Bare relative to bare: the machine's noise.
    pub noise: f64,
}

fn run_once(measured: &mut Loop) -> (u64, u64) {
    (measured.ready)();
    let start = Instant::now();
    let result = (measured.run)();
    (start.elapsed().as_nanos() as u64, result)
}

fn median(samples: &mut [u64]) -> f64 {
    samples.sort_unstable();
    samples.get(samples.len() / 2).map_or(0.0, |&sample| sample as f64)
}

/// Cost of reading the clock twice, subtracted from each measurement.
fn clock(rounds: usize) -> f64 {
    let mut nothing = Loop { ready: Box::new(|| {}), run: Box::new(|| 0) };
    let mut samples: Vec<u64> = (0..rounds).map(|_| run_once(&mut nothing).0).collect();
    median(&mut samples)
}

/// Runs the three loops in turn; each round starts with another one.
///
/// # Errors
/// The loops do different things.
pub fn time(row: &mut Row, rounds: usize) -> Result<Time, Failure> {
    const WARM_UP: usize = 32;
    let clock = clock(rounds);
    let mut samples: [Vec<u64>; 3] = Default::default();
    let [first, second] = &mut row.bare;
    let loops = [&mut row.driver, first, second];
    for round in 0..WARM_UP + rounds {
        let mut results = [0; 3];
        for turn in 0..3 {
            let at = (round + turn) % 3;
            let (nanoseconds, result) = run_once(loops[at]);
            results[at] = result;
            if round >= WARM_UP {
                samples[at].push(nanoseconds);
            }
        }
        if results != [results[0]; 3] || (round == 0 && !(row.same)()) {
            return Err(format!("{}: the driver and the loop by hand do different things", row.name).into());
        }
    }
    let [driver, bare, again] = samples.each_mut().map(|samples| (median(samples) - clock) / row.operations as f64);
    Ok(Time { driver, bare, ratio: driver / bare, noise: again / bare })
}
