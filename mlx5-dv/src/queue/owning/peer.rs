//! Text and bytes of what two ends tell each other: the far end of a connection, and remote memory.

use std::fmt;
use std::str::FromStr;

use super::setup::Peer;
use crate::net::{AddressError, Mac};

/// What a text of a peer looks like.
const EXAMPLE: &str = "a peer, such as 0000:000057:5a3c1d:00000000000000000000ffff0a000001";

impl Peer {
    /// Number of bytes of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 33;

    /// LID, queue pair number and PSN (2, 4 and 4 bytes, big-endian), the GID, and the MAC address behind a byte that
    /// is 1 if there is one.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&self.lid.to_be_bytes());
        bytes[2..6].copy_from_slice(&self.qpn.to_be_bytes());
        bytes[6..10].copy_from_slice(&self.psn.to_be_bytes());
        bytes[10..26].copy_from_slice(&self.gid);
        if let Some(Mac(mac)) = self.mac {
            bytes[26] = 1;
            bytes[27..].copy_from_slice(&mac);
        }
        bytes
    }

    /// The peer of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// [`AddressError`] for numbers of more than 24 bits, and for a byte that is neither 0 nor 1 before the MAC
    /// address.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, AddressError> {
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[10..26]);
        let mut mac = [0; 6];
        mac.copy_from_slice(&bytes[27..]);
        let (qpn, psn) = (number(2), number(6));
        if qpn >> 24 != 0 || psn >> 24 != 0 || bytes[26] > 1 {
            return Err(AddressError { given: format!("{bytes:02x?}"), wanted: EXAMPLE });
        }
        let mac = (bytes[26] == 1).then_some(Mac(mac));
        Ok(Peer { qpn, psn, gid, lid: u16::from_be_bytes([bytes[0], bytes[1]]), mac })
    }
}

/// As rdma-core's ping-pongs tell it: LID, queue pair number, PSN and GID in hexadecimal digits; then the MAC address,
/// if there is one.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Peer { lid, qpn, psn, gid, mac } = self;
        write!(f, "{lid:04x}:{qpn:06x}:{psn:06x}:{:032x}", u128::from_be_bytes(*gid))?;
        mac.map_or(Ok(()), |mac| write!(f, ":{mac}"))
    }
}

impl FromStr for Peer {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut parts = text.splitn(5, ':');
        let mut next = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            u128::from_str_radix(part, 16).ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
        };
        let numbers = (|| Some((next(4)? as u16, next(6)? as u32, next(6)? as u32, next(32)?)))();
        let mac = parts.next().map(str::parse).transpose();
        let (Some((lid, qpn, psn, gid)), Ok(mac)) = (numbers, mac) else {
            return Err(AddressError { given: text.into(), wanted: EXAMPLE });
        };
        Ok(Peer { qpn, psn, gid: gid.to_be_bytes(), lid, mac })
    }
}

