//! Addresses of LNet.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// `O2IBLND` of Lustre's `include/uapi/linux/lnet/nidstr.h`.
const O2IB: u8 = 5;

/// An interface on an LNet network, such as `10.0.0.1@o2ib`: `lnet_nid_t` of Lustre's
/// `include/uapi/linux/lnet/lnet-idl.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid(pub u64);

impl Nid {
    /// No interface, or any: `LNET_NID_ANY`.
    pub const ANY: Nid = Nid(u64::MAX);

    /// `address` on network `o2ib` number `network`. `LNET_MKNID`, `LNET_MKNET` of
    /// `include/uapi/linux/lnet/lnet-types.h`.
    pub fn o2ib(address: Ipv4Addr, network: u16) -> Self {
        Nid(u64::from(O2IB) << 48 | u64::from(network) << 32 | u64::from(u32::from(address)))
    }

    /// The address within the network. `LNET_NIDADDR`.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::from(self.0 as u32)
    }

    /// The network: its driver's number, and its own. `LNET_NETTYP`, `LNET_NETNUM`.
    pub fn network(self) -> (u8, u16) {
        ((self.0 >> 48) as u8, (self.0 >> 32) as u16)
    }

    /// What decides a connection race: the higher one's request wins. `nidhash` of
    /// `include/uapi/linux/lnet/lnet-types.h`, as a little-endian node computes it: the address is in network order
    /// there, and is not converted.
    pub fn rank(self) -> u64 {
        self.0 >> 32 ^ u64::from((self.0 as u32).swap_bytes())
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network() {
            (O2IB, 0) => write!(f, "{}@o2ib", self.address()),
            (O2IB, number) => write!(f, "{}@o2ib{number}", self.address()),
            (kind, number) => write!(f, "{}@<{kind}:{number}>", self.address()),
        }
    }
}

/// Text that is not a NID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the NID of an interface, such as 10.0.0.1@o2ib or 10.0.0.1@o2ib3")]
pub struct BadNid(String);

impl FromStr for Nid {
    type Err = BadNid;

    fn from_str(text: &str) -> Result<Self, BadNid> {
        let parsed = || {
            let (address, network) = text.split_once('@')?;
            let number = match network.strip_prefix("o2ib")? {
                "" => 0,
                number => number.parse().ok()?,
            };
            Some(Nid::o2ib(address.parse().ok()?, number))
        };
        parsed().ok_or_else(|| BadNid(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nid_is_read_as_it_is_written() {
        for text in ["10.0.0.1@o2ib", "192.168.7.255@o2ib12"] {
            assert_eq!(text.parse::<Nid>().unwrap().to_string(), text);
        }
        assert_eq!("1.2.3.4@o2ib7".parse::<Nid>().unwrap().0, 0x0005_0007_0102_0304);
        for text in ["", "10.0.0.1", "10.0.0.1@tcp", "x@o2ib", "10.0.0.1@o2ib99999", "10.0.0.1@o2ib@o2ib"] {
            assert!(text.parse::<Nid>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_race_is_decided_as_little_endian_nodes_decide_it() {
        let nid = |text: &str| text.parse::<Nid>().unwrap();
        assert_eq!(nid("1.2.3.4@o2ib").rank(), 0x0005_0000 ^ 0x0403_0201);
        // Not by the number: the last byte counts most.
        assert!(nid("10.0.0.2@o2ib").rank() > nid("11.0.0.1@o2ib").rank());
    }
}
