//! Cost as a function of the number of queue pairs, threads, and bytes registered.
//!
//! `cargo bench -p mlx5-benches --bench growth` measures. Without `--bench` (as in `cargo test --all-targets`) a short
//! run checks that it works. Further arguments select sections by name. README.md explains the figures.

mod bring_up;
mod completions;
mod extent;
mod hub;
mod messages;
mod owning;
mod queue_pairs;
mod registration;
mod rules;
mod stage;
mod timing;

use extent::Extent;
use mlx5_benches::Failure;

/// A section with its own table.
type Section = fn(Extent) -> Result<(), Failure>;

const SECTIONS: [(&str, Section); 7] = [
    ("bring_up", bring_up::measure),
    ("queue_pairs", queue_pairs::measure),
    ("messages", messages::measure),
    ("hub", hub::measure),
    ("owning", owning::measure),
    ("registration", registration::measure),
    ("rules", rules::measure),
];

fn main() {
    mlx5_benches::end("growth", run())
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == messages::COUNT) {
        return messages::child();
    }
    if arguments.iter().any(|argument| argument == hub::COUNT) {
        return hub::child();
    }
    if arguments.iter().any(|argument| argument == owning::COUNT) {
        return owning::child();
    }
    let is_chosen = |name: &str| arguments.iter().any(|argument| argument == name);
    let extent = if arguments.iter().any(|argument| argument == "--bench") { Extent::Full } else { Extent::Short };
    let any = SECTIONS.iter().any(|(name, _)| is_chosen(name));
    if extent == Extent::Short {
        println!("a short run: no figures");
    }
    for (name, section) in SECTIONS {
        if !any || is_chosen(name) {
            println!("\n{name}\n");
            section(extent)?;
        }
    }
    Ok(())
}
