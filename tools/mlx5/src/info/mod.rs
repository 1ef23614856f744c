//! `mlx5 info`: what one card is: firmware, board, place, link, addresses, limits.

mod facts;
mod gather;

use mlx5_dv::discovery::Sysfs;

use crate::output::{Failure, print, print_json};
use gather::Card;

/// Which card.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    mlx5 info -d vfio:0000:3b:00.0      a function that is bound to vfio-pci\n  \
    mlx5 info -d devx:mlx5_0 --json     a function that the kernel keeps, as JSON\n\n\
    What a way to the card cannot tell is printed as `not known`, with the reason; in JSON it is null, and the reason \
    is in `unknown`.")]
pub struct Arguments {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short, long = "device", visible_alias = "ib-dev", default_value = "sim")]
    device: String,
}

/// Prints what the card is.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let name = mlx5_open::device_name(&arguments.device)?;
    let device = mlx5_open::open(&arguments.device)?;
    let card = Card { name: &name, device: &device, sysfs: &Sysfs::default() };
    let info = card.info()?;
    if json { print_json(&info.json()) } else { print(&info.to_string()) }
}
