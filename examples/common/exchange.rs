//! Exchange of queue pair addresses over TCP, in the format of libibverbs' `ibv_rc_pingpong` (one address each way) and
//! `ibv_srq_pingpong` (256), so that either end may be that program.
//!
//! The client sends its addresses as text, the server connects its queue pairs and answers with its own, the client
//! connects and says `done`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use mlx5_dv::Mac;
use mlx5_dv::queue::Peer;
use mlx5_open::rendezvous;

/// The address of a queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Address {
    /// Local identifier: 0 on Ethernet.
    pub lid: u16,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// First packet sequence number that this end sends, 24 bits.
    pub psn: u32,
    /// GID that this end sends from.
    pub gid: [u8; 16],
}

impl From<Peer> for Address {
    fn from(Peer { lid, qpn, psn, gid, .. }: Peer) -> Self {
        Address { lid, qpn, psn, gid }
    }
}

impl Address {
    /// As a connection takes it; `mac` is the GID's MAC address, unless the driver derives it.
    pub fn peer(self, mac: Option<Mac>) -> Peer {
        let Address { lid, qpn, psn, gid } = self;
        Peer { qpn, psn, gid, lid, mac }
    }

    /// Prints a line, as libibverbs' programs do; `whose` is `local` or `remote`.
    pub fn print(&self, whose: &str) {
        let Address { lid, qpn, psn, gid } = *self;
        let whose = format!("{whose} address:");
        println!("  {whose:<15} LID 0x{lid:04x}, QPN 0x{qpn:06x}, PSN 0x{psn:06x}, GID {}", Ipv6Addr::from(gid));
    }
}

/// Bytes of an address on the wire, with its terminating zero.
const MESSAGE: usize = "0000:000000:000000:00000000000000000000000000000000\0".len();
/// The client's last message, with its terminating zero.
const DONE: &[u8; 5] = b"done\0";

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:06x}:{:06x}:", self.lid, self.qpn, self.psn)?;
        self.gid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The other end sent an invalid address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid address {0:?}: expected lid:qpn:psn:gid in hexadecimal")]
pub struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        parse(text).ok_or_else(|| BadAddress(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Address> {
    let mut parts = text.split(':');
    let mut number = |max: u32| u32::from_str_radix(parts.next()?, 16).ok().filter(|n| *n <= max);
    let (lid, qpn, psn) = (number(0xffff)?, number(0xff_ffff)?, number(0xff_ffff)?);
    let hex = parts.next().filter(|hex| hex.len() == 32 && hex.is_ascii())?;
    let mut gid = [0; 16];
    for (i, byte) in gid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
    }
    parts.next().is_none().then_some(Address { lid: lid as u16, qpn, psn, gid })
}

/// The server's side of one exchange: the client's addresses are known, ours not yet sent.
#[derive(Debug)]
pub struct Accepted<const N: usize> {
    stream: TcpStream,
    /// The client's addresses, one for each queue pair.
    pub remote: [Address; N],
}

/// Waits up to `patience` for the `N` addresses of one client on TCP `port`.
pub fn accept<const N: usize>(port: u16, patience: Duration) -> io::Result<Accepted<N>> {
    let mut stream = rendezvous::accept(port, patience)?;
    let remote = read_addresses(&mut stream)?;
    Ok(Accepted { stream, remote })
}

impl<const N: usize> Accepted<N> {
    /// Sends our addresses. Call once our queue pairs are connected; waits until the client's are, too.
    pub fn answer(mut self, mine: &[Address; N]) -> io::Result<()> {
        write_addresses(&mut self.stream, mine)?;
        let mut done = [0; DONE.len()];
        self.stream.read_exact(&mut done)
    }
}

/// Sends our addresses to the server at `host`, and returns the server's. Call [`finish`](Asked::finish) once our queue
/// pairs are connected. Retries for up to `patience` while the server does not listen yet.
pub fn ask<const N: usize>(host: &str, port: u16, mine: &[Address; N], patience: Duration) -> io::Result<Asked<N>> {
    let mut stream = rendezvous::connect(host, port, patience)?;
    write_addresses(&mut stream, mine)?;
    let remote = read_addresses(&mut stream)?;
    Ok(Asked { stream, remote })
}

/// The client's side of one exchange.
#[derive(Debug)]
pub struct Asked<const N: usize> {
    stream: TcpStream,
    /// The server's addresses, one for each queue pair.
    pub remote: [Address; N],
}

impl<const N: usize> Asked<N> {
    /// Tells the server that our queue pairs are connected.
    pub fn finish(mut self) -> io::Result<()> {
        self.stream.write_all(DONE)
    }
}

fn write_addresses(stream: &mut TcpStream, addresses: &[Address]) -> io::Result<()> {
    let messages: String = addresses.iter().map(|address| format!("{address}\0")).collect();
    stream.write_all(messages.as_bytes())
}

fn read_addresses<const N: usize>(stream: &mut TcpStream) -> io::Result<[Address; N]> {
    let mut addresses = [Address::default(); N];
    for address in &mut addresses {
        *address = read_address(stream)?;
    }
    Ok(addresses)
}

fn read_address(stream: &mut TcpStream) -> io::Result<Address> {
    let mut message = [0; MESSAGE];
    stream.read_exact(&mut message)?;
    let text = String::from_utf8_lossy(&message);
    text.trim_end_matches('\0').parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const CLIENT: Address =
        Address { lid: 0, qpn: 0x4a, psn: 0xabcdef, gid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1] };

    #[test]
    fn the_text_is_the_one_ibv_rc_pingpong_writes() {
        assert_eq!(CLIENT.to_string(), "0000:00004a:abcdef:fe80000000000000020000fffe000001");
        assert_eq!(CLIENT.to_string().len() + 1, MESSAGE);
    }

    #[test]
    fn an_address_survives_the_text() {
        assert_eq!(CLIENT.to_string().parse(), Ok(CLIENT));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "0:0:0",
            "0000:1000000:000000:00000000000000000000000000000000",
            "0:1:2:zz",
            "0:1:2:3:4",
            "0:1:2:\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_server_and_a_client_learn_each_others_addresses() {
        let server_address = Address { qpn: 0x77, psn: 1, ..CLIENT };
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map(|a| a.port()).expect("a free port");
        let server = std::thread::spawn(move || {
            let accepted = accept(port, Duration::from_secs(10))?;
            let remote = accepted.remote;
            accepted.answer(&[server_address; 2]).map(|()| remote)
        });
        let mine = [CLIENT, Address { psn: 2, ..CLIENT }];
        let asked = ask("127.0.0.1", port, &mine, Duration::from_secs(10)).expect("an answer");
        assert_eq!(asked.remote, [server_address; 2]);
        asked.finish().expect("done sent");
        assert_eq!(server.join().expect("no panic").expect("served"), mine);
    }
}
