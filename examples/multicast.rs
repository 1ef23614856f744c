//! Datagrams to a multicast group.
//!
//! Without `--listen` and `--send` both ends run in this process, on one card: two members hear what a third queue pair
//! sends. The other end may be this program, or librdmacm's `mckey` with the same group, count and size.

use std::net::{IpAddr, Ipv6Addr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mlx5_cm::{Group, UDP_QKEY, gid_of};
use mlx5_dv::Device;
use mlx5_dv::objects::{AddressHandle, AddressPath, Buffer, ExclusiveRegion, MULTICAST_QPN, Pd};
use mlx5_dv::queue::{DatagramOptions, DatagramQueue, GRH};
use mlx5_examples::host::Host;
use mlx5_examples::pingpong::Failure;
use mlx5_neighbours::{Neighbours, Network};
use mlx5_open::program;

/// How long to wait for a datagram.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends datagrams to a multicast group, or receives them.
#[derive(Debug, Parser)]
#[command(name = "multicast")]
struct Options {
    /// The group's address, IPv4 or IPv6.
    #[arg(default_value = "ff0e::8:1")]
    group: IpAddr,
    /// Receive only.
    #[arg(long)]
    listen: bool,
    /// Send only, without joining.
    #[arg(long, conflicts_with = "listen")]
    send: bool,
    /// Device: sim, vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock.
    #[arg(short = 'd', long = "ib-dev", default_value = "sim")]
    device: String,
    /// IPv4 address and prefix of the function, such as 10.0.0.4/24: for groups of IPv4. On devx: one that its network
    /// interface has.
    #[arg(long, value_name = "ADDRESS/PREFIX[,GATEWAY]")]
    ip: Option<Network>,
    /// Number of datagrams.
    #[arg(short = 'C', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=4096))]
    count: u32,
    /// Bytes of each.
    #[arg(short = 'S', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1024))]
    size: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("multicast", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let mut host = Host::open(&options.device, options.ip)?;
    let device = Arc::clone(host.device());
    if options.send {
        return Member::new(&device, options)?.send(options);
    }
    // The network is told of members.
    host.answer(options.ip);
    let mut members = vec![Member::new(&device, options)?];
    if !options.listen {
        members.push(Member::new(&device, options)?);
    }
    let join = |member: &Member| member.join(host.neighbours());
    let joined: Vec<Group> = members.iter().map(join).collect::<Result<_, _>>()?;
    println!("{} in {}", if options.listen { "listening" } else { "two members" }, options.group);
    if !options.listen {
        Member::new(&device, options)?.send(options)?;
    }
    for member in &mut members {
        member.hear(options)?;
    }
    joined.into_iter().try_for_each(Group::leave)?;
    Ok(())
}

/// A queue pair, whose receives are posted, and a buffer to send from.
struct Member {
    queue: DatagramQueue,
    spare: Option<Buffer>,
    group: IpAddr,
}

impl Member {
    /// Creates the queue pair, and posts the receives.
    fn new(device: &Arc<Device>, options: &Options) -> Result<Self, Failure> {
        let (pd, slot, count) = (Pd::alloc(device)?, GRH + options.size as usize, options.count as usize);
        let region = ExclusiveRegion::allocate(&pd, slot * (count + 1))?;
        let buffer = |number: usize| region.buffer(slot * number..slot * (number + 1));
        let mut queue = DatagramQueue::new(&pd, DatagramOptions::new(UDP_QKEY).recv_depth(options.count).events())?;
        let mut receives = queue.receives();
        for number in 0..count {
            receives.receive(buffer(number)?)?;
        }
        receives.ring();
        Ok(Member { queue, spare: Some(buffer(count)?), group: options.group })
    }

    fn join(&self, neighbours: Option<&Neighbours>) -> Result<Group, Failure> {
        Ok(Group::join(self.queue.queue_pair(), self.group, neighbours, PATIENCE)?)
    }

    /// Sends all datagrams, each after the other's completion.
    fn send(&mut self, options: &Options) -> Result<(), Failure> {
        let device = Arc::clone(self.queue.queue_pair().device());
        let path = AddressPath::group(gid_of(self.group)).ok_or("not a multicast address")?;
        let is_ipv4 = |address: Ipv6Addr| address.to_ipv4_mapped().is_some();
        // Source and destination are of the same family.
        let ours = device.gids().into_iter().find(|gid| is_ipv4(gid.address) == options.group.is_ipv4());
        let index = ours.ok_or("the port has no address of the group's family")?.index;
        let to = AddressHandle::new(&device, &path.gid_index(u8::try_from(index)?), MULTICAST_QPN, UDP_QKEY)?;
        for number in 0..options.count {
            let mut buffer = self.spare.take().ok_or("no buffer")?;
            buffer.set_len(options.size as usize);
            buffer.as_mut_slice().copy_from_slice(&datagram(number, options.size));
            self.queue.send(&to, buffer)?;
            let done = self.queue.wait(PATIENCE)?;
            done.result?;
            self.spare = done.buffer;
        }
        println!("{} datagrams sent to {}", options.count, options.group);
        Ok(())
    }

    /// Awaits all datagrams.
    fn hear(&mut self, options: &Options) -> Result<(), Failure> {
        let mut sender = 0;
        for number in 0..options.count {
            let done = self.queue.wait(PATIENCE)?;
            let completion = done.result?;
            let bytes = done.received().and_then(|bytes| bytes.get(GRH..)).ok_or("not a datagram")?;
            // What `mckey` sends is not defined.
            if !options.listen && bytes != datagram(number, options.size) {
                return Err(format!("datagram {number} arrived changed").into());
            }
            sender = completion.remote_qpn;
        }
        println!("{} datagrams of {} bytes heard, from QP {sender:#x}", options.count, options.size);
        Ok(())
    }
}

/// The bytes of a datagram.
fn datagram(number: u32, size: u32) -> Vec<u8> {
    (0..size).map(|at| (number * 7 + at) as u8).collect()
}
