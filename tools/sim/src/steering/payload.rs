//! Headers behind those of IP and UDP that flow entries match: GRE (RFC 2890), ICMP (RFC 792, 4443), MPLS (RFC 3032),
//! also over GRE (RFC 4023) and UDP (RFC 7510), GENEVE (RFC 8926), VXLAN-GPE, GTP-U (3GPP TS 29.281), the BTH of RoCE
//! (IBTA 9.2).
//!
//! A header that is cut off or of another version is none.

use etherparse::{IpNumber, ip_number};
use mlx5_prm::ib;
use mlx5_prm::layout::Layout;

use crate::ethernet::{Headers, VxlanPorts};

/// EtherType of MPLS, and its protocol type in GRE.
const MPLS: u16 = 0x8847;
/// UDP's destination ports.
const GTPU_PORT: u16 = 2152;
const VXLAN_GPE_PORT: u16 = 4790;
const ROCE_PORT: u16 = 4791;
const GENEVE_PORT: u16 = 6081;
/// That of DPDK's MLX5_UDP_PORT_MPLS.
const MPLS_PORT: u16 = 6635;
/// Bytes of UDP's header, of VXLAN's, and of GENEVE's without options.
const UDP: usize = 8;
const VXLAN: usize = 8;
const GENEVE: usize = 8;
/// VXLAN's flag: the network is valid.
const HAS_VNI: u8 = 0x08;

/// What IP carries, if it is `protocol` and no fragment.
fn of_protocol<'a>(frame: &'a [u8], headers: &Headers, protocol: IpNumber) -> Option<&'a [u8]> {
    let ip = headers.ip.filter(|ip| ip.protocol == protocol.0 && !ip.is_fragment)?;
    frame.get(ip.at + ip.header_len..ip.at + ip.len)
}

/// What a datagram to `port` carries.
fn of_port<'a>(frame: &'a [u8], headers: &Headers, port: u16) -> Option<&'a [u8]> {
    let to = headers.l4.filter(|l4| !l4.is_tcp)?.destination_port;
    of_protocol(frame, headers, ip_number::UDP).filter(|_| to == port)?.get(UDP..)
}

