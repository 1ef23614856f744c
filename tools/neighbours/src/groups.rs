//! What members of multicast groups tell the network, and what they are asked: IGMP version 2 (RFC 2236) and MLD
//! version 1 (RFC 2710), which switches and routers of every version understand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use mlx5_dv::Mac;

/// Every host is in this group; queries go to it.
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Every IPv6 node is in this one.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ALL_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const IPV6_HEADER: usize = 40;
/// IP protocols.
const HOP_BY_HOP: u8 = 0;
const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
/// Types of IGMP and MLD messages.
const IGMP_QUERY: u8 = 0x11;
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
        let (kind, to) = match self {
            Notice::Report => (0x16, group),
            Notice::Leave => (0x17, ALL_ROUTERS),
        };
        // A header of 24 bytes, of precedence Internetwork Control; 32 bytes; not in fragments; TTL 1.
        let mut ip = [&[0x46, 0xc0, 0, 32, 0, 0, 0x40, 0, 1, IGMP, 0, 0][..], &own.octets(), &to.octets()].concat();
        // The option Router Alert. RFC 2113.
        ip.extend([0x94, 4, 0, 0]);
        let sum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum);
        let mut igmp = [&[kind, 0, 0, 0][..], &group.octets()].concat();
        let sum = checksum(&[&igmp]);
        igmp[2..4].copy_from_slice(&sum);
        [&mac_of(to.into()).0[..], &mac.0, &IPV4, &ip, &igmp].concat()
    }

    fn mld(self, mac: Mac, group: Ipv6Addr) -> Vec<u8> {
        let (kind, to) = match self {
            Notice::Report => (131, group),
            Notice::Leave => (132, ALL_ROUTERS_V6),
        };
        let own = mac.link_local();
        let mut icmp = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &group.octets()].concat();
        let sum = checksum(&[&pseudo_header(own, to, icmp.len()), &icmp]);
        icmp[2..4].copy_from_slice(&sum);
        // 32 bytes, hop limit 1.
        let ip = [&[0x60, 0, 0, 0, 0, 32, HOP_BY_HOP, 1][..], &own.octets(), &to.octets()].concat();
        // The option Router Alert, for MLD (RFC 2711), and two bytes of padding.
        let options = [ICMPV6, 0, 5, 2, 0, 0, 1, 0];
        [&mac_of(to.into()).0[..], &mac.0, &IPV6, &ip, &options, &icmp].concat()
    }
}

/// Whether the network is told of members. It is not of the group of all, nor of IPv6 groups within a host.
pub fn is_told(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != ALL_HOSTS,
        IpAddr::V6(group) => group != ALL_NODES && group.octets()[1] & 0xf > 1,
    }
}

