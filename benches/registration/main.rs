//! Cost of registering memory with mlx5-dv and with libmlx5's `ibv_reg_mr`: the same memory on the same card in the
//! same guest.
//!
//! `cargo bench -p mlx5-benches --bench registration` boots Debian's Linux with the software card, under QEMU's
//! `-icount`, where processor time counts instructions, and runs ours.rs over DevX and verbs.c on libmlx5 in turn, on
//! files of 1 GiB, 2 MiB and 4 KiB pages. README.md explains the figures.

mod table;

use mlx5_benches::Failure;
use mlx5_benches::guest::{self, C_PROGRAMS, LOAD, PROBE, RUN};
use mlx5_lab::{Build, Guest, Model};
use table::{Listed, Row, Runs};

const SIZES: [u64; 6] = [1 << 20, 16 << 20, 256 << 20, 1 << 30, 4 << 30, 8 << 30];
/// Registrations by each program.
const RUNS: usize = 5;
/// Memory of the guest besides that to register.
const GUEST_S_OWN: u64 = 3 << 30;
/// Memory left to the host.
const HOST_S_OWN: u64 = 4 << 30;

/// A kind of file: `pages` of one size.
struct Pages {
    name: &'static str,
    bytes: u64,
    /// Bash: mounts a file system with such pages, for `$bytes`, at /tmp/memory.
    mount: &'static str,
    /// Bash: frees the pages.
    release: &'static str,
}

/// Largest pages first: they need contiguous memory.
const PAGES: [Pages; 3] = [
    Pages {
        name: "1 GiB",
        bytes: 1 << 30,
        mount: "mount -t hugetlbfs -o pagesize=1G none /tmp/memory",
        release: "echo 0 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
    },
    Pages {
        name: "2 MiB",
        bytes: 2 << 20,
        mount: "echo $((bytes >> 21)) > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
            mount -t hugetlbfs -o pagesize=2M none /tmp/memory",
        release: "echo 0 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    },
    Pages {
        name: "4 KiB",
        bytes: 4096,
        mount: "mount -t tmpfs -o huge=never,size=$bytes none /tmp/memory",
        release: "true",
    },
];

const THEIRS: &str = "/opt/bench/verbs";
const OURS: &str = "registration_ours";

fn main() -> Result<(), Failure> {
    if guest::is_left_out("registration") {
        return Ok(());
    }
    let largest = largest()?;
    let made = guest::c_program("registration", "verbs")?;
    let build = Build::release(&["mlx5"], &["registration_ours"])?;
    let model = Model::start_saying(&build, 1, &[], Listed::SAID)?;
    let [socket] = model.sockets() else { return Err("one socket".into()) };
    let guest = Guest::builder("registration").nic(socket).key_cache().programs(&build).share(made.path(), C_PROGRAMS);
    let memory = u32::try_from((largest + GUEST_S_OWN) >> 20)?;
    let guest = guest.memory_mib(memory).huge_pages_1g((largest >> 30) as u32);
    let guest = guest.count_instructions().boot_patience(PROBE).boot()?;
    guest.check(LOAD, PROBE)?;

    println!("{}", Row::HEADING);
    let bench = Bench { guest, model };
    for pages in &PAGES {
        bench.guest.check(&format!("bytes={largest}; mkdir -p /tmp/memory; {}", pages.mount), RUN)?;
        for bytes in SIZES.into_iter().filter(|bytes| (pages.bytes..=largest).contains(bytes)) {
            println!("{}", bench.row(pages, bytes)?);
        }
        bench.guest.check(&format!("rm -f /tmp/memory/*; umount /tmp/memory; {}", pages.release), RUN)?;
    }
    guest::end(bench.guest, &bench.model)
}

/// The largest size for which this machine has enough memory.
fn largest() -> Result<u64, Failure> {
    let information = std::fs::read_to_string("/proc/meminfo")?;
    let line = information.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("/proc/meminfo has no MemAvailable")?;
    let available = available.trim().parse::<u64>()? << 10;
    let largest = SIZES.into_iter().rfind(|bytes| bytes + GUEST_S_OWN + HOST_S_OWN <= available);
    let largest = largest.ok_or_else(|| format!("{} MiB of memory are too few for the guest", available >> 20))?;
    eprintln!("up to {} MiB, as this machine has {} MiB available", largest >> 20, available >> 20);
    Ok(largest)
}

/// The guest and its card.
struct Bench {
    guest: Guest,
    model: Model,
}

impl Bench {
    fn row(&self, pages: &Pages, bytes: u64) -> Result<Row, Failure> {
        let [theirs, ours] = [THEIRS, OURS].map(|program| self.run(program, bytes));
        Ok(Row { pages: pages.name, bytes, theirs: theirs?, ours: ours? })
    }

    fn run(&self, program: &str, bytes: u64) -> Result<Runs, Failure> {
        let file = "/tmp/memory/file";
        let device = if program == OURS { "devx:mlx5_0" } else { "mlx5_0" };
        let command =
            format!("truncate -s {bytes} {file}; ulimit -l unlimited; {program} {device} {file} {bytes} {RUNS}");
        let before = self.model.stderr().len();
        let said = self.guest.check(&command, RUN)?;
        let log = self.model.stderr();
        Runs::read(&said, Listed::read(log.get(before..).unwrap_or_default(), RUNS)?)
    }
}
