//! `mlx5 sim`: serves the software card over vfio-user, one function per socket, all on one wire.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mlx5_sim::card::Wire;
use mlx5_sim::card::{Card, FunctionHandle};
use mlx5_sim::fault::Injection;
use mlx5_sim::profile::Profile;
use mlx5_sim::serve::vfio_user::{self, Service};
use mlx5_sim::wire::{PcapWriter, SocketUplink};

use crate::output::{Failure, print, print_json_line, usage};
use crate::traffic;

/// What to serve.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    mlx5 sim --socket /tmp/nic.sock          one function; then `-d vfio-user:/tmp/nic.sock`\n  \
    mlx5 sim --socket /tmp/a --socket /tmp/b two functions on one wire\n  \
    mlx5 sim --socket /tmp/a --fault loss:1% --pcap wire.pcap\n\n\
    It says `listening on` once each socket can be opened, and serves until it is killed.")]
pub struct Arguments {
    /// UNIX socket of a function; repeat for more functions.
    #[arg(long, required = true)]
    socket: Vec<PathBuf>,
    /// Profile: connectx5, connectx6dx, connectx7.
    #[arg(long, default_value = "connectx5")]
    profile: String,
    /// Connect the wire to a card in another process with the same path and another --mac, or to the user of
    /// `PATH.peer`, such as QEMU's `-netdev
    /// dgram,local.type=unix,local.path=PATH.peer,remote.type=unix,remote.path=PATH`.
    #[arg(long)]
    wire: Option<PathBuf>,
    /// MAC address of the first function; the others follow consecutively.
    #[arg(long, value_parser = parse_mac)]
    mac: Option<[u8; 6]>,
    /// Capture every packet on the wire to this pcap file.
    #[arg(long)]
    pcap: Option<PathBuf>,
    /// Inject a fault on every function, such as `loss:1%` or `status:CREATE_CQ:3*2` (the next two); repeat for more.
    #[arg(long)]
    fault: Vec<Injection>,
    /// Every so many seconds, print what has crossed PCIe since the start, of each function and queue.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    stats: Option<u64>,
    /// Join the stores of a BlueFlame copy, as a real processor does and QEMU's does not, and execute the copy: then
    /// Linux and libmlx5 use BlueFlame. No page can be mapped, so each doorbell is a message.
    #[arg(long)]
    write_combining: bool,
    /// Switch the card's real-time clock on: completions can bear time of day.
    #[arg(long)]
    real_time_clock: bool,
    /// Do not report violations that hardware ignores silently.
    #[arg(long)]
    lenient: bool,
    /// Also report a receive buffer that is posted while it is posted already. Some programs mean it.
    #[arg(long, conflicts_with = "lenient")]
    watch_receives: bool,
}

/// Time between two checks of the servers.
const HOUSEKEEPING: Duration = Duration::from_millis(200);

/// Serves until it is killed.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let mut profile = Profile::by_name(&arguments.profile).ok_or_else(|| {
        usage(format!("unknown profile `{}`: use one of {}", arguments.profile, Profile::NAMES.join(", ")))
    })?;
    let twice = |(at, path)| arguments.socket[..at].contains(path).then_some(path);
    if let Some(path) = arguments.socket.iter().enumerate().find_map(twice) {
        return Err(usage(format!("--socket {} is given twice: each function has its own", path.display())));
    }
    if let Some(mac) = arguments.mac {
        profile.base_mac = mac;
    }
    if arguments.real_time_clock {
        profile = profile.with_real_time_clock();
    }
    let wire = match &arguments.wire {
        Some(path) => {
            let uplink = SocketUplink::join(path).map_err(|error| format!("wire {}: {error}", path.display()))?;
            Wire::with_uplink(uplink)
        }
        None => Wire::new(),
    };
    let card = Card::builder().profile(profile).functions(arguments.socket.len()).wire(wire);
    let mut card = card.strict(!arguments.lenient).write_combining(arguments.write_combining);
    if let Some(path) = &arguments.pcap {
        card = card.capture(capture(path)?);
    }
    let card = card.build()?;
    let functions: Vec<FunctionHandle> = (0..card.functions()).map(|index| card.function(index)).collect();
    for function in &functions {
        for injection in &arguments.fault {
            function.faults().inject(injection.fault, injection.times);
        }
        if arguments.watch_receives {
            function.strict().watch_receives();
        }
    }
    let mut services = Vec::new();
    for (function, path) in functions.iter().zip(&arguments.socket) {
        services.push(vfio_user::serve(function.clone(), path)?);
        announce(path, json)?;
    }
    let mut printed = Instant::now();
    loop {
        std::thread::sleep(HOUSEKEEPING);
        if arguments.stats.is_some_and(|seconds| printed.elapsed().as_secs() >= seconds) {
            printed = Instant::now();
            traffic::show(&functions, json)?;
        }
        forget_violations(&services, &functions);
        // Before its servers: those without a client end with it.
        if card.has_ended() {
            return Err("the card's device thread panicked: its functions read all ones; see the panic above".into());
        }
        if let Some(service) = services.iter().find(|service| service.has_ended()) {
            return Err(format!("{}: the server ended", service.path().display()).into());
        }
    }
}

/// Parses a unicast MAC address, such as `02:00:c5:00:00:01`.
fn parse_mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    let mac: Option<[u8; 6]> = bytes.and_then(|bytes| bytes.try_into().ok());
    match mac {
        Some(mac) if mac[0] & 1 == 0 && mac != [0; 6] => Ok(mac),
        Some(_) => Err(format!("{text} is not a unicast address")),
        None => Err(format!("{text} is not a MAC address, such as 02:00:c5:00:00:01")),
    }
}

fn capture(path: &Path) -> Result<PcapWriter, Failure> {
    let failed = |error| format!("{}: {error}", path.display());
    let file = File::create(path).map_err(failed)?;
    Ok(PcapWriter::new(file).map_err(failed)?)
}

fn announce(path: &Path, json: bool) -> Result<(), Failure> {
    if json {
        return print_json_line(&serde_json::json!({ "listening": path }));
    }
    print(&format!("listening on {}\n", path.display()))
}

/// Clears recorded violations between clients. Each was logged when it happened, up to a limit.
fn forget_violations(services: &[Service], functions: &[FunctionHandle]) {
    for (service, function) in services.iter().zip(functions) {
        if !service.is_connected() {
            drop(function.strict().take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_unicast() {
        assert_eq!(parse_mac("02:00:c5:00:01:00"), Ok([2, 0, 0xc5, 0, 1, 0]));
        for wrong in
            ["", "02:00:c5:00:01", "02:00:c5:00:01:00:00", "03:00:c5:00:01:00", "00:00:00:00:00:00", "xx:0:0:0:0:0"]
        {
            assert!(parse_mac(wrong).is_err(), "{wrong}");
        }
    }
}
