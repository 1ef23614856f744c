//! Speed of the software card: its instructions per message, messages per second, bytes per second, ping-pong.
//!
//! `cargo bench -p mlx5-benches --bench software_card` measures. Without `--bench` (as in `cargo test --all-targets`) a
//! short run checks that it works. README.md explains the figures.

mod instructions;
mod pair;
mod speed;

use mlx5_benches::Failure;

fn main() -> Result<(), Failure> {
    let is_given = |word: &str| std::env::args().any(|argument| argument == word);
    if is_given(instructions::ARGUMENT) {
        return instructions::child();
    }
    let full = is_given("--bench");
    if !full {
        println!("a short run: no figures");
    }
    instructions::measure(full)?;
    speed::measure(full)
}
