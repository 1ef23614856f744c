//! Exchange of queue pair addresses over TCP, in the format of libibverbs' `ibv_rc_pingpong`, so that either end may be
//! that program.
//!
//! The client sends its address as text, the server connects its queue pair and answers with its own, the client
//! connects and says `done`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::str::FromStr;
use std::time::Duration;

use mlx5_open::rendezvous;

/// The address of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// The server's side of one exchange: the client's address is known, ours not yet sent.
#[derive(Debug)]
pub struct Accepted {
    stream: TcpStream,
    /// The client's address.
    pub remote: Address,
}

/// Waits up to `patience` for one client's address on TCP `port`.
pub fn accept(port: u16, patience: Duration) -> io::Result<Accepted> {
    let mut stream = rendezvous::accept(port, patience)?;
    let remote = read_address(&mut stream)?;
    Ok(Accepted { stream, remote })
}

impl Accepted {
    /// Sends our address. Call once our queue pair is connected; waits until the client's is, too.
    pub fn answer(mut self, mine: &Address) -> io::Result<()> {
        write_address(&mut self.stream, mine)?;
        let mut done = [0; DONE.len()];
        self.stream.read_exact(&mut done)
    }
}

/// Sends our address to the server at `host`, and returns the server's. Call [`finish`](Asked::finish) once our queue
/// pair is connected. Retries for up to `patience` while the server does not listen yet.
pub fn ask(host: &str, port: u16, mine: &Address, patience: Duration) -> io::Result<Asked> {
    let mut stream = rendezvous::connect(host, port, patience)?;
    write_address(&mut stream, mine)?;
    let remote = read_address(&mut stream)?;
    Ok(Asked { stream, remote })
}

/// The client's side of one exchange.
#[derive(Debug)]
pub struct Asked {
    stream: TcpStream,
    /// The server's address.
    pub remote: Address,
}

impl Asked {
    /// Tells the server that our queue pair is connected.
    pub fn finish(mut self) -> io::Result<()> {
        self.stream.write_all(DONE)
    }
}

fn write_address(stream: &mut TcpStream, address: &Address) -> io::Result<()> {
    let mut message = address.to_string().into_bytes();
    message.push(0);
    stream.write_all(&message)
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
    fn a_server_and_a_client_learn_each_others_address() {
        let server_address = Address { qpn: 0x77, psn: 1, ..CLIENT };
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map(|a| a.port()).expect("a free port");
        let server = std::thread::spawn(move || {
            let accepted = accept(port, Duration::from_secs(10))?;
            let remote = accepted.remote;
            accepted.answer(&server_address).map(|()| remote)
        });
        let asked = ask("127.0.0.1", port, &CLIENT, Duration::from_secs(10)).expect("an answer");
        assert_eq!(asked.remote, server_address);
        asked.finish().expect("done sent");
        assert_eq!(server.join().expect("no panic").expect("served"), CLIENT);
    }
}
