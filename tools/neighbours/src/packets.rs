//! ARP and neighbour discovery packets: requests to send, and what received ones say. RFC 826, RFC 4861.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mlx5_dv::Mac;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv6Packet,
    Icmpv6Repr, IpProtocol, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress,
};

/// Hop limit of neighbour discovery: a packet with another one was forwarded by a router. RFC 4861.
const HOP_LIMIT: u8 = 255;

/// The solicited-node multicast group of `address`. RFC 4291.
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// A frame of `len` bytes behind its header, which `fill` writes.
pub(super) fn ethernet(
    from: Mac,
    to: Mac,
    ethertype: EthernetProtocol,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let mut bytes = vec![0; EthernetFrame::<&[u8]>::buffer_len(len)];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    EthernetRepr { src_addr: EthernetAddress(from.0), dst_addr: EthernetAddress(to.0), ethertype }.emit(&mut frame);
    fill(frame.payload_mut());
    bytes
}

/// An ARP request for `target`, from `mac` with the address `own`.
pub fn arp_request(mac: Mac, own: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let repr = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(mac.0),
        source_protocol_addr: own,
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: target,
    };
    ethernet(mac, Mac::BROADCAST, EthernetProtocol::Arp, repr.buffer_len(), |bytes| {
        repr.emit(&mut ArpPacket::new_unchecked(bytes));
    })
}

/// A neighbour solicitation for `target`, from `mac` with the address `own`.
pub fn solicitation(mac: Mac, own: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let group = solicited_node(target);
    let lladdr = Some(RawHardwareAddress::from(EthernetAddress(mac.0)));
    ndisc((mac, own), (Mac::of_group(group.into()), group), NdiscRepr::NeighborSolicit { target_addr: target, lladdr })
}

/// A neighbour advertisement to `requester`: `mac` has the address `own`.
fn advertisement(mac: Mac, own: Ipv6Addr, requester: (Mac, Ipv6Addr)) -> Vec<u8> {
    let flags = NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE;
    let lladdr = Some(RawHardwareAddress::from(EthernetAddress(mac.0)));
    ndisc((mac, own), requester, NdiscRepr::NeighborAdvert { flags, target_addr: own, lladdr })
}

fn ndisc(from: (Mac, Ipv6Addr), to: (Mac, Ipv6Addr), repr: NdiscRepr<'_>) -> Vec<u8> {
    let icmp = Icmpv6Repr::Ndisc(repr);
    let ip = Ipv6Repr {
        src_addr: from.1,
        dst_addr: to.1,
        next_header: IpProtocol::Icmpv6,
        payload_len: icmp.buffer_len(),
        hop_limit: HOP_LIMIT,
    };
    ethernet(from.0, to.0, EthernetProtocol::Ipv6, ip.buffer_len() + icmp.buffer_len(), |bytes| {
        let mut packet = Ipv6Packet::new_unchecked(bytes);
        ip.emit(&mut packet);
        let mut payload = Icmpv6Packet::new_unchecked(packet.payload_mut());
        icmp.emit(&from.1, &to.1, &mut payload, &ChecksumCapabilities::default());
    })
}

/// What a received frame says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// A neighbour: its IP and MAC address.
    pub learned: Option<(IpAddr, Mac)>,
    /// An answer to send. smoltcp does not answer unicast solicitations, with which Linux probes known neighbours.
    pub reply: Option<Vec<u8>>,
}

/// Reads `frame`, received by `mac` with the addresses `own`.
pub fn parse(frame: &[u8], mac: Mac, own: &[Ipv6Addr]) -> Parsed {
    let Ok(frame) = EthernetFrame::new_checked(frame) else { return Parsed::default() };
    let parsed = match frame.ethertype() {
        EthernetProtocol::Arp => arp(frame.payload()),
        EthernetProtocol::Ipv6 => neighbour(&frame, mac, own),
        _ => None,
    };
    parsed.filter(|parsed| parsed.learned.is_none_or(is_of_one)).unwrap_or_default()
}

