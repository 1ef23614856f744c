//! ARP and neighbour discovery from the wire, raw and with right lengths and checksums: no frame panics, what is
//! learned is one neighbour, and the requester understands an answer.

#![no_main]

use std::net::{IpAddr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use mlx5_dv::Mac;
use mlx5_neighbours::groups::Query;
use mlx5_neighbours::packets::{Parsed, parse};

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const ICMPV6: u8 = 58;
const US: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// Makes the first bytes those of an ARP packet for Ethernet and IPv4.
fn dressed_as_arp(frame: &mut [u8]) -> Option<()> {
    frame.get_mut(12..20)?.copy_from_slice(&[0x08, 0x06, 0, 1, 0x08, 0, 6, 4]);
    Some(())
}

/// Makes it a packet of neighbour discovery, for `own` if `is_for_us`. Its checksum comes last.
fn dressed_as_discovery(frame: &mut [u8], own: Ipv6Addr, is_solicitation: bool, is_for_us: bool) -> Option<()> {
    let len = u16::try_from(frame.len().checked_sub(ETHERNET + IPV6)?).ok()?;
    frame.get_mut(12..14)?.copy_from_slice(&[0x86, 0xdd]);
    let (ip, icmp) = frame.get_mut(ETHERNET..)?.split_at_mut(IPV6);
    ip[0] = 0x60 | ip[0] & 0xf;
    ip[4..6].copy_from_slice(&len.to_be_bytes());
    (ip[6], ip[7]) = (ICMPV6, 255);
    icmp.get_mut(..2)?.copy_from_slice(&[if is_solicitation { 135 } else { 136 }, 0]);
    if is_for_us {
        ip[24..40].copy_from_slice(&own.octets());
        icmp.get_mut(8..24)?.copy_from_slice(&own.octets());
    }
    icmp.get_mut(2..4)?.fill(0);
    let of = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two.get(1).copied().unwrap_or(0))).sum()
    };
    let mut sum = of(&ip[8..40]) + u32::from(len) + u32::from(ICMPV6) + of(icmp);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    icmp[2..4].copy_from_slice(&(!sum as u16).to_be_bytes());
    Some(())
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, frame)) = bytes.split_first() else { return };
    let (mut frame, own) = (frame.to_vec(), US.link_local());
    let _ = match how & 3 {
        0 => None,
        1 => dressed_as_arp(&mut frame),
        kind => dressed_as_discovery(&mut frame, own, kind == 2, how & 4 != 0),
    };
    if let Some(Query { group: Some(group), of_ipv4, .. }) = Query::parse(&frame) {
        assert!(group.is_multicast() && group.is_ipv4() == of_ipv4, "{group}");
    }
    let Parsed { learned, reply } = parse(&frame, US, &[own]);
    if let Some((ip, mac)) = learned {
        assert!(!ip.is_unspecified() && !ip.is_multicast(), "{ip}");
        assert!(mac.0[0] & 1 == 0 && mac.0 != [0; 6], "{mac:?}");
    }
    let Some(reply) = reply else { return };
    let Some((IpAddr::V6(requester), mac)) = learned else { panic!("an answer to nobody") };
    assert_eq!(reply[..6], mac.0);
    assert_eq!(parse(&reply, mac, &[requester]), Parsed { learned: Some((own.into(), US)), reply: None });
});