#[cfg(feature = "serde")]
crate::serde_form::text_and_bytes!(Peer, Peer::from_bytes);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::RemoteAddress;
    use proptest::prelude::*;

    prop_compose! {
        fn peers()(
            lid: u16,
            qpn in 0u32..1 << 24,
            psn in 0u32..1 << 24,
            gid: [u8; 16],
            mac in prop::option::of(any::<[u8; 6]>()),
        ) -> Peer {
            Peer { qpn, psn, gid, lid, mac: mac.map(Mac) }
        }
    }

    proptest! {
        #[test]
        fn text_and_bytes_are_read_back(peer in peers(), addr: u64, rkey: u32) {
            prop_assert_eq!(peer.to_string().parse::<Peer>().unwrap(), peer);
            prop_assert_eq!(Peer::from_bytes(&peer.to_bytes()).unwrap(), peer);
            let remote = RemoteAddress { addr, rkey };
            prop_assert_eq!(remote.to_string().parse::<RemoteAddress>().unwrap(), remote);
            prop_assert_eq!(RemoteAddress::from_bytes(&remote.to_bytes()), remote);
        }

        #[test]
        fn nothing_that_comes_from_elsewhere_panics(text in "\\PC{0,80}", bytes: [u8; 32], last: u8) {
            let _ = text.parse::<Peer>();
            let _ = text.parse::<RemoteAddress>();
            let mut all = [last; Peer::BYTES];
            all[..32].copy_from_slice(&bytes);
            let _ = Peer::from_bytes(&all);
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_has_the_text_for_people_and_the_bytes_for_programs() {
        use serde_test::{Configure, Token, assert_de_tokens, assert_de_tokens_error, assert_tokens};

        let text = "0000:000057:5a3c1d:00000000000000000000ffff0a000001:02:00:c5:00:00:01";
        let peer: Peer = text.parse().unwrap();
        assert_tokens(&peer.readable(), &[Token::Str(text)]);
        let bytes: &'static [u8] = peer.to_bytes().to_vec().leak();
        assert_tokens(&peer.compact(), &[Token::Bytes(bytes)]);
        let remote = RemoteAddress { addr: 0x7f52_a000_1000, rkey: 0x1803 };
        assert_tokens(&remote.readable(), &[Token::Str("7f52a0001000:1803")]);
        assert_tokens(&remote.compact(), &[Token::Bytes(&[0, 0, 0x7f, 0x52, 0xa0, 0, 0x10, 0, 0, 0, 0x18, 3])]);

        let list = |bytes: &[u8]| {
            let numbers = bytes.iter().map(|byte| Token::U8(*byte));
            [Token::Seq { len: Some(bytes.len()) }]
                .into_iter()
                .chain(numbers)
                .chain([Token::SeqEnd])
                .collect::<Vec<_>>()
        };
        assert_de_tokens(&remote.compact(), &list(&remote.to_bytes()));
        let refused = |token, error| assert_de_tokens_error::<serde_test::Compact<RemoteAddress>>(&[token], error);
        refused(Token::Bytes(&[1, 2]), "invalid length 2, expected a text, or 12 bytes");
        assert_de_tokens_error::<serde_test::Readable<RemoteAddress>>(
            &[Token::Str("1000")],
            "\"1000\" is not a remote address, such as 7f52a0001000:1803",
        );
    }

    /// The line that `ibv_rc_pingpong` sends over TCP.
    #[test]
    fn the_text_is_that_of_libibverbs_pingpong() {
        let text = "0000:000057:5a3c1d:00000000000000000000ffff0a000001";
        let peer: Peer = text.parse().unwrap();
        assert_eq!((peer.lid, peer.qpn, peer.psn, peer.mac), (0, 0x57, 0x5a_3c1d, None));
        assert_eq!(std::net::Ipv6Addr::from(peer.gid), "::ffff:10.0.0.1".parse::<std::net::Ipv6Addr>().unwrap());
        assert_eq!(peer.to_string(), text);
        let with_mac = Peer { mac: Some(Mac([2, 0, 0xc5, 0, 0, 1])), ..peer };
        assert_eq!(with_mac.to_string(), format!("{text}:02:00:c5:00:00:01"));
    }

    #[test]
    fn what_is_no_peer_is_refused_with_an_example() {
        let right = "0000:000057:5a3c1d:00000000000000000000ffff0a000001";
        let wrong =
            ["", "0000", &right[1..], &format!("{right}:02:00"), &format!("+{}", &right[1..]), "0000:0000057:1:2"];
        for text in wrong {
            let error = text.parse::<Peer>().unwrap_err().to_string();
            assert!(error.contains("such as 0000:000057"), "{error}");
        }
        let mut bytes = right.parse::<Peer>().unwrap().to_bytes();
        bytes[2] = 1;
        assert!(Peer::from_bytes(&bytes).is_err(), "a queue pair number of 25 bits");
        for text in ["", "1000", "1000:x", ":", "10000000000000000:1", "1:100000000", "+1:1"] {
            assert!(text.parse::<RemoteAddress>().is_err(), "{text}");
        }
    }
}
