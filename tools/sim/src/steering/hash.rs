//! Receive side scaling: the hash that chooses a receive queue of an RQT. PRM `rx_hash_field_select`.

use mlx5_prm::cqe::{RssIp, RssL4};
use mlx5_prm::ctx::RxHashFn;

use crate::ethernet::Headers;

/// PRM `selected_fields` of `rx_hash_field_select`.
mod field {
    pub(super) const SOURCE_IP: u32 = 1 << 0;
    pub(super) const DESTINATION_IP: u32 = 1 << 1;
    pub(super) const SOURCE_PORT: u32 = 1 << 2;
    pub(super) const DESTINATION_PORT: u32 = 1 << 3;
    pub(super) const SPI: u32 = 1 << 4;
}

/// The supported fields.
pub(crate) const FIELDS: u32 =
    field::SOURCE_IP | field::DESTINATION_IP | field::SOURCE_PORT | field::DESTINATION_PORT | field::SPI;

/// Hash settings of a TIR.
#[derive(Debug, Clone, Copy)]
pub struct Hashing {
    /// Hash function.
    pub function: RxHashFn,
    /// Key of the Toeplitz hash.
    pub key: [u8; 40],
    /// Swapping source and destination does not change the hash.
    pub is_symmetric: bool,
    /// IPv6 packets only, otherwise IPv4 packets only.
    pub is_v6: bool,
    /// If ports are selected: UDP only, otherwise TCP only.
    pub is_udp: bool,
    /// PRM `selected_fields`.
    pub fields: u32,
    /// They are those of what is in the frame's tunnel.
    pub is_inner: bool,
}

/// A hash, and the fields it covers, for CQEs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hash {
    pub value: u32,
    pub ip: RssIp,
    pub l4: RssL4,
}

impl Hash {
    /// No hash.
    pub const NONE: Hash = Hash { value: 0, ip: RssIp::None, l4: RssL4::None };
}

impl Hashing {
    /// The hash of a frame; 0 if it does not have the selected fields.
    pub(crate) fn of(&self, headers: &Headers) -> Hash {
        let Some(input) = self.input(headers) else { return Hash::NONE };
        let value = match self.function {
            RxHashFn::InvertedXor8 => u32::from(!input.iter().fold(0u8, |all, byte| all ^ byte)),
            RxHashFn::Toeplitz => toeplitz(&self.key, &input),
            RxHashFn::None | RxHashFn::Unknown(_) => return Hash::NONE,
        };
        let has_ip = self.selects(field::SOURCE_IP | field::DESTINATION_IP);
        let has_ports = self.selects(field::SOURCE_PORT | field::DESTINATION_PORT);
        let ip = match has_ip {
            false => RssIp::None,
            true if self.is_v6 => RssIp::Ipv6,
            true => RssIp::Ipv4,
        };
        let l4 = match has_ports {
            false if self.selects(field::SPI) => RssL4::Ipsec,
            false => RssL4::None,
            true if self.is_udp => RssL4::Udp,
            true => RssL4::Tcp,
        };
        Hash { value, ip, l4 }
    }

    fn selects(&self, fields: u32) -> bool {
        self.fields & fields != 0
    }

    /// The hashed bytes: addresses, then ports, source before destination; then the IPsec SPI.
    fn input(&self, headers: &Headers) -> Option<Vec<u8>> {
        let ip = headers.ip.filter(|ip| ip.is_v4 != self.is_v6)?;
        let address = |wide: [u8; 16]| wide[if ip.is_v4 { 12 } else { 0 }..].to_vec();
        let mut input = Vec::with_capacity(36);
        let pair = [(field::SOURCE_IP, address(ip.source)), (field::DESTINATION_IP, address(ip.destination))];
        self.append(&mut input, pair);
        if self.selects(field::SOURCE_PORT | field::DESTINATION_PORT) {
            let l4 = headers.l4.filter(|l4| l4.is_tcp != self.is_udp)?;
            let port = |port: u16| port.to_be_bytes().to_vec();
            let pair =
                [(field::SOURCE_PORT, port(l4.source_port)), (field::DESTINATION_PORT, port(l4.destination_port))];
            self.append(&mut input, pair);
        }
        if self.selects(field::SPI) {
            input.extend_from_slice(&headers.spi?.to_be_bytes());
        }
        Some(input)
    }

    /// The PRM only says that a symmetric hash does not distinguish source and destination. Here the smaller one comes
    /// first.
    fn append(&self, input: &mut Vec<u8>, pair: [(u32, Vec<u8>); 2]) {
        let mut chosen: Vec<_> = pair.into_iter().filter(|(field, _)| self.selects(*field)).collect();
        if self.is_symmetric {
            chosen.sort_by(|(_, left), (_, right)| left.cmp(right));
        }
        chosen.iter().for_each(|(_, bytes)| input.extend_from_slice(bytes));
    }
}

/// The Toeplitz hash: for each bit set in `input`, the 32 bits of the key from that bit on, XORed.
fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (at, byte) in input.iter().enumerate() {
        let next = key.get(at + 4).copied().unwrap_or(0);
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}
