//! Decodes packets from bytes.
//!
//! Decoding never panics. A truncated or damaged packet is an error; every packet that was encoded decodes to itself.
//! Inbound validation: IBTA A17.3.4.

use etherparse::checksum::Sum16BitWords;
use etherparse::{EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv4HeaderSlice, SingleVlanHeader, UdpHeader};
use mlx5_prm::ib;
use mlx5_prm::layout::Layout;
use thiserror::Error;

use super::dynamic::Dceth;
use super::header::{Route, gid_of_ipv4};
use super::icrc;
use super::opcode::Transport;
use super::packet::{MAX_PAYLOAD, Packet, UDP_PORT};
use super::psn::Psn;

/// Why bytes are not a valid packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Another protocol, not RoCE v2.
    #[error("not a RoCE v2 packet")]
    NotRoce,
    /// The lengths in the headers contradict the frame's length.
    #[error("the packet's lengths contradict each other")]
    Length,
    /// The IPv4 header's checksum is wrong.
    #[error("wrong IPv4 header checksum")]
    IpChecksum,
    /// The ICRC is wrong.
    #[error("wrong ICRC")]
    Icrc,
    /// An opcode of an unsupported transport, or a reserved one of a transport that answers nothing.
    #[error("reserved or unsupported opcode {0:#04x}")]
    Opcode(u8),
    /// BTH version other than 0, or payload in a packet that has none.
    #[error("malformed transport headers")]
    Malformed,
}

impl Packet {
    /// Decodes an Ethernet frame without FCS. Padding after the IP packet is ignored.
    pub fn decode(frame: &[u8]) -> Result<Packet, DecodeError> {
        let (route, ip, udp) = decode_ip(frame)?;
        let (udp, transport) = UdpHeader::from_slice(udp).map_err(|_| DecodeError::Length)?;
        if udp.destination_port != UDP_PORT {
            return Err(DecodeError::NotRoce);
        }
        let len = usize::from(udp.length);
        if len != UdpHeader::LEN + transport.len() || transport.len() < ib::Bth::SIZE + icrc::LEN {
            return Err(DecodeError::Length);
        }
        let (covered, stored) = ip.split_at(ip.len() - icrc::LEN);
        if icrc::compute(covered).to_le_bytes() != stored {
            return Err(DecodeError::Icrc);
        }
        let route = Route { sport: udp.source_port, ..route };
        decode_transport(&transport[..transport.len() - icrc::LEN], route)
    }
}

/// Whether the frame is RoCE v2, by its UDP destination port: it does not belong to Ethernet queues.
pub fn is_roce(frame: &[u8]) -> bool {
    let udp = decode_ip(frame).ok().and_then(|(_, _, udp)| UdpHeader::from_slice(udp).ok());
    udp.is_some_and(|(udp, _)| udp.destination_port == UDP_PORT)
}

/// Decodes Ethernet and IP: the route without its UDP port, the IP packet cut to its length, and what follows its
/// header.
fn decode_ip(frame: &[u8]) -> Result<(Route, &[u8], &[u8]), DecodeError> {
    let (ethernet, mut ip) = Ethernet2Header::from_slice(frame).map_err(|_| DecodeError::NotRoce)?;
    let mut route = Route { dst_mac: ethernet.destination, src_mac: ethernet.source, ..Route::default() };
    let mut ether_type = ethernet.ether_type;
    if ether_type == EtherType::VLAN_TAGGED_FRAME {
        let tag = SingleVlanHeader::from_slice(ip).map_err(|_| DecodeError::NotRoce)?;
        route.tag = ip.first_chunk().map(|tag| u16::from_be_bytes(*tag));
        (ether_type, ip) = (tag.0.ether_type, tag.1);
    }
    let (ip, udp) = match ether_type {
        EtherType::IPV4 => decode_ipv4(ip, &mut route)?,
        EtherType::IPV6 => decode_ipv6(ip, &mut route)?,
        _ => return Err(DecodeError::NotRoce),
    };
    Ok((route, ip, udp))
}

