//! Ceph's messenger benchmark: what `ceph_perf_msgr_client` and `ceph_perf_msgr_server` are, each of which may be the
//! other end.

mod client;
mod common;
mod server;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use mlx5_ceph::stack::OwnedNeighbours;
use mlx5_ceph::{Messenger, MessengerOptions};
use mlx5_dv::{Device, Gid};
use mlx5_neighbours::Network;
use mlx5_open::{Sim, program};

use client::Client;
use common::{Failure, seconds};
use server::Server;

/// Ceph's messenger over RDMA, client and server. Without a command both run in this process, on two functions of a
/// software card, and every byte is checked.
#[derive(Debug, Parser)]
#[command(name = "ceph_msgr", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer operations of any client, such as ceph_perf_msgr_client, until it is killed.
    Server {
        #[command(flatten)]
        device: DeviceArguments,
        #[command(flatten)]
        server: Server,
        /// Address to listen on, by which clients call it.
        #[arg(value_name = "ADDRESS:PORT")]
        bind: SocketAddr,
    },
    /// Send operations to a server, such as ceph_perf_msgr_server, and wait for their answers.
    Client {
        #[command(flatten)]
        device: DeviceArguments,
        #[command(flatten)]
        client: Client,
        /// The server.
        #[arg(value_name = "ADDRESS:PORT")]
        server: SocketAddr,
    },
}

#[derive(Debug, Args)]
struct DeviceArguments {
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
    /// IP address and prefix of the function, such as 10.0.0.4/24. On devx: one that its network interface has.
    #[arg(long, value_name = "ADDRESS/PREFIX[,GATEWAY]")]
    ip: Option<Network>,
    /// Index of the local GID. By default that of --ip, or 0, the link-local one.
    #[arg(short = 'x', long = "gid-index")]
    gid_index: Option<u8>,
    /// Bytes of a chunk, the same on both ends (ms_async_rdma_buffer_size).
    #[arg(long, default_value_t = 131072, value_parser = clap::value_parser!(u32).range(512..=1 << 20))]
    buffer_size: u32,
    /// Chunks to send from (ms_async_rdma_send_buffers).
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=16384))]
    send_buffers: u32,
    /// Chunks to receive into (ms_async_rdma_receive_queue_len).
    #[arg(long, default_value_t = 255, value_parser = clap::value_parser!(u32).range(1..=16383))]
    receive_queue_len: u32,
    /// How often a silent end is asked whether it is alive, in seconds; after four times as long it counts as gone.
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = some_seconds)]
    keepalive: Duration,
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    let time = seconds(text)?;
    if time.is_zero() { Err("a time longer than 0 is needed".into()) } else { Ok(time) }
}

impl DeviceArguments {
    /// A messenger on the device, with what is asked for added to `options`.
    fn open(&self, mut options: MessengerOptions) -> Result<Messenger, Failure> {
        let device = mlx5_open::open_at(&self.device, self.ip.map(|network| network.address()))?;
        let stack = &mut options.stack;
        stack.events = true;
        (stack.buffer_size, stack.gid_index) = (self.buffer_size as usize, self.gid_index(&device)?);
        (stack.send_buffers, stack.receive_queue_len) = (self.send_buffers, self.receive_queue_len);
        options.keepalive = self.keepalive;
        let mut messenger = Messenger::new(&device, options)?;
        if device.is_owned() {
            messenger.stack().find_by(Box::new(OwnedNeighbours::start(&device, self.ip)?));
        }
        Ok(messenger)
    }

    fn gid_index(&self, device: &Device) -> Result<u8, Failure> {
        let (None, Some(network)) = (self.gid_index, self.ip) else { return Ok(self.gid_index.unwrap_or(0)) };
        let is_its = |gid: &Gid| gid.address.to_canonical() == network.address();
        let gid = device.gids().into_iter().find(is_its).ok_or("the device has no GID of --ip")?;
        Ok(gid.index.try_into()?)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("ceph_msgr", || match arguments.command {
        None => both(),
        Some(Command::Server { device, server, bind }) => {
            let options = server.options(MessengerOptions::osd(0));
            server.run(device.open(options)?, bind, |_| (), || false)
        }
        Some(Command::Client { device, client, server }) => {
            let options = client.options(MessengerOptions::client(0));
            client.run(device.open(options)?, server)
        }
    })
}

/// Server and client on two functions of a software card, a thread each.
fn both() -> Result<(), Failure> {
    let sim = Sim::builder().functions(2).build()?;
    let (near, far) = (sim.open(0)?, sim.open(1)?);
    let (address, is_done) = (std::sync::mpsc::channel(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let at = SocketAddr::from(([127, 0, 0, 1], 0));
            let told = |bound| address.0.send(bound).unwrap_or(());
            let server = Server::default();
            let messenger = Messenger::new(&far, server.options(MessengerOptions::osd(0)))?;
            server.run(messenger, at, told, || is_done.load(Ordering::Relaxed))
        });
        let patience = Duration::from_secs(10);
        let result = match address.1.recv_timeout(patience) {
            Ok(server) => {
                let client = Client::default();
                let options = client.options(MessengerOptions::client(0));
                Messenger::new(&near, options).map_err(Into::into).and_then(|messenger| client.run(messenger, server))
            }
            Err(error) => Err(error.into()),
        };
        is_done.store(true, Ordering::Relaxed);
        let served = serving.join().unwrap_or_else(|_| Err("the server panicked".into()));
        result.and(served)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{Arguments, some_seconds};

    #[test]
    fn each_command_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_time_is_some_seconds() {
        assert_eq!(some_seconds("0.5"), Ok(std::time::Duration::from_millis(500)));
        assert!(some_seconds("0").unwrap_err().contains("longer than 0"));
        for text in ["", "-1", "1e30", "inf", "NaN", "ten"] {
            assert!(some_seconds(text).unwrap_err().contains("such as 10"), "{text}");
        }
    }
}
