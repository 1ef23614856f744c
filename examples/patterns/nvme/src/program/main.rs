//! NVMe over RDMA from the command line: looks for subsystems, verifies a disk, serves disks.

mod perf;
mod verify;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use mlx5_dv::Device;
use mlx5_neighbours::{Neighbours, Network};
use mlx5_nvme::{Disk, FileDisk, Host, HostOptions, PORT, RamDisk, Target, TargetOptions};
use mlx5_open::{Sim, board, program};

use perf::Perf;
use verify::{Failure, Verify};

/// The name of the subsystem that is served, if none is given.
const NQN: &str = "nqn.2014-08.example:mlx5-nvme";
/// How often what the target does is told.
const REPORT: Duration = Duration::from_secs(10);
/// How long hosts may take to learn that the target goes.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long a target without work pauses.
const PAUSE: Duration = Duration::from_micros(50);
/// Turns without work until it pauses.
const EMPTY_TURNS: u32 = 1000;
/// What figures of the software card must say.
const NOT_A_CARD: &str = "software card: not a card's figure";

/// NVMe over RDMA in user space, host and target. Without a command both run in this process, on two functions of a
/// software card, and the host verifies what it writes.
#[derive(Debug, Parser)]
#[command(name = "nvme_rdma", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the subsystems of a target.
    Discover {
        #[command(flatten)]
        device: DeviceArguments,
        /// The target: ADDRESS or ADDRESS:PORT.
        #[arg(value_parser = remote)]
        target: SocketAddr,
    },
    /// Write random blocks to a namespace, read them back, and compare. What was there is lost.
    Verify {
        #[command(flatten)]
        device: DeviceArguments,
        #[command(flatten)]
        verify: Verify,
        /// The target: ADDRESS or ADDRESS:PORT.
        #[arg(value_parser = remote)]
        target: SocketAddr,
    },
    /// Measure latency, or bandwidth and I/Os a second, of a namespace: random places, the tables of `mlx5 perf`. Also
    /// as `mlx5 perf nvme`.
    Perf {
        #[command(flatten)]
        device: DeviceArguments,
        #[command(flatten)]
        perf: Perf,
        /// The target: ADDRESS or ADDRESS:PORT. Without one both ends run in this process, on a software card.
        #[arg(value_parser = remote)]
        target: Option<SocketAddr>,
    },
    /// Serve disks to any host, such as Linux's nvme-rdma, until it is killed.
    Serve {
        #[command(flatten)]
        device: DeviceArguments,
        #[command(flatten)]
        serve: Serve,
    },
}

#[derive(Debug, Args)]
struct DeviceArguments {
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
    /// IP address and prefix of the function, such as 10.0.0.4/24. On devx: one that its network interface has.
    #[arg(long, value_name = "ADDRESS/PREFIX[,GATEWAY]")]
    ip: Option<Network>,
}

impl DeviceArguments {
    /// The device, and who finds MAC addresses for it: on `devx:` the kernel.
    fn open(&self) -> Result<(Arc<Device>, Option<Neighbours>), Failure> {
        let device = mlx5_open::open_at(&self.device, self.ip.map(|network| network.address()))?;
        let neighbours = Neighbours::start_if_owned(&device, self.ip)?;
        Ok((device, neighbours))
    }
}

#[derive(Debug, Args)]
// The command has the name already.
#[group(skip)]
struct Serve {
    /// Name of the subsystem.
    #[arg(long, default_value = NQN)]
    nqn: String,
    /// Port to listen on.
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// A namespace in memory, of this many MiB. May be repeated.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    ram: Vec<u32>,
    /// A namespace in a file or block device. May be repeated; these come after those in memory.
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    /// Bytes of a logical block.
    #[arg(long, default_value_t = 512)]
    block_size: u32,
}

impl Serve {
    fn disks(&self) -> Result<Vec<Box<dyn Disk>>, Failure> {
        let mut disks: Vec<Box<dyn Disk>> = Vec::new();
        for &mib in &self.ram {
            disks.push(Box::new(RamDisk::new(
                ((mib as usize) << 20) / self.block_size.max(1) as usize,
                self.block_size,
            )?));
        }
        for path in &self.file {
            let disk = FileDisk::open(path, self.block_size)?;
            if !disk.is_direct() {
                eprintln!("nvme_rdma: {}: no direct I/O here; the page cache is used", path.display());
            }
            if let Some(error) = disk.blocks_by() {
                let path = path.display();
                eprintln!("nvme_rdma: {path}: io_uring is refused ({error}); I/O blocks the target's thread");
            }
            disks.push(Box::new(disk));
        }
        if disks.is_empty() {
            return Err("nothing to serve: give --ram MIB or --file PATH".into());
        }
        Ok(disks)
    }
}