/// Checks an IPv4 header; returns the packet cut to its length, and what follows the header. IBTA A17.3.1.1.
fn decode_ipv4<'a>(ip: &'a [u8], route: &mut Route) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let header = Ipv4HeaderSlice::from_slice(ip).map_err(|_| DecodeError::NotRoce)?;
    // Options and fragments are not allowed in RoCE v2. IBTA A17.3.1.1.
    let has_options = header.slice().len() != Ipv4Header::MIN_LEN;
    if has_options || header.protocol() != IpNumber::UDP || header.is_fragmenting_payload() {
        return Err(DecodeError::NotRoce);
    }
    if !is_for_roce(ip, Ipv4Header::MIN_LEN) {
        return Err(DecodeError::NotRoce);
    }
    if Sum16BitWords::new().add_slice(header.slice()).ones_complement() != 0 {
        return Err(DecodeError::IpChecksum);
    }
    route.tclass = header.dcp().value() << 2 | header.ecn().value();
    route.hop_limit = header.ttl();
    route.src = gid_of_ipv4(header.source());
    route.dst = gid_of_ipv4(header.destination());
    cut(ip, Ipv4Header::MIN_LEN, usize::from(header.total_len()))
}

/// Checks an IPv6 header; returns the packet cut to its length, and what follows the header. IBTA A17.3.1.2.
fn decode_ipv6<'a>(ip: &'a [u8], route: &mut Route) -> Result<(&'a [u8], &'a [u8]), DecodeError> {
    let header = ib::Grh::read(ip).ok_or(DecodeError::NotRoce)?;
    if header.ip_ver() != 6 || header.nxt_hdr() != IpNumber::UDP.0 || !is_for_roce(ip, ib::Grh::SIZE) {
        return Err(DecodeError::NotRoce);
    }
    route.tclass = header.t_class();
    route.flow_label = header.flow_label();
    route.hop_limit = header.hop_lmt();
    (route.src, route.dst) = (*header.sgid(), *header.dgid());
    // IPv4-mapped addresses (RFC 4291, 2.5.5.2) mean IPv4 in GIDs. Such an IPv6 header would be re-encoded as IPv4.
    if route.is_ipv4() {
        return Err(DecodeError::NotRoce);
    }
    cut(ip, ib::Grh::SIZE, ib::Grh::SIZE + usize::from(header.pay_len()))
}

/// Whether the UDP header behind an IP header of `header` bytes has RoCE's port. Others' errors are not the card's
/// concern.
fn is_for_roce(ip: &[u8], header: usize) -> bool {
    ip.get(header + 2..header + 4) == Some(&UDP_PORT.to_be_bytes())
}

/// The first `len` bytes, and the part after `header` bytes, which has room for a UDP header.
fn cut(ip: &[u8], header: usize, len: usize) -> Result<(&[u8], &[u8]), DecodeError> {
    let ip = ip.get(..len).filter(|ip| ip.len() >= header + UdpHeader::LEN).ok_or(DecodeError::Length)?;
    Ok((ip, &ip[header..]))
}

/// Decodes a packet from its BTH. `bytes` ends before the ICRC.
fn decode_transport(mut bytes: &[u8], route: Route) -> Result<Packet, DecodeError> {
    let bth: ib::Bth = take(&mut bytes).ok_or(DecodeError::Length)?;
    let (service, operation) = (bth.service(), bth.operation());
    let pair = Transport::split(service, operation);
    let (transport, opcode) = pair.ok_or(DecodeError::Opcode(bth.as_bytes()[0]))?;
    if bth.t_ver() != 0 {
        return Err(DecodeError::Malformed);
    }
    let mut packet = Packet::new(opcode, route, bth.dest_qp(), Psn::new(bth.psn()));
    packet.transport = transport;
    packet.pkey = bth.p_key();
    packet.solicited = bth.se();
    packet.ack_request = bth.ack_req();
    (packet.fecn, packet.becn) = (bth.fecn(), bth.becn());
    decode_extended(&mut bytes, &mut packet).ok_or(DecodeError::Length)?;
    let len = bytes.len().checked_sub(usize::from(bth.pad_cnt())).ok_or(DecodeError::Length)?;
    if len > MAX_PAYLOAD || (len > 0 && !opcode.has_payload()) {
        return Err(DecodeError::Malformed);
    }
    packet.payload.extend_from_slice(&bytes[..len]);
    Ok(packet)
}

