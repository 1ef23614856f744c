//! What members of multicast groups tell the network, and what they are asked: IGMP version 2 (RFC 2236) and MLD
//! version 1 (RFC 2710), which switches and routers of every version understand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use mlx5_dv::Mac;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, Icmpv6Packet, IgmpPacket, IgmpRepr, IgmpVersion, IpProtocol, Ipv4Packet,
    Ipv6Packet, Ipv6Repr,
};

use super::packets::ethernet;

/// Every host is in this group; queries go to it.
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Every IPv6 node is in this one.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ALL_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// IGMP's number among IP protocols.
const IGMP: u8 = 2;
/// Routers look at a packet that they only forward: options of IPv4 (RFC 2113), and of IPv6 for MLD (RFC 2711), which
/// ICMPv6 follows, with two bytes of padding.
const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
const ROUTER_ALERT_V6: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];
/// ICMPv6's type of MLD's queries.
const MLD_QUERY: u8 = 130;
/// How long members may take to answer a query of IGMP version 1, which does not say it. RFC 2236, section 4.
const VERSION_1_RESPONSE: Duration = Duration::from_secs(10);

/// What a member says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// That it is in the group.
    Report,
    /// That it has left the group.
    Leave,
}

impl Notice {
    /// The message of `mac` about `group`. `own` is its IPv4 address, if it has one.
    pub fn message(self, mac: Mac, own: Option<Ipv4Addr>, group: IpAddr) -> Vec<u8> {
        match group {
            IpAddr::V4(group) => self.igmp(mac, own.unwrap_or(Ipv4Addr::UNSPECIFIED), group),
            IpAddr::V6(group) => self.mld(mac, group),
        }
    }

    fn igmp(self, mac: Mac, own: Ipv4Addr, group: Ipv4Addr) -> Vec<u8> {
        let (to, igmp) = match self {
            Notice::Report => (group, IgmpRepr::MembershipReport { group_addr: group, version: IgmpVersion::Version2 }),
            Notice::Leave => (ALL_ROUTERS, IgmpRepr::LeaveGroup { group_addr: group }),
        };
        // A header of 24 bytes, of precedence Internetwork Control; 32 bytes; not in fragments; TTL 1.
        let ip = [&[0x46, 0xc0, 0, 32, 0, 0, 0x40, 0, 1, IGMP, 0, 0][..], &own.octets(), &to.octets(), &ROUTER_ALERT];
        let ip = ip.concat();
        ethernet(mac, Mac::of_group(to.into()), EthernetProtocol::Ipv4, ip.len() + igmp.buffer_len(), |bytes| {
            bytes[..ip.len()].copy_from_slice(&ip);
            let mut packet = Ipv4Packet::new_unchecked(bytes);
            packet.fill_checksum();
            igmp.emit(&mut IgmpPacket::new_unchecked(packet.payload_mut()));
        })
    }

    fn mld(self, mac: Mac, group: Ipv6Addr) -> Vec<u8> {
        let (kind, to) = match self {
            Notice::Report => (131, group),
            Notice::Leave => (132, ALL_ROUTERS_V6),
        };
        let own = mac.link_local();
        let icmp = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group.octets()].concat();
        let payload_len = ROUTER_ALERT_V6.len() + icmp.len();
        let next_header = IpProtocol::HopByHop;
        let ip = Ipv6Repr { src_addr: own, dst_addr: to, next_header, payload_len, hop_limit: 1 };
        ethernet(mac, Mac::of_group(to.into()), EthernetProtocol::Ipv6, ip.buffer_len() + payload_len, |bytes| {
            let mut packet = Ipv6Packet::new_unchecked(bytes);
            ip.emit(&mut packet);
            let (options, message) = packet.payload_mut().split_at_mut(ROUTER_ALERT_V6.len());
            options.copy_from_slice(&ROUTER_ALERT_V6);
            message.copy_from_slice(&icmp);
            Icmpv6Packet::new_unchecked(message).fill_checksum(&own, &to);
        })
    }
}

/// Whether the network is told of members. It is not of the group of all, nor of IPv6 groups within a host.
pub fn is_told(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != ALL_HOSTS,
        IpAddr::V6(group) => group != ALL_NODES && group.octets()[1] & 0xf > 1,
    }
}

