//! What perftest's programs tell each other: version, page size and MTU; queue pairs and memory; results.
//!
//! All of it is of fixed length, and goes both ways: the client says it first, the server answers with its own. Queue
//! pairs are text over TCP, and a structure on a queue pair of the connection manager's. As in perftest's
//! `src/perftest_communication.c`, version 6.24 (release 25.01). From 6.28 on the ends also compare their flags, but
//! not with one that is older.

use std::fmt::Write;

/// The version that we are.
pub const VERSION: f64 = 6.24;
/// The oldest that perftest of today talks to.
pub const OLDEST: f64 = 5.70;
/// The first whose structure of a queue pair has a second address.
const TWO_ADDRESSES: f64 = 6.29;

/// What came is not what perftest sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} from the other end: is it perftest's program of the same test, with the same flags?")]
pub struct Malformed {
    what: &'static str,
}

fn malformed<T>(what: &'static str) -> Result<T, Malformed> {
    Err(Malformed { what })
}

/// A text behind which the field is zero.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let bytes = text.as_bytes();
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
}

fn text_of<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str, Malformed> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).or(malformed(what))
}

/// Our version, as it is sent.
pub fn version() -> [u8; 16] {
    padded(&VERSION.to_string())
}

/// The version of the other end.
///
/// # Errors
/// [`Malformed`]: it is none.
pub fn parse_version(bytes: &[u8; 16]) -> Result<f64, Malformed> {
    const WHAT: &str = "version";
    let text = text_of(bytes, WHAT)?;
    match text.parse::<f64>() {
        Ok(version) if text.starts_with(|first: char| first.is_ascii_digit()) && version.is_finite() => Ok(version),
        _ => malformed(WHAT),
    }
}

/// The path MTU of `number`, 1 for 256 bytes to 5 for 4096, as it is sent.
pub fn mtu(number: u8) -> [u8; 2] {
    padded(&number.to_string())
}

/// The number of the other end's path MTU.
///
/// # Errors
/// [`Malformed`]: it is not from 1 to 5.
pub fn parse_mtu(bytes: [u8; 2]) -> Result<u8, Malformed> {
    const WHAT: &str = "path MTU";
    match text_of(&bytes, WHAT)?.parse() {
        Ok(number @ 1..=5) => Ok(number),
        _ => malformed(WHAT),
    }
}

/// A queue pair and its memory (`struct pingpong_dest`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keys {
    /// Local identifier: 0 on Ethernet.
    pub lid: u16,
    /// Outstanding READs and atomics.
    pub out_reads: u16,
    /// Queue pair number.
    pub qpn: u32,
    /// First PSN that it sends.
    pub psn: u32,
    /// Key of the memory.
    pub rkey: u32,
    /// Address of the memory.
    pub vaddr: u64,
    /// Its GID; `None` on InfiniBand without one.
    pub gid: Option<[u8; 16]>,
    /// Number of its shared receive queue.
    pub srqn: u32,
}

impl Keys {
    /// Bytes of the shorter form, which has no GID, and of the first part of the longer one.
    pub const SHORT: usize = 59;
    /// Bytes of the form with a GID.
    pub const LONG: usize = 108;
    /// The fields up to the address, with a colon behind each.
    const HEAD: usize = 50;

    /// The whole length of keys that begin with `first`: in the longer form the first byte of a GID follows.
    pub fn length(first: &[u8; Self::SHORT]) -> usize {
        if first[Self::HEAD + 2] == b':' { Self::LONG } else { Self::SHORT }
    }

    /// As they are sent, with a zero at the end.
    pub fn to_bytes(self) -> Vec<u8> {
        let Keys { lid, out_reads, qpn, psn, rkey, vaddr, gid, srqn } = self;
        let mut text = format!("{lid:04x}:{out_reads:04x}:{qpn:06x}:{psn:06x}:{rkey:08x}:{vaddr:016x}:");
        for byte in gid.into_iter().flatten() {
            let _ = write!(text, "{byte:02x}:");
        }
        text += &format!("{srqn:08x}{}\0", if gid.is_some() { ":" } else { "" });
        text.into_bytes()
    }

