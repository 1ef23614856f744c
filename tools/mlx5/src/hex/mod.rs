//! The one reader of hex: what od, hexdump, xxd, gdb, Wireshark, DPDK and kernels print, C arrays, hex typed by hand,
//! and raw binary.
//!
//! | printed by | offsets | words |
//! | --- | --- | --- |
//! | `od`, `od -b`, `-x`, `-t x1`, `-t x4`, `-t x8`, `-t x1z`, `-A d` | octal, hexadecimal or decimal | octal or hexadecimal, in host order |
//! | `hexdump`, `-b`, `-o`, `-x`, `-C` | hexadecimal | octal or hexadecimal, in host order |
//! | `xxd`, `xxd -g`, `-a`, `-c`; kernels, DPDK | hexadecimal and a colon | hexadecimal, as in memory |
//! | a kernel's `print_hex_dump` with groups of 2, 4 or 8 | 8 digits and a colon | host order, but read as `xxd -g`'s; [`Hex::note`] says so |
//! | the same with addresses, crash's `rd` | 16 digits and a colon | hexadecimal, in host order |
//! | `tcpdump -x`, `-X` | `0x`, 4 digits and a colon | hexadecimal, as in memory |
//! | gdb's `x/64xb`, `x/16xw` | addresses and a colon | hexadecimal with `0x`, in host order |
//! | Wireshark, `tshark -x` | hexadecimal | pairs |
//! | `xxd -p`, `xxd -i`, C arrays, `\x` strings, a kernel's four lines | none | hexadecimal, as printed |
//!
//! Offsets are believed only if they agree with the bytes between them: that tells offsets from data, and octal from
//! hexadecimal ones. `*` repeats the line before it up to the next offset. Host order is little-endian, as on all hosts
//! of this driver; [`Hex::note`] says where it mattered. `xxd -e` and `od --endian=big` look like their
//! counterparts and are read as these.

mod array;
mod digits;
mod dump;
mod error;
mod line;

use error::MAX_BYTES;
pub use error::{Error, Hex};

/// Reads hex in any of the formats above. Input that is not text is taken as the bytes themselves.
///
/// # Errors
/// The text is not hex, or its offsets show that something is missing.
pub fn read(input: &[u8]) -> Result<Hex, Error> {
    match text(input) {
        Some(text) => read_text(text),
        None if input.len() > MAX_BYTES => Err(Error::TooLong { line: 1 }),
        None => Ok(Hex { bytes: input.to_vec(), note: None }),
    }
}

/// As [`read`], for text.
///
/// # Errors
/// As [`read`].
pub fn read_text(text: &str) -> Result<Hex, Error> {
    if let Some(array) = array::of(text) {
        return array;
    }
    let joined = line::joined(text).and_then(|lines| dump::of(&lines).ok());
    match joined {
        Some(hex) => Ok(hex),
        None => dump::of(&line::lines(text)),
    }
}

/// The input as text; `None` if it is binary.
fn text(input: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(input).ok()?;
    let printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x0b' | '\x0c' | '\x1b');
    text.chars().all(printable).then_some(text)
}

#[cfg(test)]
mod tests;
