//! Cost of an I/O with the host of mlx5-nvme and with the kernel's nvme-rdma: to the same target, on the same card, in
//! the same guest.
//!
//! `cargo bench -p mlx5-benches --bench nvme` boots Debian's Linux with the software card, under QEMU's `-icount`,
//! where time counts instructions, and runs kernel.c and ours.rs in turn. The target is mlx5-nvme's, in a process
//! outside of the guest on another function of the card, so none of its work is counted. README.md explains the
//! figures.

mod table;
mod target;

use mlx5_benches::Failure;
use mlx5_benches::guest::{self, C_PROGRAMS, LOAD, NETWORK, PROBE, RUN};
use mlx5_lab::{Build, Guest, Model};
use table::{Figures, Row};
use target::{ADDRESS, NQN, Target};

/// Number of repetitions.
const RUNS: usize = 3;
/// I/Os under way at once, and rounds of as many: by interrupts, and polled.
const DEPTHS: [(usize, usize, usize); 2] = [(1, 2000, 100), (32, 200, 100)];

/// What an I/O does, and the key by which the target gets at its data.
const ROWS: [(&str, &str); 3] = [("read", "standing"), ("read", "each"), ("write", "standing")];

/// The kernel's programs: the column of the table, the mode of kernel.c, and the device.
const THEIRS: [&str; 3] = ["interrupt /dev/nvme0n1", "poll /dev/nvme0n1", "passthrough /dev/ng0n1"];

/// Connects the kernel's host, with a queue for interrupts and one that is polled, to `TARGET`. `ALWAYS` is N for
/// standing keys. Block layer: nothing that need not be.
const CONNECT: &str = r#"
set -e
modprobe nvme-rdma register_always=$ALWAYS
how=nr_io_queues=1,nr_poll_queues=1,keep_alive_tmo=0
echo "transport=rdma,traddr=${TARGET%:*},trsvcid=${TARGET#*:},nqn=$NQN,$how" > /dev/nvme-fabrics
for wait in $(seq 300); do [ -b /dev/nvme0n1 ] && [ -c /dev/ng0n1 ] && break; sleep 0.1; done
cd /sys/block/nvme0n1/queue
echo none > scheduler
echo 0 > iostats
echo 2 > nomerges
echo 0 > add_random
"#;

/// Disconnects it.
const DISCONNECT: &str = "
set -e
echo 1 > /sys/class/nvme/nvme0/delete_controller
modprobe -r nvme-rdma
";

fn main() -> Result<(), Failure> {
    if guest::is_left_out("nvme") {
        return Ok(());
    }
    let runs = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(RUNS);
    let made = guest::c_program("nvme", "kernel")?;
    let build = Build::release(&["mlx5", "nvme_rdma"], &["nvme_ours"])?;
    let model = Model::start(&build, 2, &[])?;
    let [near, far] = model.sockets() else { return Err("two sockets".into()) };
    let guest = Guest::builder("nvme_speed").nic(near).programs(&build).share(made.path(), C_PROGRAMS);
    // At its best the kernel has neither mitigations nor several paths to a disk.
    let guest = guest.kernel_arg("mitigations=off").kernel_arg("nvme_core.multipath=N");
    let guest = guest.count_instructions().boot_patience(PROBE).boot()?;
    for script in [LOAD, NETWORK, "modprobe rdma_ucm; until [ -e /dev/infiniband/rdma_cm ]; do sleep 0.1; done"] {
        guest.check(script, PROBE)?;
    }
    let target = Target::start(&build, far)?;
    print!("{}", guest.check("/opt/bench/kernel check", RUN)?);
    let mut figures = Figures::default();
    for run in 1..=runs {
        eprintln!("run {run} of {runs}");
        for keys in ["standing", "each"] {
            measure(&guest, keys, &mut figures)?;
        }
    }
    println!("{}", figures.table());
    drop(target);
    guest::end(guest, &model)
}

/// All rows with such keys.
fn measure(guest: &Guest, keys: &str, figures: &mut Figures) -> Result<(), Failure> {
    let always = if keys == "each" { "Y" } else { "N" };
    guest.check(&format!("ALWAYS={always} TARGET={ADDRESS} NQN={NQN}\n{CONNECT}"), PROBE)?;
    for (operation, _) in ROWS.into_iter().filter(|(_, of_row)| *of_row == keys) {
        for (depth, by_interrupts, polled) in DEPTHS {
            let row = Row { operation, keys: keys.to_owned(), depth };
            for (column, program) in THEIRS.into_iter().enumerate() {
                let rounds = if column == 0 { by_interrupts } else { polled };
                let said = guest.check(&format!("/opt/bench/kernel {program} {operation} {depth} {rounds}"), RUN)?;
                figures.add(&row, column, &said)?;
            }
            let ours = format!("nvme_ours devx:mlx5_0 {ADDRESS} {NQN} {keys} {operation} {depth} {polled}");
            figures.add(&row, THEIRS.len(), &guest.check(&ours, RUN)?)?;
        }
    }
    guest.check(DISCONNECT, PROBE).map(drop).map_err(Failure::from)
}