/// The 24 bits from byte `at` on.
fn three(bytes: &[u8; 8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

/// GRE.
pub(super) struct Gre<'a> {
    pub has_checksum: bool,
    /// `None`: it has none.
    pub key: Option<u32>,
    pub has_sequence: bool,
    pub protocol: u16,
    /// The header itself, as far as its length is known.
    header: &'a [u8],
    /// What follows it; nothing where it has routing fields (RFC 1701), whose length is known to nobody here.
    pub payload: &'a [u8],
}

impl<'a> Gre<'a> {
    pub fn of(frame: &'a [u8], headers: &Headers) -> Option<Gre<'a>> {
        let bytes = of_protocol(frame, headers, ip_number::GRE)?;
        let [flags, version, kind @ ..]: [u8; 4] = *bytes.first_chunk()?;
        let has = |bit: u8| flags & bit != 0;
        let [checksum, key, sequence] = [0x80, 0x20, 0x10].map(has);
        let key_at = 4 + 4 * usize::from(checksum);
        let len = key_at + 4 * (usize::from(key) + usize::from(sequence));
        let (header, payload) = bytes.split_at_checked(len)?;
        let key = match key {
            true => Some(u32::from_be_bytes(*header.get(key_at..)?.first_chunk()?)),
            false => None,
        };
        let protocol = u16::from_be_bytes(kind);
        let payload = if has(0x40) { &[] } else { payload };
        Some(Gre { has_checksum: checksum, key, has_sequence: sequence, protocol, header, payload })
            .filter(|_| version & 7 == 0)
    }
}

/// GENEVE.
pub(super) struct Geneve {
    pub vni: u32,
    pub protocol: u16,
    /// In words of four bytes.
    pub options_len: u8,
    pub is_oam: bool,
}

impl Geneve {
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Geneve> {
        let bytes: &[u8; 8] = of_port(frame, headers, GENEVE_PORT)?.first_chunk()?;
        let geneve = Geneve {
            vni: three(bytes, 4),
            protocol: u16::from_be_bytes([bytes[2], bytes[3]]),
            options_len: bytes[0] & 0x3f,
            is_oam: bytes[1] & 0x80 != 0,
        };
        Some(geneve).filter(|_| bytes[0] >> 6 == 0)
    }
}

/// An option of GENEVE, by whose data entries match. PRM `geneve_tlv_option`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneveOption {
    /// `option_class`.
    pub class: u16,
    /// `option_type`, with the bit that says that it is critical.
    pub kind: u8,
    /// `option_data_length`, in words of four bytes.
    pub words: u8,
}

impl GeneveOption {
    /// The first word of its data, where a frame has it.
    pub(super) fn data(&self, frame: &[u8], headers: &Headers) -> Option<u32> {
        let bytes = of_port(frame, headers, GENEVE_PORT)?;
        let options_len = Geneve::of(frame, headers)?.options_len;
        let mut options = bytes.get(GENEVE..GENEVE + 4 * usize::from(options_len))?;
        loop {
            let ([high, low, kind, words], after) = options.split_first_chunk()?;
            let words = words & 0x1f;
            let (data, next) = after.split_at_checked(4 * usize::from(words))?;
            let option = GeneveOption { class: u16::from_be_bytes([*high, *low]), kind: *kind, words };
            if option == *self {
                return data.first_chunk().copied().map(u32::from_be_bytes);
            }
            options = next;
        }
    }
}

/// The first four words of the header of a tunnel whose frames are looked into: GRE, VXLAN, GENEVE. Words that it has
/// not are 0. DPDK's `flow_dv_translate_item_vxlan` has VXLAN's flags in the first, and its network in the second.
pub(super) fn tunnel_words(frame: &[u8], headers: &Headers, ports: &VxlanPorts) -> Option<[u32; 4]> {
    let header = match (Gre::of(frame, headers), Geneve::of(frame, headers)) {
        (Some(gre), _) => gre.header,
        (None, Some(geneve)) => {
            let bytes = of_port(frame, headers, GENEVE_PORT)?;
            bytes.get(..GENEVE + 4 * usize::from(geneve.options_len)).unwrap_or(bytes)
        }
        (None, None) => vxlan(frame, headers, ports)?,
    };
    let mut bytes = [0; 16];
    let len = header.len().min(bytes.len());
    bytes[..len].copy_from_slice(&header[..len]);
    let (words, _) = bytes.as_chunks();
    Some(std::array::from_fn(|number| u32::from_be_bytes(words[number])))
}

/// The header of VXLAN, at one of its ports, whose network is valid.
fn vxlan<'a>(frame: &'a [u8], headers: &Headers, ports: &VxlanPorts) -> Option<&'a [u8]> {
    let port = headers.l4.filter(|l4| ports.contains(l4.destination_port))?.destination_port;
    of_port(frame, headers, port)?.get(..VXLAN).filter(|header| header[0] & HAS_VNI != 0)
}

/// VXLAN-GPE.
pub(super) struct VxlanGpe {
    /// Version, and which fields are valid.
    pub flags: u8,
    pub vni: u32,
    pub next_protocol: u8,
}

impl VxlanGpe {
    pub fn of(frame: &[u8], headers: &Headers) -> Option<VxlanGpe> {
        let bytes: &[u8; 8] = of_port(frame, headers, VXLAN_GPE_PORT)?.first_chunk()?;
        Some(VxlanGpe { flags: bytes[0], vni: three(bytes, 4), next_protocol: bytes[3] })
    }
}

/// Flags of GTP-U, in its first byte: an extension header follows, sequence number, N-PDU number. DPDK matches these
/// bits of `gtpu_msg_flags` alone (`MLX5_GTP_FLAGS_MASK`).
pub(super) const GTPU_FLAGS: u8 = 7;
const GTPU_HAS_EXTENSION: u32 = 4;

/// GTP-U: version 1 of GTP, with protocol type 1. By words, as rdma-core's mlx5_ifc.h and DPDK's mlx5_prm.h have them
/// (`header_gtp`, `header_opt_gtp`, `header_gtp_psc`).
pub(super) struct Gtpu {
    /// Version and flags, type and length of the message.
    pub first: u32,
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// Sequence number, N-PDU number, type of the first extension header; 0 where no flag is set, as it is not there.
    pub options: u32,
    /// The first word of the first extension header; 0 if there is none.
    pub extension: u32,
}

impl Gtpu {
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Gtpu> {
        let bytes = of_port(frame, headers, GTPU_PORT)?;
        let word = |number: usize| Some(u32::from_be_bytes(*bytes.get(4 * number..)?.first_chunk()?));
        let (first, teid) = (word(0)?, word(1)?);
        let flags = first >> 24 & u32::from(GTPU_FLAGS);
        let options = if flags != 0 { word(2)? } else { 0 };
        let has_extension = flags & GTPU_HAS_EXTENSION != 0 && options as u8 != 0;
        let extension = word(3).filter(|_| has_extension).unwrap_or(0);
        Some(Gtpu { first, teid, options, extension }).filter(|_| first >> 28 == 3)
    }
}

