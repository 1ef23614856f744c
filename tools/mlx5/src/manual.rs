//! `mlx5 completions` and `mlx5 man`: what shells and `man` show, made of the command line itself.

use std::path::PathBuf;

use clap_complete::Shell;

use crate::output::{Failure, print};

/// For which shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    mlx5 completions bash > /etc/bash_completion.d/mlx5\n  \
    mlx5 completions zsh > ~/.zfunc/_mlx5\n  \
    mlx5 completions fish > ~/.config/fish/completions/mlx5.fish")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Where to.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    mlx5 man /usr/local/share/man/man1       then `man mlx5`, `man mlx5-counters`\n  \
    mlx5 man . && man ./mlx5-perf.1")]
pub struct Man {
    /// The folder, which must exist.
    dir: PathBuf,
}

/// Prints the completions of a shell.
pub fn completions(arguments: &Completions, mut command: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "mlx5", &mut script);
    print(&String::from_utf8(script)?)
}

/// Writes a page for the program and one for each of its commands.
pub fn man(arguments: &Man, command: clap::Command) -> Result<(), Failure> {
    clap_mangen::generate_to(command, &arguments.dir)
        .map_err(|error| format!("{}: {error}", arguments.dir.display()).into())
}
