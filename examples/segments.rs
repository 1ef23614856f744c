//! Packets of TCP longer than the MTU, which the card divides into frames (TSO).
//!
//! `segments` sends from one function of a software card to the other. `segments -d DEVICE --to MAC` sends to any port
//! on the wire, where whoever listens sees frames in sequence, each with its own headers and checksums.

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use mlx5_dv::Mac;
use mlx5_dv::objects::{ExclusiveRegion, Pd};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue};
use mlx5_examples::pingpong::Failure;
use mlx5_open::{Sim, program};

/// Timeout of a packet.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the longest headers: Ethernet, IPv6, TCP.
const HEADERS: usize = 14 + 40 + 20;
/// Sequence number of the first byte.
const SEQUENCE: u32 = 1000;
/// TCP's flags PSH and ACK.
const FLAGS: u8 = 0x18;

/// Sends long packets of TCP, which the card divides into frames.
#[derive(Debug, Parser)]
#[command(name = "segments")]
struct Options {
    /// Device: vfio:0000:3b:00.0, devx:mlx5_0, vfio-user:/run/nic.sock; by default one function of a software card.
    #[arg(short, long, requires = "to")]
    device: Option<String>,
    /// MAC address of the receiver, as 02:00:c5:00:00:01.
    #[arg(long, requires = "device", value_parser = mac)]
    to: Option<Mac>,
    /// Source address, IPv4 or IPv6.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)))]
    source: IpAddr,
    /// Destination address, of the same family.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77)))]
    destination: IpAddr,
    /// Destination port.
    #[arg(short, long, default_value_t = 7007)]
    port: u16,
    /// Number of packets.
    #[arg(short, long, default_value_t = 3)]
    iters: u32,
    /// Payload of a packet in bytes.
    #[arg(short, long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    size: u32,
    /// Payload of a frame in bytes.
    #[arg(short, long, default_value_t = 1400)]
    mss: u16,
}

/// A MAC address in the usual form.
fn mac(text: &str) -> Result<Mac, String> {
    let bytes: Vec<u8> = text.split(':').map_while(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes.try_into().map(Mac).map_err(|_| "six bytes in hexadecimal, between colons".into())
}

fn main() -> ExitCode {
    let options = Options::parse();
    program::run("segments", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let (device, to) = match (&options.device, options.to) {
        (Some(device), Some(to)) => (mlx5_open::open(device)?, to),
        _ => {
            let sim = Sim::builder().functions(2).build()?;
            (sim.open(0)?, sim.open(1)?.mac())
        }
    };
    let pd = Pd::alloc(&device)?;
    let mut queue = EthernetQueue::new(&pd, EthernetOptions::default().inline_bytes(HEADERS as u16))?;
    let size = options.size as usize;
    let mut spare = Some(ExclusiveRegion::allocate(&pd, HEADERS + size)?.buffer(0..HEADERS + size)?);
    for number in 0..options.iters {
        let headers = headers(to, device.mac(), options, SEQUENCE.wrapping_add(number.wrapping_mul(options.size)))?;
        let mut buffer = spare.take().ok_or("no buffer")?;
        buffer.set_len(headers.len() + size);
        let (head, payload) = buffer.as_mut_slice().split_at_mut(headers.len());
        head.copy_from_slice(&headers);
        (0u32..).zip(payload).for_each(|(at, byte)| *byte = (at * 7 + number) as u8);
        queue.send_large(buffer, headers.len(), options.mss)?;
        let done = queue.wait(PATIENCE)?;
        done.result?;
        spare = done.buffer;
    }
    let (frames, mss) = (options.size.div_ceil(options.mss.max(1).into()), options.mss);
    println!("{} packets of {size} bytes, each divided into {frames} frames of up to {mss} bytes", options.iters);
    Ok(())
}

/// Headers of the packet whose first byte is `sequence`. The card sets lengths and checksums.
fn headers(to: Mac, from: Mac, options: &Options, sequence: u32) -> Result<Vec<u8>, Failure> {
    let (kind, ip) = match (options.source, options.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let fixed = [0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0];
            (0x0800u16, [&fixed[..], &source.octets(), &destination.octets()].concat())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let fixed = [0x60, 0, 0, 0, 0, 0, 6, 64];
            (0x86dd, [&fixed[..], &source.octets(), &destination.octets()].concat())
        }
        _ => return Err("source and destination are of different families".into()),
    };
    let tcp = [&[0x30, 0x39][..], &options.port.to_be_bytes(), &sequence.to_be_bytes(), &[0, 0, 0, 7, 0x50, FLAGS]];
    let rest = [1, 0, 0, 0, 0, 0];
    Ok([&to.0[..], &from.0, &kind.to_be_bytes(), &ip, &tcp.concat(), &rest].concat())
}
