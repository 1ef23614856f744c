//! Memory in work requests: address and key.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::error::{Error, Invalid};
use crate::net::AddressError;

/// A scatter/gather element: registered local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub struct DataSegment {
    /// First address, within the key's address range.
    pub addr: u64,
    /// Length in bytes, below 2^31.
    pub len: u32,
    /// The region's local key.
    pub lkey: u32,
}

impl DataSegment {
    /// The bytes `range` of `of`, which has `len` bytes at `addr`.
    ///
    /// # Errors
    /// [`Invalid::OutOfBounds`] if they are outside; [`Invalid::OutOfRange`] for 2 GiB and more.
    pub(crate) fn within(addr: u64, len: u64, lkey: u32, range: Range<u64>, of: &'static str) -> Result<Self, Error> {
        let Some(bytes) = range.end.checked_sub(range.start).filter(|_| range.end <= len) else {
            return Err(Invalid::OutOfBounds { what: "bytes", given: range, of, len }.into());
        };
        match u32::try_from(bytes).ok().filter(|bytes| *bytes <= MAX_ELEMENT) {
            Some(bytes) => Ok(DataSegment { addr: addr + range.start, len: bytes, lkey }),
            None => {
                let limit = 0..=MAX_ELEMENT.into();
                Err(Invalid::out_of_range("the length of an element", bytes, limit, "a work request").into())
            }
        }
    }
}

/// The longest element of a data segment in bytes: the top bit of the length means "inline".
pub(crate) const MAX_ELEMENT: u32 = (1 << 31) - 1;

/// Remote memory of an RDMA operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress {
    /// First address, within the remote key's address range.
    pub addr: u64,
    /// The region's remote key.
    pub rkey: u32,
}

impl RemoteAddress {
    /// Number of bytes of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 12;

    /// Address and key, big-endian.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..].copy_from_slice(&self.rkey.to_be_bytes());
        bytes
    }

    /// The address of [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, key @ ..] = *bytes;
        RemoteAddress { addr: u64::from_be_bytes([a, b, c, d, e, f, g, h]), rkey: u32::from_be_bytes(key) }
    }
}

/// Address and key in hexadecimal digits.
impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.addr, self.rkey)
    }
}

impl FromStr for RemoteAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let is_digits = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let numbers = text.split_once(':').filter(|(addr, rkey)| is_digits(addr) && is_digits(rkey));
        let read = |(addr, rkey)| Some((u64::from_str_radix(addr, 16).ok()?, u32::from_str_radix(rkey, 16).ok()?));
        let wanted = "a remote address, such as 7f52a0001000:1803";
        let (addr, rkey) = numbers.and_then(read).ok_or_else(|| AddressError { given: text.into(), wanted })?;
        Ok(RemoteAddress { addr, rkey })
    }
}

#[cfg(feature = "serde")]
crate::serde_form::text_and_bytes!(RemoteAddress, |bytes| Ok(RemoteAddress::from_bytes(bytes)));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_inside_and_not_too_long() {
        let within = |range| DataSegment::within(0x1000, 1 << 32, 7, range, "a test");
        assert_eq!(within(16..80).unwrap(), DataSegment { addr: 0x1010, len: 64, lkey: 7 });
        assert_eq!(within(0..MAX_ELEMENT.into()).unwrap().len, MAX_ELEMENT);
        let outside = Range { start: 80, end: 16 };
        for refused in [within((1 << 32) - 1..(1 << 32) + 1), within(outside), within(0..1 << 31)] {
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
    }
}
