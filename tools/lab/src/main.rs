//! `mlx5-lab`: sets the lab up and boots guests by hand.

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use mlx5_lab::{Guest, Lab};

/// Boots unmodified Debian Linux against the software ConnectX.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetches and unpacks what the lab's guests and tests need, some 700 MB.
    Setup,
    /// Prints the folders of the C headers against which layouts are checked: two kernels' and rdma-core's.
    Headers,
    /// Boots a guest with a shell on this terminal; Ctrl-a x ends it.
    Shell(Shell),
}

#[derive(Args)]
struct Shell {
    /// A vfio-user socket to plug in as a card (repeatable).
    #[arg(long, value_name = "SOCKET")]
    nic: Vec<PathBuf>,
    /// Give the guest an IOMMU.
    #[arg(long)]
    iommu: bool,
    /// Memory in MiB.
    #[arg(long, default_value_t = 2048)]
    memory: u32,
    /// Huge pages of 2 MiB to reserve.
    #[arg(long, default_value_t = 0)]
    huge_pages: u32,
    /// A folder to share, read-only, as HOST:GUEST (repeatable).
    #[arg(long, value_name = "HOST:GUEST")]
    share: Vec<String>,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mlx5-lab: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  because: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Setup => {
            mlx5_lab::set_up()?;
            let lab = Lab::ready()?;
            println!("{} (Linux {})", lab.root().display(), lab.kernel_release());
        }
        Command::Headers => {
            let headers = mlx5_lab::headers()?;
            for kernel in [headers.guests_kernel, headers.newest_kernel] {
                println!("{} (Linux {})", kernel.include.display(), kernel.release);
            }
            for folder in [headers.verbs_include, headers.newest_drivers, headers.provider] {
                println!("{}", folder.display());
            }
        }
        Command::Shell(options) => shell(options)?,
    }
    Ok(())
}

fn shell(options: Shell) -> Result<(), Box<dyn Error>> {
    let mut builder = Guest::builder("shell").memory_mib(options.memory).huge_pages_2m(options.huge_pages);
    if options.iommu {
        builder = builder.iommu();
    }
    for socket in options.nic {
        builder = builder.nic(socket);
    }
    for share in options.share {
        let (host, guest) = share.split_once(':').ok_or_else(|| format!("--share {share}: say HOST:GUEST"))?;
        builder = builder.share(host, guest);
    }
    builder.shell()?;
    Ok(())
}
