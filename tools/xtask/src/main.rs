//! The test tiers: `cargo xtask unit`, `cargo xtask lab NAME`, `cargo xtask all`. docs/testing.md explains them.

#![forbid(unsafe_code)]

mod lab;
mod logs;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
The test tiers (docs/testing.md):

    cargo xtask unit                 what stands beside the code, in half a minute on two idle cores once it is built
    cargo xtask card                 what needs the software card, but no guest: the tests/ of every crate, in two minutes
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
        ["card", ref rest @ ..] => run::cargo_test(&["--workspace", "--exclude", "mlx5-lab", "--test", "*"], rest),
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

/// The tests of libraries and programs, and beside them the documentation's examples, which are compiled.
fn unit(rest: &[&str]) -> Result<bool, String> {
    std::thread::scope(|scope| {
        let documentation =
            scope.spawn(|| run::cargo_test_collected(&["--workspace", "--exclude", "mlx5-lab", "--doc"], rest));
        let passed = run::cargo_test(&["--workspace", "--lib", "--bins", "--examples"], rest)?;
        let (said, these) = documentation.join().map_err(|_| "the documentation's examples were not run")??;
        print!("{said}");
        Ok(passed & these)
    })
}

/// The root of the workspace this crate was built in.
fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}