/// The MAC address of a multicast group. RFC 1112, RFC 2464.
pub fn mac_of(group: IpAddr) -> Mac {
    match group {
        IpAddr::V4(group) => {
            let [_, a, b, c] = group.octets();
            Mac([0x01, 0x00, 0x5e, a & 0x7f, b, c])
        }
        IpAddr::V6(group) => Mac::of_group(group),
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
        let packet = frame.get(ETHERNET..)?;
        match frame[12..14].try_into().ok()? {
            IPV4 => Self::of_igmp(packet),
            IPV6 => Self::of_mld(packet),
            _ => None,
        }
    }

    fn of_igmp(packet: &[u8]) -> Option<Self> {
        let header = packet.get(..20)?;
        let (start, end) = (usize::from(header[0] & 0xf) * 4, usize::from(u16::from_be_bytes([header[2], header[3]])));
        let is_igmp = header[0] >> 4 == 4 && start >= 20 && header[9] == IGMP;
        let igmp = packet.get(start..end).filter(|igmp| is_igmp && igmp.len() >= 8 && checksum(&[igmp]) == [0; 2])?;
        if igmp[0] != IGMP_QUERY {
            return None;
        }
        let group = Ipv4Addr::from([igmp[4], igmp[5], igmp[6], igmp[7]]);
        let within = match u32::from(igmp[1]) {
            0 => VERSION_1_RESPONSE,
            // Version 3 has larger values with an exponent. RFC 3376, section 4.1.1.
            code @ 128.. if igmp.len() >= 12 => tenths((code & 0xf | 0x10) << ((code >> 4 & 7) + 3)),
            code => tenths(code),
        };
        Some(Query { group: some_group(group.into())?, of_ipv4: true, within })
    }

    fn of_mld(packet: &[u8]) -> Option<Self> {
        let (header, rest) = packet.split_at_checked(IPV6_HEADER)?;
        let rest = rest.get(..usize::from(u16::from_be_bytes([header[4], header[5]])))?;
        let address = |at: usize| header[at..][..16].try_into().map(|octets: [u8; 16]| Ipv6Addr::from(octets)).ok();
        let (from, to) = (address(8)?, address(24)?);
        // A router that forwards would make it another hop limit: it is none of this network's then.
        let is_local = header[0] >> 4 == 6 && header[7] == 1 && from.is_unicast_link_local();
        let (next, icmp) = match header[6] {
            HOP_BY_HOP => (*rest.first()?, rest.get((usize::from(*rest.get(1)?) + 1) * 8..)?),
            next => (next, rest),
        };
        let is_sound = is_local && next == ICMPV6 && icmp.len() >= 24;
        let sum = checksum(&[&pseudo_header(from, to, icmp.len()), icmp]);
        if !is_sound || sum != [0; 2] || icmp[0] != MLD_QUERY {
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

/// What the checksum of `len` bytes of ICMPv6 also covers. RFC 8200, section 8.1.
fn pseudo_header(from: Ipv6Addr, to: Ipv6Addr, len: usize) -> Vec<u8> {
    [&from.octets()[..], &to.octets(), &(len as u32).to_be_bytes(), &[0, 0, 0, ICMPV6]].concat()
}

/// The Internet's checksum (RFC 1071) over `parts`, of which only the last may have an odd number of bytes.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let pair = |pair: &[u8]| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum: u64 = parts.iter().flat_map(|part| part.chunks(2)).map(pair).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
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
        message[2..4].fill(0);
        let sum = match group.len() {
            4 => checksum(&[message]),
            _ => {
                let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&head[at..at + 16]).unwrap());
                checksum(&[&pseudo_header(address(22), address(38), message.len()), message])
            }
        };
        message[2..4].copy_from_slice(&sum);
        frame
    }

    #[test]
    fn reports_and_leaves_are_the_rfcs() {
        let group = Ipv4Addr::new(239, 129, 2, 3);
        let report = Notice::Report.message(US, Some(OURS), group.into());
        let expected = [
            &[0x01, 0x00, 0x5e, 1, 2, 3, 2, 0, 0xc5, 0, 0, 1, 8, 0][..],
            &[0x46, 0xc0, 0, 32, 0, 0, 0x40, 0, 1, 2],
            &report[24..26],
            &[10, 0, 0, 4, 239, 129, 2, 3, 0x94, 4, 0, 0, 0x16, 0, 0xf8, 0x7a, 239, 129, 2, 3],
        ];
        assert_eq!(report, expected.concat());
        assert_eq!((checksum(&[&report[14..38]]), checksum(&[&report[38..]])), ([0; 2], [0; 2]));
        let leave = Notice::Leave.message(US, None, group.into());
        assert_eq!(
            (&leave[..6], &leave[26..34], leave[38]),
            (&[1, 0, 0x5e, 0, 0, 2][..], &[0, 0, 0, 0, 224, 0, 0, 2][..], 0x17)
        );

        let group: Ipv6Addr = "ff15::1:2".parse().unwrap();
        let report = Notice::Report.message(US, None, group.into());
        assert_eq!(report[..6], [0x33, 0x33, 0, 1, 0, 2]);
        assert_eq!((report[20], report[21], report[62]), (HOP_BY_HOP, 1, 131));
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
            let frame = query(v4.clone(), IGMP_QUERY, &[code], &of_group);
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
            query(v4, IGMP_QUERY, &[100], &[0; 4]),
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