    /// As they are sent on a queue pair to an end of `version`.
    pub fn to_structure(self, version: f64) -> Vec<u8> {
        let Keys { lid, out_reads, qpn, psn, rkey, vaddr, gid, srqn } = self;
        let mut bytes = Vec::with_capacity(Self::STRUCTURES[1]);
        [lid.into(), out_reads.into(), qpn, psn, rkey, 0_u32].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        bytes.extend(vaddr.to_be_bytes());
        if version >= TWO_ADDRESSES {
            bytes.extend([0; 8]);
        }
        bytes.extend(gid.unwrap_or_default());
        // The last is the index of the GID.
        [srqn, 0].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        bytes
    }

    /// Bytes of the structure, without a second address and with one.
    pub const STRUCTURES: [usize; 2] = [56, 64];

    /// Reads the structure.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse_structure(bytes: &[u8]) -> Result<Self, Malformed> {
        const WHAT: &str = "queue pair";
        if !Self::STRUCTURES.contains(&bytes.len()) {
            return malformed(WHAT);
        }
        let (head, tail) = (bytes.first_chunk::<32>(), bytes.last_chunk::<24>());
        let (Some(head), Some(tail)) = (head, tail) else { return malformed(WHAT) };
        let word =
            |bytes: &[u8], at: usize| bytes[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let short = |at: usize| u16::try_from(word(head, at)).or(malformed(WHAT));
        let small = |at: usize| Some(word(head, at)).filter(|word| word >> 24 == 0).ok_or(Malformed { what: WHAT });
        let (high, low) = (word(head, 24), word(head, 28));
        Ok(Keys {
            lid: short(0)?,
            out_reads: short(4)?,
            qpn: small(8)?,
            psn: small(12)?,
            rkey: word(head, 16),
            vaddr: u64::from(high) << 32 | u64::from(low),
            gid: tail.first_chunk().copied(),
            srqn: word(tail, 16),
        })
    }

    /// Reads either form of the text.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        const WHAT: &str = "queue pair";
        let number = |word: &str, digits: usize| match word.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            true if word.len() == digits => u64::from_str_radix(word, 16).or(malformed(WHAT)),
            _ => malformed(WHAT),
        };
        let small = |word: &str, digits| u32::try_from(number(word, digits)?).or(malformed(WHAT));
        let short = |word: &str| u16::try_from(number(word, 4)?).or(malformed(WHAT));
        let text = text_of(bytes, WHAT)?;
        let words: Vec<&str> = text.split(':').collect();
        let (&[lid, out_reads, qpn, psn, rkey, vaddr], rest) =
            words.split_first_chunk().ok_or(Malformed { what: WHAT })?;
        let (gid, srqn) = match rest {
            [srqn] => (None, srqn),
            [gid @ .., srqn, ""] if gid.len() == 16 => {
                let mut bytes = [0; 16];
                for (byte, word) in bytes.iter_mut().zip(gid) {
                    *byte = u8::try_from(number(word, 2)?).or(malformed(WHAT))?;
                }
                (Some(bytes), srqn)
            }
            _ => return malformed(WHAT),
        };
        Ok(Keys {
            lid: short(lid)?,
            out_reads: short(out_reads)?,
            qpn: small(qpn, 6)?,
            psn: small(psn, 6)?,
            rkey: small(rkey, 8)?,
            vaddr: number(vaddr, 16)?,
            gid,
            srqn: small(srqn, 8)?,
        })
    }
}

/// What the sender of a bandwidth test measured, in its own unit: MiB/s, or Gb/s with `--report_gbits`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Bytes of a message.
    pub size: u64,
    /// Messages.
    pub iterations: u64,
    /// The highest rate; 0 if not measured.
    pub peak: f64,
    /// The average rate.
    pub average: f64,
    /// Millions of messages a second.
    pub message_rate: f64,
}

impl Rates {
    /// As they are sent, one after the other.
    pub fn to_words(self) -> [[u8; 8]; 5] {
        let floats = [self.peak, self.average, self.message_rate].map(f64::to_be_bytes);
        let [peak, average, message_rate] = floats;
        [self.size.to_be_bytes(), self.iterations.to_be_bytes(), peak, average, message_rate]
    }

