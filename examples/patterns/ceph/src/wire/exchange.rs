//! The line that two ends exchange over TCP before they speak RDMA: where each finds the other's queue pair
//! (`src/msg/async/rdma/Infiniband.cc`, `send_cm_meta` and `recv_cm_meta`).

use std::fmt;

use mlx5_dv::queue::Peer;

/// One end's queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Line {
    /// Local identifier: 0 on Ethernet.
    pub lid: u16,
    /// Its queue pair number, 24 bits.
    pub qpn: u32,
    /// First PSN that it sends, 24 bits.
    pub psn: u32,
    /// The receiver's queue pair number as this end knows it: 0 in the client's first line.
    pub peer_qpn: u32,
    /// Its GID.
    pub gid: [u8; 16],
}

/// A line that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no address of a queue pair: wanted lid:qpn:psn:peer_qpn:gid in hexadecimal, and a zero byte")]
pub struct BadLine {
    /// What came.
    pub given: String,
}

/// Digits of the numbers of a line, each before a colon.
const DIGITS: [usize; 4] = [4, 8, 8, 8];
/// Digits of the GID.
const GID_DIGITS: usize = 32;

impl Line {
    /// Bytes of a line, with the zero byte at its end.
    pub const BYTES: usize = 4 + 1 + 3 * (8 + 1) + GID_DIGITS + 1;

    /// The line of a queue pair, `local`, for an end whose queue pair number is `peer_qpn`, or 0.
    pub fn new(local: &Peer, peer_qpn: u32) -> Self {
        Line { lid: local.lid, qpn: local.qpn, psn: local.psn, peer_qpn, gid: local.gid }
    }

    /// The queue pair to connect to. The line tells no MAC address.
    pub fn peer(&self) -> Peer {
        Peer { qpn: self.qpn, psn: self.psn, gid: self.gid, lid: self.lid, mac: None }
    }

    /// The line as bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..Self::BYTES - 1].copy_from_slice(self.to_string().as_bytes());
        bytes
    }

    /// The line of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// [`BadLine`] if it has other digits than it should, or a number of more than 24 bits where it names a queue pair
    /// or a PSN.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, BadLine> {
        parse(bytes).ok_or_else(|| BadLine { given: String::from_utf8_lossy(bytes).into_owned() })
    }
}

/// Reads `digits` hexadecimal digits, and the byte `end` behind them.
fn number(bytes: &mut &[u8], digits: usize, end: u8) -> Option<u128> {
    let (text, rest) = bytes.split_at_checked(digits)?;
    *bytes = rest.strip_prefix(&[end])?;
    let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u128::from_str_radix(text, 16).ok()
}

fn parse(bytes: &[u8; Line::BYTES]) -> Option<Line> {
    let mut rest = &bytes[..];
    let [lid, qpn, psn, peer_qpn] = DIGITS.map(|digits| number(&mut rest, digits, b':'));
    let gid = number(&mut rest, GID_DIGITS, 0)?;
    let of_24_bits = |number: Option<u128>| number.filter(|number| number >> 24 == 0).map(|number| number as u32);
    let (qpn, psn, peer_qpn) = (of_24_bits(qpn)?, of_24_bits(psn)?, of_24_bits(peer_qpn)?);
    Some(Line { lid: lid? as u16, qpn, psn, peer_qpn, gid: gid.to_be_bytes() })
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { lid, qpn, psn, peer_qpn, gid } = self;
        write!(f, "{lid:04x}:{qpn:08x}:{psn:08x}:{peer_qpn:08x}:{:032x}", u128::from_be_bytes(*gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8; Line::BYTES] = b"0000:000000c1:005a3c1d:000000c0:fe800000000000000000c5fffe000001\0";

    #[test]
    fn the_line_has_65_bytes_and_is_read_back() {
        let line = Line::from_bytes(TEXT).unwrap();
        assert_eq!((Line::BYTES, line.qpn, line.psn, line.peer_qpn), (65, 0xc1, 0x5a_3c1d, 0xc0));
        assert_eq!(line.to_bytes(), *TEXT);
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for (at, byte) in [(0, b'+'), (4, b' '), (5, b'1'), (6, b'x'), (64, b'0'), (40, b':'), (20, 0xff)] {
            let mut wrong = *TEXT;
            wrong[at] = byte;
            assert!(Line::from_bytes(&wrong).is_err(), "byte {at} is {byte}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::array::uniform32(any::<u8>()), at in 0usize..33) {
            let mut line = *TEXT;
            line[at..at + 32].copy_from_slice(&bytes);
            let _ = Line::from_bytes(&line);
        }
    }
}