fn remote(text: &str) -> Result<SocketAddr, String> {
    let with_port = || text.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    let parsed = text.parse().or_else(|_| with_port());
    parsed.map_err(|_| format!("{text:?} is not an address, such as 10.0.0.1, or 10.0.0.1:{PORT}"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("nvme_rdma", || match &arguments.command {
        None => both_ends(|host, target| Verify::parse_from(["verify"]).run(host, target)),
        Some(Command::Discover { device, target }) => discover(device, *target),
        Some(Command::Verify { device, verify, target }) => {
            let (device, neighbours) = device.open()?;
            let mut host = Host::new(&device, neighbours, HostOptions::default())?;
            verify.run(&mut host, *target)
        }
        Some(Command::Perf { device, perf, target: Some(target) }) => {
            let (device, neighbours) = device.open()?;
            let mut host = Host::new(&device, neighbours, HostOptions::default())?;
            let is_software = board::id(&device).is_some_and(|id| board::is_software(&id));
            perf.run(&mut host, *target, is_software.then_some(NOT_A_CARD))
        }
        Some(Command::Perf { device, perf, target: None }) => {
            if device.device != "sim" {
                return Err(format!("-d {}: a device measures with a target: give its ADDRESS", device.device).into());
            }
            both_ends(|host, target| perf.run(host, target, Some(NOT_A_CARD)))
        }
        Some(Command::Serve { device, serve }) => self::serve(device, serve),
    })
}

fn discover(device: &DeviceArguments, target: SocketAddr) -> Result<(), Failure> {
    let (device, neighbours) = device.open()?;
    let mut host = Host::new(&device, neighbours, HostOptions::default())?;
    let found = host.discover(target)?;
    for subsystem in &found {
        let kind = if subsystem.is_discovery { "  (discovery)" } else { "" };
        println!("{}  {}:{}{kind}", subsystem.nqn, subsystem.address, subsystem.service);
    }
    if found.is_empty() {
        println!("the target has no subsystem for this host, {}", host.nqn());
    }
    Ok(())
}

fn serve(device: &DeviceArguments, serve: &Serve) -> Result<(), Failure> {
    let disks = serve.disks()?;
    let (device, neighbours) = device.open()?;
    let mut options = TargetOptions::new(&serve.nqn);
    options.port = serve.port;
    let count = disks.len();
    let target = Target::new(&device, neighbours, options, disks)?;
    println!("serving {count} namespaces of {} on port {}", serve.nqn, serve.port);
    poll(target, &AtomicBool::new(false))
}

/// Serves until `stop`.
fn poll(mut target: Target, stop: &AtomicBool) -> Result<(), Failure> {
    let (mut empty, mut next_report, mut told) = (0, Instant::now() + REPORT, target.statistics());
    while !stop.load(Ordering::Relaxed) {
        empty = if target.poll()? { 0 } else { empty + 1 };
        if empty < EMPTY_TURNS {
            std::hint::spin_loop();
            continue;
        }
        std::thread::sleep(PAUSE);
        let now = target.statistics();
        if Instant::now() >= next_report && now != told {
            println!(
                "{} hosts, {} queues, {} commands ({} reads, {} writes, {} write zeroes, {} flushes), {} failed, \
                 {} queues broken",
                now.controllers,
                now.queues,
                now.commands,
                now.reads,
                now.writes,
                now.write_zeroes,
                now.flushes,
                now.failed,
                now.broken
            );
            (told, next_report) = (now, Instant::now() + REPORT);
        }
    }
    Ok(target.shut_down(FAREWELL)?)
}

/// Host and target on two functions of a software card. The host does the `work`.
fn both_ends(work: impl FnOnce(&mut Host, SocketAddr) -> Result<(), Failure>) -> Result<(), Failure> {
    let sim = Sim::builder().functions(2).build()?;
    let devices = [sim.open(0)?, sim.open(1)?];
    let address = devices[1].gids().first().ok_or("the function has no GID")?.address;
    let disk: Box<dyn Disk> = Box::new(RamDisk::new(64 << 11, 512)?);
    let target = Target::new(&devices[1], None, TargetOptions::new(NQN), vec![disk])?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| poll(target, &stop));
        let done = Host::new(&devices[0], None, HostOptions::default())
            .map_err(Failure::from)
            .and_then(|mut host| work(&mut host, SocketAddr::new(address.into(), PORT)));
        stop.store(true, Ordering::Relaxed);
        served.join().map_err(|_| "the target's thread panicked")??;
        done
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Arguments;

    #[test]
    fn each_command_is_sound() {
        Arguments::command().debug_assert();
    }
}