    /// Reads them.
    ///
    /// # Errors
    /// [`Malformed`]: a rate is negative, or no number.
    pub fn parse([size, iterations, peak, average, message_rate]: [[u8; 8]; 5]) -> Result<Self, Malformed> {
        let rate = |bytes| match f64::from_be_bytes(bytes) {
            rate if rate.is_finite() && rate >= 0.0 => Ok(rate),
            _ => malformed("result"),
        };
        Ok(Rates {
            size: u64::from_be_bytes(size),
            iterations: u64::from_be_bytes(iterations),
            peak: rate(peak)?,
            average: rate(average)?,
            message_rate: rate(message_rate)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two lines as perftest 25.01 prints them with its own formats.
    const SHORT: &[u8] = b"0001:0010:00010b:f00d42:00001234:00007f0012345000:00000000\0";
    const LONG: &[u8] = b"0000:0010:00010b:f00d42:00001234:00007f0012345000:\
        00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:02:00000000:\0";

    #[test]
    fn keys_are_read_and_written_in_both_forms() {
        let keys = Keys {
            lid: 0,
            out_reads: 16,
            qpn: 0x10b,
            psn: 0xf0_0d42,
            rkey: 0x1234,
            vaddr: 0x7f00_1234_5000,
            gid: Some([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]),
            srqn: 0,
        };
        for (bytes, keys) in [(LONG, keys), (SHORT, Keys { gid: None, lid: 1, ..keys })] {
            let first = bytes.first_chunk().expect("long enough");
            assert_eq!((Keys::length(first), Keys::parse(bytes)), (bytes.len(), Ok(keys)));
            assert_eq!(keys.to_bytes(), bytes);
        }
        assert_eq!((SHORT.len(), LONG.len()), (Keys::SHORT, Keys::LONG));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let bad = |from: &str, to: &str| {
            let changed = text(LONG).replacen(from, to, 1);
            assert_ne!(changed.as_bytes(), LONG, "{from}");
            Keys::parse(changed.as_bytes()).expect_err(to)
        };
        for (from, to) in
            [("0010", "-010"), ("0010", "1_0010"), ("00010b", "100000000"), ("ff:ff", "ff"), ("0a", "1ff")]
        {
            bad(from, to);
        }
        assert!(Keys::parse(b"").is_err() && Keys::parse(&[0; 108]).is_err() && Keys::parse(&[0xff; 108]).is_err());
    }

    #[test]
    fn a_structure_is_read_and_written_with_one_address_and_with_two() {
        let keys = Keys::parse(LONG).expect("keys");
        // Big-endian words, as a C compiler lays the structure out: four bytes are between the key and the address.
        let mut expected =
            vec![0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 1, 0xb, 0, 0xf0, 0xd, 0x42, 0, 0, 0x12, 0x34, 0, 0, 0, 0];
        expected.extend([0, 0, 0x7f, 0, 0x12, 0x34, 0x50, 0]);
        expected.extend(keys.gid.expect("a GID"));
        expected.extend([0; 8]);
        assert_eq!(keys.to_structure(VERSION), expected);
        for version in [VERSION, 6.29] {
            assert_eq!(Keys::parse_structure(&keys.to_structure(version)), Ok(keys), "{version}");
        }
        assert_eq!(Keys::STRUCTURES, [VERSION, 6.29].map(|version| keys.to_structure(version).len()));
        let mut wrong = expected.clone();
        wrong[8] = 1;
        assert!(Keys::parse_structure(&wrong).is_err() && Keys::parse_structure(&expected[1..]).is_err());
    }

    #[test]
    fn versions_and_mtus_are_read_and_written() {
        assert_eq!(&version(), b"6.24\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(parse_version(&version()), Ok(VERSION));
        for bad in [&b"{\"Hello\":{\"versi"[..], b"nan\0", b"\0", b"-6.2\0", b"inf\0"] {
            assert!(parse_version(&padded(std::str::from_utf8(bad).expect("text"))).is_err(), "{bad:?}");
        }
        assert_eq!((mtu(3), parse_mtu(*b"3\0"), parse_mtu(*b"5\0")), (*b"3\0", Ok(3), Ok(5)));
        for bad in [*b"0\0", *b"6\0", *b"\0\0", *b"xx", [0xff, 0]] {
            assert!(parse_mtu(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn rates_are_read_and_written() {
        let rates = Rates { size: 4096, iterations: 500, peak: 0.0, average: 12.5, message_rate: 0.0032 };
        assert_eq!(Rates::parse(rates.to_words()), Ok(rates));
        assert_eq!(rates.to_words()[0], [0, 0, 0, 0, 0, 0, 0x10, 0]);
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(Rates::parse(Rates { average: bad, ..rates }.to_words()).is_err(), "{bad}");
        }
    }
}
