//! `mlx5 sim`: serves the software card over vfio-user, one function a socket, all on one wire.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mlx5_sim::card::{Card, FunctionHandle};
use mlx5_sim::fault::Injection;
use mlx5_sim::profile::Profile;
use mlx5_sim::serve::vfio_user;
use mlx5_sim::wire::{PcapWriter, SocketUplink, Wire};

use crate::{Failure, print};

/// What to serve.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Serve a function at this UNIX socket; once for each function.
    #[arg(long, required = true)]
    socket: Vec<PathBuf>,
    /// Which card: connectx5, connectx6dx, connectx7.
    #[arg(long, default_value = "connectx5")]
    profile: String,
    /// Lead the wire to another process' card that is given the same path.
    #[arg(long)]
    wire: Option<PathBuf>,
    /// Write every packet of the wire to this file.
    #[arg(long)]
    pcap: Option<PathBuf>,
    /// Let something go wrong on every function, such as `loss:1%` or `status:CREATE_CQ:3*2` (the next two); once for each
    /// fault.
    #[arg(long)]
    fault: Vec<Injection>,
    /// Do not report what silicon would swallow in silence.
    #[arg(long)]
    lenient: bool,
}

/// How often the record of violations is looked at.
const HOUSEKEEPING: Duration = Duration::from_millis(200);

/// Serves until it is killed.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let profile = Profile::by_name(&arguments.profile).ok_or_else(|| {
        format!("there is no profile `{}`: use one of {}", arguments.profile, Profile::NAMES.join(", "))
    })?;
    let wire = match &arguments.wire {
        Some(path) => {
            let uplink = SocketUplink::join(path).map_err(|error| format!("wire {}: {error}", path.display()))?;
            Wire::with_uplink(uplink)
        }
        None => Wire::new(),
    };
    let mut card =
        Card::builder().profile(profile).functions(arguments.socket.len()).wire(wire).strict(!arguments.lenient);
    if let Some(path) = &arguments.pcap {
        card = card.capture(capture(path)?);
    }
    let card = card.build()?;
    let functions: Vec<FunctionHandle> = (0..card.functions()).map(|index| card.function(index)).collect();
    for function in &functions {
        for injection in &arguments.fault {
            function.faults().inject(injection.fault, injection.times);
        }
    }
    let mut services = Vec::new();
    for (function, path) in functions.iter().zip(&arguments.socket) {
        services.push(vfio_user::serve(function.clone(), path)?);
        announce(path, json)?;
    }
    loop {
        std::thread::sleep(HOUSEKEEPING);
        report(&functions);
    }
}

fn capture(path: &Path) -> Result<PcapWriter, Failure> {
    let failed = |error| format!("{}: {error}", path.display());
    let file = File::create(path).map_err(failed)?;
    Ok(PcapWriter::new(file).map_err(failed)?)
}

fn announce(path: &Path, json: bool) -> Result<(), Failure> {
    if json {
        return print(&format!("{}\n", serde_json::json!({ "listening": path })));
    }
    print(&format!("listening on {}\n", path.display()))
}

/// What strict mode found goes to stderr, one line each.
fn report(functions: &[FunctionHandle]) {
    for function in functions {
        for violation in function.strict().take() {
            eprintln!("strict: function {}: {violation}", function.index());
        }
    }
}
