//! Code shared by benchmarks that boot a guest.

use std::path::Path;
use std::time::Duration;

use mlx5_lab::{Guest, Model, verbs_program};
use tempfile::TempDir;

use crate::Failure;

/// Timeout of loading the kernel's driver in a guest that counts instructions, which is slow.
pub const PROBE: Duration = Duration::from_secs(600);
/// Timeout of one run of a program there.
pub const RUN: Duration = Duration::from_secs(900);

/// Bash: loads the kernel's driver, and waits for its first device.
pub const LOAD: &str = "
set -e
modprobe mlx5_ib
modprobe ib_uverbs
for wait in $(seq 200); do [ -e /dev/infiniband/uverbs0 ] && break; sleep 0.1; done
[ -e /dev/infiniband/uverbs0 ]
";

/// Bash: brings its network device up, at 10.0.0.1.
pub const NETWORK: &str = "
set -e
netdev=$(ls /sys/class/infiniband/mlx5_0/device/net)
ip link set lo up
ip addr add 10.0.0.1/24 dev $netdev
ip link set $netdev up
for wait in $(seq 200); do grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state && break; sleep 0.1; done
grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state
for wait in $(seq 200); do grep -qi ffff:0a00 /sys/class/infiniband/mlx5_0/ports/1/gids/* && break; sleep 0.1; done
";

/// Path in the guest of the output of [`c_program`].
pub const C_PROGRAMS: &str = "/opt/bench";

/// Whether the bench `name` must not run now; prints how to run it.
pub fn is_left_out(name: &str) -> bool {
    let full = std::env::args().any(|argument| argument == "--bench");
    let left_out = !full || std::env::var_os("MLX5_LAB").is_some_and(|value| value == "skip");
    if left_out {
        println!("{name}: boots a guest, for many minutes: cargo bench -p mlx5-benches --bench {name}");
    }
    left_out
}

/// A folder with the program `name`, compiled from the file of that name of a bench.
pub fn c_program(bench: &str, name: &str) -> Result<TempDir, Failure> {
    let made = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(bench).join(name).with_extension("c");
    verbs_program(&source, &made.path().join(name))?;
    Ok(made)
}

/// Shuts the guest down. The software card must have no violations.
pub fn end(guest: Guest, model: &Model) -> Result<(), Failure> {
    guest.power_off()?;
    match &model.violations()[..] {
        [] => Ok(()),
        some => Err(format!("the software card complains:\n{}", some.join("\n")).into()),
    }
}
