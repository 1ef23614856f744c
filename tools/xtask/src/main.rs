//! The test tiers: `cargo xtask unit`, `cargo xtask lab NAME`, `cargo xtask all`. docs/testing.md explains them.

#![forbid(unsafe_code)]

mod lab;
mod logs;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
The test tiers (docs/testing.md):

    cargo xtask unit                 everything without a guest, in two or three minutes on two idle cores once it is built
    cargo xtask lab                  lists the lab's tests
    cargo xtask lab NAME [FILTER]    one test program of the lab; says where its logs are, and shows their ends if it fails
    cargo xtask all                  everything, as `cargo test --workspace`

Further arguments after `--` go to the tests. MLX5_LAB_LONG=1 asks the lab for its long forms.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["unit", ref rest @ ..] => unit(rest),
        ["lab"] => lab::list(&workspace()),
        ["lab", name, ref rest @ ..] => lab::run(&workspace(), name, rest),
        ["all", ref rest @ ..] => run::cargo_test(&["--workspace"], rest),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(true)
        }
        _ => Err(HELP.to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{}", error.trim_end());
            ExitCode::from(2)
        }
    }
}

/// All tests that need nothing but Rust. Most of them wait, so libraries' and programs' own tests run beside those of
/// `tests/`, and beside both the documentation's examples are compiled.
fn unit(rest: &[&str]) -> Result<bool, String> {
    const BESIDE: [&[&str]; 2] =
        [&["--workspace", "--lib", "--bins", "--examples"], &["--workspace", "--exclude", "mlx5-lab", "--doc"]];
    std::thread::scope(|scope| {
        let beside = BESIDE.map(|arguments| scope.spawn(|| run::cargo_test_collected(arguments, rest)));
        let mut passed = run::cargo_test(&["--workspace", "--exclude", "mlx5-lab", "--test", "*"], rest)?;
        for cargo in beside {
            let (said, these) = cargo.join().map_err(|_| "some tests were not run")??;
            print!("{said}");
            passed &= these;
        }
        Ok(passed)
    })
}

/// The root of the workspace this crate was built in.
fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}
