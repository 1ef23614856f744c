//! Host cost of posting and polling, compared with the unavoidable stores and loads.
//!
//! `cargo bench -p mlx5-benches` measures. Without `--bench` (as in `cargo test --all-targets`) a short run checks that
//! it works. README.md explains the figures.

mod bare;
mod driver;
mod instructions;
mod measure;
mod request;
mod rows;
mod stage;

use mlx5_benches::{Failure, hold_still};
use rows::Row;
use stage::Stage;

/// Budget of a post: driver relative to bare.
const BUDGET: f64 = 1.3;
const ROUNDS: usize = 20_000;
const SHORT: usize = 20;

fn main() {
    mlx5_benches::end("hot_path", run())
}

fn run() -> Result<(), Failure> {
    let stage = Stage::new()?;
    let mut rows = rows::all(&stage)?;
    rows.extend(rows::frames::all(&stage)?);
    rows.extend(rows::forward::all(&stage)?);
    let _held = std::mem::ManuallyDrop::new(hold_still(&stage.handle)?);
    let result = measure_all(&mut rows);
    // Queues and card are not torn down, as firmware no longer answers.
    std::mem::forget((rows, stage));
    result
}

fn measure_all(rows: &mut [Row]) -> Result<(), Failure> {
    if std::env::args().any(|argument| argument == instructions::ARGUMENT) {
        instructions::child(rows);
        return Ok(());
    }
    let full = std::env::args().any(|argument| argument == "--bench");
    let operations: Vec<usize> = rows.iter().map(|row| row.operations).collect();
    let counts = if full { instructions::measure(&operations) } else { Err("a short run".into()) };
    println!("an operation on the host, the card held still{}", if full { "" } else { " (a short run: no figures)" });
    println!();
    println!("| operation | driver ns | by hand ns | ratio | by hand twice | driver instr. | by hand instr. |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut noise = 1.0f64;
    for (i, row) in rows.iter_mut().enumerate() {
        let time = measure::time(row, if full { ROUNDS } else { SHORT })?;
        noise = noise.max(time.noise).max(1.0 / time.noise);
        let (driver, bare) = match &counts {
            Ok(counts) => (format!("{:.1}", counts[i].0), format!("{:.1}", counts[i].1)),
            Err(_) => ("-".into(), "-".into()),
        };
        println!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {driver} | {bare} |",
            row.name, time.driver, time.bare, time.ratio, time.noise
        );
    }
    println!();
    println!("time: medians of {ROUNDS} interleaved rounds; budget of a post: ratio {BUDGET}");
    println!("noise: two copies of one loop by hand differ by up to {:.0} % here", (noise - 1.0) * 100.0);
    if let Err(why) = counts {
        println!("instructions: not measured: {why}");
    }
    Ok(())
}
