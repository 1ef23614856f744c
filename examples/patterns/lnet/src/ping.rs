//! LNet's ping: a GET of a node's interfaces, which every node answers.

use std::fmt;

use crate::nid::Nid;

/// `LNET_RESERVED_PORTAL` of `include/uapi/linux/lnet/lnet-types.h`.
pub const PORTAL: u32 = 0;
/// `LNET_PROTO_PING_MATCHBITS` of `include/linux/lnet/lib-types.h`.
pub const MATCH_BITS: u64 = 1 << 63;
/// `LNET_PROTO_PING_MAGIC` of `include/uapi/linux/lnet/lnet-idl.h`.
const MAGIC: u32 = 0x7069_6e67;
/// `LNET_PING_FEAT_BASE` and `LNET_PING_FEAT_NI_STATUS`.
const FEATURES: u32 = 0b11;
/// `LNET_NI_STATUS_UP`.
const UP: u32 = 0x15aa_c0de;
/// `LNET_PID_LUSTRE`.
const PID: u32 = 12345;
/// `LNET_NID_LO_0`: every node's own, on the network of number 9.
const LOOPBACK: u64 = 9 << 48;
/// Bytes before the interfaces, and of each: `struct lnet_ping_info`, `struct lnet_ni_status`.
const HEAD: usize = 16;
const INTERFACE: usize = 16;

/// Bytes of an answer with as many interfaces as every node supports: `LNET_INTERFACES_MIN` of `lnet-types.h`.
pub const BYTES: usize = HEAD + 16 * INTERFACE;

/// What node `nid` answers: the loopback interface, and its own.
pub fn info(nid: Nid) -> Vec<u8> {
    let mut bytes: Vec<u8> = [MAGIC, FEATURES, PID, 2].iter().flat_map(|number| number.to_le_bytes()).collect();
    for address in [LOOPBACK, nid.0] {
        bytes.extend(address.to_le_bytes());
        bytes.extend(UP.to_le_bytes());
        bytes.extend([0; 4]);
    }
    bytes
}

/// An interface of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// Its NID.
    pub nid: Nid,
    /// Whether it is up.
    pub is_up: bool,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.nid, if self.is_up { "up" } else { "down" })
    }
}

/// What a ping's answer is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the answer to a ping: {0} bytes")]
pub struct NoInfo(usize);

/// Reads an answer, of either byte order; the loopback interface is left out.
///
/// # Errors
/// [`NoInfo`].
pub fn read(bytes: &[u8]) -> Result<Vec<Interface>, NoInfo> {
    let bad = NoInfo(bytes.len());
    let head: &[u8; HEAD] = bytes.first_chunk().ok_or(bad)?;
    let word = |bytes: &[u8; HEAD], at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let number: fn([u8; 4]) -> u32 = match word(head, 0) {
        little if u32::from_le_bytes(little) == MAGIC => u32::from_le_bytes,
        big if u32::from_be_bytes(big) == MAGIC => u32::from_be_bytes,
        _ => return Err(bad),
    };
    let is_little = u32::from_le_bytes(word(head, 0)) == MAGIC;
    let count = number(word(head, 12)) as usize;
    let (interfaces, _) = bytes[HEAD..].as_chunks::<INTERFACE>();
    let read = |one: &[u8; INTERFACE]| {
        let (first, second) = (u64::from(number(word(one, 0))), u64::from(number(word(one, 4))));
        let nid = Nid(if is_little { second << 32 | first } else { first << 32 | second });
        Interface { nid, is_up: number(word(one, 8)) == UP }
    };
    Ok(interfaces.iter().take(count).map(read).filter(|one| one.nid.0 != LOOPBACK).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read_as_it_answers() {
        let nid = Nid::o2ib([10, 0, 0, 1].into(), 2);
        assert_eq!(read(&info(nid)), Ok(vec![Interface { nid, is_up: true }]));
        let mut big: Vec<u8> = info(nid).chunks(4).flat_map(|word| word.iter().rev().copied()).collect();
        // NIDs are of eight bytes: their words change places, too.
        for at in [16, 32] {
            let (low, high) = big[at..at + 8].split_at_mut(4);
            low.swap_with_slice(high);
        }
        assert_eq!(read(&big), Ok(vec![Interface { nid, is_up: true }]));
        assert_eq!(read(&[0; 64]), Err(NoInfo(64)));
        assert_eq!(read(&info(nid)[..15]), Err(NoInfo(15)));
        assert_eq!(read(&info(nid)[..40]), Ok(vec![]), "cut");
    }
}
