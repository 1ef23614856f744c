//! The invariant CRC (ICRC) at the end of each RoCE v2 packet. IBTA A17.3.3, 7.8.1.
//!
//! A CRC-32 over the fields that routers do not change: eight bytes of ones (in the place of an InfiniBand LRH), then
//! IP header, UDP header and BTH with their variant fields replaced by ones, then the rest of the packet. Stored least
//! significant byte first.

/// Bytes of the ICRC.
pub const LEN: usize = 4;

const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const BTH: usize = 12;

/// The ICRC of a packet that starts with its IP header. `packet` ends before the ICRC. 0 if the packet is too short for
/// its headers.
pub fn compute(packet: &[u8]) -> u32 {
    let v4 = packet.first().is_some_and(|first| first >> 4 == 4);
    let headers = if v4 { IPV4 } else { IPV6 } + UDP + BTH;
    let Some((start, rest)) = packet.split_at_checked(headers) else { return 0 };
    let mut masked = [0xff; 8 + IPV6 + UDP + BTH];
    let masked = &mut masked[..8 + headers];
    masked[8..].copy_from_slice(start);
    mask(&mut masked[8..], v4);
    let mut crc = crc32fast::Hasher::new();
    crc.update(masked);
    crc.update(rest);
    crc.finalize()
}

/// Replaces the variant fields with ones.
fn mask(headers: &mut [u8], v4: bool) {
    let udp = if v4 {
        headers[1] = 0xff; // type of service
        headers[8] = 0xff; // time to live
        headers[10..12].fill(0xff); // header checksum
        IPV4
    } else {
        headers[0] |= 0x0f; // traffic class
        headers[1..4].fill(0xff); // traffic class and flow label
        headers[7] = 0xff; // hop limit
        IPV6
    };
    headers[udp + 6..udp + 8].fill(0xff); // UDP checksum
    headers[udp + UDP + 4] = 0xff; // FECN, BECN and reserved bits of the BTH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    /// A congestion notification packet (CNP) sent by a ConnectX-4 Lx, from its IP header on.
    #[test]
    fn agrees_with_a_packet_of_a_card() {
        let packet = bytes(
            "45c2 003c 718c 4000 4011 9161 0a00 1101 0a00 1201 0000 12b7 0028 0000 8100 ffff 4000 0118 0000 0000 \
             0000 0000 0000 0000 0000 0000 0000 0000 82fd 002a",
        );
        let (covered, icrc) = packet.split_at(packet.len() - LEN);
        assert_eq!(compute(covered).to_le_bytes(), icrc);
    }

    /// A UC send of two bytes of padding, captured between cards.
    #[test]
    fn agrees_with_a_send() {
        let mut packet = bytes(
            "4501 0040 0478 4000 4011 b4d5 c0a8 0007 c0a8 0007 c000 12b7 002c aca2 2460 ffff 0000 00d3 00cf 1710",
        );
        packet.extend_from_slice(b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P\x00\x00");
        assert_eq!(compute(&packet).to_le_bytes(), 0x78f3_53f3u32.to_be_bytes());
    }

    #[test]
    fn too_short_is_no_panic() {
        for len in 0..80 {
            compute(&vec![0x45; len]);
            compute(&vec![0x60; len]);
        }
    }
}