/// Members are asked to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// Those of this group; `None` for all groups of the family.
    pub group: Option<IpAddr>,
    /// Whether groups of IPv4 are meant, or those of IPv6.
    pub of_ipv4: bool,
    /// By when: each waits for a while, so that not all answer at once.
    pub within: Duration,
}

impl Query {
    /// Reads a frame; `None` if it is no query.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let frame = EthernetFrame::new_checked(frame).ok()?;
        match frame.ethertype() {
            EthernetProtocol::Ipv4 => Self::of_igmp(&Ipv4Packet::new_checked(frame.payload()).ok()?),
            EthernetProtocol::Ipv6 => Self::of_mld(&Ipv6Packet::new_checked(frame.payload()).ok()?),
            _ => None,
        }
    }

    fn of_igmp(packet: &Ipv4Packet<&[u8]>) -> Option<Self> {
        let igmp = IgmpPacket::new_checked(packet.payload()).ok()?;
        let is_igmp = packet.version() == 4 && packet.next_header() == IpProtocol::Igmp;
        if !is_igmp || !igmp.verify_checksum() {
            return None;
        }
        let IgmpRepr::MembershipQuery { group_addr, .. } = IgmpRepr::parse(&igmp).ok()? else { return None };
        let within = match u32::from(igmp.max_resp_code()) {
            0 => VERSION_1_RESPONSE,
            // Version 3 has larger values with an exponent. RFC 3376, section 4.1.1.
            code @ 128.. if packet.payload().len() >= 12 => tenths((code & 0xf | 0x10) << ((code >> 4 & 7) + 3)),
            code => tenths(code),
        };
        Some(Query { group: some_group(group_addr.into())?, of_ipv4: true, within })
    }

    fn of_mld(packet: &Ipv6Packet<&[u8]>) -> Option<Self> {
        let (from, to, rest) = (packet.src_addr(), packet.dst_addr(), packet.payload());
        // A router that forwards would make it another hop limit: it is none of this network's then.
        let is_local = packet.version() == 6 && packet.hop_limit() == 1 && from.is_unicast_link_local();
        let (next, icmp) = match packet.next_header() {
            IpProtocol::HopByHop => {
                (IpProtocol::from(*rest.first()?), rest.get((usize::from(*rest.get(1)?) + 1) * 8..)?)
            }
            next => (next, rest),
        };
        let is_query = is_local && next == IpProtocol::Icmpv6 && icmp.len() >= 24 && icmp[0] == MLD_QUERY;
        // smoltcp reads queries of version 2 alone.
        if !is_query || !Icmpv6Packet::new_unchecked(icmp).verify_checksum(&from, &to) {
            return None;
        }
        let group = Ipv6Addr::from(<[u8; 16]>::try_from(&icmp[8..24]).ok()?);
        let milliseconds = match u64::from(u16::from_be_bytes([icmp[4], icmp[5]])) {
            // As in IGMP. RFC 3810, section 5.1.3.
            code @ 0x8000.. if icmp.len() >= 28 => (code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3),
            code => code,
        };
        let within = Duration::from_millis(milliseconds);
        Some(Query { group: some_group(group.into())?, of_ipv4: false, within })
    }
}

fn tenths(count: u32) -> Duration {
    Duration::from_millis(u64::from(count) * 100)
}

