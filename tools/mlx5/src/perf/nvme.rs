//! `mlx5 perf nvme`: NVMe over RDMA, measured by the program of its pattern (`examples/patterns/nvme`). That stands on
//! the driver as this program does, so it is run, not linked, as `cargo` and `git` run theirs.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::output::{Failure, usage};

/// The program.
const PROGRAM: &str = "nvme_rdma";

/// The arguments of `nvme_rdma perf`.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  \
    mlx5 perf nvme --help                    what follows `nvme`: the arguments of `nvme_rdma perf`\n  \
    mlx5 perf nvme lat read                  host and target here, on a software card\n  \
    mlx5 perf nvme bw write -d vfio:0000:3b:00.0 --ip 10.0.0.4/24 10.0.0.1 -q 4 --depth 32    overwrites blocks"
)]
pub struct Arguments {
    /// What to measure, and how: lat or bw, read or write, -s, -n, -q, --depth, the target; `--help` shows all.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `nvme_rdma perf`.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    if json {
        return Err(usage("perf nvme prints tables, and no JSON"));
    }
    let Some(program) = find() else {
        return Err(format!(
            "`mlx5 perf nvme` runs `{PROGRAM} perf`, which is neither beside this program nor in PATH: build it by \
             `cargo build --release -p mlx5-nvme`, or run `cargo run --release -p mlx5-nvme -- perf`"
        )
        .into());
    };
    let error = Command::new(&program).arg("perf").args(&arguments.arguments).exec();
    Err(format!("cannot run {}: {error}", program.display()).into())
}

/// The program beside this one, or in PATH.
fn find() -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| own.parent().map(PathBuf::from));
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(env::split_paths(&path));
    folders.map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
}
