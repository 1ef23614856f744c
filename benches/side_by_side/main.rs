//! Cost of posting and polling with mlx5-dv and with libmlx5: the same work on the same card in the same guest.
//!
//! `cargo bench -p mlx5-benches --bench side_by_side` boots Debian's Linux with the software card, under QEMU's
//! `-icount`, where the time stamp counter counts instructions, and runs ours.rs over DevX and verbs.c on libmlx5 in
//! turn. README.md explains the figures.

mod table;

use mlx5_benches::Failure;
use mlx5_benches::guest::{self, C_PROGRAMS, LOAD, NETWORK, PROBE, RUN};
use mlx5_lab::{Build, Guest, Model};
use table::{Doorbell, Figures};

/// Number of repetitions.
const RUNS: usize = 5;

/// The programs by doorbell: libmlx5 without locks, and ours.
const PROGRAMS: [(Doorbell, &str); 4] = [
    (Doorbell::Plain, "MLX5_SINGLE_THREADED=1 MLX5_SHUT_UP_BF=1 /opt/bench/verbs mlx5_0"),
    (Doorbell::Plain, "side_by_side_ours devx:mlx5_0 plain"),
    (Doorbell::BlueFlame, "MLX5_SINGLE_THREADED=1 /opt/bench/verbs mlx5_0"),
    (Doorbell::BlueFlame, "side_by_side_ours devx:mlx5_0 blueflame"),
];

fn main() -> Result<(), Failure> {
    if guest::is_left_out("side_by_side") {
        return Ok(());
    }
    let runs = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(RUNS);
    let made = guest::c_program("side_by_side", "verbs")?;
    let build = Build::release(&["mlx5"], &["side_by_side_ours"])?;
    // Linux allows copies by BlueFlame only where it finds that writes are combined.
    let model = Model::start(&build, 1, &["--write-combining"])?;
    let [socket] = model.sockets() else { return Err("one socket".into()) };
    let guest = Guest::builder("side_by_side").nic(socket).key_cache().programs(&build).share(made.path(), C_PROGRAMS);
    let guest = guest.count_instructions().boot_patience(PROBE).boot()?;
    guest.check(LOAD, PROBE)?;
    guest.check(NETWORK, PROBE)?;

    let mut figures = Figures::default();
    for run in 1..=runs {
        eprintln!("run {run} of {runs}");
        for (doorbell, program) in PROGRAMS {
            figures.read(doorbell, &guest.check(program, RUN)?)?;
        }
    }
    println!("{}", figures.table());
    figures.check_copies()?;
    guest::end(guest, &model)
}