/// Whether both addresses are those of one neighbour: neither a group's, nor everybody's, nor nobody's.
fn is_of_one((ip, mac): (IpAddr, Mac)) -> bool {
    let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    EthernetAddress(mac.0).is_unicast()
        && mac.0 != [0; 6]
        && !ip.is_unspecified()
        && !ip.is_multicast()
        && !is_broadcast
}

fn arp(payload: &[u8]) -> Option<Parsed> {
    let packet = ArpPacket::new_checked(payload).ok()?;
    let ArpRepr::EthernetIpv4 { source_hardware_addr, source_protocol_addr, .. } = ArpRepr::parse(&packet).ok()? else {
        return None;
    };
    // An ARP probe has no sender address yet: nothing is learned of it.
    Some(Parsed { learned: Some((source_protocol_addr.into(), Mac(source_hardware_addr.0))), reply: None })
}

fn neighbour(frame: &EthernetFrame<&[u8]>, mac: Mac, own: &[Ipv6Addr]) -> Option<Parsed> {
    let packet = Ipv6Packet::new_checked(frame.payload()).ok()?;
    let ip = Ipv6Repr::parse(&packet).ok()?;
    if ip.next_header != IpProtocol::Icmpv6 || ip.hop_limit != HOP_LIMIT {
        return None;
    }
    let icmp = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    let repr = Icmpv6Repr::parse(&ip.src_addr, &ip.dst_addr, &icmp, &ChecksumCapabilities::default()).ok()?;
    let Icmpv6Repr::Ndisc(repr) = repr else { return None };
    match repr {
        NdiscRepr::NeighborAdvert { target_addr, lladdr, .. } => {
            Some(Parsed { learned: Some((target_addr.into(), mac_of(lladdr?)?)), reply: None })
        }
        NdiscRepr::NeighborSolicit { target_addr, lladdr } => {
            let requester = lladdr.and_then(mac_of).unwrap_or(Mac(frame.src_addr().0));
            let has_address = !ip.src_addr.is_unspecified();
            let to_us_alone = own.contains(&target_addr) && ip.dst_addr == target_addr && has_address;
            Some(Parsed {
                learned: has_address.then_some((ip.src_addr.into(), requester)),
                reply: to_us_alone.then(|| advertisement(mac, target_addr, (requester, ip.src_addr))),
            })
        }
        _ => None,
    }
}

