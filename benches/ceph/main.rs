//! Cost of an operation of Ceph's messenger benchmark: with Ceph's own ends, with those of mlx5-ceph, and with one of
//! each, on the same card, in the same guest.
//!
//! `cargo bench -p mlx5-benches --bench ceph` boots Debian's Linux with two functions of the software card, under
//! QEMU's `-icount`, where time counts instructions. Client and server run in it; meter.c counts the instructions of
//! each, with the kernel's on their behalf. README.md explains the figures.

mod ends;
mod table;

use ends::{Ends, Load, Whose};
use mlx5_benches::Failure;
use mlx5_benches::guest::{self, C_PROGRAMS, LOAD, PROBE, RUN};
use mlx5_lab::ceph::NETWORK;
use mlx5_lab::{Build, Guest, Model, Software};
use table::{Cost, Figures, Row};

/// Number of repetitions.
const RUNS: usize = 3;

/// Bytes of an operation, operations under way at once, and the numbers of operations of a short and a long call: their
/// difference is free of what it costs to begin and to end.
const LOADS: [(usize, usize, [usize; 2]); 3] =
    [(4096, 1, [200, 1200]), (4096, 16, [200, 2200]), (1 << 20, 2, [10, 60])];

/// The pairs of ends that are measured.
const PAIRS: [Ends; 4] = [
    Ends { client: Whose::Ceph, server: Whose::Ceph },
    Ends { client: Whose::Ours, server: Whose::Ceph },
    Ends { client: Whose::Ceph, server: Whose::Ours },
    Ends { client: Whose::Ours, server: Whose::Ours },
];

fn main() -> Result<(), Failure> {
    if guest::is_left_out("ceph") {
        return Ok(());
    }
    let runs = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(RUNS);
    let made = guest::c_program("ceph", "meter")?;
    let (ceph, build) = (Software::ceph()?, Build::release(&["mlx5", "ceph_msgr"], &[])?);
    let model = Model::start(&build, 2, &[])?;
    let [near, far] = model.sockets() else { return Err("two sockets".into()) };
    let guest = Guest::builder("ceph_speed").memory_mib(3072).nic(near).nic(far).programs(&build);
    let guest = guest.share(made.path(), C_PROGRAMS).share(ceph.folder(), ceph.place());
    let guest = guest.kernel_arg("mitigations=off").count_instructions().boot_patience(PROBE).boot()?;
    guest.check(LOAD, PROBE)?;
    guest.check(NETWORK, PROBE)?;
    let mut figures = Figures::default();
    for run in 1..=runs {
        eprintln!("run {run} of {runs}");
        for (bytes, at_once, operations) in LOADS {
            for ends in PAIRS {
                let loads = operations.map(|operations| Load { bytes, at_once, operations });
                figures.add(Row { bytes, at_once, ends }, measure(&guest, ends, loads)?);
            }
        }
    }
    println!("{}", figures.table());
    guest::end(guest, &model)
}

/// What an operation costs, from a short and a long call.
fn measure(guest: &Guest, ends: Ends, loads: [Load; 2]) -> Result<Cost, Failure> {
    // A client whose server has ended calls for ever.
    let call = |load| {
        format!("timeout 100 /opt/bench/meter $server {} 2>&1 || {{ tail /tmp/server >&2; exit 1; }}", ends.call(load))
    };
    // Each row has a server of its own, which the first call warms up.
    let calls = format!("{{ {}; }} > /dev/null\n{}\n{}", call(loads[0]), call(loads[0]), call(loads[1]));
    let script = format!("{}{calls}\nkill $server\nwait $server || true", ends.serve());
    let said = guest.check(&script, RUN)?;
    Cost::read(&said, loads[1].operations - loads[0].operations)
        .ok_or_else(|| format!("no figures of {ends:?}:\n{said}").into())
}