/// ICMP, of the IP version of the headers.
pub(super) struct Icmp {
    pub kind: u8,
    pub code: u8,
    /// What follows the checksum: of an echo, identifier and sequence number, as rdma-core's dr_ste_v0.c and DPDK have
    /// them.
    pub data: u32,
}

impl Icmp {
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Icmp> {
        let number = if headers.ip?.is_v4 { ip_number::ICMP } else { ip_number::IPV6_ICMP };
        let [kind, code, _, _, data @ ..]: [u8; 8] = *of_protocol(frame, headers, number)?.first_chunk()?;
        Some(Icmp { kind, code, data: u32::from_be_bytes(data) })
    }
}

/// The first label stack entry of MPLS over Ethernet: label, traffic class, bottom of stack, time to live.
pub(super) fn mpls(frame: &[u8], headers: &Headers) -> Option<[u8; 4]> {
    frame.get(headers.payload_at..).filter(|_| headers.ether_type == MPLS)?.first_chunk().copied()
}

/// The first label stack entry of MPLS over GRE.
pub(super) fn mpls_over_gre(frame: &[u8], headers: &Headers) -> Option<[u8; 4]> {
    Gre::of(frame, headers).filter(|gre| gre.protocol == MPLS)?.payload.first_chunk().copied()
}

/// The first label stack entry of MPLS over UDP.
pub(super) fn mpls_over_udp(frame: &[u8], headers: &Headers) -> Option<[u8; 4]> {
    of_port(frame, headers, MPLS_PORT)?.first_chunk().copied()
}

/// The base transport header of a RoCE packet.
pub(super) struct Bth {
    pub opcode: u8,
    pub destination_qp: u32,
}

impl Bth {
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Bth> {
        let bth = ib::Bth::read(of_port(frame, headers, ROCE_PORT)?.get(..ib::Bth::SIZE)?)?;
        let opcode = (bth.service().number() << 5 | bth.operation().number()) as u8;
        Some(Bth { opcode, destination_qp: bth.dest_qp() })
    }
}