/// The group that a query is about: no address stands for all. `None` for what is no group's.
fn some_group(group: IpAddr) -> Option<Option<IpAddr>> {
    match group.is_unspecified() {
        true => Some(None),
        false => group.is_multicast().then_some(Some(group)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Mac = Mac([2, 0, 0xc5, 0, 0, 1]);
    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 4);

    /// A query, made of a report by other bytes.
    fn query(mut frame: Vec<u8>, kind: u8, code: &[u8], group: &[u8]) -> Vec<u8> {
        let start = frame.len() - if group.len() == 4 { 8 } else { 24 };
        let (head, message) = frame.split_at_mut(start);
        message[0] = kind;
        let at = if group.len() == 4 { 1 } else { 4 };
        message[at..at + code.len()].copy_from_slice(code);
        let at = message.len() - group.len();
        message[at..].copy_from_slice(group);
        match group.len() {
            4 => IgmpPacket::new_unchecked(message).fill_checksum(),
            _ => {
                let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&head[at..at + 16]).unwrap());
                Icmpv6Packet::new_unchecked(message).fill_checksum(&address(22), &address(38));
            }
        }
        frame
    }

    #[test]
    fn reports_and_leaves_are_the_rfcs() {
        let group = Ipv4Addr::new(239, 129, 2, 3);
        let report = Notice::Report.message(US, Some(OURS), group.into());
        let expected = [
            &[0x01, 0x00, 0x5e, 1, 2, 3, 2, 0, 0xc5, 0, 0, 1, 8, 0][..],
            &[0x46, 0xc0, 0, 32, 0, 0, 0x40, 0, 1, 2, 0xe8, 0x8f],
            &[10, 0, 0, 4, 239, 129, 2, 3, 0x94, 4, 0, 0, 0x16, 0, 0xf8, 0x7a, 239, 129, 2, 3],
        ];
        assert_eq!(report, expected.concat());
        assert!(Ipv4Packet::new_unchecked(&report[14..]).verify_checksum());
        assert!(IgmpPacket::new_unchecked(&report[38..]).verify_checksum());
        let leave = Notice::Leave.message(US, None, group.into());
        assert_eq!(
            (&leave[..6], &leave[26..34], leave[38]),
            (&[1, 0, 0x5e, 0, 0, 2][..], &[0, 0, 0, 0, 224, 0, 0, 2][..], 0x17)
        );

        let group: Ipv6Addr = "ff15::1:2".parse().unwrap();
        let report = Notice::Report.message(US, None, group.into());
        assert_eq!(report[..6], [0x33, 0x33, 0, 1, 0, 2]);
        assert_eq!((report[20], report[21], report[62]), (0, 1, 131));
        assert_eq!(report[38..54], group.octets());
        let leave = Notice::Leave.message(US, None, group.into());
        assert_eq!((&leave[38..54], leave[62], &leave[70..]), (&ALL_ROUTERS_V6.octets()[..], 132, &group.octets()[..]));
    }

    #[test]
    fn queries_are_read_and_nothing_else_is_one() {
        let v4 = Notice::Report.message(US, Some(OURS), ALL_HOSTS.into());
        let v6 = Notice::Report.message(US, None, ALL_NODES.into());
        assert_eq!((Query::parse(&v4), Query::parse(&v6)), (None, None), "reports");
        let group = [239, 1, 2, 3];
        for (code, of_group, expected) in [
            (100, [0; 4], (None, 10_000)),
            (0, [0; 4], (None, 10_000)),
            (5, group, (Some(IpAddr::from(group)), 500)),
            // Version 2 has no exponent.
            (255, [0; 4], (None, 25_500)),
        ] {
            let (group, within) = (expected.0, Duration::from_millis(expected.1));
            let frame = query(v4.clone(), 0x11, &[code], &of_group);
            assert_eq!(Query::parse(&frame), Some(Query { group, of_ipv4: true, within }), "{code}");
        }
        let group = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 1, 2);
        for of_group in [Ipv6Addr::UNSPECIFIED, group] {
            let frame = query(v6.clone(), MLD_QUERY, &1000u16.to_be_bytes(), &of_group.octets());
            let expected = (of_group == group).then_some(IpAddr::from(group));
            let expected = Query { group: expected, of_ipv4: false, within: Duration::from_secs(1) };
            assert_eq!(Query::parse(&frame), Some(expected));
            let mut forwarded = frame.clone();
            forwarded[21] = 2;
            assert_eq!(Query::parse(&forwarded), None);
        }
        for frame in [
            query(v4, 0x11, &[100], &[0; 4]),
            query(v6, MLD_QUERY, &1000u16.to_be_bytes(), &Ipv6Addr::UNSPECIFIED.octets()),
        ] {
            for len in 0..frame.len() {
                assert_eq!(Query::parse(&frame[..len]), None, "{len} bytes");
            }
            let mut damaged = frame.clone();
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(Query::parse(&damaged), None);
        }
    }

    #[test]
    fn the_group_of_all_is_not_told() {
        for (group, told) in [
            ("224.0.0.1", false),
            ("224.0.0.251", true),
            ("ff02::1", false),
            ("ff01::5", false),
            ("ff02::1:ff00:1", true),
        ] {
            assert_eq!(is_told(group.parse().unwrap()), told, "{group}");
        }
    }
}
