//! LNet over RDMA from the command line: pings a node, measures it, or answers.

mod serve;
mod work;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Parser, Subcommand};
use mlx5_dv::Device;
use mlx5_lnet::{Lnet, Nid, Options, PORT};
use mlx5_neighbours::{Neighbours, Network};
use mlx5_open::{Sim, program};

use serve::serve;
use work::{Brw, Failure, brw, ping};

/// LNet over RDMA in user space: Lustre's o2iblnd. Without a command two nodes run in this process, on two functions of
/// a software card: one pings the other, writes and reads, with and without gaps, and compares.
#[derive(Debug, Parser)]
#[command(name = "lnet", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ask a node for its interfaces, as lctl ping does.
    Ping {
        #[command(flatten)]
        node: NodeArguments,
        /// The node, such as 10.0.0.1@o2ib.
        peer: Nid,
    },
    /// Write to a node that runs `lnet serve`, read back, and compare.
    Brw {
        #[command(flatten)]
        node: NodeArguments,
        #[command(flatten)]
        brw: Brw,
        /// The node, such as 10.0.0.1@o2ib.
        peer: Nid,
    },
    /// Answer `lnet brw` and pings, also of Lustre's nodes, until it is killed.
    Serve {
        #[command(flatten)]
        node: NodeArguments,
    },
}

#[derive(Debug, Args)]
struct NodeArguments {
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
    /// IPv4 address and prefix of the function, such as 10.0.0.4/24. The node's NID is this address @o2ib.
    #[arg(long, value_name = "ADDRESS/PREFIX[,GATEWAY]", value_parser = host)]
    ip: Host,
    /// Number of the network: 3 for o2ib3.
    #[arg(long, default_value_t = 0)]
    network: u16,
    /// Port to listen on, and to connect to.
    #[arg(short, long, default_value_t = PORT)]
    port: u16,
    /// Messages under way in each direction.
    #[arg(long, default_value_t = 8)]
    peer_credits: u16,
}

/// A network of IPv4: other addresses fit into no NID.
#[derive(Debug, Clone, Copy)]
struct Host {
    address: Ipv4Addr,
    network: Network,
}

fn host(text: &str) -> Result<Host, String> {
    let network: Network = text.parse()?;
    match network.address() {
        IpAddr::V4(address) => Ok(Host { address, network }),
        IpAddr::V6(_) => Err(format!("{text} is of IPv6, and a NID is an IPv4 address")),
    }
}

impl NodeArguments {
    fn open(&self) -> Result<Lnet, Failure> {
        let device = mlx5_open::open_at(&self.device, Some(self.ip.address.into()))?;
        // On `devx:` the kernel finds MAC addresses.
        let neighbours = Neighbours::start_if_owned(&device, Some(self.ip.network))?;
        let mut options = Options::new(Nid::o2ib(self.ip.address, self.network));
        (options.port, options.queue_depth) = (self.port, self.peer_credits);
        Ok(Lnet::new(&device, neighbours, options)?)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    program::run("lnet", || match &arguments.command {
        None => both_ends(),
        Some(Command::Ping { node, peer }) => ping(&mut node.open()?, *peer),
        Some(Command::Brw { node, brw: with, peer }) => brw(&mut node.open()?, *peer, with),
        Some(Command::Serve { node }) => {
            let mut lnet = node.open()?;
            println!("{} listens on port {}", lnet.nid(), node.port);
            serve(&mut lnet, &AtomicBool::new(false))
        }
    })
}

/// A node of a function of the software card, which knows where the other is.
fn node(device: &Arc<Device>, nid: Nid, (peer, at): (Nid, &Arc<Device>)) -> Result<Lnet, Failure> {
    let mut lnet = Lnet::new(device, None, Options::new(nid))?;
    let address = at.gids().first().ok_or("the function has no GID")?.address;
    lnet.set_address(peer, SocketAddr::new(address.into(), PORT));
    Ok(lnet)
}

/// Two nodes on two functions of a software card.
fn both_ends() -> Result<(), Failure> {
    let sim = Sim::builder().functions(2).build()?;
    let devices = [sim.open(0)?, sim.open(1)?];
    let nids = [1, 2].map(|number| Nid::o2ib([10, 0, 0, number].into(), 0));
    let mut server = node(&devices[1], nids[1], (nids[0], &devices[0]))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(&mut server, &stop).map_err(|error| error.to_string()));
        let run = || {
            let mut lnet = node(&devices[0], nids[0], (nids[1], &devices[1]))?;
            ping(&mut lnet, nids[1])?;
            for gaps in [false, true] {
                brw(&mut lnet, nids[1], &Brw { gaps, ..Brw::default() })?;
            }
            Ok(())
        };
        let ran = run();
        stop.store(true, Ordering::Relaxed);
        served.join().map_err(|_| "the server's thread panicked")??;
        ran
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
