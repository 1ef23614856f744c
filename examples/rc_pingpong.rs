//! Ping-pong over a reliable connection: libibverbs' `ibv_rc_pingpong`, on this driver.
//!
//! Without a host both ends run in this process, on one card. `--listen` waits for a client; HOST connects to a server.
//! The other end may be this program or `ibv_rc_pingpong`; with `--uc`, over an unreliable connection, it may be
//! `ibv_uc_pingpong`. Between two hosts, on an owned function, it also answers ARP and neighbour solicitations, as a
//! kernel would. With `-R` the RDMA connection manager connects both ends, which are both this program.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_cm::{CmTransport, ConnectionId, ConnectionManager, Event, Parameters, Route, Service};
use mlx5_dv::Device;
use mlx5_dv::memory::PageSize;
use mlx5_dv::queue::{Connected, Messages, UnreliableMessages};
use mlx5_examples::exchange;
use mlx5_examples::host::Host;
use mlx5_examples::pingpong::{Failure, OnDemand, Player, Role, Setup, in_turn, path_mtu, print_result, timed};
use mlx5_neighbours::Network;
use mlx5_open::program;

/// How long a client waits for its server, and a server for its client.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends a message back and forth over a reliable connection.
#[derive(Debug, Parser)]
#[command(name = "rc_pingpong")]
struct Options {
    /// Connect to the server on this host. Without a host both ends run in this process.
    host: Option<String>,
    /// Run as server: wait for one client.
    #[arg(long, conflicts_with = "host")]
    listen: bool,
    /// TCP port of the server, or with -R its port of the connection manager.
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Connect by the RDMA connection manager: HOST is the address of the server's function.
    #[arg(short = 'R', long)]
    rdma_cm: bool,
    /// Device: sim, devx:mlx5_0, vfio:0000:3b:00.0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
    /// Port of the device.
    #[arg(short = 'i', long = "ib-port", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=1))]
    ib_port: u8,
    /// Message size in bytes.
    #[arg(short, long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    size: u32,
    /// Path MTU: 256, 512, 1024, 2048 or 4096.
    #[arg(short, long, default_value_t = 1024)]
    mtu: u32,
    /// Receives to keep posted; fewer if their buffers would take more than 64 MiB.
    #[arg(short, long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=16384))]
    rx_depth: u32,
    /// Number of exchanges.
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
    /// Service level.
    #[arg(short = 'l', long = "sl", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=7))]
    sl: u8,
    /// Sleep on completion events instead of polling.
    #[arg(short, long)]
    events: bool,
    /// Sleep on an event queue of this thread's own (owned functions only).
    #[arg(long, conflicts_with = "events")]
    own_events: bool,
    /// Index of the local GID.
    #[arg(short, long = "gid-idx", default_value_t = 0)]
    gid_idx: u16,
    /// IP address and prefix for an owned function, such as 10.0.0.4/24. It becomes GID 1.
    #[arg(long, value_name = "ADDRESS/PREFIX[,GATEWAY]")]
    ip: Option<Network>,
    /// VLAN in which an owned function has its link-local address, too. It becomes GID 2.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    vlan: Option<u16>,
    /// Use an unreliable connection (UC): a lost message ends the ping-pong.
    #[arg(long)]
    uc: bool,
    /// Check received data byte for byte.
    #[arg(short, long)]
    chk: bool,
    /// Keep messages in pages of this size, or fail: 4K, 2M, 1G [default: the largest available].
    #[arg(long)]
    page_size: Option<PageSize>,
    /// Keep rings and doorbell records in pages of this size, or fail: 4K, 2M, 1G [default: the largest available].
    #[arg(long)]
    ring_pages: Option<PageSize>,
    /// Register the messages' memory on demand: pages come when the card needs them (`devx:` only).
    #[arg(short, long, conflicts_with = "page_size")]
    odp: bool,
    /// The same by one region of all addresses.
    #[arg(short = 'O', long, conflicts_with_all = ["odp", "page_size"])]
    iodp: bool,
    /// With --odp or --iodp: bring the pages before the first message.
    #[arg(short = 'P', long)]
    prefetch: bool,
    /// Print what the card says of the queue pair at the end.
    #[arg(long)]
    status: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("rc_pingpong", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    match options.uc {
        true => run_over::<UnreliableMessages>(options),
        false => run_over::<Messages>(options),
    }
}

fn run_over<S: Connected>(options: &Options) -> Result<(), Failure> {
    let mut device_options = mlx5_dv::Options::default();
    device_options.own_event_queues = if options.own_events { 2 } else { 0 };
    let mut here = Host::open_with(&options.device, options.ip, device_options)?;
    if let Some(vlan) = options.vlan {
        here.join_vlan(vlan)?;
    }
    let setup = Setup {
        size: options.size as usize,
        mtu: options.mtu,
        rx_depth: options.rx_depth as usize,
        iters: options.iters,
        service_level: options.sl,
        events: options.events,
        own_events: options.own_events,
        gid_index: options.gid_idx,
        check: options.chk,
        page_size: options.page_size,
        ring_pages: options.ring_pages,
        on_demand: match (options.odp, options.iodp) {
            (_, true) => Some(OnDemand::Implicit),
            (true, _) => Some(OnDemand::Explicit),
            (false, false) if options.prefetch => return Err("--prefetch is for --odp or --iodp".into()),
            (false, false) => None,
        },
        prefetch: options.prefetch,
    };
    let elapsed = match &options.host {
        None if !options.listen && options.rdma_cm => {
            return Err("-R connects two programs: one with --listen, one with HOST".into());
        }
        None if !options.listen => both_ends::<S>(here.device(), &setup, options)?,
        _ if options.rdma_cm => managed::<S>(here.device(), &setup, options)?,
        host => {
            here.answer(options.ip);
            match host {
                Some(host) => ask::<S>(&here, &setup, host, options)?,
                None => listen::<S>(&here, &setup, options)?,
            }
        }
    };
    print_result(&options.device, options.size, options.iters, elapsed);
    Ok(())
}

fn ask<S: Connected>(here: &Host, setup: &Setup, host: &str, options: &Options) -> Result<Duration, Failure> {
    let mut player = Player::<S>::of_service(here.device(), setup, Role::Client)?;
    let mine = player.address()?;
    print_memory(&player);
    mine.print("local");
    let asked = exchange::ask(host, options.port, &[mine], PATIENCE)?;
    let [remote] = asked.remote;
    remote.print("remote");
    player.connect(&remote, here.mac_of(setup.gid_index, remote.gid)?)?;
    asked.finish()?;
    let elapsed = timed(|| player.play())?;
    print_status(&player, options)?;
    Ok(elapsed)
}

fn listen<S: Connected>(here: &Host, setup: &Setup, options: &Options) -> Result<Duration, Failure> {
    let mut player = Player::<S>::of_service(here.device(), setup, Role::Server)?;
    let mine = player.address()?;
    print_memory(&player);
    mine.print("local");
    let accepted = exchange::accept(options.port, PATIENCE)?;
    let [remote] = accepted.remote;
    remote.print("remote");
    player.connect(&remote, here.mac_of(setup.gid_index, remote.gid)?)?;
    accepted.answer(&[mine])?;
    let elapsed = timed(|| player.play())?;
    print_status(&player, options)?;
    Ok(elapsed)
}

/// Either end of a connection that the connection managers make.
fn managed<S: Connected>(device: &Arc<Device>, setup: &Setup, options: &Options) -> Result<Duration, Failure> {
    let mut manager = ConnectionManager::start(device, options.ip)?;
    let role = if options.listen { Role::Server } else { Role::Client };
    let mut player = Player::<S>::of_service(device, setup, role)?;
    print_memory(&player);
    let id = match &options.host {
        Some(host) => call(&mut manager, &mut player, SocketAddr::new(address(host)?, options.port), options)?,
        None => be_called(&mut manager, &mut player, options)?,
    };
    let elapsed = timed(|| player.play())?;
    print_status(&player, options)?;
    if role == Role::Client {
        manager.disconnect(id, &[])?;
    }
    while !manager.wait(PATIENCE)?.1.is_last() {}
    Ok(elapsed)
}

fn address(host: &str) -> Result<IpAddr, Failure> {
    host.parse().map_err(|_| format!("-R takes the address of the server's function, not {host:?}").into())
}

/// Connects to the server at `remote`.
fn call<S: Connected>(
    manager: &mut ConnectionManager,
    player: &mut Player<S>,
    remote: SocketAddr,
    options: &Options,
) -> Result<ConnectionId, Failure> {
    let transport = if options.uc { CmTransport::Uc } else { CmTransport::Rc };
    let route = Route { transport, path_mtu: path_mtu(options.mtu)?, service_level: options.sl, ..Route::default() };
    manager.connect(remote, route, &Parameters::new(player.queue_pair().qpn(), 0))?;
    match manager.wait(PATIENCE)? {
        (id, Event::ConnectResponse { .. }) => {
            let (rtr, rts) = manager.attributes(id)?;
            player.connect_by(&rtr, &rts)?;
            manager.ready(id, &[])?;
            println!("  connected to {remote}, QPN {:#08x}", rtr.remote_qpn);
            Ok(id)
        }
        (_, other) => Err(format!("no connection to {remote}: {other}").into()),
    }
}

/// Waits for a client. Its first message may come before the connection manager says that it is ready.
fn be_called<S: Connected>(
    manager: &mut ConnectionManager,
    player: &mut Player<S>,
    options: &Options,
) -> Result<ConnectionId, Failure> {
    manager.listen(Service::tcp(options.port))?;
    println!("  listening on port {} of the connection manager", options.port);
    let (id, event) = manager.wait(PATIENCE)?;
    let Event::ConnectRequest { remote, .. } = event else { return Err(format!("no client: {event}").into()) };
    let (rtr, rts) = manager.attributes(id)?;
    player.connect_by(&rtr, &rts)?;
    manager.accept(id, &Parameters::new(player.queue_pair().qpn(), rtr.rq_psn))?;
    println!("  connected from {remote}, QPN {:#08x}", rtr.remote_qpn);
    Ok(id)
}

/// Client and server on one card. When polling, both run in turn on this thread, which leaves a core to the software
/// card; with events, each has a thread.
fn both_ends<S: Connected>(device: &Arc<Device>, setup: &Setup, options: &Options) -> Result<Duration, Failure> {
    let mut client = Player::<S>::of_service(device, setup, Role::Client)?;
    let mut server = Player::<S>::of_service(device, setup, Role::Server)?;
    print_memory(&client);
    print_memory(&server);
    let (ours, theirs) = (client.address()?, server.address()?);
    ours.print("local");
    theirs.print("remote");
    server.connect(&ours, None)?;
    client.connect(&theirs, None)?;
    let elapsed = timed(|| match setup.events || setup.own_events {
        true => on_two_threads(&mut client, &mut server),
        false => {
            client.begin()?;
            in_turn(device, [&mut client, &mut server], Player::is_done, Player::turn)
        }
    })?;
    print_status(&client, options)?;
    print_status(&server, options)?;
    Ok(elapsed)
}

fn on_two_threads<S: Connected>(client: &mut Player<S>, server: &mut Player<S>) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let server = scope.spawn(|| server.play());
        client.play()?;
        server.join().map_err(|_| "the server's thread panicked")?
    })
}

/// Prints what the card says of an end's queue pair, if `options` asks for it.
fn print_status(player: &Player<impl Connected>, options: &Options) -> Result<(), Failure> {
    if !options.status {
        return Ok(());
    }
    let now = player.queue_pair().query()?;
    println!(
        "  queue pair:     {}, to QPN {:#08x}, GID {}, path MTU {}, next PSN {:#08x}, expected {:#08x}, {} receives used",
        now.state,
        now.remote_qpn,
        Ipv6Addr::from(now.path.gid),
        now.path_mtu.bytes().unwrap_or(0),
        now.next_send_psn,
        now.next_rcv_psn,
        now.hw_rq_counter
    );
    Ok(())
}

/// Prints an end's memory, and the page sizes that the processor and the card use for it.
fn print_memory(player: &Player<impl Connected>) {
    let region = player.region();
    let kib = |bytes: usize| bytes >> 10;
    println!(
        "  memory:         {} KiB, pages of {} KiB here, of {} KiB to the card",
        kib(region.len()),
        kib(region.page_size()),
        kib(region.card_page_size())
    );
}