fn decode_extended(bytes: &mut &[u8], packet: &mut Packet) -> Option<()> {
    let opcode = packet.opcode;
    if packet.has_xrceth() {
        packet.xrc_srqn = take::<ib::Xrceth>(bytes)?.xrcsrq();
    }
    if packet.has_dceth() {
        packet.dc = Dceth::decode(bytes)?;
        *bytes = &bytes[Dceth::SIZE..];
    }
    if packet.transport == Transport::Ud {
        packet.deth = take::<ib::Deth>(bytes)?.into();
    }
    if opcode.has_reth() {
        packet.reth = take::<ib::Reth>(bytes)?.into();
    }
    if opcode.has_aeth() {
        packet.aeth = take::<ib::Aeth>(bytes)?.into();
    }
    if opcode.has_immediate() {
        packet.immediate = take::<ib::ImmDt>(bytes)?.imm_dt();
    }
    if opcode.has_ieth() {
        packet.immediate = take::<ib::Ieth>(bytes)?.r_key();
    }
    if opcode.has_atomic() {
        packet.atomic = take::<ib::AtomicEth>(bytes)?.into();
    }
    if opcode.has_atomic_ack() {
        packet.atomic_ack = take::<ib::AtomicAckEth>(bytes)?.orig_rem_dt();
    }
    Some(())
}

