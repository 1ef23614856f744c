//! Cost of 64-byte frames with mlx5-dv and with DPDK's driver: the same work on the same card in the same guest.
//!
//! `cargo bench -p mlx5-benches --bench packets` boots Debian's Linux with two functions of the software card, under
//! QEMU's `-icount`, where the time stamp counter counts instructions, and runs dpdk.c on Debian's DPDK and ours.rs
//! over DevX in turn, each in several forms. The card is in this process, and counts what crosses PCIe. README.md
//! explains the figures.

mod table;

use std::path::Path;
use std::time::{Duration, Instant};

use mlx5_benches::Failure;
use mlx5_benches::guest::{C_PROGRAMS, LOAD, PROBE, RUN, is_left_out};
use mlx5_lab::{Build, Guest, Job, Software};
use mlx5_sim::card::{Card, FunctionHandle};
use mlx5_sim::dma::Traffic;
use mlx5_sim::serve::vfio_user;
use table::{Column, Figures};

/// The ports hear what the kernel lets the switch send them: all. EAL looks for each possible processor in each of 32
/// nodes, unless there are none.
const SET_UP: &str = "
set -e
sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
for device in mlx5_0 mlx5_1; do
    for wait in $(seq 600); do ls /sys/class/infiniband/$device/device/net >/dev/null 2>&1 && break; sleep 0.1; done
    name=$(ls /sys/class/infiniband/$device/device/net)
    ethtool -K $name rxvlan off
    ip link set $name promisc on
    ip link set $name up
    for wait in $(seq 300); do ip link show $name | grep -q LOWER_UP && break; sleep 0.1; done
done
mount -t tmpfs none /sys/devices/system/node
mkfifo /tmp/go
";

/// Forms of DPDK's queues, by arguments of its driver.
const THEIRS: [Column; 6] = [
    Column { name: "scalar", of: "rx_vec_en=0,rxq_cqe_comp_en=0" },
    Column { name: "vector", of: "rxq_cqe_comp_en=0" },
    Column { name: "vector-compressed", of: "rxq_cqe_comp_en=1" },
    Column { name: "vector-inline", of: "rxq_cqe_comp_en=0,txqs_min_inline=0" },
    Column { name: "striding", of: "mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=0,txqs_min_inline=0" },
    Column { name: "striding-compressed", of: "mprq_en=1,rxqs_min_mprq=1,rxq_cqe_comp_en=1,txqs_min_inline=0" },
];

/// Forms of our queues, by arguments of ours.rs.
const OURS: [Column; 6] = [
    Column { name: "our-buffers", of: "buffers" },
    Column { name: "our-packets", of: "packets" },
    Column { name: "our-bursts", of: "bursts" },
    Column { name: "our-in-place", of: "in-place" },
    Column { name: "our-bursts-compressed", of: "bursts-compressed" },
    Column { name: "our-in-place-compressed", of: "in-place-compressed" },
];

/// Time between two looks at what a program has said.
const LOOK: Duration = Duration::from_millis(10);

fn main() -> Result<(), Failure> {
    if is_left_out("packets") {
        return Ok(());
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |column: &&Column| wanted.is_empty() || wanted.iter().any(|name| name == column.name);
    let (made, dpdk) = (tempfile::tempdir()?, Software::dpdk()?);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("packets/dpdk.c");
    let libraries = ["librte_eal.so.25", "librte_ethdev.so.25", "librte_mbuf.so.25", "librte_mempool.so.25"];
    dpdk.compile(&source, &made.path().join("packets_dpdk"), libraries)?;
    let build = Build::release(&[], &["packets_ours"])?;

    let card = Card::builder().functions(2).strict(true).build()?;
    let sockets = [0, 1].map(|index| made.path().join(format!("nic{index}")));
    let mut services = Vec::new();
    for (index, socket) in sockets.iter().enumerate() {
        services.push(vfio_user::serve(card.function(index), socket)?);
    }
    let guest = Guest::builder("packets").memory_mib(3072).huge_pages_2m(192).programs(&build);
    let guest = guest.share(dpdk.folder(), dpdk.place()).share(made.path(), C_PROGRAMS);
    let guest = sockets.iter().fold(guest, |guest, socket| guest.nic(socket));
    let guest = guest.count_instructions().boot_patience(PROBE).boot()?;
    guest.check(LOAD, PROBE)?;
    guest.check(SET_UP, PROBE)?;

    let (mut figures, tested) = (Figures::default(), card.function(0));
    for column in THEIRS.iter().filter(is_wanted) {
        eprintln!("{}", column.name);
        run(&guest, &tested, &theirs(column), &mut figures, column)?;
    }
    for column in OURS.iter().filter(is_wanted) {
        eprintln!("{}", column.name);
        let command = format!("packets_ours devx:mlx5_0 devx:mlx5_1 {} {}", column.of, column.name);
        run(&guest, &tested, &command, &mut figures, column)?;
    }
    println!("{}", figures.tables(&THEIRS, &OURS));
    guest.power_off()?;
    match &tested.strict().take()[..] {
        [] => Ok(()),
        some => Err(format!("the software card complains: {some:?}").into()),
    }
}

/// Bash: runs dpdk.c with these arguments of its driver.
fn theirs(column: &Column) -> String {
    let Column { name, of } = column;
    format!(
        "{}\nset -- $(lspci -D -n -d 15b3: | cut -d' ' -f1)\n\
         dpdk {C_PROGRAMS}/packets_dpdk -d /opt/dpdk/usr/lib/x86_64-linux-gnu/librte_net_mlx5.so.25 -l 0 \
         --no-telemetry -a $1,{of} -a $2,{of} -- {name}",
        Software::DPDK
    )
}

/// Runs a program, and takes what crossed PCIe where it says that a row begins and ends.
fn run(
    guest: &Guest,
    tested: &FunctionHandle,
    command: &str,
    figures: &mut Figures,
    column: &Column,
) -> Result<(), Failure> {
    let deadline = Instant::now() + RUN;
    let mut job = guest.start(&format!("exec 3<>/tmp/go\n{command} < /tmp/go"))?;
    let (mut heard, mut before) = (0, Traffic::default());
    loop {
        let said = job.so_far();
        for line in whole_lines(&said, &mut heard) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["begin", ..] => {
                    before = tested.traffic().total;
                    guest.check("echo > /tmp/go", RUN)?;
                }
                ["end", row, frames] => {
                    figures.crossed(row, column.name, tested.traffic().total - before, frames.parse()?);
                    guest.check("echo > /tmp/go", RUN)?;
                }
                ["done"] => return ended(job),
                [row, name, figure] if name == column.name => figures.instructions(row, name, figure.parse()?),
                // EAL and its drivers speak, too.
                _ => {}
            }
        }
        if !job.runs() || Instant::now() > deadline {
            let output = job.wait(Duration::ZERO)?;
            return Err(format!("{command}:\n{}\n{}", output.text(), output.error_text()).into());
        }
        std::thread::sleep(LOOK);
    }
}

/// The whole lines after the `heard` bytes.
fn whole_lines<'a>(said: &'a str, heard: &mut usize) -> std::str::Lines<'a> {
    let new = said.get(*heard..).unwrap_or_default();
    let end = new.rfind('\n').map_or(0, |at| at + 1);
    *heard += end;
    new[..end].lines()
}

fn ended(job: Job<'_>) -> Result<(), Failure> {
    let output = job.wait(RUN)?;
    if output.success() { Ok(()) } else { Err(output.error_text().into()) }
}
