//! Which checksums of a frame the card computes.

use mlx5_dv::queue::ethernet::FrameFlags;

const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The checksums that `frame`, without a VLAN tag, has and the card can compute: of IPv4's header, and of TCP or UDP,
/// but not of a fragment.
pub(super) fn checksums(frame: &[u8]) -> FrameFlags {
    let packet = frame.get(ETHERNET..).unwrap_or_default();
    let byte = |at: usize| packet.get(at).copied().unwrap_or_default();
    let is_transport = |protocol: u8| protocol == TCP || protocol == UDP;
    match frame.get(ETHERNET - 2..ETHERNET) {
        Some(kind) if kind == IPV4 => {
            // More fragments, or an offset.
            let is_fragment = byte(6) & 0x3f != 0 || byte(7) != 0;
            match is_transport(byte(9)) && !is_fragment {
                true => FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM,
                false => FrameFlags::L3_CHECKSUM,
            }
        }
        Some(kind) if kind == IPV6 && is_transport(byte(6)) => FrameFlags::L4_CHECKSUM,
        _ => FrameFlags::empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: [u8; 2], packet: &[(usize, u8)]) -> FrameFlags {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&kind);
        packet.iter().for_each(|&(at, byte)| frame[ETHERNET + at] = byte);
        checksums(&frame)
    }

    #[test]
    fn only_checksums_that_a_frame_has_are_asked_for() {
        let both = FrameFlags::L3_CHECKSUM | FrameFlags::L4_CHECKSUM;
        assert_eq!(of(IPV4, &[(9, TCP)]), both);
        assert_eq!(of(IPV4, &[(6, 0x40), (9, UDP)]), both, "don't fragment");
        assert_eq!(of(IPV4, &[(6, 0x20), (9, UDP)]), FrameFlags::L3_CHECKSUM, "the first fragment");
        assert_eq!(of(IPV4, &[(7, 4), (9, UDP)]), FrameFlags::L3_CHECKSUM, "a later fragment");
        assert_eq!(of(IPV4, &[(9, 1)]), FrameFlags::L3_CHECKSUM, "ICMP");
        assert_eq!(of(IPV6, &[(6, UDP)]), FrameFlags::L4_CHECKSUM);
        assert_eq!(of(IPV6, &[(6, 58)]), FrameFlags::empty(), "ICMPv6");
        assert_eq!(of([0x08, 0x06], &[]), FrameFlags::empty(), "ARP");
        assert_eq!(checksums(&[0; 3]), FrameFlags::empty());
    }
}