/// Takes a header from the start of `bytes`.
fn take<L: Layout>(bytes: &mut &[u8]) -> Option<L> {
    let header = L::read(bytes)?;
    *bytes = &bytes[L::SIZE..];
    Some(header)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::transport::header::{Aeth, AtomicEth, Deth, Reth};
    use crate::transport::opcode::Opcode;

    const ETHERNET: usize = Ethernet2Header::LEN;
    const IPV6: usize = ib::Grh::SIZE;
    const UDP: usize = UdpHeader::LEN;

    fn route(v4: bool) -> Route {
        let gid = |last| {
            if v4 {
                gid_of_ipv4([10, 0, 0, last])
            } else {
                [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, last]
            }
        };
        Route {
            dst_mac: [2, 0, 0, 0, 0, 2],
            src_mac: [2, 0, 0, 0, 0, 1],
            src: gid(1),
            dst: gid(2),
            sport: 0xc123,
            hop_limit: 64,
            tclass: 0x62,
            flow_label: if v4 { 0 } else { 0xabcde },
            tag: None,
        }
    }

    fn encoded(packet: &Packet) -> Vec<u8> {
        let mut frame = Vec::new();
        packet.encode(&mut frame);
        frame
    }

    /// Written by hand from the headers' definitions; `icrc` checks the ICRC against captures of real cards.
    #[test]
    fn golden_send_only() {
        let mut packet = Packet::new(Opcode::SendOnlyImm, route(true), 0x123456, Psn::new(0xabcdef));
        packet.immediate = 0x11223344;
        packet.solicited = true;
        packet.ack_request = true;
        packet.payload = vec![1, 2, 3, 4, 5];
        let frame = encoded(&packet);
        let expected = [
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
            0x45, 0x62, 0, 56, 0, 0, 0x40, 0, 64, 17, 0x26, 0x51, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
            0xc1, 0x23, 0x12, 0xb7, 0, 36, 0, 0, // UDP
            5, 0xf0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef, // BTH: three bytes of padding
            0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 0, 0, 0,
        ];
        assert_eq!(frame[..expected.len()], expected);
        assert_eq!(frame.len(), expected.len() + 4);
        assert_eq!(Packet::decode(&frame), Ok(packet));
    }

    #[test]
    fn a_tag_stands_between_addresses_and_type() {
        let plain = Packet::new(Opcode::Acknowledge, route(true), 7, Psn::new(9));
        let mut tagged = plain.clone();
        tagged.route.tag = Some(0x6007);
        let (plain, frame) = (encoded(&plain), encoded(&tagged));
        assert_eq!(frame[..12], plain[..12]);
        assert_eq!((&frame[12..16], &frame[16..]), (&[0x81, 0, 0x60, 7][..], &plain[12..]));
    }

    #[test]
    fn an_ipv6_header_with_ipv4_addresses_is_no_roce() {
        let mut frame = encoded(&Packet::new(Opcode::SendOnly, route(false), 1, Psn::default()));
        for (at, last) in [(ETHERNET + 8, 1), (ETHERNET + 24, 2)] {
            frame[at..at + 16].copy_from_slice(&gid_of_ipv4([10, 0, 0, last]));
        }
        let end = frame.len() - icrc::LEN;
        let crc = icrc::compute(&frame[ETHERNET..end]);
        frame[end..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Packet::decode(&frame), Err(DecodeError::NotRoce));
        assert!(!is_roce(&frame));
    }

    #[test]
    fn each_bit_of_the_invariant_part_is_covered() {
        let mut packet = Packet::new(Opcode::WriteOnly, route(false), 7, Psn::new(9));
        packet.reth = Reth { va: 0x1000, rkey: 0x200, len: 3 };
        packet.payload = vec![9, 8, 7];
        let frame = encoded(&packet);
        for bit in (ETHERNET + IPV6 + UDP) * 8..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 0x80 >> (bit % 8);
            let variant = bit / 8 == ETHERNET + IPV6 + UDP + 4; // FECN, BECN, reserved
            assert_eq!(Packet::decode(&damaged).is_ok(), variant, "bit {bit}");
        }
    }

    #[test]
    fn a_flipped_bit_is_in_the_bytes() {
        let mut packet = Packet::new(Opcode::Acknowledge, route(true), 7, Psn::new(9));
        let whole = encoded(&packet);
        packet.flipped = Some(8 * 50 + 3);
        let frame = encoded(&packet);
        assert_eq!((whole[50] ^ frame[50], Packet::decode(&frame)), (0x10, Err(DecodeError::Icrc)));
    }

    prop_compose! {
        fn any_packet()(
            index in 0..Opcode::ALL.len(), transport in proptest::sample::select(&Transport::ALL[..]),
            srqn in 0..1u32 << 24, deth: (u32, u32), dc: (u64, u32, u32, u32), v4: bool, tag: Option<u16>, flags: [bool; 4],
            qpn in 0..1u32 << 24, psn: u32,
            reth: (u64, u32, u32), aeth: (u8, u32), immediate: u32, atomic: (u64, u32, u64, u64), atomic_ack: u64,
            payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) -> Packet {
            let opcode = Opcode::ALL[index];
            let mut packet = Packet::new(opcode, Route { tag, ..route(v4) }, qpn, Psn::new(psn));
            // Dynamic connections have every opcode but reserved ones.
            let other = if opcode.is_unsupported() { Transport::Rc } else { Transport::Dc };
            packet.transport = if transport.has(opcode) { transport } else { other };
            if packet.has_xrceth() { packet.xrc_srqn = srqn; }
            if packet.transport == Transport::Ud { packet.deth = Deth { qkey: deth.0, src_qpn: deth.1 & Psn::MASK }; }
            if packet.has_dceth() {
                let (dci, first) = (dc.1 & Psn::MASK, Psn::new(dc.3));
                packet.dc = Dceth { access_key: dc.0, dci, connection: dc.2, first };
            }
            [packet.solicited, packet.ack_request, packet.fecn, packet.becn] = flags;
            if opcode.has_reth() { packet.reth = Reth { va: reth.0, rkey: reth.1, len: reth.2 }; }
            if opcode.has_aeth() { packet.aeth = Aeth { syndrome: aeth.0, msn: aeth.1 & Psn::MASK }; }
            if opcode.has_immediate() || opcode.has_ieth() { packet.immediate = immediate; }
            if opcode.has_atomic() {
                packet.atomic = AtomicEth { va: atomic.0, rkey: atomic.1, swap_add: atomic.2, compare: atomic.3 };
            }
            if opcode.has_atomic_ack() { packet.atomic_ack = atomic_ack; }
            if opcode.has_payload() { packet.payload = payload; }
            packet
        }
    }

    proptest! {
        #[test]
        fn what_encodes_decodes_to_itself(packet in any_packet()) {
            let mut frame = encoded(&packet);
            prop_assert!(is_roce(&frame));
            prop_assert_eq!(Packet::decode(&frame), Ok(packet.clone()));
            frame.extend_from_slice(&[0; 7]); // Ethernet padding
            prop_assert_eq!(Packet::decode(&frame), Ok(packet));
        }

        #[test]
        fn decoding_any_bytes_is_no_panic(frame in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Packet::decode(&frame);
            is_roce(&frame);
        }

        #[test]
        fn decoding_a_broken_packet_is_no_panic(packet in any_packet(), cut: usize, at: usize, value: u8) {
            let mut frame = encoded(&packet);
            frame.truncate(cut % (frame.len() + 1));
            if !frame.is_empty() {
                let at = at % frame.len();
                frame[at] = value;
            }
            let _ = Packet::decode(&frame);
        }
    }
}
