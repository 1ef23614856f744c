//! How fast the software card is: instructions of its own per message, messages a second, bytes a second, ping-pong.
//!
//! `cargo bench -p mlx5-benches --bench software_card` measures; without `--bench` (as `cargo test --all-targets` runs
//! it) a short run checks that it works. README.md says what the figures mean.

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