fn mac_of(address: RawHardwareAddress) -> Option<Mac> {
    Some(Mac(address.as_bytes().try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEM: Mac = Mac([2, 0, 0, 0, 0, 2]);

    /// Broadcast, type, Ethernet and IPv4 of 6 and 4 bytes, request, as RFC 826 has them.
    #[test]
    fn an_arp_request_is_the_rfc_s() {
        let frame = arp_request(US, Ipv4Addr::new(10, 0, 0, 4), Ipv4Addr::new(10, 0, 0, 3));
        let expected = [
            &[0xff; 6][..],
            &[2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1],
            &[2, 0, 0, 0, 0, 1, 10, 0, 0, 4],
            &[0, 0, 0, 0, 0, 0, 10, 0, 0, 3],
        ];
        assert_eq!(frame, expected.concat());
        let learned = Some((Ipv4Addr::new(10, 0, 0, 4).into(), US));
        assert_eq!(parse(&frame, THEM, &[THEM.link_local()]), Parsed { learned, reply: None });
    }

    #[test]
    fn a_solicitation_goes_to_the_group_and_its_answer_to_who_asked() {
        let (us, them) = (US.link_local(), THEM.link_local());
        let frame = solicitation(US, us, them);
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0, 0, 2]);
        assert_eq!((frame[21], frame[54]), (255, 135), "hop limit, type");
        // smoltcp answers this one; we learn who asks.
        assert_eq!(parse(&frame, THEM, &[them]), Parsed { learned: Some((us.into(), US)), reply: None });

        let alone = ndisc((US, us), (THEM, them), NdiscRepr::NeighborSolicit { target_addr: them, lladdr: None });
        let parsed = parse(&alone, THEM, &[them]);
        assert_eq!(parsed.learned, Some((us.into(), US)));
        let reply = parsed.reply.unwrap();
        assert_eq!((&reply[..6], reply[54]), (&US.0[..], 136));
        assert_eq!(parse(&reply, US, &[us]), Parsed { learned: Some((them.into(), THEM)), reply: None });
    }

    #[test]
    fn each_address_is_answered_for_by_itself() {
        let (us, global): (_, Ipv6Addr) = (US.link_local(), "2001:db8::4".parse().unwrap());
        for (target, to, answered) in
            [(global, global, true), (us, us, true), (global, us, false), (THEM.link_local(), us, false)]
        {
            let repr = NdiscRepr::NeighborSolicit { target_addr: target, lladdr: None };
            let parsed = parse(&ndisc((THEM, THEM.link_local()), (US, to), repr), US, &[us, global]);
            assert_eq!(parsed.reply.is_some(), answered, "{target} asked of {to}");
            let Some(reply) = parsed.reply else { continue };
            let learned = Some((target.into(), US));
            assert_eq!(parse(&reply, THEM, &[THEM.link_local()]), Parsed { learned, reply: None });
        }
    }

    #[test]
    fn what_a_router_passed_on_or_is_cut_short_is_not_believed() {
        let (us, them) = (US.link_local(), THEM.link_local());
        let mut frame = solicitation(US, us, them);
        for len in 0..frame.len() {
            assert_eq!(parse(&frame[..len], THEM, &[them]), Parsed::default(), "{len} bytes");
        }
        frame[21] = 254;
        assert_eq!(parse(&frame, THEM, &[them]), Parsed::default());
        let mut probe = arp_request(US, Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 0, 0, 3));
        assert_eq!(parse(&probe, THEM, &[them]), Parsed::default(), "who has no address yet");
        probe[22] |= 1;
        assert_eq!(parse(&probe, THEM, &[them]), Parsed::default(), "nobody's MAC address");
    }

    #[test]
    fn neighbours_are_neither_groups_nor_everybody_nor_nobody() {
        let (us, them) = (US.link_local(), THEM.link_local());
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let solicit = |from: (Mac, Ipv6Addr), lladdr: Option<Mac>| {
            let lladdr = lladdr.map(|mac| RawHardwareAddress::from(EthernetAddress(mac.0)));
            ndisc(from, (THEM, them), NdiscRepr::NeighborSolicit { target_addr: them, lladdr })
        };
        // The requester's MAC address is the frame's if the packet has none.
        for (from, lladdr) in [
            ((Mac::BROADCAST, us), None),
            ((Mac::of_group(group.into()), us), None),
            ((Mac([0; 6]), us), None),
            ((US, us), Some(Mac::BROADCAST)),
            ((US, us), Some(Mac([0; 6]))),
            ((US, group), None),
        ] {
            assert_eq!(parse(&solicit(from, lladdr), THEM, &[them]), Parsed::default(), "{from:?} {lladdr:?}");
        }
        assert!(parse(&solicit((US, us), None), THEM, &[them]).reply.is_some());
        let of_group = ndisc(
            (US, us),
            (THEM, them),
            NdiscRepr::NeighborAdvert {
                flags: NdiscNeighborFlags::OVERRIDE,
                target_addr: group,
                lladdr: Some(RawHardwareAddress::from(EthernetAddress(US.0))),
            },
        );
        assert_eq!(parse(&of_group, THEM, &[them]), Parsed::default());
        for own in [Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1), Ipv4Addr::UNSPECIFIED] {
            let frame = arp_request(US, own, Ipv4Addr::new(10, 0, 0, 3));
            assert_eq!(parse(&frame, THEM, &[them]), Parsed::default(), "{own}");
        }
    }
}
