//! Two ends that the RDMA connection manager connects: their options, and how they find each other.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use mlx5_cm::{ConnectionId, ConnectionManager, Event, Parameters, Route, Service};
use mlx5_dv::Device;
use mlx5_neighbours::Network;
use mlx5_open::Sim;

use crate::pingpong::Failure;

/// How long a client waits for its server, and a server for its client.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How long a client waits until it asks again.
const AGAIN: Duration = Duration::from_millis(100);

/// Which end to run, and on which device.
#[derive(Debug, Clone, Args)]
pub struct EndOptions {
    /// Connect to the server at this address. Without one both ends run in this process.
    host: Option<IpAddr>,
    /// Run as server.
    #[arg(long, conflicts_with = "host")]
    listen: bool,
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev")]
    device: Option<String>,
    /// IP address and prefix of a function that this program owns, such as 10.0.0.4/24.
    #[arg(long, value_name = "ADDRESS/PREFIX[,GATEWAY]")]
    ip: Option<Network>,
}

/// One end.
#[derive(Debug)]
pub struct End {
    /// Its device.
    pub device: Arc<Device>,
    /// Its connection manager. A server's listens.
    pub manager: ConnectionManager,
    /// Whom a client calls; `None` for a server.
    pub remote: Option<SocketAddr>,
}

impl EndOptions {
    /// Runs the end that the options name, or both, on two functions of a software card.
    pub fn run(&self, service: Service, end: impl Fn(End) -> Result<(), Failure> + Sync) -> Result<(), Failure> {
        if self.host.is_none() && !self.listen {
            if self.device.is_some() || self.ip.is_some() {
                return Err("-d and --ip need HOST or --listen: without them both ends run on a software card".into());
            }
            return both_ends(service, &end);
        }
        let device = self.device.as_deref().unwrap_or("sim");
        let device = mlx5_open::open_at(device, self.ip.map(|network| network.address()))?;
        let manager = ConnectionManager::start(&device, self.ip)?;
        end(match self.host {
            Some(host) => End { device, manager, remote: Some(SocketAddr::new(host, service.port)) },
            None => End::server(device, manager, service)?,
        })
    }
}

fn both_ends(service: Service, end: &(impl Fn(End) -> Result<(), Failure> + Sync)) -> Result<(), Failure> {
    let sim = Sim::builder().functions(2).build()?;
    let [here, there] = [sim.open(0)?, sim.open(1)?];
    let host = there.gids().first().ok_or("the function has no GID")?.address;
    let remote = Some(SocketAddr::new(host.into(), service.port));
    let manager = ConnectionManager::new(&there, None)?;
    let server = End::server(there, manager, service)?;
    let manager = ConnectionManager::new(&here, None)?;
    std::thread::scope(|scope| {
        let server = scope.spawn(move || end(server));
        end(End { device: here, manager, remote })?;
        server.join().map_err(|_| "the server's thread panicked")?
    })
}

impl End {
    fn server(device: Arc<Device>, mut manager: ConnectionManager, service: Service) -> Result<Self, Failure> {
        manager.listen(service)?;
        println!("listening on port {}", service.port);
        Ok(End { device, manager, remote: None })
    }
}

/// The parameters of a connection. The remote has half a second to acknowledge, as Linux's connection manager gives it
/// on RoCE: an emulated guest on a busy host is silent for longer than the default allows in all its tries.
pub fn route() -> Route {
    Route { local_ack_timeout: 17, ..Route::default() }
}

/// Asks the server at `remote` for a connection, and again if nobody listens yet. Returns the private data of its
/// answer, too.
pub fn call(
    manager: &mut ConnectionManager,
    remote: SocketAddr,
    parameters: &Parameters,
) -> Result<(ConnectionId, Vec<u8>), Failure> {
    let begin = Instant::now();
    loop {
        manager.connect(remote, route(), parameters)?;
        match manager.wait(PATIENCE)? {
            (id, Event::ConnectResponse { private_data, .. }) => return Ok((id, private_data)),
            (_, Event::Rejected { reason, .. }) if begin.elapsed() > PATIENCE => {
                return Err(format!("{remote} rejects: {reason}").into());
            }
            (_, Event::Rejected { .. }) => std::thread::sleep(AGAIN),
            (_, other) => return Err(format!("no connection to {remote}: {other}").into()),
        }
    }
}

/// Waits for a client's request. Returns who it is, and its private data.
pub fn called(manager: &mut ConnectionManager) -> Result<(ConnectionId, SocketAddr, Vec<u8>), Failure> {
    match manager.wait(PATIENCE)? {
        (id, Event::ConnectRequest { remote, private_data, .. }) => Ok((id, remote, private_data)),
        (_, other) => Err(format!("no request: {other}").into()),
    }
}