/// Security parameter index of ESP.
pub(super) fn esp_spi(headers: &Headers) -> Option<u32> {
    headers.spi.filter(|_| headers.ip.is_some_and(|ip| ip.protocol == ip_number::ENCAPSULATING_SECURITY_PAYLOAD.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of Ethernet's header, of IPv4's, and of UDP's.
    const BEFORE: usize = 14 + 20;
    const BEFORE_UDP: usize = BEFORE + UDP;

    /// A frame of an IPv4 packet of this protocol, with the payload as hexadecimal digits.
    fn ipv4(protocol: u8, payload: &str) -> Vec<u8> {
        let payload = bytes(payload);
        let mut frame = bytes("020000000002 020000000001 0800 4500 0000 0000 0000 40 00 0000 0a000001 0a000002");
        frame[16..18].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        frame[23] = protocol;
        [frame, payload].concat()
    }

    fn udp(port: u16, payload: &str) -> Vec<u8> {
        let len = UDP + bytes(payload).len();
        ipv4(17, &format!("c000 {port:04x} {len:04x} 0000 {payload}"))
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let (pairs, rest) = digits.as_chunks::<2>();
        assert!(rest.is_empty(), "{hex}");
        pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect()
    }

    /// The header of the frame, which is none as soon as a byte of its first `len` is missing.
    fn whole<T>(frame: &[u8], len: usize, of: impl Fn(&[u8], &Headers) -> Option<T>) -> T {
        for cut in 0..len {
            assert!(of(&frame[..cut], &Headers::of(&frame[..cut])).is_none(), "{cut} of {len} bytes");
        }
        let frame = &frame[..len];
        of(frame, &Headers::of(frame)).unwrap_or_else(|| panic!("nothing in {frame:02x?}"))
    }

    /// Whether the frame has no such header.
    fn has_none<T>(frame: &[u8], of: impl Fn(&[u8], &Headers) -> Option<T>) -> bool {
        of(frame, &Headers::of(frame)).is_none()
    }

    #[test]
    fn opcode_and_queue_pair_are_those_of_the_base_transport_header() {
        // A congestion notification packet: IBTA A17.9.3.
        let cnp = "81 00 ffff 40 123456 00 000000 00000000000000000000000000000000 a1b2c3d4";
        let Bth { opcode, destination_qp } = whole(&udp(4791, cnp), BEFORE_UDP + 12, Bth::of);
        assert_eq!((opcode, destination_qp), (0x81, 0x12_3456));
        assert!(has_none(&udp(4790, cnp), Bth::of));
        let mut fragment = udp(4791, cnp);
        fragment[20] = 0x20;
        assert!(has_none(&fragment, Bth::of));
        // UDP ends before the header does, and something follows in the frame.
        let mut padded = udp(4791, "81 00 ffff 40 1234");
        padded.extend([0x56; 30]);
        assert!(has_none(&padded, Bth::of));
    }

    #[test]
    fn the_first_label_stack_entry_follows_udp_or_all_of_gre() {
        // Label 0x12345, traffic class 5, not the last; behind it another entry.
        let stack = "12345a40 0000f140 45000000";
        let entry = [0x12, 0x34, 0x5a, 0x40];
        assert_eq!(whole(&udp(6635, stack), BEFORE_UDP + 4, mpls_over_udp), entry);
        assert!(has_none(&udp(6634, stack), mpls_over_udp));
        // MPLS over DTLS has a port of its own, and no label that can be read.
        assert!(has_none(&udp(6636, stack), mpls_over_udp));
        for (header, len) in [
            ("0000 8847", 4),
            ("8000 8847 abcd0000", 8),
            ("2000 8847 00000005", 8),
            ("1000 8847 00000001", 8),
            ("b000 8847 abcd0000 00000005 00000001", 16),
        ] {
            let frame = ipv4(47, &format!("{header} {stack}"));
            assert_eq!(whole(&frame, BEFORE + len + 4, mpls_over_gre), entry, "{header}");
            assert!(has_none(&frame, mpls_over_udp), "{header}");
        }
        for not_mpls in ["0000 0800", "0000 8848", "0001 8847", "4000 8847 00000000"] {
            assert!(has_none(&ipv4(47, &format!("{not_mpls} {stack}")), mpls_over_gre), "{not_mpls}");
        }
        assert!(has_none(&ipv4(4, &format!("0000 8847 {stack}")), mpls_over_gre));
        // Fragments of a packet have no header that can be told.
        for mut frame in [udp(6635, stack), ipv4(47, &format!("0000 8847 {stack}"))] {
            frame[20] = 0x20;
            assert!(has_none(&frame, mpls_over_udp) && has_none(&frame, mpls_over_gre));
        }
    }

    /// A frame of an IPv6 packet with this next header, with the payload as hexadecimal digits.
    fn ipv6(next: u8, payload: &str) -> Vec<u8> {
        let payload = bytes(payload);
        let mut frame = bytes("020000000002 020000000001 86dd 60000000 0000 00 40");
        frame[18..20].copy_from_slice(&(payload.len() as u16).to_be_bytes());
        frame[20] = next;
        [frame, vec![0xfd; 16], vec![0xfe; 16], payload].concat()
    }

    #[test]
    fn the_data_of_icmp_is_what_follows_its_checksum() {
        // Echo requests of identifier 0x1234, number 5.
        let (four, six) = (ipv4(1, "08 00 abcd 1234 0005 70696e67"), ipv6(58, "80 00 abcd 1234 0005 70696e67"));
        for (frame, before, of) in [(&four, BEFORE, 8), (&six, 14 + 40, 0x80)] {
            let Icmp { kind, code, data } = whole(frame, before + 8, Icmp::of);
            assert_eq!((kind, code, data), (of, 0, 0x1234_0005));
        }
        // Destination unreachable, fragmentation needed: the next hop's MTU is at its end.
        let unreachable = ipv4(1, "03 04 abcd 0000 05dc 45");
        let Icmp { kind, code, data } = whole(&unreachable, BEFORE + 8, Icmp::of);
        assert_eq!((kind, code, data), (3, 4, 1500));
        // ICMP of the other version of IP, and a fragment.
        assert!(has_none(&ipv4(58, "80 00 abcd 1234 0005"), Icmp::of));
        assert!(has_none(&ipv6(1, "08 00 abcd 1234 0005"), Icmp::of));
        let mut fragment = four;
        fragment[20] = 0x20;
        assert!(has_none(&fragment, Icmp::of));
        let later = ipv6(44, "3a 00 0008 00000007 80 00 abcd 1234 0005");
        assert!(has_none(&later, Icmp::of));
    }

    #[test]
    fn words_of_gtp_u_are_there_where_its_flags_say_so() {
        let words = |frame: &[u8], len: usize| {
            let Gtpu { first, teid, options, extension } = whole(frame, BEFORE_UDP + len, Gtpu::of);
            [first, teid, options, extension]
        };
        let packet = "45000014";
        assert_eq!(words(&udp(2152, &format!("30 ff 0004 12345678 {packet}")), 8), [0x30ff_0004, 0x1234_5678, 0, 0]);
        // PDU session container, uplink, QoS flow 9: TS 38.415.
        let session = "34 ff 0010 12345678 0000 00 85 01 10 09 00";
        let session = udp(2152, &format!("{session} {packet}"));
        let with_extension = [0x34ff_0010, 0x1234_5678, 0x85, 0x0110_0900];
        // Without its extension header GTP-U is whole.
        assert_eq!(words(&session, 12), [with_extension[0], with_extension[1], with_extension[2], 0]);
        let key = |frame: &[u8]| {
            let Gtpu { first, teid, options, extension } = Gtpu::of(frame, &Headers::of(frame)).unwrap();
            [first, teid, options, extension]
        };
        for cut in BEFORE_UDP + 12..BEFORE_UDP + 16 {
            assert_eq!(key(&session[..cut])[3], 0, "{cut} bytes");
        }
        assert_eq!(key(&session[..BEFORE_UDP + 16]), with_extension);
        // A sequence number: the type of an extension header without flag E says nothing.
        let numbered = udp(2152, &format!("32 ff 0008 00000007 abcd 00 85 {packet}"));
        assert_eq!(words(&numbered, 12), [0x32ff_0008, 7, 0xabcd_0085, 0]);
        // Flag E, and no extension header.
        let none = udp(2152, &format!("34 ff 0008 00000007 0000 00 00 {packet}"));
        assert_eq!(words(&none, 12), [0x34ff_0008, 7, 0, 0]);
        for (port, head) in [(2152, "50"), (2152, "20"), (2153, "30")] {
            assert!(has_none(&udp(port, &format!("{head} ff 0004 12345678 {packet}")), Gtpu::of), "{port} {head}");
        }
    }

    #[test]
    fn flags_of_vxlan_gpe_are_its_first_byte() {
        let frame = udp(4790, "0c 0000 03 123456 00 020000000002");
        let VxlanGpe { flags, vni, next_protocol } = whole(&frame, BEFORE_UDP + 8, VxlanGpe::of);
        assert_eq!((flags, vni, next_protocol), (0x0c, 0x12_3456, 3));
        assert!(has_none(&udp(4789, "0c 0000 03 123456 00"), VxlanGpe::of));
    }

    #[test]
    fn a_geneve_option_is_found_by_class_type_and_length() {
        let option = GeneveOption { class: 0x0102, kind: 0x83, words: 1 };
        let data = |frame: &[u8], headers: &Headers| option.data(frame, headers);
        let inside = "020000000002 020000000001 88b5 00";
        let geneve = |words: u8, options: &str| udp(6081, &format!("{words:02x} 00 6558 123456 00 {options} {inside}"));
        let wanted = "0102 83 01 cafe0007";
        assert_eq!(whole(&geneve(2, wanted), BEFORE_UDP + 8 + 8, data), 0xcafe_0007);
        // Behind others: of another class, of another type without data, of another length.
        let others = "0103 83 01 00000001 0102 84 00 0102 83 02 0000000200000003";
        assert_eq!(whole(&geneve(8, &format!("{others} {wanted}")), BEFORE_UDP + 8 + 32, data), 0xcafe_0007);
        assert!(has_none(&geneve(6, others), data));
        // Reserved bits beside the length say nothing.
        assert_eq!(whole(&geneve(2, "0102 83 e1 cafe0007"), BEFORE_UDP + 8 + 8, data), 0xcafe_0007);
        // Behind the options, or cut off by their length; and an option that is longer than all of them.
        for (words, options) in [(0, wanted), (1, wanted), (2, "0103 83 02 0102 83 01")] {
            assert!(has_none(&geneve(words, options), data), "{words}");
        }
        let two = GeneveOption { words: 2, ..option };
        assert_eq!(two.data(&geneve(3, "0102 83 02 0000000900000008"), &Headers::default()), None);
        let long = geneve(3, "0102 83 02 0000000900000008");
        assert_eq!(two.data(&long, &Headers::of(&long)), Some(9));
        assert!(has_none(&udp(6082, &format!("02 00 6558 123456 00 {wanted} {inside}")), data));
    }
}
