//! What benches that boot a guest share.

use std::path::Path;
use std::time::Duration;

use mlx5_lab::{Guest, Model, verbs_program};
use tempfile::TempDir;

use crate::Failure;

/// For the kernel's driver to come up in a guest that counts instructions, which is slow.
pub const PROBE: Duration = Duration::from_secs(600);
/// For one run of one program there.
pub const RUN: Duration = Duration::from_secs(900);

/// Bash: loads the kernel's driver, until its first device is there.
pub const LOAD: &str = "
set -e
modprobe mlx5_ib
modprobe ib_uverbs
for wait in $(seq 200); do [ -e /dev/infiniband/uverbs0 ] && break; sleep 0.1; done
[ -e /dev/infiniband/uverbs0 ]
";

/// Where the guest sees what [`c_program`] makes.
pub const C_PROGRAMS: &str = "/opt/bench";

/// Whether the bench `name` is not to run now; it says how it would.
pub fn is_left_out(name: &str) -> bool {
    let full = std::env::args().any(|argument| argument == "--bench");
    let left_out = !full || std::env::var_os("MLX5_LAB").is_some_and(|value| value == "skip");
    if left_out {
        println!("{name}: boots a guest, for many minutes: cargo bench -p mlx5-benches --bench {name}");
    }
    left_out
}

/// A folder with the program `verbs`, of the verbs.c of the bench `name`.
pub fn c_program(name: &str) -> Result<TempDir, Failure> {
    let made = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(name).join("verbs.c");
    verbs_program(&source, &made.path().join("verbs"))?;
    Ok(made)
}

/// Ends the guest. The software card must have nothing to complain of.
pub fn end(guest: Guest, model: &Model) -> Result<(), Failure> {
    guest.power_off()?;
    match &model.violations()[..] {
        [] => Ok(()),
        some => Err(format!("the software card complains:\n{}", some.join("\n")).into()),
    }
}
